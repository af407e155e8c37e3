/* Samplers, in process and remote. */
#include <stdatomic.h>

#include "client_fixture.h"

static rv_sampler *open_sampler(fixture *f, const char *table, int64_t max_samples, uint32_t in_flight, uint32_t streams,
                                int64_t limiter_ms)
{
  rv_error err;
  rv_sampler_config config = {.size = sizeof config,
                              .table = table,
                              .max_samples = max_samples,
                              .max_in_flight_samples = in_flight,
                              .num_streams = streams,
                              .rate_limiter_timeout_ms = limiter_ms};
  rv_sampler *sampler;
  assert_ok(rv_sampler_new(f->client, &config, &sampler, &err));
  return sampler;
}

TEST(samples_come_in_the_selectors_order)
{
  rv_error err;
  for (int i = 0; i < 4; i++) assert_ok(add_value(f->client, "queue", (float)i, 1.0, NULL, &long_enough, &err));
  rv_sampler *sampler = open_sampler(f, "queue", RV_UNLIMITED, 1, 1, RV_FOREVER);
  for (int i = 0; i < 4; i++) {
    rv_sample *sample;
    assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
    assert_true(sample_value(sample) == (float)i);
    assert_true(rv_sample_get_info(sample)->probability == 1.0);
    assert_int_equal(rv_sample_get_info(sample)->times_sampled, 1);
    rv_sample_unref(sample);
  }
  rv_sample *sample;
  assert_code(rv_sampler_next(sampler, &shortly, &sample, &err), RV_DEADLINE_EXCEEDED);
  add_values(f->client, "queue", 1); /* the sequence goes on */
  assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
  rv_sample_unref(sample);
  rv_sampler_free(sampler);
}

static int64_t samples_of(fixture *f, const char *table)
{
  rv_error err;
  rv_table *found;
  assert_ok(rv_store_find(f->store, table, strlen(table), &found, &err));
  rv_table_info info = {.size = sizeof info};
  assert_ok(rv_table_get_info(found, &info, &err));
  int64_t samples = info.samples;
  rv_table_info_fini(&info);
  return samples;
}

static void take_some(rv_sampler *sampler, int64_t n)
{
  rv_error err;
  rv_sample *sample;
  for (int64_t i = 0; i < n; i++) {
    assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
    sample_value(sample);
    rv_sample_unref(sample);
  }
}

static void take_all(fixture *f, rv_sampler *sampler, int64_t n)
{
  (void)f;
  rv_error err;
  rv_sample *sample;
  take_some(sampler, n);
  for (int i = 0; i < 2; i++) assert_code(rv_sampler_next(sampler, &long_enough, &sample, &err), RV_OUT_OF_RANGE);
}

TEST(exactly_max_samples_are_drawn)
{
  add_values(f->client, "replay", 10);
  add_values(f->client, "fifo", 10);
  rv_sampler *sampler = open_sampler(f, "replay", 1000, 0, 1, RV_FOREVER);
  take_all(f, sampler, 1000);
  rv_sampler_free(sampler);
  assert_int_equal(samples_of(f, "replay"), 1000);
  sampler = open_sampler(f, "fifo", 333, 100, 3, RV_FOREVER);
  take_all(f, sampler, 333);
  rv_sampler_free(sampler);
  assert_int_equal(samples_of(f, "fifo"), 333);
}

/* What one sampler left open serves the next, which may be of another table. */
TEST(samplers_one_after_another_take_what_each_asks_for)
{
  add_values(f->client, "replay", 10);
  add_values(f->client, "fifo", 10);
  for (int64_t i = 1; i <= 50; i++) {
    rv_sampler *two[] = {open_sampler(f, "replay", 1, 0, 1, RV_FOREVER), open_sampler(f, "fifo", 3, 0, 2, RV_FOREVER)};
    take_all(f, two[0], 1);
    take_all(f, two[1], 3);
    rv_sampler_free(two[i % 2]);
    rv_sampler_free(two[1 - i % 2]);
    assert_int_equal(samples_of(f, "replay"), i);
    assert_int_equal(samples_of(f, "fifo"), 3 * i);
  }
}

