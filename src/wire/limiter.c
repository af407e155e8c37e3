#include "wire/parse.h"
#include "wire/table_info.h"

static bool parse_stats(rv_span message, int64_t *completed)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 2, RV_WIRE_VARINT) && completed != NULL) *completed = (int64_t)field.value;
  return !reader.broken;
}

rv_code rv_rate_limiter_parse(rv_span message, rv_rate_limiter_config *out, int64_t *inserts, int64_t *samples, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  bool good = true;
  while (good && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_FIXED64)) out->samples_per_insert = rv_field_double(&field);
    if (rv_field_is(&field, 2, RV_WIRE_FIXED64)) out->min_diff = rv_field_double(&field);
    if (rv_field_is(&field, 3, RV_WIRE_FIXED64)) out->max_diff = rv_field_double(&field);
    if (rv_field_is(&field, 4, RV_WIRE_VARINT)) out->min_size_to_sample = (int64_t)field.value;
    if (rv_field_is(&field, 5, RV_WIRE_BYTES)) good = parse_stats(field.bytes, inserts);
    if (rv_field_is(&field, 6, RV_WIRE_BYTES)) good = parse_stats(field.bytes, samples);
  }
  return good && !reader.broken ? RV_OK : rv_fail_parse(err, "RateLimiterInfo");
}

static void put_stats(rv_writer_buf *out, uint32_t field, int64_t completed)
{
  size_t mark = rv_put_open(out, field); /* present even if all is zero */
  rv_put_varint(out, 2, (uint64_t)completed);
  rv_put_close(out, mark);
}

void rv_rate_limiter_put(rv_writer_buf *out, uint32_t field, const rv_rate_limiter_config *limiter, int64_t inserts,
                         int64_t samples)
{
  size_t mark = rv_put_open(out, field);
  rv_put_double(out, 1, limiter->samples_per_insert);
  rv_put_double(out, 2, limiter->min_diff);
  rv_put_double(out, 3, limiter->max_diff);
  rv_put_varint(out, 4, (uint64_t)limiter->min_size_to_sample);
  put_stats(out, 5, inserts);
  put_stats(out, 6, samples);
  rv_put_close(out, mark);
}
