/* The names under which selectors and extensions are found, as reverie/table.h registers them. */
#ifndef RV_STORE_REGISTRY_H
#define RV_STORE_REGISTRY_H

#include "reverie/table.h"

/* NULL when nothing has that name. `registry` may be NULL: only what is built in. Functions are NULL where the caller's struct
 * was shorter; the ops live as long as the registry. */
const rv_selector_ops *rv_registry_selector(const rv_registry *registry, const char *name);
const rv_extension_ops *rv_registry_extension(const rv_registry *registry, const char *name);

/* The names there are, for a sentence: "a", "b". Cut where they do not fit; NUL-terminated for capacity > 0. */
void rv_registry_list_selectors(const rv_registry *registry, char *out, size_t capacity);
void rv_registry_list_extensions(const rv_registry *registry, char *out, size_t capacity);

#endif