/* An abandoned one may have samples on their way, which are not the next one's. */
TEST(a_sampler_after_one_that_was_left_takes_its_own_samples)
{
  rv_error err;
  add_values(f->client, "fifo", 1);
  for (int i = 0; i < 50; i++) {
    rv_sampler *left = open_sampler(f, "fifo", RV_UNLIMITED, 4, 1, RV_FOREVER);
    take_some(left, i % 3);
    rv_sampler_free(left);
    assert_ok(add_value(f->client, "queue", (float)i, 1.0, NULL, &long_enough, &err));
    rv_sampler *sampler = open_sampler(f, "queue", 1, 0, 1, RV_FOREVER);
    rv_sample *sample;
    assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
    assert_true(sample_value(sample) == (float)i);
    rv_sample_unref(sample);
    rv_sampler_free(sampler);
  }
}

TEST(streams_are_opened_anew_after_their_quota)
{
  rv_error err;
  add_values(f->client, "fifo", 10);
  rv_sampler_config config = {.size = sizeof config,
                              .table = "fifo",
                              .max_samples = 50,
                              .max_in_flight_samples = 8,
                              .max_samples_per_stream = 7,
                              .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sampler *sampler;
  assert_ok(rv_sampler_new(f->client, &config, &sampler, &err));
  take_all(f, sampler, 50);
  rv_sampler_free(sampler);
  assert_int_equal(samples_of(f, "fifo"), 50);
}

TEST(no_more_is_fetched_ahead_than_was_allowed)
{
  rv_error err;
  add_values(f->client, "fifo", 10);
  rv_sampler *sampler = open_sampler(f, "fifo", RV_UNLIMITED, 0, 1, RV_FOREVER);
  rv_sample *sample;
  for (int i = 1; i <= 20; i++) {
    assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
    rv_sample_unref(sample);
    assert_true(samples_of(f, "fifo") <= i + 1);
  }
  rv_sampler_free(sampler);
  add_values(f->client, "replay", 1); /* what the first one had asked for is drawn by then */
  int64_t before = samples_of(f, "fifo");
  sampler = open_sampler(f, "fifo", RV_UNLIMITED, 5, 2, RV_FOREVER);
  for (int i = 1; i <= 20; i++) {
    assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
    rv_sample_unref(sample);
    assert_true(samples_of(f, "fifo") - before <= i + 10);
  }
  rv_sampler_free(sampler);
}

TEST(a_sampler_goes_further_ahead_than_told_only_where_nobody_can_tell)
{
  add_values(f->client, "fifo", 10);
  rv_sampler *sampler = open_sampler(f, "fifo", RV_UNLIMITED, 4, 2, RV_FOREVER);
  take_some(sampler, 5000);
  assert_int_equal(rv_sampler_window(sampler), 8);
  assert_true(samples_of(f, "fifo") <= 5000 + 8);
  rv_sampler_free(sampler);
  add_values(f->client, "replay", 10);
  sampler = open_sampler(f, "replay", RV_UNLIMITED, 4, 2, RV_FOREVER);
  take_some(sampler, 5000);
  assert_true(rv_sampler_window(sampler) >= 8 && rv_sampler_window(sampler) <= 2 * 1024);
  assert_true(samples_of(f, "replay") <= 5000 + 2 * 1024);
  rv_sampler_free(sampler);
}

TEST(the_limiters_timeout_ends_the_sequence_after_what_there_is)
{
  rv_error err;
  for (uint32_t streams = 1; streams <= 2; streams++)
    for (int64_t ms = 0; ms <= 150; ms += 150) {
      add_values(f->client, "queue", 3);
      rv_sampler *sampler = open_sampler(f, "queue", RV_UNLIMITED, 2, streams, ms);
      rv_sample *sample;
      for (int i = 0; i < 3; i++) {
        assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
        rv_sample_unref(sample);
      }
      assert_code(rv_sampler_next(sampler, &long_enough, &sample, &err), RV_OUT_OF_RANGE);
      assert_says("queue");
      add_values(f->client, "queue", 1);
      assert_code(rv_sampler_next(sampler, &long_enough, &sample, &err), RV_OUT_OF_RANGE);
      rv_sampler_free(sampler);
      assert_ok(rv_client_reset(f->client, "queue", &long_enough, &err));
    }
}

TEST(the_limiters_timeout_does_not_count_while_nobody_waits)
{
  rv_error err;
  add_values(f->client, "queue", 1);
  rv_sampler *sampler = open_sampler(f, "queue", RV_UNLIMITED, 1, 1, 50);
  rv_sample *sample;
  assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
  rv_sample_unref(sample);
  usleep(120000); /* longer than the timeout, which a prefetch meets meanwhile; nothing is asserted about time */
  add_values(f->client, "queue", 1);
  assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
  rv_sample_unref(sample);
  rv_sampler_free(sampler);
}

/* Between two looks at a sampler on a server: what was asked for by then has been answered. */
static void let_the_server_answer(fixture *f)
{
  rv_error err;
  rv_server_info *info;
  assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err));
  rv_server_info_free(info);
}

