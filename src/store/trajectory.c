#include "store/trajectory.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/refs.h"
#include "store/chunk_parts.h"
#include "store/trajectory_parts.h"

enum { FEW_CHUNKS = 16, SPARE_PARTS = 16 /* columns, or slices, of one whose memory is kept */ };

rv_trajectory *rv_trajectory_ref(rv_trajectory *trajectory)
{
  rv_trajectory_ref_many(trajectory, 1);
  return trajectory;
}

void rv_trajectory_ref_many(rv_trajectory *trajectory, size_t n)
{
  atomic_fetch_add_explicit(&rv_trajectory_box_of(trajectory)->refs, n, memory_order_relaxed);
}

void rv_trajectory_unref_many(rv_trajectory *trajectory, size_t n)
{
  rv_trajectory_box *box = rv_trajectory_box_of(trajectory);
  if (!rv_refs_drop(&box->refs, n)) return;
  for (uint32_t i = 0; i < trajectory->num_chunks; i++) rv_chunk_unref(trajectory->chunks[i]);
  rv_layout_unref(trajectory->layout);
  free(box);
}

void rv_trajectory_unref(rv_trajectory *trajectory)
{
  if (trajectory != NULL) rv_trajectory_unref_many(trajectory, 1);
}

/* ---- making one ---- */

static rv_code new_box(uint32_t num_columns, uint32_t num_slices, uint32_t max_chunks, rv_trajectory_box **out, rv_error *err)
{
  size_t bytes = sizeof(rv_trajectory_box) + num_columns * sizeof(rv_trajectory_column) + num_slices * sizeof(rv_slice) +
                 max_chunks * (sizeof(rv_chunk *) + sizeof(rv_reach)); /* 32-bit counts: no overflow */
  if (num_slices > RV_TRAJECTORY_FEW && max_chunks > 0) bytes += sizeof(rv_trajectory_sums);
  rv_trajectory_box *box = malloc(bytes);
  if (box == NULL) return rv_fail_memory(err, bytes);
  *box = (rv_trajectory_box){.shown = {.num_columns = num_columns, .num_slices = num_slices}, .memory = bytes};
  atomic_init(&box->refs, 1);
  box->shown.columns = (rv_trajectory_column *)(void *)(box + 1);
  box->shown.slices = (rv_slice *)(void *)(box->shown.columns + num_columns);
  box->shown.chunks = (rv_chunk **)(void *)(box->shown.slices + num_slices);
  box->reaches = (rv_reach *)(void *)(box->shown.chunks + max_chunks);
  *out = box;
  return RV_OK;
}

static rv_code check_slice(const rv_slice *slice, uint32_t column, const rv_chunk_column *first, rv_error *err)
{
  if (slice->tensor >= slice->chunk->num_columns)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %u: tensor %u of a chunk that has %u", (unsigned)column,
                   (unsigned)slice->tensor, (unsigned)slice->chunk->num_columns);
  int64_t rows = rv_chunk_num_rows(slice->chunk, slice->tensor);
  if (slice->offset < 0 || slice->length < 0 || (int64_t)slice->offset + slice->length > rows)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %u: %d rows from row %d of a chunk that has %lld", (unsigned)column,
                   (int)slice->length, (int)slice->offset, (long long)rows);
  const rv_chunk_column *spec = rv_chunk_get_column(slice->chunk, slice->tensor);
  bool same = spec->dtype == first->dtype && spec->rank == first->rank;
  for (uint32_t d = 0; same && d < spec->rank; d++) same = spec->shape[d] == first->shape[d];
  if (!same)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %u: its slices differ in dtype or row shape; all rows of a column are alike",
                   (unsigned)column);
  return RV_OK;
}

