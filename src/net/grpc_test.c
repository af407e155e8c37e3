#include "net/echo_testing.h"

#include "net/grpc.h"

static void timeouts_are_read_in_every_unit(void **state)
{
  (void)state;
  int64_t ns;
  static const struct {
    const char *text;
    int64_t ns;
  } right[] = {{"1n", 1},
               {"10u", 10000},
               {"9990m", 9990000000},
               {"5S", 5000000000},
               {"2M", 120000000000},
               {"1H", 3600000000000},
               {"99999999H", INT64_MAX / 2},
               {"0m", 0}};
  for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
    assert_true(rv_grpc_timeout_parse(right[i].text, &ns));
    assert_int_equal(ns, right[i].ns);
  }
  static const char *const wrong[] = {"", "5", "S", "123456789S", "5s", "-1S", "5SS", " 5S", "1.5S"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) assert_false(rv_grpc_timeout_parse(wrong[i], &ns));
}

static void timeouts_are_written_in_eight_digits_rounded_up(void **state)
{
  (void)state;
  char text[RV_GRPC_TIMEOUT_CAPACITY];
  static const struct {
    int64_t ns;
    const char *text;
  } known[] = {
      {0, "0n"}, {-5, "0n"}, {99999999, "99999999n"}, {100000001, "100001u"}, {5000000000, "5000000u"}, {INT64_MAX, "2562048H"}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    rv_grpc_timeout_format(known[i].ns, text);
    if (i < 5) assert_string_equal(text, known[i].text);
    int64_t back;
    assert_true(rv_grpc_timeout_parse(text, &back));
    assert_true(back >= (known[i].ns < INT64_MAX / 2 ? known[i].ns : INT64_MAX / 2));
  }
}

static void statuses_follow_the_specification(void **state)
{
  (void)state;
  assert_int_equal(rv_grpc_code_of_http(404), RV_UNIMPLEMENTED);
  assert_int_equal(rv_grpc_code_of_http(503), RV_UNAVAILABLE);
  assert_int_equal(rv_grpc_code_of_http(302), RV_UNKNOWN);
  assert_int_equal(rv_grpc_code_of_reset(7), RV_UNAVAILABLE);
  assert_int_equal(rv_grpc_code_of_reset(8), RV_CANCELLED);
  assert_int_equal(rv_grpc_code_of_reset(11), RV_RESOURCE_EXHAUSTED);
  assert_int_equal(rv_grpc_code_of_reset(2), RV_INTERNAL);
  assert_int_equal(rv_grpc_code_parse("0"), RV_OK);
  assert_int_equal(rv_grpc_code_parse("16"), RV_UNAUTHENTICATED);
  assert_int_equal(rv_grpc_code_parse("17"), RV_UNKNOWN);
  assert_int_equal(rv_grpc_code_parse(""), RV_UNKNOWN);
  assert_int_equal(rv_grpc_code_parse("-1"), RV_UNKNOWN);
  assert_true(rv_grpc_is_content_type("application/grpc"));
  assert_true(rv_grpc_is_content_type("application/grpc+proto"));
  assert_false(rv_grpc_is_content_type("application/grpc-web"));
  assert_false(rv_grpc_is_content_type("text/html"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(timeouts_are_read_in_every_unit),
      cmocka_unit_test(timeouts_are_written_in_eight_digits_rounded_up),
      cmocka_unit_test(statuses_follow_the_specification),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
