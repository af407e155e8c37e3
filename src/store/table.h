/* A table: items in a slab, two selectors, a rate limiter, and callers that wait. One short lock guards it all.
 *
 * The verbs that may have to wait are in waiter.h; these here never wait. */
#ifndef RV_STORE_TABLE_H
#define RV_STORE_TABLE_H

#include "reverie/client.h"
#include "store/waiter.h"

const char *rv_table_name(const rv_table *table);

/* As rv_client_mutate: all or nothing, deletes first. `unknown` has room for all keys, or is NULL; *num_unknown is always set. */
rv_code rv_table_mutate(rv_table *table, const rv_key_priority *updates, size_t num_updates, const uint64_t *deletes,
                        size_t num_deletes, uint64_t *unknown, size_t *num_unknown, rv_error *err);
/* The same, a part of it at a time, with others in between. */
typedef struct rv_mutation rv_mutation;
/* Can that table's selectors not refuse what rv_table_check_update lets pass? Else a mutation cannot be made in parts. */
bool rv_table_can_mutate_in_parts(const rv_table *table);
/* RV_INVALID_ARGUMENT: the priority is one that the table does not take. */
rv_code rv_table_check_update(const rv_table *table, uint64_t key, double priority, rv_error *err);
/* Makes room for `changes` deletes and updates, so that none of them fails: all is as before when this does. */
rv_code rv_mutation_new(rv_table *table, size_t changes, rv_mutation **out, rv_error *err);
/* Some of the deletes, or, after all of those, of the updates, which were checked. `unknown` has room for their keys. */
rv_code rv_mutation_delete(rv_mutation *mutation, const uint64_t *keys, size_t n, uint64_t *unknown, size_t *num_unknown,
                           rv_error *err);
rv_code rv_mutation_update(rv_mutation *mutation, const rv_key_priority *updates, size_t n, uint64_t *unknown,
                           size_t *num_unknown, rv_error *err);
void rv_mutation_free(rv_mutation *mutation); /* NULL is fine */
rv_code rv_table_update_priorities(rv_table *table, const uint64_t *keys, const double *priorities, size_t n, uint64_t *unknown,
                                   size_t *num_unknown, rv_error *err);
rv_code rv_table_reset(rv_table *table, rv_error *err);
rv_code rv_table_set_rate_limiter(rv_table *table, const rv_rate_limiter_config *config, rv_error *err);
/* As rv_client_set_bounds, a part of it at a time (about 1,000 items): until it fails, or `done`. */
typedef struct rv_bounds_change {
  rv_table_bounds bounds;
  uint64_t number; /* 0 to begin with; the table's, which tells it from a later one */
  bool done;
} rv_bounds_change;
rv_code rv_table_change_bounds(rv_table *table, rv_bounds_change *change, rv_error *err);
/* Looks at an item without counting it; the caller releases *out. RV_NOT_FOUND. */
rv_code rv_table_get(rv_table *table, uint64_t key, rv_draw *out, rv_error *err);
/* A page of items in order of insertion; as rv_client_items. */
rv_code rv_table_items(rv_table *table, uint64_t *cursor, rv_item_info *out, size_t capacity, size_t *count, rv_error *err);
enum { RV_WAITING_SHOWN = 100 }; /* entries of rv_table_info.waiting, as rv_table_get_info makes room for */
/* Fills *out, whose strings and arrays are the caller's: rv_table_info_fini. */
rv_code rv_table_get_info(rv_table *table, rv_table_info *out, rv_error *err);
void rv_table_info_fini(rv_table_info *info);
/* Inserts since the table was made; a reset does not take any away. */
int64_t rv_table_num_inserts(rv_table *table);
/* The rate limiter alone, as it stands: could so many proceed now? */
bool rv_table_can_sample(rv_table *table, int64_t n);
bool rv_table_can_insert(rv_table *table, int64_t n);
/* Does an item of these columns fit the table's signature? Column i has dtype and row shape spec[i], `length` rows, squeezed or not. The
 * sentence names table, column and what was expected. RV_INVALID_ARGUMENT. */
rv_code rv_table_check_layout(const rv_table *table, const rv_trajectory *trajectory, rv_error *err);
/* There may be room in memory again: who waits for it goes on. With no lock held that comes after a table's. */
void rv_table_serve_memory(rv_table *table);
/* Likewise, after its store's limit has changed. */
void rv_table_learn_memory_limit(rv_table *table);
/* What comes is not numbered on as the seed says. Before anything has come. */
void rv_table_drop_key_seed(rv_table *table);
rv_memory *rv_table_memory(const rv_table *table);             /* its store's account */
const rv_signature *rv_table_signature(const rv_table *table); /* num_specs 0: none */

#endif
