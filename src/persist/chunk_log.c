#include "persist/chunk_log.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/map.h"
#include "store/chunk_parts.h"

enum { PIECE_BYTES = 1 << 26 };

/* Rows of a segment that are written, as one chunk. */
typedef struct piece {
  uint64_t key;
  int64_t first, rows;
} piece;

/* By first row, without overlaps. */
typedef struct piece_list {
  piece *pieces;
  uint32_t count, capacity;
} piece_list;

/* A chunk that is written; its address may be another one's by now, whose key then differs. */
typedef struct entry {
  uint64_t own_key;      /* that the chunk has in the store */
  uint64_t key;          /* that it is written under, if it is no segment */
  piece_list all;        /* of a segment: rows of all its columns */
  piece_list *by_column; /* rows that some columns do not have: of each column alone; NULL: none yet */
  uint32_t num_columns;
} entry;

struct rv_chunk_log {
  rv_chunk_sink sink;
  const rv_env *env;
  rv_map by_address; /* to the entry's number */
  rv_map keys;       /* that are taken */
  entry *entries;
  size_t count, capacity;
  rv_writer_buf scratch;
};

rv_code rv_chunk_log_new(rv_chunk_sink sink, const rv_env *env, rv_chunk_log **out, rv_error *err)
{
  rv_chunk_log *log = calloc(1, sizeof *log);
  if (log == NULL) return rv_fail_memory(err, sizeof *log);
  log->sink = sink;
  log->env = env;
  rv_map_init(&log->by_address, rv_entropy64(env));
  rv_map_init(&log->keys, rv_entropy64(env));
  rv_writer_buf_init(&log->scratch);
  *out = log;
  return RV_OK;
}

void rv_chunk_log_clear(rv_chunk_log *log)
{
  for (size_t i = 0; i < log->count; i++) {
    entry *one = &log->entries[i];
    free(one->all.pieces);
    for (uint32_t c = 0; c < one->num_columns && one->by_column != NULL; c++) free(one->by_column[c].pieces);
    free(one->by_column);
  }
  log->count = 0;
  rv_map_clear(&log->by_address);
  rv_map_clear(&log->keys);
}

size_t rv_chunk_log_count(const rv_chunk_log *log)
{
  return log->count;
}

void rv_chunk_log_free(rv_chunk_log *log)
{
  if (log == NULL) return;
  rv_chunk_log_clear(log);
  free(log->entries);
  rv_map_fini(&log->by_address);
  rv_map_fini(&log->keys);
  rv_writer_buf_fini(&log->scratch);
  free(log);
}

/* ---- keys and entries ---- */

/* The chunk's own key, or where that is taken one that is not. */
static rv_code take_key(rv_chunk_log *log, uint64_t wanted, uint64_t *key, rv_error *err)
{
  *key = wanted;
  while (rv_map_get(&log->keys, *key) != NULL) *key = rv_entropy64(log->env);
  return rv_map_put(&log->keys, *key, 1) == RV_OK ? RV_OK : rv_fail_memory(err, sizeof(rv_map_entry));
}

static void *grow(void *array, size_t count, size_t *capacity, size_t size, rv_error *err)
{
  if (count < *capacity) return array;
  size_t wanted = *capacity * 2 + 16;
  void *grown = realloc(array, wanted * size);
  if (grown == NULL)
    rv_fail_memory(err, wanted * size);
  else
    *capacity = wanted;
  return grown;
}

/* *is_new: nothing of it is written. Valid until the next. */
static rv_code find_entry(rv_chunk_log *log, const rv_chunk *chunk, entry **out, bool *is_new, rv_error *err)
{
  uint64_t address = (uint64_t)(uintptr_t)chunk, own_key = rv_chunk_get_meta(chunk)->key;
  const uint32_t *number = rv_map_get(&log->by_address, address);
  *is_new = number == NULL || log->entries[*number].own_key != own_key;
  if (!*is_new) {
    *out = &log->entries[*number];
    return RV_OK;
  }
  entry *entries = grow(log->entries, log->count, &log->capacity, sizeof *entries, err);
  if (entries == NULL) return RV_RESOURCE_EXHAUSTED;
  log->entries = entries;
  if (rv_map_put(&log->by_address, address, (uint32_t)log->count) != RV_OK) return rv_fail_memory(err, sizeof(rv_map_entry));
  *out = &log->entries[log->count++];
  **out = (entry){.own_key = own_key, .num_columns = (uint32_t)rv_chunk_num_columns(chunk)};
  return RV_OK;
}

static rv_code append(rv_slice_list *out, rv_wire_slice slice, rv_error *err)
{
  rv_wire_slice *slices = grow(out->slices, out->count, &out->capacity, sizeof *slices, err);
  if (slices == NULL) return RV_RESOURCE_EXHAUSTED;
  out->slices = slices;
  slices[out->count++] = slice;
  return RV_OK;
}

/* ---- chunks as they came ---- */

/* Of a field that stands twice the last one counts: a chunk gets another key without being written anew. */
static rv_code write_wire(rv_chunk_log *log, const rv_chunk *chunk, uint64_t key, rv_error *err)
{
  const uint8_t *wire;
  size_t size;
  rv_buf *owner = rv_chunk_wire(chunk, &wire, &size);
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  bool fine = rv_pieces_share(&pieces, owner, wire, size) == RV_OK;
  if (key != rv_chunk_get_meta(chunk)->key) {
    log->scratch.size = 0;
    rv_put_varint_always(&log->scratch, 1, key);
    fine = fine && !log->scratch.failed && rv_pieces_copy(&pieces, log->scratch.data, log->scratch.size) == RV_OK;
  }
  rv_code code = fine ? log->sink.put(log->sink.context, &pieces, err) : rv_fail_memory(err, size);
  rv_pieces_fini(&pieces);
  return code;
}

