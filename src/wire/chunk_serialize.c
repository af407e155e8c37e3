#include "base/error.h"
#include "wire/cut.h"
#include "wire/messages.h"

static rv_code check(rv_chunk *segment, const rv_chunk_encoding *encoding, rv_error *err)
{
  size_t columns = rv_chunk_num_columns(segment);
  bool all = encoding->column == SIZE_MAX;
  if (!all && encoding->column >= columns)
    return rv_fail(err, RV_INVALID_ARGUMENT, "column %zu of a chunk of %zu columns", encoding->column, columns);
  for (size_t i = all ? 0 : encoding->column; i < (all ? columns : encoding->column + 1); i++) {
    int64_t rows = rv_chunk_num_rows(segment, i);
    if (encoding->first < 0 || encoding->count < 0 || encoding->first > rows || encoding->count > rows - encoding->first)
      return rv_fail(err, RV_OUT_OF_RANGE, "rows [%lld, %lld + %lld) of column %zu, which has %lld", (long long)encoding->first,
                     (long long)encoding->first, (long long)encoding->count, i, (long long)rows);
  }
  return RV_OK;
}

rv_code rv_chunk_serialize(rv_pieces *out, rv_chunk *segment, const rv_chunk_encoding *encoding, rv_error *err)
{
  rv_code code = check(segment, encoding, err);
  if (code != RV_OK) return code;
  const rv_cut_order order = {.key = encoding->key,
                              .column = encoding->column,
                              .first = encoding->first,
                              .count = encoding->count,
                              .delta = encoding->delta,
                              .snappy = encoding->snappy};
  rv_cut_room room;
  rv_writer_buf own, *scratch = encoding->scratch != NULL ? encoding->scratch : &own;
  rv_cut_room_init(&room);
  rv_writer_buf_init(&own);
  rv_cut cut;
  code = rv_cut_plan(&room, segment, &order, &cut, err);
  if (code == RV_OK) code = rv_cut_write(out, &room, &cut, scratch, err);
  if (code != RV_OK) scratch->size = 0;
  scratch->failed = false;
  rv_writer_buf_fini(&own);
  rv_cut_room_fini(&room);
  return code;
}
