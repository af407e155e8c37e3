#include <string.h>

#include "wire/proto.h"

enum { VARINT_MAX = 10, GROUP_DEPTH = 64, START_GROUP = 3, END_GROUP = 4 };
#define FIELD_MAX ((UINT32_C(1) << 29) - 1)

static bool fail(rv_reader *reader)
{
  reader->broken = true;
  reader->at = reader->end;
  return false;
}

static uint64_t load64(const uint8_t *at)
{
  uint64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static uint32_t load32(const uint8_t *at)
{
  uint32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

/* Eight bytes of a varint to their 56 bits: pairs, then pairs of pairs, then both halves move together. */
static uint64_t join_sevens(uint64_t bytes)
{
  bytes &= UINT64_C(0x7F7F7F7F7F7F7F7F);
  bytes = (bytes & UINT64_C(0x7F007F007F007F00)) >> 1 | (bytes & UINT64_C(0x007F007F007F007F));
  bytes = (bytes & UINT64_C(0x3FFF00003FFF0000)) >> 2 | (bytes & UINT64_C(0x00003FFF00003FFF));
  return (bytes & UINT64_C(0x0FFFFFFF00000000)) >> 4 | (bytes & UINT64_C(0x000000000FFFFFFF));
}

/* Keys are random numbers of 64 bits, so most varints that are not short have nine or ten bytes. */
static bool get_wide_varint(const uint8_t **at, uint64_t *out)
{
  const uint8_t *p = *at;
  uint64_t word = load64(p), stops = ~word & UINT64_C(0x8080808080808080);
  if (stops != 0) {
    uint64_t up_to_stop = stops ^ (stops - 1); /* the lowest stop bit and all below it */
    *out = join_sevens(word & up_to_stop);
    *at = p + (unsigned)__builtin_ctzll(stops) / 8 + 1;
    return true;
  }
  *out = join_sevens(word) | (uint64_t)(p[8] & 0x7F) << 56;
  if (p[8] < 0x80) {
    *at = p + 9;
    return true;
  }
  *out |= (uint64_t)p[9] << 63; /* of the tenth byte one bit counts, as in protobuf */
  *at = p + 10;
  return p[9] < 0x80;
}

static bool get_long_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
  if (end - *at >= VARINT_MAX) return get_wide_varint(at, out);
  uint64_t value = 0;
  const uint8_t *p = *at;
  for (int i = 0; p < end; i++) { /* fewer than VARINT_MAX are left */
    uint64_t byte = *p++;
    value |= (byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      *at = p;
      *out = value;
      return true;
    }
  }
  return false;
}

static inline bool get_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
  if (*at < end && **at < 0x80) {
    *out = *(*at)++;
    return true;
  }
  return get_long_varint(at, end, out);
}

bool rv_varint_take(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
  return get_varint(at, end, out);
}

/* Reads a field's value, whatever its type but the groups'. */
static bool get_value(rv_reader *reader, uint32_t type, rv_field *out)
{
  size_t left = (size_t)(reader->end - reader->at);
  out->bytes = (rv_span){0};
  switch (type) {
  case RV_WIRE_VARINT: return get_varint(&reader->at, reader->end, &out->value);
  case RV_WIRE_FIXED64:
    if (left < 8) return false;
    out->value = load64(reader->at);
    reader->at += 8;
    return true;
  case RV_WIRE_FIXED32:
    if (left < 4) return false;
    out->value = load32(reader->at);
    reader->at += 4;
    return true;
  case RV_WIRE_BYTES: {
    uint64_t size = 0;
    if (!get_varint(&reader->at, reader->end, &size) || size > (uint64_t)(reader->end - reader->at)) return false;
    out->value = 0;
    out->bytes = (rv_span){reader->at, (size_t)size};
    reader->at += size;
    return true;
  }
  default: return false;
  }
}

static bool get_tag(rv_reader *reader, uint32_t *number, uint32_t *type)
{
  uint64_t tag = 0;
  if (!get_varint(&reader->at, reader->end, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_MAX) return false;
  *number = (uint32_t)(tag >> 3);
  *type = (uint32_t)(tag & 7);
  return true;
}

static bool skip_group(rv_reader *reader, uint32_t number)
{
  uint32_t open[GROUP_DEPTH];
  size_t depth = 0;
  open[depth++] = number;
  while (depth > 0) {
    uint32_t inner = 0, type = 0;
    rv_field ignored;
    if (!get_tag(reader, &inner, &type)) return false;
    if (type == START_GROUP) {
      if (depth == GROUP_DEPTH) return false;
      open[depth++] = inner;
    } else if (type == END_GROUP) {
      if (open[--depth] != inner) return false;
    } else if (!get_value(reader, type, &ignored)) {
      return false;
    }
  }
  return true;
}

bool rv_reader_next_any(rv_reader *reader, rv_field *out)
{
  while (reader->at < reader->end) {
    uint32_t type = 0;
    if (!get_tag(reader, &out->number, &type)) return fail(reader);
    if (type == START_GROUP) {
      if (!skip_group(reader, out->number)) return fail(reader);
      continue;
    }
    if (!get_value(reader, type, out)) return fail(reader);
    out->type = (rv_wire_type)type;
    return true;
  }
  return false;
}

bool rv_field_next_value(rv_reader *reader, const rv_field *field, rv_wire_type type, size_t *state, uint64_t *out)
{
  if (field->type == type) {
    if (*state != 0) return false;
    *state = 1;
    *out = field->value;
    return true;
  }
  if (field->type != RV_WIRE_BYTES || *state >= field->bytes.size) return false;
  const uint8_t *at = field->bytes.data + *state, *end = field->bytes.data + field->bytes.size;
  if (type == RV_WIRE_VARINT) {
    if (!get_varint(&at, end, out)) return fail(reader);
  } else {
    size_t width = type == RV_WIRE_FIXED64 ? 8 : 4;
    if ((size_t)(end - at) < width) return fail(reader);
    *out = width == 8 ? load64(at) : load32(at);
    at += width;
  }
  *state = (size_t)(at - field->bytes.data);
  return true;
}

size_t rv_field_count_values(const rv_field *field, rv_wire_type type)
{
  if (field->type == type) return 1;
  if (field->type != RV_WIRE_BYTES) return 0;
  if (type == RV_WIRE_FIXED64) return field->bytes.size / 8;
  if (type == RV_WIRE_FIXED32) return field->bytes.size / 4;
  size_t count = 0;
  for (size_t i = 0; i < field->bytes.size; i++) count += field->bytes.data[i] < 0x80;
  return count;
}

double rv_field_double(const rv_field *field)
{
  double value;
  memcpy(&value, &field->value, sizeof value);
  return value;
}
