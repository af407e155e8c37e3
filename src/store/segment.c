/* Chunks in the making: raw rows in one block of memory, small columns beside each other row by row, large ones each in a run of
 * its own. */
#include <stdlib.h>

#include "base/error.h"
#include "base/pages.h"
#include "base/past_caches.h"
#include "base/small_copies.h"
#include "store/chunk_parts.h"
#include "store/signature.h"

enum { LINE = 64, ARENA_MIN = 256, ARENA_MAX = 65536 };

/* Blocks of string bytes, newest first. */
typedef struct string_block {
  struct string_block *next;
  size_t used, capacity;
  uint8_t bytes[];
} string_block;

typedef struct rv_segment {
  rv_chunk chunk;
  int64_t capacity;
  size_t row_bytes; /* of all columns */
  size_t data_bytes, books_bytes;
  uint8_t *data;
  rv_buf *spare;       /* whose bytes the data are: a loop's, or where it has moved (cold.h); NULL: they are its own */
  bool for_once;       /* the spare is not used again */
  bool by_rows;        /* see interleaved_below */
  bool is_joined;      /* see joined.h */
  uint32_t kept;       /* rv_joined_keep */
  string_block *arena; /* the writer's */
  atomic_size_t arena_bytes;
} rv_segment;

static rv_segment *segment_of(rv_chunk *chunk)
{
  return (rv_segment *)chunk;
}
static const rv_segment *segment_of_const(const rv_chunk *chunk)
{
  return (const rv_segment *)chunk;
}

/* In the data, of each column's first row: the last of its books. */
static const size_t *offsets_of(const rv_segment *segment)
{
  const uint8_t *end = (const uint8_t *)segment + segment->books_bytes;
  return (const size_t *)(const void *)end - segment->chunk.num_columns;
}

static size_t alignment_of(rv_dtype dtype)
{
  size_t size = rv_dtype_size(dtype);
  return size > 8 ? 8 : size;
}

static size_t round_up(size_t n, size_t to)
{
  return (n + to - 1) / to * to;
}

/* Bytes of a row of a column that no longer stands beside others. Where an item has one row of each, and is small enough to be copied at once
 * (fill.c), more of them come from one place; sequences are copied quicker from runs. */
static size_t interleaved_below(const rv_chunk *chunk, bool by_rows)
{
  enum { BELOW = 256, OF_ROWS_BELOW = 768, ROW_MOST = 2048 };
  size_t bytes = 0;
  for (uint32_t i = 0; i < chunk->num_columns && bytes <= ROW_MOST; i++)
    bytes += chunk->lanes[i].row_bytes < ROW_MOST ? chunk->lanes[i].row_bytes : ROW_MOST + 1;
  return by_rows && bytes <= ROW_MOST ? OF_ROWS_BELOW : BELOW;
}

/* The widest elements first, so that no padding stands between columns. */
static size_t lay_interleaved(rv_chunk *chunk, size_t below, size_t *offsets)
{
  size_t at = 0, widest = 1;
  for (size_t alignment = 8; alignment >= 1; alignment /= 2)
    for (uint32_t i = 0; i < chunk->num_columns; i++) {
      if (chunk->lanes[i].row_bytes >= below || alignment_of(chunk->columns[i].dtype) != alignment) continue;
      if (alignment > widest) widest = alignment;
      offsets[i] = at;
      at += chunk->lanes[i].row_bytes;
    }
  return round_up(at, widest);
}

/* Fills the lanes with offsets; bases come when there is memory. */
static rv_code lay_out(rv_segment *segment, size_t *offsets, rv_error *err)
{
  rv_chunk *chunk = &segment->chunk;
  const size_t below = interleaved_below(chunk, segment->by_rows);
  size_t stride = lay_interleaved(chunk, below, offsets), rows = (size_t)segment->capacity, total;
  if (__builtin_mul_overflow(stride, rows, &total)) goto too_large;
  segment->row_bytes = stride;
  for (uint32_t i = 0; i < chunk->num_columns; i++) {
    rv_lane *lane = &chunk->lanes[i];
    if (lane->row_bytes < below) {
      lane->stride = stride;
      continue;
    }
    size_t bytes;
    lane->stride = lane->row_bytes;
    if (total > SIZE_MAX / 4) goto too_large;
    total = round_up(total, LINE);
    offsets[i] = total;
    if (__builtin_mul_overflow(lane->row_bytes, rows, &bytes) || __builtin_add_overflow(total, bytes, &total)) goto too_large;
    segment->row_bytes += lane->row_bytes; /* cannot overflow where the products did not */
  }
  if (total > SIZE_MAX / 4) goto too_large;
  segment->data_bytes = rv_pages_size(total);
  return RV_OK;
too_large:
  return rv_fail(err, RV_INVALID_ARGUMENT, "%lld rows of these columns are more bytes than memory can have",
                 (long long)segment->capacity);
}

