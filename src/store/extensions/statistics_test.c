#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "store/extensions/extension.h"

static int64_t clock_ns;

static int64_t tick(void *context)
{
  (void)context;
  return clock_ns;
}

static void *begin(void)
{
  clock_ns = INT64_C(1000000000000);
  void *self;
  assert_int_equal(rv_statistics_new(tick, NULL, &self, NULL), RV_OK);
  return self;
}

static void tell(void *self, rv_event event)
{
  rv_extension_statistics.on_events(self, &event, 1, NULL);
}

static void says(void *self, const char *words)
{
  char text[2000];
  size_t length = rv_extension_statistics.describe(self, text, sizeof text);
  assert_int_equal(length, strlen(text));
  if (strstr(text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", text, words);
}

static void says_not(void *self, const char *words)
{
  char text[2000];
  rv_extension_statistics.describe(self, text, sizeof text);
  if (strstr(text, words) != NULL) fail_msg("\"%s\" says \"%s\"", text, words);
}

static void events_are_counted_by_kind(void **state)
{
  (void)state;
  void *self = begin();
  const rv_event events[] = {{.kind = RV_EVENT_INSERT, .key = 1},
                             {.kind = RV_EVENT_INSERT, .key = 2},
                             {.kind = RV_EVENT_SAMPLE, .key = 1, .times_sampled = 1},
                             {.kind = RV_EVENT_UPDATE, .key = 1, .priority = 3},
                             {.kind = RV_EVENT_DELETE, .key = 2},
                             {.kind = (rv_event_kind)77}};
  rv_extension_statistics.on_events(self, events, sizeof events / sizeof events[0], NULL);
  says(self, "inserts=2 samples=1 updates=1 deletes=1 resets=0");
  rv_extension_statistics.destroy(self);
}

static void rates_are_those_of_the_last_ten_seconds(void **state)
{
  (void)state;
  void *self = begin();
  for (int second = 0; second < 30; second++)
    for (uint64_t i = 0; i < 20; i++) {
      tell(self, (rv_event){.kind = RV_EVENT_INSERT, .key = (uint64_t)second * 20 + i});
      clock_ns += 50000000;
    }
  clock_ns -= 1;
  says(self, "inserts=600");
  says(self, "inserts_per_second=20.0");
  says(self, "samples_per_second=0.0");
  clock_ns += INT64_C(20000000000);
  says(self, "inserts_per_second=0.0");
  rv_extension_statistics.destroy(self);
}

static void priorities_are_described_by_least_mean_and_most(void **state)
{
  (void)state;
  void *self = begin();
  says_not(self, "priority_min");
  tell(self, (rv_event){.kind = RV_EVENT_INSERT, .key = 1, .priority = 4});
  tell(self, (rv_event){.kind = RV_EVENT_INSERT, .key = 2, .priority = 1});
  tell(self, (rv_event){.kind = RV_EVENT_UPDATE, .key = 2, .priority = 7});
  says(self, "priority_min=1 priority_mean=4 priority_max=7");
  tell(self, (rv_event){.kind = RV_EVENT_UPDATE, .key = 2, .priority = HUGE_VAL});
  tell(self, (rv_event){.kind = RV_EVENT_UPDATE, .key = 2, .priority = -HUGE_VAL});
  says(self, "priority_max=inf");
  says_not(self, "nan");
  rv_extension_statistics.destroy(self);
}

static void items_that_go_tell_their_age_and_how_often_they_were_sampled(void **state)
{
  (void)state;
  void *self = begin();
  for (uint64_t key = 1; key <= 3; key++) tell(self, (rv_event){.kind = RV_EVENT_INSERT, .key = key});
  clock_ns += INT64_C(2000000000);
  tell(self, (rv_event){.kind = RV_EVENT_DELETE, .key = 1, .times_sampled = 0});
  clock_ns += INT64_C(2000000000);
  tell(self, (rv_event){.kind = RV_EVENT_DELETE, .key = 2, .times_sampled = 6});
  tell(self, (rv_event){.kind = RV_EVENT_DELETE, .key = 99, .times_sampled = 3}); /* was there before us */
  says(self, "deleted_unsampled=1");
  says(self, "times_sampled_at_delete_min=0 times_sampled_at_delete_mean=3 times_sampled_at_delete_max=6");
  says(self, "age_at_delete_s_min=2 age_at_delete_s_mean=3 age_at_delete_s_max=4");
  rv_extension_statistics.destroy(self);
}

static void a_reset_begins_anew(void **state)
{
  (void)state;
  void *self = begin();
  for (uint64_t key = 0; key < 50000; key++) tell(self, (rv_event){.kind = RV_EVENT_INSERT, .key = key, .priority = 5});
  for (int round = 0; round < 3; round++) {
    tell(self, (rv_event){.kind = RV_EVENT_RESET});
    for (uint64_t key = 0; key < 5000; key++) tell(self, (rv_event){.kind = RV_EVENT_INSERT, .key = key, .priority = 2});
  }
  says(self, "inserts=5000 samples=0 updates=0 deletes=0 resets=3");
  says(self, "priority_max=2");
  clock_ns += INT64_C(1000000000);
  for (uint64_t key = 0; key < 5000; key++) tell(self, (rv_event){.kind = RV_EVENT_DELETE, .key = key});
  says(self, "age_at_delete_s_min=1 age_at_delete_s_mean=1 age_at_delete_s_max=1");
  rv_extension_statistics.destroy(self);
}

static void it_has_no_options(void **state)
{
  (void)state;
  void *self;
  rv_error err = {0};
  assert_int_equal(rv_extension_statistics.create("t", "steps=1", &self, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_extension_statistics.create("t", "", &self, &err), RV_OK);
  rv_extension_statistics.destroy(self);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_are_counted_by_kind),
      cmocka_unit_test(rates_are_those_of_the_last_ten_seconds),
      cmocka_unit_test(priorities_are_described_by_least_mean_and_most),
      cmocka_unit_test(items_that_go_tell_their_age_and_how_often_they_were_sampled),
      cmocka_unit_test(a_reset_begins_anew),
      cmocka_unit_test(it_has_no_options),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
