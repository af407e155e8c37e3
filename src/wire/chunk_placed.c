#include "wire/chunk_placed.h"

#include <string.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "wire/chunk_forms.h"
#include "wire/messages.h"

static uint8_t *put(uint8_t *at, rv_span bytes)
{
  if (bytes.size > 0) memcpy(at, bytes.data, bytes.size);
  return at + bytes.size;
}

/* The place's bytes are all the chunk's rows, as they are, and so many rows (0: no matter how many). Who has the place to write to may have written
 * around it, too. */
static bool has_rows_at(const rv_chunk *chunk, const uint8_t *rows, const rv_placed_form *form)
{
  if (chunk->num_columns != 1) return false;
  const rv_lane *lane = &chunk->lanes[0];
  int64_t num_rows = rv_chunk_num_rows(chunk, 0);
  if (form->num_rows != 0 && num_rows != form->num_rows) return false;
  return lane->base == rows && lane->row_bytes * (size_t)num_rows == form->row_bytes;
}

static rv_code make(const rv_placed_form *form, rv_span head, const rv_placed_rows *rows, const uint8_t *place, rv_chunk **out,
                    rv_error *err)
{
  size_t before = head.size + form->before.size;
  rv_buf *buf;
  rv_code code = rows->take(rows->context, place, before, form->row_bytes, form->behind.size, &buf, err);
  if (code != RV_OK) return code;
  put(put(buf->data, head), form->before);
  put(buf->data + before + form->row_bytes, form->behind);
  rv_chunk *chunk;
  code = rv_chunk_parse(buf, (rv_span){buf->data, before + form->row_bytes + form->behind.size}, false, &chunk, err);
  bool fits = code == RV_OK && has_rows_at(chunk, buf->data + before, form);
  rv_buf_unref(buf); /* the chunk has it */
  if (code != RV_OK) return code;
  if (fits) {
    *out = chunk;
    return RV_OK;
  }
  code = rv_fail(err, RV_INVALID_ARGUMENT,
                 "chunk %llu, whose rows are named by their place, must be one tensor that is not compressed, of %zu bytes",
                 (unsigned long long)rv_chunk_get_meta(chunk)->key, form->row_bytes);
  rv_chunk_unref(chunk);
  return code;
}

rv_code rv_placed_form_begin(rv_placed_form *form, rv_span chunk, size_t rows_at, size_t row_bytes, const rv_placed_rows *rows,
                             const uint8_t *place, rv_chunk **out, rv_error *err)
{
  rv_span rest;
  rv_chunk_meta meta;
  if (row_bytes == 0 || rows_at > chunk.size || !rv_chunk_head_read((rv_span){chunk.data, rows_at}, &meta, &rest))
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "a chunk whose %zu bytes of rows belong behind its first %zu bytes does not begin with key and range there",
                   row_bytes, rows_at);
  rv_code code = rv_chunk_form_check_besides(&meta, rest.size + (chunk.size - rows_at), 1, err);
  if (code != RV_OK) return code;
  *form = (rv_placed_form){.before = rest, .behind = {chunk.data + rows_at, chunk.size - rows_at}, .row_bytes = row_bytes};
  code = make(form, (rv_span){chunk.data, rows_at - rest.size}, rows, place, out, err);
  if (code == RV_OK) form->num_rows = rv_chunk_num_rows(*out, 0);
  return code;
}

rv_code rv_placed_form_next(const rv_placed_form *form, rv_span *bytes, const rv_placed_rows *rows, const uint8_t *place,
                            rv_chunk **out, rv_error *err)
{
  rv_span rest, head = *bytes;
  rv_chunk_meta meta;
  if (!rv_chunk_head_read(*bytes, &meta, &rest))
    return rv_fail(err, RV_INVALID_ARGUMENT, "key and range of a chunk whose rows are named by their place are not there");
  head.size -= rest.size;
  *bytes = rest;
  return make(form, head, rows, place, out, err);
}
