/* Every selector against a model that does the obvious thing slowly, and what each refuses. How random ones distribute is in
 * distribution_test.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/part_testing.h"
#include "store/selectors/selector.h"

/* Overrides the C library's, so that the nth block from now can be refused; -1: none. */
static int blocks_left = -1;

void *aligned_alloc(size_t alignment, size_t size)
{
  if (blocks_left == 0) return NULL;
  if (blocks_left > 0) blocks_left--;
  void *memory = NULL;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

/* ---- a registered selector: the lowest key, found by looking at all ---- */

enum { SLOTS = 300 };

typedef struct lowest_key {
  bool present[SLOTS];
  uint64_t key[SLOTS];
  uint32_t answer; /* to give instead, unless RV_NO_SLOT */
  double probability;
} lowest_key;

static rv_code lowest_create(const char *options, void **out, rv_error *err)
{
  if (options != NULL && strcmp(options, "fail") == 0) {
    strcpy(err->message, "told to fail");
    return RV_ABORTED;
  }
  lowest_key *self = calloc(1, sizeof *self);
  self->answer = RV_NO_SLOT;
  self->probability = 1;
  *out = self;
  return RV_OK;
}

static rv_code lowest_insert(void *state, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)err;
  lowest_key *self = state;
  if (priority == 13) return RV_OUT_OF_RANGE;
  assert_false(self->present[slot]);
  self->present[slot] = true;
  self->key[slot] = key;
  return RV_OK;
}

static void lowest_remove(void *state, uint32_t slot, uint64_t key)
{
  lowest_key *self = state;
  assert_true(self->present[slot]);
  assert_int_equal(self->key[slot], key);
  self->present[slot] = false;
}

static rv_code lowest_update(void *state, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)err;
  lowest_key *self = state;
  assert_int_equal(self->key[slot], key);
  return priority == 13 ? RV_OUT_OF_RANGE : RV_OK;
}

static void lowest_clear(void *state)
{
  memset(((lowest_key *)state)->present, 0, SLOTS);
}

static lowest_key *last_asked;

static uint32_t lowest_select(void *state, uint64_t random, double *probability)
{
  (void)random;
  lowest_key *self = last_asked = state;
  *probability = self->probability;
  if (self->answer != RV_NO_SLOT) return self->answer;
  uint32_t best = RV_NO_SLOT;
  for (uint32_t slot = 0; slot < SLOTS; slot++)
    if (self->present[slot] && (best == RV_NO_SLOT || self->key[slot] < self->key[best])) best = slot;
  return best;
}

static const rv_selector_ops lowest_ops = {
    .size = sizeof(rv_selector_ops),
    .create = lowest_create,
    .destroy = free,
    .insert = lowest_insert,
    .remove = lowest_remove,
    .update = lowest_update,
    .clear = lowest_clear,
    .select = lowest_select,
};

static rv_registry *registry;

static int with_registry(void **state)
{
  (void)state;
  return rv_registry_new(&registry, NULL) != RV_OK ||
         rv_registry_add_selector(registry, "lowest key", &lowest_ops, NULL) != RV_OK;
}

static int without_registry(void **state)
{
  (void)state;
  rv_registry_free(registry);
  return 0;
}

/* ---- the model ---- */

typedef struct model {
  rv_selector_config config;
  bool present[SLOTS];
  double priority[SLOTS];
  uint64_t key[SLOTS];
  uint64_t inserted[SLOTS], touched[SLOTS]; /* when */
  uint64_t now;
  uint32_t count;
} model;

static double model_weight(const model *m, uint32_t slot)
{
  if (!m->present[slot] || m->priority[slot] == 0) return 0;
  return pow(m->priority[slot], m->config.priority_exponent);
}

static double model_total(const model *m)
{
  double total = 0;
  for (uint32_t slot = 0; slot < SLOTS; slot++) total += model_weight(m, slot);
  return total;
}