/* One column's lengths and layout; `slices` are its own. */
static rv_code check_column(const rv_slice *slices, uint32_t n, bool squeeze, uint32_t column, rv_layout_column *out,
                            rv_error *err)
{
  if (n == 0) return rv_fail(err, RV_INVALID_ARGUMENT, "column %u: no slices; a column needs at least one", (unsigned)column);
  if (slices[0].tensor >= slices[0].chunk->num_columns) return check_slice(&slices[0], column, NULL, err);
  const rv_chunk_column *first = rv_chunk_get_column(slices[0].chunk, slices[0].tensor);
  int64_t length = 0;
  for (uint32_t i = 0; i < n; i++) {
    rv_code code = check_slice(&slices[i], column, first, err);
    if (code != RV_OK) return code;
    length += slices[i].length;
  }
  if (squeeze && length != 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %u: %lld rows cannot be squeezed; only exactly one can", (unsigned)column,
                   (long long)length);
  *out = (rv_layout_column){.spec = *first, .length = length, .squeeze = squeeze};
  return RV_OK;
}

static rv_code check_columns(const rv_trajectory_desc *desc, rv_layout_column *columns, uint32_t *num_slices, rv_error *err)
{
  uint64_t total = 0;
  for (uint32_t i = 0; i < desc->num_columns; i++) total += desc->num_slices[i];
  if (total > INT32_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column 0: the trajectory has %llu slices in all; at most 2^31 - 1 are possible",
                   (unsigned long long)total);
  *num_slices = (uint32_t)total;
  const rv_slice *slices = desc->slices;
  for (uint32_t i = 0; i < desc->num_columns; i++) {
    rv_code code = check_column(slices, desc->num_slices[i], desc->squeeze[i], i, &columns[i], err);
    if (code != RV_OK) return code;
    slices += desc->num_slices[i];
  }
  return RV_OK;
}

/* Where a chunk's number, counted from 1, stands in the set, or would stand. */
static uint32_t *place_of(const rv_trajectory *made, uint32_t *set, size_t mask, const rv_chunk *chunk)
{
  size_t at = (size_t)((uint64_t)(uintptr_t)chunk * UINT64_C(0x9E3779B97F4A7C15) >> 32) & mask;
  while (set[at] != 0 && made->chunks[set[at] - 1] != chunk) at = (at + 1) & mask;
  return &set[at];
}

static rv_code new_set(const rv_trajectory *made, uint32_t **set, size_t *mask, rv_error *err)
{
  size_t capacity = 64;
  while (capacity < 2 * (size_t)made->num_slices) capacity *= 2;
  *set = calloc(capacity, sizeof **set);
  if (*set == NULL) return rv_fail_memory(err, capacity * sizeof **set);
  *mask = capacity - 1;
  for (uint32_t i = 0; i < made->num_chunks; i++) *place_of(made, *set, *mask, made->chunks[i]) = i + 1;
  return RV_OK;
}

/* Distinct chunks in order of first appearance, and what is reached of each; beyond a few, a small hash set finds repeats. */
static rv_code gather_chunks(rv_trajectory_box *box, rv_error *err)
{
  rv_trajectory *made = &box->shown;
  uint32_t number = 0, *set = NULL;
  size_t mask = 0;
  for (uint32_t i = 0; i < made->num_slices; i++) {
    const rv_slice *slice = &made->slices[i];
    if (i == 0 || slice->chunk != slice[-1].chunk) {
      if (set == NULL) {
        for (number = 0; number < made->num_chunks && made->chunks[number] != slice->chunk; number++) continue;
        rv_code code = number == FEW_CHUNKS ? new_set(made, &set, &mask, err) : RV_OK;
        if (code != RV_OK) return code;
      }
      if (set != NULL) {
        uint32_t *place = place_of(made, set, mask, slice->chunk);
        if (*place == 0) *place = made->num_chunks + 1;
        number = *place - 1;
      }
      if (number == made->num_chunks) {
        made->chunks[made->num_chunks++] = slice->chunk;
        box->reaches[number] = (rv_reach){.first = slice->offset, .end = slice->offset};
      }
    }
    rv_reach *reach = &box->reaches[number];
    if (slice->offset < reach->first) reach->first = slice->offset;
    if (slice->offset + slice->length > reach->end) reach->end = slice->offset + slice->length;
  }
  free(set);
  return RV_OK;
}

