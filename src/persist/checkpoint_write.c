#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"
#include "persist/increments.h"
#include "persist/item_record.h"
#include "persist/record_file.h"
#include "persist/table_record.h"
#include "store/memory.h"
#include "store/store.h"

enum {
  ASK_BYTES = 1 << 24,
  PREFETCH_AHEAD = 4, /* items */
  GATHER_EACH = 32    /* slices; what goes from the other tables meanwhile waits so long */
};

typedef struct saving saving;

/* What writing a table's items early needs. */
typedef struct early {
  saving *work;
  const char *table;
} early;

struct saving {
  const char *dir;
  int level;
  const rv_files *files;
  rv_increments *increments; /* NULL: it is whole by itself */
  const rv_checkpoint_watch *watch;
  rv_checkpoint_progress progress; /* as told last */
  rv_snapshot **snapshots;         /* one a table */
  size_t num_snapshots;
  bool spills; /* some chunks may lie in a file */
  rv_record_writer *items;
  rv_record_writer *chunks;   /* of all chunks; NULL where there are increments */
  rv_chunk_log *log, *of_all; /* the one to use; its own */
  rv_writer_buf record;
  rv_item_scratch scratch;
  early *early; /* one a table */
};

int rv_checkpoint_items_level(int level)
{
  return level == RV_LEVEL_WHERE_IT_PAYS ? 0 : level;
}

rv_code rv_checkpoint_ask(const rv_checkpoint_watch *watch, const rv_checkpoint_progress *progress, rv_error *err)
{
  if (watch == NULL || watch->go_on == NULL || watch->go_on(watch->context, progress)) return RV_OK;
  return rv_fail(err, RV_CANCELLED, "it was given up after %lld items", (long long)progress->items);
}

/* ---- opening and closing ---- */

/* One table right after the other: no other lock, and no wait, is between them. */
static rv_code take_snapshots(saving *work, rv_store *store, rv_error *err)
{
  size_t n = rv_store_num_tables(store);
  work->snapshots = calloc(n, sizeof *work->snapshots);
  if (work->snapshots == NULL) return rv_fail_memory(err, n * sizeof *work->snapshots);
  for (; work->num_snapshots < n; work->num_snapshots++) {
    rv_code code = rv_snapshot_new(rv_store_table(store, work->num_snapshots), &work->snapshots[work->num_snapshots], err);
    if (code != RV_OK) return code;
    work->progress.total_items += rv_snapshot_get_head(work->snapshots[work->num_snapshots])->num_items;
  }
  return RV_OK;
}

static rv_code open_file(const saving *work, const char *name, int level, rv_record_writer **out, rv_error *err)
{
  char *path = rv_path_join(work->dir, name);
  if (path == NULL) return rv_fail_memory(err, strlen(work->dir));
  rv_code code = rv_record_writer_new(path, level, work->files, out, err);
  free(path);
  return code;
}

static void fini(saving *work)
{
  for (size_t i = 0; i < work->num_snapshots; i++) rv_snapshot_free(work->snapshots[i]);
  free(work->snapshots);
  free(work->early);
  rv_chunk_log_free(work->of_all);
  rv_record_writer_free(work->items);
  rv_record_writer_free(work->chunks);
  rv_writer_buf_fini(&work->record);
  rv_item_scratch_fini(&work->scratch);
}

static rv_code put_record(const saving *work, rv_record_writer *to, rv_error *err)
{
  if (work->record.failed) return rv_fail_memory(err, work->record.size);
  return rv_record_writer_put(to, work->record.data, work->record.size, err);
}

/* ---- tables ---- */

static rv_code write_tables(saving *work, rv_error *err)
{
  rv_record_writer *file = NULL;
  rv_code code = open_file(work, RV_TABLES_FILE, work->level, &file, err);
  for (size_t i = 0; i < work->num_snapshots && code == RV_OK; i++) {
    work->record.size = 0;
    rv_table_record_serialize(&work->record, rv_snapshot_get_head(work->snapshots[i]));
    code = put_record(work, file, err);
  }
  if (code == RV_OK) code = rv_record_writer_finish(file, err);
  rv_record_writer_free(file);
  return code;
}

/* ---- items ---- */

static rv_code put_chunk(void *context, rv_pieces *chunk, rv_error *err)
{
  return rv_record_writer_put_pieces(context, chunk, err);
}

/* Its chunks are written, where they are not yet, and its record is made. */
static rv_code make_item(saving *work, const char *table, const rv_draw *draw, rv_error *err)
{
  work->record.size = 0;
  rv_code code = rv_item_record_put(&work->scratch, work->log, table, draw->naming, draw, &work->record, err);
  if (code == RV_INVALID_ARGUMENT) rv_error_prefix(err, "table \"%s\": item %llu", table, (unsigned long long)draw->key);
  return code;
}

