#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/part_testing.h"
#include "base/random.h"
#include "store/rate_limiter.h"

static rv_rate_limiter made(rv_rate_limiter_config config)
{
  rv_rate_limiter limiter;
  rv_error err = {0};
  if (rv_rate_limiter_init(&limiter, &config, &err) != RV_OK) fail_msg("%s", err.message);
  return limiter;
}

/* For a table whose items come and go in any order. */
static rv_code check_size(const rv_rate_limiter_config *config, int64_t max_size, int64_t max_times_sampled, rv_error *err)
{
  rv_table_config table = rv_table_config_default("t", max_size);
  table.rate_limiter = *config;
  table.sampler.kind = table.remover.kind = RV_SELECTOR_UNIFORM;
  table.max_times_sampled = (int32_t)max_times_sampled;
  return rv_rate_limiter_check_table(&table, err);
}

static rv_rate_limiter_config general(double ratio, int64_t min_size, double min_diff, double max_diff)
{
  return (rv_rate_limiter_config){ratio, min_size, min_diff, max_diff};
}

/* Inserts, or samples, until the limiter stops it; at most `limit`. */
static int insert_all(rv_rate_limiter *limiter, int limit)
{
  int n = 0;
  for (; n < limit && rv_rate_limiter_can_insert(limiter, 1); n++) rv_rate_limiter_inserted(limiter, 1);
  return n;
}

static int sample_all(rv_rate_limiter *limiter, int limit)
{
  int n = 0;
  for (; n < limit && rv_rate_limiter_can_sample(limiter, 1); n++) rv_rate_limiter_sampled(limiter, 1);
  return n;
}

static void min_size_makes_only_samples_wait_and_only_at_first(void **state)
{
  (void)state;
  rv_rate_limiter limiter = made(rv_rate_limiter_min_size(3));
  assert_int_equal(insert_all(&limiter, 2), 2);
  assert_int_equal(sample_all(&limiter, 5), 0);
  assert_int_equal(insert_all(&limiter, 1000), 1000);
  assert_int_equal(sample_all(&limiter, 5000), 5000);
  rv_rate_limiter_deleted(&limiter, 1000);
  assert_int_equal(sample_all(&limiter, 1), 0);
}

static void a_queue_lets_each_item_be_sampled_once_and_holds_its_size(void **state)
{
  (void)state;
  rv_rate_limiter limiter = made(rv_rate_limiter_queue(3));
  assert_int_equal(sample_all(&limiter, 9), 0);
  assert_int_equal(insert_all(&limiter, 9), 3);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(sample_all(&limiter, 1), 1);
    rv_rate_limiter_deleted(&limiter, 1); /* max_times_sampled 1 */
  }
  assert_int_equal(insert_all(&limiter, 9), 2);
  assert_int_equal(sample_all(&limiter, 9), 3);
  assert_int_equal(rv_rate_limiter_stack(5).max_diff == 5, 1);
}

static void a_ratio_keeps_samples_within_its_buffer_of_the_inserts(void **state)
{
  (void)state;
  rv_rate_limiter limiter = made(rv_rate_limiter_sample_to_insert_ratio(2, 10, 6));
  assert_int_equal(insert_all(&limiter, 100), 13); /* 2 x 13 = 26 = 2 x 10 + 6 */
  assert_int_equal(sample_all(&limiter, 100), 12); /* 26 - 12 = 14 = 2 x 10 - 6 */
  assert_int_equal(insert_all(&limiter, 100), 6);
  assert_int_equal(sample_all(&limiter, 100), 12);
}

