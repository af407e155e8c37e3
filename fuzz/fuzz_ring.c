/* Shared memory: whatever the other end writes into the rings' heads and loans, and says of blocks, between this end's reads and writes, all stays
 * within the rings and the arenas, what is moved is never more than there is room for, what this end has written it finds where it was, and what
 * was lent, or given to be filled, is let go of once. */
#include <errno.h>
#include <sys/mman.h>
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

/* What the peer says of blocks. */
static void say_of_blocks(input *in, rv_landing_shared *shared, uint64_t value)
{
  uint64_t said = number(in);
  switch (value % 4) {
  case 0: atomic_store(&shared->given[said % RV_LANDING_SIZES][value / 4 % RV_LANDING_WORDS], said); break;
  case 1: atomic_store(&shared->let_go[value / 4 % RV_LANDING_WORDS], said & value >> 8); break;
  case 2: atomic_store(&shared->wanted[said % RV_LANDING_SIZES], (uint32_t)(value >> 8) % 70); break;
  default: atomic_store(&shared->missed[said % RV_LANDING_SIZES], (uint32_t)said); break;
  }
}

/* One step of the peer's, or of this end's. The peer is the server; of a client's lies only what is said of returns can harm it. */
static void step(uint8_t kind, input *in, rv_rings *peer, rv_rings *own, rv_landing_shared *shared, rv_spares *spares,
                 uint8_t *data)
{
  uint64_t value = number(in);
  size_t size = (size_t)(value % ROOM), cut = (size_t)(value >> 32) % (size + 1);
  struct iovec vec[2] = {{.iov_base = data, .iov_len = cut}, {.iov_base = data + cut, .iov_len = size - cut}};
  switch (kind % 21) {
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
        (rv_ring_loan){.at = number(in),
                       .offset = value >> 7,
                       .size = number(in) % (2 * ARENA),
                       .block = (value >> 40) % 3 == 0 ? (value >> 48) % (RV_LANDING_SLOTS + 2) : 0};
    break;
  case 12: atomic_store(&peer->out.head->lent, (uint32_t)value); break;
  case 13: atomic_store(&peer->out.head->recalled, value % 16 == 0); break;
  case 14:
    atomic_store(&peer->out.head->returned, (uint32_t)value);
    rv_ring_settle(&peer->out);
    break;
  case 15: lend(peer, spares, size % 100000); break;
  case 16: say_of_blocks(in, shared, value); break;
  case 17: rv_landing_end_serve(own->in.blocks); break;
  case 18: rv_buf_unref(rv_ring_land(&own->in, cut % 300, size)); break;
  case 19: rv_landing_end_rest(own->in.blocks); break;
  default: rv_ring_trim(&own->out); break;
  }
}

static int64_t standing_clock(void *context)
{
  (void)context;
  return 0;
}

/* This end's blocks, of an arena of its own. */
typedef struct blocks {
  rv_arena *arena;
  rv_spares *spares;
  rv_env env;
  rv_landing_round round;
  rv_landing_host host;
  rv_landing_shared *shared;
} blocks;

static void give_blocks(blocks *of, rv_rings *own, int socket)
{
  int shared;
  of->spares = rv_spares_new(0);
  RV_FUZZ_CHECK(of->spares != NULL && rv_arena_new(ARENA, &of->arena, NULL) == RV_OK);
  rv_spares_use_arena(of->spares, of->arena);
  rv_env_default(&of->env);
  of->env.monotonic_ns = standing_clock; /* so that an input does the same each time */
  rv_landing_round_init(&of->round, &of->env, of->spares);
  rv_landing_host_init(&of->host);
  rv_landing_host_use(&of->host, of->arena, NULL, NULL);
  rv_rings_give(own, rv_landing_end_new(&of->host, &of->round, socket, &shared));
  RV_FUZZ_CHECK(own->in.blocks != NULL);
  of->shared = mmap(NULL, RV_LANDING_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
  RV_FUZZ_CHECK(of->shared != MAP_FAILED);
  close(shared);
}

/* Once the rings are gone. What the peer never let go of stays as it is. */
static void end_blocks(blocks *of)
{
  munmap(of->shared, RV_LANDING_SHARED);
  rv_landing_host_fini(&of->host);
  RV_FUZZ_CHECK(atomic_load(&of->host.bytes) == 0);
  rv_spares_close(of->spares);
  rv_arena_unref(of->arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_rings peer, own;
  static uint8_t bytes[ROOM];
  rv_arena *arena = NULL;
  rv_spares *spares = rv_spares_new(0);
  rv_arena_maps *maps = rv_arena_maps_new(ARENA / 4);
  int sockets[2], memory = rv_rings_make(&peer);
  RV_FUZZ_CHECK(memory >= 0 && spares != NULL && maps != NULL && rv_arena_new(ARENA, &arena, NULL) == RV_OK);
  rv_spares_use_arena(spares, arena);
  rv_rings_lend(&peer, arena);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0 && rv_rings_join(memory, &own)) {
    peer.out.bell = peer.in.bell = sockets[0];
    own.out.bell = own.in.bell = sockets[1];
    rv_rings_borrow(&own, maps, rv_arena_file(arena), SIZE_MAX);
    blocks given;
    give_blocks(&given, &own, sockets[1]);
    input in = {data, size};
    while (in.left > 0) {
      uint8_t kind = *in.at++;
      in.left--;
      step(kind, &in, &peer, &own, given.shared, spares, bytes);
    }
    rv_rings_unmap(&own);
    end_blocks(&given);
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
  rv_arena_maps_unref(maps);
  return 0;
}
