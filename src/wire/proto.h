/* Protobuf's wire form: a reader that copies nothing and trusts nobody, and a writer into pieces. */
#ifndef RV_WIRE_PROTO_H
#define RV_WIRE_PROTO_H

#include "base/buf.h"

typedef struct rv_span {
  const uint8_t *data;
  size_t size;
} rv_span;

typedef enum rv_wire_type { RV_WIRE_VARINT = 0, RV_WIRE_FIXED64 = 1, RV_WIRE_BYTES = 2, RV_WIRE_FIXED32 = 5 } rv_wire_type;

typedef struct rv_reader {
  const uint8_t *at, *end;
  bool broken; /* set for good at the first malformed byte */
} rv_reader;

/* One field; `number` holds varints and fixed values (fixed32 widened), `bytes` length-delimited ones. */
typedef struct rv_field {
  uint32_t number;
  rv_wire_type type;
  uint64_t value;
  rv_span bytes;
} rv_field;

static inline void rv_reader_init(rv_reader *reader, rv_span message)
{
  *reader = (rv_reader){.at = message.data, .end = message.size > 0 ? message.data + message.size : message.data};
}

/* A varint by itself, behind which *at stands then; false: none ends before `end`. */
bool rv_varint_take(const uint8_t **at, const uint8_t *end, uint64_t *out);

/* Any field, and the end. */
bool rv_reader_next_any(rv_reader *reader, rv_field *out);

/* The next field; false at the end or when broken. Groups are skipped (depth-limited). Fields with a number below 16 and a value
 * or length below 128, which are most, are read in place. */
static inline bool rv_reader_next(rv_reader *reader, rv_field *out)
{
  const uint8_t *at = reader->at;
  if (reader->end - at >= 2 && at[0] < 0x80 && at[0] >= 8 && at[1] < 0x80) {
    uint32_t type = at[0] & 7U;
    if (type == RV_WIRE_VARINT) {
      *out = (rv_field){.number = at[0] >> 3, .type = RV_WIRE_VARINT, .value = at[1]};
      reader->at = at + 2;
      return true;
    }
    if (type == RV_WIRE_BYTES && at[1] <= reader->end - at - 2) {
      *out = (rv_field){.number = at[0] >> 3, .type = RV_WIRE_BYTES, .bytes = {at + 2, at[1]}};
      reader->at = at + 2 + at[1];
      return true;
    }
  }
  return rv_reader_next_any(reader, out);
}

/* Iterates the values of a repeated varint or fixed64 field, packed or not: call with the field until it returns false; *state
 * starts at 0. A malformed packed field sets reader->broken. */
bool rv_field_next_value(rv_reader *reader, const rv_field *field, rv_wire_type type, size_t *state, uint64_t *out);
/* How many values that will give at most, to make room for them. */
size_t rv_field_count_values(const rv_field *field, rv_wire_type type);
double rv_field_double(const rv_field *field);
bool rv_utf8_valid(rv_span text); /* no surrogates, nothing overlong; NUL is a character like others */

/* Writing. A writer grows one flat buffer; sub-messages are written in place with their length put before them. */
typedef struct rv_writer_buf {
  uint8_t *data;
  size_t size, capacity;
  bool failed; /* out of memory: sticky */
} rv_writer_buf;

void rv_writer_buf_init(rv_writer_buf *out);
void rv_writer_buf_fini(rv_writer_buf *out);
/* Fields with proto3's default value are left out by the put functions; the _always ones write it (oneof members). */
void rv_put_varint(rv_writer_buf *out, uint32_t field, uint64_t value);
void rv_put_varint_always(rv_writer_buf *out, uint32_t field, uint64_t value);
void rv_put_fixed64(rv_writer_buf *out, uint32_t field, uint64_t value);
void rv_put_double(rv_writer_buf *out, uint32_t field, double value);
void rv_put_double_always(rv_writer_buf *out, uint32_t field, double value);
void rv_put_bytes(rv_writer_buf *out, uint32_t field, const void *data, size_t size);
void rv_put_bytes_always(rv_writer_buf *out, uint32_t field, const void *data, size_t size);
void rv_put_string(rv_writer_buf *out, uint32_t field, const char *text); /* NULL or "": left out */
void rv_put_packed(rv_writer_buf *out, uint32_t field, const uint64_t *values, size_t n);
size_t rv_put_open(rv_writer_buf *out, uint32_t field); /* begins a sub-message; returns a mark */
void rv_put_close(rv_writer_buf *out, size_t mark);
void rv_put_header(rv_writer_buf *out, uint32_t field, size_t size); /* tag and length only: the bytes follow by other means */
void rv_put_raw(rv_writer_buf *out, const void *data, size_t size);  /* bytes as they are */
size_t rv_varint_size(uint64_t value);

/* Into memory that has room; what follows comes where they return. Fields below 16. */
static inline uint8_t *rv_varint_write(uint8_t *at, uint64_t value)
{
  for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}
static inline uint8_t *rv_varint_field_write(uint8_t *at, uint32_t field, uint64_t value) /* 0 is left out */
{
  if (value == 0) return at;
  *at++ = (uint8_t)(field << 3 | RV_WIRE_VARINT);
  return rv_varint_write(at, value);
}

#endif
