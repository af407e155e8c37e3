/* Reading chunks that lie in a file (cold.h). */
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "store/gather.h"
#include "store/memory.h"

enum {
  SPAN_BYTES = 1 << 16, /* of rows that lie apart, read at once */
  ASKED_BATCHES = 63    /* whose rows are asked for until it is looked again whether that is of use */
};

bool rv_chunk_is_spilled(const rv_chunk *chunk)
{
  return chunk->spilled > 0;
}

bool rv_chunk_is_raw(const rv_chunk *chunk, size_t column)
{
  const rv_lane *lane = &chunk->lanes[column];
  return lane->base != NULL || (chunk->spilled > 0 && lane->stride > 0);
}

static const rv_cold_place *place_of(const rv_chunk *chunk)
{
  return chunk->is_segment ? rv_segment_place(chunk) : rv_encoded_place(chunk);
}

static rv_code fail_lost(const rv_cold_place *place, int error, rv_error *err)
{
  return rv_fail(
      err, RV_DATA_LOSS,
      "its rows cannot be read back from the spill's file in \"%s\": %s; delete the item, and give the spill a sound disk",
      place->directory, strerror(error));
}

/* ---- asking for it ---- */

void rv_chunk_ask_for_rows(const rv_chunk *chunk, size_t column, int64_t first, int64_t count)
{
  const rv_lane *lane = &chunk->lanes[column];
  const rv_cold_place *place = place_of(chunk);
  if (lane->base != NULL || count <= 0) return;
  if (lane->stride == 0) {
    rv_encoded there;
    rv_chunk_encoded(chunk, column, &there);
    place->ask(place, there.content, there.content_size);
    return;
  }
  const uint8_t *rows = chunk->is_segment ? rv_segment_rows_there(chunk, column) : rv_encoded_rows_there(chunk, column);
  place->ask(place, rows + (size_t)first * lane->stride, (size_t)(count - 1) * lane->stride + lane->row_bytes);
}

void rv_chunk_ask_for_all(const rv_chunk *chunk)
{
  const rv_cold_place *place = place_of(chunk);
  place->ask(place, place->buf.data, place->buf.size);
}

/* ---- reading it ---- */

/* A few at a time, with what lies between them. */
static int read_apart(const rv_cold_place *place, const uint8_t *rows, const rv_lane *lane, size_t count, uint8_t *out)
{
  const size_t row_bytes = lane->row_bytes, at_once = lane->stride < SPAN_BYTES ? SPAN_BYTES / lane->stride : 1;
  uint8_t few[SPAN_BYTES];
  int error = 0;
  for (size_t i = 0, n; i < count && error == 0; i += n) {
    n = count - i < at_once ? count - i : at_once;
    if (n == 1) {
      error = place->read(place, rows + i * lane->stride, out + i * row_bytes, row_bytes);
      continue;
    }
    error = place->read(place, rows + i * lane->stride, few, (n - 1) * lane->stride + row_bytes);
    for (size_t k = 0; error == 0 && k < n; k++) memcpy(out + (i + k) * row_bytes, few + k * lane->stride, row_bytes);
  }
  return error;
}

rv_code rv_chunk_read_rows(const rv_chunk *chunk, size_t column, int64_t first, int64_t count, void *out, rv_error *err)
{
  const rv_lane *lane = &chunk->lanes[column];
  const rv_cold_place *place = place_of(chunk);
  const uint8_t *rows = chunk->is_segment ? rv_segment_rows_there(chunk, column) : rv_encoded_rows_there(chunk, column);
  rows += (size_t)first * lane->stride;
  const int error = lane->stride == lane->row_bytes ? place->read(place, rows, out, (size_t)count * lane->row_bytes)
                                                    : read_apart(place, rows, lane, (size_t)count, out);
  return error == 0 ? RV_OK : fail_lost(place, error, err);
}

