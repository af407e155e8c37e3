/* Calls between our own client and our own server. */
#include "net/echo_testing.h"

static void a_unary_call_is_answered(void **state)
{
  (void)state;
  echo_server server;
  echo_client client;
  echo_start(&server, "127.0.0.1:0", 1);
  client_open_server(&client, &server);
  char answer[64];
  assert_int_equal(call_unary(&client, "/echo/unary", "hello", answer), RV_OK);
  assert_string_equal(answer, "hello");
  client_close(&client);
  echo_stop(&server);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_unary_call_is_answered)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
