/* What events say where more happens in one hold of the lock than extensions are told at once: they edit in the middle of it. */
#include "store/testing.h"

#include "store/table_parts.h"
#include "store/trajectory_parts.h"

enum { MANY = 128, SEEN = 4 * MANY };

static void *shared_extension; /* `create` has no other way to its test */

static rv_code create(const char *table, const char *options, void **extension, rv_error *err)
{
  (void)table, (void)options, (void)err;
  *extension = shared_extension;
  return RV_OK;
}

static void destroy(void *extension)
{
  (void)extension;
}

/* Of one table with the test's extension. The registry is to go after it. */
static rv_store *store_with_extension(void *extension, void (*on_events)(void *, const rv_event *, size_t, rv_edit *),
                                      rv_table_config config, rv_registry **registry)
{
  rv_error err;
  rv_store *store;
  const rv_extension_ops ops = {.size = sizeof ops, .create = create, .destroy = destroy, .on_events = on_events};
  const rv_extension_config named = {.name = "tests"};
  shared_extension = extension;
  must(rv_registry_new(registry, &err), &err);
  must(rv_registry_add_extension(*registry, named.name, &ops, &err), &err);
  config.extensions = &named;
  config.num_extensions = 1;
  rv_store_config whole = {.size = sizeof whole, .registry = *registry, .tables = &config, .num_tables = 1};
  must(rv_store_new(&whole, &store, &err), &err);
  return store;
}

/* ---- an extension that raises ---- */

/* Raises what it is told of by one, as far as it is still there. */
typedef struct raiser {
  rv_event events[SEEN];
  double now[SEEN]; /* what that item has since, as far as this has raised it */
  size_t count;
} raiser;

static void raiser_events(void *extension, const rv_event *events, size_t n, rv_edit *edit)
{
  raiser *self = extension;
  for (size_t i = 0; i < n; i++) {
    self->now[self->count] = events[i].priority;
    self->events[self->count++] = events[i];
  }
  for (size_t i = 0; i < n; i++) {
    double priority;
    if (rv_edit_priority(edit, events[i].key, &priority) != RV_OK) continue;
    assert_int_equal(rv_edit_set_priority(edit, events[i].key, priority + 1), RV_OK);
    for (size_t k = 0; k < self->count; k++)
      if (self->events[k].key == events[i].key) self->now[k] = priority + 1;
  }
}

static double now_of(const raiser *self, uint64_t key)
{
  size_t i = 0;
  while (self->events[i].key != key) i++;
  return self->now[i];
}

/* All of them are drawn before the first is told. */
static void a_samples_event_has_the_priority_that_it_was_drawn_with(void **state)
{
  (void)state;
  rv_registry *registry;
  raiser self = {.count = 0};
  rv_store *store = store_with_extension(&self, raiser_events, rv_table_config_default("replay", 10), &registry);
  rv_table *table = rv_store_table(store, 0);
  int64_t value = 7, numbers[MANY];
  rv_rows rows;
  add_values(table, &rows, &value, 1, NULL);
  self.count = 0;
  const rv_slab *slab = &table->books.slab;
  rv_layout *layout = rv_layout_ref(rv_books_trajectory(&table->books, rv_slab_at(slab, slab->newest))->layout);
  uint64_t keys[MANY];
  double probabilities[MANY], priorities[MANY];
  int32_t times_sampled[MANY];
  rv_draw draws[MANY];
  rv_fill fill = {.layout = layout,
                  .columns = (void *[]){numbers},
                  .keys = keys,
                  .probabilities = probabilities,
                  .priorities = priorities,
                  .times_sampled = times_sampled};
  rv_sampling ask = {.want = MANY, .same_layout = true, .fill = &fill, .draws = draws};
  assert_int_equal(rv_table_sample(table, &ask), RV_SUBMIT_DONE);
  assert_int_equal(fill.done, MANY);
  assert_int_equal(self.count, MANY);
  for (size_t i = 0; i < MANY; i++) {
    assert_true(self.events[i].priority == priorities[i]);
    assert_int_equal(self.events[i].times_sampled, times_sampled[i]);
  }
  rv_layout_unref(layout);
  rv_store_unref(store);
  rv_registry_free(registry);
}