/* ---- segments ---- */

static rv_code write_rows(rv_chunk_log *log, rv_chunk *chunk, uint64_t key, size_t column, int64_t first, int64_t count,
                          rv_error *err)
{
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  log->scratch.size = 0;
  const rv_chunk_encoding encoding = {.key = key, .column = column, .first = first, .count = count, .scratch = &log->scratch};
  rv_code code = rv_chunk_serialize(&pieces, chunk, &encoding, err);
  if (code == RV_OK) code = log->sink.put(log->sink.context, &pieces, err);
  rv_pieces_fini(&pieces);
  return code;
}

/* The first piece that ends behind the row; list->count: none. */
static uint32_t find_piece(const piece_list *list, int64_t row)
{
  uint32_t low = 0, high = list->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (list->pieces[middle].first + list->pieces[middle].rows <= row)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool covers(const piece_list *list, uint32_t at, int64_t row)
{
  return at < list->count && list->pieces[at].first <= row;
}

static int64_t rows_of_all_columns(const rv_chunk *chunk)
{
  int64_t rows = INT64_MAX;
  for (size_t i = 0; i < rv_chunk_num_columns(chunk); i++) {
    int64_t published = rv_chunk_num_rows(chunk, i);
    if (published < rows) rows = published;
  }
  return rows;
}

/* Rows from the slice's first to `end`, but no further than the next piece, and as many as make a piece of the usual size or the slice
 * needs. */
static int64_t end_of_piece(const rv_slice *slice, const piece_list *list, uint32_t at, int64_t end)
{
  int64_t most = (int64_t)((size_t)PIECE_BYTES / (rv_segment_row_bytes(slice->chunk) + 1)) + 1;
  if (most < slice->length) most = slice->length;
  if (at < list->count && list->pieces[at].first < end) end = list->pieces[at].first;
  return end - slice->offset > most ? slice->offset + most : end;
}

static rv_code insert_piece(piece_list *list, uint32_t at, piece added, rv_error *err)
{
  size_t capacity = list->capacity;
  piece *grown = grow(list->pieces, list->count, &capacity, sizeof *grown, err);
  if (grown == NULL) return RV_RESOURCE_EXHAUSTED;
  list->pieces = grown;
  list->capacity = (uint32_t)capacity;
  for (uint32_t i = list->count++; i > at; i--) grown[i] = grown[i - 1];
  grown[at] = added;
  return RV_OK;
}

/* The piece that has the slice's first row, written now if it is not yet: of all columns, or, where some of them do not have the row, of
 * the slice's alone; then *index is 0. */
static rv_code piece_of(rv_chunk_log *log, entry *found, const rv_slice *slice, const piece **out, int32_t *index, rv_error *err)
{
  piece_list *list = &found->all;
  uint32_t at = find_piece(list, slice->offset);
  size_t column = SIZE_MAX;
  int64_t end = rows_of_all_columns(slice->chunk);
  *index = (int32_t)slice->tensor;
  if (!covers(list, at, slice->offset) && end <= slice->offset) {
    if (found->by_column == NULL) found->by_column = calloc(found->num_columns, sizeof *found->by_column);
    if (found->by_column == NULL) return rv_fail_memory(err, found->num_columns * sizeof *found->by_column);
    column = slice->tensor;
    list = &found->by_column[column];
    at = find_piece(list, slice->offset);
    end = rv_chunk_num_rows(slice->chunk, column);
    *index = 0;
  }
  if (!covers(list, at, slice->offset)) {
    piece added = {.first = slice->offset, .rows = end_of_piece(slice, list, at, end) - slice->offset};
    rv_code code = take_key(log, found->own_key, &added.key, err);
    if (code == RV_OK) code = write_rows(log, slice->chunk, added.key, column, added.first, added.rows, err);
    if (code == RV_OK) code = insert_piece(list, at, added, err);
    if (code != RV_OK) return code;
  }
  *out = &list->pieces[at];
  return RV_OK;
}

static rv_code put_rows(rv_chunk_log *log, entry *found, rv_slice slice, rv_slice_list *out, rv_error *err)
{
  do {
    const piece *from = NULL;
    rv_wire_slice part = {0};
    rv_code code = piece_of(log, found, &slice, &from, &part.index, err);
    if (code != RV_OK) return code;
    int64_t rows = from->first + from->rows - slice.offset;
    if (rows > slice.length) rows = slice.length;
    part.chunk_key = from->key;
    part.offset = (int32_t)(slice.offset - from->first);
    part.length = (int32_t)rows;
    code = append(out, part, err);
    if (code != RV_OK) return code;
    slice.offset += (int32_t)rows;
    slice.length -= (int32_t)rows;
  } while (slice.length > 0);
  return RV_OK;
}

rv_code rv_chunk_log_put(rv_chunk_log *log, const rv_slice *slice, rv_slice_list *out, rv_error *err)
{
  entry *found = NULL;
  bool is_new;
  rv_code code = find_entry(log, slice->chunk, &found, &is_new, err);
  if (code != RV_OK) return code;
  if (slice->chunk->is_segment) return put_rows(log, found, *slice, out, err);
  if (is_new) {
    code = take_key(log, found->own_key, &found->key, err);
    if (code == RV_OK) code = write_wire(log, slice->chunk, found->key, err);
    if (code != RV_OK) return code;
  }
  return append(
      out,
      (rv_wire_slice){.chunk_key = found->key, .offset = slice->offset, .length = slice->length, .index = (int32_t)slice->tensor},
      err);
}
