#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "store/extensions/extension.h"
#include "store/registry.h"

static rv_code s_create(const char *options, void **selector, rv_error *err)
{
  (void)options, (void)err;
  *selector = NULL;
  return RV_OK;
}
static void s_destroy(void *selector)
{
  (void)selector;
}
static rv_code s_put(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)selector, (void)slot, (void)key, (void)priority, (void)err;
  return RV_OK;
}
static void s_remove(void *selector, uint32_t slot, uint64_t key)
{
  (void)selector, (void)slot, (void)key;
}
static uint32_t s_select(void *selector, uint64_t random, double *probability)
{
  (void)selector, (void)random;
  *probability = 1;
  return 0;
}

static const rv_selector_ops selector_ops = {.size = sizeof(rv_selector_ops),
                                             .create = s_create,
                                             .destroy = s_destroy,
                                             .insert = s_put,
                                             .remove = s_remove,
                                             .update = s_put,
                                             .clear = s_destroy,
                                             .select = s_select};

static rv_code e_create(const char *table, const char *options, void **extension, rv_error *err)
{
  (void)err;
  *extension = NULL;
  if (options == NULL) return RV_OK;
  if (strcmp(options, "silent") == 0) return RV_UNAVAILABLE;
  err->code = RV_ABORTED;
  strcpy(err->message, table);
  return RV_ABORTED;
}
static void e_events(void *extension, const rv_event *events, size_t n, rv_edit *edit)
{
  (void)extension, (void)events, (void)n, (void)edit;
}

static const rv_extension_ops extension_ops = {
    .size = sizeof(rv_extension_ops), .create = e_create, .destroy = s_destroy, .on_events = e_events};

static void names_are_found_and_outlive_the_callers_structs(void **state)
{
  (void)state;
  rv_registry *registry;
  assert_int_equal(rv_registry_new(&registry, NULL), RV_OK);
  rv_selector_ops ops = selector_ops;
  char name[] = "mine";
  assert_int_equal(rv_registry_add_selector(registry, name, &ops, NULL), RV_OK);
  memset(&ops, 0, sizeof ops);
  name[0] = 'x';
  const rv_selector_ops *found = rv_registry_selector(registry, "mine");
  assert_non_null(found);
  assert_true(found->select == s_select);
  for (int i = 0; i < 100; i++) { /* more names do not move the others */
    char other[8] = {'n', (char)('0' + i / 10), (char)('0' + i % 10), 0};
    assert_int_equal(rv_registry_add_selector(registry, other, &selector_ops, NULL), RV_OK);
  }
  assert_ptr_equal(rv_registry_selector(registry, "mine"), found);
  assert_null(rv_registry_selector(registry, "other"));
  assert_null(rv_registry_selector(NULL, "mine"));
  rv_registry_free(registry);
}

static void names_are_taken_once(void **state)
{
  (void)state;
  rv_registry *registry;
  assert_int_equal(rv_registry_new(&registry, NULL), RV_OK);
  assert_int_equal(rv_registry_add_selector(registry, "a", &selector_ops, NULL), RV_OK);
  assert_int_equal(rv_registry_add_selector(registry, "a", &selector_ops, NULL), RV_ALREADY_EXISTS);
  assert_int_equal(rv_registry_add_extension(registry, "a", &extension_ops, NULL), RV_OK); /* another kind of thing */
  assert_int_equal(rv_registry_add_extension(registry, "a", &extension_ops, NULL), RV_ALREADY_EXISTS);
  assert_int_equal(rv_registry_add_extension(registry, "diffusion", &extension_ops, NULL), RV_ALREADY_EXISTS);
  rv_registry_free(registry);
}