/* ---- what it takes beside its rows ---- */

enum { STRINGS_LOOKED_AT = 256 }; /* rows of them; of more it is a share like others */

static size_t strings_of(const rv_slice *slice)
{
  size_t bytes = 0;
  for (int64_t i = 0; i < slice->length; i++) bytes += rv_segment_string_bytes(slice->chunk, slice->tensor, slice->offset + i);
  return bytes;
}

size_t rv_slice_share(const rv_slice *slice)
{
  const rv_chunk *chunk = slice->chunk;
  if (chunk->is_segment && !chunk->has_strings) return 0;
  if (chunk->is_segment && slice->length <= STRINGS_LOOKED_AT) return strings_of(slice);
  size_t rows = (size_t)rv_chunk_num_rows(chunk, slice->tensor), parts = rows * chunk->num_columns;
  return parts == 0 ? 0 : rv_chunk_memory(chunk) * (size_t)slice->length / parts;
}

/* Of one that has room for them (new_box). */
static void sum_up(rv_trajectory_box *box)
{
  const rv_trajectory *made = &box->shown;
  rv_trajectory_sums *sums = (rv_trajectory_sums *)(uintptr_t)rv_trajectory_get_sums(made);
  if (sums == NULL) return;
  *sums = (rv_trajectory_sums){.encoded = 0};
  for (uint32_t i = 0; i < made->num_chunks; i++)
    if (made->chunks[i]->is_segment)
      sums->some_segments = true;
    else
      sums->encoded += rv_chunk_memory(made->chunks[i]);
  for (uint32_t i = 0; i < made->num_slices; i++) sums->shares += rv_slice_share(&made->slices[i]);
}

/* Columns from their descriptions and the layout; sums in the box. */
static void fill_columns(rv_trajectory_box *box, const uint32_t *num_slices, const rv_layout *layout)
{
  uint32_t first = 0;
  for (uint32_t i = 0; i < layout->num_columns; i++) {
    const rv_layout_column *column = &layout->columns[i];
    box->shown.columns[i] = (rv_trajectory_column){.first_slice = first,
                                                   .num_slices = num_slices[i],
                                                   .squeeze = column->squeeze,
                                                   .length = column->length,
                                                   .spec = &column->spec};
    first += num_slices[i];
    if (column->length > box->max_length) box->max_length = column->length;
    box->bytes += (size_t)column->length * column->spec.row_bytes;
  }
}

static rv_code find_layout(rv_layouts *layouts, const rv_trajectory_desc *desc, const rv_layout_column *columns, rv_layout **out,
                           rv_error *err)
{
  if (desc->like == NULL || !rv_layout_is_of(desc->like, columns, desc->num_columns))
    return rv_layout_intern(layouts, columns, desc->num_columns, out, err);
  *out = rv_layout_ref(desc->like);
  return RV_OK;
}