static void reverbs_own_configurations_pass(void **state)
{
  (void)state;
  const int64_t sizes[] = {1, 2, 7, 1000, 1000000, INT32_MAX};
  const double ratios[] = {1e-6, 0.1, 0.25, 1.0 / 3, 0.5, 1, 1.5, 2, 7, 32, 1e4, 1e6};
  rv_error err = {0};
  for (size_t s = 0; s < 6; s++) {
    rv_rate_limiter_config config = rv_rate_limiter_min_size(sizes[s]);
    assert_int_equal(rv_rate_limiter_check(&config, &err), RV_OK);
    config = rv_rate_limiter_queue(sizes[s]);
    assert_int_equal(rv_rate_limiter_check(&config, &err), RV_OK);
    config = rv_rate_limiter_stack(sizes[s]);
    assert_int_equal(rv_rate_limiter_check(&config, &err), RV_OK);
    for (size_t r = 0; r < 12; r++) {
      double least = ratios[r] > 1 ? ratios[r] : 1; /* half of the room that Reverb's Python asks for */
      const double buffers[] = {least, least * 1.5, least * 100, 1e9, 1e18, 1e300, DBL_MAX};
      for (size_t b = 0; b < 7; b++) {
        config = rv_rate_limiter_sample_to_insert_ratio(ratios[r], sizes[s], buffers[b]);
        if (config.max_diff - config.min_diff < 2 * least) continue; /* lost to rounding: Reverb refuses it too */
        if (rv_rate_limiter_check(&config, &err) != RV_OK) fail_msg("%g %g: %s", ratios[r], buffers[b], err.message);
        double middle = ratios[r] * (double)sizes[s];
        config = general(ratios[r], sizes[s], middle, middle + 2 * least); /* (lo, hi) with lo as high as it may be */
        if (config.max_diff - config.min_diff < 2 * least) continue;
        if (rv_rate_limiter_check(&config, &err) != RV_OK) fail_msg("%g %g: %s", ratios[r], buffers[b], err.message);
        config = general(ratios[r], sizes[s], -5 - 2 * least, -5); /* hi below the middle, of which Reverb only warns */
        if (rv_rate_limiter_check(&config, &err) != RV_OK) fail_msg("%g %g: %s", ratios[r], buffers[b], err.message);
      }
    }
  }
  rv_rate_limiter_config config = general(1, 1, -HUGE_VAL, HUGE_VAL);
  assert_int_equal(rv_rate_limiter_check(&config, &err), RV_OK);
}

static void refuses(rv_rate_limiter_config config, const char *word)
{
  rv_error err = {0};
  assert_int_equal(rv_rate_limiter_check(&config, &err), RV_INVALID_ARGUMENT);
  if (strstr(err.message, word) == NULL) fail_msg("\"%s\" does not speak of %s", err.message, word);
}

static void parameters_out_of_range_are_refused_by_name(void **state)
{
  (void)state;
  const double ratios[] = {0, -1, NAN, HUGE_VAL, 1e300};
  for (size_t i = 0; i < 5; i++) refuses(general(ratios[i], 1, -DBL_MAX, DBL_MAX), "samples_per_insert");
  refuses(rv_rate_limiter_min_size(0), "min_size_to_sample");
  refuses(rv_rate_limiter_min_size(-5), "min_size_to_sample");
  refuses(rv_rate_limiter_min_size(INT64_MAX), "min_size_to_sample");
  refuses(rv_rate_limiter_queue(0), "size");
  refuses(rv_rate_limiter_queue(-1), "size");
  refuses(rv_rate_limiter_stack(0), "size");
  refuses(general(1, 1, NAN, 5), "min_diff is NaN");
  refuses(general(1, 1, 0, NAN), "max_diff is NaN");
  refuses(rv_rate_limiter_sample_to_insert_ratio(1, 10, -1), "error buffer");
  refuses(rv_rate_limiter_sample_to_insert_ratio(1, 10, NAN), "NaN");
  refuses(general(1, 1, HUGE_VAL, HUGE_VAL), "never reached");
  refuses(general(1, 1, DBL_MAX, DBL_MAX), "never reached");
}

static void parameters_that_never_let_a_sample_through_are_refused_with_the_numbers(void **state)
{
  (void)state;
  refuses(general(1, 1, 5, 5), "inserts stop after 5");
  refuses(general(1, 10, 10, 10), "inserts stop after 10");
  refuses(general(0.5, 1, 0.25, 1.25), "inserts stop after 2");
}

