/* A client's and a server's rings for net's tests, and the socket between them; the server may lend. Tests only. */
#ifndef RV_NET_RING_TESTING_H
#define RV_NET_RING_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/random.h"
#include "base/spares.h"
#include "net/ring.h"

typedef struct ends {
  rv_rings client, server;
  int memory, sockets[2];
  rv_arena *arena; /* the server's, who lends; NULL: he does not */
  rv_spares *spares;
  rv_arena_maps *maps;
} ends;

static inline int set_up(void **state)
{
  ends *both = calloc(1, sizeof *both);
  both->memory = rv_rings_make(&both->server);
  assert_true(both->memory >= 0);
  assert_true(rv_rings_join(both->memory, &both->client));
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both->sockets), 0);
  both->client.out.bell = both->client.in.bell = both->sockets[0];
  both->server.out.bell = both->server.in.bell = both->sockets[1];
  *state = both;
  return 0;
}

static inline int set_up_lending(void **state)
{
  set_up(state);
  ends *both = *state;
  rv_error error;
  if (rv_arena_new(64 << 20, &both->arena, &error) != RV_OK) fail_msg("%s", error.message);
  both->spares = rv_spares_new(0);
  assert_non_null(both->spares);
  rv_spares_use_arena(both->spares, both->arena);
  rv_rings_lend(&both->server, both->arena);
  both->maps = rv_arena_maps_new(1 << 30);
  assert_non_null(both->maps);
  rv_rings_borrow(&both->client, both->maps, rv_arena_file(both->arena), SIZE_MAX);
  assert_non_null(both->client.in.writers_arena);
  return 0;
}

static inline int tear_down(void **state)
{
  ends *both = *state;
  rv_rings_unmap(&both->client);
  rv_rings_unmap(&both->server);
  rv_spares_close(both->spares);
  rv_arena_unref(both->arena);
  rv_arena_maps_unref(both->maps);
  close(both->memory);
  close(both->sockets[0]);
  close(both->sockets[1]);
  free(both);
  return 0;
}

static inline size_t some_size(rv_random *random, uint32_t bits)
{
  return (size_t)rv_random_below(random, (uint32_t)1 << rv_random_below(random, bits)) + 1;
}

/* The byte at a position of a stream. */
static inline uint8_t byte_at(uint64_t position)
{
  return (uint8_t)(position * 131 + (position >> 11));
}

static inline ssize_t write_some(rv_ring *ring, uint64_t *at, size_t size, rv_random *random)
{
  uint8_t *data = malloc(size + 1);
  for (size_t i = 0; i < size; i++) data[i] = byte_at(*at + i);
  size_t cut = (size_t)rv_random_below(random, (uint32_t)size + 1);
  struct iovec vec[3] = {{.iov_base = data, .iov_len = cut}, {0}, {.iov_base = data + cut, .iov_len = size - cut}};
  ssize_t n = rv_ring_write(ring, vec, 3);
  if (n > 0) *at += (uint64_t)n;
  free(data);
  return n;
}

static inline ssize_t read_some(rv_ring *ring, uint64_t *at, size_t size, rv_random *random)
{
  uint8_t *data = malloc(size + 1);
  size_t cut = (size_t)rv_random_below(random, (uint32_t)size + 1);
  struct iovec vec[3] = {{.iov_base = data, .iov_len = cut}, {0}, {.iov_base = data + cut, .iov_len = size - cut}};
  ssize_t n = rv_ring_read(ring, vec, 3);
  for (ssize_t i = 0; i < n; i++)
    if (data[i] != byte_at(*at + (uint64_t)i)) fail_msg("byte %" PRIu64 " is another", *at + (uint64_t)i);
  if (n > 0) *at += (uint64_t)n;
  free(data);
  return n;
}

static inline rv_buf *new_message(ends *both, uint64_t at, size_t size)
{
  rv_buf *buf = rv_spares_take_lendable(both->spares, size);
  assert_non_null(buf);
  for (size_t i = 0; i < size; i++) buf->data[i] = byte_at(at + i);
  buf->size = size;
  return buf;
}

static inline size_t used_bytes(const ends *both)
{
  size_t used, idle;
  rv_arena_usage(both->arena, &used, &idle);
  return used;
}

/* The end of a message that lies in the arena, with other bytes around it, of a stream. */
static inline ssize_t write_message(ends *both, uint64_t *at, size_t size, rv_random *random)
{
  uint8_t few[300];
  size_t before = (size_t)rv_random_below(random, sizeof few), behind = (size_t)rv_random_below(random, sizeof few);
  rv_buf *buf = new_message(both, *at + before, size);
  uint8_t *own = malloc(before + behind + 1);
  for (size_t i = 0; i < before; i++) own[i] = byte_at(*at + i);
  for (size_t i = 0; i < behind; i++) own[before + i] = byte_at(*at + before + size + i);
  struct iovec vec[4] = {{own, before}, {buf->data, size}, {0}, {own + before, behind}};
  ssize_t n = rv_ring_write(&both->server.out, vec, 4);
  if (n > 0) *at += (uint64_t)n;
  rv_buf_unref(buf); /* what is lent is held */
  free(own);
  return n;
}

enum { STREAMED = 48 << 20 };

static inline void wait_for_bell(int socket)
{
  struct pollfd at = {.fd = socket, .events = POLLIN};
  assert_int_equal(poll(&at, 1, 60000), 1); /* a lost wake-up would stay lost */
  char calls[64];
  assert_true(recv(socket, calls, sizeof calls, 0) > 0);
}

/* All that is streamed, by who sleeps whenever nothing is there. */
static inline void read_all_asleep(rv_ring *ring, rv_random *random)
{
  for (uint64_t taken = 0; taken < STREAMED;)
    if (read_some(ring, &taken, some_size(random, 20), random) == 0 && rv_ring_await_bytes(ring)) wait_for_bell(ring->bell);
}

#endif
