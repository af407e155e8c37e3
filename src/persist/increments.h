/* What a checkpointer of incremental checkpoints remembers from one to the next: which chunk is written in which file. One thread at a
 * time. */
#ifndef RV_PERSIST_INCREMENTS_H
#define RV_PERSIST_INCREMENTS_H

#include "persist/chunk_log.h"
#include "persist/record_file.h"

typedef struct rv_increments rv_increments;

/* `files` is borrowed. */
rv_code rv_increments_new(const rv_env *env, const rv_files *files, rv_increments **out, rv_error *err);
void rv_increments_free(rv_increments *increments); /* NULL is fine */

/* A checkpoint in the making in `dir` gets what earlier ones wrote and it may need, and a new file for the rest. Where that cannot be had any
 * more, everything is written anew. rv_increments_end must follow. */
rv_code rv_increments_begin(rv_increments *increments, const char *dir, int level, rv_error *err);
rv_chunk_log *rv_increments_log(rv_increments *increments);
uint64_t rv_increments_bytes(const rv_increments *increments); /* in the new file so far */
/* All chunks are put: what is not needed leaves the directory, the rest is on the disk, and CHUNKS is written. */
rv_code rv_increments_finish(rv_increments *increments, rv_error *err);
/* `path`: where the checkpoint is now; NULL: it failed, and nothing of it is remembered. */
void rv_increments_end(rv_increments *increments, const char *path);

/* A checkpoint at `path` is being restored, of these files: later ones go on from it. */
rv_code rv_increments_restore(rv_increments *increments, const char *path, rv_chunk_files *owned_files, rv_error *err);
const rv_chunk_files *rv_increments_files(const rv_increments *increments);
void rv_increments_forget(rv_increments *increments); /* everything: the next one is written whole */

#endif
