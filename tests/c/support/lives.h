/* Lives of clients and servers in which an allocation fails: one life after another, an allocation later each time, until a life needs no more.
 *
 *   lives_begin(10);                 one allocation in ten or so, another tenth in each run
 *   do {
 *     ...                            what is not to fail
 *     lives_fail();
 *     TRY(what may fail, and is then made again);
 *     lives_end();
 *     ...                            looking whether everything is as if nothing had happened
 *   } while (lives_go_on());
 *
 * RV_TEST_ALL fails each; RV_TEST_SEED repeats a run; RV_TEST_ALLOCATION=n lives one life in which the n-th fails, and, under a sanitizer,
 * shows where that is. lives_tell, as the test's teardown, says which allocation it was where a test fails. */
#ifndef RV_TEST_LIVES_H
#define RV_TEST_LIVES_H

#include "place.h"

#include <limits.h>
#include <time.h>

#include "base/failing_testing.h"

static const rv_wait patient __attribute__((unused)) = {.timeout_ms = 20000};

/* ---- the next one ---- */

typedef struct test_lives {
  rv_random random;
  uint32_t one_in;
  long number; /* of the allocation that fails */
  bool failed, only, over;
} test_lives;

static test_lives lives;

static inline void lives_begin(uint32_t one_in)
{
  const char *seed_given = getenv("RV_TEST_SEED"), *number = getenv("RV_TEST_ALLOCATION");
  uint64_t seed = seed_given != NULL ? strtoull(seed_given, NULL, 0) : (uint64_t)time(NULL);
  lives = (test_lives){.one_in = getenv("RV_TEST_ALL") != NULL ? 1 : one_in, .only = number != NULL};
  if (lives.only) lives.number = strtol(number, NULL, 0);
  rv_random_init(&lives.random, seed);
  print_message("seed %llu\n", (unsigned long long)seed);
}

static inline void lives_fail(void)
{
  fail_allocation(lives.number);
}

static inline void lives_end(void)
{
  lives.failed = allocation_failed();
}

/* For looking in between: nothing fails, and nothing is counted. */
static inline long lives_pause(void)
{
  return atomic_exchange(&until_failure, LONG_MAX);
}

static inline void lives_resume(long left)
{
  until_failure = left;
}

static inline bool lives_go_on(void)
{
  assert_true(lives.number < 50000);
  lives.over = !lives.failed || lives.only;
  if (lives.over) print_message("about %ld allocations\n", lives.number);
  lives.number += 1 + (long)rv_random_below(&lives.random, 2 * lives.one_in - 1);
  return !lives.over;
}

static inline int lives_tell(void **state)
{
  (void)state;
  if (!lives.over) print_message("the allocation that failed: %ld\n", lives.number);
  allocation_failed(); /* the next test begins with none */
  return 0;
}

/* ---- calls that may fail, once ---- */

static bool remote; /* the life goes through a server */

/* What a connection had no memory for may cost the connection. */
static inline bool found_no_memory(rv_code code)
{
  return (code == RV_RESOURCE_EXHAUSTED || (remote && code == RV_UNAVAILABLE)) && until_failure < 0;
}

#define TRY(call)                                                                                                                \
  do {                                                                                                                           \
    rv_error try_error = {.message = ""};                                                                                        \
    rv_error *error = &try_error;                                                                                                \
    (void)error;                                                                                                                 \
    rv_code try_code;                                                                                                            \
    try_code = (call);                                                                                                           \
    if (found_no_memory(try_code)) try_code = (call);                                                                            \
    if (try_code != RV_OK) fail_msg("%s: %s: %s", #call, rv_code_name(try_code), try_error.message);                             \
  } while (0)

/* The same; where a writer says that an item was not made, which it goes on saying, its life ends there: `said` looks at the others. */
#define TRY_ITEMS(call)                                                                                                          \
  do {                                                                                                                           \
    rv_error items_error = {.message = ""};                                                                                      \
    rv_error *error = &items_error;                                                                                              \
    rv_code items_code = (call);                                                                                                 \
    bool out = found_no_memory(items_code);                                                                                      \
    if (out) items_code = (call);                                                                                                \
    if (out && remote && items_code == RV_RESOURCE_EXHAUSTED) goto said;                                                         \
    if (items_code != RV_OK) fail_msg("%s: %s: %s", #call, rv_code_name(items_code), error->message);                            \
  } while (0)

/* Rows of an int64 each: first, first + 1, ... */
static inline void add_numbers(rv_client *client, const char *table, int64_t first, int64_t n, uint64_t *keys)
{
  int64_t values[64], done = 0;
  double priorities[64];
  assert_true(n <= 64);
  for (int64_t i = 0; i < n; i++) {
    values[i] = first + i;
    priorities[i] = 1;
  }
  for (int tries = 0; done < n; tries++) {
    rv_error err;
    int64_t left = n - done;
    size_t added = 0;
    rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &left, .data = values + done};
    rv_code code = rv_client_add_batch(client, table, &column, 1, (size_t)left, priorities, keys + done, &added, &patient, &err);
    done += (int64_t)added;
    if (code != RV_OK && (!found_no_memory(code) || tries > 1)) fail_msg("%s", err.message);
    assert_true(code != RV_OK || done == n);
  }
}

#endif
