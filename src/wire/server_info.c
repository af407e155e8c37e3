#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "wire/parse.h"
#include "wire/table_info.h"

/* What a parsed message may take in memory for each of its bytes, and beside them. */
enum { BUDGET_FACTOR = 16, BUDGET_FLOOR = 1 << 20 };

static bool parse_state_id(rv_span message, uint64_t out[2])
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) out[0] = field.value;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) out[1] = field.value;
  }
  return !reader.broken;
}

static rv_code count_tables(rv_span message, size_t *count, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) ++*count;
  return reader.broken ? rv_fail_parse(err, "ServerInfoResponse") : RV_OK;
}

static void parse_memory(const rv_field *field, rv_memory_info *out)
{
  int64_t value = (int64_t)field->value;
  switch (field->number) {
  case 1000: out->used_bytes = value; break;
  case 1001: out->limit_bytes = value; break;
  case 1002: out->stream_bytes = value; break;
  case 1003: out->connection_bytes = value; break;
  case 1004: out->spilled_bytes = value; break;
  default: break;
  }
}

static void parse_fault(rv_span text, char *out, size_t capacity)
{
  size_t size = text.size < capacity - 1 ? text.size : capacity - 1;
  if (size > 0) memcpy(out, text.data, size);
  out[size] = '\0';
  rv_utf8_repair(out);
}

static rv_code parse_into(rv_span message, rv_info_budget *budget, rv_server_info *info, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES) && !parse_state_id(field.bytes, info->state_id))
      code = rv_fail_parse(err, "ServerInfoResponse");
    if (rv_field_is(&field, 2, RV_WIRE_BYTES))
      code = rv_table_info_parse(field.bytes, budget, &info->tables[info->num_tables++], err);
    if (field.type == RV_WIRE_VARINT) parse_memory(&field, &info->memory);
    if (rv_field_is(&field, 1005, RV_WIRE_VARINT)) info->journal_lag_ns = (int64_t)field.value;
    if (rv_field_is(&field, 1006, RV_WIRE_BYTES)) parse_fault(field.bytes, info->journal_fault, sizeof info->journal_fault);
    if (rv_field_is(&field, 1007, RV_WIRE_BYTES))
      parse_fault(field.bytes, info->memory.spill_fault, sizeof info->memory.spill_fault);
  }
  return code;
}

rv_code rv_server_info_parse(rv_span message, rv_server_info **out, rv_error *err)
{
  size_t count = 0;
  rv_code code = count_tables(message, &count, err);
  if (code != RV_OK) return code;
  rv_info_budget budget = {.left = BUDGET_FLOOR + (message.size > SIZE_MAX / 32 ? SIZE_MAX / 2 : message.size * BUDGET_FACTOR)};
  if (count > SIZE_MAX / sizeof(rv_table_info) || !rv_info_budget_take(&budget, count * sizeof(rv_table_info)))
    return rv_fail(err, RV_INVALID_ARGUMENT, "a ServerInfoResponse of %zu bytes with %zu tables: most of them are empty",
                   message.size, count);
  rv_server_info *info = calloc(1, sizeof *info);
  if (info == NULL) return rv_fail_memory(err, sizeof *info);
  info->tables = calloc(count > 0 ? count : 1, sizeof *info->tables);
  code = info->tables != NULL ? parse_into(message, &budget, info, err) : rv_fail_memory(err, count * sizeof *info->tables);
  if (code != RV_OK) {
    rv_server_info_free(info);
    return code;
  }
  *out = info;
  return RV_OK;
}

void rv_server_info_serialize(rv_writer_buf *out, const rv_server_info *info)
{
  size_t id = rv_put_open(out, 1);
  rv_put_varint(out, 1, info->state_id[0]);
  rv_put_varint(out, 2, info->state_id[1]);
  rv_put_close(out, id);
  for (size_t i = 0; i < info->num_tables; i++) rv_table_info_put(out, 2, &info->tables[i]);
  rv_put_varint(out, 1000, (uint64_t)info->memory.used_bytes);
  rv_put_varint(out, 1001, (uint64_t)info->memory.limit_bytes);
  rv_put_varint(out, 1002, (uint64_t)info->memory.stream_bytes);
  rv_put_varint(out, 1003, (uint64_t)info->memory.connection_bytes);
  rv_put_varint(out, 1004, (uint64_t)info->memory.spilled_bytes);
  rv_put_varint(out, 1005, (uint64_t)info->journal_lag_ns);
  rv_put_string(out, 1006, info->journal_fault);
  rv_put_string(out, 1007, info->memory.spill_fault);
}