/* Would slot `a` be chosen rather than `b`? */
static bool model_prefers(const model *m, uint32_t a, uint32_t b)
{
  switch (m->config.kind) {
  case RV_SELECTOR_FIFO: return m->inserted[a] < m->inserted[b];
  case RV_SELECTOR_LIFO: return m->inserted[a] > m->inserted[b];
  case RV_SELECTOR_CUSTOM: return m->key[a] < m->key[b];
  case RV_SELECTOR_MAX_HEAP:
    if (m->priority[a] != m->priority[b]) return m->priority[a] > m->priority[b];
    return m->touched[a] < m->touched[b];
  default:
    if (m->priority[a] != m->priority[b]) return m->priority[a] < m->priority[b];
    return m->touched[a] < m->touched[b];
  }
}

static uint32_t model_choice(const model *m)
{
  uint32_t best = RV_NO_SLOT;
  for (uint32_t slot = 0; slot < SLOTS; slot++)
    if (m->present[slot] && (best == RV_NO_SLOT || model_prefers(m, slot, best))) best = slot;
  return best;
}

static void check_choice(const model *m, uint32_t slot, double probability, double total)
{
  assert_true(slot < SLOTS);
  assert_true(m->present[slot]);
  if (m->config.kind == RV_SELECTOR_UNIFORM || (m->config.kind == RV_SELECTOR_PRIORITIZED && total == 0)) {
    assert_true(probability == 1.0 / m->count);
  } else if (m->config.kind == RV_SELECTOR_PRIORITIZED) {
    assert_true(model_weight(m, slot) > 0);
    assert_true(fabs(probability * total / model_weight(m, slot) - 1) < 1e-10);
  } else {
    assert_int_equal(slot, model_choice(m));
    assert_true(probability == 1);
  }
}

static double some_priority(rv_random *random, const model *m)
{
  bool weighs = m->config.kind == RV_SELECTOR_PRIORITIZED;
  switch (rv_random_below(random, 8)) {
  case 0: return 0;
  case 1:
  case 2:
  case 3: return rv_random_below(random, 4); /* equals */
  case 4: return exp2(rv_random_unit(random) * 100 - 50);
  case 5: return weighs ? 1 : -rv_random_unit(random);
  case 6: return weighs ? 1e-9 : rv_random_below(random, 2) == 0 ? HUGE_VAL : -HUGE_VAL;
  default: return rv_random_unit(random);
  }
}

static void touch(model *m, uint32_t slot, double priority)
{
  m->priority[slot] = priority;
  m->touched[slot] = m->now++;
}

static uint32_t some_present(rv_random *random, const model *m)
{
  uint32_t slot = rv_random_below(random, SLOTS);
  while (!m->present[slot]) slot = (slot + 1) % SLOTS;
  return slot;
}

static void one_operation(rv_selector *selector, model *m, rv_random *random, uint32_t insert_share)
{
  uint32_t slot = rv_random_below(random, SLOTS);
  uint32_t dice = rv_random_below(random, 100);
  if (dice < insert_share && !m->present[slot]) {
    m->key[slot] = rv_random_next(random);
    double priority = some_priority(random, m);
    assert_int_equal(rv_selector_insert(selector, slot, m->key[slot], priority, NULL), RV_OK);
    m->present[slot] = true;
    m->count++;
    m->inserted[slot] = m->now;
    touch(m, slot, priority);
  } else if (dice < 40) {
    rv_selector_remove(selector, slot);
    m->count -= m->present[slot];
    m->present[slot] = false;
  } else if (dice < 60 && m->count > 0) {
    slot = some_present(random, m);
    touch(m, slot, some_priority(random, m));
    assert_int_equal(rv_selector_update(selector, slot, m->priority[slot], NULL), RV_OK);
  } else if (dice < 70 && m->count > 0) {
    uint32_t slots[20];
    double priorities[20];
    size_t n = rv_random_below(random, 21), done = 99;
    for (size_t i = 0; i < n; i++) {
      slots[i] = some_present(random, m);
      priorities[i] = some_priority(random, m);
      touch(m, slots[i], priorities[i]);
    }
    assert_int_equal(rv_selector_update_many(selector, slots, priorities, n, &done, NULL), RV_OK);
    assert_int_equal(done, n);
  } else if (dice < 71 && rv_random_below(random, 50) == 0) {
    rv_blocks garbage = {0};
    rv_selector_clear(selector, &garbage);
    rv_blocks_free(&garbage);
    memset(m->present, 0, sizeof m->present);
    m->count = 0;
  }
}

