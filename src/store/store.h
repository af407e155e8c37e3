/* The store behind the opaque rv_store: its tables by name, and what they share. */
#ifndef RV_STORE_STORE_H
#define RV_STORE_STORE_H

#include "base/env.h"
#include "reverie/store.h"
#include "store/table.h"

/* A table lives as long as its store. RV_NOT_FOUND: the sentence lists the names there are. */
rv_code rv_store_find(rv_store *store, const char *name, size_t name_length, rv_table **out, rv_error *err);
size_t rv_store_num_tables(const rv_store *store);
rv_table *rv_store_table(rv_store *store, size_t index);
const rv_env *rv_store_env(const rv_store *store);
rv_layouts *rv_store_layouts(rv_store *store);
rv_decode_cache *rv_store_decode_cache(rv_store *store);
void rv_store_state_id(const rv_store *store, uint64_t out[2]); /* random, made with the store */
bool rv_store_is_closed(const rv_store *store);

#endif
