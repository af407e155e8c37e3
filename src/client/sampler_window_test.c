/* How far ahead a sampler fetches, when another server may have come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <float.h>
#include <stdatomic.h>

#include "client/sampler_remote.h"
#include "wire/unary.h"

enum { TAKEN = 100 /* samples, without a wait */ };

typedef struct fixture {
  rv_client *client;
  rv_sampler *common;
  rv_remote_sampler *sampler;
} fixture;

/* In the place of the channel's: the server is only said to be there. */
static uint64_t losses;

uint64_t __wrap_rv_channel_losses(const rv_channel *channel);
uint64_t __wrap_rv_channel_losses(const rv_channel *channel)
{
  (void)channel;
  return losses;
}

/* What was learnt gets old when the test says so. */
#define NEWS_NS INT64_C(1000000000)
static atomic_llong clock_ns;

static int64_t standing_clock(void *context)
{
  (void)context;
  return clock_ns;
}

static void learn_table(rv_client *client, rv_selector_kind sampler)
{
  rv_table_info table = {.size = sizeof table,
                         .name = (char *)(uintptr_t) "t",
                         .sampler = {.kind = sampler},
                         .remover = {.kind = RV_SELECTOR_FIFO},
                         .max_size = 1000,
                         .rate_limiter = {.samples_per_insert = 1, .min_diff = -DBL_MAX, .max_diff = DBL_MAX},
                         .extensions = (char *)(uintptr_t) ""};
  rv_server_info info = {.num_tables = 1, .tables = &table};
  info.state_id[0] = (uint8_t)(sampler + 1);
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_server_info_serialize(&out, &info);
  rv_span span = {.data = out.data, .size = out.size};
  rv_error err;
  if (rv_client_learn_tables(client, rv_client_before_asking(client), span, NULL, &err) != RV_OK) fail_msg("%s", err.message);
  rv_writer_buf_fini(&out);
}

static void set_up(fixture *f)
{
  losses = 0;
  clock_ns = 1000000000;
  const rv_env env = {.size = sizeof env, .monotonic_ns = standing_clock};
  rv_client_config client = {.size = sizeof client, .env = &env, .address = "localhost:1"};
  assert_int_equal(rv_client_new(&client, &f->client, NULL), RV_OK);
  rv_sampler_config config = {
      .size = sizeof config, .table = "t", .max_samples = RV_UNLIMITED, .rate_limiter_timeout_ms = RV_FOREVER};
  assert_int_equal(rv_sampler_new(f->client, &config, &f->common, NULL), RV_OK);
  f->sampler = RV_CONTAINER(f->common, rv_remote_sampler, common);
}

static void tear_down(fixture *f)
{
  rv_sampler_free(f->common);
  rv_client_free(f->client);
}

static void more_is_fetched_where_nobody_can_tell(void **state)
{
  (void)state;
  fixture f;
  set_up(&f);
  learn_table(f.client, RV_SELECTOR_UNIFORM);
  assert_int_equal(rv_remote_sampler_window(f.sampler, TAKEN, 0), TAKEN);
  tear_down(&f);
}

static void wait_for_loop(void *nothing)
{
  (void)nothing;
}

/* 256 MiB for all of an I/O thread, of which none has more than 4. */
static void many_share_what_is_fetched_ahead(void **state)
{
  (void)state;
  enum { OTHERS = 127, ROW = 4 << 10, ALL = 256 << 20, MOST = 4 << 20 };
  fixture f;
  set_up(&f);
  learn_table(f.client, RV_SELECTOR_UNIFORM);
  rv_sampler_config config = {
      .size = sizeof config, .table = "t", .max_samples = RV_UNLIMITED, .rate_limiter_timeout_ms = RV_FOREVER, .num_streams = 1};
  rv_sampler *other[OTHERS];
  f.sampler->bytes_received = (size_t)ROW * 1000;
  f.sampler->samples_received = 1000;
  assert_in_range(rv_remote_sampler_window(f.sampler, 1000000, 0), MOST / ROW - 10, MOST / ROW);
  for (int i = 0; i < OTHERS; i++) {
    assert_int_equal(rv_sampler_new(f.client, &config, &other[i], NULL), RV_OK);
    assert_int_equal(rv_remote_sampler_window(RV_CONTAINER(other[i], rv_remote_sampler, common), 1, 0), 1); /* has none of it */
    assert_int_equal(rv_remote_sampler_window(RV_CONTAINER(other[i], rv_remote_sampler, common), TAKEN, 0), TAKEN);
  }
  int64_t share = ALL / (OTHERS + f.common->num_streams) / ROW;
  assert_in_range(rv_remote_sampler_window(f.sampler, 1000000, 0), share - 10, share + 10);
  for (int i = 0; i < OTHERS; i++) rv_sampler_free(other[i]);
  rv_loop_call(f.client->loop, wait_for_loop, NULL);
  assert_in_range(rv_remote_sampler_window(f.sampler, 1000000, 0), MOST / ROW - 10, MOST / ROW);
  tear_down(&f);
}