static void check_choices(rv_selector *selector, const model *m, rv_random *random)
{
  assert_int_equal(rv_selector_count(selector), m->count);
  uint32_t slots[9];
  double probabilities[9];
  slots[0] = rv_selector_select(selector, random, &probabilities[0]);
  if (m->count == 0) {
    assert_int_equal(slots[0], RV_NO_SLOT);
    assert_int_equal(rv_selector_select_many(selector, random, 9, slots, probabilities), 0);
    return;
  }
  double total = m->config.kind == RV_SELECTOR_PRIORITIZED ? model_total(m) : 0;
  check_choice(m, slots[0], probabilities[0], total);
  size_t n = rv_random_below(random, 10);
  assert_int_equal(rv_selector_select_many(selector, random, n, slots, probabilities), n);
  for (size_t i = 0; i < n; i++) check_choice(m, slots[i], probabilities[i], total);
  double low, high;
  if (rv_selector_min_priority(selector, &low)) assert_true(low == m->priority[model_choice(m)]);
  if (rv_selector_max_priority(selector, &high)) assert_true(high == m->priority[model_choice(m)]);
}

static const rv_selector_config configs[] = {
    {.kind = RV_SELECTOR_FIFO},
    {.kind = RV_SELECTOR_LIFO},
    {.kind = RV_SELECTOR_UNIFORM},
    {.kind = RV_SELECTOR_MAX_HEAP},
    {.kind = RV_SELECTOR_MIN_HEAP},
    {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6},
    {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1},
    {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0},
    {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = -1.5},
    {.kind = RV_SELECTOR_CUSTOM, .name = "lowest key"},
};
enum { NUM_CONFIGS = sizeof configs / sizeof configs[0] };

static rv_selector *make(const rv_selector_config *config, int64_t max_size)
{
  rv_selector *selector;
  assert_int_equal(rv_selector_new(config, registry, max_size, &selector, NULL), RV_OK);
  return selector;
}

static void every_selector_agrees_with_its_model(void **state)
{
  (void)state;
  enum { OPERATIONS = 100000 / ONE_PART_OF, SEEDS = 3 };
  for (size_t c = 0; c < NUM_CONFIGS; c++)
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
      print_message("kind %d exponent %g seed %llu\n", (int)configs[c].kind, configs[c].priority_exponent,
                    (unsigned long long)seed);
      rv_random random;
      rv_random_init(&random, seed);
      model *m = calloc(1, sizeof *m);
      m->config = configs[c];
      rv_selector *selector = make(&configs[c], seed == 1 ? 3 : SLOTS); /* more slots than expected are fine */
      for (int i = 0; i < OPERATIONS; i++) {
        one_operation(selector, m, &random, i / (OPERATIONS / 20) % 2 == 0 ? 35 : 12); /* fills, and nearly empties */
        if (i % 4 == 0) check_choices(selector, m, &random);
      }
      assert_int_equal(rv_selector_faults(selector), 0);
      rv_selector_free(selector);
      free(m);
    }
}

/* ---- what is refused ---- */

static void what_a_selector_accepts_is_told_before_anything_changes(void **state)
{
  (void)state;
  for (size_t c = 0; c < NUM_CONFIGS; c++) {
    rv_selector *selector = make(&configs[c], 10);
    bool weighs = configs[c].kind == RV_SELECTOR_PRIORITIZED;
    rv_error err = {0};
    assert_int_equal(rv_selector_accepts(selector, NAN, &err), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "NaN"));
    assert_int_equal(rv_selector_accepts(selector, -1, NULL), weighs ? RV_INVALID_ARGUMENT : RV_OK);
    assert_int_equal(rv_selector_accepts(selector, HUGE_VAL, NULL), weighs ? RV_INVALID_ARGUMENT : RV_OK);
    assert_int_equal(rv_selector_accepts(selector, -HUGE_VAL, NULL), weighs ? RV_INVALID_ARGUMENT : RV_OK);
    assert_int_equal(rv_selector_accepts(selector, 0, NULL), RV_OK);
    assert_int_equal(rv_selector_accepts(selector, 1.7e308, NULL), RV_OK);
    rv_selector_free(selector);
  }
}

