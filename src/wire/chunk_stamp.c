#include "wire/chunk_stamp.h"

#include <string.h>

#include "wire/proto.h"

static uint64_t step(int32_t value)
{
  return (uint64_t)(int64_t)value;
}

static size_t number_size(uint64_t value)
{
  return value == 0 ? 0 : 1 + rv_varint_size(value);
}

static size_t range_size(const rv_chunk_meta *meta)
{
  return number_size(meta->episode_id) + number_size(step(meta->first_step)) + number_size(step(meta->last_step)) +
         number_size(meta->sparse);
}

/* The range is below 128 bytes. */
size_t rv_chunk_stamp_own_size(const rv_chunk_meta *meta)
{
  return number_size(meta->key) + 2 + range_size(meta);
}

static uint8_t *put_own(uint8_t *at, const rv_chunk_meta *meta)
{
  at = rv_varint_field_write(at, 1, meta->key);
  *at++ = 2 << 3 | RV_WIRE_BYTES;
  uint8_t *range = at + 1, *end = rv_varint_field_write(range, 1, meta->episode_id);
  end = rv_varint_field_write(end, 2, step(meta->first_step));
  end = rv_varint_field_write(end, 3, step(meta->last_step));
  end = rv_varint_field_write(end, 4, meta->sparse);
  *at = (uint8_t)(end - range);
  return end;
}

/* The numbers of tensors and of their bytes. */
size_t rv_chunk_stamp_tail_size(size_t row_bytes)
{
  return number_size(1) + number_size(row_bytes);
}

void rv_chunk_stamp_learn(rv_chunk_stamp *stamp, rv_span before, rv_span behind, const rv_chunk_meta *meta, int64_t num_rows,
                          size_t row_bytes)
{
  size_t own = rv_chunk_stamp_own_size(meta);
  *stamp = (rv_chunk_stamp){0};
  if (before.size < own || behind.size != rv_chunk_stamp_tail_size(row_bytes)) return;
  size_t head = before.size - own;
  if (head > RV_CHUNK_STAMP_BYTES || behind.size > RV_CHUNK_STAMP_BYTES - head) return;
  stamp->num_rows = num_rows;
  stamp->row_bytes = row_bytes;
  stamp->head_size = head;
  stamp->tail_size = behind.size;
  memcpy(stamp->fixed, before.data + own, head);
  memcpy(stamp->fixed + head, behind.data, behind.size);
}

size_t rv_chunk_stamp_size(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta)
{
  return rv_chunk_stamp_own_size(meta) + stamp->head_size + stamp->row_bytes + stamp->tail_size;
}

static uint8_t *put_before(uint8_t *at, const rv_chunk_stamp *stamp)
{
  memcpy(at, stamp->fixed, stamp->head_size);
  return at + stamp->head_size;
}

static void put_behind(uint8_t *at, const rv_chunk_stamp *stamp)
{
  memcpy(at, stamp->fixed + stamp->head_size, stamp->tail_size);
}

size_t rv_chunk_stamp_write(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta, const void *rows, uint8_t *out)
{
  uint8_t *own_end = put_own(out, meta), *at = put_before(own_end, stamp);
  if (stamp->row_bytes > 0) memcpy(at, rows, stamp->row_bytes);
  put_behind(at + stamp->row_bytes, stamp);
  return (size_t)(own_end - out);
}

size_t rv_chunk_stamp_write_around(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta, uint8_t *out)
{
  uint8_t *at = put_before(put_own(out, meta), stamp);
  put_behind(at, stamp);
  return (size_t)(at - out);
}