rv_code rv_trajectory_new(rv_layouts *layouts, const rv_trajectory_desc *desc, rv_trajectory **out, rv_error *err)
{
  if (desc->num_columns == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column 0: the trajectory has no columns; give at least one");
  if (desc->num_columns > UINT16_MAX + 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column 65536: a trajectory of %u columns; at most 65,536 are possible",
                   (unsigned)desc->num_columns);
  rv_layout_column few[FEW_CHUNKS], *columns = few;
  if (desc->num_columns > FEW_CHUNKS) {
    columns = malloc(desc->num_columns * sizeof *columns);
    if (columns == NULL) return rv_fail_memory(err, desc->num_columns * sizeof *columns);
  }
  uint32_t num_slices = 0;
  rv_trajectory_box *box = NULL;
  rv_code code = check_columns(desc, columns, &num_slices, err);
  if (code == RV_OK) code = new_box(desc->num_columns, num_slices, num_slices, &box, err);
  if (code == RV_OK) {
    memcpy(box->shown.slices, desc->slices, num_slices * sizeof(rv_slice));
    code = gather_chunks(box, err);
  }
  if (code == RV_OK) code = find_layout(layouts, desc, columns, &box->shown.layout, err);
  if (columns != few) free(columns);
  if (code != RV_OK) {
    free(box);
    return code;
  }
  fill_columns(box, desc->num_slices, box->shown.layout);
  sum_up(box);
  for (uint32_t i = 0; i < box->shown.num_chunks; i++) rv_chunk_ref(box->shown.chunks[i]);
  *out = &box->shown;
  return RV_OK;
}

/* ---- again, over other chunks ---- */

rv_trajectory *rv_trajectory_empty(rv_trajectory *owned)
{
  if (owned == NULL) return NULL;
  bool small = owned->num_columns <= SPARE_PARTS && owned->num_slices <= SPARE_PARTS;
  if (!small || atomic_load_explicit(&rv_trajectory_box_of(owned)->refs, memory_order_acquire) != 1) {
    rv_trajectory_unref(owned);
    return NULL;
  }
  for (uint32_t i = 0; i < owned->num_chunks; i++) rv_chunk_unref(owned->chunks[i]);
  owned->num_chunks = 0;
  return owned;
}

/* One without chunks, of the same sizes and the same layout. */
static rv_code take_box(const rv_trajectory *like, rv_trajectory *owned_spare, rv_trajectory_box **out, rv_error *err)
{
  bool fits = owned_spare != NULL && owned_spare->num_columns == like->num_columns &&
              owned_spare->num_slices == like->num_slices && owned_spare->layout == like->layout;
  *out = fits ? rv_trajectory_box_of(owned_spare) : NULL;
  if (fits) return RV_OK;
  rv_trajectory_unref(owned_spare);
  rv_code code = new_box(like->num_columns, like->num_slices, like->num_slices, out, err);
  if (code == RV_OK) (*out)->shown.layout = rv_layout_ref(like->layout);
  return code;
}

rv_code rv_trajectory_renew(const rv_trajectory *like, const uint32_t *chunk_of, rv_chunk *const *chunks, const int32_t *rows_on,
                            rv_trajectory *owned_spare, rv_trajectory **out, rv_error *err)
{
  rv_trajectory_box *box;
  rv_code code = take_box(like, owned_spare, &box, err);
  if (code != RV_OK) return code;
  rv_trajectory *made = &box->shown;
  memcpy(made->columns, like->columns, like->num_columns * sizeof(rv_trajectory_column));
  for (uint32_t i = 0; i < like->num_slices; i++) {
    made->slices[i] = like->slices[i];
    made->slices[i].chunk = chunks[chunk_of[i]];
    if (rows_on != NULL) made->slices[i].offset += rows_on[chunk_of[i]];
  }
  code = gather_chunks(box, err);
  if (code != RV_OK) {
    made->num_chunks = 0;
    rv_trajectory_unref(made);
    return code;
  }
  box->max_length = rv_trajectory_box_of_const(like)->max_length;
  box->bytes = rv_trajectory_box_of_const(like)->bytes;
  sum_up(box);
  for (uint32_t i = 0; i < made->num_chunks; i++) rv_refs_add_to_own(&made->chunks[i]->refs);
  *out = made;
  return RV_OK;
}

/* ---- templates ---- */

int64_t rv_trajectory_base(const rv_trajectory *trajectory)
{
  return rv_trajectory_box_of_const(trajectory)->reaches[0].first;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
  hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 32);
}

