/* MutatePriorities of many keys: done in parts, with others in between. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "server/server.h"

enum { MANY = 500000 };

static void without_a_log(void *context, rv_log_level level, const char *line)
{
  (void)context, (void)level, (void)line;
}

static void make_server(rv_server *server)
{
  rv_error err = {.message = ""};
  static rv_env env;
  rv_env_fill(&env, NULL);
  env.log = without_a_log;
  const rv_table_config table = rv_table_config_default("t", 10);
  const rv_store_config config = {.size = sizeof config, .env = &env, .tables = &table, .num_tables = 1};
  *server = (rv_server){.env = env};
  if (rv_store_new(&config, &server->store, &err) != RV_OK) fail_msg("%s", err.message);
}

/* Answers until it is over, or the caller has gone after so many turns; *turns: how many it took. */
static rv_code answer(rv_server *server, rv_span body, int gone_after, int *turns, rv_pieces *response)
{
  rv_progress progress = {0};
  rv_error err = {.message = ""};
  rv_code code;
  *turns = 0;
  do {
    const rv_request request = {.server = server, .peer = "", .body = body, .progress = &progress, .gone = *turns >= gone_after};
    code = rv_answer_mutate(&request, response, &err);
    ++*turns;
  } while (progress.more);
  if (progress.drop != NULL) progress.drop(progress.state);
  return code;
}

static void put_empty_updates(rv_writer_buf *body, const char *table)
{
  static uint8_t empty[2 * MANY];
  for (size_t i = 0; i < MANY; i++) empty[2 * i] = 0x12;
  rv_writer_buf_init(body);
  rv_put_string(body, 1, table);
  rv_put_raw(body, empty, sizeof empty);
}

static void a_message_of_empty_updates_takes_turns(void **state)
{
  (void)state;
  rv_server server;
  rv_writer_buf body;
  rv_pieces response;
  int turns;
  make_server(&server);
  put_empty_updates(&body, "t");
  rv_pieces_init(&response);
  assert_int_equal(answer(&server, (rv_span){body.data, body.size}, INT_MAX, &turns, &response), RV_OK);
  assert_true(turns > MANY / 4096);
  assert_true(response.bytes >= MANY && response.bytes < MANY + MANY / 10); /* key 0, a byte each */
  rv_pieces_fini(&response);
  rv_writer_buf_fini(&body);
  rv_store_unref(server.store);
}

static void nothing_is_done_for_who_goes_before_all_is_looked_at(void **state)
{
  (void)state;
  rv_server server;
  rv_writer_buf body;
  rv_pieces response;
  int turns;
  make_server(&server);
  put_empty_updates(&body, "t");
  rv_pieces_init(&response);
  assert_int_equal(answer(&server, (rv_span){body.data, body.size}, 2, &turns, &response), RV_CANCELLED);
  assert_int_equal(turns, 3);
  rv_pieces_fini(&response);
  rv_writer_buf_fini(&body);
  rv_store_unref(server.store);
}

static void a_large_message_that_is_broken_is_refused(void **state)
{
  (void)state;
  rv_server server;
  rv_writer_buf body;
  rv_pieces response;
  int turns;
  make_server(&server);
  put_empty_updates(&body, "t");
  rv_put_raw(&body, "\x12\x05", 2);
  rv_pieces_init(&response);
  assert_int_equal(answer(&server, (rv_span){body.data, body.size}, INT_MAX, &turns, &response), RV_INVALID_ARGUMENT);
  rv_pieces_fini(&response);
  rv_writer_buf_fini(&body);
  rv_store_unref(server.store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_message_of_empty_updates_takes_turns),
      cmocka_unit_test(nothing_is_done_for_who_goes_before_all_is_looked_at),
      cmocka_unit_test(a_large_message_that_is_broken_is_refused),
  };
  return cmocka_run_group_tests_name("mutate", tests, NULL, NULL);
}
