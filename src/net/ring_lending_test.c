/* What a ring's writer lends is read in its place in the stream, held as long as it is read, and never believed. */
#include "net/ring.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/random.h"
#include "base/spares.h"
#include "net/ring_testing.h"

static void what_is_lent_arrives_in_its_place(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 19);
  uint64_t written = 0, taken = 0;
  size_t most = 0;
  for (int round = 0; round < 600; round++) {
    if (rv_random_below(&random, 4) > 0)
      write_message(both, &written, some_size(&random, 20), &random);
    else
      write_some(&both->server.out, &written, some_size(&random, 18), &random);
    if (written - taken > most) most = written - taken;
    if (rv_random_below(&random, 3) > 0) read_some(&both->client.in, &taken, some_size(&random, 22), &random);
  }
  while (read_some(&both->client.in, &taken, 100000, &random) > 0) continue;
  assert_int_equal(written, taken);
  assert_true(most > RV_RING_BYTES); /* more than the ring has room for */
  rv_ring_settle(&both->server.out);
  assert_int_equal(used_bytes(both), 0);
}

/* A server copies rows past the caches, and parses what is around them. */
static void a_client_lends_as_well(void **state)
{
  ends *both = *state;
  enum { SIZE = 100000, LAST = 1000 };
  assert_true(rv_rings_lend(&both->client, both->arena));
  rv_rings_borrow(&both->server, both->maps, rv_arena_file(both->arena), SIZE_MAX);
  uint8_t *got = malloc(SIZE);
  for (uint64_t at = 0; at < UINT64_C(50) * SIZE; at += SIZE) {
    rv_buf *buf = new_message(both, at, SIZE);
    assert_int_equal(rv_ring_write(&both->client.out, &(struct iovec){buf->data, SIZE}, 1), SIZE);
    assert_int_equal(atomic_load(&buf->refs), 2);
    struct iovec vec[2] = {{got, SIZE - LAST}, {got + SIZE - LAST, LAST}};
    assert_int_equal(rv_ring_read(&both->server.in, vec, 2), SIZE);
    assert_memory_equal(got, buf->data, SIZE);
    assert_true(rv_ring_settle(&both->client.out));
    rv_buf_unref(buf);
  }
  free(got);
  assert_int_equal(atomic_load(&both->client.out.head->written), 0); /* nothing went through the ring */
  assert_int_equal(used_bytes(both), 0);
}

static void what_is_lent_is_held_until_it_was_taken(void **state)
{
  ends *both = *state;
  rv_buf *buf = new_message(both, 0, 500000); /* all of it, although what is lent is a part */
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, 40000}, 1), 40000);
  assert_int_equal(atomic_load(&buf->refs), 2);
  assert_int_equal(both->server.out.held_bytes, buf->capacity);
  assert_int_equal(atomic_load(&both->server.out.head->written), 0); /* nothing lies in the ring */
  assert_false(rv_ring_await_bytes(&both->client.in));
  uint8_t got[40000];
  struct iovec vec[2] = {{got, 39999}, {NULL, 0}};
  assert_int_equal(rv_ring_read(&both->client.in, vec, 2), 39999);
  rv_ring_settle(&both->server.out);
  assert_int_equal(atomic_load(&buf->refs), 2);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got + 39999, 10}, 1), 1);
  assert_memory_equal(got, buf->data, 40000);
  rv_ring_settle(&both->server.out);
  assert_int_equal(atomic_load(&buf->refs), 1);
  assert_true(rv_ring_await_bytes(&both->client.in));
  rv_buf_unref(buf);
}

static void of_many_some_are_copied(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 23);
  uint64_t written = 0, taken = 0;
  for (int i = 0; i < 2 * RV_RING_LOANS; i++) write_message(both, &written, 20000, &random);
  assert_true(written > RV_RING_LOANS * UINT64_C(20000) && written < 2 * RV_RING_LOANS * UINT64_C(20000));
  assert_true(rv_ring_await_room(&both->server.out));
  while (read_some(&both->client.in, &taken, 1000000, &random) > 0) continue;
  assert_int_equal(written, taken);
  assert_false(rv_ring_await_room(&both->server.out));
}

