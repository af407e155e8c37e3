/* A file that is written from its begin to its end, and that nobody reads soon: a checkpoint's. What is put goes to the disk in large pieces
 * past the system's cache, where the file system can do that and gains by it (past_cache.h): copying gigabytes into the cache, writing them
 * from there and dropping them again costs more processor time than everything else about them, and takes the place of pages that others
 * read. Elsewhere they go through the cache, and leave it.
 *
 * Errors are of the system, and name the file: RV_RESOURCE_EXHAUSTED (no space left, file too large, memory), RV_PERMISSION_DENIED,
 * RV_NOT_FOUND, else RV_UNKNOWN. After one the file is no good. */
#ifndef RV_PERSIST_OUT_FILE_H
#define RV_PERSIST_OUT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "persist/files.h"

typedef struct rv_out_file rv_out_file;

/* Makes a file that must not be there yet, through `files` (borrowed). */
rv_code rv_out_file_new(const char *path, const rv_files *files, rv_out_file **out, rv_error *err);
const char *rv_out_file_path(const rv_out_file *file); /* borrowed */
rv_code rv_out_file_put(rv_out_file *file, const void *data, size_t size, rv_error *err);
/* Writes the rest, waits until all is on the disk, and closes; nothing but rv_out_file_free comes after. */
rv_code rv_out_file_finish(rv_out_file *file, rv_error *err);
void rv_out_file_free(rv_out_file *file); /* NULL is fine */

#endif
