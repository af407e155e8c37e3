/* What makes a batch from a server short other than the time is told. */
#include "client_fixture.h"

enum { LINE = 512, LARGE = 200000, LITTLE_ROOM = 100000 };

/* Two items, then one that a client of little room cannot take. */
static void add_one_too_large(fixture *f)
{
  rv_error err;
  static const int64_t shape[] = {LARGE};
  static uint8_t large[LARGE]; /* of bytes that do not compress */
  uint32_t random = 1;
  for (size_t i = 0; i < LARGE; i++) large[i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
  rv_tensor column = {.dtype = RV_UINT8, .rank = 1, .shape = shape, .data = large};
  add_values(f->client, "queue", 2);
  assert_ok(rv_client_add(f->client, "queue", &column, 1, 1.0, NULL, &long_enough, &err));
}

static rv_client *client_of_little_room(const fixture *f, rv_env *env)
{
  rv_error err;
  rv_client_config config = {.size = sizeof config, .address = f->address, .max_message_bytes = LITTLE_ROOM, .env = env};
  rv_client *client;
  assert_ok(rv_client_new(&config, &client, &err));
  return client;
}

static void expect_two(rv_client *client)
{
  rv_error err;
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(client, "queue", 3, RV_UNEQUAL_LIST, &long_enough, &batch, &err));
  assert_int_equal(rv_batch_size(batch), 2);
  rv_batch_free(batch);
}

REMOTE_TEST(what_made_a_batch_short_is_told_by_the_next_one_before_it_draws)
{
  rv_error err;
  rv_batch *batch;
  rv_client *client = client_of_little_room(f, NULL);
  add_one_too_large(f);
  expect_two(client);
  add_values(f->client, "queue", 1);
  add_values(f->client, "replay", 1);
  assert_ok(rv_client_sample_batch(client, "replay", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err)); /* another table */
  rv_batch_free(batch);
  assert_code(rv_client_sample_batch(client, "queue", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err), RV_RESOURCE_EXHAUSTED);
  assert_says("2 of 3 items");
  assert_says("\"queue\"");
  assert_says("max_message_bytes");
  assert_int_equal(table_size(f, "queue"), 1);
  assert_ok(rv_client_sample_batch(client, "queue", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  rv_batch_free(batch);
  rv_client_free(client);
}

static void keep_line(void *context, rv_log_level level, const char *line)
{
  (void)level;
  snprintf(context, LINE, "%s", line);
}

REMOTE_TEST(what_made_the_last_batch_short_is_logged)
{
  char line[LINE] = "";
  rv_env env = {.size = sizeof env, .context = line, .log = keep_line, .log_level = RV_LOG_WARNING};
  rv_client *client = client_of_little_room(f, &env);
  add_one_too_large(f);
  expect_two(client);
  rv_client_free(client);
  assert_non_null(strstr(line, "2 of 3 items"));
  assert_non_null(strstr(line, "max_message_bytes"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      EVERY_REMOTE_WAY(what_made_a_batch_short_is_told_by_the_next_one_before_it_draws),
      EVERY_REMOTE_WAY(what_made_the_last_batch_short_is_logged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