static void more_bytes_than_may_be_held_are_copied(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 41);
  uint64_t written = 0, taken = 0;
  for (int i = 0; i < 50; i++) write_message(both, &written, 900000, &random);
  assert_true(both->server.out.held_bytes >= RV_RING_HELD && both->server.out.held_bytes < RV_RING_HELD + 1000000);
  assert_true(written > (uint64_t)RV_RING_HELD / 10 * 9 && written < RV_RING_HELD + 900000 + 2 * (uint64_t)RV_RING_BYTES);
  while (read_some(&both->client.in, &taken, 1000000, &random) > 0) continue;
  assert_int_equal(written, taken);
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(both->server.out.held_bytes, 0);
}

static void who_has_no_arena_gets_copies(void **state)
{
  ends *both = *state;
  atomic_store(&both->client.in.head->borrows, 0);
  rv_buf *buf = new_message(both, 0, 40000);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, buf->size}, 1), 40000);
  assert_int_equal(atomic_load(&both->server.out.head->written), 40000);
  assert_int_equal(atomic_load(&buf->refs), 1);
  rv_buf_unref(buf);
}

static void what_was_taken_back_is_not_read(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 29);
  uint64_t written = 0, taken = 0;
  for (int i = 0; i < 3; i++) write_message(both, &written, 30000, &random);
  uint8_t got[50000];
  read_some(&both->client.in, &taken, 40000, &random);
  rv_rings_unmap(&both->server); /* it closes the connection */
  assert_int_equal(used_bytes(both), 0);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), -ECONNRESET);
}

/* ---- what is left where it is lent ---- */

/* A few reads, of which the first piece may have gaps, and then what they left out. */
static ssize_t read_gapped(rv_ring *ring, uint64_t *at, rv_random *random)
{
  enum { MOST = 3 << 20, BEHIND = 1000 };
  static rv_gaps gaps;
  uint8_t *data = malloc(MOST + BEHIND);
  size_t total = 0;
  ssize_t n = 1;
  gaps.count = 0;
  ring->gaps = &gaps;
  for (uint32_t i = 0, reads = 1 + rv_random_below(random, 4); i < reads && n > 0; i++) {
    size_t room = some_size(random, 20);
    if (room > MOST - total) break;
    struct iovec vec[2] = {{data + total, room}, {data + total + room, rv_random_below(random, BEHIND)}};
    n = rv_ring_read(ring, vec, 2);
    if (n > 0) total += (size_t)n;
  }
  rv_gaps_fill(&gaps);
  assert_true(rv_ring_give_back(ring));
  ring->gaps = NULL;
  for (size_t i = 0; i < total; i++)
    if (data[i] != byte_at(*at + i)) fail_msg("byte %" PRIu64 " is another", *at + i);
  *at += total;
  free(data);
  return (ssize_t)total;
}

static void what_is_left_where_it_is_lent_is_in_its_place(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 47);
  uint64_t written = 0, taken = 0;
  for (int round = 0; round < 400; round++) {
    if (rv_random_below(&random, 4) > 0)
      write_message(both, &written, some_size(&random, 20), &random);
    else
      write_some(&both->server.out, &written, some_size(&random, 18), &random);
    uint32_t how = rv_random_below(&random, 4);
    if (how > 1) read_gapped(&both->client.in, &taken, &random);
    if (how == 1) read_some(&both->client.in, &taken, some_size(&random, 22), &random);
  }
  while (taken < written) read_gapped(&both->client.in, &taken, &random);
  assert_int_equal(written, taken);
  rv_ring_settle(&both->server.out);
  assert_int_equal(used_bytes(both), 0);
}

