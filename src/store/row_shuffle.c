#include "store/row_shuffle.h"

#include <string.h>

#include "store/row_plan.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define RV_ROW_SHUFFLE_X86
#include <immintrin.h>
#endif

#ifndef RV_ROW_SHUFFLE_X86

bool rv_row_shuffle_here(void)
{
  return false;
}
void rv_row_shuffle_make(rv_row_shuffle *shuffle, const rv_row_plan *plan)
{
  (void)plan;
  shuffle->num_pieces = 0;
}
size_t rv_row_shuffle_copy(const rv_row_shuffle *shuffle, const uint8_t *const *items, size_t n, uint8_t *const *outs)
{
  (void)shuffle;
  (void)items;
  (void)n;
  (void)outs;
  return 0;
}

#else

enum {
  VECTOR = 64,
  GROUPS = 8,    /* taken apart together, at most: a piece is read, and its place found, once for all of a run */
  RUN_COST = 5,  /* that, in groups */
  LOADS_COST = 1 /* of a group, in stores */
};

/* ---- making one ---- */

bool rv_row_shuffle_here(void)
{
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vbmi");
}

static bool is_copied(const rv_row_plan *plan, uint32_t c)
{
  return plan->column[c].planned && plan->column[c].row_bytes > 0 && plan->column[c].length > 0;
}

static uint32_t num_columns(const rv_row_plan *plan)
{
  return plan->num_columns < RV_PLAN_COLUMNS ? plan->num_columns : RV_PLAN_COLUMNS;
}

static bool is_named_before(const rv_row_plan *plan, uint32_t c)
{
  for (uint32_t b = 0; b < c; b++)
    if (is_copied(plan, b) && plan->column[b].tensor == plan->column[c].tensor) return true;
  return false;
}

/* All columns begin in the same row, and nothing else stands between them there. */
static bool find_columns(rv_row_shuffle *shuffle, const rv_row_plan *plan)
{
  ptrdiff_t begin = 0, end = 0, row = 0;
  int64_t shortest = 0;
  size_t bytes = 0;
  for (uint32_t c = 0; c < num_columns(plan); c++) {
    if (!is_copied(plan, c)) continue;
    const ptrdiff_t at = plan->column[c].delta, behind = at + (ptrdiff_t)plan->column[c].row_bytes;
    const int64_t length = plan->column[c].length;
    bool first = bytes == 0;
    if (!first && at - plan->column[c].offset != row) return false;
    row = at - plan->column[c].offset;
    if (first || at < begin) begin = at;
    if (first || behind > end) end = behind;
    if (first || length < shortest) shortest = length;
    if (!is_named_before(plan, c)) bytes += plan->column[c].row_bytes;
  }
  shuffle->first = begin;
  shuffle->width = bytes;
  shuffle->length = (size_t)shortest;
  shuffle->stride = plan->stride;
  return bytes > 0 && end - begin == (ptrdiff_t)bytes;
}

static size_t widest_in(size_t bytes)
{
  size_t width = VECTOR;
  while (width > bytes) width /= 2;
  return width;
}

/* What storing what the columns have of so many rows costs: one piece of each, or two that overlap; a whole vector is as dear as two of what is less.
 * 0: there are too many pieces. */
static size_t cost_of_stores(const rv_row_plan *plan, size_t rows)
{
  size_t cost = 0, pieces = 0;
  for (uint32_t c = 0; c < num_columns(plan); c++) {
    if (!is_copied(plan, c)) continue;
    const size_t bytes = plan->column[c].row_bytes * rows, width = widest_in(bytes), stores = bytes == width ? 1 : 2;
    cost += width == VECTOR ? 2 * stores : stores;
    pieces += stores;
  }
  return pieces <= RV_SHUFFLE_PIECES ? cost : 0;
}

