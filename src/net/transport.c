#include "net/transport.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/socket.h"

static ssize_t socket_read(rv_transport *transport, const struct iovec *vec, int count)
{
  for (;;) {
    ssize_t n = readv(transport->fd, vec, count);
    if (n >= 0) return n;
    if (errno == EWOULDBLOCK) return -EAGAIN;
    if (errno != EINTR) return -errno;
  }
}

static ssize_t socket_write(rv_transport *transport, const struct iovec *vec, int count)
{
  struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)vec, .msg_iovlen = (size_t)count};
  int flags = 0;
#ifdef MSG_NOSIGNAL
  flags = MSG_NOSIGNAL;
#endif
  for (;;) {
    ssize_t n = sendmsg(transport->fd, &message, flags);
    if (n >= 0) return n;
    if (errno == EWOULDBLOCK) return -EAGAIN;
    if (errno != EINTR) return -errno;
  }
}

bool rv_transport_nothing_pending(rv_transport *transport)
{
  (void)transport;
  return false;
}

bool rv_transport_nothing_lent(rv_transport *transport)
{
  (void)transport;
  return true;
}

rv_buf *rv_transport_nothing_lands(rv_transport *transport, size_t before, size_t behind)
{
  (void)transport, (void)before, (void)behind;
  return NULL;
}

void rv_transport_no_rest(rv_transport *transport)
{
  (void)transport;
}

const char *rv_transport_no_name(rv_transport *transport)
{
  (void)transport;
  return "";
}

void rv_transport_shut_socket(rv_transport *transport)
{
  shutdown(transport->fd, SHUT_WR);
}

void rv_transport_close_socket(rv_transport *transport)
{
  if (transport->fd >= 0) rv_socket_close(transport->fd);
  transport->fd = -1;
}

void rv_transport_init_socket(rv_transport *transport, int owned_fd)
{
  static const rv_transport_ops ops = {.read = socket_read,
                                       .write = socket_write,
                                       .give_back = rv_transport_nothing_lent,
                                       .land = rv_transport_nothing_lands,
                                       .pending = rv_transport_nothing_pending,
                                       .rest = rv_transport_no_rest,
                                       .peer_name = rv_transport_no_name,
                                       .shut_down = rv_transport_shut_socket,
                                       .close = rv_transport_close_socket};
  *transport = (rv_transport){.ops = &ops, .fd = owned_fd};
}
