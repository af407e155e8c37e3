#include "store/gather.h"

#include <string.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "store/tally.h"
#include "store/trajectory_parts.h"

enum { BLOCK = 128 };

/* ---- copying ---- */

/* Where a block's rows of one column begin; NULL: not in one piece, uncompressed and of full length. */
typedef struct rv_sources {
  const uint8_t *row[BLOCK];
  size_t stride[BLOCK]; /* from row to row, where an item has several */
} rv_sources;

static rv_code mismatch(uint32_t column, const rv_trajectory_column *got, int64_t length, rv_error *err)
{
  if (got != NULL && got->length > length)
    return rv_fail(err, RV_FAILED_PRECONDITION, "column %u: an item of %lld rows does not fit into a batch of %lld rows an item",
                   (unsigned)column, (long long)got->length, (long long)length);
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "column %u: the drawn items differ in dtype or row shape and cannot stand in one batch; read them one by one",
                 (unsigned)column);
}

static bool same_rows(const rv_chunk_column *a, const rv_chunk_column *b)
{
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  return a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static rv_code check_items(const rv_draw *draws, size_t n, uint32_t column, int64_t length, rv_error *err)
{
  const rv_trajectory *checked = NULL;
  const rv_chunk_column *first = NULL;
  for (size_t i = 0; i < n; i++) {
    const rv_trajectory *trajectory = draws[i].trajectory;
    if (trajectory == checked) continue;
    if (column >= trajectory->num_columns) return mismatch(column, NULL, length, err);
    const rv_trajectory_column *spec = &trajectory->columns[column];
    if (first == NULL) first = spec->spec;
    if (spec->length > length || (spec->spec != first && !same_rows(spec->spec, first))) return mismatch(column, spec, length, err);
    checked = trajectory;
  }
  return RV_OK;
}

static void find_sources(const rv_draw *draws, size_t n, uint32_t column, int64_t length, rv_sources *sources)
{
  for (size_t i = 0; i < n; i++) {
    const rv_trajectory *trajectory = draws[i].trajectory;
    const rv_trajectory_column *spec = &trajectory->columns[column];
    const rv_slice *slice = &trajectory->slices[spec->first_slice];
    const rv_chunk *chunk = slice->chunk == NULL ? draws[i].chunk : slice->chunk;
    int64_t row = slice->offset + (slice->chunk == NULL ? draws[i].base_row : 0);
    const rv_lane *lane = &chunk->lanes[slice->tensor];
    bool whole = spec->num_slices == 1 && spec->length == length && lane->base != NULL;
    sources->row[i] = whole ? lane->base + (size_t)row * lane->stride : NULL;
    sources->stride[i] = lane->stride;
  }
}

#define GATHER_EACH(bytes)                                                          \
  case bytes:                                                                       \
    for (size_t i = 0; i < n; i++)                                                  \
      if (sources->row[i] != NULL) memcpy(out + i * bytes, sources->row[i], bytes); \
    break

static void copy_singles(const rv_sources *sources, size_t n, size_t row_bytes, uint8_t *out)
{
  switch (row_bytes) {
    GATHER_EACH(1);
    GATHER_EACH(2);
    GATHER_EACH(4);
    GATHER_EACH(8);
    GATHER_EACH(12);
    GATHER_EACH(16);
    GATHER_EACH(24);
    GATHER_EACH(32);
    GATHER_EACH(64);
  default:
    for (size_t i = 0; i < n; i++)
      if (sources->row[i] != NULL) memcpy(out + i * row_bytes, sources->row[i], row_bytes);
  }
}

static rv_code copy_block(const rv_draw *draws, size_t n, uint32_t column, int64_t length, uint8_t *out, rv_error *err)
{
  rv_sources sources;
  size_t row_bytes = draws[0].trajectory->columns[column].spec->row_bytes, item_bytes = row_bytes * (size_t)length;
  if (item_bytes == 0) return RV_OK;
  find_sources(draws, n, column, length, &sources);
  if (length == 1)
    copy_singles(&sources, n, row_bytes, out);
  else
    for (size_t i = 0; i < n; i++)
      if (sources.row[i] != NULL)
        rv_copy_strided(out + i * item_bytes, row_bytes, sources.row[i], sources.stride[i], row_bytes, (size_t)length);
  for (size_t i = 0; i < n; i++) {
    if (sources.row[i] != NULL) continue;
    rv_code code = rv_draw_copy_column(&draws[i], column, out + i * item_bytes, err);
    if (code != RV_OK) return code;
    size_t have = row_bytes * (size_t)draws[i].trajectory->columns[column].length;
    memset(out + i * item_bytes + have, 0, item_bytes - have);
  }
  return RV_OK;
}

/* The first row of each item, on its way while those before it are copied. Columns beside each other share it. */
static void fetch_ahead(const rv_draw *draws, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    if (draws[i].chunk == NULL) continue;
    const rv_lane *lane = &draws[i].chunk->lanes[draws[i].trajectory->slices[0].tensor];
    if (lane->base != NULL) __builtin_prefetch(lane->base + (size_t)draws[i].base_row * lane->stride);
  }
}