/* Of this table the 65th event is that of an item's going, when extensions are told of the 64 before. */
static void an_item_that_goes_has_the_priority_that_was_set_last(void **state)
{
  (void)state;
  rv_registry *registry;
  raiser self = {.count = 0};
  rv_store *store = store_with_extension(&self, raiser_events, rv_table_config_default("replay", 33), &registry);
  int64_t values[MANY] = {0};
  rv_rows rows;
  add_values(rv_store_table(store, 0), &rows, values, MANY, NULL);
  assert_int_equal(self.events[64].kind, RV_EVENT_DELETE);
  for (size_t i = 0; i < self.count; i++)
    if (self.events[i].kind == RV_EVENT_DELETE) assert_true(self.events[i].priority == now_of(&self, self.events[i].key));
  rv_store_unref(store);
  rv_registry_free(registry);
}

/* ---- an extension that knows what every item has ---- */

enum { PAIRS = 64, PARTNERS_PRIORITY = 1000 };

typedef struct follower {
  uint64_t keys[2 * PAIRS]; /* of which each of the first half has its partner in the second */
  double priorities[2 * PAIRS];
  size_t updates;
} follower;

static size_t number_of(const follower *self, uint64_t key)
{
  size_t i = 0;
  while (self->keys[i] != key) i++;
  return i;
}

/* Where an item is updated its partner gets another priority. */
static void follower_events(void *extension, const rv_event *events, size_t n, rv_edit *edit)
{
  follower *self = extension;
  for (size_t i = 0; i < n; i++) {
    if (events[i].kind != RV_EVENT_UPDATE) continue;
    size_t number = number_of(self, events[i].key);
    assert_true(events[i].old_priority == self->priorities[number]);
    self->priorities[number] = events[i].priority;
    self->updates++;
    if (number >= PAIRS) continue;
    assert_int_equal(rv_edit_set_priority(edit, self->keys[PAIRS + number], PARTNERS_PRIORITY), RV_OK);
    self->priorities[PAIRS + number] = PARTNERS_PRIORITY;
  }
}

/* An item that is edited is updated before that and the extension knows it, or after. */
static void who_follows_updates_and_edits_knows_what_items_have(void **state)
{
  (void)state;
  rv_error err;
  rv_registry *registry;
  follower self = {.updates = 0};
  rv_store *store = store_with_extension(&self, follower_events, rv_table_config_default("replay", 2 * PAIRS), &registry);
  rv_table *table = rv_store_table(store, 0);
  int64_t values[2 * PAIRS] = {0};
  rv_rows rows;
  add_values(table, &rows, values, 2 * PAIRS, self.keys);
  double priorities[2 * PAIRS];
  for (size_t i = 0; i < 2 * PAIRS; i++) {
    self.priorities[i] = 1;
    priorities[i] = 2 + (double)i;
  }
  size_t num_unknown;
  must(rv_table_update_priorities(table, self.keys, priorities, 2 * PAIRS, NULL, &num_unknown, &err), &err);
  assert_int_equal(self.updates, 2 * PAIRS);
  for (size_t i = 0; i < 2 * PAIRS; i++) {
    rv_draw draw;
    must(rv_table_get(table, self.keys[i], &draw, &err), &err);
    assert_true(draw.priority == self.priorities[i]);
    rv_draw_release(&draw);
  }
  rv_store_unref(store);
  rv_registry_free(registry);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_samples_event_has_the_priority_that_it_was_drawn_with),
      cmocka_unit_test(an_item_that_goes_has_the_priority_that_was_set_last),
      cmocka_unit_test(who_follows_updates_and_edits_knows_what_items_have),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
