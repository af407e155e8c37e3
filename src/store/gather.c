#include "store/gather.h"

#include <stdatomic.h>
#include <string.h>

#include "base/copy_ahead.h"
#include "base/error.h"
#include "base/fetches.h"
#include "base/small_copies.h"
#include "store/row_plan.h"
#include "store/tally.h"
#include "store/trajectory_parts.h"

enum {
  BLOCK = 128,
  LINE = 64,
  ROWS_AHEAD = 6,
  MANY_ROWS = 64,           /* small ones: so many are taken apart together */
  TOGETHER_BYTES = 1 << 19, /* of a batch: worth waking somebody for */
  PIECES = 64,              /* of a batch, at most */
  PIECE_BYTES = 24 << 10    /* at least */
};

/* ---- copying ---- */

/* Where a block's rows of one column begin; NULL: not in one piece, uncompressed and of full length. */
typedef struct rv_sources {
  const uint8_t *row[BLOCK];
  size_t stride[BLOCK]; /* from row to row, where an item has several */
  bool scattered;       /* some are NULL */
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
    if (spec->length > length || (spec->spec != first && !same_rows(spec->spec, first)))
      return mismatch(column, spec, length, err);
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
    if (!whole) sources->scattered = true;
  }
}

/* The same for items that all use one template, the column of which is one slice as long as wanted: mostly so. */
static void find_template_sources(const rv_draw *draws, size_t n, const rv_slice *slice, rv_sources *sources)
{
  const uint32_t tensor = slice->tensor;
  const int64_t offset = slice->offset;
  const uint8_t *least = (const uint8_t *)UINTPTR_MAX;
  for (size_t i = 0; i < n; i++) {
    const rv_lane *lane = &draws[i].chunk->lanes[tensor];
    const uint8_t *base = lane->base;
    size_t stride = lane->stride;
    sources->row[i] = base == NULL ? NULL : base + (size_t)(draws[i].base_row + offset) * stride;
    sources->stride[i] = stride;
    if (base < least) least = base;
  }
  sources->scattered = least == NULL;
}

#define GATHER_EACH(bytes)                                                                                                       \
  case bytes:                                                                                                                    \
    for (size_t i = 0; i < n; i++) memcpy(out + i * bytes, sources->row[i], bytes);                                              \
    return

/* `next`: what is copied after it, as many bytes; NULL: nothing. */
static void copy_row(uint8_t *out, const uint8_t *row, size_t bytes, const uint8_t *next)
{
  if (bytes >= RV_COPY_AHEAD_LEAST)
    rv_copy_ahead(out, row, bytes, next, bytes);
  else
    rv_copy_odd(out, row, bytes);
}

/* Larger rows are fetched while the one before is copied. */
RV_FETCHES void fetch_row(const uint8_t *row, size_t bytes)
{
  if (row == NULL || bytes == 0 || bytes >= RV_COPY_AHEAD_LEAST) return;
  for (size_t at = 0; at < bytes; at += LINE) RV_FETCH(row + at);
  RV_FETCH(row + bytes - 1);
}

/* One row of each item. */
static void copy_singles(const rv_sources *sources, size_t n, size_t row_bytes, uint8_t *out)
{
  if (!sources->scattered) switch (row_bytes) {
      RV_COMMON_SIZES(GATHER_EACH);
      GATHER_EACH(64);
    default: break;
    }
  for (size_t i = 0; i < n; i++) {
    if (i + ROWS_AHEAD < n) fetch_row(sources->row[i + ROWS_AHEAD], row_bytes);
    if (sources->row[i] == NULL) continue;
    copy_row(out + i * row_bytes, sources->row[i], row_bytes, i + 1 < n ? sources->row[i + 1] : NULL);
  }
}

/* Several rows of each item. */
static void copy_runs(const rv_sources *sources, size_t n, size_t row_bytes, size_t length, uint8_t *out)
{
  const size_t item_bytes = row_bytes * length;
  for (size_t i = 0; i < n; i++) {
    if (sources->row[i] == NULL) continue;
    if (sources->stride[i] == row_bytes) {
      copy_row(out + i * item_bytes, sources->row[i], item_bytes, i + 1 < n ? sources->row[i + 1] : NULL);
    } else {
      rv_copy_strided(out + i * item_bytes, row_bytes, sources->row[i], sources->stride[i], row_bytes, length);
    }
  }
}