rv_code rv_chunk_read_back(const rv_chunk *chunk, const uint8_t *bytes, size_t size, rv_buf **out, rv_error *err)
{
  const rv_cold_place *place = place_of(chunk);
  rv_buf *buf = rv_buf_new(size);
  if (buf == NULL) return rv_fail_memory(err, size);
  const int error = place->read(place, bytes, buf->data, size);
  if (error != 0) {
    rv_buf_unref(buf);
    return fail_lost(place, error, err);
  }
  buf->size = size;
  *out = buf;
  return RV_OK;
}

rv_code rv_chunk_bring(const rv_chunk *chunk, const uint8_t *bytes, size_t size, rv_error *err)
{
  const rv_cold_place *place = place_of(chunk);
  const int error = place->bring(place, bytes, size);
  return error == 0 ? RV_OK : fail_lost(place, error, err);
}

rv_code rv_chunk_hold_wire(const rv_chunk *chunk, const uint8_t **wire, size_t *wire_size, rv_buf **owned_owner, rv_error *err)
{
  rv_buf *owner = rv_chunk_wire(chunk, wire, wire_size);
  if (!rv_chunk_is_spilled(chunk)) {
    *owned_owner = rv_buf_ref(owner);
    return RV_OK;
  }
  rv_code code = rv_chunk_read_back(chunk, *wire, *wire_size, owned_owner, err);
  if (code == RV_OK) *wire = (*owned_owner)->data;
  return code;
}

/* ---- reading many ---- */

/* Of chunks that have moved to a file (cold.h) all rows are asked for before the first is read, so that the disk has them to do together and
 * each in one piece; what the system has in its cache it only finds there. */
static void ask_for_cold(const rv_draw *draws, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    const rv_trajectory *trajectory = draws[i].trajectory;
    for (uint32_t k = 0; k < trajectory->num_slices; k++) {
      const rv_slice *slice = &trajectory->slices[k];
      const rv_chunk *chunk = slice->chunk == NULL ? draws[i].chunk : slice->chunk;
      if (chunk->lanes[slice->tensor].base != NULL || !rv_chunk_is_spilled(chunk)) continue;
      rv_chunk_ask_for_rows(chunk, slice->tensor, slice->offset + (slice->chunk == NULL ? draws[i].base_row : 0), slice->length);
    }
  }
}

/* The account of a store that spills; else NULL. */
static rv_memory *spilling(const rv_draw *draw)
{
  const rv_slice *slice = draw->trajectory->slices;
  const rv_chunk *chunk = draw->trajectory->num_slices == 0 ? NULL : slice->chunk == NULL ? draw->chunk : slice->chunk;
  rv_memory *account = chunk == NULL ? NULL : atomic_load_explicit(&chunk->account, memory_order_relaxed);
  return account != NULL && rv_memory_spills(account) ? account : NULL;
}

/* What this thread has had read from disks. */
static long disk_reads(void)
{
#ifdef RUSAGE_THREAD
  struct rusage used;
  if (getrusage(RUSAGE_THREAD, &used) == 0) return used.ru_inblock;
#endif
  return 0;
}

/* Asking costs a system call a row, which is much where the system has them all: so it is only done for a while after a batch without it had to
 * wait for the disk. */
rv_cold_reading rv_draws_begin_reading(const rv_draw *draws, size_t n)
{
  rv_cold_reading reading = {.account = n == 0 ? NULL : spilling(&draws[0])};
  if (reading.account == NULL) return reading;
  unsigned ahead = atomic_load_explicit(&reading.account->ask_ahead, memory_order_relaxed);
  if (ahead > 0) {
    atomic_store_explicit(&reading.account->ask_ahead, ahead - 1, memory_order_relaxed);
    ask_for_cold(draws, n);
    reading.account = NULL;
  } else {
    reading.before = disk_reads();
  }
  return reading;
}

void rv_draws_end_reading(const rv_cold_reading *reading)
{
  if (reading->account != NULL && disk_reads() > reading->before)
    atomic_store_explicit(&reading->account->ask_ahead, ASKED_BATCHES, memory_order_relaxed);
}
