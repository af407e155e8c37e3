/* A file that is one zlib stream (RFC 1950), written from its begin to its end. The stream is put together of units of 256 KiB: each is
 * compressed by itself, or stored as it is where that saves too little or nobody wants it. Whoever fills a unit packs it: a thread beside him
 * would take the second core from those who wait for an answer.
 *
 * Errors are out_file.h's. After one the file is no good. */
#ifndef RV_PERSIST_PACKED_FILE_H
#define RV_PERSIST_PACKED_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "persist/files.h"

typedef struct rv_packed_file rv_packed_file;

/* Makes a file that must not be there yet, through `files` (borrowed). Level: zlib's, 0 (stored) to 9, or RV_LEVEL_WHERE_IT_PAYS
 * (record_file.h); RV_INVALID_ARGUMENT: another. */
rv_code rv_packed_file_new(const char *path, int level, const rv_files *files, rv_packed_file **out, rv_error *err);
const char *rv_packed_file_path(const rv_packed_file *file); /* borrowed */
rv_code rv_packed_file_put(rv_packed_file *file, const void *data, size_t size, rv_error *err);
/* Of the stream so far, about; once it is finished, all of it. */
uint64_t rv_packed_file_bytes(const rv_packed_file *file);
/* Writes the rest, waits until all is on the disk, and closes; nothing but rv_packed_file_bytes and rv_packed_file_free comes after. */
rv_code rv_packed_file_finish(rv_packed_file *file, rv_error *err);
void rv_packed_file_free(rv_packed_file *file); /* NULL is fine */

#endif
