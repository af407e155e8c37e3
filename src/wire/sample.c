#include <stdlib.h>

#include "base/error.h"
#include "wire/cut.h"
#include "wire/messages.h"
#include "wire/parse.h"
#include "wire/sample_pack.h"

/* ---- SampleStreamRequest ---- */

static bool parse_timeout(rv_span message, int64_t *ms)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) *ms = (int64_t)field.value;
  return !reader.broken;
}

rv_code rv_sample_request_parse(rv_span message, rv_sample_request *out, rv_error *err)
{
  *out = (rv_sample_request){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  bool good = true;
  while (good && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) out->table = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) out->num_samples = (int64_t)field.value;
    if (rv_field_is(&field, 3, RV_WIRE_BYTES)) good = parse_timeout(field.bytes, &out->timeout_ms);
    if (rv_field_is(&field, 1000, RV_WIRE_VARINT)) out->same_layout = field.value != 0;
    if (rv_field_is(&field, 1001, RV_WIRE_VARINT)) out->poll = field.value != 0;
    if (rv_field_is(&field, 1002, RV_WIRE_VARINT)) out->whole = field.value != 0;
    if (rv_field_is(&field, 1003, RV_WIRE_VARINT)) out->packed = field.value != 0;
  }
  if (!good || reader.broken) return rv_fail_parse(err, "SampleStreamRequest");
  return rv_check_text(out->table, "the table name of a sample request", err);
}

void rv_sample_request_serialize(rv_writer_buf *out, const rv_sample_request *request)
{
  rv_put_bytes(out, 1, request->table.data, request->table.size);
  rv_put_varint(out, 2, (uint64_t)request->num_samples);
  size_t mark = rv_put_open(out, 3);
  rv_put_varint(out, 1, (uint64_t)request->timeout_ms);
  rv_put_close(out, mark);
  rv_put_varint(out, 1000, request->same_layout);
  rv_put_varint(out, 1001, request->poll);
  rv_put_varint(out, 1002, request->whole);
  rv_put_varint(out, 1003, request->packed);
}

/* ---- SampleStreamResponse ---- */

enum { NAMING = 1001 };

static bool count_entry(rv_span entry, size_t *chunks)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, entry);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) ++*chunks;
  return !reader.broken;
}

static rv_code parse_info(rv_span message, rv_wire_sample_info *out, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) {
      rv_wire_item_fini(&out->item); /* a second one replaces the first */
      code = rv_wire_item_parse(field.bytes, &out->item, err);
    }
    if (rv_field_is(&field, 2, RV_WIRE_FIXED64)) out->probability = rv_field_double(&field);
    if (rv_field_is(&field, 3, RV_WIRE_VARINT)) out->table_size = (int64_t)field.value;
    if (rv_field_is(&field, 4, RV_WIRE_VARINT)) out->rate_limited = field.value != 0;
  }
  return code == RV_OK && reader.broken ? rv_fail_parse(err, "SampleInfo") : code;
}

static rv_code parse_entry(rv_span message, rv_sample_entry *out, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) {
      out->has_info = true;
      code = parse_info(field.bytes, &out->info, err);
    }
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) out->chunks[out->num_chunks++] = field.bytes;
    if (rv_field_is(&field, 3, RV_WIRE_VARINT)) out->end_of_sequence = field.value != 0;
  }
  return code; /* counting has read all of it before */
}

static rv_code count_response(rv_span message, size_t *entries, size_t *chunks, uint64_t *naming, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  bool good = true;
  while (good && rv_reader_next(&reader, &field)) {
    bool entry = rv_field_is(&field, 1, RV_WIRE_BYTES);
    if (entry || rv_field_is(&field, RV_SAMPLE_PACKS, RV_WIRE_BYTES)) ++*entries;
    if (entry) good = count_entry(field.bytes, chunks);
    if (rv_field_is(&field, NAMING, RV_WIRE_FIXED64)) *naming = field.value;
  }
  if (!good || reader.broken) return rv_fail_parse(err, "SampleStreamResponse");
  /* An entry takes more memory than its bytes. Those of an honest server have items or chunks; a run of empty ones is no sample.
   */
  enum { FACTOR = 16, FLOOR = 65536 };
  if (*entries > (message.size + FLOOR) / (sizeof(rv_sample_entry) / FACTOR))
    return rv_fail(err, RV_INVALID_ARGUMENT, "a SampleStreamResponse of %zu bytes with %zu entries: most of them are empty",
                   message.size, *entries);
  return RV_OK;
}

rv_code rv_sample_response_parse(rv_span message, rv_sample_response *out, rv_error *err)
{
  *out = (rv_sample_response){0};
  size_t entries = 0, chunks = 0;
  rv_code code = count_response(message, &entries, &chunks, &out->naming, err);
  if (code != RV_OK || entries == 0) return code;
  size_t entry_bytes = entries * sizeof *out->entries, size = entry_bytes + chunks * sizeof(rv_span);
  out->entries = calloc(1, size);
  if (out->entries == NULL) return rv_fail_memory(err, size);
  rv_span *spans = (rv_span *)(void *)(out->entries + entries);
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, RV_SAMPLE_PACKS, RV_WIRE_BYTES)) out->entries[out->num_entries++].pack = field.bytes;
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) {
      rv_sample_entry *entry = &out->entries[out->num_entries++];
      entry->chunks = spans;
      code = parse_entry(field.bytes, entry, err);
      spans += entry->num_chunks;
    }
  }
  if (code != RV_OK) rv_sample_response_fini(out);
  return code;
}

void rv_sample_response_fini(rv_sample_response *response)
{
  for (size_t i = 0; i < response->num_entries; i++) rv_wire_item_fini(&response->entries[i].info.item);
  free(response->entries);
  *response = (rv_sample_response){0};
}

rv_code rv_sample_response_put_naming(rv_pieces *response, uint64_t naming, rv_error *err)
{
  rv_writer_buf field;
  rv_writer_buf_init(&field);
  rv_put_fixed64(&field, NAMING, naming);
  rv_code code = rv_writer_buf_flush(&field, response, err);
  rv_writer_buf_fini(&field);
  return code;
}