TEST(who_only_looks_in_gets_what_comes_after_the_limiters_timeout)
{
  rv_error err;
  for (int64_t ms = 0; ms <= 1; ms++) {
    rv_sampler *sampler = open_sampler(f, "queue", RV_UNLIMITED, 1, 1, ms);
    rv_sample *sample;
    for (int i = 0; i < 20; i++) {
      assert_code(rv_sampler_next(sampler, &at_once, &sample, &err), RV_DEADLINE_EXCEEDED);
      let_the_server_answer(f);
    }
    add_values(f->client, "queue", 1);
    rv_code code = RV_DEADLINE_EXCEEDED;
    for (int i = 0; i < 5000 && code == RV_DEADLINE_EXCEEDED; i++) {
      code = rv_sampler_next(sampler, &at_once, &sample, &err);
      let_the_server_answer(f);
    }
    assert_code(code, RV_OK);
    rv_sample_unref(sample);
    rv_sampler_free(sampler);
  }
}

typedef struct waiting_next {
  rv_sampler *sampler;
  rv_wait wait;
  rv_code code;
} waiting_next;

static void *run_next(void *context)
{
  waiting_next *waiting = context;
  rv_error err;
  rv_sample *sample;
  waiting->code = rv_sampler_next(waiting->sampler, &waiting->wait, &sample, &err);
  if (waiting->code == RV_OK) rv_sample_unref(sample);
  return NULL;
}

TEST(a_waiting_sampler_can_be_cancelled)
{
  rv_error err;
  waiting_next waiting = {.sampler = open_sampler(f, "queue", RV_UNLIMITED, 1, 1, RV_FOREVER),
                          .wait = {.timeout_ms = RV_FOREVER}};
  pthread_t thread;
  pthread_create(&thread, NULL, run_next, &waiting);
  wait_for_waiting(f, "queue", 0, 1);
  rv_sampler_cancel(waiting.sampler);
  pthread_join(thread, NULL);
  assert_int_equal(waiting.code, RV_CANCELLED);
  wait_for_waiting(f, "queue", 0, 0);
  rv_sample *sample;
  assert_code(rv_sampler_next(waiting.sampler, &long_enough, &sample, &err), RV_CANCELLED);
  rv_sampler_free(waiting.sampler);
}

TEST(a_wait_with_a_cancellation_ends_and_the_sequence_goes_on)
{
  rv_error err;
  rv_cancel *cancel;
  assert_ok(rv_cancel_new(&cancel, &err));
  waiting_next waiting = {.sampler = open_sampler(f, "queue", RV_UNLIMITED, 1, 1, RV_FOREVER),
                          .wait = {.timeout_ms = RV_FOREVER, .cancel = cancel}};
  pthread_t thread;
  pthread_create(&thread, NULL, run_next, &waiting);
  wait_for_waiting(f, "queue", 0, 1);
  rv_cancel_fire(cancel);
  pthread_join(thread, NULL);
  assert_int_equal(waiting.code, RV_CANCELLED);
  add_values(f->client, "queue", 1);
  rv_sample *sample;
  assert_ok(rv_sampler_next(waiting.sampler, &long_enough, &sample, &err));
  rv_sample_unref(sample);
  rv_sampler_free(waiting.sampler);
  rv_cancel_free(cancel);
}

/* A clock that the test puts forward, and the log. */
typedef struct watched_world {
  rv_env real;
  atomic_llong put_forward_ns;
  int lines;
  char last[512];
} watched_world;

static int64_t forward_clock(void *context)
{
  watched_world *world = context;
  return world->real.monotonic_ns(world->real.context) + atomic_load(&world->put_forward_ns);
}

static void keep_line(void *context, rv_log_level level, const char *line)
{
  watched_world *world = context;
  (void)level;
  world->lines++;
  snprintf(world->last, sizeof world->last, "%s", line);
}

