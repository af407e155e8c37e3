/* Sentences are text, whatever they name. */
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define E_ACUTE "\xC3\xA9"
#define EURO "\xE2\x82\xAC"
#define FACE "\xF0\x9F\x98\x80"

static void a_name_that_is_cut_within_a_character_ends_before_it(void **state)
{
  (void)state;
  rv_error err;
  assert_int_equal(rv_fail(&err, RV_NOT_FOUND, "\"%.2s\" and \"%.3s\"", "x" E_ACUTE, E_ACUTE E_ACUTE), RV_NOT_FOUND);
  assert_string_equal(err.message, "\"x\" and \"" E_ACUTE "\"");
  for (int bytes = 1; bytes < 4; bytes++) {
    rv_fail(&err, RV_NOT_FOUND, "<%.*s>", bytes, FACE);
    assert_string_equal(err.message, "<>");
  }
  rv_fail(&err, RV_NOT_FOUND, "%.1s%s%.2s", EURO, EURO, EURO);
  assert_string_equal(err.message, EURO);
}

static void what_is_no_text_is_shown_as_question_marks(void **state)
{
  (void)state;
  rv_error err;
  rv_fail(&err, RV_NOT_FOUND, "%s", "a\x80\xFF" E_ACUTE "\xC0\xAFz");
  assert_string_equal(err.message, "a??" E_ACUTE "??z");
}

static void a_sentence_that_is_too_long_ends_with_a_whole_character(void **state)
{
  (void)state;
  rv_error err;
  char name[2 * RV_ERROR_MESSAGE_MAX + 1] = "";
  for (size_t at = 0; at + 4 < sizeof name; at += 3) memcpy(name + at, EURO, 4);
  for (size_t before = 0; before < 3; before++) {
    rv_fail(&err, RV_NOT_FOUND, "%.*s%s", (int)before, "..", name);
    size_t length = strlen(err.message);
    assert_in_range(length, RV_ERROR_MESSAGE_MAX - 3, RV_ERROR_MESSAGE_MAX - 1);
    assert_string_equal(err.message + length - 3, EURO);
  }
}

static void a_prefix_goes_before_the_sentence(void **state)
{
  (void)state;
  rv_error err;
  rv_fail(&err, RV_DATA_LOSS, "it is broken");
  rv_error_prefix(&err, "record %d of \"%.2s\"", 3, "x" E_ACUTE);
  assert_int_equal(err.code, RV_DATA_LOSS);
  assert_string_equal(err.message, "record 3 of \"x\": it is broken");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_name_that_is_cut_within_a_character_ends_before_it),
      cmocka_unit_test(what_is_no_text_is_shown_as_question_marks),
      cmocka_unit_test(a_sentence_that_is_too_long_ends_with_a_whole_character),
      cmocka_unit_test(a_prefix_goes_before_the_sentence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