static void what_has_gaps_is_held_until_it_is_given_back(void **state)
{
  ends *both = *state;
  rv_gaps gaps = {.count = 0};
  uint8_t *got = calloc(1, 90000), last[100];
  rv_buf *buf = new_message(both, 0, 90000);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, 40000}, 1), 40000);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data + 40000, 50000}, 1), 50000);
  both->client.in.gaps = &gaps;
  struct iovec vec[2] = {{got, 89990}, {last, sizeof last}};
  assert_int_equal(rv_ring_read(&both->client.in, vec, 2), 90000); /* of the second a part belongs elsewhere: it is copied */
  assert_int_equal(gaps.count, 1);
  assert_ptr_equal(gaps.gap[0].to, got);
  assert_int_equal(got[100], 0);
  assert_memory_equal(got + 40000, buf->data + 40000, 49990);
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(both->server.out.settled, 0); /* nor is the other given back before */
  rv_gaps_fill(&gaps);
  assert_memory_equal(got, buf->data, 40000);
  assert_true(rv_ring_give_back(&both->client.in));
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(atomic_load(&buf->refs), 1);
  rv_buf_unref(buf);
  free(got);
}

static void what_was_taken_back_meanwhile_is_told_as_it_is_given_back(void **state)
{
  ends *both = *state;
  rv_gaps gaps = {.count = 0};
  uint8_t *got = malloc(40000), last[10];
  rv_buf *buf = new_message(both, 0, 40000);
  rv_ring_write(&both->server.out, &(struct iovec){buf->data, 40000}, 1);
  rv_buf_unref(buf);
  both->client.in.gaps = &gaps;
  struct iovec vec[2] = {{got, 40000}, {last, sizeof last}};
  assert_int_equal(rv_ring_read(&both->client.in, vec, 2), 40000);
  rv_rings_unmap(&both->server);
  assert_false(rv_ring_give_back(&both->client.in));
  free(got);
}

/* Whoever reads them learns where what is lent behind them belongs, at the latest from its first line. */
static void what_is_parsed_at_once_is_read_before_what_is_lent(void **state)
{
  enum { LINE = 64 };
  ends *both = *state;
  uint8_t *got = malloc(40000), *at = got + LINE;
  rv_buf *buf = new_message(both, 3, 40000);
  struct iovec vec[2] = {{"abc", 3}, {buf->data, 40000}};
  assert_int_equal(rv_ring_write(&both->server.out, vec, 2), 40003);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, 40000}, 1), 3);
  assert_false(rv_ring_await_bytes(&both->client.in));
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, 40000}, 1), LINE);
  assert_false(rv_ring_await_bytes(&both->client.in));
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){at, 10000}, 1),
                   10000); /* who has no place gets it all the same */
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){at + 10000, 40000}, 1), 40000 - LINE - 10000);
  assert_memory_equal(got, buf->data, 40000);
  rv_buf_unref(buf);
  free(got);
}

/* A message whose frame begins with a row: one line is read to where frames are parsed, the rest is left where it is lent. */
static void what_a_frame_begins_with_is_left_but_for_its_first_line(void **state)
{
  enum { LINE = 64, SIZE = 400000 };
  ends *both = *state;
  rv_gaps gaps = {.count = 0};
  uint8_t *got = calloc(1, SIZE), last[100];
  rv_buf *buf = new_message(both, 7, SIZE);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, SIZE}, 1), SIZE);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, SIZE}, 1), LINE);
  both->client.in.gaps = &gaps;
  assert_int_equal(rv_ring_read(&both->client.in, (struct iovec[2]){{got + LINE, SIZE - LINE}, {last, sizeof last}}, 2),
                   SIZE - LINE);
  assert_int_equal(gaps.count, 1);
  assert_ptr_equal(gaps.gap[0].to, got + LINE);
  assert_int_equal(gaps.gap[0].size, SIZE - LINE);
  rv_gaps_fill(&gaps);
  assert_memory_equal(got, buf->data, SIZE);
  assert_true(rv_ring_give_back(&both->client.in));
  rv_ring_settle(&both->server.out);
  rv_buf_unref(buf);
  free(got);
}

