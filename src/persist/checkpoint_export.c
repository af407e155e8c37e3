/* A checkpoint of either kind, made one of Reverb's format: the records are the same, only the chunks stand in several files. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"
#include "persist/chunk_files.h"
#include "persist/record_file.h"

enum { ASK_BYTES = 1 << 24 };

typedef struct exporting {
  const char *from;
  const rv_partial *to;
  int level;
  const rv_checkpoint_watch *watch;
  rv_checkpoint_progress progress;
  uint64_t told; /* bytes of the file at hand when the watch was asked last */
} exporting;

static rv_code tell(exporting *work, const rv_record_writer *to, rv_error *err)
{
  uint64_t bytes = rv_record_writer_bytes(to);
  if (bytes - work->told < ASK_BYTES) return RV_OK;
  work->progress.bytes_written += (int64_t)(bytes - work->told);
  work->told = bytes;
  return rv_checkpoint_ask(work->watch, &work->progress, err);
}

/* All records, or those that are needed of `file`. */
static rv_code copy_records(exporting *work, const char *name, const rv_chunk_file *file, rv_record_writer *to, rv_error *err)
{
  char *path = rv_path_join(work->from, name);
  rv_record_reader *reader = NULL;
  rv_code code = path == NULL ? rv_fail_memory(err, strlen(name)) : rv_record_reader_new(path, &reader, err);
  uint32_t number = 0;
  for (; code == RV_OK; number++) {
    rv_buf *record;
    code = rv_record_reader_next(reader, &record, err);
    if (code != RV_OK || record == NULL) break;
    bool needed = file == NULL || (number < file->records && rv_chunk_file_needs(file, number));
    if (needed) code = rv_record_writer_put(to, record->data, record->size, err);
    rv_buf_unref(record);
    if (code == RV_OK) code = tell(work, to, err);
  }
  if (code == RV_OK && file != NULL && number != file->records)
    code = rv_fail(err, RV_DATA_LOSS, "%s has %u records; %u were written", path, number, file->records);
  rv_record_reader_free(reader);
  free(path);
  return code;
}

static rv_code begin_file(exporting *work, const char *name, rv_record_writer **out, rv_error *err)
{
  char *path = rv_path_join(work->to->path, name);
  if (path == NULL) return rv_fail_memory(err, strlen(name));
  int level = strcmp(name, RV_ITEMS_FILE) == 0 ? rv_checkpoint_items_level(work->level) : work->level;
  rv_code code = rv_record_writer_new(path, level, work->to->files, out, err);
  work->told = 0;
  free(path);
  return code;
}

static rv_code copy_file(exporting *work, const char *name, rv_error *err)
{
  rv_record_writer *to = NULL;
  rv_code code = begin_file(work, name, &to, err);
  if (code == RV_OK) code = copy_records(work, name, NULL, to, err);
  if (code == RV_OK) code = rv_record_writer_finish(to, err);
  rv_record_writer_free(to);
  return code;
}

static rv_code copy_chunk_files(exporting *work, const rv_chunk_files *all, rv_error *err)
{
  rv_record_writer *to = NULL;
  rv_code code = begin_file(work, RV_CHUNKS_FILE, &to, err);
  for (uint32_t i = 0; i < all->count && code == RV_OK; i++)
    code = copy_records(work, all->files[i].name, &all->files[i], to, err);
  if (code == RV_OK) code = rv_record_writer_finish(to, err);
  rv_record_writer_free(to);
  return code;
}

rv_code rv_checkpoint_copy(const char *from, const rv_partial *to, int level, const rv_checkpoint_watch *watch, rv_error *err)
{
  exporting work = {
      .from = from, .to = to, .level = level, .watch = watch, .progress = {.size = sizeof work.progress, .total_items = -1}};
  rv_chunk_files files;
  bool incremental;
  rv_code code = rv_chunk_files_read(from, &files, &incremental, err);
  if (code != RV_OK) return code;
  code = incremental ? copy_chunk_files(&work, &files, err) : copy_file(&work, RV_CHUNKS_FILE, err);
  if (code == RV_OK) code = copy_file(&work, RV_ITEMS_FILE, err);
  if (code == RV_OK) code = copy_file(&work, RV_TABLES_FILE, err);
  rv_chunk_files_fini(&files);
  return code;
}
