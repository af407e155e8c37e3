#include "net/sendq.h"

#include <stdlib.h>

void rv_sendq_init(rv_sendq *queue)
{
  *queue = (rv_sendq){0};
}

static rv_sendq_message *at(rv_sendq *queue, size_t index)
{
  return &queue->ring[(queue->head + index) & (queue->capacity - 1)];
}

void rv_sendq_fini(rv_sendq *queue)
{
  for (size_t i = 0; i < queue->count; i++) rv_pieces_fini(&at(queue, i)->pieces);
  free(queue->ring);
  rv_sendq_init(queue);
}

static bool grow(rv_sendq *queue)
{
  size_t capacity = queue->capacity == 0 ? 2 : queue->capacity * 2;
  rv_sendq_message *ring = malloc(capacity * sizeof *ring);
  if (ring == NULL) return false;
  for (size_t i = 0; i < queue->count; i++) ring[i] = *at(queue, i);
  free(queue->ring);
  queue->ring = ring;
  queue->head = 0;
  queue->capacity = capacity;
  return true;
}

bool rv_sendq_push(rv_sendq *queue, rv_pieces *pieces)
{
  if (pieces->bytes > UINT32_MAX) return false;
  if (queue->count == queue->capacity && !grow(queue)) return false;
  uint32_t size = (uint32_t)pieces->bytes;
  rv_sendq_message *message = at(queue, queue->count++);
  *message = (rv_sendq_message){.pieces = *pieces,
                                .prefix = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size}};
  queue->bytes += RV_MESSAGE_PREFIX + (size_t)size;
  rv_pieces_init(pieces);
  return true;
}

static bool move_pieces(rv_sendq_message *message, size_t *size, rv_output *output)
{
  while (*size > 0 && message->next < message->pieces.count) {
    rv_piece *piece = &message->pieces.piece[message->next];
    const uint8_t *data = piece->data + message->offset;
    size_t n = piece->size - message->offset;
    if (n > *size) {
      n = *size;
      if (!rv_output_share(output, piece->owner, data, n)) return false;
      message->offset += n;
    } else {
      rv_buf *owner = piece->owner;
      piece->owner = NULL;
      message->next++;
      message->offset = 0;
      if (!rv_output_give(output, owner, data, n)) return false;
    }
    *size -= n;
  }
  return true;
}

bool rv_sendq_move(rv_sendq *queue, size_t size, rv_output *output)
{
  queue->bytes -= size;
  while (size > 0) {
    rv_sendq_message *message = at(queue, 0);
    size_t n = RV_MESSAGE_PREFIX - (size_t)message->prefix_sent;
    if (n > size) n = size;
    if (!rv_output_copy(output, message->prefix + message->prefix_sent, n)) return false;
    message->prefix_sent = (uint8_t)(message->prefix_sent + n);
    size -= n;
    if (!move_pieces(message, &size, output)) return false;
    if (message->prefix_sent == RV_MESSAGE_PREFIX && message->next == message->pieces.count) {
      rv_pieces_fini(&message->pieces);
      queue->head = (queue->head + 1) & (queue->capacity - 1);
      queue->count--;
    }
  }
  return true;
}