/* Between its first line and the rest the other end may write anything there. */
static void a_loan_that_changes_while_it_is_read_is_refused_or_read_within_bounds(void **state)
{
  ends *both = *state;
  uint8_t got[1000];
  const rv_ring_loan lies[] = {{.at = 0, .offset = 4096, .size = 64},
                               {.at = 0, .offset = 4096, .size = 10},
                               {.at = 0, .offset = UINT64_MAX - 10, .size = 40000},
                               {.at = 0, .offset = UINT64_C(64) << 20, .size = 40000},
                               {.at = 0, .offset = 4096, .size = 0},
                               {.at = 1, .offset = 4096, .size = 40000}};
  rv_buf *buf = new_message(both, 0, 40000);
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    both->client.in.loan[0] = (rv_ring_loan){.at = 0, .offset = rv_buf_arena_offset(buf), .size = 40000};
    atomic_store(&both->client.in.head->lent, 1);
    both->client.in.loan_taken = 0;
    assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), 64);
    both->client.in.loan[0] = lies[i];
    int expected = lies[i].at == 0 ? -EPROTO : 0; /* what stands before it has not come */
    assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), expected);
  }
  both->client.in.loan[0] = (rv_ring_loan){.at = 0, .offset = rv_buf_arena_offset(buf), .size = 100};
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), 36);
  rv_buf_unref(buf);
}

static void what_was_taken_back_behind_its_first_line_is_not_read(void **state)
{
  ends *both = *state;
  uint8_t got[100];
  rv_buf *buf = new_message(both, 0, 40000);
  rv_ring_write(&both->server.out, &(struct iovec){buf->data, 40000}, 1);
  rv_buf_unref(buf);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), 64);
  rv_rings_unmap(&both->server);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), -ECONNRESET);
}

static void without_addresses_what_is_lent_is_read_from_the_file(void **state)
{
  ends *both = *state;
  static uint8_t got[600000];
  rv_random random;
  rv_random_init(&random, 43);
  uint64_t written = 0;
  for (int i = 0; i < 5; i++) write_message(both, &written, 100000, &random);
  struct rlimit before, none;
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  none = (struct rlimit){.rlim_cur = 4096, .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
  size_t total = 0;
  for (ssize_t n = 1; n > 0 && total<sizeof got; total += n> 0 ? (size_t)n : 0) {
    size_t most = total < 70000 ? 70000 - total : sizeof got - total; /* a part of one */
    n = rv_ring_read(&both->client.in, &(struct iovec){got + total, most}, 1);
  }
  assert_null(rv_arena_map_at(both->client.in.writers_arena, 0, 1));
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  assert_int_equal(total, written);
  for (uint64_t i = 0; i < written; i++)
    if (got[i] != byte_at(i)) fail_msg("byte %" PRIu64 " is another", i);
}

static void loans_that_cannot_be_are_refused(void **state)
{
  ends *both = *state;
  uint8_t got[100];
  struct iovec vec = {got, sizeof got};
  const rv_ring_loan wrong[] = {
      {.at = 0, .offset = UINT64_C(64) << 20, .size = 1}, {.at = 0, .offset = 0, .size = (UINT64_C(64) << 20) + 1},
      {.at = 0, .offset = UINT64_MAX, .size = 2},         {.at = RV_RING_BYTES + 1, .offset = 0, .size = 1},
      {.at = UINT64_MAX, .offset = 0, .size = 1},         {.at = 0, .offset = 0, .size = 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    both->client.in.loan[0] = wrong[i];
    atomic_store(&both->client.in.head->lent, 1);
    assert_int_equal(rv_ring_read(&both->client.in, &vec, 1), -EPROTO);
    assert_false(rv_ring_await_bytes(&both->client.in)); /* reading tells */
  }
  atomic_store(&both->client.in.head->lent, RV_RING_LOANS + 1);
  assert_int_equal(rv_ring_read(&both->client.in, &vec, 1), -EPROTO);
  assert_false(rv_ring_await_bytes(&both->client.in));
}

/* Whoever publishes a loan publishes the bytes before it right after: they are waited for like others. */
static void a_loan_behind_bytes_that_have_not_come_is_waited_for(void **state)
{
  ends *both = *state;
  uint8_t got[100];
  both->client.in.loan[0] = (rv_ring_loan){.at = 1, .offset = 4096, .size = 1};
  atomic_store(&both->client.in.head->lent, 1);
  assert_int_equal(rv_ring_read(&both->client.in, &(struct iovec){got, sizeof got}, 1), 0);
  assert_true(rv_ring_await_bytes(&both->client.in));
  atomic_store(&both->client.in.head->written, 1);
  assert_false(rv_ring_await_bytes(&both->client.in));
}

static void returns_that_cannot_be_let_nothing_go(void **state)
{
  ends *both = *state;
  rv_buf *buf = new_message(both, 0, 40000);
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, buf->size}, 1), 40000);
  const uint32_t wrong[] = {2, 1000, UINT32_MAX, UINT32_C(1) << 31};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    atomic_store(&both->server.out.head->returned, wrong[i]);
    assert_false(rv_ring_settle(&both->server.out));
    assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){"x", 1}, 1), -EPROTO);
    assert_int_equal(atomic_load(&buf->refs), 2);
  }
  atomic_store(&both->server.out.head->returned, 1);
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(atomic_load(&buf->refs), 1);
  atomic_store(&both->server.out.head->returned, 0); /* nobody looks */
  assert_true(rv_ring_settle(&both->server.out));
  assert_int_equal(rv_ring_write(&both->server.out, &(struct iovec){buf->data, buf->size}, 1), 40000);
  assert_false(rv_ring_settle(&both->server.out)); /* and back */
  assert_int_equal(atomic_load(&buf->refs), 2);
  rv_buf_unref(buf);
}

