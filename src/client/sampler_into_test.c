#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "client/sample.h"
#include "client/sampler_remote.h"
#include "wire/unary.h"

enum { CAPACITY = 100, PATIENCE_MS = 60000 /* instead of a test that hangs */ };

/* A sampler whose server never answers: what arrives is delivered by the test, in the loop's place. */
typedef struct fixture {
  rv_client *client;
  rv_sampler *common;
  rv_remote_sampler *sampler;
  rv_trajectory *single, *pair; /* items of one row, and of two */
  rv_sink sink;                 /* for single ones */
  void *columns[1];
  int64_t values[CAPACITY], table_sizes[CAPACITY];
  uint64_t keys[CAPACITY];
  double probabilities[CAPACITY], priorities[CAPACITY];
  int32_t times[CAPACITY];
} fixture;

/* Takes the chunk. */
static rv_trajectory *rows_of(rv_client *client, rv_chunk *chunk, int32_t length)
{
  rv_slice slice = {.chunk = chunk, .length = length};
  uint32_t one = 1;
  bool squeeze = length == 1;
  rv_trajectory_desc desc = {.slices = &slice, .num_slices = &one, .squeeze = &squeeze, .num_columns = 1};
  rv_trajectory *out;
  assert_int_equal(rv_trajectory_new(client->layouts, &desc, &out, NULL), RV_OK);
  rv_chunk_unref(chunk);
  return out;
}

static rv_trajectory *trajectory_of(rv_client *client, int64_t first, int32_t length)
{
  rv_spec spec = {.name = "", .dtype = RV_INT64, .rank = 0};
  rv_chunk_meta meta = {.key = (uint64_t)first + 1, .last_step = length};
  rv_chunk *chunk;
  assert_int_equal(rv_segment_new(&spec, 1, (size_t)length, &meta, &chunk, NULL), RV_OK);
  for (int32_t i = 0; i < length; i++) {
    int64_t value = first + i;
    rv_tensor row = {.dtype = RV_INT64, .data = &value};
    assert_int_equal(rv_segment_put(chunk, 0, i, &row, NULL), RV_OK);
  }
  rv_segment_publish(chunk, 0, length);
  return rows_of(client, chunk, length);
}

/* As `single`, but its row cannot be decoded. */
static rv_trajectory *broken(rv_client *client)
{
  const uint8_t content[] = {sizeof(int64_t), 1, 0}; /* snappy: a copy of what is 0 bytes back */
  const int64_t shape = 1;
  rv_encoded tensor = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .content = content, .content_size = sizeof content};
  rv_chunk_meta meta = {.key = 1};
  rv_chunk *chunk;
  assert_int_equal(rv_chunk_new_encoded_copy(&meta, &tensor, 1, content, sizeof content, &chunk, NULL), RV_OK);
  return rows_of(client, chunk, 1);
}

static void set_up_with(fixture *f, int64_t max_samples)
{
  memset(f, 0, sizeof *f);
  rv_client_config client = {.size = sizeof client, .address = "localhost:1"};
  assert_int_equal(rv_client_new(&client, &f->client, NULL), RV_OK);
  rv_sampler_config config = {.size = sizeof config,
                              .table = "t",
                              .max_samples = max_samples,
                              .max_in_flight_samples = CAPACITY,
                              .rate_limiter_timeout_ms = RV_FOREVER};
  assert_int_equal(rv_sampler_new(f->client, &config, &f->common, NULL), RV_OK);
  f->sampler = RV_CONTAINER(f->common, rv_remote_sampler, common);
  f->single = trajectory_of(f->client, 0, 1);
  f->pair = trajectory_of(f->client, 0, 2);
  f->columns[0] = f->values;
  f->sink = (rv_sink){.fill = {.layout = f->single->layout,
                               .columns = f->columns,
                               .keys = f->keys,
                               .probabilities = f->probabilities,
                               .priorities = f->priorities,
                               .times_sampled = f->times,
                               .sizes = {.each = f->table_sizes, .always = true}}};
}

static void set_up(fixture *f)
{
  set_up_with(f, RV_UNLIMITED);
}

static void tear_down(fixture *f)
{
  rv_sampler_free(f->common);
  rv_trajectory_unref(f->single);
  rv_trajectory_unref(f->pair);
  rv_client_free(f->client);
}

