#include "wire/sample_pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "store/gather.h"
#include "tensor/literal.h"
#include "wire/cut.h"

/* From here on a piece of a row goes by reference: a copy would cost more. */
enum { SHARE_BYTES = 2048, FEW_COLUMNS = 16, LARGEST = 8, AHEAD = 8 };
enum { INFO_BYTES = 45 };          /* of a sample beside its rows */
enum { UNEVEN_COLUMN_BYTES = 16 }; /* what a column must bring where each item needs a trajectory of its own at the client */

typedef struct pack_column {
  const rv_trajectory_column *shown;
  size_t item_bytes, content_size, tensor_size;
  uint8_t *rows; /* where small ones are gathered; NULL: they go by reference */
  size_t at;     /* where the large ones belong in the buffer */
} pack_column;

typedef struct pack_plan {
  const rv_draw *draws;
  size_t n, num_columns;
  bool even;    /* all columns are equally long: one chunk holds them all, else each has its own */
  size_t body;  /* bytes of the message */
  size_t small; /* bytes of it that do not go by reference */
  pack_column few[FEW_COLUMNS], *columns;
} pack_plan;

/* ---- what fits ---- */

static bool is_even(const rv_trajectory *trajectory)
{
  for (uint32_t i = 1; i < trajectory->num_columns; i++)
    if (trajectory->columns[i].length != trajectory->columns[0].length) return false;
  return true;
}

/* Bytes of all rows of one item; SIZE_MAX: there are strings among them. */
static size_t bytes_of_item(const rv_trajectory *trajectory)
{
  size_t bytes = 0;
  for (uint32_t i = 0; i < trajectory->num_columns; i++) {
    const rv_trajectory_column *column = &trajectory->columns[i];
    size_t more;
    if (column->spec->dtype == RV_STRING || __builtin_mul_overflow(column->spec->row_bytes, (size_t)column->length, &more) ||
        __builtin_add_overflow(bytes, more, &bytes))
      return SIZE_MAX;
  }
  return bytes;
}

static size_t most_items(const rv_draw *draw, size_t max_bytes)
{
  const rv_trajectory *trajectory = draw->trajectory;
  size_t bytes = bytes_of_item(trajectory);
  if (bytes == SIZE_MAX || bytes / LARGEST > max_bytes) return 0;
  if (!is_even(trajectory) && bytes + INFO_BYTES < (size_t)trajectory->num_columns * UNEVEN_COLUMN_BYTES) return 0;
  int64_t longest = 1;
  for (uint32_t i = 0; i < trajectory->num_columns; i++)
    if (trajectory->columns[i].length > longest) longest = trajectory->columns[i].length;
  size_t most = max_bytes / (bytes + INFO_BYTES), by_rows = (size_t)(INT32_MAX / longest);
  if (most == 0) most = 1;
  return most < by_rows ? most : by_rows;
}

size_t rv_sample_pack_count(const rv_draw *draws, size_t n, size_t max_bytes)
{
  size_t most = most_items(&draws[0], max_bytes);
  if (n > most) n = most;
  const rv_layout *layout = draws[0].trajectory->layout;
  for (size_t i = 0; i < n; i++) {
    if (i + AHEAD < n && draws[i + AHEAD].chunk != NULL) __builtin_prefetch(draws[i + AHEAD].chunk->lanes);
    if (draws[i].trajectory->layout != layout) return i;
    bool known =
        i > 0 && draws[i].chunk != NULL && draws[i].chunk == draws[i - 1].chunk && draws[i].trajectory == draws[i - 1].trajectory;
    if (!known && !rv_draw_is_raw(&draws[i])) return i;
  }
  return n;
}

/* ---- sizes ---- */

static size_t field_size(size_t header, size_t size)
{
  return header + rv_varint_size(size) + size;
}

static size_t shape_size(const rv_chunk_column *spec, int64_t num_rows)
{
  size_t size = 0;
  for (uint32_t i = 0; i <= spec->rank; i++) {
    int64_t n = i == 0 ? num_rows : spec->shape[i - 1];
    size += field_size(1, n == 0 ? 0 : 1 + rv_varint_size((uint64_t)n));
  }
  return size;
}

