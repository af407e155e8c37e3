/* gRPC messages out of a stream of bytes: a prefix of five bytes, then the message, gathered into a buffer of exactly its size.
 *
 * An announced length alone costs no memory: the buffer grows with what arrives. */
#ifndef RV_NET_READER_H
#define RV_NET_READER_H

#include <stdbool.h>

#include "base/spares.h"

enum { RV_MESSAGE_PREFIX = 5 };

typedef struct rv_message_reader {
  uint8_t prefix[RV_MESSAGE_PREFIX];
  uint8_t prefix_have;
  uint32_t size; /* announced, once the prefix is whole */
  rv_buf *buf;   /* being filled; buf->size bytes are there */
  rv_spares
      *spares; /* where large ones come from; NULL (after rv_message_reader_init): malloc. Whoever keeps messages wants those */
  bool lends;  /* and sends them on, so they had better lie where others can read them */
} rv_message_reader;

typedef enum rv_message_reader_result {
  RV_READER_MORE,       /* all input is taken */
  RV_READER_MESSAGE,    /* *out is a message; there may be more input */
  RV_READER_COMPRESSED, /* the rest: the stream is broken */
  RV_READER_BAD_FLAG,
  RV_READER_TOO_LARGE, /* reader->size is larger than the limit */
  RV_READER_NO_MEMORY
} rv_message_reader_result;

void rv_message_reader_init(rv_message_reader *reader);
void rv_message_reader_fini(rv_message_reader *reader);
/* Takes bytes from *data until a message is whole or nothing is left. `*out` is then the caller's. */
rv_message_reader_result rv_message_reader_take(rv_message_reader *reader, const uint8_t **data, size_t *size, size_t limit,
                                                rv_buf **out);
/* Where the next bytes of the message in progress could be received directly: their room, 0 when there is no such place. Bytes
 * that were received there are then given to rv_message_reader_take, which does not copy them. */
size_t rv_message_reader_room(rv_message_reader *reader, uint8_t **at);
/* The message in progress may go on in another buffer: it has `before` bytes, and `behind` more are to come. */
bool rv_message_reader_may_move(const rv_message_reader *reader, size_t *before, size_t *behind);
/* It does, in one with room for both. */
void rv_message_reader_move(rv_message_reader *reader, rv_buf *owned_buf);
/* Bytes of the message in progress that are there. */
size_t rv_message_reader_have(const rv_message_reader *reader);
/* Bytes still missing from the message in progress, prefix included; 0 between messages. */
size_t rv_message_reader_missing(const rv_message_reader *reader);
bool rv_message_reader_is_between(const rv_message_reader *reader);

#endif
