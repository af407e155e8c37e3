/* Header pairs of one call, kept in one block of memory: "name\0value\0name\0value\0...". */
#ifndef RV_NET_METADATA_H
#define RV_NET_METADATA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rv_metadata_store {
  char *text;
  size_t size, capacity;
} rv_metadata_store;

void rv_metadata_store_fini(rv_metadata_store *store);
/* false: out of memory. */
bool rv_metadata_store_add(rv_metadata_store *store, const char *name, size_t name_size, const char *value, size_t value_size);
/* The first value of that name; NULL: none. */
const char *rv_metadata_store_get(const rv_metadata_store *store, const char *name);
/* Walks over the pairs: `at` starts as 0 and is moved on; false at the end. */
bool rv_metadata_store_next(const rv_metadata_store *store, size_t *at, const char **name, const char **value);

#endif
