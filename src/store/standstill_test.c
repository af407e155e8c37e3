#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "store/standstill.h"

static rv_table_config table(rv_rate_limiter_config limiter, int64_t max_size, int32_t max_times_sampled,
                             rv_selector_kind sampler, rv_selector_kind remover)
{
  rv_table_config config = rv_table_config_default("t", max_size);
  config.rate_limiter = limiter;
  config.max_times_sampled = max_times_sampled;
  config.sampler.kind = sampler;
  config.remover.kind = remover;
  return config;
}

/* ---- a model: all tables that there may be after each step, as plain lists ---- */

enum { ITEMS = 6, TABLES = 1000, STEPS = 50 };

typedef struct model_table {
  int inserts, n, times[ITEMS]; /* the oldest first */
} model_table;

typedef struct model {
  model_table now[TABLES], next[TABLES];
  size_t num_now, num_next;
  bool all; /* none was left out */
} model;

static void reach(model *m, const model_table *one)
{
  for (size_t i = 0; i < m->num_next; i++) {
    const model_table *other = &m->next[i];
    if (other->inserts == one->inserts && other->n == one->n &&
        memcmp(other->times, one->times, (size_t)one->n * sizeof(int)) == 0)
      return;
  }
  if (m->num_next == TABLES)
    m->all = false;
  else
    m->next[m->num_next++] = *one;
}

static bool may_choose(rv_selector_kind kind, int at, int n)
{
  return kind == RV_SELECTOR_FIFO ? at == 0 : kind == RV_SELECTOR_LIFO ? at == n - 1 : true;
}

static model_table without(model_table from, int at)
{
  for (int i = at; i + 1 < from.n; i++) from.times[i] = from.times[i + 1];
  from.n--;
  return from;
}

static void reach_by_insert(model *m, const rv_table_config *config, const model_table *from)
{
  for (int at = 0; at < from->n || (at == 0 && from->n < config->max_size); at++) {
    model_table to = *from;
    if (from->n == config->max_size) {
      if (!may_choose(config->remover.kind, at, from->n)) continue;
      to = without(to, at);
    }
    to.times[to.n++] = 0;
    to.inserts++;
    reach(m, &to);
  }
}

static void reach_by_sample(model *m, const rv_table_config *config, const model_table *from)
{
  for (int at = 0; at < from->n; at++) {
    if (!may_choose(config->sampler.kind, at, from->n)) continue;
    model_table to = *from;
    if (++to.times[at] == config->max_times_sampled) to = without(to, at);
    reach(m, &to);
  }
}

/* The first step after which neither side may proceed, from an empty table; STEPS if none of so many. */
static int model_standstill(model *m, const rv_table_config *config)
{
  const rv_rate_limiter_config *c = &config->rate_limiter;
  m->all = true;
  m->num_now = 1;
  m->now[0] = (model_table){.inserts = 0};
  for (int step = 0; step < STEPS && m->all; step++) {
    m->num_next = 0;
    for (size_t i = 0; i < m->num_now; i++) {
      const model_table *from = &m->now[i];
      double inserts = from->inserts, samples = step - from->inserts;
      bool insert = from->n + 1 <= c->min_size_to_sample || (inserts + 1) * c->samples_per_insert - samples <= c->max_diff;
      bool sample = from->n >= c->min_size_to_sample && inserts * c->samples_per_insert - samples - 1 >= c->min_diff;
      if (!insert && !sample) return step;
      if (insert) reach_by_insert(m, config, from);
      if (sample) reach_by_sample(m, config, from);
    }
    memcpy(m->now, m->next, m->num_next * sizeof *m->now);
    m->num_now = m->num_next;
  }
  return STEPS;
}

/* ---- tests ---- */

static void a_standstill_that_only_another_order_reaches_is_found(void **state)
{
  (void)state;
  rv_table_config config = table((rv_rate_limiter_config){3.3, 2, 13, 17}, 3, 2, RV_SELECTOR_UNIFORM, RV_SELECTOR_FIFO);
  rv_error err = {0};
  assert_int_equal(rv_rate_limiter_check_table(&config, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "after 6 inserts and 6 samples"));
}

static void what_the_tables_selectors_never_reach_is_not_refused(void **state)
{
  (void)state;
  rv_rate_limiter_config limiter = {3, 4, 9, 10.5};
  rv_error err = {0};
  rv_table_config any = table(limiter, 5, 3, RV_SELECTOR_UNIFORM, RV_SELECTOR_FIFO);
  assert_int_equal(rv_rate_limiter_check_table(&any, &err), RV_INVALID_ARGUMENT);
  rv_table_config oldest = table(limiter, 5, 3, RV_SELECTOR_FIFO, RV_SELECTOR_FIFO);
  if (rv_rate_limiter_check_table(&oldest, &err) != RV_OK) fail_msg("%s", err.message);
}

