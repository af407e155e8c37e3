/* Bytes between two processes of one machine, through memory that both have mapped: a ring for each direction, and the socket between
 * them to wake who sleeps, and to tell that the other end has gone.
 *
 * The other end may write anything into that memory at any time. What this end has written and taken it knows by itself; what the other
 * says of its side is read once and checked; and what is read is copied out before anybody looks at it,
 * but for rows in blocks of the reader's (landing.h), with which the writer is trusted.
 *
 * An end whose large messages lie in an arena need not copy them into the ring: it lends them. The other end copies them from the arena, which
 * it has mapped to read, and they are the first one's again. */
#ifndef RV_NET_RING_H
#define RV_NET_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/gaps.h"
#include "net/landing.h"

enum { RV_RING_BYTES = 1 << 20, RV_RING_LOANS = 128, RV_RING_HELD = 32 << 20 /* bytes, and then one more loan */ };

typedef struct rv_ring_head {
  _Alignas(64) _Atomic uint64_t written; /* bytes, since the beginning */
  _Atomic uint64_t origin;               /* a position that lies at the ring's first byte; moved only while the ring is empty */
  _Alignas(64) _Atomic uint64_t taken;
  _Alignas(64) _Atomic uint32_t reader_sleeps; /* to be woken when there are bytes */
  _Alignas(64) _Atomic uint32_t writer_sleeps; /* to be woken when there is room */
  _Alignas(64) _Atomic uint32_t lent;          /* loans, since the beginning */
  _Atomic uint32_t recalled;                   /* the writer has gone: what is lent may change at any time */
  _Alignas(64) _Atomic uint32_t returned;
  _Atomic uint32_t borrows; /* the reader has the arena */
} rv_ring_head;

/* Bytes that stand in the stream at a position, before those that the ring has of it. */
typedef struct rv_ring_loan {
  uint64_t at, offset, size;
  uint64_t block; /* 0: in the writer's arena; else one more than the slot of the reader's block (landing.h) in which they lie */
} rv_ring_loan;

/* One end of one direction. */
typedef struct rv_ring {
  rv_ring_head *head;
  uint8_t *bytes;
  uint64_t at;        /* what this end has written, or taken */
  size_t touched;     /* the writer's: how far into the ring it has been since the memory behind was last given back */
  bool past_caches;   /* the reader's: long runs go to memory that is not read soon */
  int bell;           /* the socket; one byte on it wakes the other end */
  int failed;         /* the reader's: the writer sleeps and could not be woken, a negated errno; 0: not so */
  rv_ring_loan *loan; /* RV_RING_LOANS, used one after another */
  /* of a writer that lends; the numbers of loans are since the beginning */
  rv_arena *arena;     /* one reference; NULL: it does not */
  rv_landing *landing; /* one reference; what lies in blocks of the reader's; NULL: nothing does */
  rv_buf **held;       /* RV_RING_LOANS messages that are to stay, as loans lie in them; one reference each */
  uint32_t lent, settled;
  size_t held_bytes; /* of those, each time that they are held */
  /* of a reader that borrows */
  rv_arena_map *writers_arena; /* where its loans lie; one reference; NULL: it does not */
  rv_landing_end *blocks;      /* that it gives to the writer; NULL: none */
  uint32_t returned;           /* loans that were read */
  bool owes;                   /* some of them left gaps, and have not been given back */
  uint64_t loan_taken;         /* bytes of the loan that is being read */
  rv_gaps *gaps;               /* what is lent whole to the first of two places is left there, and noted; NULL: all is copied */
} rv_ring;

/* Bytes moved; 0: the ring is full (empty); -EPROTO: what the other end says of its side cannot be; -ECONNRESET: it has gone, and took back
 * what it had lent; another negated errno: it sleeps, and cannot be woken. Of a loan that comes first, read into one piece is a line, whatever room there
 * is. */
ssize_t rv_ring_write(rv_ring *ring, const struct iovec *vec, int count);
ssize_t rv_ring_read(rv_ring *ring, const struct iovec *vec, int count);
/* The reader's, who left gaps and needs them no more: they are the writer's again. False: they were by then, so what was copied from them may be
 * something else. */
bool rv_ring_give_back(rv_ring *ring);
/* The reader's: what it gets next lies in a block of its own, which becomes the buffer of their message, as by rv_landing_end_land; what has been read
 * of the same row counts as before it. NULL: it is to be read. */
rv_buf *rv_ring_land(rv_ring *ring, size_t before, size_t behind);
/* Asks to be woken when there is room (there are bytes). False: there is by now, and nobody may wake. */
bool rv_ring_await_room(rv_ring *ring);
bool rv_ring_await_bytes(rv_ring *ring);
/* The writer's, of a quiet connection: what memory an empty ring has beyond its first pages goes back to the system. */
void rv_ring_trim(rv_ring *ring);
/* The writer's: lets go of what was returned. False: what the other end says of that cannot be. */
bool rv_ring_settle(rv_ring *ring);

typedef struct rv_rings {
  rv_ring out, in;
  void *map; /* NULL: none */
} rv_rings;

/* A server's: new memory, and what the client maps it by, to be closed once that was sent; or a negated errno. -ENOTSUP: this system does
 * not promise memory before it is touched, and then kills who touches it. */
int rv_rings_make(rv_rings *out);
/* A client's: the same memory by that descriptor, which stays the caller's. False: it is none of rv_rings_make's, or it could not be mapped. */
bool rv_rings_join(int fd, rv_rings *out);
void rv_rings_unmap(rv_rings *rings); /* NULL maps are fine */

/* This end lends what lies in the arena, if the other one borrows, from now on. False: out of memory, and it does not. */
bool rv_rings_lend(rv_rings *rings, rv_arena *arena);
/* This end, which lends, puts rows into the other's blocks; takes the reference. */
void rv_rings_fill(rv_rings *rings, rv_landing *owned_landing);
/* This end, which borrows, gives blocks. */
void rv_rings_give(rv_rings *rings, rv_landing_end *owned_blocks);
/* This end has the other's arena by that descriptor (rv_arena_file), which stays the caller's, and borrows, if it can read there. At most so many
 * segments are mapped, by `maps`; of what lies in others it reads the file. */
void rv_rings_borrow(rv_rings *rings, rv_arena_maps *maps, int arena_fd, size_t most_segments);

#endif