static size_t size_of_tensor(const pack_column *column, size_t n)
{
  const rv_chunk_column *spec = column->shown->spec;
  return 1 + rv_varint_size((uint64_t)spec->dtype) + field_size(1, shape_size(spec, (int64_t)n * column->shown->length)) +
         field_size(1, column->content_size);
}

/* Of the ChunkData with the tensors of columns [first, end). */
static size_t size_of_chunk(const pack_plan *plan, size_t first, size_t end, size_t *data)
{
  *data = 0;
  for (size_t i = first; i < end; i++) *data += field_size(1, plan->columns[i].tensor_size);
  return field_size(1, *data) + 1 + rv_varint_size(end - first);
}

static size_t size_of_column(const pack_plan *plan, size_t i)
{
  const rv_trajectory_column *shown = plan->columns[i].shown;
  size_t place = i == 0 ? 0 : 1 + rv_varint_size(i);
  return place + (shown->length == 0 ? 0 : 1 + rv_varint_size((uint64_t)shown->length)) + (shown->squeeze ? 2 : 0);
}

static size_t chunk_step(const pack_plan *plan)
{
  return plan->even ? plan->num_columns : 1;
}

static bool goes_by_reference(const pack_column *column)
{
  return column->item_bytes >= SHARE_BYTES;
}

static rv_code make_plan(pack_plan *plan, const rv_draw *draws, size_t n, rv_error *err)
{
  const rv_trajectory *like = draws[0].trajectory;
  plan->draws = draws;
  plan->n = n;
  plan->num_columns = like->num_columns;
  plan->even = is_even(like);
  plan->columns = plan->num_columns <= FEW_COLUMNS ? plan->few : malloc(plan->num_columns * sizeof *plan->columns);
  if (plan->columns == NULL) return rv_fail_memory(err, plan->num_columns * sizeof *plan->columns);
  size_t shared = 0;
  plan->body = 1 + rv_varint_size(n);
  plan->body += 5 * field_size(1, n * 8) + field_size(1, n * 4) + field_size(1, n);
  for (size_t i = 0; i < plan->num_columns; i++) {
    pack_column *column = &plan->columns[i];
    column->shown = &like->columns[i];
    column->item_bytes = column->shown->spec->row_bytes * (size_t)column->shown->length;
    column->content_size = rv_literal_size(column->item_bytes * n);
    column->tensor_size = size_of_tensor(column, n);
    column->rows = NULL;
    plan->body += field_size(1, size_of_column(plan, i));
    if (goes_by_reference(column)) shared += column->item_bytes * n;
  }
  for (size_t i = 0; i < plan->num_columns; i += chunk_step(plan)) {
    size_t data;
    plan->body += field_size(1, size_of_chunk(plan, i, i + chunk_step(plan), &data));
  }
  plan->small = plan->body - shared;
  return RV_OK;
}

static void plan_fini(pack_plan *plan)
{
  if (plan->columns != plan->few) free(plan->columns);
}

/* ---- writing into a buffer of known size ---- */

enum { PACKS_TAG_BYTES = 2 };

static uint8_t *put_header(uint8_t *at, uint32_t field, size_t size)
{
  *at++ = (uint8_t)(field << 3 | RV_WIRE_BYTES);
  return rv_varint_write(at, size);
}

#define PUT_ARRAY(field, member, bytes)                                                                                          \
  do {                                                                                                                           \
    at = put_header(at, field, n * (bytes));                                                                                     \
    for (size_t i = 0; i < n; i++, at += (bytes)) memcpy(at, &draws[i].member, (bytes));                                         \
  } while (0)

