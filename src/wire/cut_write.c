#include <stdlib.h>

#include "base/error.h"
#include "tensor/literal.h"
#include "wire/cut.h"

/* From here on a reference costs less than a copy. */
enum { SHARE_BYTES = 4096 };

rv_code rv_writer_buf_flush(rv_writer_buf *from, rv_pieces *to, rv_error *err)
{
  if (from->failed || rv_pieces_copy(to, from->data, from->size) != RV_OK) return rv_fail_memory(err, from->size);
  from->size = 0;
  return RV_OK;
}

/* ---- a buffer that is a chunk's rows ---- */

typedef struct rows_buf {
  rv_buf buf;
  rv_chunk *chunk;
} rows_buf;

static void release_rows(rv_buf *buf)
{
  rows_buf *rows = (rows_buf *)(void *)buf;
  rv_chunk_unref(rows->chunk);
  free(rows);
}

rv_buf *rv_chunk_hold(rv_chunk *chunk)
{
  const uint8_t *wire = NULL;
  size_t size = 0;
  rv_buf *owner = rv_chunk_wire(chunk, &wire, &size);
  if (owner != NULL) return rv_buf_ref(owner);
  rows_buf *rows = malloc(sizeof *rows);
  if (rows == NULL) return NULL;
  rows->buf = (rv_buf){.release = release_rows};
  atomic_init(&rows->buf.refs, 1);
  rows->chunk = rv_chunk_ref(chunk);
  return &rows->buf;
}

/* ---- writing ---- */

static bool can_share(const rv_cut_column *column, int64_t count)
{
  return column->bytes >= SHARE_BYTES && (count == 1 || column->stride == column->spec->row_bytes);
}

static rv_code put_content(rv_pieces *out, rv_cut_column *column, const rv_cut *cut, rv_buf **holder, rv_error *err)
{
  if (column->content.count > 0) {
    rv_code code = rv_pieces_append(out, &column->content);
    return code == RV_OK ? RV_OK : rv_fail_memory(err, column->content_size);
  }
  const rv_chunk_column *spec = column->spec;
  if (!can_share(column, cut->count))
    return rv_encode(out, spec->dtype, spec->rank, spec->shape, column->rows, column->stride, (size_t)cut->count, false, false,
                     err);
  uint8_t header[RV_LITERAL_HEADER_MAX];
  size_t size = rv_literal_header(header, column->bytes);
  if (column->copy == NULL && *holder == NULL) *holder = rv_chunk_hold(cut->chunk);
  rv_buf *owner = column->copy != NULL ? column->copy : *holder;
  if (owner == NULL || rv_pieces_copy(out, header, size) != RV_OK ||
      rv_pieces_share(out, owner, column->rows, column->bytes) != RV_OK)
    return rv_fail_memory(err, sizeof(rows_buf));
  return RV_OK;
}

static rv_code put_tensor(rv_pieces *out, rv_cut_column *column, const rv_cut *cut, rv_buf **holder, rv_writer_buf *scratch,
                          rv_error *err)
{
  rv_put_header(scratch, 1, column->tensor_size);
  rv_put_varint(scratch, 1, (uint64_t)column->spec->dtype);
  size_t shape = rv_put_open(scratch, 2);
  for (uint32_t i = 0; i <= column->spec->rank; i++) {
    size_t dim = rv_put_open(scratch, 2);
    rv_put_varint(scratch, 1, (uint64_t)(i == 0 ? cut->count : column->spec->shape[i - 1]));
    rv_put_close(scratch, dim);
  }
  rv_put_close(scratch, shape);
  rv_put_header(scratch, 4, column->content_size);
  rv_code code = rv_writer_buf_flush(scratch, out, err);
  return code == RV_OK ? put_content(out, column, cut, holder, err) : code;
}

rv_code rv_cut_write(rv_pieces *out, rv_cut_room *room, const rv_cut *cut, rv_writer_buf *scratch, rv_error *err)
{
  rv_put_varint(scratch, 1, cut->key);
  size_t range = rv_put_open(scratch, 2);
  rv_put_varint(scratch, 1, cut->meta.episode_id);
  rv_put_varint(scratch, 2, (uint64_t)(int64_t)cut->meta.first_step);
  rv_put_varint(scratch, 3, (uint64_t)(int64_t)cut->meta.last_step);
  rv_put_varint(scratch, 4, cut->meta.sparse);
  rv_put_close(scratch, range);
  rv_put_varint(scratch, 4, cut->delta);
  rv_put_header(scratch, 5, cut->data_size);
  rv_buf *holder = NULL;
  rv_code code = RV_OK;
  for (size_t i = 0; code == RV_OK && i < cut->num_columns; i++)
    code = put_tensor(out, &room->columns[cut->first_column + i], cut, &holder, scratch, err);
  rv_buf_unref(holder);
  if (code != RV_OK) return code;
  rv_put_varint(scratch, 6, cut->num_columns);
  rv_put_varint(scratch, 7, cut->uncompressed);
  return rv_writer_buf_flush(scratch, out, err);
}
