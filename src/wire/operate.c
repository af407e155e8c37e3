/* The calls of the extension service reverie.Reverie. */
#include "base/error.h"
#include "wire/parse.h"
#include "wire/put.h"
#include "wire/table_info.h"

/* ---- Items ---- */

rv_code rv_items_request_parse(rv_span message, rv_items_request *out, rv_error *err)
{
  *out = (rv_items_request){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) out->table = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) out->cursor = field.value;
    if (rv_field_is(&field, 3, RV_WIRE_VARINT)) out->capacity = field.value;
  }
  return reader.broken ? rv_fail_parse(err, "ItemsRequest") : rv_check_text(out->table, "the table name of a listing", err);
}

void rv_items_request_serialize(rv_writer_buf *out, const rv_items_request *request)
{
  rv_put_bytes(out, 1, request->table.data, request->table.size);
  rv_put_varint(out, 2, request->cursor);
  rv_put_varint(out, 3, request->capacity);
}

static bool parse_item(rv_span message, rv_item_info *out)
{
  *out = (rv_item_info){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) out->key = field.value;
    if (rv_field_is(&field, 2, RV_WIRE_FIXED64)) out->priority = rv_field_double(&field);
    if (rv_field_is(&field, 3, RV_WIRE_VARINT)) out->times_sampled = rv_field_int32(&field);
    if (rv_field_is(&field, 4, RV_WIRE_VARINT)) out->inserted_at_ns = (int64_t)field.value;
    if (rv_field_is(&field, 5, RV_WIRE_VARINT)) out->length = (int64_t)field.value;
  }
  return !reader.broken;
}

rv_code rv_items_response_parse(rv_span message, uint64_t *cursor, rv_item_info *items, size_t capacity, size_t *count,
                                rv_error *err)
{
  *cursor = 0;
  *count = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) *cursor = field.value;
    if (!rv_field_is(&field, 2, RV_WIRE_BYTES)) continue;
    if (*count == capacity)
      return rv_fail(err, RV_INVALID_ARGUMENT, "the server lists more items than the %zu that were asked for", capacity);
    if (!parse_item(field.bytes, &items[(*count)++])) return rv_fail_parse(err, "ItemsResponse");
  }
  return reader.broken ? rv_fail_parse(err, "ItemsResponse") : RV_OK;
}

void rv_items_response_serialize(rv_writer_buf *out, uint64_t cursor, const rv_item_info *items, size_t count)
{
  rv_put_varint(out, 1, cursor);
  for (size_t i = 0; i < count; i++) {
    size_t mark = rv_put_open(out, 2);
    rv_put_varint(out, 1, items[i].key);
    rv_put_double(out, 2, items[i].priority);
    rv_put_int32(out, 3, items[i].times_sampled);
    rv_put_varint(out, 4, (uint64_t)items[i].inserted_at_ns);
    rv_put_varint(out, 5, (uint64_t)items[i].length);
    rv_put_close(out, mark);
  }
}

/* ---- Get ---- */

rv_code rv_get_request_parse(rv_span message, rv_span *table, uint64_t *key, rv_error *err)
{
  *table = (rv_span){0};
  *key = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) *table = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) *key = field.value;
  }
  return reader.broken ? rv_fail_parse(err, "GetRequest") : rv_check_text(*table, "the table name of a look-up", err);
}

void rv_get_request_serialize(rv_writer_buf *out, const char *table, uint64_t key)
{
  rv_put_string(out, 1, table);
  rv_put_varint(out, 2, key);
}

/* ---- SetRateLimiter ---- */

rv_code rv_set_rate_limiter_parse(rv_span message, rv_span *table, rv_rate_limiter_config *out, rv_error *err)
{
  *table = (rv_span){0};
  *out = (rv_rate_limiter_config){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) *table = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) code = rv_rate_limiter_parse(field.bytes, out, NULL, NULL, err);
  }
  if (code != RV_OK) return code;
  return reader.broken ? rv_fail_parse(err, "SetRateLimiterRequest")
                       : rv_check_text(*table, "the table name of a rate limiter", err);
}

void rv_set_rate_limiter_serialize(rv_writer_buf *out, const char *table, const rv_rate_limiter_config *limiter)
{
  rv_put_string(out, 1, table);
  rv_rate_limiter_put(out, 2, limiter, 0, 0);
}

/* ---- SetBounds ---- */

rv_code rv_set_bounds_parse(rv_span message, rv_span *table, rv_table_bounds *out, rv_error *err)
{
  *table = (rv_span){0};
  *out = rv_table_bounds_unchanged();
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) *table = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) out->max_size = (int64_t)field.value;
    if (rv_field_is(&field, 3, RV_WIRE_VARINT)) out->max_times_sampled = rv_field_int32(&field);
    if (rv_field_is(&field, 4, RV_WIRE_VARINT)) out->max_bytes = (int64_t)field.value;
  }
  return reader.broken ? rv_fail_parse(err, "SetBoundsRequest") : rv_check_text(*table, "the table name of bounds", err);
}

void rv_set_bounds_serialize(rv_writer_buf *out, const char *table, const rv_table_bounds *bounds)
{
  rv_put_string(out, 1, table);
  if (bounds->max_size != RV_UNCHANGED) rv_put_varint_always(out, 2, (uint64_t)bounds->max_size);
  if (bounds->max_times_sampled != RV_UNCHANGED) rv_put_varint_always(out, 3, (uint64_t)(int64_t)bounds->max_times_sampled);
  if (bounds->max_bytes != RV_UNCHANGED) rv_put_varint_always(out, 4, (uint64_t)bounds->max_bytes);
}

/* ---- SetMemoryLimit ---- */

rv_code rv_set_memory_limit_parse(rv_span message, uint64_t *bytes, rv_error *err)
{
  *bytes = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) *bytes = field.value;
  return reader.broken ? rv_fail_parse(err, "SetMemoryLimitRequest") : RV_OK;
}

void rv_set_memory_limit_serialize(rv_writer_buf *out, uint64_t bytes)
{
  rv_put_varint(out, 1, bytes);
}
