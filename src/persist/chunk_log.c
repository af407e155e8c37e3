#include "persist/chunk_log_parts.h"

#include <stdlib.h>

#include "base/error.h"
#include "store/chunk_parts.h"

enum {
  PIECE_BYTES = 1 << 26,
  BEFORE_BYTES = 1 << 16, /* of rows that nobody needs yet, before those that are needed */
  PREFETCHED_BYTES = 4096,
  CACHE_LINE = 64
};

rv_code rv_chunk_log_new(rv_chunk_sink sink, const rv_env *env, rv_chunk_log **out, rv_error *err)
{
  rv_chunk_log *log = calloc(1, sizeof *log);
  if (log == NULL) return rv_fail_memory(err, sizeof *log);
  log->sink = sink;
  log->env = env;
  log->free_entry = RV_LOG_NONE;
  log->next_number = (uint32_t)rv_entropy64(env);
  rv_map_init(&log->by_address, rv_entropy64(env));
  rv_key_set_init(&log->keys, rv_entropy64(env));
  rv_writer_buf_init(&log->scratch);
  *out = log;
  return RV_OK;
}

/* What a log that lasts marks chunks with has this bit (its tag is odd), and no other mark has. */
static const uint64_t of_lasting = UINT64_C(1) << 32;

/* The number's bits around that one's place; no number gives 0, which is no mark. */
static uint64_t mark_of(uint64_t number)
{
  return number << 33 | (number >> 31 & 0x7FFFFFFF) << 1 | 1;
}

rv_code rv_chunk_log_new_marking(rv_chunk_sink sink, const rv_env *env, uint64_t number, rv_chunk_log **out, rv_error *err)
{
  rv_code code = rv_chunk_log_new(sink, env, out, err);
  if (code == RV_OK) (*out)->mark = mark_of(number);
  return code;
}

rv_code rv_chunk_log_new_lasting(rv_chunk_files *files, const rv_env *env, rv_chunk_log **out, rv_error *err)
{
  rv_code code = rv_chunk_log_new((rv_chunk_sink){NULL, NULL}, env, out, err);
  if (code != RV_OK) return code;
  (*out)->files = files;
  (*out)->tag = (uint32_t)rv_entropy64(env) | 1U; /* no chunk's mark is 0 */
  return RV_OK;
}

void rv_log_rows_free(rv_log_rows *rows)
{
  if (rows == NULL) return;
  free(rows->all.pieces);
  for (uint32_t c = 0; c < rows->num_columns; c++) free(rows->by_column[c].pieces);
  free(rows);
}

void rv_chunk_log_clear(rv_chunk_log *log)
{
  for (size_t i = 0; i < log->count; i++) rv_log_rows_free(log->entries[i].rows);
  log->count = 0;
  log->bytes_again = 0;
  log->free_entry = RV_LOG_NONE;
  log->mark = 0;
  rv_map_clear(&log->by_address);
  rv_key_set_clear(&log->keys);
}

size_t rv_chunk_log_count(const rv_chunk_log *log)
{
  return log->count;
}

size_t rv_chunk_log_bytes_again(const rv_chunk_log *log)
{
  return log->bytes_again;
}

void rv_chunk_log_free(rv_chunk_log *log)
{
  if (log == NULL) return;
  rv_chunk_log_clear(log);
  free(log->entries);
  rv_map_fini(&log->by_address);
  rv_writer_buf_fini(&log->scratch);
  free(log);
}

/* ---- keys and entries ---- */

rv_code rv_chunk_log_keep_key(rv_chunk_log *log, uint64_t key, rv_error *err)
{
  return rv_key_set_add(&log->keys, key) == RV_OK ? RV_OK : rv_fail_memory(err, rv_key_set_bytes(&log->keys) * 2);
}