/* The same for a row that is copied piece by piece. */
static size_t cost_of_row(const rv_row_plan *plan)
{
  enum { COPIED_AT_ONCE = 16 };
  size_t cost = 0;
  for (uint32_t c = 0; c < num_columns(plan); c++)
    if (is_copied(plan, c)) cost += (plan->column[c].row_bytes + COPIED_AT_ONCE - 1) / COPIED_AT_ONCE;
  return cost;
}

/* Rows of a group, which two vectors take, and groups together: as many as make an item cheapest, of which the last may be taken apart twice. Nothing is
 * between them that the items do not have. */
static bool choose_groups(rv_row_shuffle *shuffle, const rv_row_plan *plan)
{
  const size_t stride = shuffle->stride, width = shuffle->width, length = shuffle->length;
  const size_t most = length * cost_of_row(plan) * 8 / 5; /* what is stored by itself is loaded by itself, too */
  size_t least = most;
  if (stride > RV_SHUFFLE_STRIDE || width != plan->beside_bytes) return false;
  for (size_t rows = (2 * VECTOR - width) / stride + 1; rows > 0 && (rows - 1) * stride + width >= VECTOR; rows--) {
    const size_t stores = cost_of_stores(plan, rows);
    for (size_t groups = GROUPS; groups > 0 && stores > 0; groups /= 2) {
      const size_t together = groups * rows, runs = (length + together - 1) / together;
      const size_t cost = runs * (groups + RUN_COST) * (stores + LOADS_COST);
      if (together > length || cost >= least) continue;
      least = cost;
      shuffle->rows = rows;
      shuffle->groups = groups;
    }
  }
  if (least == most) return false;
  shuffle->second = (shuffle->rows - 1) * stride + width - VECTOR;
  return true;
}

/* Where the two vectors of a group have a byte of a row. */
static size_t place_of(const rv_row_shuffle *shuffle, size_t row, size_t byte)
{
  size_t at = row * shuffle->stride + byte;
  return at < VECTOR ? at : VECTOR + at - shuffle->second;
}

static void add_piece(rv_row_shuffle *shuffle, const rv_row_plan *plan, uint32_t c, size_t at, size_t width)
{
  rv_shuffle_piece *piece = &shuffle->piece[shuffle->num_pieces++];
  const size_t row_bytes = plan->column[c].row_bytes, from = (size_t)(plan->column[c].delta - shuffle->first);
  *piece = (rv_shuffle_piece){.column = c,
                              .at = (uint32_t)at,
                              .row_bytes = (uint32_t)row_bytes,
                              .group_bytes = (uint32_t)(row_bytes * shuffle->rows),
                              .item_bytes = row_bytes * (size_t)plan->column[c].length};
  for (size_t i = 0; i < width; i++)
    piece->source[i] = (uint8_t)place_of(shuffle, (at + i) / row_bytes, from + (at + i) % row_bytes);
}

/* The widest pieces first. */
static void divide(rv_row_shuffle *shuffle, const rv_row_plan *plan)
{
  size_t width = VECTOR;
  for (size_t k = 0; k < RV_SHUFFLE_WIDTHS; k++, width /= 2) {
    for (uint32_t c = 0; c < num_columns(plan); c++) {
      const size_t bytes = plan->column[c].row_bytes * shuffle->rows;
      if (!is_copied(plan, c) || widest_in(bytes) != width) continue;
      add_piece(shuffle, plan, c, 0, width);
      if (bytes > width) add_piece(shuffle, plan, c, bytes - width, width);
    }
    shuffle->ends[k] = shuffle->num_pieces;
  }
}

void rv_row_shuffle_make(rv_row_shuffle *shuffle, const rv_row_plan *plan)
{
  shuffle->num_pieces = 0;
  if (!plan->any || !rv_row_shuffle_here() || !find_columns(shuffle, plan) || !choose_groups(shuffle, plan)) return;
  divide(shuffle, plan);
}

/* ---- taking apart ---- */

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define INLINE TARGET __attribute__((always_inline)) static inline