/* ---- sleeping and waking ---- */

static void *lend_out(void *argument)
{
  ends *both = argument;
  rv_random random;
  rv_random_init(&random, 31);
  for (uint64_t written = 0; written < STREAMED;) {
    bool lends = rv_random_below(&random, 3) > 0;
    ssize_t n = lends ? write_message(both, &written, some_size(&random, 18), &random)
                      : write_some(&both->server.out, &written, some_size(&random, 18), &random);
    assert_true(n >= 0);
    if (n == 0 && rv_ring_await_room(&both->server.out)) wait_for_bell(both->sockets[1]);
  }
  return NULL;
}

static void whoever_sleeps_is_woken_by_loans(void **state)
{
  ends *both = *state;
  rv_random random;
  rv_random_init(&random, 37);
  pthread_t writer;
  assert_int_equal(pthread_create(&writer, NULL, lend_out, both), 0);
  read_all_asleep(&both->client.in, &random);
  pthread_join(writer, NULL);
}

int main(void)
{
#define LENDING(name) cmocka_unit_test_setup_teardown(name, set_up_lending, tear_down)
  const struct CMUnitTest tests[] = {
      LENDING(what_is_lent_arrives_in_its_place),
      LENDING(a_client_lends_as_well),
      LENDING(what_is_lent_is_held_until_it_was_taken),
      LENDING(of_many_some_are_copied),
      LENDING(who_has_no_arena_gets_copies),
      LENDING(what_was_taken_back_is_not_read),
      LENDING(what_is_left_where_it_is_lent_is_in_its_place),
      LENDING(what_has_gaps_is_held_until_it_is_given_back),
      LENDING(what_was_taken_back_meanwhile_is_told_as_it_is_given_back),
      LENDING(what_is_parsed_at_once_is_read_before_what_is_lent),
      LENDING(what_a_frame_begins_with_is_left_but_for_its_first_line),
      LENDING(a_loan_that_changes_while_it_is_read_is_refused_or_read_within_bounds),
      LENDING(what_was_taken_back_behind_its_first_line_is_not_read),
      LENDING(without_addresses_what_is_lent_is_read_from_the_file),
      LENDING(loans_that_cannot_be_are_refused),
      LENDING(a_loan_behind_bytes_that_have_not_come_is_waited_for),
      LENDING(returns_that_cannot_be_let_nothing_go),
      LENDING(more_bytes_than_may_be_held_are_copied),
      LENDING(whoever_sleeps_is_woken_by_loans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
