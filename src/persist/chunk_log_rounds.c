/* A log that lasts, from one checkpoint to the next. */
#include "persist/chunk_log_parts.h"
#include "store/chunk.h"

void rv_chunk_log_begin(rv_chunk_log *log, rv_chunk_sink sink, uint32_t file)
{
  log->sink = sink;
  log->file = file;
}

rv_code rv_chunk_log_adopt(rv_chunk_log *log, rv_chunk *chunk, uint32_t file, uint32_t record, rv_error *err)
{
  uint64_t key = rv_chunk_get_meta(chunk)->key;
  uint32_t number;
  rv_code code = rv_chunk_log_keep_key(log, key, err);
  if (code == RV_OK) code = rv_chunk_log_add(log, chunk, &number, err);
  if (code == RV_OK) log->entries[number].at = (rv_log_place){.key = key, .file = file, .record = record};
  return code;
}

/* Is it still needed, or where the round failed, not written by it? */
static bool remains(const rv_chunk_log *log, const rv_log_place *at, bool whole)
{
  if (at->file == RV_LOG_NONE) return false;
  return whole ? rv_chunk_file_needs(&log->files->files[at->file], at->record) : at->file != log->file;
}

static void sweep_pieces(rv_chunk_log *log, rv_log_pieces *list, bool whole)
{
  uint32_t kept = 0;
  for (uint32_t i = 0; i < list->count; i++) {
    if (remains(log, &list->pieces[i].at, whole))
      list->pieces[kept++] = list->pieces[i];
    else
      rv_key_set_remove(&log->keys, list->pieces[i].at.key);
  }
  list->count = kept;
}

/* True: nothing is left of it. */
static bool sweep_entry(rv_chunk_log *log, rv_log_entry *one, bool whole)
{
  if (one->rows == NULL) {
    bool gone = !remains(log, &one->at, whole);
    if (gone && one->at.record != RV_LOG_NONE) rv_key_set_remove(&log->keys, one->at.key);
    return gone;
  }
  sweep_pieces(log, &one->rows->all, whole);
  bool empty = one->rows->all.count == 0;
  for (uint32_t c = 0; c < one->rows->num_columns; c++) {
    sweep_pieces(log, &one->rows->by_column[c], whole);
    empty = empty && one->rows->by_column[c].count == 0;
  }
  return empty;
}

void rv_chunk_log_end(rv_chunk_log *log, bool whole)
{
  for (size_t i = 0; i < log->count; i++) {
    rv_log_entry *one = &log->entries[i];
    if (one->identity == 0 || !sweep_entry(log, one, whole)) continue;
    rv_log_rows_free(one->rows);
    *one = (rv_log_entry){.at = {.record = log->free_entry}};
    log->free_entry = (uint32_t)i;
  }
}