/* Samples number `first` and following, each its number's row, but `bad` (-1: none), which cannot be decoded; then `pairs` of the other kind. */
static void deliver_with(fixture *f, int64_t first, size_t n, size_t pairs, int64_t bad)
{
  rv_draw draws[CAPACITY];
  bool due;
  for (size_t i = 0; i < n + pairs; i++) {
    int64_t value = first + (int64_t)i;
    draws[i] = (rv_draw){.key = (uint64_t)value + 1000,
                         .probability = 0.5,
                         .priority = (double)value,
                         .table_size = value + 7,
                         .times_sampled = (int32_t)value + 1,
                         .trajectory = value == bad ? broken(f->client)
                                       : i < n      ? trajectory_of(f->client, value, 1)
                                                    : rv_trajectory_ref(f->pair)};
  }
  assert_int_equal(rv_remote_sampler_deliver(f->sampler, draws, n + pairs, NULL, &due), RV_OK);
}

static void deliver(fixture *f, int64_t first, size_t n, size_t pairs)
{
  deliver_with(f, first, n, pairs, -1);
}

static void assert_taken(const fixture *f, int64_t first, size_t n)
{
  assert_int_equal(f->sink.taken, n);
  for (size_t i = 0; i < n; i++) {
    int64_t value = first + (int64_t)i;
    assert_int_equal(f->values[i], value);
    assert_int_equal(f->keys[i], value + 1000);
    assert_true(f->probabilities[i] == 0.5 && f->priorities[i] == (double)value);
    assert_int_equal(f->table_sizes[i], value + 7);
    assert_int_equal(f->times[i], value + 1);
  }
}

/* ---- a consumer in a thread of his own ---- */

typedef struct consumer {
  fixture *f;
  size_t each;
  pthread_t thread;
  rv_code code;
  bool unlike;
} consumer;

static void *consume(void *context)
{
  consumer *c = context;
  rv_error err;
  rv_wait wait = {.timeout_ms = PATIENCE_MS};
  c->code = rv_sampler_take_into(c->f->common, &c->f->sink, c->each, CAPACITY, &wait, &c->unlike, &err);
  return NULL;
}

/* Once the consumer waits for more: before that he copies without the mutex. */
static size_t taken_while_asleep(fixture *f)
{
  for (int ms = 0; ms < PATIENCE_MS; ms++, usleep(1000)) {
    rv_mutex_lock(&f->sampler->mutex);
    bool asleep = f->sampler->waiting;
    size_t taken = asleep ? f->sink.taken : 0;
    rv_mutex_unlock(&f->sampler->mutex);
    if (asleep) return taken;
  }
  fail_msg("the consumer does not sleep");
  return 0;
}

static consumer *start(consumer *c, fixture *f, size_t each)
{
  *c = (consumer){.f = f, .each = each};
  pthread_create(&c->thread, NULL, consume, c);
  taken_while_asleep(f);
  return c;
}

static rv_code join(consumer *c)
{
  pthread_join(c->thread, NULL);
  return c->code;
}

static rv_code take_now(fixture *f, size_t each, bool *unlike)
{
  rv_error err;
  rv_wait wait = {.timeout_ms = 0};
  return rv_sampler_take_into(f->common, &f->sink, each, CAPACITY, &wait, unlike, &err);
}

/* ---- tests ---- */

static void who_sleeps_is_woken_once_when_all_is_where_he_wants_it(void **state)
{
  (void)state;
  fixture f;
  consumer c;
  bool unlike;
  set_up(&f);
  start(&c, &f, 4);
  deliver(&f, 0, 1, 0);
  assert_int_equal(taken_while_asleep(&f), 1);
  deliver(&f, 1, 2, 0);
  assert_int_equal(taken_while_asleep(&f), 3);
  deliver(&f, 3, 2, 0);
  assert_int_equal(join(&c), RV_OK);
  assert_false(c.unlike);
  assert_taken(&f, 0, 4);
  f.sink.taken = 0;
  assert_int_equal(take_now(&f, 1, &unlike), RV_OK); /* the one that there was no room for */
  assert_taken(&f, 4, 1);
  tear_down(&f);
}

static void who_has_all_does_not_wait_until_he_comes_again(void **state)
{
  (void)state;
  fixture f;
  consumer c;
  set_up(&f);
  start(&c, &f, 2);
  assert_true(f.sampler->starved_ns != 0); /* what a rate limiter's timeout counts from */
  deliver(&f, 0, 1, 0);
  taken_while_asleep(&f);
  assert_true(f.sampler->starved_ns != 0);
  deliver(&f, 1, 1, 0);
  assert_int_equal(join(&c), RV_OK);
  assert_true(f.sampler->starved_ns == 0);
  tear_down(&f);
}