/* Items whose rows do not lie in one piece, uncompressed and of full length. */
static rv_code copy_scattered(const rv_draw *draws, size_t n, uint32_t column, const rv_sources *sources, size_t item_bytes,
                              uint8_t *out, rv_error *err)
{
  for (size_t i = 0; i < n; i++) {
    if (sources->row[i] != NULL) continue;
    rv_code code = rv_draw_copy_column(&draws[i], column, out + i * item_bytes, err);
    if (code != RV_OK) return code;
    const rv_trajectory_column *spec = &draws[i].trajectory->columns[column];
    size_t have = spec->spec->row_bytes * (size_t)spec->length;
    memset(out + i * item_bytes + have, 0, item_bytes - have);
  }
  return RV_OK;
}

static rv_code copy_block(const rv_draw *draws, size_t n, const rv_trajectory *template, uint32_t column, int64_t length,
                          uint8_t *out, rv_error *err)
{
  const rv_trajectory_column *spec = &draws[0].trajectory->columns[column];
  size_t row_bytes = spec->spec->row_bytes, item_bytes = row_bytes * (size_t)length;
  if (item_bytes == 0) return RV_OK;
  rv_sources sources;
  sources.scattered = false;
  if (template != NULL && spec->num_slices == 1 && spec->length == length)
    find_template_sources(draws, n, &template->slices[spec->first_slice], &sources);
  else
    find_sources(draws, n, column, length, &sources);
  if (length == 1)
    copy_singles(&sources, n, row_bytes, out);
  else
    copy_runs(&sources, n, row_bytes, (size_t)length, out);
  return sources.scattered ? copy_scattered(draws, n, column, &sources, item_bytes, out, err) : RV_OK;
}

/* The template that all items use, or NULL. */
static const rv_trajectory *one_template(const rv_draw *draws, size_t n)
{
  const rv_trajectory *template = draws[0].trajectory;
  if (template->num_chunks > 0) return NULL;
  for (size_t i = 1; i < n; i++)
    if (draws[i].trajectory != template) return NULL;
  return template;
}

/* The first row of each item, on its way while those before it are copied. Columns beside each other share it. */
RV_FETCHES void fetch_ahead(const rv_draw *draws, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    if (draws[i].chunk == NULL) continue;
    const rv_lane *lane = &draws[i].chunk->lanes[draws[i].trajectory->slices[0].tensor];
    if (lane->base != NULL) RV_FETCH(lane->base + (size_t)draws[i].base_row * lane->stride);
  }
}

/* ---- columns beside each other ---- */

enum { VERIFIED = 16 };

/* What is copied by a plan: small columns that lie beside each other. */
typedef struct rv_beside {
  rv_row_plan plan;
  rv_row_shuffle shuffle;
  bool any, column[RV_PLAN_COLUMNS]; /* by column of the item */
} rv_beside;

/* Segments that lie as planned: each that comes is compared with the plan once. */
typedef struct rv_verified {
  const rv_chunk *chunk[VERIFIED];
} rv_verified;

static void find_beside(rv_beside *beside, const rv_draw *draws, size_t n, const rv_trajectory *template, const int64_t *lengths,
                        void *const *outs, size_t num_columns)
{
  rv_row_plan *plan = &beside->plan;
  beside->any = false;
  beside->shuffle.num_pieces = 0;
  memset(beside->column, 0, sizeof beside->column);
  if (template == NULL) return;
  rv_row_plan_make(plan, template, draws[0].chunk);
  for (uint32_t c = 0; plan->any && c < num_columns && c < RV_PLAN_COLUMNS; c++) {
    bool alone = plan->stride == plan->column[c].row_bytes;
    beside->column[c] = outs[c] != NULL && plan->column[c].planned && !alone && plan->column[c].length == lengths[c];
    beside->any |= beside->column[c];
  }
  if (beside->any && n * (size_t)plan->longest >= MANY_ROWS) rv_row_shuffle_make(&beside->shuffle, plan);
}

