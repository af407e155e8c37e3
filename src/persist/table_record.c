#include "persist/table_record.h"

#include <stdlib.h>

#include "base/error.h"
#include "wire/parse.h"
#include "wire/put.h"
#include "wire/table_info.h"

/* ---- writing ---- */

/* Inserts less deletes must be the number of items: Reverb's limiter believes in what they say. */
static void put_limiter(rv_writer_buf *out, const rv_snapshot_head *head)
{
  const rv_rate_limiter *limiter = &head->limiter;
  size_t mark = rv_put_open(out, 3);
  rv_put_double(out, 2, limiter->config.samples_per_insert);
  rv_put_double(out, 3, limiter->config.min_diff);
  rv_put_double(out, 4, limiter->config.max_diff);
  rv_put_varint(out, 5, (uint64_t)limiter->config.min_size_to_sample);
  rv_put_varint(out, 6, (uint64_t)limiter->samples);
  rv_put_varint(out, 7, (uint64_t)limiter->inserts);
  rv_put_varint(out, 8, (uint64_t)(limiter->inserts - head->num_items));
  rv_put_close(out, mark);
}

void rv_table_record_serialize(rv_writer_buf *out, const rv_snapshot_head *head)
{
  rv_put_string(out, 1, head->name);
  put_limiter(out, head);
  rv_selector_put(out, 4, &head->sampler);
  rv_selector_put(out, 5, &head->remover);
  rv_put_varint(out, 6, (uint64_t)head->max_size);
  rv_put_int32(out, 7, head->max_times_sampled);
  rv_put_varint(out, 8, (uint64_t)head->num_deleted_episodes);
  rv_signature_put(out, 9, head->signature);
  rv_put_varint(out, 10, (uint64_t)head->num_unique_samples);
  rv_put_fixed64(out, 1000, head->naming);
  rv_put_varint_always(out, 1001, (uint64_t)head->max_bytes);
}

/* ---- reading ---- */

static rv_code parse_limiter(rv_span message, rv_table_record *out, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 2, RV_WIRE_FIXED64)) out->rate_limiter.samples_per_insert = rv_field_double(&field);
    if (rv_field_is(&field, 3, RV_WIRE_FIXED64)) out->rate_limiter.min_diff = rv_field_double(&field);
    if (rv_field_is(&field, 4, RV_WIRE_FIXED64)) out->rate_limiter.max_diff = rv_field_double(&field);
    if (rv_field_is(&field, 5, RV_WIRE_VARINT)) out->rate_limiter.min_size_to_sample = (int64_t)field.value;
    if (rv_field_is(&field, 6, RV_WIRE_VARINT)) out->counters.samples = (int64_t)field.value;
    if (rv_field_is(&field, 7, RV_WIRE_VARINT)) out->counters.inserts = (int64_t)field.value;
    if (rv_field_is(&field, 8, RV_WIRE_VARINT)) out->counters.deletes = (int64_t)field.value;
  }
  return reader.broken ? rv_fail_parse(err, "RateLimiterCheckpoint") : RV_OK;
}

static rv_code parse_name(rv_span bytes, rv_table_record *out, rv_error *err)
{
  rv_code code = rv_check_text(bytes, "a table's name", err);
  if (code != RV_OK) return code;
  free(out->name);
  out->name = rv_span_text(bytes);
  return out->name != NULL ? RV_OK : rv_fail_memory(err, bytes.size);
}

static rv_code parse_signature(rv_span bytes, rv_table_record *out, rv_error *err)
{
  rv_signature_fini(&out->signature);
  rv_code code = rv_signature_parse(bytes, &out->signature, err);
  if (code != RV_OK) out->signature = (rv_signature){0};
  return code;
}

static void parse_varint(const rv_field *field, rv_table_record *out)
{
  switch (field->number) {
  case 6: out->max_size = (int64_t)field->value; break;
  case 7: out->max_times_sampled = rv_field_int32(field); break;
  case 8: out->counters.num_deleted_episodes = (int64_t)field->value; break;
  case 10: out->counters.num_unique_samples = (int64_t)field->value; break;
  case 1001: out->max_bytes = (int64_t)field->value; break;
  default: break;
  }
}

static rv_code parse_bytes(const rv_field *field, rv_table_record *out, rv_error *err)
{
  switch (field->number) {
  case 1: return parse_name(field->bytes, out, err);
  case 2: out->num_items++; return RV_OK;
  case 3: return parse_limiter(field->bytes, out, err);
  case 4: return rv_selector_parse(field->bytes, &out->sampler, err);
  case 5: return rv_selector_parse(field->bytes, &out->remover, err);
  case 9: return parse_signature(field->bytes, out, err);
  default: return RV_OK;
  }
}

static rv_code collect_items(rv_span message, rv_table_record *out, rv_error *err)
{
  size_t count = out->num_items;
  out->num_items = 0;
  if (count == 0) return RV_OK;
  out->items = calloc(count, sizeof *out->items);
  if (out->items == NULL) return rv_fail_memory(err, count * sizeof *out->items);
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) out->items[out->num_items++] = field.bytes;
  return RV_OK;
}

rv_code rv_table_record_parse(rv_span message, rv_table_record *out, rv_error *err)
{
  *out = (rv_table_record){.max_bytes = RV_UNCHANGED};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (field.type == RV_WIRE_VARINT) parse_varint(&field, out);
    if (field.type == RV_WIRE_BYTES) code = parse_bytes(&field, out, err);
    if (rv_field_is(&field, 1000, RV_WIRE_FIXED64)) out->counters.naming = field.value;
  }
  if (code == RV_OK && reader.broken) code = rv_fail_parse(err, "PriorityTableCheckpoint");
  if (code == RV_OK && out->name == NULL) code = rv_fail(err, RV_INVALID_ARGUMENT, "a table without a name");
  if (code != RV_OK) {
    out->num_items = 0;
    return code;
  }
  return collect_items(message, out, err);
}

static void free_selector(rv_selector_config *selector)
{
  free((void *)(uintptr_t)selector->name);
  free((void *)(uintptr_t)selector->options);
}

void rv_table_record_fini(rv_table_record *record)
{
  free(record->name);
  free_selector(&record->sampler);
  free_selector(&record->remover);
  rv_signature_fini(&record->signature);
  free(record->items);
  *record = (rv_table_record){0};
}