INLINE void store(uint8_t *to, __m512i bytes, size_t width)
{
  const __m128i few = _mm512_castsi512_si128(bytes);
  const uint32_t four = (uint32_t)_mm_cvtsi128_si32(few);
  switch (width) {
  case 64: _mm512_storeu_si512(to, bytes); break;
  case 32: _mm256_storeu_si256((__m256i *)(void *)to, _mm512_castsi512_si256(bytes)); break;
  case 16: _mm_storeu_si128((__m128i *)(void *)to, few); break;
  case 8: _mm_storel_epi64((__m128i *)(void *)to, few); break;
  case 4: memcpy(to, &four, 4); break;
  case 2: memcpy(to, &four, 2); break;
  default: *to = (uint8_t)four; break;
  }
}

INLINE void put(const rv_shuffle_piece *piece, size_t width, const __m512i *low, const __m512i *high, size_t groups,
                uint8_t *const *outs, size_t item, size_t row)
{
  uint8_t *to = outs[piece->column];
  if (to == NULL) return;
  to += item * piece->item_bytes + row * piece->row_bytes + piece->at;
  const __m512i source = _mm512_loadu_si512(piece->source);
  const size_t group_bytes = piece->group_bytes;
  _Pragma("GCC unroll 8") for (size_t g = 0; g < groups; g++)
      store(to + g * group_bytes, _mm512_permutex2var_epi8(low[g], source, high[g]), width);
}

/* Groups that begin with this row of this item. */
INLINE void put_all(const rv_row_shuffle *shuffle, const __m512i *low, const __m512i *high, size_t groups, uint8_t *const *outs,
                    size_t item, size_t row)
{
  const rv_shuffle_piece *piece = shuffle->piece;
#define PUT_EACH(k, width)                                                                                                       \
  for (const rv_shuffle_piece *end = shuffle->piece + shuffle->ends[k]; piece < end; piece++)                                    \
  put(piece, width, low, high, groups, outs, item, row)
  PUT_EACH(0, 64);
  PUT_EACH(1, 32);
  PUT_EACH(2, 16);
  PUT_EACH(3, 8);
  PUT_EACH(4, 4);
  PUT_EACH(5, 2);
  PUT_EACH(6, 1);
}

/* The last run overlaps the one before where there is no whole number of them. */
INLINE void copy_run(const rv_row_shuffle *shuffle, const uint8_t *from, size_t item, size_t groups, uint8_t *const *outs)
{
  const size_t step = groups * shuffle->rows, last = shuffle->length - step, group_stride = shuffle->rows * shuffle->stride;
  for (size_t row = 0;; row = row + step < last ? row + step : last) {
    __m512i low[GROUPS], high[GROUPS];
    const uint8_t *at = from + row * shuffle->stride;
    _Pragma("GCC unroll 8") for (size_t g = 0; g < groups; g++, at += group_stride)
    {
      low[g] = _mm512_loadu_si512(at);
      high[g] = _mm512_loadu_si512(at + shuffle->second);
    }
    put_all(shuffle, low, high, groups, outs, item, row);
    if (row == last) return;
  }
}

#define COPY_RUNS(groups)                                                                                                        \
  case groups:                                                                                                                   \
    for (size_t i = 0; i < n; i++) copy_run(shuffle, items[i] + shuffle->first, i, groups, outs);                                \
    return

TARGET static void copy_runs(const rv_row_shuffle *shuffle, const uint8_t *const *items, size_t n, uint8_t *const *outs)
{
  switch (shuffle->groups) {
    COPY_RUNS(8);
    COPY_RUNS(4);
    COPY_RUNS(2);
    COPY_RUNS(1);
  }
}

size_t rv_row_shuffle_copy(const rv_row_shuffle *shuffle, const uint8_t *const *items, size_t n, uint8_t *const *outs)
{
  if (shuffle->num_pieces == 0) return 0;
  copy_runs(shuffle, items, n, outs);
  return shuffle->length;
}

#endif