static void what_was_ready_before_comes_before(void **state)
{
  (void)state;
  fixture f;
  consumer c;
  set_up(&f);
  deliver(&f, 0, 3, 0);
  c = (consumer){.f = &f, .each = 5};
  pthread_create(&c.thread, NULL, consume, &c);
  assert_int_equal(taken_while_asleep(&f), 3);
  deliver(&f, 3, 2, 0);
  assert_int_equal(join(&c), RV_OK);
  assert_taken(&f, 0, 5);
  tear_down(&f);
}

static void beyond_the_first_batch_only_whole_ones_that_are_there_are_taken(void **state)
{
  (void)state;
  fixture f;
  bool unlike;
  set_up(&f);
  deliver(&f, 0, 11, 0);
  assert_int_equal(take_now(&f, 4, &unlike), RV_OK);
  assert_taken(&f, 0, 8);
  f.sink.taken = 0;
  assert_int_equal(take_now(&f, 4, &unlike), RV_DEADLINE_EXCEEDED);
  assert_taken(&f, 8, 3);
  deliver(&f, 11, 1, 0);
  assert_int_equal(take_now(&f, 4, &unlike), RV_OK); /* the sequence goes on */
  assert_taken(&f, 8, 4);
  tear_down(&f);
}

static void one_that_looks_otherwise_is_left_for_next(void **state)
{
  (void)state;
  fixture f;
  consumer c;
  bool unlike;
  rv_error err;
  rv_sample *sample;
  rv_wait wait = {.timeout_ms = 0};
  set_up(&f);
  deliver(&f, 0, 2, 1);
  assert_int_equal(take_now(&f, 3, &unlike), RV_OK);
  assert_true(unlike);
  assert_taken(&f, 0, 2);
  assert_int_equal(rv_sampler_next(f.common, &wait, &sample, &err), RV_OK);
  assert_ptr_equal(rv_sample_layout(sample), f.pair->layout);
  rv_sample_unref(sample);
  f.sink.taken = 0;
  start(&c, &f, 3); /* the same while he sleeps */
  deliver(&f, 5, 1, 1);
  assert_int_equal(join(&c), RV_OK);
  assert_true(c.unlike);
  assert_taken(&f, 5, 1);
  tear_down(&f);
}

static void one_that_cannot_be_read_is_told_of_once_and_costs_nothing_of_the_batches_before(void **state)
{
  (void)state;
  for (size_t each = 1; each <= 66; each += 5) {
    fixture f;
    bool unlike, seen[CAPACITY] = {false};
    int failures = 0;
    set_up(&f);
    deliver_with(&f, 0, 100, 0, 70);
    for (rv_code code = RV_OK; code != RV_DEADLINE_EXCEEDED;) {
      code = take_now(&f, each, &unlike);
      assert_true(f.sink.taken <= each || f.sink.taken % each == 0);
      if (code != RV_OK && code != RV_DEADLINE_EXCEEDED) assert_int_equal(code, RV_DATA_LOSS);
      failures += code == RV_DATA_LOSS;
      if (code == RV_DATA_LOSS) continue; /* the next go behind what came before */
      for (size_t i = 0; i < f.sink.taken; i++) seen[f.values[i]] = true;
      f.sink.taken = 0;
    }
    assert_int_equal(failures, 1);
    for (size_t i = 0; i < 70 / each * each; i++) assert_true(seen[i]);
    for (size_t i = 71; each == 1 && i < CAPACITY; i++) assert_true(seen[i]);
    tear_down(&f);
  }
}

/* ---- what comes while he copies ---- */

enum { SAMPLES = 6000, AHEAD_OF_HIM = 90 };

typedef struct source {
  fixture *f;
  int64_t every;      /* such a sample cannot be read; 0: all can */
  atomic_llong taken; /* by the consumer, whom the source is little ahead of */
  pthread_t thread;
} source;

