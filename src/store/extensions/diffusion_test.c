#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "store/extensions/extension.h"

/* The table's side, in the place of the real one: items by key. */
enum { KEYS = 4000 };

struct rv_edit {
  bool present[KEYS];
  double priority[KEYS];
  uint64_t episode[KEYS];
  int64_t step[KEYS];
  uint64_t inserted[KEYS]; /* when */
  double refuse;           /* a priority that the selectors refuse */
  uint64_t edits, looks;
};

rv_code rv_edit_set_priority(rv_edit *edit, uint64_t key, double priority)
{
  if (key >= KEYS || !edit->present[key]) return RV_NOT_FOUND;
  if (priority == edit->refuse) return RV_INVALID_ARGUMENT;
  edit->priority[key] = priority;
  edit->edits++;
  return RV_OK;
}

rv_code rv_edit_priority(rv_edit *edit, uint64_t key, double *priority)
{
  edit->looks++;
  if (key >= KEYS || !edit->present[key]) return RV_NOT_FOUND;
  *priority = edit->priority[key];
  return RV_OK;
}

static const rv_extension_ops *ops = &rv_extension_diffusion;

static void *made(const char *options)
{
  void *self;
  rv_error err = {0};
  if (ops->create("t", options, &self, &err) != RV_OK) fail_msg("%s", err.message);
  return self;
}

static void insert(void *self, rv_edit *edit, uint64_t key, uint64_t episode, int64_t step, double priority)
{
  static uint64_t now;
  edit->present[key] = true;
  edit->priority[key] = priority;
  edit->episode[key] = episode;
  edit->step[key] = step;
  edit->inserted[key] = now++;
  rv_event event = {.kind = RV_EVENT_INSERT, .key = key, .priority = priority, .episode_id = episode, .episode_step = step};
  ops->on_events(self, &event, 1, edit);
}

static void update(void *self, rv_edit *edit, uint64_t key, double priority)
{
  rv_event event = {.kind = RV_EVENT_UPDATE, .key = key, .priority = priority, .old_priority = edit->priority[key]};
  edit->priority[key] = priority;
  ops->on_events(self, &event, 1, edit);
  while (ops->go_on(self, edit)) continue;
}

static void drop(void *self, rv_edit *edit, uint64_t key)
{
  edit->present[key] = false;
  rv_event event = {.kind = RV_EVENT_DELETE, .key = key};
  ops->on_events(self, &event, 1, edit);
}

static void reset(void *self, rv_edit *edit)
{
  memset(edit->present, 0, sizeof edit->present);
  rv_event event = {.kind = RV_EVENT_RESET};
  ops->on_events(self, &event, 1, edit);
}

static int fresh(void **state)
{
  *state = calloc(1, sizeof(rv_edit));
  if (*state != NULL) ((rv_edit *)*state)->refuse = -1;
  return *state == NULL;
}

static int done(void **state)
{
  free(*state);
  return 0;
}

static void neighbours_are_raised_by_distance(void **state)
{
  rv_edit *edit = *state;
  void *self = made("steps=2,decay=0.5");
  for (uint64_t key = 0; key < 10; key++) insert(self, edit, key, 7, (int64_t)key, 1);
  update(self, edit, 5, 8);
  const double expected[10] = {1, 1, 1, 2, 4, 8, 4, 2, 1, 1};
  for (uint64_t key = 0; key < 10; key++) assert_true(edit->priority[key] == expected[key]);
  ops->destroy(self);
}

static void nothing_is_lowered_and_other_episodes_are_left_alone(void **state)
{
  rv_edit *edit = *state;
  void *self = made("steps=2,decay=0.5");
  insert(self, edit, 0, 7, 0, 1);
  insert(self, edit, 1, 7, 1, 6);
  insert(self, edit, 2, 8, 1, 1);
  update(self, edit, 0, 8);
  assert_true(edit->priority[1] == 6);
  assert_true(edit->priority[2] == 1);
  update(self, edit, 0, 0.5);
  assert_true(edit->priority[1] == 6);
  ops->destroy(self);
}

