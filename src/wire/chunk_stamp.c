#include "wire/chunk_stamp.h"

#include <stdlib.h>
#include <string.h>

#include "base/small_copies.h"
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

void rv_chunk_stamp_fini(rv_chunk_stamp *stamp)
{
  free(stamp->runs);
  *stamp = (rv_chunk_stamp){0};
}

/* Bytes around the rows; 0: too many, or not what is written around rows. */
static size_t measure(const rv_span *fixed, uint32_t num_runs, size_t own)
{
  size_t bytes = 0;
  if (num_runs == 0 || num_runs > RV_CHUNK_STAMP_RUNS || fixed[0].size < own) return 0;
  for (uint32_t i = 0; i <= num_runs; i++) bytes += fixed[i].size;
  bytes -= own;
  return bytes <= (size_t)RV_CHUNK_STAMP_BYTES * num_runs ? bytes : 0;
}

void rv_chunk_stamp_learn(rv_chunk_stamp *stamp, const rv_span *fixed, const size_t *sizes, uint32_t num_runs,
                          const rv_chunk_meta *meta, int64_t num_rows)
{
  size_t own = rv_chunk_stamp_own_size(meta), bytes = measure(fixed, num_runs, own);
  rv_chunk_stamp_fini(stamp);
  rv_chunk_run *runs = bytes > 0 ? malloc(num_runs * sizeof *runs + bytes) : NULL;
  if (runs == NULL) return;
  *stamp = (rv_chunk_stamp){
      .num_rows = num_rows, .num_runs = num_runs, .fixed_bytes = bytes, .runs = runs, .fixed = (uint8_t *)(runs + num_runs)};
  uint8_t *to = stamp->fixed;
  for (uint32_t i = 0; i <= num_runs; i++) {
    const size_t skipped = i == 0 ? own : 0;
    if (fixed[i].size > skipped) memcpy(to, fixed[i].data + skipped, fixed[i].size - skipped);
    to += fixed[i].size - skipped;
    if (i == num_runs) break;
    runs[i] = (rv_chunk_run){.at = (uint32_t)((size_t)(to - stamp->fixed) + stamp->row_bytes), .size = (uint32_t)sizes[i]};
    stamp->row_bytes += sizes[i];
  }
}

size_t rv_chunk_stamp_size(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta)
{
  return rv_chunk_stamp_own_size(meta) + stamp->fixed_bytes + stamp->row_bytes;
}

static void put_rows(uint8_t *to, const rv_run_rows *rows, size_t size, int64_t num_rows)
{
  if (num_rows == 1 || rows->stride == rows->row_bytes)
    rv_copy_small(to, rows->data, size);
  else
    rv_copy_strided(to, rows->row_bytes, rows->data, rows->stride, rows->row_bytes, (size_t)num_rows);
}

size_t rv_chunk_stamp_write(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta, const rv_run_rows *rows, uint8_t *out)
{
  uint8_t *own_end = put_own(out, meta), *to = own_end;
  const uint8_t *fixed = stamp->fixed;
  for (uint32_t i = 0; i < stamp->num_runs; i++) {
    const rv_chunk_run *run = &stamp->runs[i];
    const size_t before = run->at - (size_t)(to - own_end);
    rv_copy_odd(to, fixed, before);
    put_rows(to + before, &rows[i], run->size, stamp->num_rows);
    fixed += before;
    to += before + run->size;
  }
  memcpy(to, fixed, stamp->fixed_bytes - (size_t)(fixed - stamp->fixed));
  return (size_t)(own_end - out);
}

size_t rv_chunk_stamp_write_around(const rv_chunk_stamp *stamp, const rv_chunk_meta *meta, uint8_t *out)
{
  uint8_t *own_end = put_own(out, meta);
  memcpy(own_end, stamp->fixed, stamp->fixed_bytes);
  return (size_t)(own_end - out) + stamp->runs[0].at;
}