/* Whether a sample ever happens, found out by trying: inserts as long as they may, in a table that nobody deletes from. */
static bool a_sample_happens(rv_rate_limiter_config config, int limit)
{
  rv_rate_limiter limiter = {.config = config};
  for (int i = 0; i < limit; i++) {
    if (rv_rate_limiter_can_sample(&limiter, 1)) return true;
    if (!rv_rate_limiter_can_insert(&limiter, 1)) return false;
    rv_rate_limiter_inserted(&limiter, 1);
  }
  return false;
}

static void the_check_agrees_with_trying(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 3);
  int refused = 0;
  for (int i = 0; i < 20000; i++) {
    double ratio = rv_random_below(&random, 2) == 0 ? 1 + rv_random_below(&random, 4) : rv_random_unit(&random) * 3 + 0.01;
    double min_diff = rv_random_unit(&random) * 40 - 20;
    if (rv_random_below(&random, 2) == 0) min_diff = floor(min_diff);
    double max_diff = min_diff + rv_random_unit(&random) * 5;
    if (rv_random_below(&random, 2) == 0) max_diff = min_diff + rv_random_below(&random, 4);
    rv_rate_limiter_config config = general(ratio, 1 + rv_random_below(&random, 12), min_diff, max_diff);
    bool passes = rv_rate_limiter_check(&config, NULL) == RV_OK;
    refused += !passes;
    assert_int_equal(passes, a_sample_happens(config, 10000));
  }
  assert_true(refused > 500);
}

/* With room for one insert and one sample neither can ever be stopped for good. */
static void a_buffer_of_one_insert_and_one_sample_never_stops_both(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 4);
  for (int round = 0; round < 500; round++) {
    double ratio = rv_random_unit(&random) * 4 + 0.01;
    int64_t min_size = 1 + rv_random_below(&random, 20);
    double buffer = (ratio > 1 ? ratio : 1) * (1 + rv_random_unit(&random));
    rv_rate_limiter limiter = made(rv_rate_limiter_sample_to_insert_ratio(ratio, min_size, buffer));
    for (int i = 0; i < 1000; i++) {
      bool insert = rv_rate_limiter_can_insert(&limiter, 1), sample = rv_rate_limiter_can_sample(&limiter, 1);
      assert_true(insert || sample);
      if (insert && (!sample || rv_random_below(&random, 2) == 0))
        rv_rate_limiter_inserted(&limiter, 1);
      else
        rv_rate_limiter_sampled(&limiter, 1);
    }
  }
}

static void a_table_too_small_for_min_size_is_refused(void **state)
{
  (void)state;
  rv_rate_limiter_config config = rv_rate_limiter_min_size(100);
  rv_error err = {0};
  assert_int_equal(check_size(&config, 100, 0, &err), RV_OK);
  assert_int_equal(check_size(&config, 99, 0, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "max_size = 99 items"));
}

static void parameters_that_let_both_sides_wait_for_each_other_are_refused(void **state)
{
  (void)state;
  rv_error err = {0};
  rv_rate_limiter_config narrow = rv_rate_limiter_sample_to_insert_ratio(4, 10, 1);
  assert_int_equal(check_size(&narrow, 100, 0, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "10 inserts and 1 samples"));
  assert_non_null(strstr(err.message, "an error buffer of 4"));
  assert_int_equal(check_size(&narrow, 100, 1, &err), RV_OK);
  rv_rate_limiter_config half = {.samples_per_insert = 1, .min_size_to_sample = 1, .min_diff = 0, .max_diff = 0.5};
  assert_int_equal(check_size(&half, 100, 0, &err), RV_INVALID_ARGUMENT);
  rv_rate_limiter_config fine[] = {rv_rate_limiter_queue(1),
                                   rv_rate_limiter_stack(7),
                                   rv_rate_limiter_min_size(3),
                                   rv_rate_limiter_sample_to_insert_ratio(4, 10, 4),
                                   rv_rate_limiter_sample_to_insert_ratio(0.1, 50, 1),
                                   rv_rate_limiter_sample_to_insert_ratio(32.5, 100, 32.5)};
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) assert_int_equal(check_size(&fine[i], 100, 0, &err), RV_OK);
}