static void *bring(void *context)
{
  source *s = context;
  uint32_t random = 1;
  for (int64_t first = 0; first < SAMPLES;) {
    random = random * 1103515245 + 12345;
    int64_t n = 1 + random / 65536 % 9;
    if (n > SAMPLES - first) n = SAMPLES - first;
    while (first + n > atomic_load(&s->taken) + AHEAD_OF_HIM) usleep(10);
    int64_t bad = s->every == 0 ? -1 : (first + n - 1) / s->every * s->every;
    deliver_with(s->f, first, (size_t)n, 0, bad >= first && bad < SAMPLES - 100 ? bad : -1);
    first += n;
  }
  return NULL;
}

/* Some are poured, some were ready, some come while he copies those. */
static void take_all(int64_t every)
{
  fixture f;
  set_up(&f);
  source s = {.f = &f, .every = every};
  pthread_create(&s.thread, NULL, bring, &s);
  int64_t next = 0, failures = 0;
  for (size_t each = 1; next < SAMPLES; each = each * 5 % 37) {
    bool unlike;
    rv_error err;
    rv_wait wait = {.timeout_ms = PATIENCE_MS};
    size_t some = SAMPLES - next < 100 ? 1 : each;
    rv_code code = rv_sampler_take_into(f.common, &f.sink, some, some, &wait, &unlike, &err);
    if (code != RV_OK) assert_int_equal(code, RV_DATA_LOSS);
    failures += code != RV_OK;
    for (size_t i = 0; i < f.sink.taken; i++) {
      int64_t value = f.values[i];
      assert_true(value == next ||
                  (failures > 0 && value > next)); /* with what failed goes what was on its way into the same arrays */
      assert_int_equal(f.keys[i], value + 1000);
      assert_int_equal(f.table_sizes[i], value + 7);
      next = value + 1;
    }
    f.sink.taken = 0;
    atomic_store(&s.taken, next);
  }
  assert_int_equal(failures > 0, every > 0);
  pthread_join(s.thread, NULL);
  tear_down(&f);
}

static void all_that_comes_is_taken_once_and_in_order(void **state)
{
  (void)state;
  take_all(0);
}

static void what_cannot_be_read_comes_between_others(void **state)
{
  (void)state;
  take_all(500);
}

static void a_batch_that_was_begun_goes_on_though_the_tables_become_known(void **state)
{
  (void)state;
  fixture f;
  bool unlike;
  set_up(&f);
  deliver(&f, 0, 2, 0);
  assert_int_equal(take_now(&f, 4, &unlike), RV_DEADLINE_EXCEEDED);
  assert_int_equal(rv_client_learn_tables(f.client, (rv_tables_asked){0}, (rv_span){0}, NULL, NULL), RV_OK);
  deliver(&f, 2, 3, 0);
  assert_int_equal(take_now(&f, 4, &unlike), RV_OK);
  assert_false(unlike);
  assert_taken(&f, 0, 4);
  f.sink.taken = 0;
  assert_int_equal(take_now(&f, 4, &unlike), RV_OK);
  assert_true(unlike); /* to be checked */
  tear_down(&f);
}

/* The client knows a table "t" whose items are of another dtype, as of a server that has been restarted. */
static void know_another_table(fixture *f)
{
  rv_spec spec = {.name = "", .dtype = RV_FLOAT32, .rank = 0};
  rv_table_info table = {.name = (char *)(uintptr_t) "t", .signature = {.specs = &spec, .num_specs = 1}};
  const rv_server_info info = {.tables = &table, .num_tables = 1};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_server_info_serialize(&out, &info);
  assert_int_equal(rv_client_learn_tables(f->client, (rv_tables_asked){0}, (rv_span){out.data, out.size}, NULL, NULL), RV_OK);
  rv_writer_buf_fini(&out);
}

static void a_sample_that_could_not_be_checked_in_time_is_the_next(void **state)
{
  (void)state;
  fixture f;
  bool unlike;
  rv_error err;
  rv_sample *sample;
  rv_wait wait = {.timeout_ms = 1};
  set_up(&f);
  know_another_table(&f);
  deliver(&f, 0, 2, 0);
  for (int i = 0; i < 2; i++) assert_int_equal(rv_sampler_next(f.common, &wait, &sample, &err), RV_DEADLINE_EXCEEDED);
  rv_client_forget_tables(f.client);
  assert_int_equal(take_now(&f, 1, &unlike), RV_OK);
  assert_true(unlike);
  for (uint64_t i = 0; i < 2; i++) {
    assert_int_equal(rv_sampler_next(f.common, &wait, &sample, &err), RV_OK);
    assert_int_equal(rv_sample_get_info(sample)->key, 1000 + i);
    rv_sample_unref(sample);
  }
  know_another_table(&f);
  deliver(&f, 2, 1, 1); /* and it goes with the sampler */
  assert_int_equal(rv_sampler_next(f.common, &wait, &sample, &err), RV_DEADLINE_EXCEEDED);
  tear_down(&f);
}

