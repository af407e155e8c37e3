#include <stdlib.h>
#include <string.h>

#include "wire/proto.h"

enum { FIRST_CAPACITY = 256, VARINT_MAX = 10 };

void rv_writer_buf_init(rv_writer_buf *out)
{
  *out = (rv_writer_buf){0};
}

void rv_writer_buf_fini(rv_writer_buf *out)
{
  free(out->data);
  rv_writer_buf_init(out);
}

static bool reserve(rv_writer_buf *out, size_t more)
{
  if (out->failed) return false;
  if (out->capacity - out->size >= more) return true;
  size_t capacity = out->capacity == 0 ? FIRST_CAPACITY : out->capacity;
  while (capacity - out->size < more) {
    if (capacity > SIZE_MAX / 2) {
      out->failed = true;
      return false;
    }
    capacity *= 2;
  }
  uint8_t *grown = realloc(out->data, capacity);
  if (grown == NULL) {
    out->failed = true;
    return false;
  }
  out->data = grown;
  out->capacity = capacity;
  return true;
}

size_t rv_varint_size(uint64_t value)
{
  return (size_t)(63 - __builtin_clzll(value | 1)) / 7 + 1;
}

static size_t store_varint(uint8_t *at, uint64_t value)
{
  size_t n = 0;
  for (; value >= 0x80; value >>= 7) at[n++] = (uint8_t)(value | 0x80);
  at[n++] = (uint8_t)value;
  return n;
}

/* The caller has reserved room. */
static void append_varint(rv_writer_buf *out, uint64_t value)
{
  out->size += store_varint(out->data + out->size, value);
}

static uint64_t tag(uint32_t field, rv_wire_type type)
{
  return (uint64_t)field << 3 | (uint64_t)type;
}

void rv_put_varint_always(rv_writer_buf *out, uint32_t field, uint64_t value)
{
  if (!reserve(out, 2 * VARINT_MAX)) return;
  append_varint(out, tag(field, RV_WIRE_VARINT));
  append_varint(out, value);
}

void rv_put_varint(rv_writer_buf *out, uint32_t field, uint64_t value)
{
  if (value != 0) rv_put_varint_always(out, field, value);
}

void rv_put_double_always(rv_writer_buf *out, uint32_t field, double value)
{
  if (!reserve(out, VARINT_MAX + sizeof value)) return;
  append_varint(out, tag(field, RV_WIRE_FIXED64));
  memcpy(out->data + out->size, &value, sizeof value);
  out->size += sizeof value;
}

void rv_put_fixed64(rv_writer_buf *out, uint32_t field, uint64_t value)
{
  if (value == 0 || !reserve(out, VARINT_MAX + sizeof value)) return;
  append_varint(out, tag(field, RV_WIRE_FIXED64));
  memcpy(out->data + out->size, &value, sizeof value);
  out->size += sizeof value;
}

void rv_put_double(rv_writer_buf *out, uint32_t field, double value)
{
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (bits != 0) rv_put_double_always(out, field, value); /* -0.0 is no default value */
}

void rv_put_header(rv_writer_buf *out, uint32_t field, size_t size)
{
  if (!reserve(out, 2 * VARINT_MAX)) return;
  append_varint(out, tag(field, RV_WIRE_BYTES));
  append_varint(out, size);
}

void rv_put_raw(rv_writer_buf *out, const void *data, size_t size)
{
  if (size == 0 || !reserve(out, size)) return;
  memcpy(out->data + out->size, data, size);
  out->size += size;
}

void rv_put_bytes_always(rv_writer_buf *out, uint32_t field, const void *data, size_t size)
{
  rv_put_header(out, field, size);
  rv_put_raw(out, data, size);
}

void rv_put_bytes(rv_writer_buf *out, uint32_t field, const void *data, size_t size)
{
  if (size > 0) rv_put_bytes_always(out, field, data, size);
}

void rv_put_string(rv_writer_buf *out, uint32_t field, const char *text)
{
  if (text != NULL) rv_put_bytes(out, field, text, strlen(text));
}

void rv_put_packed(rv_writer_buf *out, uint32_t field, const uint64_t *values, size_t n)
{
  if (n == 0) return;
  size_t size = 0;
  for (size_t i = 0; i < n; i++) size += rv_varint_size(values[i]);
  rv_put_header(out, field, size);
  if (!reserve(out, size)) return;
  for (size_t i = 0; i < n; i++) append_varint(out, values[i]);
}

size_t rv_put_open(rv_writer_buf *out, uint32_t field)
{
  if (!reserve(out, 2 * VARINT_MAX)) return 0;
  append_varint(out, tag(field, RV_WIRE_BYTES));
  out->data[out->size++] = 0; /* most sub-messages are short: room for a length of one byte, widened when it is known */
  return out->size;
}

void rv_put_close(rv_writer_buf *out, size_t mark)
{
  if (out->failed) return;
  size_t size = out->size - mark, wide = rv_varint_size(size);
  if (wide > 1) {
    if (!reserve(out, wide - 1)) return;
    memmove(out->data + mark + wide - 1, out->data + mark, size);
    out->size += wide - 1;
  }
  (void)store_varint(out->data + mark - 1, size);
}