static void a_standstill_far_off_is_found(void **state)
{
  (void)state;
  rv_table_config config =
      table((rv_rate_limiter_config){3.14159, 100, 300, 304.1414}, 1000, 0, RV_SELECTOR_UNIFORM, RV_SELECTOR_FIFO);
  rv_standstill found;
  assert_true(rv_standstill_find(&config, &found));
  assert_true(found.inserts + found.samples > 10000);
  rv_rate_limiter limiter = {.config = config.rate_limiter, .inserts = found.inserts, .samples = found.samples};
  assert_false(rv_rate_limiter_can_insert(&limiter, 1));
  assert_false(rv_rate_limiter_can_sample(&limiter, 1));
}

static const char *describe(const rv_table_config *config, char *out, size_t capacity)
{
  snprintf(out, capacity,
           "samples_per_insert %.17g, min_size %lld, diffs %.17g to %.17g, max_size %lld, max_times_sampled %d, sampler %d, "
           "remover %d",
           config->rate_limiter.samples_per_insert, (long long)config->rate_limiter.min_size_to_sample,
           config->rate_limiter.min_diff, config->rate_limiter.max_diff, (long long)config->max_size, config->max_times_sampled,
           (int)config->sampler.kind, (int)config->remover.kind);
  return out;
}

static rv_table_config some_table(rv_random *random)
{
  const rv_selector_kind kinds[] = {RV_SELECTOR_UNIFORM, RV_SELECTOR_FIFO, RV_SELECTOR_LIFO};
  int64_t max_size = 1 + (int64_t)rv_random_below(random, ITEMS);
  rv_rate_limiter_config limiter = {.min_size_to_sample = 1 + (int64_t)rv_random_below(random, (uint32_t)max_size)};
  limiter.samples_per_insert =
      rv_random_below(random, 2) == 0 ? (1 + rv_random_below(random, 16)) / 4.0 : 0.1 * (1 + rv_random_below(random, 60));
  limiter.min_diff = limiter.samples_per_insert * (double)limiter.min_size_to_sample - 3 + rv_random_below(random, 64) / 4.0;
  limiter.max_diff = limiter.min_diff + rv_random_unit(random) * (limiter.samples_per_insert + 1.2);
  return table(limiter, max_size, (int32_t)rv_random_below(random, 5), kinds[rv_random_below(random, 3)],
               kinds[rv_random_below(random, 3)]);
}

/* Nothing is refused for a standstill that is not there, and of few items in few steps none is overlooked. */
static void what_is_found_is_what_trying_all_orders_finds(void **state)
{
  (void)state;
  enum { TRIES = 1000 };
  const char *given = getenv("RV_TEST_SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1;
  print_message("seed %llu\n", (unsigned long long)seed);
  rv_random random;
  rv_random_init(&random, seed);
  model *m = malloc(sizeof *m);
  assert_non_null(m);
  int stand = 0, go_on = 0;
  for (int i = 0; i < TRIES; i++) {
    rv_table_config config = some_table(&random);
    if (rv_rate_limiter_check(&config.rate_limiter, NULL) != RV_OK) continue;
    rv_standstill found = {0};
    bool is_found = rv_standstill_find(&config, &found);
    int step = model_standstill(m, &config);
    char text[300];
    if (step < STEPS && !is_found) fail_msg("%s: stands after %d", describe(&config, text, sizeof text), step);
    if (is_found && m->all && found.inserts + found.samples < STEPS && step == STEPS)
      fail_msg("%s: goes on after %lld inserts and %lld samples", describe(&config, text, sizeof text), (long long)found.inserts,
               (long long)found.samples);
    stand += step < STEPS;
    go_on += step == STEPS && m->all && !is_found;
  }
  free(m);
  assert_in_range(stand, TRIES / 10, TRIES);
  assert_in_range(go_on, TRIES / 10, TRIES);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_standstill_that_only_another_order_reaches_is_found),
      cmocka_unit_test(what_the_tables_selectors_never_reach_is_not_refused),
      cmocka_unit_test(a_standstill_far_off_is_found),
      cmocka_unit_test(what_is_found_is_what_trying_all_orders_finds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
