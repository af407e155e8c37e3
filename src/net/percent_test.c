#include "net/echo_testing.h"

#include "net/percent.h"

static void check(const char *plain, const char *coded)
{
  char out[200];
  assert_int_equal(rv_percent_encode(plain, out, sizeof out), strlen(coded));
  assert_string_equal(out, coded);
  rv_percent_decode(coded, out, sizeof out);
  assert_string_equal(out, plain);
}

static void printable_text_stays_and_the_rest_is_coded(void **state)
{
  (void)state;
  check("", "");
  check("table \"a\": 100 items~", "table \"a\": 100 items~");
  check("100%", "100%25");
  check("gr\xc3\xbc\xc3\x9f", "gr%C3%BC%C3%9F");
  char out[64];
  rv_percent_encode("a\nb\x7f", out, sizeof out);
  assert_string_equal(out, "a%0Ab%7F");
}

static void a_cut_falls_between_characters(void **state)
{
  (void)state;
  char out[8];
  rv_percent_encode("ab\xc3\xbc", out, sizeof out); /* 2 + 6 do not fit into 7 */
  assert_string_equal(out, "ab");
  rv_percent_encode("abcdefgh", out, sizeof out);
  assert_string_equal(out, "abcdefg");
  char small[4];
  rv_percent_decode("ab%C3%BC", small, sizeof small);
  assert_string_equal(small, "ab");
}

static void what_is_no_code_stays_and_what_is_no_text_becomes_a_question_mark(void **state)
{
  (void)state;
  char out[64];
  rv_percent_decode("5% of %zz %4", out, sizeof out);
  assert_string_equal(out, "5% of %zz %4");
  rv_percent_decode("a%00b%0Ac%FFd%C3", out, sizeof out);
  assert_string_equal(out, "a?b?c?d?");
  rv_percent_decode("%ED%A0%80", out, sizeof out); /* a surrogate */
  assert_string_equal(out, "???");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(printable_text_stays_and_the_rest_is_coded),
      cmocka_unit_test(a_cut_falls_between_characters),
      cmocka_unit_test(what_is_no_code_stays_and_what_is_no_text_becomes_a_question_mark),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