/* Not seeded: a table keeps so few templates that nobody gains by colliding. */
uint64_t rv_template_hash(const rv_trajectory *trajectory, int64_t base)
{
  uint64_t hash = mix((uint64_t)(uintptr_t)trajectory->layout, trajectory->num_columns);
  for (uint32_t i = 0; i < trajectory->num_columns; i++) hash = mix(hash, trajectory->columns[i].num_slices);
  for (uint32_t i = 0; i < trajectory->num_slices; i++) {
    const rv_slice *slice = &trajectory->slices[i];
    hash = mix(hash, (uint64_t)slice->tensor << 32 | (uint32_t)slice->length);
    hash = mix(hash, (uint64_t)(slice->offset - base));
  }
  return hash;
}

bool rv_template_is_of(const rv_trajectory *known, const rv_trajectory *trajectory, int64_t base)
{
  if (known->layout != trajectory->layout || known->num_slices != trajectory->num_slices) return false;
  for (uint32_t i = 0; i < known->num_columns; i++)
    if (known->columns[i].num_slices != trajectory->columns[i].num_slices) return false;
  for (uint32_t i = 0; i < known->num_slices; i++) {
    const rv_slice *x = &known->slices[i], *y = &trajectory->slices[i];
    if (x->tensor != y->tensor || x->length != y->length || x->offset != y->offset - base) return false;
  }
  return true;
}

static void seal_template(rv_trajectory_box *box)
{
  for (uint32_t i = 0; i < box->shown.num_slices; i++) {
    const rv_slice *slice = &box->shown.slices[i];
    if ((int64_t)slice->offset + slice->length > box->span) box->span = (int64_t)slice->offset + slice->length;
  }
  box->hash = rv_template_hash(&box->shown, 0);
}

rv_code rv_template_new(const rv_trajectory *trajectory, rv_trajectory **out, rv_error *err)
{
  rv_trajectory_box *box = NULL;
  rv_code code = new_box(trajectory->num_columns, trajectory->num_slices, 0, &box, err);
  if (code != RV_OK) return code;
  const rv_trajectory_box *from = rv_trajectory_box_of_const(trajectory);
  int64_t base = rv_trajectory_base(trajectory);
  box->shown.layout = rv_layout_ref(trajectory->layout);
  memcpy(box->shown.columns, trajectory->columns, trajectory->num_columns * sizeof(rv_trajectory_column));
  for (uint32_t i = 0; i < trajectory->num_slices; i++) {
    box->shown.slices[i] = trajectory->slices[i];
    box->shown.slices[i].chunk = NULL;
    box->shown.slices[i].offset -= (int32_t)base;
  }
  box->max_length = from->max_length;
  box->bytes = from->bytes;
  seal_template(box);
  *out = &box->shown;
  return RV_OK;
}

rv_code rv_template_of(rv_layouts *layouts, const rv_template_column *given, uint32_t num_columns, rv_trajectory **out,
                       rv_error *err)
{
  rv_trajectory_box *box = NULL;
  rv_layout_column *columns = malloc(num_columns * (sizeof *columns + sizeof(uint32_t)));
  if (columns == NULL) return rv_fail_memory(err, num_columns * (sizeof *columns + sizeof(uint32_t)));
  uint32_t *num_slices = (uint32_t *)(void *)(columns + num_columns);
  rv_code code = new_box(num_columns, num_columns, 0, &box, err);
  for (uint32_t i = 0; code == RV_OK && i < num_columns; i++) {
    const rv_spec *row = &given[i].row;
    size_t elements, bytes;
    code = rv_shape_elements(row->dtype, (uint32_t)row->rank, row->shape, &elements, &bytes, err);
    if (code != RV_OK) break;
    columns[i] =
        (rv_layout_column){.spec = {.dtype = row->dtype, .rank = (uint32_t)row->rank, .shape = row->shape, .row_bytes = bytes},
                           .length = given[i].length,
                           .squeeze = given[i].squeeze};
    num_slices[i] = 1;
    box->shown.slices[i] =
        (rv_slice){.tensor = given[i].tensor, .offset = (int32_t)given[i].first, .length = (int32_t)given[i].length};
  }
  if (code == RV_OK) code = rv_layout_intern(layouts, columns, num_columns, &box->shown.layout, err);
  if (code == RV_OK) {
    fill_columns(box, num_slices, box->shown.layout);
    seal_template(box);
    *out = &box->shown;
  } else {
    free(box);
  }
  free(columns);
  return code;
}

