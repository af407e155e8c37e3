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

/* A chunk that is written; its address may be another one's by now, whose key then differs. */
typedef struct entry {
  uint64_t own_key; /* that the chunk has in the store */
  uint64_t key;     /* that it is written under, if it is no segment */
  piece *pieces;    /* of a segment: by first row, without overlaps */
  uint32_t num_pieces, capacity;
} entry;

struct rv_chunk_log {
  rv_record_writer *writer;
  const rv_env *env;
  rv_map by_address; /* to the entry's number */
  rv_map keys;       /* that are taken */
  entry *entries;
  size_t count, capacity;
  rv_writer_buf scratch;
};

rv_code rv_chunk_log_new(rv_record_writer *writer, const rv_env *env, rv_chunk_log **out, rv_error *err)
{
  rv_chunk_log *log = calloc(1, sizeof *log);
  if (log == NULL) return rv_fail_memory(err, sizeof *log);
  log->writer = writer;
  log->env = env;
  rv_map_init(&log->by_address, rv_entropy64(env));
  rv_map_init(&log->keys, rv_entropy64(env));
  rv_writer_buf_init(&log->scratch);
  *out = log;
  return RV_OK;
}

void rv_chunk_log_free(rv_chunk_log *log)
{
  if (log == NULL) return;
  for (size_t i = 0; i < log->count; i++) free(log->entries[i].pieces);
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
  **out = (entry){.own_key = own_key};
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
  if (key == rv_chunk_get_meta(chunk)->key) return rv_record_writer_put(log->writer, wire, size, err);
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  log->scratch.size = 0;
  rv_put_varint_always(&log->scratch, 1, key);
  bool fine = !log->scratch.failed && rv_pieces_share(&pieces, owner, wire, size) == RV_OK &&
              rv_pieces_copy(&pieces, log->scratch.data, log->scratch.size) == RV_OK;
  rv_code code = fine ? rv_record_writer_put_pieces(log->writer, &pieces, err) : rv_fail_memory(err, size);
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
  if (code == RV_OK) code = rv_record_writer_put_pieces(log->writer, &pieces, err);
  rv_pieces_fini(&pieces);
  return code;
}

/* The first piece that ends behind the row; num_pieces: none. */
static uint32_t find_piece(const entry *found, int64_t row)
{
  uint32_t low = 0, high = found->num_pieces;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (found->pieces[middle].first + found->pieces[middle].rows <= row)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
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

/* As many rows as make a piece of the usual size, and no fewer than are needed. */
static int64_t end_of_piece(const rv_chunk *chunk, const entry *found, uint32_t at, int64_t first, int64_t needed)
{
  int64_t end = rows_of_all_columns(chunk), most = (int64_t)((size_t)PIECE_BYTES / (rv_segment_row_bytes(chunk) + 1)) + 1;
  if (at < found->num_pieces && found->pieces[at].first < end) end = found->pieces[at].first;
  if (end - first > most && end - first > needed) end = first + (most > needed ? most : needed);
  return end;
}

static rv_code insert_piece(entry *found, uint32_t at, piece added, rv_error *err)
{
  if (found->num_pieces == found->capacity) {
    uint32_t capacity = found->capacity * 2 + 1;
    piece *grown = realloc(found->pieces, capacity * sizeof *grown);
    if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
    found->pieces = grown;
    found->capacity = capacity;
  }
  for (uint32_t i = found->num_pieces++; i > at; i--) found->pieces[i] = found->pieces[i - 1];
  found->pieces[at] = added;
  return RV_OK;
}

/* Rows of a step that is still open: some columns do not have it yet. They are written for this slice alone. */
static rv_code put_open_rows(rv_chunk_log *log, const rv_slice *slice, rv_slice_list *out, rv_error *err)
{
  uint64_t key;
  rv_code code = take_key(log, rv_entropy64(log->env), &key, err);
  if (code == RV_OK) code = write_rows(log, slice->chunk, key, slice->tensor, slice->offset, slice->length, err);
  return code == RV_OK ? append(out, (rv_wire_slice){.chunk_key = key, .length = slice->length}, err) : code;
}

static rv_code put_rows(rv_chunk_log *log, entry *found, rv_slice slice, rv_slice_list *out, rv_error *err)
{
  do {
    uint32_t at = find_piece(found, slice.offset);
    if (at == found->num_pieces || found->pieces[at].first > slice.offset) {
      int64_t end = end_of_piece(slice.chunk, found, at, slice.offset, slice.length);
      if (end <= slice.offset) return put_open_rows(log, &slice, out, err);
      piece added = {.first = slice.offset, .rows = end - slice.offset};
      rv_code code = take_key(log, found->own_key, &added.key, err);
      if (code == RV_OK) code = write_rows(log, slice.chunk, added.key, SIZE_MAX, added.first, added.rows, err);
      if (code == RV_OK) code = insert_piece(found, at, added, err);
      if (code != RV_OK) return code;
    }
    const piece *from = &found->pieces[at];
    int64_t rows = from->first + from->rows - slice.offset;
    if (rows > slice.length) rows = slice.length;
    rv_wire_slice part = {.chunk_key = from->key,
                          .offset = (int32_t)(slice.offset - from->first),
                          .length = (int32_t)rows,
                          .index = (int32_t)slice.tensor};
    rv_code code = append(out, part, err);
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