/* The chunk's own key, or where that is taken one that is not. */
static rv_code take_key(rv_chunk_log *log, uint64_t wanted, uint64_t *key, rv_error *err)
{
  *key = wanted;
  while (rv_key_set_may_have(&log->keys, *key)) *key = rv_entropy64(log->env);
  return rv_chunk_log_keep_key(log, *key, err);
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

/* `fresh`: what the chunk is to be known by from now on; 0: it is looked for. */
static uint64_t identity_of(const rv_chunk_log *log, rv_chunk *chunk, uint32_t fresh)
{
  if (log->files != NULL) return (uint64_t)(uintptr_t)chunk;
  return rv_chunk_get_meta(chunk)->key + ((uint64_t)rv_chunk_number(chunk, fresh) << 32);
}

/* A log that lasts writes the entry's number into the chunk: another one at the same address has none, and an entry that another chunk got
 * has another address. One that does not is asked by the address, at which there may be another chunk by now, even with the same key, which
 * may be that of a segment that was there: it has another number, or none, and what has none, and is no segment, is in no log. */
static uint32_t find_number(const rv_chunk_log *log, rv_chunk *chunk)
{
  uint32_t number = RV_LOG_NONE;
  if (log->files != NULL) {
    uint64_t mark = atomic_load_explicit(&chunk->logged, memory_order_relaxed);
    if (mark >> 32 == log->tag) number = (uint32_t)mark;
  } else {
    const bool is_known = chunk->is_segment || rv_chunk_number(chunk, 0) != 0;
    const uint32_t *found = is_known ? rv_map_get(&log->by_address, (uint64_t)(uintptr_t)chunk) : NULL;
    if (found != NULL) number = *found;
  }
  return number < log->count && log->entries[number].identity == identity_of(log, chunk, 0) ? number : RV_LOG_NONE;
}

rv_code rv_chunk_log_add(rv_chunk_log *log, rv_chunk *chunk, uint32_t *number, rv_error *err)
{
  rv_log_entry *entries = grow(log->entries, log->count, &log->capacity, sizeof *entries, err);
  if (entries == NULL) return RV_RESOURCE_EXHAUSTED;
  log->entries = entries;
  bool reuse = log->free_entry != RV_LOG_NONE;
  *number = reuse ? log->free_entry : (uint32_t)log->count;
  if (log->files == NULL && rv_map_put(&log->by_address, (uint64_t)(uintptr_t)chunk, *number) != RV_OK)
    return rv_fail_memory(err, sizeof(rv_map_entry));
  uint32_t fresh = log->next_number++ | 1U << 31;
  if (reuse)
    log->free_entry = entries[*number].at.record;
  else
    log->count++;
  entries[*number] =
      (rv_log_entry){.identity = identity_of(log, chunk, fresh), .at = {.file = RV_LOG_NONE, .record = RV_LOG_NONE}};
  if (log->files != NULL) atomic_store_explicit(&chunk->logged, (uint64_t)log->tag << 32 | *number, memory_order_relaxed);
  return RV_OK;
}

void rv_chunk_log_prefetch(const rv_chunk_log *log, const rv_chunk *chunk)
{
  if (log->files == NULL && (log->mark == 0 || chunk->is_segment)) rv_map_prefetch(&log->by_address, (uint64_t)(uintptr_t)chunk);
  rv_key_set_prefetch(&log->keys, rv_chunk_get_meta(chunk)->key);
  const uint8_t *wire;
  size_t size = 0;
  if (rv_chunk_wire(chunk, &wire, &size) == NULL) return;
  for (size_t at = 0; at < size && at < PREFETCHED_BYTES; at += CACHE_LINE) __builtin_prefetch(wire + at, 0, 2);
}

void rv_chunk_log_ask(const rv_chunk_log *log, rv_chunk *chunk)
{
  if (!rv_chunk_is_spilled(chunk)) return;
  const bool is_marked = log->mark != 0 && atomic_load_explicit(&chunk->logged, memory_order_relaxed) == log->mark;
  if (!is_marked && find_number(log, chunk) == RV_LOG_NONE) rv_chunk_ask_for_all(chunk);
}

/* *is_new: nothing of it is written. Valid until the next. */
static rv_code find_entry(rv_chunk_log *log, rv_chunk *chunk, rv_log_entry **out, bool *is_new, rv_error *err)
{
  uint32_t number = find_number(log, chunk);
  *is_new = number == RV_LOG_NONE;
  rv_code code = *is_new ? rv_chunk_log_add(log, chunk, &number, err) : RV_OK;
  if (code == RV_OK) *out = &log->entries[number];
  return code;
}

/* It is written, and stands in a file that later checkpoints may refer to. */
static bool stays(rv_chunk_log *log, const rv_log_place *at)
{
  return log->files == NULL || !log->files->files[at->file].retired;
}

/* To the sink: those rows of the chunk, the first one alone if it is no segment. */
static rv_code write_out(rv_chunk_log *log, rv_chunk *chunk, int64_t first, int64_t rows, rv_pieces *pieces, rv_log_place *at,
                         rv_error *err)
{
  size_t bytes = pieces->bytes;
  rv_code code = log->sink.put(log->sink.context, pieces, err);
  if (code != RV_OK) return code;
  if (log->files == NULL) {
    int64_t written = atomic_load_explicit(&chunk->written, memory_order_relaxed);
    if (first < written) log->bytes_again += bytes;
    if (first + rows > written) atomic_store_explicit(&chunk->written, (unsigned)(first + rows), memory_order_relaxed);
    return RV_OK;
  }
  rv_chunk_file *file = &log->files->files[log->file];
  at->file = log->file;
  at->record = file->records;
  return rv_chunk_file_append(file, err);
}

static void note_needed(rv_chunk_log *log, const rv_log_place *at)
{
  if (log->files != NULL) rv_chunk_file_need(&log->files->files[at->file], at->record);
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

static rv_wire_slice whole_slice(const rv_slice *slice, uint64_t key)
{
  return (rv_wire_slice){.chunk_key = key, .offset = slice->offset, .length = slice->length, .index = (int32_t)slice->tensor};
}

/* Of a field that stands twice the last one counts: a chunk gets another key without being written anew. */
static rv_code write_wire(rv_chunk_log *log, rv_chunk *chunk, rv_log_place *at, rv_error *err)
{
  const uint8_t *wire;
  size_t size;
  rv_buf *owner;
  rv_code code = rv_chunk_hold_wire(chunk, &wire, &size, &owner, err);
  if (code != RV_OK) return code;
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  bool fine = rv_pieces_give(&pieces, owner, wire, size) == RV_OK;
  if (at->key != rv_chunk_get_meta(chunk)->key) {
    log->scratch.size = 0;
    rv_put_varint_always(&log->scratch, 1, at->key);
    fine = fine && !log->scratch.failed && rv_pieces_copy(&pieces, log->scratch.data, log->scratch.size) == RV_OK;
  }
  code = fine ? write_out(log, chunk, 0, 1, &pieces, at, err) : rv_fail_memory(err, size);
  rv_pieces_fini(&pieces);
  return code;
}

/* As most are in a log that marks: by its own key, so that the mark says all. *done is false where another has the key, or a log that lasts
 * has left its mark, which it needs: then the chunk gets an entry. */
static rv_code put_marked(rv_chunk_log *log, rv_chunk *chunk, bool *done, rv_error *err)
{
  uint64_t mark = atomic_load_explicit(&chunk->logged, memory_order_relaxed);
  rv_log_place at = {.key = rv_chunk_get_meta(chunk)->key, .file = RV_LOG_NONE};
  *done = mark == log->mark;
  if (*done || (mark & of_lasting) != 0 || rv_key_set_may_have(&log->keys, at.key)) return RV_OK;
  rv_code code = rv_chunk_log_keep_key(log, at.key, err);
  *done = code == RV_OK && atomic_compare_exchange_strong(&chunk->logged, &mark, log->mark);
  return *done ? write_wire(log, chunk, &at, err) : code;
}

/* ---- segments ---- */

static rv_code write_rows(rv_chunk_log *log, rv_chunk *chunk, rv_log_piece *rows, size_t column, rv_error *err)
{
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  log->scratch.size = 0;
  const rv_chunk_encoding encoding = {
      .key = rows->at.key, .column = column, .first = rows->first, .count = rows->rows, .scratch = &log->scratch};
  rv_code code = rv_chunk_serialize(&pieces, chunk, &encoding, err);
  if (code == RV_OK) code = write_out(log, chunk, rows->first, rows->rows, &pieces, &rows->at, err);
  rv_pieces_fini(&pieces);
  return code;
}

/* The first piece that ends behind the row; list->count: none. */
static uint32_t find_piece(const rv_log_pieces *list, int64_t row)
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

static bool covers(const rv_log_pieces *list, uint32_t at, int64_t row)
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

/* Bytes of a row's strings in those columns that have the row. */
static size_t strings_at(const rv_chunk *chunk, int64_t row)
{
  size_t bytes = 0;
  for (size_t c = 0; c < rv_chunk_num_columns(chunk); c++)
    if (row < rv_chunk_num_rows(chunk, c)) bytes += rv_segment_string_bytes(chunk, c, row);
  return bytes;
}

/* At least one row from the slice's first, if there is any before `end`, and as many as have strings of the usual size of a piece. What the
 * slice needs may then take several pieces. */
static int64_t end_of_strings(const rv_slice *slice, int64_t end)
{
  if (end <= slice->offset) return end; /* a slice of no rows, behind the last one */
  size_t bytes = strings_at(slice->chunk, slice->offset);
  int64_t row = (int64_t)slice->offset + 1;
  while (row < end && (bytes += strings_at(slice->chunk, row)) <= PIECE_BYTES) row++;
  return row;
}

/* Rows before the slice's first that are in no piece yet, of which there are few: else whoever needs rows from the last to the first would have
 * them in pieces of one. */
static int64_t begin_of_piece(const rv_slice *slice, const rv_log_pieces *list, uint32_t at)
{
  if (slice->chunk->has_strings) return slice->offset;
  const int64_t before = at > 0 ? list->pieces[at - 1].first + list->pieces[at - 1].rows : 0;
  const int64_t most = (int64_t)((size_t)BEFORE_BYTES / (rv_segment_row_bytes(slice->chunk) + 1));
  return slice->offset - before > most ? slice->offset - most : before;
}

/* Rows from the slice's first to `end`, but no further than the next piece, and as many as make a piece of the usual size or the slice
 * needs. */
static int64_t end_of_piece(const rv_slice *slice, const rv_log_pieces *list, uint32_t at, int64_t end)
{
  int64_t most = (int64_t)((size_t)PIECE_BYTES / (rv_segment_row_bytes(slice->chunk) + 1)) + 1;
  if (most < slice->length) most = slice->length;
  if (at < list->count && list->pieces[at].first < end) end = list->pieces[at].first;
  if (end - slice->offset > most) end = slice->offset + most;
  return slice->chunk->has_strings ? end_of_strings(slice, end) : end;
}

static rv_code insert_piece(rv_log_pieces *list, uint32_t at, rv_log_piece added, rv_error *err)
{
  size_t capacity = list->capacity;
  rv_log_piece *grown = grow(list->pieces, list->count, &capacity, sizeof *grown, err);
  if (grown == NULL) return RV_RESOURCE_EXHAUSTED;
  list->pieces = grown;
  list->capacity = (uint32_t)capacity;
  for (uint32_t i = list->count++; i > at; i--) grown[i] = grown[i - 1];
  grown[at] = added;
  return RV_OK;
}

/* The piece that has the slice's first row, written now if it is not yet: of all columns, or, where some of them do not have the row, of
 * the slice's alone; then *index is 0. */
static rv_code piece_of(rv_chunk_log *log, rv_log_rows *rows, const rv_slice *slice, const rv_log_piece **out, int32_t *index,
                        rv_error *err)
{
  rv_log_pieces *list = &rows->all;
  uint32_t at = find_piece(list, slice->offset);
  size_t column = SIZE_MAX;
  int64_t end = rows_of_all_columns(slice->chunk);
  *index = (int32_t)slice->tensor;
  if (!covers(list, at, slice->offset) && end <= slice->offset) {
    column = slice->tensor;
    list = &rows->by_column[column];
    at = find_piece(list, slice->offset);
    end = rv_chunk_num_rows(slice->chunk, column);
    *index = 0;
  }
  if (!covers(list, at, slice->offset)) {
    rv_log_piece added = {.first = begin_of_piece(slice, list, at)};
    added.rows = end_of_piece(slice, list, at, end) - added.first;
    rv_code code = take_key(log, rv_chunk_get_meta(slice->chunk)->key, &added.at.key, err);
    if (code == RV_OK) code = write_rows(log, slice->chunk, &added, column, err);
    if (code == RV_OK) code = insert_piece(list, at, added, err);
    if (code != RV_OK) return code;
  } else if (!stays(log, &list->pieces[at].at)) {
    rv_code code = write_rows(log, slice->chunk, &list->pieces[at], column, err);
    if (code != RV_OK) return code;
  }
  note_needed(log, &list->pieces[at].at);
  *out = &list->pieces[at];
  return RV_OK;
}

static rv_code put_rows(rv_chunk_log *log, rv_log_entry *found, rv_slice slice, rv_slice_list *out, rv_error *err)
{
  if (found->rows == NULL) {
    size_t columns = rv_chunk_num_columns(slice.chunk), bytes = sizeof *found->rows + columns * sizeof found->rows->by_column[0];
    found->rows = calloc(1, bytes);
    if (found->rows == NULL) return rv_fail_memory(err, bytes);
    found->rows->num_columns = (uint32_t)columns;
  }
  do {
    const rv_log_piece *from = NULL;
    rv_wire_slice part = {0};
    rv_code code = piece_of(log, found->rows, &slice, &from, &part.index, err);
    if (code != RV_OK) return code;
    int64_t rows = from->first + from->rows - slice.offset;
    if (rows > slice.length) rows = slice.length;
    part.chunk_key = from->at.key;
    part.offset = (int32_t)(slice.offset - from->first);
    part.length = (int32_t)rows;
    code = append(out, part, err);
    if (code != RV_OK) return code;
    slice.offset += (int32_t)rows;
    slice.length -= (int32_t)rows;
  } while (slice.length > 0);
  return RV_OK;
}

static rv_code put_with_entry(rv_chunk_log *log, const rv_slice *slice, rv_slice_list *out, rv_error *err)
{
  rv_log_entry *found = NULL;
  bool is_new;
  rv_code code = find_entry(log, slice->chunk, &found, &is_new, err);
  if (code != RV_OK) return code;
  if (slice->chunk->is_segment) return put_rows(log, found, *slice, out, err);
  if (is_new) {
    code = take_key(log, rv_chunk_get_meta(slice->chunk)->key, &found->at.key, err);
    if (code == RV_OK) found->at.record = 0;
  }
  if (code == RV_OK && (is_new || !stays(log, &found->at))) code = write_wire(log, slice->chunk, &found->at, err);
  if (code != RV_OK) return code;
  note_needed(log, &found->at);
  return append(out, whole_slice(slice, found->at.key), err);
}

rv_code rv_chunk_log_put(rv_chunk_log *log, const rv_slice *slice, rv_slice_list *out, rv_error *err)
{
  bool done = false;
  if (log->mark != 0 && !slice->chunk->is_segment) {
    rv_code code = put_marked(log, slice->chunk, &done, err);
    if (code != RV_OK) return code;
  }
  if (!done) return put_with_entry(log, slice, out, err);
  return append(out, whole_slice(slice, rv_chunk_get_meta(slice->chunk)->key), err);
}
