/* Sentences are text, whatever they name. */
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/env.h"
#include "base/utf8.h"

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

static void keep_line(void *context, rv_log_level level, const char *line)
{
  (void)level;
  snprintf(context, 2048, "%s", line);
}

static void a_line_of_the_log_is_text_whatever_it_names(void **state)
{
  (void)state;
  char line[2048], path[1100];
  rv_env env;
  rv_env_fill(&env, &(rv_env){.size = sizeof env, .context = line, .log = keep_line});
  rv_log(&env, RV_LOG_WARNING, "cannot read \"%s\"", "/data/a\xFF\x80/b");
  assert_string_equal(line, "cannot read \"/data/a?\?/b\"");
  for (size_t i = 0; i + 2 < sizeof path; i += 2) memcpy(path + i, E_ACUTE, 3);
  for (int before = 0; before < 2; before++) { /* wherever it is cut */
    rv_log(&env, RV_LOG_WARNING, "%.*s%s", before, "a", path);
    assert_true(strlen(line) > 1000 && rv_utf8_is_text(line, strlen(line)));
  }
}

static bool is_text(const char *text)
{
  for (size_t n, left = strlen(text); left > 0; text += n, left -= n) {
    n = rv_utf8_character((const uint8_t *)text, left);
    if (n == 0) return false;
  }
  return true;
}

static void whatever_three_bytes_are_named_the_sentence_is_text(void **state)
{
  (void)state;
  static const uint8_t kinds[] = {'a', 0x80, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF};
  enum { KINDS = sizeof kinds };
  for (size_t i = 0; i < (size_t)KINDS * KINDS * KINDS; i++) {
    const char name[] = {(char)kinds[i % KINDS], (char)kinds[i / KINDS % KINDS], (char)kinds[i / KINDS / KINDS], '\0'};
    rv_error err;
    rv_fail(&err, RV_NOT_FOUND, "%s and %s", name, EURO);
    assert_true(is_text(err.message));
    if (is_text(name)) assert_memory_equal(err.message, name, 3);
    assert_string_equal(err.message + strlen(err.message) - 8, " and " EURO);
  }
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
      cmocka_unit_test(a_line_of_the_log_is_text_whatever_it_names),
      cmocka_unit_test(whatever_three_bytes_are_named_the_sentence_is_text),
      cmocka_unit_test(a_sentence_that_is_too_long_ends_with_a_whole_character),
      cmocka_unit_test(a_prefix_goes_before_the_sentence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