static void what_comes_to_a_stand_though_items_go_is_refused(void **state)
{
  (void)state;
  const struct {
    rv_rate_limiter_config config;
    int64_t max_times_sampled;
    const char *example;
  } cases[] = {{general(2.5, 10, 23.5, 25.5), 100, "after 10 inserts and 1 samples"},
               {general(2, 1, 2.25, 4), 1, "after 2 inserts and 1 samples"},
               {general(1, 1, -2, -1.25), 3, "after 2 inserts and 4 samples"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rv_error err = {0};
    assert_int_equal(check_size(&cases[i].config, 1000, cases[i].max_times_sampled, &err), RV_INVALID_ARGUMENT);
    if (strstr(err.message, "wait for each other for ever") == NULL || strstr(err.message, cases[i].example) == NULL)
      fail_msg("%zu: %s", i, err.message);
  }
}

static void reverbs_own_configurations_pass_however_often_items_may_be_sampled(void **state)
{
  (void)state;
  const int64_t sizes[] = {1, 2, 3, 1000, INT32_MAX}, times[] = {0, 1, 2, 3, 100, INT32_MAX};
  const double ratios[] = {0.1, 1.0 / 3, 0.5, 1, 1.5, 2, 32, 1e4};
  rv_error err = {0};
  for (size_t s = 0; s < 5; s++) {
    for (size_t t = 0; t < 6; t++) {
      rv_rate_limiter_config configs[3 + 8] = {rv_rate_limiter_queue(sizes[s]), rv_rate_limiter_stack(sizes[s]),
                                               rv_rate_limiter_min_size(sizes[s])};
      for (size_t r = 0; r < 8; r++)
        configs[3 + r] = rv_rate_limiter_sample_to_insert_ratio(ratios[r], sizes[s], ratios[r] > 1 ? ratios[r] : 1);
      for (size_t c = 0; c < 3 + 8; c++)
        if (check_size(&configs[c], sizes[s], times[t], &err) != RV_OK)
          fail_msg("size %lld, configuration %zu, max_times_sampled %lld: %s", (long long)sizes[s], c, (long long)times[t],
                   err.message);
    }
  }
}

enum { PRESENT = 64, TRIED_STEPS = 400 };

/* Inserts and samples as both are let, of items that chance chooses; false: neither is let any more. */
static bool goes_on(rv_rate_limiter_config config, int64_t max_times_sampled, int64_t max_size, rv_random *random)
{
  rv_rate_limiter limiter = made(config);
  int64_t times[PRESENT];
  size_t n = 0;
  for (int step = 0; step < TRIED_STEPS; step++) {
    bool insert = rv_rate_limiter_can_insert(&limiter, 1), sample = rv_rate_limiter_can_sample(&limiter, 1);
    if (!insert && !sample) return false;
    if (insert && (!sample || rv_random_next(random) % 2 == 0)) {
      if ((int64_t)n == max_size) {
        times[rv_random_next(random) % n] = times[n - 1];
        n--;
        rv_rate_limiter_deleted(&limiter, 1);
      }
      times[n++] = 0;
      rv_rate_limiter_inserted(&limiter, 1);
      continue;
    }
    size_t at = rv_random_next(random) % n;
    rv_rate_limiter_sampled(&limiter, 1);
    if (++times[at] != max_times_sampled) continue;
    times[at] = times[--n];
    rv_rate_limiter_deleted(&limiter, 1);
  }
  return true;
}

static void what_is_accepted_goes_on_whichever_items_are_sampled(void **state)
{
  (void)state;
  enum { TRIES = 20000 / ONE_PART_OF };
  const char *given = getenv("RV_TEST_SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1;
  print_message("seed %llu\n", (unsigned long long)seed);
  rv_random random;
  rv_random_init(&random, seed);
  int accepted = 0;
  for (int i = 0; i < TRIES; i++) {
    double ratio = (double)(1 + rv_random_next(&random) % 12) / (double)(1 << rv_random_next(&random) % 3); /* exact */
    int64_t min_size = 1 + (int64_t)(rv_random_next(&random) % 4), times = (int64_t)(rv_random_next(&random) % 6);
    int64_t max_size = min_size + 1 + (int64_t)(rv_random_next(&random) % (PRESENT / 2));
    double low = ratio * (double)min_size - 4 + (double)(rv_random_next(&random) % 24) / 4;
    rv_rate_limiter_config config = general(ratio, min_size, low, low + (double)(rv_random_next(&random) % 24) / 4);
    if (check_size(&config, max_size, times, NULL) != RV_OK) continue;
    accepted++;
    if (!goes_on(config, times, max_size, &random))
      fail_msg("ratio %g, min_size %lld, diffs %g to %g, max_size %lld, max_times_sampled %lld: comes to a stand", ratio,
               (long long)min_size, config.min_diff, config.max_diff, (long long)max_size, (long long)times);
  }
  assert_in_range(accepted, TRIES / 10, TRIES);
}

/* What the formula says of a table whose items go with their first sample: neither side ever waits for the other for good. */
static void a_minimum_above_the_maximum_is_fine_where_items_go_with_their_sample(void **state)
{
  (void)state;
  rv_error err = {0};
  rv_rate_limiter_config configs[] = {general(3, 2, 4, 3), general(1, 2, 1, 0), general(1.5, 4, 5, -5)};
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    assert_int_equal(rv_rate_limiter_check(&configs[i], &err), RV_OK);
    assert_int_equal(check_size(&configs[i], 100, 1, &err), RV_OK);
    assert_int_equal(check_size(&configs[i], 100, 2, &err), RV_INVALID_ARGUMENT); /* two items, each sampled once */
    assert_int_equal(check_size(&configs[i], 100, 0, &err), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "is greater than max_diff"));
    rv_rate_limiter limiter = made(configs[i]);
    for (int step = 0; step < 1000; step++) {
      bool insert = rv_rate_limiter_can_insert(&limiter, 1), sample = rv_rate_limiter_can_sample(&limiter, 1);
      assert_true(insert || sample);
      if (insert) {
        rv_rate_limiter_inserted(&limiter, 1);
      } else {
        rv_rate_limiter_sampled(&limiter, 1);
        rv_rate_limiter_deleted(&limiter, 1);
      }
    }
  }
  rv_rate_limiter_config sinking = general(0.5, 10, 3, 2); /* each turn pays for half a sample */
  assert_int_equal(check_size(&sinking, 100, 1, &err), RV_INVALID_ARGUMENT);
}