/* Each item's base row in the first planned tensor, which is on its way then; false: some segment is not like the others. */
static bool find_rows(const rv_beside *beside, rv_verified *verified, const rv_draw *draws, size_t n, const uint8_t **rows)
{
  if (!beside->any) return false;
  const ptrdiff_t stride = (ptrdiff_t)beside->plan.stride;
  for (size_t i = 0; i < n; i++) {
    const rv_chunk *chunk = draws[i].chunk;
    const rv_chunk **known = &verified->chunk[((uintptr_t)chunk >> 6 ^ (uintptr_t)chunk >> 10) % VERIFIED];
    if (*known != chunk) {
      if (!rv_row_plan_fits(&beside->plan, chunk)) return false;
      *known = chunk;
    }
    rows[i] = rv_row_plan_base(&beside->plan, chunk) + draws[i].base_row * stride;
    RV_FETCH(rows[i]);
    RV_FETCH(rows[i] + stride - 1);
  }
  return true;
}

/* ---- the verbs ---- */

typedef struct rv_gathering {
  const rv_draw *draws;
  size_t n;
  const rv_trajectory *template; /* that all items use; NULL: several */
  const int64_t *lengths;
  void *const *outs;
  size_t num_columns;
  const rv_beside *beside;
  size_t piece; /* items */
  atomic_int code;
  rv_error *err;
} rv_gathering;

/* Where a column of item number `first` and those behind it goes. */
static uint8_t *out_of(const rv_gathering *g, uint32_t column, size_t first)
{
  size_t row_bytes = g->draws[0].trajectory->columns[column].spec->row_bytes;
  return (uint8_t *)g->outs[column] + first * row_bytes * (size_t)g->lengths[column];
}

static bool is_beside(const rv_beside *beside, uint32_t column)
{
  return column < RV_PLAN_COLUMNS && beside->column[column];
}

/* The columns that lie beside each other. */
static void copy_beside(const rv_gathering *g, const uint8_t *const *rows, size_t first, size_t count)
{
  uint8_t *outs[RV_PLAN_COLUMNS] = {NULL};
  for (uint32_t c = 0; c < g->num_columns && c < RV_PLAN_COLUMNS; c++)
    if (is_beside(g->beside, c)) outs[c] = out_of(g, c, first);
  rv_row_plan_copy(&g->beside->plan, &g->beside->shuffle, rows, count, outs);
}

/* Large columns first: meanwhile the small ones come. */
static rv_code gather_block(const rv_gathering *g, rv_verified *verified, size_t first, size_t count, rv_error *err)
{
  const rv_draw *draws = g->draws + first;
  const uint8_t *rows[BLOCK];
  bool found = find_rows(g->beside, verified, draws, count, rows);
  if (!found) fetch_ahead(draws, count);
  for (uint32_t c = 0; c < g->num_columns; c++) {
    if (g->outs[c] == NULL || (found && is_beside(g->beside, c))) continue;
    rv_code code = copy_block(draws, count, g->template, c, g->lengths[c], out_of(g, c, first), err);
    if (code != RV_OK) return code;
  }
  if (found) copy_beside(g, rows, first, count);
  return RV_OK;
}

static rv_code gather_items(const rv_gathering *g, size_t first, size_t n, rv_error *err)
{
  rv_verified verified = {{NULL}};
  rv_code code = RV_OK;
  for (size_t end = first + n; first < end && code == RV_OK; first += BLOCK)
    code = gather_block(g, &verified, first, end - first < BLOCK ? end - first : BLOCK, err);
  return code;
}

/* The first failure is kept; what follows is left out. */
static void gather_piece(void *context, size_t i)
{
  rv_gathering *g = context;
  if (atomic_load_explicit(&g->code, memory_order_relaxed) != RV_OK) return;
  rv_error err;
  size_t first = i * g->piece;
  rv_code code = gather_items(g, first, g->n - first < g->piece ? g->n - first : g->piece, &err);
  int fine = RV_OK;
  if (code == RV_OK || !atomic_compare_exchange_strong(&g->code, &fine, code)) return;
  rv_error_copy(g->err, &err);
}

static size_t bytes_of_item(const rv_gathering *g)
{
  size_t bytes = 0;
  for (uint32_t c = 0; c < g->num_columns; c++)
    if (g->outs[c] != NULL) bytes += g->draws[0].trajectory->columns[c].spec->row_bytes * (size_t)g->lengths[c];
  return bytes;
}

