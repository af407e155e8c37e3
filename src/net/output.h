/* Bytes on their way to a socket: small ones copied together, large ones by reference. */
#ifndef RV_NET_OUTPUT_H
#define RV_NET_OUTPUT_H

#include "base/buf.h"
#include "net/transport.h"

typedef struct rv_output_part {
  const uint8_t *data;
  size_t size;
  rv_buf *owner; /* one reference */
} rv_output_part;

typedef struct rv_output {
  rv_output_part *part;
  size_t head, count, capacity; /* parts head .. head + count - 1 are waiting */
  size_t bytes;
  rv_buf *block;  /* where small bytes are copied to, one reference; NULL: none while nothing waits */
  rv_buf **spare; /* where a block is kept for the next output of the loop */
} rv_output;

/* From this size on bytes go by reference. */
enum { RV_OUTPUT_SHARE = 1024 };

void rv_output_init(rv_output *output, rv_buf **spare);
void rv_output_fini(rv_output *output);
/* false: out of memory. */
bool rv_output_copy(rv_output *output, const void *data, size_t size);
bool rv_output_share(rv_output *output, rv_buf *owner, const uint8_t *data, size_t size);
/* The same with a reference of the caller's, which is gone in any case. */
bool rv_output_give(rv_output *output, rv_buf *owned_owner, const uint8_t *data, size_t size);
/* Writes what the transport takes: the bytes written, or a negated errno. */
ssize_t rv_output_write(rv_output *output, rv_transport *transport);

#endif
