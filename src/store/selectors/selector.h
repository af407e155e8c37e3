/* Selectors: which item is sampled next, and which goes when the table is full.
 *
 * A selector knows items by their slot: a small dense number, used again after its item is gone (at most 2^31 - 1). What it keeps
 * for a slot stands in arrays of its own that grow in blocks, so that no operation takes time in proportion to the number of
 * items. The caller's lock guards a selector; nothing here locks, blocks or keeps global state. To add a kind: a file beside this
 * one that fills an rv_selector_class, a case in rv_selector_new, a value in reverie/table.h and wire/unary.c, and a model in
 * selector_test.c. */
#ifndef RV_STORE_SELECTORS_SELECTOR_H
#define RV_STORE_SELECTORS_SELECTOR_H

#include "base/random.h"
#include "base/segarray.h"
#include "reverie/table.h"

#define RV_NO_SLOT UINT32_MAX
#define RV_MAX_SLOT UINT32_C(0x7FFFFFFE)

typedef struct rv_selector rv_selector;

/* Is the configuration possible? RV_INVALID_ARGUMENT (unknown kind, exponent NaN, infinite or negative), RV_NOT_FOUND (no
 * selector is registered under that name; `registry` may be NULL). The sentence has no table's name. */
rv_code rv_selector_check(const rv_selector_config *config, const rv_registry *registry, rv_error *err);

/* `max_size`: about how many slots there will be; more are fine. Ops are copied out of the registry. */
rv_code rv_selector_new(const rv_selector_config *config, const rv_registry *registry, int64_t max_size, rv_selector **out,
                        rv_error *err);
void rv_selector_free(rv_selector *selector);

/* May an item have this priority? RV_INVALID_ARGUMENT: NaN anywhere; negative and infinite where weights are made of it. Ask both
 * selectors of a table before anything is changed: what they accept, insert and update of the built-in ones take. */
rv_code rv_selector_accepts(const rv_selector *selector, double priority, rv_error *err);

/* The slot must not be present. RV_RESOURCE_EXHAUSTED: nothing has changed. A registered selector may refuse with any code. */
rv_code rv_selector_insert(rv_selector *selector, uint32_t slot, uint64_t key, double priority, rv_error *err);
/* Nothing happens if it is not present. */
void rv_selector_remove(rv_selector *selector, uint32_t slot);
/* Never fails for the built-in ones, given an accepted priority and a present slot. A heap puts the item behind its equals even
 * if the priority is the same. */
rv_code rv_selector_update(rv_selector *selector, uint32_t slot, double priority, rv_error *err);
/* The same as n updates in order, but faster. `done` (may be NULL) is how many were applied when a registered selector refused
 * one. */
rv_code rv_selector_update_many(rv_selector *selector, const uint32_t *slots, const double *priorities, size_t n, size_t *done,
                                rv_error *err);

/* Chooses an item and says how probable the choice was; the item stays. RV_NO_SLOT only if none is present. A registered selector
 * that names an absent slot or a probability outside [0, 1] gets a uniform choice in its place: rv_selector_faults. */
uint32_t rv_selector_select(rv_selector *selector, rv_random *random, double *probability);
/* n choices, each from all items. Returns n, or 0 if none is present. */
size_t rv_selector_select_many(rv_selector *selector, rv_random *random, size_t n, uint32_t *slots, double *probabilities);
/* They are made together, and none is changed by those before it: what is not used may be forgotten. */
bool rv_selector_draws_many(const rv_selector *selector);

/* Removes all items at once. The memory joins `garbage`, to be freed outside the lock (rv_blocks_free); NULL frees it here. */
void rv_selector_clear(rv_selector *selector, rv_blocks *garbage);

uint32_t rv_selector_count(const rv_selector *selector);
size_t rv_selector_memory(const rv_selector *selector);
/* How often a registered selector chose what is not there. */
uint64_t rv_selector_faults(const rv_selector *selector);
/* The lowest or highest priority of the present items, where the selector knows it at once: a heap's own end. false: it does not, and
 * *priority is as it was. */
bool rv_selector_min_priority(const rv_selector *selector, double *priority);
bool rv_selector_max_priority(const rv_selector *selector, double *priority);

/* ---- for the kinds of selectors ---- */

typedef struct rv_selector_class {
  bool weighs; /* priorities are weights: neither negative nor infinite */
  void (*free)(rv_selector *selector);
  rv_code (*insert)(rv_selector *selector, uint32_t slot, uint64_t key, double priority, rv_error *err);
  void (*remove)(rv_selector *selector, uint32_t slot);
  rv_code (*update)(rv_selector *selector, uint32_t slot, double priority, rv_error *err);
  uint32_t (*select)(rv_selector *selector, rv_random *random, double *probability); /* some item is present */
  void (*clear)(rv_selector *selector, rv_blocks *garbage);
  size_t (*memory)(const rv_selector *selector);
  /* NULL: one by one. All or nothing. */
  rv_code (*update_many)(rv_selector *selector, const uint32_t *slots, const double *priorities, size_t n, rv_error *err);
  void (*select_many)(rv_selector *selector, rv_random *random, size_t n, uint32_t *slots, double *probabilities);
  /* NULL: not known */
  bool (*min_priority)(const rv_selector *selector, double *priority);
  bool (*max_priority)(const rv_selector *selector, double *priority);
} rv_selector_class;

/* Every kind's struct begins with this. */
struct rv_selector {
  const rv_selector_class *class;
  uint32_t count; /* present items; kept by each kind */
  uint64_t faults;
};

/* `expected`: slots. */
rv_code rv_selector_order_new(bool oldest_first, uint64_t expected, rv_selector **out, rv_error *err);
rv_code rv_selector_uniform_new(uint64_t expected, rv_selector **out, rv_error *err);
rv_code rv_selector_heap_new(bool highest_first, uint64_t expected, rv_selector **out, rv_error *err);
rv_code rv_selector_prioritized_new(double exponent, uint64_t expected, rv_selector **out, rv_error *err);
rv_code rv_selector_custom_new(const rv_selector_ops *ops, const char *options, uint64_t expected, rv_selector **out,
                               rv_error *err);
/* RV_INTERNAL: the caller's books and the selector's differ. */
rv_code rv_selector_misused(rv_error *err, uint32_t slot, bool present);

#endif
