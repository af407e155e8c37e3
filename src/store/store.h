/* The store behind the opaque rv_store: its tables by name, and what they share. */
#ifndef RV_STORE_STORE_H
#define RV_STORE_STORE_H

#include "base/crew.h"
#include "base/env.h"
#include "reverie/store.h"
#include "store/changes.h"
#include "store/table.h"

/* A table lives as long as its store. RV_NOT_FOUND: the sentence lists the names there are. */
rv_code rv_store_find(rv_store *store, const char *name, size_t name_length, rv_table **out, rv_error *err);
/* The same for a name that ends in NUL. */
rv_code rv_store_find_named(rv_store *store, const char *name, rv_table **out, rv_error *err);
size_t rv_store_num_tables(const rv_store *store);
rv_table *rv_store_table(rv_store *store, size_t index);
const rv_env *rv_store_env(const rv_store *store);
rv_layouts *rv_store_layouts(rv_store *store);
rv_decode_cache *rv_store_decode_cache(rv_store *store);
uint64_t rv_store_new_mark(rv_store *store);                     /* from 1; none is given twice */
rv_crew *rv_store_crew(rv_store *store);                         /* helps with large batches */
rv_memory *rv_store_memory(rv_store *store);                     /* its account (memory.h) */
void rv_store_memory_info(rv_store *store, rv_memory_info *out); /* connection_bytes is the server's to set */
void rv_store_state_id(const rv_store *store, uint64_t out[2]);  /* random, made with the store */
bool rv_store_is_closed(const rv_store *store);

/* What the keys of a writer's items in this process are to come from, for each writer another. False: the store has no seed, or not for keys,
 * and the writer's own source is as good. */
bool rv_store_key_seed(rv_store *store, uint64_t *out);
/* The store gets items that were in another, before any other comes: with the same seed they have the keys that its writers would give, and an item
 * with a key that is there only updates; and keys that its tables would give may be those of items that have gone, which somebody still updates. */
void rv_store_drop_key_seed(rv_store *store);

/* A store that goes on where another was: before anybody has asked. */
void rv_store_set_state_id(rv_store *store, const uint64_t id[2]);

/* All tables keep their changes for that log from now on (changes.h), or none does any more. RV_FAILED_PRECONDITION: they have one. */
rv_code rv_store_keep_changes(rv_store *store, rv_change_log *log, rv_error *err);
void rv_store_drop_changes(rv_store *store);
/* The log; NULL: there is none, or `keep` returned false. That is called under a lock until whose release the log is there, and takes none. */
rv_change_log *rv_store_change_log(rv_store *store, bool (*keep)(rv_change_log *log));

/* What a layer above keeps with the store, because it must last as long (the server: what it remembers of writers). */
typedef struct rv_store_attachment {
  void (*free)(struct rv_store_attachment *attachment); /* when the store goes */
} rv_store_attachment;
/* Attaches it if nothing is attached yet. Returns what is attached then: if that is not `candidate`, the caller keeps it. Any
 * thread. */
rv_store_attachment *rv_store_attach(rv_store *store, rv_store_attachment *candidate);
rv_store_attachment *rv_store_attached(const rv_store *store); /* NULL: nothing */

#endif