rv_code rv_draws_gather_all(const rv_draw *draws, size_t n, const int64_t *lengths, void *const *outs, size_t num_columns,
                            rv_error *err)
{
  return rv_draws_gather_together(NULL, draws, n, lengths, outs, num_columns, err);
}

static rv_code gather_together(rv_crew *crew, const rv_draw *draws, size_t n, const int64_t *lengths, void *const *outs,
                               size_t num_columns, rv_error *err)
{
  if (n == 0) return RV_OK;
  rv_gathering g = {.draws = draws,
                    .n = n,
                    .template = one_template(draws, n),
                    .lengths = lengths,
                    .outs = outs,
                    .num_columns = num_columns,
                    .err = err};
  size_t checked = g.template == NULL ? n : 1;
  for (uint32_t c = 0; c < num_columns; c++) {
    rv_code code = outs[c] == NULL ? RV_OK : check_items(draws, checked, c, lengths[c], err);
    if (code != RV_OK) return code;
  }
  rv_beside beside;
  find_beside(&beside, draws, n, g.template, lengths, outs, num_columns);
  size_t bytes = bytes_of_item(&g);
  g.beside = &beside;
  if (crew == NULL || bytes == 0 || bytes < TOGETHER_BYTES / n) return gather_items(&g, 0, n, err);
  g.piece = n / PIECES + 1;
  if (g.piece < PIECE_BYTES / bytes) g.piece = PIECE_BYTES / bytes;
  atomic_init(&g.code, RV_OK);
  rv_crew_run(crew, (n + g.piece - 1) / g.piece, bytes * n, gather_piece, &g);
  return (rv_code)atomic_load(&g.code);
}

rv_code rv_draws_gather_together(rv_crew *crew, const rv_draw *draws, size_t n, const int64_t *lengths, void *const *outs,
                                 size_t num_columns, rv_error *err)
{
  const rv_cold_reading reading = rv_draws_begin_reading(draws, n);
  rv_code code = gather_together(crew, draws, n, lengths, outs, num_columns, err);
  rv_draws_end_reading(&reading);
  return code;
}

rv_code rv_draws_gather(const rv_draw *draws, size_t n, uint32_t column, int64_t length, void *out, rv_error *err)
{
  if (n == 0) return RV_OK;
  const rv_trajectory *template = one_template(draws, n);
  rv_code code = check_items(draws, template == NULL ? n : 1, column, length, err);
  if (code != RV_OK) return code;
  size_t item_bytes = draws[0].trajectory->columns[column].spec->row_bytes * (size_t)length;
  for (size_t first = 0; first < n && code == RV_OK; first += BLOCK) {
    size_t count = n - first < BLOCK ? n - first : BLOCK;
    code = copy_block(draws + first, count, template, column, length, (uint8_t *)out + first * item_bytes, err);
  }
  return code;
}

bool rv_draw_is_raw(const rv_draw *draw)
{
  for (uint32_t i = 0; i < draw->trajectory->num_slices; i++) {
    rv_slice slice = rv_draw_slice(draw, i);
    const rv_lane *lane = &slice.chunk->lanes[slice.tensor];
    if (lane->base == NULL && lane->row_bytes > 0 && slice.length > 0 && !rv_chunk_is_raw(slice.chunk, slice.tensor))
      return false;
  }
  return true;
}

/* ---- releasing ---- */

static void drop_chunk(void *chunk, size_t n)
{
  rv_chunk_unref_many(chunk, n);
}

void rv_draws_release(rv_draw *draws, size_t n)
{
  if (n < 4) {
    for (size_t i = 0; i < n; i++) rv_draw_release(&draws[i]);
    return;
  }
  rv_tally chunks;
  rv_tally_init(&chunks);
  rv_trajectory *trajectory = NULL; /* runs of one template are long */
  size_t run = 0;
  for (size_t i = 0; i < n; i++) {
    if (draws[i].chunk != NULL) rv_tally_add(&chunks, draws[i].chunk, drop_chunk);
    if (draws[i].trajectory != trajectory) {
      if (trajectory != NULL) rv_trajectory_unref_many(trajectory, run);
      trajectory = draws[i].trajectory;
      run = 0;
    }
    run++;
    draws[i].chunk = NULL;
    draws[i].trajectory = NULL;
  }
  if (trajectory != NULL) rv_trajectory_unref_many(trajectory, run);
  rv_tally_end(&chunks, drop_chunk);
}
