/* Shared memory: whatever the other end writes into the rings' heads and loans between this end's reads and writes, all stays within the rings
 * and the arena, what is moved is never more than there is room for, what this end has written it finds where it was, and what was lent is
 * let go of once. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"

#include "base/spares.h"
#include "net/ring.h"

enum { ARENA = 1 << 20, ROOM = RV_RING_BYTES + 5000 };

typedef struct input {
  const uint8_t *at;
  size_t left;
} input;

static uint64_t number(input *in)
{
  uint64_t value = 0;
  size_t n = in->left < sizeof value ? in->left : sizeof value;
  memcpy(&value, in->at, n);
  in->at += n;
  in->left -= n;
  return value;
}

static void check_moved(ssize_t n, size_t asked)
{
  RV_FUZZ_CHECK(n == -EPROTO || n == -ECONNRESET || (n >= 0 && (size_t)n <= asked));
}

static void lend(rv_rings *server, rv_spares *spares, size_t size)
{
  rv_buf *message = rv_spares_take_lendable(spares, size + 1);
  if (message == NULL) return;
  check_moved(rv_ring_write(&server->out, &(struct iovec){.iov_base = message->data, .iov_len = size}, 1), size);
  rv_buf_unref(message);
}

/* One step of the peer's, or of this end's. The peer is the server; of a client's lies only what is said of returns can harm it. */
static void step(uint8_t kind, input *in, rv_rings *peer, rv_rings *own, rv_spares *spares, uint8_t *data)
{
  uint64_t value = number(in);
  size_t size = (size_t)(value % ROOM), cut = (size_t)(value >> 32) % (size + 1);
  struct iovec vec[2] = {{.iov_base = data, .iov_len = cut}, {.iov_base = data + cut, .iov_len = size - cut}};
  switch (kind % 17) {
  case 0: atomic_store(&peer->out.head->written, value); break;
  case 1: atomic_store(&peer->out.head->origin, value); break;
  case 2: atomic_store(&peer->in.head->taken, value); break;
  case 3: atomic_store(&peer->in.head->origin, value); break;
  case 4: atomic_store(&peer->in.head->written, value); break;
  case 5: atomic_store(&peer->out.head->reader_sleeps, (uint32_t)value); break;
  case 6: atomic_store(&peer->out.head->writer_sleeps, (uint32_t)value); break;
  case 7: check_moved(rv_ring_write(&peer->out, vec, 2), size); break;
  case 8: check_moved(rv_ring_read(&own->in, vec, 2), size); break;
  case 9: check_moved(rv_ring_write(&own->out, vec, 2), size); break;
  case 10:
    rv_ring_await_bytes(&own->in);
    rv_ring_await_room(&own->out);
    break;
  case 11:
    peer->out.loan[value % RV_RING_LOANS] =
        (rv_ring_loan){.at = number(in), .offset = value >> 7, .size = number(in) % (2 * ARENA)};
    break;
  case 12: atomic_store(&peer->out.head->lent, (uint32_t)value); break;
  case 13: atomic_store(&peer->out.head->recalled, value % 16 == 0); break;
  case 14:
    atomic_store(&peer->out.head->returned, (uint32_t)value);
    rv_ring_settle(&peer->out);
    break;
  case 15: lend(peer, spares, size % 100000); break;
  default: rv_ring_trim(&own->out); break;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_rings peer, own;
  static uint8_t bytes[ROOM];
  rv_arena *arena = NULL;
  rv_spares *spares = rv_spares_new(0);
  int sockets[2], memory = rv_rings_make(&peer);
  RV_FUZZ_CHECK(memory >= 0 && spares != NULL && rv_arena_new(ARENA, &arena, NULL) == RV_OK);
  rv_spares_use_arena(spares, arena);
  rv_rings_lend(&peer, arena);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0 && rv_rings_join(memory, &own)) {
    peer.out.bell = peer.in.bell = sockets[0];
    own.out.bell = own.in.bell = sockets[1];
    rv_rings_borrow(&own, rv_arena_file(arena), SIZE_MAX);
    input in = {data, size};
    while (in.left > 0) {
      uint8_t kind = *in.at++;
      in.left--;
      step(kind, &in, &peer, &own, spares, bytes);
    }
    rv_rings_unmap(&own);
    close(sockets[0]);
    close(sockets[1]);
  }
  rv_rings_unmap(&peer);
  close(memory);
  size_t used, idle;
  rv_arena_usage(arena, &used, &idle);
  RV_FUZZ_CHECK(used == 0);
  rv_spares_close(spares);
  rv_arena_unref(arena);
  return 0;
}
