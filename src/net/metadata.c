#include "net/metadata.h"

#include <stdlib.h>
#include <string.h>

void rv_metadata_store_fini(rv_metadata_store *store)
{
  free(store->text);
  *store = (rv_metadata_store){0};
}

bool rv_metadata_store_add(rv_metadata_store *store, const char *name, size_t name_size, const char *value, size_t value_size)
{
  size_t needed = store->size + name_size + value_size + 2;
  if (needed > store->capacity) {
    size_t capacity = store->capacity == 0 ? 256 : store->capacity * 2;
    while (capacity < needed) capacity *= 2;
    char *grown = realloc(store->text, capacity);
    if (grown == NULL) return false;
    store->text = grown;
    store->capacity = capacity;
  }
  char *to = store->text + store->size;
  memcpy(to, name, name_size);
  to[name_size] = '\0';
  memcpy(to + name_size + 1, value, value_size);
  to[name_size + 1 + value_size] = '\0';
  store->size = needed;
  return true;
}

bool rv_metadata_store_next(const rv_metadata_store *store, size_t *at, const char **name, const char **value)
{
  if (*at >= store->size) return false;
  *name = store->text + *at;
  *value = *name + strlen(*name) + 1;
  *at = (size_t)(*value - store->text) + strlen(*value) + 1;
  return true;
}

const char *rv_metadata_store_get(const rv_metadata_store *store, const char *name)
{
  const char *found, *value;
  for (size_t at = 0; rv_metadata_store_next(store, &at, &found, &value);)
    if (strcmp(found, name) == 0) return value;
  return NULL;
}