static void inserts_and_raised_items_do_not_spread(void **state)
{
  rv_edit *edit = *state;
  void *self = made("steps=1,decay=1");
  for (uint64_t key = 0; key < 4; key++) insert(self, edit, key, 7, (int64_t)key, 1);
  insert(self, edit, 4, 7, 4, 100);
  assert_true(edit->priority[3] == 1);
  update(self, edit, 0, 50);
  assert_true(edit->priority[1] == 50);
  assert_true(edit->priority[2] == 1);
  ops->destroy(self);
}

static void priorities_that_mean_nothing_do_not_spread(void **state)
{
  rv_edit *edit = *state;
  void *self = made("steps=1,decay=0.5");
  for (uint64_t key = 0; key < 3; key++) insert(self, edit, key, 7, (int64_t)key, -10);
  const double useless[] = {0, -1, HUGE_VAL, -HUGE_VAL, NAN};
  for (size_t i = 0; i < 5; i++) update(self, edit, 1, useless[i]);
  assert_int_equal(edit->edits, 0);
  update(self, edit, 1, 3);
  assert_int_equal(edit->edits, 2);
  ops->destroy(self);
}

static void items_without_a_step_and_the_ends_of_numbers_are_harmless(void **state)
{
  rv_edit *edit = *state;
  void *self = made("steps=100,decay=1");
  insert(self, edit, 0, 7, -1, 1);
  insert(self, edit, 1, 7, 0, 1);
  insert(self, edit, 2, 7, INT64_MAX, 1);
  update(self, edit, 0, 9);
  update(self, edit, 1, 9);
  update(self, edit, 2, 9);
  update(self, edit, 999, 9);
  drop(self, edit, 0);
  assert_int_equal(edit->edits, 0);
  ops->destroy(self);
}

static void a_refused_edit_does_not_stop_the_others(void **state)
{
  rv_edit *edit = *state;
  void *self = made("steps=2,decay=0.5");
  for (uint64_t key = 0; key < 5; key++) insert(self, edit, key, 7, (int64_t)key, 1);
  edit->refuse = 4;
  update(self, edit, 2, 8);
  assert_true(edit->priority[1] == 1);
  assert_true(edit->priority[0] == 2);
  ops->destroy(self);
}

static void the_work_of_an_update_is_bounded_where_all_items_begin_at_one_step(void **state)
{
  rv_edit *edit = *state;
  void *self = made("steps=3,decay=0.5");
  for (uint64_t key = 0; key < KEYS - 1; key++) insert(self, edit, key, 7, 1, 1);
  insert(self, edit, KEYS - 1, 7, 2, 1);
  edit->looks = 0;
  update(self, edit, KEYS - 1, 8);
  assert_int_equal(edit->looks, 16);
  assert_int_equal(edit->edits, 16);
  for (uint64_t key = KEYS - 1 - 16; key < KEYS - 1; key++) assert_true(edit->priority[key] == 4); /* the latest */
  ops->destroy(self);
}

/* As many updates in one batch as there may be, each with all that it can reach. */
static void no_call_looks_at_more_than_a_few_items(void **state)
{
  enum { STEPS = 200, UPDATES = 64, EACH = 16, FEW = 48 };
  rv_edit *edit = *state;
  void *self = made("steps=100,decay=1");
  for (uint64_t key = 0; key < STEPS * EACH; key++) insert(self, edit, key, 7, (int64_t)(key / EACH), 1);
  rv_event events[UPDATES];
  for (uint64_t i = 0; i < UPDATES; i++)
    events[i] = (rv_event){.kind = RV_EVENT_UPDATE, .key = i * EACH, .priority = edit->priority[i * EACH] = 2 + (double)i};
  edit->looks = 0;
  ops->on_events(self, events, UPDATES, edit);
  assert_true(edit->looks <= FEW);
  for (bool more = true; more;) {
    uint64_t looks = edit->looks;
    more = ops->go_on(self, edit);
    assert_true(edit->looks - looks <= FEW);
  }
  for (uint64_t key = 0; key < STEPS * EACH; key++) {
    int64_t step = (int64_t)(key / EACH), last = UPDATES - 1; /* that one is the highest, but raises nothing at its own step */
    double highest = step == last && key % EACH != 0 ? 1 + (double)last : 2 + (double)last;
    assert_true(edit->priority[key] == (step - 100 > last ? 1 : highest));
  }
  ops->destroy(self);
}