static uint8_t *put_infos(uint8_t *at, const rv_draw *draws, size_t n)
{
  at = rv_varint_field_write(at, 1, n);
  PUT_ARRAY(2, key, 8);
  PUT_ARRAY(3, probability, 8);
  PUT_ARRAY(4, priority, 8);
  PUT_ARRAY(5, times_sampled, 4);
  PUT_ARRAY(6, table_size, 8);
  PUT_ARRAY(7, inserted_at_ns, 8);
  at = put_header(at, 8, n);
  for (size_t i = 0; i < n; i++) *at++ = draws[i].rate_limited ? 1 : 0;
  return at;
}

static uint8_t *put_columns(uint8_t *at, const pack_plan *plan)
{
  for (size_t i = 0; i < plan->num_columns; i++) {
    const rv_trajectory_column *shown = plan->columns[i].shown;
    at = put_header(at, 9, size_of_column(plan, i));
    at = rv_varint_field_write(at, plan->even ? 2 : 1, i);
    at = rv_varint_field_write(at, 3, (uint64_t)shown->length);
    at = rv_varint_field_write(at, 4, shown->squeeze);
  }
  return at;
}

/* Its small rows get their room, and are gathered later. */
static uint8_t *put_tensor(uint8_t *at, const uint8_t *begin, pack_column *column, size_t n)
{
  const rv_chunk_column *spec = column->shown->spec;
  int64_t num_rows = (int64_t)n * column->shown->length;
  at = put_header(at, 1, column->tensor_size);
  at = rv_varint_field_write(at, 1, (uint64_t)spec->dtype);
  at = put_header(at, 2, shape_size(spec, num_rows));
  for (uint32_t i = 0; i <= spec->rank; i++) {
    int64_t size = i == 0 ? num_rows : spec->shape[i - 1];
    at = put_header(at, 2, size == 0 ? 0 : 1 + rv_varint_size((uint64_t)size));
    at = rv_varint_field_write(at, 1, (uint64_t)size);
  }
  at = put_header(at, 4, column->content_size);
  at += rv_literal_header(at, column->item_bytes * n);
  column->at = (size_t)(at - begin);
  if (goes_by_reference(column)) return at;
  column->rows = at;
  return at + column->item_bytes * n;
}

static uint8_t *put_chunks(uint8_t *at, const uint8_t *begin, pack_plan *plan)
{
  size_t step = chunk_step(plan);
  for (size_t i = 0; i < plan->num_columns; i += step) {
    size_t data, size = size_of_chunk(plan, i, i + step, &data);
    at = put_header(at, 10, size);
    at = put_header(at, 5, data);
    for (size_t c = i; c < i + step; c++) at = put_tensor(at, begin, &plan->columns[c], plan->n);
    at = rv_varint_field_write(at, 6, step);
  }
  return at;
}

/* ---- rows ---- */

static rv_code gather_small(const pack_plan *plan, rv_error *err)
{
  int64_t few_lengths[FEW_COLUMNS];
  void *few_outs[FEW_COLUMNS];
  if (plan->num_columns <= FEW_COLUMNS) {
    for (size_t i = 0; i < plan->num_columns; i++) {
      few_lengths[i] = plan->columns[i].shown->length;
      few_outs[i] = plan->columns[i].rows;
    }
    return rv_draws_gather_all(plan->draws, plan->n, few_lengths, few_outs, plan->num_columns, err);
  }
  rv_code code = RV_OK;
  for (size_t i = 0; i < plan->num_columns && code == RV_OK; i++) {
    const pack_column *column = &plan->columns[i];
    if (column->rows != NULL) code = rv_draws_gather(plan->draws, plan->n, (uint32_t)i, column->shown->length, column->rows, err);
  }
  return code;
}

/* Of rows that lie in a spill's file: the message is read when no error of the disk can be told any more. */
static rv_code read_slice(rv_pieces *out, const rv_slice *slice, size_t bytes, rv_error *err)
{
  rv_buf *rows = rv_buf_new(bytes);
  if (rows == NULL) return rv_fail_memory(err, bytes);
  rv_code code = rv_chunk_copy_rows(slice->chunk, slice->tensor, slice->offset, slice->length, rows->data, err);
  if (code != RV_OK) {
    rv_buf_unref(rows);
    return code;
  }
  rows->size = bytes;
  return rv_pieces_give(out, rows, rows->data, bytes) == RV_OK ? RV_OK : rv_fail_memory(err, bytes);
}