rv_code rv_draws_gather_all(const rv_draw *draws, size_t n, const int64_t *lengths, void *const *outs, size_t num_columns,
                            rv_error *err)
{
  if (n == 0) return RV_OK;
  for (uint32_t c = 0; c < num_columns; c++) {
    rv_code code = outs[c] == NULL ? RV_OK : check_items(draws, n, c, lengths[c], err);
    if (code != RV_OK) return code;
  }
  for (size_t first = 0; first < n; first += BLOCK) {
    size_t count = n - first < BLOCK ? n - first : BLOCK;
    fetch_ahead(draws + first, count);
    for (uint32_t c = 0; c < num_columns; c++) {
      if (outs[c] == NULL) continue;
      size_t item_bytes = draws[0].trajectory->columns[c].spec->row_bytes * (size_t)lengths[c];
      rv_code code = copy_block(draws + first, count, c, lengths[c], (uint8_t *)outs[c] + first * item_bytes, err);
      if (code != RV_OK) return code;
    }
  }
  return RV_OK;
}

rv_code rv_draws_gather(const rv_draw *draws, size_t n, uint32_t column, int64_t length, void *out, rv_error *err)
{
  if (n == 0) return RV_OK;
  rv_code code = check_items(draws, n, column, length, err);
  if (code != RV_OK) return code;
  size_t item_bytes = draws[0].trajectory->columns[column].spec->row_bytes * (size_t)length;
  for (size_t first = 0; first < n && code == RV_OK; first += BLOCK) {
    size_t count = n - first < BLOCK ? n - first : BLOCK;
    code = copy_block(draws + first, count, column, length, (uint8_t *)out + first * item_bytes, err);
  }
  return code;
}

/* ---- releasing ---- */

static void drop_chunk(void *chunk, size_t n) { rv_chunk_unref_many(chunk, n); }
static void drop_trajectory(void *trajectory, size_t n) { rv_trajectory_unref_many(trajectory, n); }

void rv_draws_release(rv_draw *draws, size_t n)
{
  if (n < 4) {
    for (size_t i = 0; i < n; i++) rv_draw_release(&draws[i]);
    return;
  }
  rv_tally chunks, trajectories;
  rv_tally_init(&chunks);
  rv_tally_init(&trajectories);
  for (size_t i = 0; i < n; i++) {
    if (draws[i].chunk != NULL) rv_tally_add(&chunks, draws[i].chunk, drop_chunk);
    if (draws[i].trajectory != NULL) rv_tally_add(&trajectories, draws[i].trajectory, drop_trajectory);
    draws[i].chunk = NULL;
    draws[i].trajectory = NULL;
  }
  rv_tally_end(&chunks, drop_chunk);
  rv_tally_end(&trajectories, drop_trajectory);
}