static void how_many_may_proceed_is_what_one_by_one_may(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 5);
  for (int round = 0; round < 5000; round++) {
    rv_rate_limiter limiter = {.config = general(rv_random_unit(&random) * 3 + 0.01, 1 + rv_random_below(&random, 10),
                                                 -20 + rv_random_unit(&random) * 20, rv_random_unit(&random) * 40)};
    int64_t inserts = rv_random_below(&random, 50);
    assert_int_equal(rv_rate_limiter_restore(&limiter, inserts, rv_random_below(&random, 80), inserts / 2, NULL), RV_OK);
    rv_rate_limiter copy = limiter;
    int64_t want = 1 + rv_random_below(&random, 60);
    int64_t allowed = rv_rate_limiter_inserts_allowed(&limiter, want);
    assert_int_equal(allowed, insert_all(&copy, (int)want));
    assert_int_equal(rv_rate_limiter_can_insert(&limiter, want), allowed == want);
    copy = limiter;
    allowed = rv_rate_limiter_samples_allowed(&limiter, want);
    assert_int_equal(allowed, sample_all(&copy, (int)want));
    assert_int_equal(rv_rate_limiter_can_sample(&limiter, want), allowed == want);
  }
  rv_rate_limiter limiter = made(rv_rate_limiter_min_size(1));
  assert_int_equal(rv_rate_limiter_inserts_allowed(&limiter, INT64_MAX), INT64_MAX);
  assert_int_equal(rv_rate_limiter_inserts_allowed(&limiter, 0), 0);
  assert_true(rv_rate_limiter_can_sample(&limiter, 0));
}

