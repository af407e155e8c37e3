/* The files of chunks that an incremental checkpoint needs: its own, and those of older ones, which stand in its directory as hard links,
 * so that each checkpoint is whole by itself and whoever removes one takes nothing from another. Of each file some records are needed; the
 * checkpoint's file CHUNKS says which. */
#ifndef RV_PERSIST_CHUNK_FILES_H
#define RV_PERSIST_CHUNK_FILES_H

#include "base/env.h"
#include "persist/files.h"

#define RV_INDEX_FILE "CHUNKS"

enum { RV_CHUNK_FILE_NAME = 40 };

typedef struct rv_chunk_file {
  char name[RV_CHUNK_FILE_NAME]; /* "chunks-<16 hexadecimal digits>.tfrecord"; "": there is none with this number */
  uint64_t bytes;                /* of the file */
  uint32_t records, capacity;    /* in it; that there is room for in: */
  uint8_t *needed;               /* a bit a record: the checkpoint at hand needs it */
  uint32_t num_needed;           /* of the last checkpoint that became whole */
  bool retired;                  /* it is needed so little that what is needed is written again */
} rv_chunk_file;

/* Begins zeroed. A file keeps its number as long as something of it is needed. */
typedef struct rv_chunk_files {
  rv_chunk_file *files;
  uint32_t count, capacity;
} rv_chunk_files;

void rv_chunk_files_fini(rv_chunk_files *all);
void rv_chunk_file_fini(rv_chunk_file *file); /* its number is free again */
/* A name that no other file has. */
void rv_chunk_file_name(const rv_env *env, char out[RV_CHUNK_FILE_NAME]);
bool rv_chunk_file_is_name(const char *name);
rv_code rv_chunk_files_add(rv_chunk_files *all, const char *name, uint32_t *number, rv_error *err);

/* One more record, which is needed. */
rv_code rv_chunk_file_append(rv_chunk_file *file, rv_error *err);
static inline void rv_chunk_file_need(rv_chunk_file *file, uint32_t record)
{
  file->needed[record / 8] |= (uint8_t)(1U << record % 8);
}
static inline bool rv_chunk_file_needs(const rv_chunk_file *file, uint32_t record)
{
  return ((unsigned)file->needed[record / 8] >> record % 8 & 1U) != 0;
}
uint32_t rv_chunk_file_count(const rv_chunk_file *file); /* the records that are needed */

/* CHUNKS, with the files of which something is needed. */
rv_code rv_chunk_files_write(const rv_chunk_files *all, const char *dir, const rv_files *files, rv_error *err);
/* *found is false where there is none: chunks.tfrecord has them all. A file that is missing or has another size is RV_DATA_LOSS. */
rv_code rv_chunk_files_read(const char *dir, rv_chunk_files *out, bool *found, rv_error *err);

#endif