/* For an item that went before its turn: only its record is kept until then. */
static rv_code make_early(void *context, const rv_draw *draw, rv_buf **record, rv_error *err)
{
  const early *item = context;
  rv_code code = make_item(item->work, item->table, draw, err);
  if (code != RV_OK) return code;
  *record = rv_buf_copy(item->work->record.data, item->work->record.size);
  return *record != NULL ? RV_OK : rv_fail_memory(err, item->work->record.size);
}

static rv_code begin_early(saving *work, rv_error *err)
{
  work->early = calloc(work->num_snapshots, sizeof *work->early);
  if (work->early == NULL) return rv_fail_memory(err, work->num_snapshots * sizeof *work->early);
  for (size_t i = 0; i < work->num_snapshots; i++) {
    work->early[i] = (early){work, rv_snapshot_get_head(work->snapshots[i])->name};
    rv_snapshot_write_early(work->snapshots[i], make_early, &work->early[i]);
  }
  return RV_OK;
}

static rv_code write_item(saving *work, const char *table, const rv_draw *draw, const rv_buf *record, rv_error *err)
{
  if (record != NULL) return rv_record_writer_put(work->items, record->data, record->size, err);
  rv_code code = make_item(work, table, draw, err);
  return code == RV_OK ? put_record(work, work->items, err) : code;
}

/* One item more is written. */
static rv_code tell(saving *work, bool ask, rv_error *err)
{
  work->progress.items++;
  uint64_t chunks = work->increments != NULL ? rv_increments_bytes(work->increments) : rv_record_writer_bytes(work->chunks);
  int64_t bytes = (int64_t)(rv_record_writer_bytes(work->items) + chunks);
  if (!ask && bytes - work->progress.bytes_written < ASK_BYTES) return RV_OK;
  work->progress.bytes_written = bytes;
  return rv_checkpoint_ask(work->watch, &work->progress, err);
}

static rv_code gather_from(saving *work, size_t first, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = first; i < work->num_snapshots && code == RV_OK; i++) code = rv_snapshot_gather(work->snapshots[i], err);
  return code;
}

static rv_code write_items(saving *work, size_t number, rv_error *err)
{
  rv_snapshot *snapshot = work->snapshots[number];
  const char *table = rv_snapshot_get_head(snapshot)->name;
  for (size_t slices = 1;; slices++) {
    const rv_draw *items;
    size_t count;
    rv_code code = rv_snapshot_next(snapshot, &items, &count, err);
    if (code != RV_OK || count == 0) return code;
    rv_buf *const *records = rv_snapshot_records(snapshot);
    for (size_t i = 0; work->spills && i < count; i++)
      if (records[i] == NULL) rv_item_record_ask(work->log, &items[i]);
    for (size_t i = 0; i < count; i++) {
      size_t ahead = i + PREFETCH_AHEAD;
      if (ahead < count && records[ahead] == NULL) rv_item_record_prefetch(work->log, &items[ahead]);
      code = write_item(work, table, &items[i], records[i], err);
      if (code == RV_OK) code = tell(work, i + 1 == count, err);
      if (code != RV_OK) return code;
    }
    if (slices % GATHER_EACH == 0) code = gather_from(work, number + 1, err);
    if (code != RV_OK) return code;
  }
}

/* ---- chunks ---- */

static rv_code begin_chunks(saving *work, rv_store *store, rv_error *err)
{
  if (work->increments != NULL) {
    work->log = rv_increments_log(work->increments);
    return rv_increments_begin(work->increments, work->dir, work->level, err);
  }
  rv_code code = open_file(work, RV_CHUNKS_FILE, work->level, &work->chunks, err);
  if (code == RV_OK)
    code = rv_chunk_log_new_marking((rv_chunk_sink){put_chunk, work->chunks}, rv_store_env(store), rv_store_new_mark(store),
                                    &work->of_all, err);
  work->log = work->of_all;
  return code;
}

static rv_code finish_chunks(saving *work, rv_error *err)
{
  return work->increments != NULL ? rv_increments_finish(work->increments, err) : rv_record_writer_finish(work->chunks, err);
}

rv_code rv_checkpoint_write(const rv_checkpoint_target *target, rv_store *store, rv_error *err)
{
  saving work = {.dir = target->dir,
                 .level = target->level,
                 .files = target->files,
                 .increments = target->increments,
                 .watch = target->watch,
                 .spills = rv_memory_spills(rv_store_memory(store)),
                 .progress = {.size = sizeof work.progress}};
  rv_writer_buf_init(&work.record);
  rv_code code = open_file(&work, RV_ITEMS_FILE, rv_checkpoint_items_level(work.level), &work.items, err);
  if (code == RV_OK) code = begin_chunks(&work, store, err);
  if (code == RV_OK) code = take_snapshots(&work, store, err);
  if (code == RV_OK) code = begin_early(&work, err);
  if (code == RV_OK) code = write_tables(&work, err);
  for (size_t i = 0; i < work.num_snapshots && code == RV_OK; i++) code = write_items(&work, i, err);
  if (code == RV_OK) code = rv_record_writer_finish(work.items, err);
  if (code == RV_OK) code = finish_chunks(&work, err);
  fini(&work);
  return code;
}
