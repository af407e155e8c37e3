/* A table's extensions: made from their names and options, told of events in batches under the table's lock, described as text.
 * Also the two that are always there. */
#ifndef RV_STORE_EXTENSIONS_EXTENSION_H
#define RV_STORE_EXTENSIONS_EXTENSION_H

#include "reverie/table.h"

typedef struct rv_extension {
  const rv_extension_ops *ops; /* the registry's; outlives the store */
  void *state;
  char *name;
} rv_extension;

/* RV_NOT_FOUND: no extension has that name (the sentence lists those there are); else what its `create` says, with the
 * extension's name before it. */
rv_code rv_extension_init(rv_extension *extension, const rv_extension_config *config, const rv_registry *registry,
                          const char *table, rv_error *err);
void rv_extension_fini(rv_extension *extension);
/* Under the table's lock. */
void rv_extension_tell(rv_extension *extension, const rv_event *events, size_t n, rv_edit *edit);
/* What it left undone; true: there is more. Under the table's lock. */
bool rv_extension_go_on(rv_extension *extension, rv_edit *edit);
/* "NAME: text", or "NAME" where it describes nothing. Writes at most `capacity` bytes with the NUL, returns the full length.
 * Under the table's lock. */
size_t rv_extension_describe(rv_extension *extension, char *out, size_t capacity);

/* ---- built in ---- */

extern const rv_extension_ops rv_extension_statistics; /* no options */
extern const rv_extension_ops rv_extension_diffusion;  /* "steps=N,decay=F" */

/* The state that rv_extension_statistics creates, with a clock to test it by. */
rv_code rv_statistics_new(int64_t (*monotonic_ns)(void *context), void *context, void **out, rv_error *err);

/* ---- options ---- */

/* One "name=value". */
typedef struct rv_option {
  char name[32], value[64];
} rv_option;

/* Takes the next option from "name=value,name=value"; *at moves on. *found is false at the end. NULL is no options. */
rv_code rv_option_next(const char **at, rv_option *option, bool *found, rv_error *err);
/* RV_INVALID_ARGUMENT: not a number, or not in [min, max]. */
rv_code rv_option_int(const rv_option *option, int64_t min, int64_t max, int64_t *out, rv_error *err);
rv_code rv_option_double(const rv_option *option, double min, double max, double *out, rv_error *err);

#endif
