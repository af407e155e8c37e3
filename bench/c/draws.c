/* What prioritized draws and updates cost by themselves: bench-draws SIZE [SIZE ...]. For each number of items a line of JSON with nanoseconds a
 * draw, an update of what was drawn and of other items (256 at a time), an update alone, a power, and a bare copy of 64 bytes from a random place
 * among as many; then draws and updates by each kind of processor that this one can be. Every figure is the fastest of many turns: on a
 * machine that others use too, the one they disturbed least. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "store/selectors/selector.h"
#include "store/selectors/sum_tree_steps.h"
#include "store/selectors/weights.h"

enum { BATCH = 256, TURNS = 2000, ROW = 64 };

typedef struct turn {
  rv_random random;
  uint32_t n, slots[BATCH];
  double priorities[BATCH], probabilities[BATCH], weights[BATCH];
} turn;

static void fastest(double *best, int64_t begun, int of)
{
  double ns = (double)(bench_now_ns() - begun) / of;
  if (*best == 0 || ns < *best) *best = ns;
}

static void choose_others(turn *t)
{
  for (int i = 0; i < BATCH; i++) t->slots[i] = rv_random_below(&t->random, t->n);
}

static void measure_selector(turn *t)
{
  const rv_selector_config config = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6};
  rv_selector *selector;
  rv_error err;
  bench_check(rv_selector_new(&config, NULL, t->n, &selector, &err), &err);
  for (uint32_t slot = 0; slot < t->n; slot++)
    bench_check(rv_selector_insert(selector, slot, slot, rv_random_unit(&t->random), &err), &err);
  uint8_t *rows = bench_alloc((size_t)t->n * ROW), copied[BATCH * ROW];
  memset(rows, 1, (size_t)t->n * ROW);
  double draw = 0, drawn = 0, others = 0, alone = 0, power = 0, copy = 0;
  for (int i = 0; i < TURNS; i++) {
    int64_t now = bench_now_ns();
    rv_selector_select_many(selector, &t->random, BATCH, t->slots, t->probabilities);
    fastest(&draw, now, BATCH);
    now = bench_now_ns();
    rv_selector_update_many(selector, t->slots, t->priorities, BATCH, NULL, NULL);
    fastest(&drawn, now, BATCH);
    choose_others(t);
    now = bench_now_ns();
    rv_selector_update_many(selector, t->slots, t->priorities, BATCH, NULL, NULL);
    fastest(&others, now, BATCH);
    now = bench_now_ns();
    for (int k = 0; k < BATCH; k++) rv_selector_update(selector, t->slots[k], t->priorities[k], NULL);
    fastest(&alone, now, BATCH);
    now = bench_now_ns();
    rv_weigh(0.6, t->priorities, t->weights, BATCH);
    fastest(&power, now, BATCH);
    choose_others(t);
    now = bench_now_ns();
    for (int k = 0; k < BATCH; k++) memcpy(copied + k * ROW, rows + (size_t)t->slots[k] * ROW, ROW);
    __asm__ volatile("" : : "r"(copied) : "memory");
    fastest(&copy, now, BATCH);
  }
  printf(
      "{\"items\": %u, \"draw\": %.1f, \"update_drawn\": %.1f, \"update_others\": %.1f, \"update_alone\": %.1f, \"power\": %.1f, "
      "\"copy_64\": %.1f, \"bytes_an_item\": %.1f",
      t->n, draw, drawn, others, alone, power, copy, (double)rv_selector_memory(selector) / t->n);
  free(rows);
  rv_selector_free(selector);
}

static void measure_steps(turn *t, const rv_sum_tree_steps *steps)
{
  rv_sum_tree tree;
  rv_error err;
  rv_sum_tree_init(&tree, t->n);
  tree.steps = steps;
  for (uint32_t slot = 0; slot < t->n; slot++) {
    bench_check(rv_sum_tree_reserve(&tree, slot, &err), &err);
    rv_sum_tree_set(&tree, slot, 1);
  }
  double draw = 0, set = 0;
  for (int i = 0; i < TURNS; i++) {
    int64_t now = bench_now_ns();
    rv_sum_tree_draw(&tree, &t->random, BATCH, t->slots, t->probabilities);
    fastest(&draw, now, BATCH);
    now = bench_now_ns();
    rv_sum_tree_set_many(&tree, t->slots, t->priorities, BATCH);
    fastest(&set, now, BATCH);
  }
  printf(", \"%s\": {\"draw\": %.1f, \"set\": %.1f}", steps->name, draw, set);
  rv_sum_tree_fini(&tree);
}

int main(int argc, char **argv)
{
  bench_die_with_parent();
  if (argc < 2) bench_die("usage: bench-draws SIZE [SIZE ...]");
  for (int i = 1; i < argc; i++) {
    long long size = atoll(argv[i]);
    if (size < 1 || size > 200000000) bench_die("a size is from 1 to 200,000,000, got %s", argv[i]);
    turn t = {.n = (uint32_t)size};
    rv_random_init(&t.random, 1);
    for (int k = 0; k < BATCH; k++) t.priorities[k] = rv_random_unit(&t.random);
    measure_selector(&t);
    const rv_sum_tree_steps *steps[3];
    size_t kinds = rv_sum_tree_steps_here(steps);
    for (size_t k = 0; k < kinds; k++) measure_steps(&t, steps[k]);
    printf("}\n");
    fflush(stdout);
  }
}