static void explained(const rv_rate_limiter *limiter, bool insert, rv_wait_reason reason, const char *words)
{
  char text[200];
  assert_int_equal(rv_rate_limiter_explain(limiter, insert, text, sizeof text), reason);
  if (strstr(text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", text, words);
}

static void what_is_waited_for_is_told_in_numbers(void **state)
{
  (void)state;
  rv_rate_limiter limiter = made(rv_rate_limiter_min_size(10));
  rv_rate_limiter_inserted(&limiter, 7);
  explained(&limiter, false, RV_WAIT_MIN_SIZE, "waits for 10 items, has 7 (min_size_to_sample)");
  explained(&limiter, true, RV_WAIT_NONE, "may proceed");
  limiter = made(rv_rate_limiter_min_size(1000000));
  rv_rate_limiter_inserted(&limiter, 12345);
  explained(&limiter, false, RV_WAIT_MIN_SIZE, "waits for 1,000,000 items, has 12,345");
  limiter = made(rv_rate_limiter_queue(2));
  rv_rate_limiter_inserted(&limiter, 2);
  explained(&limiter, true, RV_WAIT_TOO_MANY_INSERTS, "waits for 1 more sample (max_diff 2;");
  rv_rate_limiter_sampled(&limiter, 2);
  explained(&limiter, false, RV_WAIT_TOO_MANY_SAMPLES, "waits for 1 more insert (min_diff 0;");
  char tiny[5];
  rv_rate_limiter_explain(&limiter, false, tiny, sizeof tiny);
  assert_string_equal(tiny, "wait");
}

static void of_a_standstill_both_sides_are_told(void **state)
{
  (void)state;
  rv_rate_limiter limiter = made(general(3.3, 2, 13, 17));
  rv_rate_limiter_inserted(&limiter, 6);
  rv_rate_limiter_sampled(&limiter, 5);
  char text[300];
  rv_rate_limiter_explain(&limiter, true, text, sizeof text);
  assert_null(strstr(text, "neither"));
  rv_rate_limiter_sampled(&limiter, 1);
  rv_rate_limiter_explain(&limiter, true, text, sizeof text);
  assert_non_null(strstr(text, "waits for 1 more sample ("));
  assert_non_null(
      strstr(text, "; sampling waits, too, and neither goes on by itself: set another rate limiter, delete items or reset"));
  rv_rate_limiter_explain(&limiter, false, text, sizeof text);
  assert_non_null(strstr(text, "; inserting waits, too, and neither goes on by itself: "));
  rv_rate_limiter_deleted(&limiter, 5); /* fewer than min_size_to_sample are left */
  rv_rate_limiter_explain(&limiter, false, text, sizeof text);
  assert_null(strstr(text, "neither"));
}

/* What it says it waits for is enough, and one less is not. */
static void the_number_explained_is_the_number_needed(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 6);
  for (int round = 0; round < 20000; round++) {
    rv_rate_limiter limiter = {.config = general(1 + rv_random_below(&random, 4), 1, -5, 5 + rv_random_below(&random, 20))};
    assert_int_equal(rv_rate_limiter_restore(&limiter, rv_random_below(&random, 50), rv_random_below(&random, 200), 0, NULL),
                     RV_OK);
    char text[200];
    bool insert = rv_random_below(&random, 2) == 0;
    rv_wait_reason reason = rv_rate_limiter_explain(&limiter, insert, text, sizeof text);
    if (reason == RV_WAIT_NONE || reason == RV_WAIT_MIN_SIZE) continue; /* of the latter there may be more to come */
    int64_t more = strtoll(text + strlen("waits for "), NULL, 10);
    int64_t *counter = insert ? &limiter.samples : &limiter.inserts;
    *counter += more - 1;
    assert_false(insert ? rv_rate_limiter_can_insert(&limiter, 1) : rv_rate_limiter_can_sample(&limiter, 1));
    ++*counter;
    assert_true(insert ? rv_rate_limiter_can_insert(&limiter, 1) : rv_rate_limiter_can_sample(&limiter, 1));
  }
}

static void a_refused_change_changes_nothing_and_an_accepted_one_keeps_the_counters(void **state)
{
  (void)state;
  rv_rate_limiter limiter = made(rv_rate_limiter_queue(1));
  rv_rate_limiter_inserted(&limiter, 1);
  rv_rate_limiter_config bad = rv_rate_limiter_min_size(0);
  assert_int_equal(rv_rate_limiter_configure(&limiter, &bad, NULL), RV_INVALID_ARGUMENT);
  assert_false(rv_rate_limiter_can_insert(&limiter, 1));
  rv_rate_limiter_config wider = rv_rate_limiter_queue(3);
  assert_int_equal(rv_rate_limiter_configure(&limiter, &wider, NULL), RV_OK);
  assert_int_equal(insert_all(&limiter, 9), 2);
  rv_rate_limiter_reset(&limiter);
  assert_int_equal(insert_all(&limiter, 9), 3);
}

static void counters_that_cannot_be_are_not_restored(void **state)
{
  (void)state;
  rv_rate_limiter limiter = made(rv_rate_limiter_min_size(1));
  assert_int_equal(rv_rate_limiter_restore(&limiter, -1, 0, 0, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_rate_limiter_restore(&limiter, 5, -1, 0, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_rate_limiter_restore(&limiter, 5, 0, -1, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_rate_limiter_restore(&limiter, 5, 0, 6, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_rate_limiter_restore(&limiter, INT64_MAX, 0, 0, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_rate_limiter_restore(&limiter, 5, 7, 5, NULL), RV_OK);
  assert_int_equal(limiter.samples, 7);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(min_size_makes_only_samples_wait_and_only_at_first),
      cmocka_unit_test(a_queue_lets_each_item_be_sampled_once_and_holds_its_size),
      cmocka_unit_test(a_ratio_keeps_samples_within_its_buffer_of_the_inserts),
      cmocka_unit_test(reverbs_own_configurations_pass),
      cmocka_unit_test(parameters_out_of_range_are_refused_by_name),
      cmocka_unit_test(parameters_that_never_let_a_sample_through_are_refused_with_the_numbers),
      cmocka_unit_test(the_check_agrees_with_trying),
      cmocka_unit_test(a_buffer_of_one_insert_and_one_sample_never_stops_both),
      cmocka_unit_test(a_table_too_small_for_min_size_is_refused),
      cmocka_unit_test(parameters_that_let_both_sides_wait_for_each_other_are_refused),
      cmocka_unit_test(what_comes_to_a_stand_though_items_go_is_refused),
      cmocka_unit_test(reverbs_own_configurations_pass_however_often_items_may_be_sampled),
      cmocka_unit_test(what_is_accepted_goes_on_whichever_items_are_sampled),
      cmocka_unit_test(a_minimum_above_the_maximum_is_fine_where_items_go_with_their_sample),
      cmocka_unit_test(how_many_may_proceed_is_what_one_by_one_may),
      cmocka_unit_test(what_is_waited_for_is_told_in_numbers),
      cmocka_unit_test(of_a_standstill_both_sides_are_told),
      cmocka_unit_test(the_number_explained_is_the_number_needed),
      cmocka_unit_test(a_refused_change_changes_nothing_and_an_accepted_one_keeps_the_counters),
      cmocka_unit_test(counters_that_cannot_be_are_not_restored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
