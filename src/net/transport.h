/* The bytes under a connection: a plain socket here; encryption would be another set of these functions. */
#ifndef RV_NET_TRANSPORT_H
#define RV_NET_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef struct rv_transport rv_transport;

typedef struct rv_transport_ops {
  /* Bytes moved, 0 at the end of the stream (read only), or a negated errno; -EAGAIN: wait for the socket. */
  ssize_t (*read)(rv_transport *transport, const struct iovec *vec, int count);
  ssize_t (*write)(rv_transport *transport, const struct iovec *vec, int count);
  void (*shut_down)(rv_transport *transport); /* no more writes */
  void (*close)(rv_transport *transport);
} rv_transport_ops;

struct rv_transport {
  const rv_transport_ops *ops;
  int fd; /* what to poll */
};

void rv_transport_init_socket(rv_transport *transport, int owned_fd);

#endif
