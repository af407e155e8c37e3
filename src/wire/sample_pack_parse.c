#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "wire/parse.h"
#include "wire/sample_pack.h"

enum { BYTES_A_COLUMN = 16 };

/* The columns and chunks are counted first, so that one allocation holds them. */
static bool count_parts(rv_span message, rv_sample_pack *pack, size_t *num_columns)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) pack->count = field.value;
    if (rv_field_is(&field, 9, RV_WIRE_BYTES)) ++*num_columns;
    if (rv_field_is(&field, 10, RV_WIRE_BYTES)) pack->num_chunks++;
  }
  return !reader.broken;
}

static bool parse_column(rv_span message, rv_sample_pack_column *out)
{
  rv_reader reader;
  rv_field field;
  uint64_t chunk = 0, tensor = 0, length = 0;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) chunk = field.value;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) tensor = field.value;
    if (rv_field_is(&field, 3, RV_WIRE_VARINT)) length = field.value;
    if (rv_field_is(&field, 4, RV_WIRE_VARINT)) out->squeeze = field.value != 0;
  }
  if (reader.broken || chunk > UINT32_MAX || tensor > UINT32_MAX || length > INT32_MAX) return false;
  out->chunk = (uint32_t)chunk;
  out->tensor = (uint32_t)tensor;
  out->length = (int32_t)length;
  return true;
}

/* An array of `count` elements of so many bytes; others are left for the check at the end. */
static void take_array(const rv_field *field, uint32_t number, size_t bytes, size_t count, const uint8_t **out)
{
  if (rv_field_is(field, number, RV_WIRE_BYTES)) *out = field->bytes.size == count * bytes ? field->bytes.data : NULL;
}

static bool read_parts(rv_span message, rv_sample_pack *pack)
{
  rv_reader reader;
  rv_field field;
  size_t num_chunks = 0, n = pack->count;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    take_array(&field, 2, 8, n, &pack->keys);
    take_array(&field, 3, 8, n, &pack->probabilities);
    take_array(&field, 4, 8, n, &pack->priorities);
    take_array(&field, 5, 4, n, &pack->times_sampled);
    take_array(&field, 6, 8, n, &pack->table_sizes);
    take_array(&field, 7, 8, n, &pack->inserted_at);
    take_array(&field, 8, 1, n, &pack->rate_limited);
    if (rv_field_is(&field, 9, RV_WIRE_BYTES) && !parse_column(field.bytes, &pack->columns[pack->num_columns++])) return false;
    if (rv_field_is(&field, 10, RV_WIRE_BYTES)) pack->chunks[num_chunks++] = field.bytes;
  }
  return pack->keys != NULL && pack->probabilities != NULL && pack->priorities != NULL && pack->times_sampled != NULL &&
         pack->table_sizes != NULL && pack->inserted_at != NULL && pack->rate_limited != NULL;
}

static rv_code check_columns(const rv_sample_pack *pack, size_t message_size, rv_error *err)
{
  bool even = pack->num_chunks == 1;
  for (uint32_t i = 0; i < pack->num_columns; i++) {
    if (pack->columns[i].chunk >= pack->num_chunks)
      return rv_fail(err, RV_INVALID_ARGUMENT, "column %u of a pack of samples is in chunk %u, of %zu", (unsigned)i,
                     (unsigned)pack->columns[i].chunk, pack->num_chunks);
    even = even && pack->columns[i].length == pack->columns[0].length;
  }
  /* Each item then takes memory for each column, which must be worth it. */
  if (!even && pack->num_columns > message_size / BYTES_A_COLUMN / pack->count)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a pack of %zu samples with %u columns in %zu bytes: most of them are empty",
                   pack->count, (unsigned)pack->num_columns, message_size);
  return RV_OK;
}

rv_code rv_sample_pack_parse(rv_span message, rv_sample_pack *out, rv_error *err)
{
  *out = (rv_sample_pack){0};
  size_t num_columns = 0;
  if (!count_parts(message, out, &num_columns)) return rv_fail_parse(err, "PackedSamples");
  if (out->count == 0 || out->count > message.size || num_columns == 0 || num_columns > UINT16_MAX + 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a pack of %zu samples with %zu columns in %zu bytes", out->count, num_columns,
                   message.size);
  size_t chunk_bytes = out->num_chunks * sizeof(rv_span), size = chunk_bytes + num_columns * sizeof *out->columns;
  out->chunks = calloc(1, size);
  if (out->chunks == NULL) return rv_fail_memory(err, size);
  out->columns = (rv_sample_pack_column *)(void *)(out->chunks + out->num_chunks);
  rv_code code = read_parts(message, out) ? check_columns(out, message.size, err) : rv_fail_parse(err, "PackedSamples");
  if (code != RV_OK) rv_sample_pack_fini(out);
  return code;
}

void rv_sample_pack_fini(rv_sample_pack *pack)
{
  free(pack->chunks);
  *pack = (rv_sample_pack){0};
}

void rv_sample_pack_describe(const rv_sample_pack *pack, size_t i, rv_draw *out)
{
  memcpy(&out->key, pack->keys + i * 8, 8);
  memcpy(&out->probability, pack->probabilities + i * 8, 8);
  memcpy(&out->priority, pack->priorities + i * 8, 8);
  memcpy(&out->times_sampled, pack->times_sampled + i * 4, 4);
  memcpy(&out->table_size, pack->table_sizes + i * 8, 8);
  memcpy(&out->inserted_at_ns, pack->inserted_at + i * 8, 8);
  out->rate_limited = pack->rate_limited[i] != 0;
}
