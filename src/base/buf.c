#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#include "base/refs.h"

enum { TAIL_BYTES = 2048, TAIL_BYTES_MAX = 32768 };

rv_buf *rv_buf_new(size_t capacity)
{
  if (capacity > SIZE_MAX - sizeof(rv_buf)) return NULL;
  rv_buf *buf = malloc(sizeof *buf + capacity);
  if (buf == NULL) return NULL;
  atomic_init(&buf->refs, 1);
  buf->size = 0;
  buf->capacity = capacity;
  buf->release = NULL;
  buf->data = (uint8_t *)(buf + 1);
  return buf;
}

rv_buf *rv_buf_copy(const void *data, size_t size)
{
  rv_buf *buf = rv_buf_new(size);
  if (buf == NULL) return NULL;
  if (size > 0) memcpy(buf->data, data, size);
  buf->size = size;
  return buf;
}

rv_buf *rv_buf_ref(rv_buf *buf)
{
  atomic_fetch_add_explicit(&buf->refs, 1, memory_order_relaxed);
  return buf;
}

void rv_buf_unref(rv_buf *buf)
{
  if (buf == NULL || !rv_refs_drop(&buf->refs, 1)) return;
  if (buf->release != NULL)
    buf->release(buf);
  else
    free(buf);
}

void rv_pieces_init(rv_pieces *pieces)
{
  *pieces = (rv_pieces){0};
}

void rv_pieces_fini(rv_pieces *pieces)
{
  for (size_t i = 0; i < pieces->count; i++) rv_buf_unref(pieces->piece[i].owner);
  rv_buf_unref(pieces->spare);
  free(pieces->piece);
  rv_pieces_init(pieces);
}

void rv_pieces_clear(rv_pieces *pieces)
{
  rv_buf *tail = pieces->tail != NULL ? rv_buf_ref(pieces->tail) : NULL;
  for (size_t i = 0; i < pieces->count; i++) rv_buf_unref(pieces->piece[i].owner);
  pieces->count = pieces->bytes = 0;
  pieces->tail = NULL;
  if (tail == NULL) return;
  if (pieces->spare != NULL || atomic_load_explicit(&tail->refs, memory_order_acquire) != 1) {
    rv_buf_unref(tail);
    return;
  }
  tail->size = 0;
  pieces->spare = tail;
}

static rv_code reserve(rv_pieces *pieces, size_t more)
{
  if (pieces->capacity - pieces->count >= more) return RV_OK;
  size_t capacity = pieces->capacity == 0 ? 8 : pieces->capacity * 2;
  while (capacity - pieces->count < more) capacity *= 2;
  rv_piece *grown = realloc(pieces->piece, capacity * sizeof *grown);
  if (grown == NULL) return RV_RESOURCE_EXHAUSTED;
  pieces->piece = grown;
  pieces->capacity = capacity;
  return RV_OK;
}

static void add(rv_pieces *pieces, rv_buf *owned_owner, const uint8_t *data, size_t size)
{
  pieces->piece[pieces->count++] = (rv_piece){.data = data, .size = size, .owner = owned_owner};
  pieces->bytes += size;
}

rv_code rv_pieces_copy(rv_pieces *pieces, const void *data, size_t size)
{
  if (size == 0) return RV_OK;
  rv_buf *tail = pieces->tail;
  if (tail == NULL || tail->capacity - tail->size < size) {
    if (reserve(pieces, 1) != RV_OK) return RV_RESOURCE_EXHAUSTED;
    size_t room = pieces->bytes < TAIL_BYTES ? TAIL_BYTES : pieces->bytes; /* long messages come in fewer buffers */
    if (room > TAIL_BYTES_MAX) room = TAIL_BYTES_MAX;
    if (pieces->spare != NULL && pieces->spare->capacity >= size) {
      tail = pieces->spare;
      pieces->spare = NULL;
    } else {
      tail = rv_buf_new(size > room ? size : room);
    }
    if (tail == NULL) return RV_RESOURCE_EXHAUSTED;
    add(pieces, tail, tail->data, 0);
    pieces->tail = tail;
  } else {
    rv_piece *last = &pieces->piece[pieces->count - 1];
    if (last->owner != tail || last->data + last->size != tail->data + tail->size) {
      if (reserve(pieces, 1) != RV_OK) return RV_RESOURCE_EXHAUSTED;
      add(pieces, rv_buf_ref(tail), tail->data + tail->size, 0);
    }
  }
  memcpy(tail->data + tail->size, data, size);
  tail->size += size;
  pieces->piece[pieces->count - 1].size += size;
  pieces->bytes += size;
  return RV_OK;
}

rv_code rv_pieces_share(rv_pieces *pieces, rv_buf *owner, const void *data, size_t size)
{
  return size == 0 ? RV_OK : rv_pieces_give(pieces, rv_buf_ref(owner), data, size);
}

rv_code rv_pieces_give(rv_pieces *pieces, rv_buf *owned_owner, const void *data, size_t size)
{
  rv_code code = size == 0 ? RV_OK : reserve(pieces, 1);
  if (size == 0 || code != RV_OK)
    rv_buf_unref(owned_owner);
  else
    add(pieces, owned_owner, data, size);
  return code;
}

rv_code rv_pieces_append(rv_pieces *to, rv_pieces *from)
{
  if (reserve(to, from->count) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  if (from->count > 0) memcpy(to->piece + to->count, from->piece, from->count * sizeof *from->piece);
  to->count += from->count;
  to->bytes += from->bytes;
  if (to->tail == NULL) to->tail = from->tail; /* else the one begun has room yet, though what was appended stands behind it */
  rv_buf_unref(from->spare);
  free(from->piece);
  rv_pieces_init(from);
  return RV_OK;
}