static rv_client *client_in(fixture *f, const rv_env *env)
{
  rv_error err;
  rv_client_config config = {.size = sizeof config, .env = env, .peer_timeout_ms = -1};
  if (f->way == IN_PROCESS)
    config.store = f->store;
  else
    config.address = f->address;
  rv_client *client;
  assert_ok(rv_client_new(&config, &client, &err));
  return client;
}

TEST(who_waits_in_short_turns_is_logged_as_if_he_waited_in_one)
{
  rv_error err;
  watched_world world = {.lines = 0};
  rv_env_default(&world.real);
  const rv_env env = {
      .size = sizeof env, .context = &world, .monotonic_ns = forward_clock, .log = keep_line, .log_level = RV_LOG_WARNING};
  rv_client *before = f->client;
  f->client = client_in(f, &env);
  rv_sampler *sampler = open_sampler(f, "five", RV_UNLIMITED, 1, 1, RV_FOREVER);
  rv_sample *sample;
  assert_code(rv_sampler_next(sampler, &shortly, &sample, &err), RV_DEADLINE_EXCEEDED);
  const rv_wait turn = {.timeout_ms = 10};
  for (int i = 0; i < 120; i++) { /* a second between two turns, of which the machine may need a part, would be a pause */
    atomic_fetch_add(&world.put_forward_ns, 100000000);
    assert_code(rv_sampler_next(sampler, &turn, &sample, &err), RV_DEADLINE_EXCEEDED);
  }
  assert_int_equal(world.lines, 1);
  assert_non_null(strstr(world.last, "a call has been waiting for 1"));
  assert_non_null(strstr(world.last, "\"five\""));
  atomic_fetch_add(&world.put_forward_ns, INT64_C(70000000000)); /* who comes back after a while waits anew */
  assert_code(rv_sampler_next(sampler, &turn, &sample, &err), RV_DEADLINE_EXCEEDED);
  assert_int_equal(world.lines, 1);
  add_values(before, "five", 5);
  assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
  rv_sample_unref(sample);
  rv_sampler_free(sampler);
  rv_client_free(f->client);
  f->client = before;
}

TEST(a_sampler_goes_no_further_ahead_than_told_once_others_let_it_be_seen)
{
  rv_error err;
  static watched_world world; /* the client's thread may outlive a failed test */
  rv_env_default(&world.real);
  const rv_env env = {.size = sizeof env, .context = &world, .monotonic_ns = forward_clock};
  add_values(f->client, "replay", 10);
  rv_client *other = f->client;
  f->client = client_in(f, &env);
  rv_sampler *sampler = open_sampler(f, "replay", RV_UNLIMITED, 0, 1, RV_FOREVER);
  take_some(sampler, 3000);
  rv_table_bounds bounds = rv_table_bounds_unchanged();
  bounds.max_times_sampled = INT32_MAX;
  assert_ok(rv_client_set_bounds(other, "replay", &bounds, &long_enough, &err));
  atomic_fetch_add(&world.put_forward_ns, 2000000000);
  take_some(sampler, 3000);
  assert_true(rv_sampler_window(sampler) <= 1);
  rv_sampler_free(sampler);
  rv_client_free(f->client);
  f->client = other;
}

TEST(a_sampler_of_an_unknown_table_says_so)
{
  rv_error err;
  rv_sampler *sampler = open_sampler(f, "nowhere", RV_UNLIMITED, 1, 1, RV_FOREVER);
  rv_sample *sample;
  for (int i = 0; i < 2; i++) {
    assert_code(rv_sampler_next(sampler, &long_enough, &sample, &err), RV_NOT_FOUND);
    assert_says("nowhere");
  }
  rv_sampler_free(sampler);
}

TEST(a_sampler_that_was_not_used_can_be_freed)
{
  rv_error err;
  add_values(f->client, "replay", 10);
  rv_sampler_free(open_sampler(f, "replay", RV_UNLIMITED, 100, 4, RV_FOREVER));
  rv_sampler *sampler = open_sampler(f, "replay", RV_UNLIMITED, 100, 4, RV_FOREVER);
  rv_sample *sample;
  assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
  rv_sampler_free(sampler); /* with much on its way */
  sample_value(sample);
  rv_sample_unref(sample);
}