static void of_a_queue_one_is_fetched(void **state)
{
  (void)state;
  fixture f;
  set_up(&f);
  learn_table(f.client, RV_SELECTOR_FIFO);
  assert_int_equal(rv_remote_sampler_window(f.sampler, TAKEN, 0), 1);
  tear_down(&f);
}

static void what_the_lost_server_said_counts_for_nothing(void **state)
{
  (void)state;
  fixture f;
  set_up(&f);
  learn_table(f.client, RV_SELECTOR_UNIFORM);
  assert_int_equal(rv_remote_sampler_window(f.sampler, TAKEN, 0), TAKEN);
  losses++; /* and no time has passed */
  assert_int_equal(rv_remote_sampler_window(f.sampler, TAKEN, 0), 1);
  tear_down(&f);
}

static void batches_ahead_end_with_the_connection(void **state)
{
  (void)state;
  fixture f;
  set_up(&f);
  learn_table(f.client, RV_SELECTOR_UNIFORM);
  assert_int_equal(rv_remote_sampler_window(f.sampler, 0, 64), 64);
  assert_int_equal(f.sampler->common.max_samples, INT64_MAX);
  losses++;
  rv_remote_sampler_window(f.sampler, 0, 64);
  assert_int_equal(f.sampler->common.max_samples,
                   0); /* of the server that comes nothing is asked for before it has said what it is */
  tear_down(&f);
}

static void batches_ahead_rest_while_the_news_is_late_until_they_shall_resume(void **state)
{
  (void)state;
  fixture f;
  int64_t asked_ns;
  set_up(&f);
  learn_table(f.client, RV_SELECTOR_UNIFORM);
  rv_remote_sampler_window(f.sampler, 0, 64);
  assert_false(rv_remote_sampler_rests(f.common, &asked_ns));
  clock_ns += NEWS_NS + 1;
  rv_remote_sampler_window(f.sampler, 0, 64);
  assert_int_equal(f.sampler->common.max_samples, 0);
  assert_true(rv_remote_sampler_rests(f.common, &asked_ns));
  assert_true(asked_ns == INT64_MAX);
  rv_remote_sampler_resume(f.common);
  assert_false(rv_remote_sampler_rests(f.common, &asked_ns));
  tear_down(&f);
}

static void batches_ahead_go_on_when_the_news_has_come(void **state)
{
  (void)state;
  fixture f;
  set_up(&f);
  learn_table(f.client, RV_SELECTOR_UNIFORM);
  rv_remote_sampler_window(f.sampler, 0, 64);
  clock_ns += NEWS_NS + 1;
  rv_remote_sampler_window(f.sampler, 0, 64);
  assert_int_equal(f.sampler->common.max_samples, 0);
  learn_table(f.client, RV_SELECTOR_UNIFORM);
  clock_ns += NEWS_NS / 10;
  rv_remote_sampler_window(f.sampler, 0, 64);
  assert_int_equal(f.sampler->common.max_samples, INT64_MAX);
  tear_down(&f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(more_is_fetched_where_nobody_can_tell),
      cmocka_unit_test(many_share_what_is_fetched_ahead),
      cmocka_unit_test(of_a_queue_one_is_fetched),
      cmocka_unit_test(what_the_lost_server_said_counts_for_nothing),
      cmocka_unit_test(batches_ahead_end_with_the_connection),
      cmocka_unit_test(batches_ahead_rest_while_the_news_is_late_until_they_shall_resume),
      cmocka_unit_test(batches_ahead_go_on_when_the_news_has_come),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