static void exponents_that_make_no_sense_are_refused(void **state)
{
  (void)state;
  const double bad[] = {NAN, HUGE_VAL, -HUGE_VAL};
  for (size_t i = 0; i < 3; i++) {
    rv_selector_config config = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = bad[i]};
    rv_error err = {0};
    rv_selector *selector;
    assert_int_equal(rv_selector_new(&config, NULL, 10, &selector, &err), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "priority_exponent"));
  }
}

static void unknown_kinds_and_names_are_refused(void **state)
{
  (void)state;
  rv_error err = {0};
  rv_selector_config config = {.kind = (rv_selector_kind)0};
  assert_int_equal(rv_selector_check(&config, registry, &err), RV_INVALID_ARGUMENT);
  config.kind = (rv_selector_kind)99;
  assert_int_equal(rv_selector_check(&config, registry, &err), RV_INVALID_ARGUMENT);
  config = (rv_selector_config){.kind = RV_SELECTOR_CUSTOM};
  assert_int_equal(rv_selector_check(&config, registry, &err), RV_INVALID_ARGUMENT);
  config.name = "highest key";
  assert_int_equal(rv_selector_check(&config, NULL, &err), RV_NOT_FOUND);
  assert_int_equal(rv_selector_check(&config, registry, &err), RV_NOT_FOUND);
  assert_non_null(strstr(err.message, "\"highest key\""));
  assert_non_null(strstr(err.message, "\"lowest key\""));
}

static void a_slot_that_is_taken_or_absent_is_an_error_not_a_crash(void **state)
{
  (void)state;
  for (size_t c = 0; c < NUM_CONFIGS; c++) {
    rv_selector *selector = make(&configs[c], 10);
    rv_selector_remove(selector, 5);
    assert_int_equal(rv_selector_insert(selector, 5, 1, 1, NULL), RV_OK);
    assert_int_equal(rv_selector_insert(selector, 5, 1, 1, NULL), RV_INTERNAL);
    rv_selector_remove(selector, 6);
    rv_selector_remove(selector, 100000);
    rv_selector_update(selector, 6, 1, NULL);
    rv_selector_update(selector, 100000, 1, NULL);
    assert_int_equal(rv_selector_insert(selector, UINT32_C(1) << 31, 1, 1, NULL), RV_RESOURCE_EXHAUSTED);
    assert_int_equal(rv_selector_count(selector), 1);
    double probability;
    rv_random random;
    rv_random_init(&random, 1);
    assert_int_equal(rv_selector_select(selector, &random, &probability), 5);
    rv_selector_free(selector);
  }
}

static void without_memory_an_insert_fails_and_changes_nothing(void **state)
{
  (void)state;
  for (size_t c = 0; c < NUM_CONFIGS; c++) {
    rv_selector *selector = make(&configs[c], 100);
    rv_code code = RV_RESOURCE_EXHAUSTED;
    int failures = 0;
    for (; code != RV_OK; failures++) {
      blocks_left = failures;
      code = rv_selector_insert(selector, 70, 1, 2, NULL);
      blocks_left = -1;
      assert_int_equal(code, code == RV_OK ? RV_OK : RV_RESOURCE_EXHAUSTED);
      assert_int_equal(rv_selector_count(selector), code == RV_OK);
      if (code == RV_OK) break;
      rv_selector_remove(selector, 70);
    }
    assert_true(failures > 0);
    rv_random random;
    rv_random_init(&random, 1);
    double probability;
    assert_int_equal(rv_selector_select(selector, &random, &probability), 70);
    assert_true(probability == 1);
    rv_selector_free(selector);
  }
}

/* ---- registered selectors ---- */

