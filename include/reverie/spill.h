/* Cold chunks in a file: more data than memory.
 *
 * A store with a memory_limit and a spill does not make inserts wait when the limit comes near: a thread of the spill writes the chunks that
 * tables have had longest into one file, and lets go of their memory. Nobody who samples them notices but by the time it
 * takes: what is not in the system's cache is read from the disk. Where that fails whoever reads them gets RV_DATA_LOSS, with the item's key: a
 * sample, a batch, a checkpoint; nobody else notices. The books (items, priorities, what chunks look like) stay in memory.
 * Where the file can take no more, inserts wait for memory as they would without it, and say so; nothing is lost.
 *
 * The file has no name from its first moment on, so that nothing is left when the process ends, however it does. Its content is worth nothing
 * then: what is to last is a checkpoint's or a journal's business. A store that is restored from these gets its spill by rv_checkpoint_watch. */
#ifndef REVERIE_SPILL_H
#define REVERIE_SPILL_H

#include "reverie/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_spill rv_spill;

typedef struct rv_spill_config {
  size_t size;       /* sizeof(rv_spill_config) */
  const char *path;  /* a directory, of a file system that can map files; it must be there */
  size_t max_bytes;  /* of the file; 0: 1 TiB, and what the disk has room for */
  const rv_env *env; /* copied; NULL: the store's */
} rv_spill_config;

/* Whether a spill could begin with that, as far as can be seen without making anything: the errors are those of rv_spill_new. */
RV_API rv_code rv_spill_check(const rv_spill_config *config, rv_error *err);
/* Begins with it; a reference to the store is taken. RV_FAILED_PRECONDITION: the store has no memory_limit. RV_ALREADY_EXISTS:
 * it has a spill that was not freed yet. RV_NOT_FOUND,
 * RV_PERMISSION_DENIED, RV_INVALID_ARGUMENT: no file can be made in that directory. */
RV_API rv_code rv_spill_new(const rv_spill_config *config, rv_store *store, rv_spill **out, rv_error *err);
/* No more chunks go there; those that did stay readable as long as anybody refers to them. Before the store is freed. NULL is fine. */
RV_API void rv_spill_free(rv_spill *spill);

#ifdef __cplusplus
}
#endif
#endif