static void the_end_keeps_what_came(void **state)
{
  (void)state;
  fixture f;
  bool unlike;
  set_up_with(&f, 6);
  deliver(&f, 0, 6, 0);
  assert_int_equal(take_now(&f, 4, &unlike), RV_OK);
  assert_taken(&f, 0, 4);
  f.sink.taken = 0;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(take_now(&f, 4, &unlike), RV_OUT_OF_RANGE);
    assert_taken(&f, 4, 2);
  }
  tear_down(&f);
}

static void who_sleeps_is_woken_by_cancel(void **state)
{
  (void)state;
  fixture f;
  consumer c;
  set_up(&f);
  start(&c, &f, 4);
  deliver(&f, 0, 1, 0);
  rv_sampler_cancel(f.common);
  assert_int_equal(join(&c), RV_CANCELLED);
  assert_taken(&f, 0, 1);
  tear_down(&f);
}

/* ---- past the caches ---- */

static void what_callers_wait_for_together_outgrows_the_caches(void **state)
{
  (void)state;
  enum { MIB = (1 << 20) / sizeof(int64_t) };
  fixture f;
  set_up(&f);
  rv_sink first = f.sink, second = f.sink, small = f.sink, large = f.sink;
  rv_sink_expect(&first, f.client, 15 * MIB);
  rv_sink_expect(&second, f.client, 15 * MIB);
  rv_sink_expect(&small, f.client, MIB / 8);
  assert_false(first.past_caches || second.past_caches || small.past_caches);
  rv_sink third = f.sink;
  rv_sink_expect(&third, f.client, 3 * MIB);
  assert_true(third.past_caches);
  rv_sink_expect_no_more(&first, f.client);
  rv_sink_expect_no_more(&first, f.client);   /* it counts once */
  rv_sink_expect(&large, f.client, 16 * MIB); /* by itself */
  assert_true(large.past_caches);
  rv_sink_expect_no_more(&large, f.client);
  rv_sink_expect_no_more(&second, f.client);
  rv_sink_expect_no_more(&third, f.client);
  rv_sink_expect_no_more(&small, f.client);
  assert_int_equal(rv_loop_count_awaited(f.client->loop, 0), 0);
  tear_down(&f);
}

static void who_gives_up_counts_no_more(void **state)
{
  (void)state;
  enum { MANY = 40000 }; /* 312 KiB */
  fixture f;
  set_up(&f);
  static int64_t values[MANY];
  f.columns[0] = values;
  rv_wait at_once = {.timeout_ms = 0};
  bool unlike;
  assert_int_not_equal(rv_remote_sampler_take_into(f.common, &f.sink, MANY, MANY, &at_once, &unlike, NULL), RV_OK);
  assert_int_equal(rv_loop_count_awaited(f.client->loop, 0), 0);
  tear_down(&f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_sleeps_is_woken_once_when_all_is_where_he_wants_it),
      cmocka_unit_test(who_has_all_does_not_wait_until_he_comes_again),
      cmocka_unit_test(what_was_ready_before_comes_before),
      cmocka_unit_test(beyond_the_first_batch_only_whole_ones_that_are_there_are_taken),
      cmocka_unit_test(one_that_looks_otherwise_is_left_for_next),
      cmocka_unit_test(one_that_cannot_be_read_is_told_of_once_and_costs_nothing_of_the_batches_before),
      cmocka_unit_test(all_that_comes_is_taken_once_and_in_order),
      cmocka_unit_test(what_cannot_be_read_comes_between_others),
      cmocka_unit_test(a_batch_that_was_begun_goes_on_though_the_tables_become_known),
      cmocka_unit_test(a_sample_that_could_not_be_checked_in_time_is_the_next),
      cmocka_unit_test(the_end_keeps_what_came),
      cmocka_unit_test(who_sleeps_is_woken_by_cancel),
      cmocka_unit_test(what_callers_wait_for_together_outgrows_the_caches),
      cmocka_unit_test(who_gives_up_counts_no_more),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