TEST(wrong_settings_are_refused)
{
  rv_error err;
  rv_sampler_config good = {.size = sizeof good, .table = "replay", .max_samples = 1};
  rv_sampler *sampler;
  rv_sampler_config bad = good;
  bad.max_samples = 0;
  assert_code(rv_sampler_new(f->client, &bad, &sampler, &err), RV_INVALID_ARGUMENT);
  assert_says("max_samples");
  bad = good;
  bad.rate_limiter_timeout_ms = -2;
  assert_code(rv_sampler_new(f->client, &bad, &sampler, &err), RV_INVALID_ARGUMENT);
  bad = good;
  bad.max_in_flight_samples = 2000000;
  assert_code(rv_sampler_new(f->client, &bad, &sampler, &err), RV_INVALID_ARGUMENT);
  bad = good;
  bad.table = NULL;
  assert_code(rv_sampler_new(f->client, &bad, &sampler, &err), RV_INVALID_ARGUMENT);
}

TEST(a_sample_outlives_client_and_store)
{
  rv_error err;
  add_values(f->client, "replay", 1);
  rv_client *client = new_client(f);
  rv_sampler_config config = {.size = sizeof config, .table = "replay", .max_samples = 1};
  rv_sampler *sampler;
  assert_ok(rv_sampler_new(client, &config, &sampler, &err));
  rv_sample *sample;
  assert_ok(rv_sampler_next(sampler, &long_enough, &sample, &err));
  rv_sampler_free(sampler);
  rv_client_free(client);
  assert_ok(rv_client_reset(f->client, "replay", &long_enough, &err));
  rv_sample_ref(sample);
  rv_sample_unref(sample);
  assert_true(sample_value(sample) == 0);
  rv_sample_unref(sample);
}

/* From a server they come many in a message, and each takes its rows with it. */
TEST(samples_that_are_kept_stay_as_they_are)
{
  rv_error err;
  enum { N = 300 };
  add_values(f->client, "replay", 50);
  rv_sampler *sampler = open_sampler(f, "replay", N, 64, 1, RV_FOREVER);
  static rv_sample *kept[N];
  for (int i = 0; i < N; i++) assert_ok(rv_sampler_next(sampler, &long_enough, &kept[i], &err));
  rv_sampler_free(sampler);
  for (int i = 0; i < N; i++) {
    float value = sample_value(kept[i]);
    assert_true(value >= 0 && value < 50);
    const float *view = rv_sample_view(kept[i], 0);
    assert_true(view == NULL || (view[0] == value && view[1] == value + 0.5f));
    assert_null(rv_sample_view(kept[i], 1));
    assert_int_equal(rv_sample_get_info(kept[i])->table_size, 50);
    float wrong[3];
    assert_code(rv_sample_copy(kept[i], 0, wrong, sizeof wrong, &err), RV_INVALID_ARGUMENT);
    assert_code(rv_sample_copy(kept[i], 1, wrong, 8, &err), RV_OUT_OF_RANGE);
    rv_sample_unref(kept[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {EVERY_WAY(samples_come_in_the_selectors_order),
                                     EVERY_WAY(exactly_max_samples_are_drawn),
                                     EVERY_WAY(samplers_one_after_another_take_what_each_asks_for),
                                     EVERY_WAY(a_sampler_after_one_that_was_left_takes_its_own_samples),
                                     EVERY_WAY(streams_are_opened_anew_after_their_quota),
                                     EVERY_WAY(no_more_is_fetched_ahead_than_was_allowed),
                                     EVERY_WAY(a_sampler_goes_further_ahead_than_told_only_where_nobody_can_tell),
                                     EVERY_WAY(the_limiters_timeout_ends_the_sequence_after_what_there_is),
                                     EVERY_WAY(the_limiters_timeout_does_not_count_while_nobody_waits),
                                     EVERY_WAY(who_only_looks_in_gets_what_comes_after_the_limiters_timeout),
                                     EVERY_WAY(a_waiting_sampler_can_be_cancelled),
                                     EVERY_WAY(a_wait_with_a_cancellation_ends_and_the_sequence_goes_on),
                                     EVERY_WAY(who_waits_in_short_turns_is_logged_as_if_he_waited_in_one),
                                     EVERY_WAY(a_sampler_goes_no_further_ahead_than_told_once_others_let_it_be_seen),
                                     EVERY_WAY(a_sampler_of_an_unknown_table_says_so),
                                     EVERY_WAY(a_sampler_that_was_not_used_can_be_freed),
                                     EVERY_WAY(wrong_settings_are_refused),
                                     EVERY_WAY(a_sample_outlives_client_and_store),
                                     EVERY_WAY(samples_that_are_kept_stay_as_they_are)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
