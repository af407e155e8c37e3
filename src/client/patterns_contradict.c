/* Conditions that no value meets: such a config would never make an item, and nobody would know why.
 *
 * Conditions on one thing leave an interval, less some values, of some remainders. Whether it is empty is found by trying:
 * remainders repeat after the least common multiple of the divisors, and each excluded value can spoil one repetition. Where
 * that would take too long nothing is said. */
#include <stdio.h>

#include "client/patterns.h"

#define MAX_TRIES ((int64_t)100000)

typedef struct interval {
  int64_t low, high;
} interval;

bool rv_condition_holds(const rv_condition *condition, int64_t value)
{
  bool holds = false;
  switch (condition->test) {
  case RV_CONDITION_TEST_EQ: holds = value == condition->value; break;
  case RV_CONDITION_TEST_GE: holds = value >= condition->value; break;
  case RV_CONDITION_TEST_MOD_EQ: holds = value % condition->mod == condition->value; break;
  case RV_CONDITION_TEST_NOTHING: return false;
  }
  return holds != condition->inverse;
}

static bool same_thing(const rv_condition *a, const rv_condition *b)
{
  return a->of == b->of && (a->of != RV_CONDITION_OF_COLUMN || a->column == b->column);
}

static bool all_hold(const rv_pattern_config *config, const rv_condition *thing, int64_t value)
{
  for (size_t i = 0; i < config->num_conditions; i++) {
    if (same_thing(&config->conditions[i], thing) && !rv_condition_holds(&config->conditions[i], value)) return false;
  }
  return true;
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
  while (b != 0) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Cuts the interval to where `ge` and `eq` can hold. Returns how many values after an end of it decide; 0: too many. */
static int64_t narrow(const rv_pattern_config *config, const rv_condition *thing, interval *range)
{
  int64_t period = 1, repetitions = 1;
  for (size_t i = 0; i < config->num_conditions; i++) {
    const rv_condition *condition = &config->conditions[i];
    if (!same_thing(condition, thing)) continue;
    int64_t value = condition->value;
    if (condition->test == RV_CONDITION_TEST_MOD_EQ) {
      period *= condition->mod / greatest_divisor(period, condition->mod);
      if (period > MAX_TRIES) return 0;
    } else if (condition->test == RV_CONDITION_TEST_EQ && condition->inverse) {
      repetitions++;
    } else {
      if (!condition->inverse && value > range->low) range->low = value;
      int64_t highest = condition->inverse ? value - 1 : value;
      if ((condition->inverse || condition->test == RV_CONDITION_TEST_EQ) && highest < range->high) range->high = highest;
    }
  }
  return repetitions > MAX_TRIES / period ? 0 : period * repetitions;
}

/* Is there a value in the interval? Remainders take the sign of what is divided, so each side of zero is looked at by itself. */
static bool is_met(const rv_pattern_config *config, const rv_condition *thing, interval range, int64_t tries)
{
  int64_t from = range.low > 0 ? range.low : 0;
  for (int64_t i = 0; i < tries && from + i <= range.high; i++) {
    if (all_hold(config, thing, from + i)) return true;
  }
  from = range.high < -1 ? range.high : -1;
  for (int64_t i = 0; i < tries && from - i >= range.low; i++) {
    if (all_hold(config, thing, from - i)) return true;
  }
  return false;
}

/* Conditions on one thing are judged together, at the first of them. */
static bool is_first(const rv_pattern_config *config, size_t i)
{
  for (size_t j = 0; j < i; j++) {
    if (same_thing(&config->conditions[j], &config->conditions[i])) return false;
  }
  return true;
}

static const char *thing_name(const rv_condition *thing, char *out, size_t capacity)
{
  switch (thing->of) {
  case RV_CONDITION_OF_STEP_INDEX: return "the step index";
  case RV_CONDITION_OF_STEPS_SINCE_APPLIED: return "the steps since it was applied";
  case RV_CONDITION_OF_BUFFER_LENGTH: return "the buffer's length";
  default: break;
  }
  snprintf(out, capacity, "the value of column %d", (int)thing->column);
  return out;
}

rv_code rv_conditions_check(const rv_pattern_config *config, size_t position, uint32_t reach, uint32_t window, rv_error *err)
{
  for (size_t i = 0; i < config->num_conditions; i++) {
    const rv_condition *thing = &config->conditions[i];
    /* Values stay far from the ends of int64, so that nothing overflows: conditions are of 32 bits. */
    interval range = {0, INT64_MAX / 4};
    if (thing->of == RV_CONDITION_OF_END_EPISODE || !is_first(config, i)) continue;
    if (thing->of == RV_CONDITION_OF_STEPS_SINCE_APPLIED) range.low = 1;
    if (thing->of == RV_CONDITION_OF_BUFFER_LENGTH) range = (interval){reach, window};
    if (thing->of == RV_CONDITION_OF_COLUMN) range.low = -range.high;
    int64_t tries = narrow(config, thing, &range);
    if (tries == 0 || is_met(config, thing, range, tries)) continue;
    char name[40];
    if (thing->of == RV_CONDITION_OF_BUFFER_LENGTH)
      return rv_fail_pattern(
          err, position, config->table,
          "condition %zu can never hold: a pattern that reaches %u rows back is applied with a buffer of %u to %u "
          "rows, which is what the oldest reference of all configurations needs; change or drop the condition",
          i, (unsigned)reach, (unsigned)reach, (unsigned)window);
    return rv_fail_pattern(err, position, config->table,
                           "condition %zu contradicts itself or the others: no value of %s meets them all; change or drop some",
                           i, thing_name(thing, name, sizeof name));
  }
  return RV_OK;
}
