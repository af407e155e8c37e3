#include "net/reader.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1 << 20 };

void rv_message_reader_init(rv_message_reader *reader)
{
  *reader = (rv_message_reader){0};
}

static void begin_anew(rv_message_reader *reader)
{
  *reader = (rv_message_reader){.spares = reader->spares, .lends = reader->lends};
}

void rv_message_reader_fini(rv_message_reader *reader)
{
  rv_buf_unref(reader->buf);
  begin_anew(reader);
}

/* Only of larger messages than spares are used for: the buffer is ours alone and was made by rv_buf_new, so it is one block from malloc; a large one moves without being copied. */
static bool grow(rv_message_reader *reader)
{
  size_t capacity = reader->buf->capacity * 2;
  if (capacity > reader->size) capacity = reader->size;
  rv_buf *grown = realloc(reader->buf, sizeof *grown + capacity);
  if (grown == NULL) return false;
  grown->data = (uint8_t *)(grown + 1);
  grown->capacity = capacity;
  reader->buf = grown;
  return true;
}

static rv_message_reader_result begin(rv_message_reader *reader, size_t limit)
{
  const uint8_t *p = reader->prefix;
  reader->size = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
  if (p[0] == 1) return RV_READER_COMPRESSED;
  if (p[0] != 0) return RV_READER_BAD_FLAG;
  if (reader->size > limit) return RV_READER_TOO_LARGE;
  if (reader->spares != NULL && reader->size >= RV_SPARE_MIN && reader->size <= RV_SPARE_MAX)
    reader->buf = (reader->lends ? rv_spares_take_lendable : rv_spares_take)(reader->spares, reader->size);
  else
    reader->buf = rv_buf_new(reader->size < FIRST_CAPACITY ? reader->size : FIRST_CAPACITY);
  return reader->buf == NULL ? RV_READER_NO_MEMORY : RV_READER_MORE;
}

/* Bytes that the buffer takes as it is: a spare one may be larger than the message. */
static size_t room_of(const rv_message_reader *reader)
{
  size_t end = reader->buf->capacity < reader->size ? reader->buf->capacity : reader->size;
  return end - reader->buf->size;
}

static bool fill(rv_message_reader *reader, const uint8_t **data, size_t *size)
{
  while (*size > 0 && reader->buf->size < reader->size) {
    if (reader->buf->size == reader->buf->capacity && !grow(reader)) return false;
    rv_buf *buf = reader->buf;
    size_t room = room_of(reader), n = room < *size ? room : *size;
    uint8_t *to = buf->data + buf->size;
    if (to != *data) memcpy(to, *data, n);
    buf->size += n;
    *data += n;
    *size -= n;
  }
  return true;
}

rv_message_reader_result rv_message_reader_take(rv_message_reader *reader, const uint8_t **data, size_t *size, size_t limit,
                                                rv_buf **out)
{
  if (reader->buf == NULL) {
    size_t n = RV_MESSAGE_PREFIX - (size_t)reader->prefix_have;
    if (n > *size) n = *size;
    memcpy(reader->prefix + reader->prefix_have, *data, n);
    reader->prefix_have = (uint8_t)(reader->prefix_have + n);
    *data += n;
    *size -= n;
    if (reader->prefix_have < RV_MESSAGE_PREFIX) return RV_READER_MORE;
    rv_message_reader_result result = begin(reader, limit);
    if (result != RV_READER_MORE) return result;
  }
  if (!fill(reader, data, size)) return RV_READER_NO_MEMORY;
  if (reader->buf->size < reader->size) return RV_READER_MORE;
  *out = reader->buf;
  begin_anew(reader);
  return RV_READER_MESSAGE;
}

size_t rv_message_reader_room(rv_message_reader *reader, uint8_t **at)
{
  if (reader->buf == NULL) return 0;
  if (reader->buf->size == reader->buf->capacity && !grow(reader)) return 0;
  *at = reader->buf->data + reader->buf->size;
  return room_of(reader);
}

bool rv_message_reader_may_move(const rv_message_reader *reader, size_t *before, size_t *behind)
{
  if (reader->buf == NULL || !reader->lends || reader->buf->size == reader->size) return false;
  *before = reader->buf->size;
  *behind = reader->size - reader->buf->size;
  return true;
}

void rv_message_reader_move(rv_message_reader *reader, rv_buf *owned_buf)
{
  memcpy(owned_buf->data, reader->buf->data, reader->buf->size);
  owned_buf->size = reader->buf->size;
  rv_buf_unref(reader->buf);
  reader->buf = owned_buf;
}

size_t rv_message_reader_have(const rv_message_reader *reader)
{
  return reader->buf != NULL ? reader->buf->size : 0;
}

size_t rv_message_reader_missing(const rv_message_reader *reader)
{
  if (reader->buf != NULL) return reader->size - reader->buf->size;
  return reader->prefix_have > 0 ? RV_MESSAGE_PREFIX - (size_t)reader->prefix_have : 0;
}

bool rv_message_reader_is_between(const rv_message_reader *reader)
{
  return reader->buf == NULL && reader->prefix_have == 0;
}