/* One slice's rows: by reference if they are large and lie together, copied otherwise. */
static rv_code share_slice(rv_pieces *out, const rv_slice *slice, rv_error *err)
{
  const rv_lane *lane = &slice->chunk->lanes[slice->tensor];
  size_t row_bytes = lane->row_bytes, n = (size_t)slice->length, bytes = row_bytes * n;
  if (lane->base == NULL) return read_slice(out, slice, bytes, err);
  const uint8_t *rows = lane->base + (size_t)slice->offset * lane->stride;
  rv_code code = RV_OK;
  if (bytes >= SHARE_BYTES && (n == 1 || lane->stride == row_bytes)) {
    rv_buf *holder = rv_chunk_hold(slice->chunk);
    code = holder == NULL ? RV_RESOURCE_EXHAUSTED : rv_pieces_give(out, holder, rows, bytes);
  } else {
    for (size_t i = 0; i < n && code == RV_OK; i++) code = rv_pieces_copy(out, rows + i * lane->stride, row_bytes);
  }
  return code == RV_OK ? RV_OK : rv_fail_memory(err, bytes);
}

static rv_code share_large(rv_pieces *out, const pack_plan *plan, uint32_t column, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = 0; i < plan->n && code == RV_OK; i++) {
    const rv_draw *draw = &plan->draws[i];
    const rv_trajectory_column *shown = &draw->trajectory->columns[column];
    if (i + AHEAD < plan->n && draw[AHEAD].chunk != NULL) rv_chunk_prefetch_owner(draw[AHEAD].chunk);
    for (uint32_t s = 0; s < shown->num_slices && code == RV_OK; s++) {
      rv_slice slice = rv_draw_slice(draw, shown->first_slice + s);
      if (slice.length > 0) code = share_slice(out, &slice, err);
      rv_draw_name_lost(draw, code, err);
    }
  }
  return code;
}

static rv_code join(rv_pieces *out, const pack_plan *plan, rv_buf *buf, rv_error *err)
{
  size_t done = 0;
  for (uint32_t i = 0; i < plan->num_columns; i++) {
    const pack_column *column = &plan->columns[i];
    if (!goes_by_reference(column)) continue;
    if (rv_pieces_share(out, buf, buf->data + done, column->at - done) != RV_OK) return rv_fail_memory(err, sizeof(rv_piece));
    rv_code code = share_large(out, plan, i, err);
    if (code != RV_OK) return code;
    done = column->at;
  }
  return rv_pieces_share(out, buf, buf->data + done, buf->size - done) == RV_OK ? RV_OK : rv_fail_memory(err, sizeof(rv_piece));
}

static rv_code write_pack(rv_pieces *out, pack_plan *plan, rv_error *err)
{
  size_t capacity = PACKS_TAG_BYTES + rv_varint_size(plan->body) + plan->small;
  rv_buf *buf = rv_buf_new(capacity);
  if (buf == NULL) return rv_fail_memory(err, capacity);
  uint8_t *at = rv_varint_write(buf->data, (uint64_t)RV_SAMPLE_PACKS << 3 | RV_WIRE_BYTES);
  at = rv_varint_write(at, plan->body);
  at = put_infos(at, plan->draws, plan->n);
  at = put_columns(at, plan);
  at = put_chunks(at, buf->data, plan);
  buf->size = (size_t)(at - buf->data);
  rv_code code = gather_small(plan, err);
  if (code == RV_OK) code = join(out, plan, buf, err);
  rv_buf_unref(buf);
  return code;
}

rv_code rv_sample_pack_serialize(rv_pieces *out, const rv_draw *draws, size_t n, rv_error *err)
{
  pack_plan plan;
  rv_code code = make_plan(&plan, draws, n, err);
  if (code != RV_OK) return code;
  code = write_pack(out, &plan, err);
  plan_fini(&plan);
  return code;
}