static void a_registered_selector_may_refuse_and_says_so(void **state)
{
  (void)state;
  rv_selector_config config = {.kind = RV_SELECTOR_CUSTOM, .name = "lowest key", .options = "fail"};
  rv_error err = {0};
  rv_selector *selector;
  assert_int_equal(rv_selector_new(&config, registry, 10, &selector, &err), RV_ABORTED);
  assert_string_equal(err.message, "told to fail");
  config.options = NULL;
  selector = make(&config, 10);
  assert_int_equal(rv_selector_insert(selector, 0, 1, 13, &err), RV_OUT_OF_RANGE);
  assert_non_null(strstr(err.message, "OUT_OF_RANGE"));
  assert_int_equal(rv_selector_count(selector), 0);
  for (uint32_t slot = 0; slot < 3; slot++) assert_int_equal(rv_selector_insert(selector, slot, slot, 1, NULL), RV_OK);
  const uint32_t slots[] = {0, 1, 2};
  const double priorities[] = {1, 13, 1};
  size_t done = 9;
  assert_int_equal(rv_selector_update_many(selector, slots, priorities, 3, &done, NULL), RV_OUT_OF_RANGE);
  assert_int_equal(done, 1);
  rv_selector_free(selector);
}

static void a_registered_selector_that_chooses_what_is_not_there_is_replaced_by_chance(void **state)
{
  (void)state;
  rv_selector *selector = make(&configs[NUM_CONFIGS - 1], 10);
  for (uint32_t slot = 0; slot < 4; slot++) assert_int_equal(rv_selector_insert(selector, slot, slot, 1, NULL), RV_OK);
  rv_random random;
  rv_random_init(&random, 1);
  double probability;
  assert_int_equal(rv_selector_select(selector, &random, &probability), 0);
  const uint32_t answers[] = {4, 5000000, RV_NO_SLOT - 1, 0, 0, 0};
  const double probabilities[] = {1, 1, 1, NAN, -1, 1.5};
  for (uint32_t i = 0; i < 6; i++) {
    last_asked->answer = answers[i];
    last_asked->probability = probabilities[i];
    assert_true(rv_selector_select(selector, &random, &probability) < 4);
    assert_true(probability == 0.25);
    assert_int_equal(rv_selector_faults(selector), i + 1);
  }
  rv_selector_free(selector);
}

static void memory_follows_the_slots_in_use_and_goes_with_them(void **state)
{
  (void)state;
  for (size_t c = 0; c + 1 < NUM_CONFIGS; c++) {
    rv_selector *selector = make(&configs[c], 1000000);
    for (uint32_t slot = 0; slot < 20000; slot++) assert_int_equal(rv_selector_insert(selector, slot, slot, 1, NULL), RV_OK);
    size_t full = rv_selector_memory(selector);
    assert_true(full >= 20000 * 8);
    assert_true(full <= 20000 * 40 + (1 << 19));
    rv_blocks garbage = {0};
    rv_selector_clear(selector, &garbage);
    assert_true(rv_selector_memory(selector) < full / 4);
    rv_blocks_free(&garbage);
    rv_selector_free(selector);
  }
}

/* A weight, and its share of the sums: 8 bytes and a quarter of that, and what the last blocks have to spare. */
static void a_prioritized_item_takes_less_than_eleven_bytes(void **state)
{
  (void)state;
  enum { N = 260000 };
  const rv_selector_config config = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6};
  rv_selector *selector = make(&config, N);
  for (uint32_t slot = 0; slot < N; slot++) assert_int_equal(rv_selector_insert(selector, slot, slot, 1, NULL), RV_OK);
  assert_true(rv_selector_memory(selector) < 11 * (size_t)N);
  rv_selector_free(selector);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_selector_agrees_with_its_model),
      cmocka_unit_test(what_a_selector_accepts_is_told_before_anything_changes),
      cmocka_unit_test(exponents_that_make_no_sense_are_refused),
      cmocka_unit_test(unknown_kinds_and_names_are_refused),
      cmocka_unit_test(a_slot_that_is_taken_or_absent_is_an_error_not_a_crash),
      cmocka_unit_test(without_memory_an_insert_fails_and_changes_nothing),
      cmocka_unit_test(a_registered_selector_may_refuse_and_says_so),
      cmocka_unit_test(a_registered_selector_that_chooses_what_is_not_there_is_replaced_by_chance),
      cmocka_unit_test(memory_follows_the_slots_in_use_and_goes_with_them),
      cmocka_unit_test(a_prioritized_item_takes_less_than_eleven_bytes),
  };
  return cmocka_run_group_tests(tests, with_registry, without_registry);
}
