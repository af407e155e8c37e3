/* The messages of one call that wait to be sent, as the stream of bytes they become. */
#ifndef RV_NET_SENDQ_H
#define RV_NET_SENDQ_H

#include "net/output.h"
#include "net/reader.h"

typedef struct rv_sendq_message {
  rv_pieces pieces;
  size_t next;   /* the first piece not sent whole */
  size_t offset; /* bytes of it already sent */
  uint8_t prefix[RV_MESSAGE_PREFIX];
  uint8_t prefix_sent;
} rv_sendq_message;

typedef struct rv_sendq {
  rv_sendq_message *ring;
  size_t head, count, capacity; /* capacity: a power of two */
  size_t bytes;                 /* left to send, prefixes included */
} rv_sendq;

void rv_sendq_init(rv_sendq *queue);
void rv_sendq_fini(rv_sendq *queue);
/* Adds one message and takes its pieces (empty afterwards). false: out of memory, or larger than a prefix can say. */
bool rv_sendq_push(rv_sendq *queue, rv_pieces *pieces);
/* Moves the first `size` bytes (at most queue->bytes) to the output. false: out of memory. */
bool rv_sendq_move(rv_sendq *queue, size_t size, rv_output *output);

#endif
