/* For net's tests: bytes that all lie in a unix socket before the loop that reads it looks. */
#ifndef RV_NET_BURST_TESTING_H
#define RV_NET_BURST_TESTING_H

#include <stdio.h>
#include <sys/un.h>

#include "net/echo_testing.h"
#include "net/raw_testing.h"

enum { BURST = 128 << 10 };
static const uint8_t hello[] = "\0\0\0\0\5hello";
enum { HELLO = sizeof hello - 1 };

/* ---- where the socket is ---- */

typedef struct socket_place {
  char directory[32], address[64];
  struct sockaddr_un name;
} socket_place;

static inline void place_init(socket_place *place)
{
  snprintf(place->directory, sizeof place->directory, "/tmp/reverie-net-XXXXXX");
  assert_non_null(mkdtemp(place->directory));
  snprintf(place->address, sizeof place->address, "unix:%s/socket", place->directory);
  place->name = (struct sockaddr_un){.sun_family = AF_UNIX};
  snprintf(place->name.sun_path, sizeof place->name.sun_path, "%s", place->address + 5);
}

static inline void place_fini(const socket_place *place)
{
  unlink(place->name.sun_path);
  rmdir(place->directory);
}

static inline int place_connect(const socket_place *place)
{
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(connect(fd, (const struct sockaddr *)&place->name, sizeof place->name), 0);
  return fd;
}

static inline int place_listen(const socket_place *place)
{
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (const struct sockaddr *)&place->name, sizeof place->name), 0);
  assert_int_equal(listen(fd, 4), 0);
  return fd;
}

/* A channel's connection to a server that knows nothing of its question (ring_transport.h): it ends the first, and gets one without. */
static inline int accept_without_question(int listener)
{
  close(accept(listener, NULL, NULL));
  return accept(listener, NULL, NULL);
}

/* ---- what is sent ---- */

/* Bytes that all lie in the socket before the loop that reads it looks: they are sent on that loop's thread. */
typedef struct raw_burst {
  int fd;
  size_t size;
  ssize_t sent;
  uint8_t data[BURST];
} raw_burst;

static inline raw_burst *burst_new(int fd)
{
  raw_burst *burst = calloc(1, sizeof *burst);
  assert_non_null(burst);
  burst->fd = fd;
  int room = 2 * BURST;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  return burst;
}

static inline void add_data(raw_burst *to, uint32_t stream, uint8_t flags, const void *beginning, size_t beginning_size,
                            size_t size)
{
  to->size += frame(to->data + to->size, size, NGHTTP2_DATA, flags, stream);
  if (beginning_size > 0) memcpy(to->data + to->size, beginning, beginning_size);
  to->size += size;
}

static inline void send_on_loop(void *argument)
{
  raw_burst *burst = argument;
  burst->sent = send(burst->fd, burst->data, burst->size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static inline void send_burst(raw_burst *owned_burst, rv_loop *loop)
{
  rv_loop_call(loop, send_on_loop, owned_burst);
  assert_int_equal(owned_burst->sent, owned_burst->size);
  free(owned_burst);
}

#endif
