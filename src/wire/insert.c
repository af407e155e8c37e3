#include <stdlib.h>

#include "base/error.h"
#include "wire/insert_pack.h"
#include "wire/messages.h"
#include "wire/parse.h"
#include "wire/put.h"

/* ---- InsertStreamRequest ---- */

static void count_request(rv_reader *reader, rv_insert_request *out, size_t *num_packs)
{
  rv_field field;
  while (rv_reader_next(reader, &field)) {
    if (rv_field_is(&field, RV_INSERT_PACK, RV_WIRE_BYTES)) {
      out->pack = field.bytes;
      ++*num_packs;
    }
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) out->num_chunks++;
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) out->num_items++;
    if (field.number == 3) out->num_keep_chunk_keys += rv_field_count_values(&field, RV_WIRE_VARINT);
  }
}

rv_code rv_insert_request_parse(rv_span message, rv_insert_request *out, rv_error *err)
{
  *out = (rv_insert_request){0};
  rv_reader reader;
  rv_reader_init(&reader, message);
  size_t num_packs = 0;
  count_request(&reader, out, &num_packs);
  if (reader.broken) return rv_fail_parse(err, "InsertStreamRequest");
  if (num_packs > 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "an InsertStreamRequest with %zu packs of items; it has one or none", num_packs);
  /* One block: chunks, items, keys. What is counted takes at least a byte each, so it is at most 8 times the message. */
  size_t size = (out->num_chunks + out->num_items) * sizeof(rv_span) + out->num_keep_chunk_keys * sizeof(uint64_t);
  if (size == 0) return RV_OK;
  out->chunks = malloc(size);
  if (out->chunks == NULL) {
    *out = (rv_insert_request){0};
    return rv_fail_memory(err, size);
  }
  out->items = out->chunks + out->num_chunks;
  out->keep_chunk_keys = (uint64_t *)(void *)(out->items + out->num_items);
  /* A message that lies in the arena may have been changed since it was counted: it breaks no array then. */
  size_t chunks = 0, items = 0, keys = 0;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) {
      if (chunks++ < out->num_chunks) out->chunks[chunks - 1] = field.bytes;
    } else if (rv_field_is(&field, 2, RV_WIRE_BYTES)) {
      if (items++ < out->num_items) out->items[items - 1] = field.bytes;
    } else if (field.number == 3) {
      size_t state = 0;
      uint64_t key;
      while (rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &state, &key))
        if (keys++ < out->num_keep_chunk_keys) out->keep_chunk_keys[keys - 1] = key;
    }
  }
  const bool as_counted = chunks == out->num_chunks && items == out->num_items && keys <= out->num_keep_chunk_keys;
  out->num_keep_chunk_keys = keys;
  if (!reader.broken && as_counted) return RV_OK;
  rv_insert_request_fini(out);
  return rv_fail_parse(err, "InsertStreamRequest");
}

void rv_insert_request_fini(rv_insert_request *request)
{
  free(request->chunks);
  *request = (rv_insert_request){0};
}

/* ---- InsertStreamResponse ---- */

/* Why an item was refused is for people to read: what cannot be read is no reason to give up the stream, and with it items that are in. */
static const uint8_t unreadable[] = "the server's reason is not valid UTF-8";

static rv_code parse_failure(rv_span message, rv_insert_failure *out, rv_error *err)
{
  *out = (rv_insert_failure){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) out->key = field.value;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) out->code = (rv_code)rv_field_int32(&field);
    if (rv_field_is(&field, 3, RV_WIRE_BYTES)) out->message = field.bytes;
  }
  if (reader.broken) return rv_fail_parse(err, "InsertStreamResponse");
  if (out->code <= RV_OK || out->code > RV_UNAUTHENTICATED) out->code = RV_UNKNOWN;
  if (!rv_utf8_valid(out->message)) out->message = (rv_span){unreadable, sizeof unreadable - 1};
  return RV_OK;
}

rv_code rv_insert_response_parse(rv_span message, rv_insert_response *out, rv_error *err)
{
  *out = (rv_insert_response){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  size_t num_keys = 0, num_failures = 0;
  while (rv_reader_next(&reader, &field)) {
    if (field.number == 1) num_keys += rv_field_count_values(&field, RV_WIRE_VARINT);
    if (rv_field_is(&field, 1000, RV_WIRE_BYTES)) num_failures++;
  }
  if (reader.broken) return rv_fail_parse(err, "InsertStreamResponse");
  size_t size = num_failures * sizeof *out->failures + num_keys * sizeof *out->keys;
  if (size == 0) return RV_OK;
  out->failures = malloc(size);
  if (out->failures == NULL) return rv_fail_memory(err, size);
  out->keys = (uint64_t *)(void *)(out->failures + num_failures);
  rv_code code = RV_OK;
  rv_reader_init(&reader, message);
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    size_t state = 0;
    uint64_t key;
    if (field.number == 1)
      while (rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &state, &key)) out->keys[out->num_keys++] = key;
    if (rv_field_is(&field, 1000, RV_WIRE_BYTES)) code = parse_failure(field.bytes, &out->failures[out->num_failures++], err);
  }
  if (reader.broken) code = rv_fail_parse(err, "InsertStreamResponse");
  if (code != RV_OK) rv_insert_response_fini(out);
  return code;
}

void rv_insert_response_fini(rv_insert_response *response)
{
  free(response->failures);
  *response = (rv_insert_response){0};
}

void rv_insert_response_serialize(rv_writer_buf *out, const rv_insert_response *response)
{
  rv_put_packed(out, 1, response->keys, response->num_keys);
  for (size_t i = 0; i < response->num_failures; i++) {
    const rv_insert_failure *failure = &response->failures[i];
    size_t mark = rv_put_open(out, 1000);
    rv_put_varint(out, 1, failure->key);
    rv_put_int32(out, 2, (int32_t)failure->code);
    rv_put_bytes(out, 3, failure->message.data, failure->message.size);
    rv_put_close(out, mark);
  }
}
