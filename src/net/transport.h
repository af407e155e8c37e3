/* The bytes under a connection: a plain socket here, TLS over one in tls.h. */
#ifndef RV_NET_TRANSPORT_H
#define RV_NET_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/gaps.h"
#include "base/spares.h"
#include "net/landing.h"

typedef struct rv_transport rv_transport;

typedef struct rv_transport_ops {
  /* Bytes moved, 0 at the end of the stream (read only), or a negated errno; -EAGAIN: wait for the socket. What was not taken by a write
   * must be the beginning of the next. */
  ssize_t (*read)(rv_transport *transport, const struct iovec *vec, int count);
  ssize_t (*write)(rv_transport *transport, const struct iovec *vec, int count);
  /* What the last read left out (`gaps`) is needed no more. False: it was not lent any more, and what was copied from it may be something
   * else. Only where reads leave gaps. */
  bool (*give_back)(rv_transport *transport);
  /* What is read next is there already, in a block that becomes the buffer of its message, with `before` bytes of it before them and room for
   * `behind` from them on: reading it there copies nothing. The caller's reference; NULL: it is to be read like all else. */
  rv_buf *(*land)(rv_transport *transport, size_t before, size_t behind);
  /* Bytes can be read although the socket has none. False: the socket becomes readable when there are. */
  bool (*pending)(rv_transport *transport);
  void (*rest)(rv_transport *transport); /* the connection is quiet: memory that waits for its next bytes may go */
  /* The name in the certificate that the peer showed; "": it showed none. Valid until close. */
  const char *(*peer_name)(rv_transport *transport);
  void (*shut_down)(rv_transport *transport); /* no more writes */
  void (*close)(rv_transport *transport);
} rv_transport_ops;

struct rv_transport {
  const rv_transport_ops *ops;
  int fd;                  /* what to poll */
  void *state;             /* of the ops */
  rv_landing_round *round; /* a server's: in which its client gets blocks (landing.h) */
  const char *problem;     /* why the last read or write failed, where an errno does not say it; NULL: it does */
  rv_landing *landing;     /* a client's: its rows may lie in blocks of the server's; NULL: they do not */
  rv_landing_end *blocks;  /* a server's: that it gives; NULL: none */
  rv_gaps *gaps;           /* the next read may leave gaps in the first of two places, and notes them here; NULL: it does not */
  bool borrows;   /* the peer lends large messages: they take no room here until they are read, nor a system call to take */
  size_t lent;    /* bytes of messages that stay until the peer has taken what is lent of them */
  bool disagreed; /* the peer said something, and then came to no agreement: the handshake failed. Stays after close */
  bool read_awaits_writable, write_awaits_readable; /* what the last -EAGAIN of each waits for instead */
};

void rv_transport_init_socket(rv_transport *transport, int owned_fd);

/* For the ops of others: what a plain socket does. */
bool rv_transport_nothing_pending(rv_transport *transport);
bool rv_transport_nothing_lent(rv_transport *transport);
rv_buf *rv_transport_nothing_lands(rv_transport *transport, size_t before, size_t behind);
void rv_transport_no_rest(rv_transport *transport);
const char *rv_transport_no_name(rv_transport *transport);
void rv_transport_shut_socket(rv_transport *transport);
void rv_transport_close_socket(rv_transport *transport);

#endif