rv_code rv_template_of_rows(rv_layouts *layouts, const rv_spec *specs, uint32_t num_columns, rv_trajectory **out, rv_error *err)
{
  rv_template_column *columns = malloc(num_columns * sizeof *columns);
  if (columns == NULL) return rv_fail_memory(err, num_columns * sizeof *columns);
  for (uint32_t i = 0; i < num_columns; i++)
    columns[i] = (rv_template_column){.row = specs[i], .tensor = i, .length = 1, .squeeze = true};
  rv_code code = rv_template_of(layouts, columns, num_columns, out, err);
  free(columns);
  return code;
}

rv_code rv_trajectory_move(const rv_trajectory *from, rv_chunk *old_chunk, rv_chunk *new_chunk, int64_t shift,
                           rv_trajectory **out, rv_error *err)
{
  rv_trajectory_box *box = NULL;
  rv_code code = new_box(from->num_columns, from->num_slices, from->num_slices, &box, err);
  if (code != RV_OK) return code;
  memcpy(box->shown.columns, from->columns, from->num_columns * sizeof(rv_trajectory_column));
  for (uint32_t i = 0; i < from->num_slices; i++) {
    rv_slice *slice = &box->shown.slices[i];
    *slice = from->slices[i];
    if (slice->chunk != old_chunk) continue;
    slice->chunk = new_chunk;
    slice->offset += (int32_t)shift;
  }
  code = gather_chunks(box, err);
  if (code != RV_OK) {
    free(box);
    return code;
  }
  box->shown.layout = rv_layout_ref(from->layout);
  sum_up(box);
  for (uint32_t i = 0; i < box->shown.num_chunks; i++) rv_chunk_ref(box->shown.chunks[i]);
  box->max_length = rv_trajectory_box_of_const(from)->max_length;
  box->bytes = rv_trajectory_box_of_const(from)->bytes;
  *out = &box->shown;
  return RV_OK;
}

/* ---- draws ---- */

void rv_draw_release(rv_draw *draw)
{
  rv_trajectory_unref(draw->trajectory);
  rv_chunk_unref(draw->chunk);
  draw->trajectory = NULL;
  draw->chunk = NULL;
}

void rv_draw_name_lost(const rv_draw *draw, rv_code code, rv_error *err)
{
  if (code == RV_DATA_LOSS) rv_error_prefix(err, "item %llu", (unsigned long long)draw->key);
}

rv_code rv_draw_copy_column(const rv_draw *draw, uint32_t column, void *out, rv_error *err)
{
  if (column >= draw->trajectory->num_columns)
    return rv_fail(err, RV_OUT_OF_RANGE, "column %u of an item that has %u", (unsigned)column,
                   (unsigned)draw->trajectory->num_columns);
  const rv_trajectory_column *spec = &draw->trajectory->columns[column];
  uint8_t *at = out;
  for (uint32_t i = 0; i < spec->num_slices; i++) {
    rv_slice slice = rv_draw_slice(draw, spec->first_slice + i);
    rv_code code = rv_chunk_copy_rows(slice.chunk, slice.tensor, slice.offset, slice.length, at, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "column %u", (unsigned)column);
      rv_draw_name_lost(draw, code, err);
      return code;
    }
    at += (size_t)slice.length * spec->spec->row_bytes;
  }
  return RV_OK;
}