static void what_was_reset_or_deleted_is_forgotten(void **state)
{
  rv_edit *edit = *state;
  void *self = made("steps=1,decay=0.5");
  for (int round = 0; round < 3; round++) {
    for (uint64_t key = 0; key < KEYS; key++) insert(self, edit, key, 7, (int64_t)key, 1);
    drop(self, edit, 10);
    edit->edits = edit->looks = 0;
    update(self, edit, 9, 8);
    assert_int_equal(edit->looks, 1);
    reset(self, edit);
    update(self, edit, 9, 8);
    assert_int_equal(edit->looks, 1);
  }
  char text[200];
  ops->describe(self, text, sizeof text);
  assert_string_equal(text, "steps=1 decay=0.5 items=0 updates_spread=0 priorities_raised=0");
  ops->destroy(self);
}

/* What the file's formula says, found by looking at every item. */
static void model_update(const rv_edit *edit, double *priority, uint64_t key, int64_t steps, double decay)
{
  for (uint64_t other = 0; other < KEYS; other++) {
    int64_t distance = llabs(edit->step[other] - edit->step[key]);
    if (!edit->present[other] || edit->episode[other] != edit->episode[key] || distance == 0 || distance > steps) continue;
    double raised = priority[key];
    for (int64_t i = 0; i < distance; i++) raised *= decay;
    if (raised > priority[other]) priority[other] = raised;
  }
}

static void it_agrees_with_looking_at_every_item(void **state)
{
  rv_edit *edit = *state;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    print_message("seed %llu\n", (unsigned long long)seed);
    rv_random random;
    rv_random_init(&random, seed);
    void *self = made("steps=4,decay=0.8");
    memset(edit->present, 0, sizeof edit->present);
    double *model = calloc(KEYS, sizeof *model);
    for (int i = 0; i < 30000; i++) {
      uint64_t key = rv_random_below(&random, KEYS);
      uint32_t dice = rv_random_below(&random, 100);
      if (!edit->present[key]) { /* at most 8 keys share a step, fewer than are looked at */
        insert(self, edit, key, key % 10, (int64_t)(key / 10 % 50), model[key] = rv_random_unit(&random));
      } else if (dice < 40) {
        drop(self, edit, key);
      } else if (dice < 70) {
        model[key] = rv_random_unit(&random) * 2;
        model_update(edit, model, key, 4, 0.8);
        update(self, edit, key, model[key]);
        for (uint64_t other = 0; other < KEYS; other++)
          if (edit->present[other]) assert_true(edit->priority[other] == model[other]);
      } else if (dice == 99 && rv_random_below(&random, 20) == 0) {
        reset(self, edit);
      }
    }
    free(model);
    ops->destroy(self);
  }
}

static void options_are_checked(void **state)
{
  (void)state;
  const char *const bad[] = {"steps=0", "steps=101", "steps=x", "decay=-0.1", "decay=1.5", "decay=nan", "radius=3", "steps"};
  void *self;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    rv_error err = {0};
    assert_int_equal(ops->create("t", bad[i], &self, &err), RV_INVALID_ARGUMENT);
    assert_true(err.message[0] != '\0');
  }
  ops->destroy(made(NULL));
  ops->destroy(made(""));
  ops->destroy(made("decay=1"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(neighbours_are_raised_by_distance, fresh, done),
      cmocka_unit_test_setup_teardown(nothing_is_lowered_and_other_episodes_are_left_alone, fresh, done),
      cmocka_unit_test_setup_teardown(inserts_and_raised_items_do_not_spread, fresh, done),
      cmocka_unit_test_setup_teardown(priorities_that_mean_nothing_do_not_spread, fresh, done),
      cmocka_unit_test_setup_teardown(items_without_a_step_and_the_ends_of_numbers_are_harmless, fresh, done),
      cmocka_unit_test_setup_teardown(a_refused_edit_does_not_stop_the_others, fresh, done),
      cmocka_unit_test_setup_teardown(the_work_of_an_update_is_bounded_where_all_items_begin_at_one_step, fresh, done),
      cmocka_unit_test_setup_teardown(no_call_looks_at_more_than_a_few_items, fresh, done),
      cmocka_unit_test_setup_teardown(what_was_reset_or_deleted_is_forgotten, fresh, done),
      cmocka_unit_test_setup_teardown(it_agrees_with_looking_at_every_item, fresh, done),
      cmocka_unit_test_setup_teardown(options_are_checked, fresh, done),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
