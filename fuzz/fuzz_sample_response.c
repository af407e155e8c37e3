/* SampleStreamResponse as a client reads it; InsertStreamResponse and SampleStreamRequest by the way. */
#include "fuzz.h"

#include "store/spread.h"
#include "wire/sample_pack.h"

enum { DRAWS_MAX = 256, COLUMNS_MAX = 64 };

static rv_code spread(rv_layouts *layouts, const rv_sample_pack *pack, rv_chunk *const *chunks, rv_draw *draws, rv_error *err)
{
  rv_slice slices[COLUMNS_MAX];
  uint32_t ones[COLUMNS_MAX];
  bool squeeze[COLUMNS_MAX];
  for (uint32_t i = 0; i < pack->num_columns; i++) {
    const rv_sample_pack_column *column = &pack->columns[i];
    slices[i] = (rv_slice){.chunk = chunks[column->chunk], .tensor = column->tensor, .length = column->length};
    ones[i] = 1;
    squeeze[i] = column->squeeze;
  }
  const rv_trajectory_desc first = {.slices = slices, .num_slices = ones, .squeeze = squeeze, .num_columns = pack->num_columns};
  return rv_draws_spread(layouts, &first, draws, pack->count, err);
}

static void read_draw(const rv_draw *draw)
{
  for (uint32_t i = 0; i < draw->trajectory->num_columns; i++) {
    const rv_trajectory_column *column = &draw->trajectory->columns[i];
    if (column->length > 4096 || column->spec->row_bytes > 4096) continue;
    void *rows = malloc((size_t)column->length * column->spec->row_bytes + 1);
    rv_error err;
    if (rows != NULL) rv_fuzz_check_failure(rv_draw_copy_column(draw, i, rows, &err), &err);
    free(rows);
  }
}

/* As the receiver does it, as far as it is small. */
static void read_pack(rv_buf *owner, rv_span message)
{
  rv_error err;
  rv_sample_pack pack;
  rv_code code = rv_sample_pack_parse(message, &pack, &err);
  rv_fuzz_check_failure(code, &err);
  if (code != RV_OK) return;
  rv_chunk *chunks[COLUMNS_MAX] = {NULL};
  rv_layouts *layouts = NULL;
  if (pack.count > DRAWS_MAX || pack.num_columns > COLUMNS_MAX || pack.num_chunks > COLUMNS_MAX) code = RV_UNIMPLEMENTED;
  if (code == RV_OK) code = rv_layouts_new(&layouts, &err);
  for (size_t i = 0; i < pack.num_chunks && code == RV_OK; i++)
    code = rv_chunk_parse(owner, pack.chunks[i], false, &chunks[i], &err);
  rv_draw draws[DRAWS_MAX];
  if (code == RV_OK) {
    code = spread(layouts, &pack, chunks, draws, &err);
    rv_fuzz_check_failure(code, &err);
  }
  for (size_t i = 0; i < pack.count && code == RV_OK; i++) {
    rv_sample_pack_describe(&pack, i, &draws[i]);
    read_draw(&draws[i]);
    rv_draw_release(&draws[i]);
  }
  for (size_t i = 0; i < COLUMNS_MAX; i++) rv_chunk_unref(chunks[i]);
  rv_layouts_unref(layouts);
  rv_sample_pack_fini(&pack);
}

static void read_entry(rv_buf *owner, const rv_sample_entry *entry)
{
  for (size_t i = 0; i < entry->num_chunks; i++) {
    rv_chunk *chunk = NULL;
    rv_error err;
    rv_code code = rv_chunk_parse(owner, entry->chunks[i], false, &chunk, &err);
    rv_fuzz_check_failure(code, &err);
    if (code != RV_OK) continue;
    rv_fuzz_read_chunk(chunk);
    rv_chunk_unref(chunk);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_error err;
  rv_buf *owner = rv_buf_copy(data, size);
  if (owner == NULL) return 0;
  rv_span message = {owner->data, size};
  rv_sample_response response;
  rv_code code = rv_sample_response_parse(message, &response, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) {
    for (size_t i = 0; i < response.num_entries; i++) {
      read_entry(owner, &response.entries[i]);
      if (response.entries[i].pack.size > 0) read_pack(owner, response.entries[i].pack);
    }
    rv_sample_response_fini(&response);
  }
  rv_insert_response inserted;
  code = rv_insert_response_parse(message, &inserted, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) rv_insert_response_fini(&inserted);
  rv_sample_request request;
  rv_fuzz_check_failure(rv_sample_request_parse(message, &request, &err), &err);
  rv_buf_unref(owner);
  return 0;
}
