/* Changes as the files see them that make them. Everything here under the table's lock. */
#ifndef RV_STORE_CHANGES_PARTS_H
#define RV_STORE_CHANGES_PARTS_H

#include "store/changes.h"
#include "store/table_parts.h"

rv_code rv_changes_make_room(rv_table *table, size_t changes, size_t extras, rv_error *err);
void rv_changes_put(rv_table *table, rv_change_kind kind, uint64_t key, double priority, int32_t times_sampled);
void rv_changes_put_insert(rv_table *table, const rv_item *item);
void rv_changes_put_done(rv_table *table);
void rv_changes_put_limiter(rv_table *table, const rv_rate_limiter_config *config);
/* True: what cannot wait must be refused; the sentence says why. */
rv_code rv_changes_refuse(rv_table *table, rv_error *err);
/* "waits for the journal: 64 MiB are not on the disk yet (No space left on device)" */
void rv_changes_explain(const rv_changes *changes, char *out, size_t capacity);

/* Before a step that changes so much at most (RV_CHANGE_BLOCK, RV_EXTRA_BLOCK): RV_RESOURCE_EXHAUSTED, and nothing may be changed. */
static inline rv_code rv_changes_reserve(rv_table *table, size_t changes, size_t extras, rv_error *err)
{
  return table->log == NULL ? RV_OK : rv_changes_make_room(table, changes, extras, err);
}

/* False: too many bytes wait to be written down (`times` the bound), or, for an insert (once), they cannot be. Whoever was told so is
 * served when there is room. */
static inline bool rv_changes_have_room(rv_table *table, size_t times)
{
  rv_changes *changes = table->log;
  if (changes == NULL) return true;
  rv_change_log *shared = changes->shared;
  bool room = atomic_load_explicit(&shared->bytes, memory_order_relaxed) < times * shared->max_bytes;
  bool fault = times == 1 && shared->waits_on_fault && atomic_load_explicit(&shared->fault, memory_order_relaxed) != 0;
  if (room && !fault) return true;
  changes->blocked = true;
  return false;
}

static inline rv_code rv_changes_allow(rv_table *table, rv_error *err)
{
  return table->log == NULL ? RV_OK : rv_changes_refuse(table, err);
}

/* Of whom the inserts are that follow. */
static inline void rv_changes_from(rv_table *table, uint64_t naming, const uint64_t writer[2], uint64_t number)
{
  rv_changes *changes = table->log;
  if (changes == NULL) return;
  changes->naming = naming;
  changes->writer[0] = writer == NULL ? 0 : writer[0];
  changes->writer[1] = writer == NULL ? 0 : writer[1];
  changes->number = number;
}

static inline void rv_changes_note(rv_table *table, rv_change_kind kind, const rv_item *item)
{
  if (table->log != NULL) rv_changes_put(table, kind, item->key, item->priority, item->times_sampled);
}

#endif