static rv_code check_specs(const rv_spec *columns, size_t num_columns, size_t capacity, size_t *num_sizes, rv_error *err)
{
  if (num_columns == 0 || num_columns > UINT16_MAX + 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a segment of %zu columns; 1 to 65,536 are possible", num_columns);
  if (capacity == 0 || capacity > INT32_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a segment of %zu rows; 1 to 2^31 - 1 are possible", capacity);
  *num_sizes = 0;
  for (size_t i = 0; i < num_columns; i++) {
    if (columns[i].rank < 0 || columns[i].rank > RV_MAX_RANK)
      return rv_fail(err, RV_INVALID_ARGUMENT, "column %zu: a row of %d dimensions; 0 to %d are possible", i,
                     (int)columns[i].rank, RV_MAX_RANK);
    *num_sizes += (size_t)columns[i].rank;
  }
  return RV_OK;
}

static rv_code describe_columns(rv_chunk *chunk, const rv_spec *specs, int64_t *shapes, rv_error *err)
{
  for (uint32_t i = 0; i < chunk->num_columns; i++) {
    size_t elements, bytes;
    rv_code code = rv_shape_elements(specs[i].dtype, (uint32_t)specs[i].rank, specs[i].shape, &elements, &bytes, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "column %u", (unsigned)i);
      return code;
    }
    if (specs[i].rank > 0) memcpy(shapes, specs[i].shape, (size_t)specs[i].rank * sizeof *shapes);
    chunk->columns[i] =
        (rv_chunk_column){.dtype = specs[i].dtype, .rank = (uint32_t)specs[i].rank, .shape = shapes, .row_bytes = bytes};
    chunk->lanes[i].row_bytes = bytes;
    atomic_init(&chunk->lanes[i].published, 0);
    if (specs[i].dtype == RV_STRING) chunk->has_strings = true;
    shapes += specs[i].rank;
  }
  return RV_OK;
}

static rv_buf *take_spare(const rv_segment *segment, rv_spares *spares)
{
  if (spares == NULL || segment->data_bytes < RV_SPARE_MIN || segment->data_bytes > RV_SPARE_MAX) return NULL;
  return segment->chunk.has_strings ? rv_spares_take(spares, segment->data_bytes) /* addresses are shown to nobody */
                                    : rv_spares_take_lendable(spares, segment->data_bytes);
}

static bool take_data(rv_segment *segment, const rv_segment_source *source)
{
  segment->for_once = source->once != NULL;
  segment->spare = segment->for_once ? source->once(source->context, segment->data_bytes) : take_spare(segment, source->spares);
  if (segment->for_once && segment->spare == NULL) return false;
  segment->data = segment->spare != NULL ? segment->spare->data : rv_pages_alloc(segment->data_bytes);
  return segment->data != NULL;
}

rv_code rv_segment_new_from(const rv_spec *columns, size_t num_columns, size_t capacity, const rv_chunk_meta *meta,
                            const rv_segment_source *source, rv_chunk **out, rv_error *err)
{
  size_t num_sizes = 0;
  rv_code code = check_specs(columns, num_columns, capacity, &num_sizes, err);
  if (code != RV_OK) return code;
  /* Room for the offsets stands behind the shapes. */
  size_t books = rv_chunk_books_size(sizeof(rv_segment), num_columns, num_sizes + num_columns);
  rv_segment *segment = malloc(books);
  if (segment == NULL) return rv_fail_memory(err, books);
  rv_chunk *chunk = &segment->chunk;
  int64_t *shapes = rv_chunk_books_init(chunk, sizeof *segment, num_columns, meta, true);
  size_t *offsets = (size_t *)(void *)(shapes + num_sizes);
  segment->capacity = (int64_t)capacity;
  segment->by_rows = source->by_rows;
  segment->is_joined = false;
  segment->kept = 0;
  segment->books_bytes = books;
  segment->arena = NULL;
  atomic_init(&segment->arena_bytes, 0);
  code = describe_columns(chunk, columns, shapes, err);
  if (code == RV_OK) code = lay_out(segment, offsets, err);
  if (code != RV_OK) goto fail;
  if (!take_data(segment, source)) {
    *out = NULL;
    code = segment->for_once ? RV_OK : rv_fail_memory(err, segment->data_bytes);
    goto fail;
  }
  if (chunk->has_strings) memset(segment->data, 0, segment->data_bytes); /* a row that is skipped reads as empty strings */
  for (uint32_t i = 0; i < chunk->num_columns; i++) chunk->lanes[i].base = segment->data + offsets[i];
  *out = chunk;
  return RV_OK;
fail:
  free(segment);
  return code;
}

rv_code rv_segment_new(const rv_spec *columns, size_t num_columns, size_t capacity, const rv_chunk_meta *meta, rv_chunk **out,
                       rv_error *err)
{
  const rv_segment_source source = {.by_rows = meta->episode_id == RV_NO_EPISODE};
  return rv_segment_new_from(columns, num_columns, capacity, meta, &source, out, err);
}

static void free_arena(rv_segment *segment)
{
  while (segment->arena != NULL) {
    string_block *next = segment->arena->next;
    free(segment->arena);
    segment->arena = next;
  }
}

void rv_segment_free(rv_chunk *chunk)
{
  rv_segment *segment = segment_of(chunk);
  free_arena(segment);
  if (segment->spare != NULL)
    rv_buf_unref(segment->spare);
  else
    rv_pages_free(segment->data, segment->data_bytes);
  free(segment);
}

bool rv_segment_is_by_rows(const rv_chunk *chunk)
{
  return segment_of_const(chunk)->by_rows;
}

void rv_segment_set_joined(rv_chunk *chunk)
{
  segment_of(chunk)->is_joined = true;
}

bool rv_segment_is_joined(const rv_chunk *chunk)
{
  return segment_of_const(chunk)->is_joined;
}

uint32_t *rv_segment_kept(rv_chunk *chunk)
{
  return &segment_of(chunk)->kept;
}

bool rv_segment_is_for_once(const rv_chunk *chunk)
{
  return segment_of_const(chunk)->for_once;
}

bool rv_segment_movable(const rv_chunk *chunk, const uint8_t **bytes, size_t *size)
{
  const rv_segment *segment = segment_of_const(chunk);
  *bytes = segment->data;
  *size = segment->data_bytes;
  return !chunk->has_strings && segment->spare == NULL;
}

void rv_segment_move(rv_chunk *chunk, rv_cold_place *owned_place, rv_moved *old)
{
  rv_segment *segment = segment_of(chunk);
  *old = (rv_moved){.block = segment->data, .size = segment->data_bytes};
  for (uint32_t i = 0; i < chunk->num_columns; i++)
    if (chunk->lanes[i].row_bytes > 0) chunk->lanes[i].base = NULL;
  segment->data = owned_place->buf.data;
  segment->spare = &owned_place->buf;
}

const rv_cold_place *rv_segment_place(const rv_chunk *chunk)
{
  return (const rv_cold_place *)(const void *)segment_of_const(chunk)->spare;
}

const uint8_t *rv_segment_rows_there(const rv_chunk *chunk, size_t column)
{
  const rv_segment *segment = segment_of_const(chunk);
  return segment->data + offsets_of(segment)[column];
}

bool rv_segment_reuse(rv_chunk *chunk, const rv_chunk_meta *meta)
{
  rv_buf *spare = segment_of(chunk)->spare;
  bool read_elsewhere =
      spare != NULL && atomic_load_explicit(&spare->refs, memory_order_acquire) > 1; /* it is lent (net/ring.h) */
  if (chunk->has_strings || chunk->spilled > 0 || read_elsewhere || rv_segment_is_for_once(chunk)) return false;
  chunk->meta = *meta;
  atomic_store_explicit(&chunk->logged, 0, memory_order_relaxed);
  atomic_store_explicit(&chunk->written, 0, memory_order_relaxed);
  for (uint32_t i = 0; i < chunk->num_columns; i++) atomic_store_explicit(&chunk->lanes[i].published, 0, memory_order_relaxed);
  return true;
}

void rv_segment_touch(rv_chunk *chunk)
{
  rv_segment *segment = segment_of(chunk);
  rv_pages_touch(segment->data, segment->data_bytes);
}

size_t rv_segment_memory(const rv_chunk *chunk)
{
  const rv_segment *segment = segment_of_const(chunk);
  return segment->books_bytes + segment->data_bytes + atomic_load_explicit(&segment->arena_bytes, memory_order_relaxed);
}

int64_t rv_segment_capacity(const rv_chunk *chunk)
{
  return segment_of_const(chunk)->capacity;
}
size_t rv_segment_row_bytes(const rv_chunk *chunk)
{
  return segment_of_const(chunk)->row_bytes;
}

size_t rv_segment_string_bytes(const rv_chunk *chunk, size_t column, int64_t row)
{
  if (chunk->columns[column].dtype != RV_STRING) return 0;
  const rv_lane *lane = &chunk->lanes[column];
  const rv_bytes *strings = (const rv_bytes *)(const void *)(lane->base + (size_t)row * lane->stride);
  size_t bytes = 0;
  for (size_t i = 0; i < lane->row_bytes / sizeof *strings; i++) bytes += strings[i].size;
  return bytes;
}

/* ---- writing ---- */

/* A quarter of what there is: what is not used of the last block is a fifth at most, also where a table may take a few kilobytes in all. */
static size_t next_arena(const rv_segment *segment, size_t size)
{
  size_t capacity = atomic_load_explicit(&segment->arena_bytes, memory_order_relaxed) / 4;
  if (capacity < ARENA_MIN) capacity = ARENA_MIN;
  if (capacity > ARENA_MAX) capacity = ARENA_MAX;
  return capacity < size ? size : capacity;
}

static uint8_t *arena_take(rv_segment *segment, size_t size)
{
  string_block *arena = segment->arena;
  if (arena == NULL || arena->capacity - arena->used < size) {
    size_t capacity = next_arena(segment, size);
    if (capacity > SIZE_MAX - sizeof *arena) return NULL;
    arena = malloc(sizeof *arena + capacity);
    if (arena == NULL) return NULL;
    *arena = (string_block){.next = segment->arena, .capacity = capacity};
    segment->arena = arena;
    atomic_fetch_add_explicit(&segment->arena_bytes, sizeof *arena + capacity, memory_order_relaxed);
  }
  uint8_t *at = arena->bytes + arena->used;
  arena->used += size;
  return at;
}

static rv_code put_strings(rv_segment *segment, rv_bytes *to, const rv_bytes *from, size_t n, rv_error *err)
{
  for (size_t i = 0; i < n; i++) {
    to[i] = (rv_bytes){NULL, from[i].size};
    if (from[i].size == 0) continue;
    uint8_t *bytes = arena_take(segment, from[i].size);
    if (bytes == NULL) {
      to[i].size = 0;
      return rv_fail_memory(err, from[i].size);
    }
    memcpy(bytes, from[i].data, from[i].size);
    to[i].data = bytes;
  }
  return RV_OK;
}

static uint8_t *row_at(rv_segment *segment, size_t column, int64_t row)
{
  const rv_lane *lane = &segment->chunk.lanes[column];
  return segment->data + (lane->base - segment->data) + (size_t)row * lane->stride;
}

static rv_code copy_in(rv_segment *segment, size_t column, int64_t to, const void *rows, size_t stride, size_t n, rv_error *err)
{
  const rv_lane *lane = &segment->chunk.lanes[column];
  uint8_t *at = row_at(segment, column, to);
  if (segment->chunk.columns[column].dtype != RV_STRING) {
    rv_copy_strided(at, lane->stride, rows, stride, lane->row_bytes, n);
    return RV_OK;
  }
  size_t elements = lane->row_bytes / sizeof(rv_bytes);
  for (size_t i = 0; i < n; i++) {
    rv_code code = put_strings(segment, (rv_bytes *)(void *)(at + i * lane->stride),
                               (const rv_bytes *)(const void *)((const uint8_t *)rows + i * stride), elements, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

rv_code rv_segment_fill(rv_chunk *segment, size_t column, int64_t to, const void *rows, size_t n, rv_error *err)
{
  return copy_in(segment_of(segment), column, to, rows, segment->lanes[column].row_bytes, n, err);
}

static rv_code check_place(const rv_chunk *chunk, size_t column, int64_t row, rv_error *err)
{
  if (column >= chunk->num_columns)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %zu of a segment that has %u", column, (unsigned)chunk->num_columns);
  int64_t published = rv_chunk_num_rows(chunk, column), capacity = segment_of_const(chunk)->capacity;
  if (row < published || row >= capacity)
    return rv_fail(err, RV_OUT_OF_RANGE, "row %lld of a segment where rows %lld to %lld may be written", (long long)row,
                   (long long)published, (long long)capacity - 1);
  return RV_OK;
}

static rv_code put(rv_chunk *chunk, size_t column, int64_t row, const rv_tensor *value, bool for_later, rv_error *err)
{
  rv_code code = check_place(chunk, column, row, err);
  if (code != RV_OK) return code;
  const rv_chunk_column *spec = &chunk->columns[column];
  bool same = value->dtype == spec->dtype && value->rank == spec->rank;
  for (uint32_t d = 0; same && d < spec->rank; d++) same = value->shape[d] == spec->shape[d];
  if (!same) {
    char want[96], got[96];
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %zu holds rows of %s, got %s; the first row fixes dtype and shape", column,
                   rv_format_spec(want, sizeof want, spec->dtype, (int32_t)spec->rank, spec->shape),
                   rv_format_spec(got, sizeof got, value->dtype, (int32_t)value->rank, value->shape));
  }
  if (spec->row_bytes == 0) return RV_OK;
  rv_segment *segment = segment_of(chunk);
  if (!for_later || spec->dtype == RV_STRING) return copy_in(segment, column, row, value->data, spec->row_bytes, 1, err);
  rv_copy_past_caches(row_at(segment, column, row), value->data, spec->row_bytes);
  return RV_OK;
}

rv_code rv_segment_put(rv_chunk *segment, size_t column, int64_t row, const rv_tensor *value, rv_error *err)
{
  return put(segment, column, row, value, false, err);
}

rv_code rv_segment_put_for_later(rv_chunk *segment, size_t column, int64_t row, const rv_tensor *value, rv_error *err)
{
  return put(segment, column, row, value, true, err);
}

void rv_segment_publish(rv_chunk *segment, size_t column, int64_t rows)
{
  atomic_store_explicit(&segment->lanes[column].published, rows, memory_order_release);
}

void *rv_segment_row(rv_chunk *chunk, size_t column, int64_t row, size_t *stride)
{
  if (check_place(chunk, column, row, NULL) != RV_OK || chunk->columns[column].dtype == RV_STRING) return NULL;
  *stride = chunk->lanes[column].stride;
  return row_at(segment_of(chunk), column, row);
}

/* What is published is sent and written to files whole: it is to hold nothing that was in this memory before. */
static void clear_rows(rv_segment *segment, size_t column, int64_t to, int64_t count)
{
  const rv_lane *lane = &segment->chunk.lanes[column];
  for (int64_t row = to; row < to + count; row++) memset(row_at(segment, column, row), 0, lane->row_bytes);
}

/* The same rows of another chunk that lies elsewhere. */
static rv_code copy_in_cold(rv_segment *segment, size_t column, int64_t to, const rv_chunk *from, int64_t first, int64_t rows,
                            rv_error *err)
{
  const size_t row_bytes = from->lanes[column].row_bytes;
  rv_buf *copy = rv_buf_new(row_bytes * (size_t)rows);
  if (copy == NULL) return rv_fail_memory(err, row_bytes * (size_t)rows);
  rv_code code = rv_chunk_read_rows(from, column, first, rows, copy->data, err);
  if (code == RV_OK) code = copy_in(segment, column, to, copy->data, row_bytes, (size_t)rows, err);
  rv_buf_unref(copy);
  return code;
}

rv_code rv_segment_copy_rows(rv_chunk *segment, int64_t to, rv_chunk *from, int64_t first, int64_t count, rv_error *err)
{
  for (uint32_t i = 0; i < segment->num_columns; i++) {
    const rv_lane *lane = &from->lanes[i];
    int64_t rows = rv_chunk_num_rows(from, i) - first;
    if (rows > count) rows = count;
    if (rows < 0) rows = 0;
    if (rows < count) clear_rows(segment_of(segment), i, to + rows, count - rows);
    if (rows == 0) continue;
    rv_code code = lane->base == NULL ? copy_in_cold(segment_of(segment), i, to, from, first, rows, err)
                                      : copy_in(segment_of(segment), i, to, lane->base + (size_t)first * lane->stride,
                                                lane->stride, (size_t)rows, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}
