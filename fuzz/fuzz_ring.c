/* Shared memory: whatever the other end writes into the rings' heads between this end's reads and writes, all stays within the rings, what
 * is moved is never more than there is room for, and what this end has written it finds where it was. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"

#include "net/ring.h"

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
  RV_FUZZ_CHECK(n == -EPROTO || (n >= 0 && (size_t)n <= asked && n <= RV_RING_BYTES));
}

/* One step of the peer's, or of this end's. */
static void step(uint8_t kind, input *in, rv_rings *peer, rv_rings *own, uint8_t *data, size_t room)
{
  uint64_t value = number(in);
  size_t size = (size_t)(value % room), cut = (size_t)(value >> 32) % (size + 1);
  struct iovec vec[2] = {{.iov_base = data, .iov_len = cut}, {.iov_base = data + cut, .iov_len = size - cut}};
  switch (kind % 12) {
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
  default: rv_ring_trim(&own->out); break;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_rings peer, own;
  enum { ROOM = RV_RING_BYTES + 5000 };
  static uint8_t bytes[ROOM];
  int sockets[2], memory = rv_rings_make(&peer);
  if (memory < 0) return 0;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0 && rv_rings_join(memory, &own)) {
    peer.out.bell = peer.in.bell = sockets[0];
    own.out.bell = own.in.bell = sockets[1];
    input in = {data, size};
    while (in.left > 0) {
      uint8_t kind = *in.at++;
      in.left--;
      step(kind, &in, &peer, &own, bytes, ROOM);
    }
    rv_rings_unmap(&own);
    close(sockets[0]);
    close(sockets[1]);
  }
  rv_rings_unmap(&peer);
  close(memory);
  return 0;
}
