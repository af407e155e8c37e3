/* Samples copied into arrays as they arrive, from a server; in process each is taken by itself. */
#include "client/sample.h"
#include "client/sampler.h"
#include "client_fixture.h"

enum { MOST = 20 };

typedef struct arrays {
  rv_sink sink;
  float values[MOST][2];
  uint64_t keys[MOST];
  double probabilities[MOST], priorities[MOST];
  int32_t times[MOST];
  void *columns[1];
  rv_sample *first; /* of the kind that they are for */
} arrays;

static rv_sampler *open_sampler(fixture *f, int64_t max_samples, uint32_t in_flight, int64_t limiter_ms)
{
  rv_error err;
  rv_sampler_config config = {.size = sizeof config,
                              .table = "queue",
                              .max_samples = max_samples,
                              .max_in_flight_samples = in_flight,
                              .rate_limiter_timeout_ms = limiter_ms};
  rv_sampler *sampler;
  assert_ok(rv_sampler_new(f->client, &config, &sampler, &err));
  return sampler;
}

/* Takes the first sample, and makes arrays for others like it. */
static void begin(arrays *a, rv_sampler *sampler)
{
  rv_error err;
  assert_ok(rv_sampler_next(sampler, &long_enough, &a->first, &err));
  a->columns[0] = a->values;
  a->sink = (rv_sink){.fill = {.layout = rv_sample_layout(a->first),
                               .columns = a->columns,
                               .keys = a->keys,
                               .probabilities = a->probabilities,
                               .priorities = a->priorities,
                               .times_sampled = a->times}};
}

static void *add_in_turn(void *context)
{
  fixture *f = context;
  rv_error err;
  rv_client *client = new_client(f);
  for (int i = 0; i < 300; i++) assert_ok(add_value(client, "queue", (float)i, i, NULL, &long_enough, &err));
  rv_client_free(client);
  return NULL;
}

TEST(every_sample_comes_once_and_in_order)
{
  rv_error err;
  pthread_t writer;
  pthread_create(&writer, NULL, add_in_turn, f);
  rv_sampler *sampler = open_sampler(f, 300, 7, RV_FOREVER);
  arrays a;
  begin(&a, sampler);
  assert_true(sample_value(a.first) == 0);
  int next = 1;
  rv_code code;
  do {
    bool unlike;
    code = rv_sampler_take_into(sampler, &a.sink, 5, MOST, &long_enough, &unlike, &err);
    if (code == RV_OK && unlike) { /* in process, and where the kind is yet to be checked */
      rv_sample *sample;
      code = rv_sampler_next(sampler, &long_enough, &sample, &err);
      if (code != RV_OK) break;
      assert_true(sample_value(sample) == (float)next++);
      rv_sample_unref(sample);
      continue;
    }
    if (code == RV_OK) assert_true(a.sink.taken > 0 && a.sink.taken % 5 == 0);
    for (size_t i = 0; i < a.sink.taken; i++, next++) {
      assert_true(a.values[i][0] == (float)next && a.values[i][1] == (float)next + 0.5f && a.priorities[i] == next);
      assert_int_equal(a.times[i], 1);
    }
    a.sink.taken = 0;
  } while (code == RV_OK);
  assert_int_equal(code, RV_OUT_OF_RANGE);
  assert_int_equal(next, 300);
  pthread_join(writer, NULL);
  rv_sample_unref(a.first);
  rv_sampler_free(sampler);
}

TEST(a_wait_that_ends_keeps_what_came)
{
  if (f->way == IN_PROCESS) return;
  rv_error err;
  add_values(f->client, "queue", 3);
  rv_sampler *sampler = open_sampler(f, RV_UNLIMITED, 4, RV_FOREVER);
  arrays a;
  bool unlike;
  begin(&a, sampler);
  assert_code(rv_sampler_take_into(sampler, &a.sink, 4, MOST, &shortly, &unlike, &err), RV_DEADLINE_EXCEEDED);
  assert_true(a.sink.taken <= 2);
  add_values(f->client, "queue", 2);
  assert_ok(rv_sampler_take_into(sampler, &a.sink, 4, MOST, &long_enough, &unlike, &err));
  assert_int_equal(a.sink.taken, 4);
  const float expected[] = {1, 2, 0, 1};
  for (int i = 0; i < 4; i++) assert_true(a.values[i][0] == expected[i]);
  rv_sample_unref(a.first);
  rv_sampler_free(sampler);
}

TEST(the_limiters_timeout_ends_the_sequence_after_what_there_is)
{
  if (f->way == IN_PROCESS) return;
  rv_error err;
  for (uint32_t ahead = 1; ahead < 5; ahead += 3) {
    add_values(f->client, "queue", 4);
    rv_sampler *sampler = open_sampler(f, RV_UNLIMITED, ahead, 50);
    arrays a;
    bool unlike;
    begin(&a, sampler);
    for (int i = 0; i < 2; i++) {
      assert_code(rv_sampler_take_into(sampler, &a.sink, 4, MOST, &long_enough, &unlike, &err), RV_OUT_OF_RANGE);
      assert_says("queue");
      assert_int_equal(a.sink.taken, 3);
    }
    rv_sample_unref(a.first);
    rv_sampler_free(sampler);
  }
}

TEST(the_first_of_a_kind_is_checked_before_others_are_copied)
{
  rv_error err;
  rv_server_info *info;
  assert_ok(rv_client_server_info(f->client, &long_enough, &info, &err)); /* from now on the client knows the signatures */
  rv_server_info_free(info);
  add_values(f->client, "queue", 4);
  rv_sampler *sampler = open_sampler(f, 1, 1, RV_FOREVER), *other = open_sampler(f, 3, 1, RV_FOREVER);
  arrays a;
  bool unlike;
  begin(&a, sampler);
  assert_ok(rv_sampler_take_into(other, &a.sink, 1, MOST, &long_enough, &unlike, &err));
  assert_true(unlike);
  assert_int_equal(a.sink.taken, 0);
  rv_sample *sample;
  assert_ok(rv_sampler_next(other, &long_enough, &sample, &err));
  rv_sample_unref(sample);
  assert_ok(rv_sampler_take_into(other, &a.sink, 2, MOST, &long_enough, &unlike, &err));
  assert_int_equal(unlike, f->way == IN_PROCESS);
  assert_int_equal(a.sink.taken, f->way == IN_PROCESS ? 0 : 2);
  rv_sample_unref(a.first);
  rv_sampler_free(other);
  rv_sampler_free(sampler);
}

int main(void)
{
  const struct CMUnitTest tests[] = {EVERY_WAY(every_sample_comes_once_and_in_order), EVERY_WAY(a_wait_that_ends_keeps_what_came),
                                     EVERY_WAY(the_limiters_timeout_ends_the_sequence_after_what_there_is),
                                     EVERY_WAY(the_first_of_a_kind_is_checked_before_others_are_copied)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