static void bad_names_and_half_filled_ops_are_refused(void **state)
{
  (void)state;
  rv_registry *registry;
  assert_int_equal(rv_registry_new(&registry, NULL), RV_OK);
  char endless[200];
  memset(endless, 'n', sizeof endless);
  endless[199] = '\0';
  assert_int_equal(rv_registry_add_selector(registry, NULL, &selector_ops, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_registry_add_selector(registry, "", &selector_ops, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_registry_add_selector(registry, endless, &selector_ops, NULL), RV_INVALID_ARGUMENT);
  rv_selector_ops selector = selector_ops;
  selector.size = 0;
  assert_int_equal(rv_registry_add_selector(registry, "s", &selector, NULL), RV_INVALID_ARGUMENT);
  selector = selector_ops;
  selector.clear = NULL;
  assert_int_equal(rv_registry_add_selector(registry, "s", &selector, NULL), RV_INVALID_ARGUMENT);
  rv_extension_ops extension = extension_ops;
  extension.on_events = NULL;
  assert_int_equal(rv_registry_add_extension(registry, "e", &extension, NULL), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_registry_add_extension(registry, NULL, &extension_ops, NULL), RV_INVALID_ARGUMENT);
  assert_null(rv_registry_selector(registry, "s"));
  assert_null(rv_registry_extension(registry, "e"));
  rv_registry_free(registry);
}

static void the_built_in_extensions_are_always_there(void **state)
{
  (void)state;
  assert_ptr_equal(rv_registry_extension(NULL, "statistics"), &rv_extension_statistics);
  assert_ptr_equal(rv_registry_extension(NULL, "diffusion"), &rv_extension_diffusion);
  rv_extension extension;
  const rv_extension_config config = {.name = "statistics"};
  assert_int_equal(rv_extension_init(&extension, &config, NULL, "replay", NULL), RV_OK);
  rv_extension_tell(&extension, NULL, 0, NULL);
  char text[1000], cut[20];
  size_t length = rv_extension_describe(&extension, text, sizeof text);
  assert_int_equal(strncmp(text, "statistics: inserts=0", 21), 0);
  assert_int_equal(strlen(text), length);
  for (size_t capacity = 0; capacity < sizeof cut; capacity++) {
    assert_int_equal(rv_extension_describe(&extension, cut, capacity), length);
    if (capacity > 0) assert_int_equal(strncmp(cut, text, capacity - 1), 0);
    if (capacity > 0) assert_int_equal(strlen(cut), capacity - 1);
  }
  rv_extension_fini(&extension);
}

static void an_unknown_extension_is_answered_with_those_there_are(void **state)
{
  (void)state;
  rv_registry *registry;
  assert_int_equal(rv_registry_new(&registry, NULL), RV_OK);
  assert_int_equal(rv_registry_add_extension(registry, "mine", &extension_ops, NULL), RV_OK);
  rv_extension extension;
  rv_error err = {0};
  const rv_extension_config config = {.name = "yours"}, none = {0};
  assert_int_equal(rv_extension_init(&extension, &config, registry, "replay", &err), RV_NOT_FOUND);
  assert_non_null(strstr(err.message, "\"yours\""));
  assert_non_null(strstr(err.message, "\"statistics\", \"diffusion\", \"mine\""));
  assert_int_equal(rv_extension_init(&extension, &none, registry, "replay", &err), RV_INVALID_ARGUMENT);
  rv_registry_free(registry);
}

static void an_extension_that_cannot_be_made_says_why(void **state)
{
  (void)state;
  rv_registry *registry;
  assert_int_equal(rv_registry_new(&registry, NULL), RV_OK);
  assert_int_equal(rv_registry_add_extension(registry, "mine", &extension_ops, NULL), RV_OK);
  rv_extension extension;
  rv_error err = {0};
  rv_extension_config config = {.name = "mine", .options = "loud"};
  assert_int_equal(rv_extension_init(&extension, &config, registry, "replay", &err), RV_ABORTED);
  assert_string_equal(err.message, "extension \"mine\": replay");
  config.options = "silent";
  assert_int_equal(rv_extension_init(&extension, &config, registry, "replay", &err), RV_UNAVAILABLE);
  assert_non_null(strstr(err.message, "extension \"mine\": "));
  config.options = NULL;
  assert_int_equal(rv_extension_init(&extension, &config, registry, "replay", &err), RV_OK);
  char text[20];
  assert_int_equal(rv_extension_describe(&extension, text, sizeof text), 4);
  assert_string_equal(text, "mine");
  rv_extension_fini(&extension);
  rv_registry_free(registry);
}

static rv_code walk(const char *options, int *count)
{
  rv_option option;
  for (*count = 0;; ++*count) {
    bool found;
    rv_code code = rv_option_next(&options, &option, &found, NULL);
    if (code != RV_OK || !found) return code;
  }
}

static void options_are_pairs_between_commas(void **state)
{
  (void)state;
  int count;
  assert_int_equal(walk(NULL, &count), RV_OK);
  assert_int_equal(walk("", &count), RV_OK);
  assert_int_equal(count, 0);
  assert_int_equal(walk("a=1,b=x=y,c= ", &count), RV_OK);
  assert_int_equal(count, 3);
  const char *const bad[] = {"a",
                             "a=",
                             "=1",
                             ",",
                             "a=1,",
                             "a=1,,b=2",
                             "averyveryverylongnamethatnobodywouldwrite=1",
                             "a=0123456789012345678901234567890123456789012345678901234567890123456789"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_int_equal(walk(bad[i], &count), RV_INVALID_ARGUMENT);
}

static void numbers_in_options_are_checked(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    bool is_int, is_double;
    double value;
  } cases[] = {{"5", true, true, 5},        {"-3", true, true, -3},
               {"0.25", false, true, 0.25}, {"2.5e-1", false, true, 0.25},
               {".5", false, true, 0.5},    {"1e2", false, true, 100},
               {"1e999", false, false, 0},  {"nan", false, false, 0},
               {"inf", false, false, 0},    {"0x10", false, false, 0},
               {"1,5", false, false, 0},    {" 1", false, false, 0},
               {"1 ", false, false, 0},     {"1001", false, false, 0},
               {"-", false, false, 0},      {".", false, false, 0},
               {"1e", false, false, 0},     {"1e 2", false, false, 0},
               {"1.2.3", false, false, 0},  {"99999999999999999999", false, false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rv_option option = {.name = "n"};
    strcpy(option.value, cases[i].text);
    int64_t whole = 0;
    double real = 0;
    assert_int_equal(rv_option_int(&option, -1000, 1000, &whole, NULL), cases[i].is_int ? RV_OK : RV_INVALID_ARGUMENT);
    assert_int_equal(rv_option_double(&option, -1000, 1000, &real, NULL), cases[i].is_double ? RV_OK : RV_INVALID_ARGUMENT);
    if (cases[i].is_int) assert_true((double)whole == cases[i].value);
    if (cases[i].is_double) assert_true(real == cases[i].value);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_are_found_and_outlive_the_callers_structs),
      cmocka_unit_test(names_are_taken_once),
      cmocka_unit_test(bad_names_and_half_filled_ops_are_refused),
      cmocka_unit_test(the_built_in_extensions_are_always_there),
      cmocka_unit_test(an_unknown_extension_is_answered_with_those_there_are),
      cmocka_unit_test(an_extension_that_cannot_be_made_says_why),
      cmocka_unit_test(options_are_pairs_between_commas),
      cmocka_unit_test(numbers_in_options_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
