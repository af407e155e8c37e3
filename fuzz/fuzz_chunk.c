/* ChunkData: parsed, decoded, cut and written again; the copy must hold the same. */
#include "fuzz.h"

static void write_again(rv_chunk *chunk, int64_t first, int64_t count)
{
  const rv_chunk_encoding encoding = {
      .key = rv_chunk_get_meta(chunk)->key, .column = SIZE_MAX, .first = first, .count = count, .delta = count % 2 == 1};
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  rv_error err;
  rv_code code = rv_chunk_serialize(&pieces, chunk, &encoding, &err);
  rv_fuzz_check_failure(code, &err);
  rv_buf *flat = code == RV_OK ? rv_buf_new(pieces.bytes) : NULL;
  if (flat != NULL) {
    for (size_t i = 0; i < pieces.count; i++) {
      memcpy(flat->data + flat->size, pieces.piece[i].data, pieces.piece[i].size);
      flat->size += pieces.piece[i].size;
    }
    rv_chunk *copy = NULL;
    RV_FUZZ_CHECK(rv_chunk_parse(flat, (rv_span){flat->data, flat->size}, false, &copy, &err) == RV_OK);
    RV_FUZZ_CHECK(rv_chunk_num_columns(copy) == rv_chunk_num_columns(chunk));
    RV_FUZZ_CHECK(rv_chunk_num_rows(copy, 0) == count);
    rv_fuzz_read_chunk(copy);
    rv_chunk_unref(copy);
  }
  rv_buf_unref(flat);
  rv_pieces_fini(&pieces);
}

static bool is_small(const rv_chunk *chunk)
{
  enum { LIMIT = 1 << 20 };
  for (size_t i = 0; i < rv_chunk_num_columns(chunk); i++) {
    int64_t rows = rv_chunk_num_rows(chunk, i);
    size_t bytes = rv_chunk_get_column(chunk, i)->row_bytes;
    if (rows > LIMIT || bytes > LIMIT || (size_t)rows * bytes > LIMIT) return false;
  }
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_error err;
  rv_buf *owner = rv_buf_copy(data, size);
  if (owner == NULL) return 0;
  rv_chunk *chunk = NULL;
  rv_code code = rv_chunk_parse(owner, (rv_span){owner->data, size}, size % 2 == 0, &chunk, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) {
    rv_fuzz_read_chunk(chunk);
    int64_t rows = rv_chunk_num_rows(chunk, 0);
    if (is_small(chunk)) write_again(chunk, rows / 3, rows - rows / 3);
    rv_chunk_unref(chunk);
  }
  rv_buf_unref(owner);
  return 0;
}
