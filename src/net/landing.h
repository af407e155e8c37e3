/* Rows that a client's writers put where they will stay: into blocks of the server's arena (base/arena.h), which it gives them to fill.
 *
 * Three pages that both ends have mapped say which blocks are given. A writer who finds one of the size that he needs fills it; what he sends tells
 * the block and the place in it (ring.h, or place.c), and the server makes it the buffer of the message, or of its chunk: it puts what comes before the row and
 * behind it around it, where the block has room for that. Nothing is copied. Where there is no block, the row is lent or copied as others are.
 *
 * A block is used again when its writer has let go of it and nothing of the server's refers to it any more. Who has lost the connection still
 * reads his rows, to send them by another: so a block stays aside until its writer lets go of it, or his process has ended (one that executes another
 * program has not).
 *
 * The client may write anything into those pages at any time, and harms nobody by it but that others may get no blocks. With what lies in the arena it is trusted
 * (docs/security.md). */
#ifndef RV_NET_LANDING_H
#define RV_NET_LANDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/arena_map.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/spares.h"

/* Rows have a block where its whole pages are at most an eighth more than they: 28,224 bytes (84 x 84 x 4) just do, 16,384 do not. */
enum {
  RV_LANDING_SLOTS = 512, /* blocks that a connection's writers have at most, */
  RV_LANDING_SIZES = 4,   /* of so many sizes */
  RV_LANDING_WORDS = RV_LANDING_SLOTS / 64,
  RV_LANDING_PAGE = 4096,      /* blocks are of so many bytes, or several times that */
  RV_LANDING_BEFORE = 192,     /* bytes of a block before its rows, */
  RV_LANDING_BEHIND = 256,     /* and behind them at least */
  RV_LANDING_LEAST = 16 << 10, /* bytes of rows */
  RV_LANDING_SHARED = 12288    /* bytes of what both ends have mapped */
};

/* The bits of slots are set by one end and taken by whoever clears them. */
typedef struct rv_landing_shared {
  _Alignas(64) _Atomic uint64_t given[RV_LANDING_SIZES][RV_LANDING_WORDS]; /* by the server: to be filled */
  _Alignas(64) _Atomic uint64_t let_go[RV_LANDING_WORDS];                  /* by the client: it does not touch them any more */
  _Atomic uint32_t wanted[RV_LANDING_SIZES]; /* by the client: a block's pages; 0: none of this size */
  _Atomic uint32_t missed[RV_LANDING_SIZES]; /* by the client: rows that found no block */
  struct rv_landing_slot {
    _Atomic uint64_t offset; /* by the server, before it is given; in the arena's file */
    _Atomic uint32_t pages, turn;
  } slot[RV_LANDING_SLOTS];
} rv_landing_shared;

/* Where a row lies: in the block of a slot, `offset` bytes behind its beginning. The turn tells the block from those that had the slot before it. */
typedef struct rv_landing_place {
  uint32_t slot, turn;
  uint64_t offset;
} rv_landing_place;

/* ---- a client's end: thread-safe ---- */

typedef struct rv_landing rv_landing;

/* By what the server sent, descriptors that stay the caller's: what both map, and its arena to write to. One reference. NULL: they are not what
 * they should be, or cannot be mapped. */
rv_landing *rv_landing_join(int shared_fd, int arena_fd, rv_arena_maps *maps);
rv_landing *rv_landing_ref(rv_landing *landing);
void rv_landing_unref(rv_landing *landing); /* NULL is fine. Its buffers have references of their own */
/* No more blocks are taken: the connection is not for new rows. */
void rv_landing_close(rv_landing *landing);
/* A buffer of so many bytes in a block, which goes back at its last unref. What is sent must not be written to again. NULL: none is there, or will
 * be for that many bytes; the server hears what is missing. */
rv_buf *rv_landing_take(rv_landing *landing, size_t bytes);
/* The buffer in which these bytes lie, and where they do; NULL: they lie elsewhere. The caller holds it. */
rv_buf *rv_landing_find(rv_landing *landing, const uint8_t *data, size_t size, rv_landing_place *place);

/* ---- a server's end ---- */

/* What its connections share. */
typedef struct rv_landing_host {
  rv_mutex lock; /* guards `left` */
  rv_arena *arena;
  size_t memory; /* that this process may use; and the server's limit, as rv_grpc_server_config's */
  size_t (*memory_limit)(void *context);
  void *context;
  atomic_size_t most_bytes;   /* of blocks that are out, and without a row that has landed: by the limit as it was last seen */
  atomic_size_t bytes;        /* of all that are out, */
  atomic_size_t landed_bytes; /* and of these, with a row that has landed */
  atomic_uint wanting;        /* connections whose writers want blocks, or have some */
  atomic_uint num_left;
  rv_link left; /* ends whose connections are gone, and whose blocks are not back yet */
} rv_landing_host;

void rv_landing_host_init(rv_landing_host *host);
/* From now on blocks are given, of the server's arena (NULL: none are). Those in which no row has landed yet are at most 2 GiB, and a 16th of the
 * memory that this process may use, and of the server's limit just now (0: it has none; `memory_limit` NULL: it never has); together with those whose
 * rows have landed, and whose writers have not let go of them yet, twice as much. Before anybody connects; `memory_limit` is asked whenever blocks are
 * served, and when it is looked. */
void rv_landing_host_use(rv_landing_host *host, rv_arena *arena, size_t (*memory_limit)(void *context), void *context);
/* Once no connection is left. What writers still read stays as it is for good. */
void rv_landing_host_fini(rv_landing_host *host);
/* Takes back what gone connections' writers have let go of, or have left behind with their process, and sees which limit there is now. Any thread. */
void rv_landing_host_look(rv_landing_host *host);

/* The ends of one loop's connections. Where there are many, each is read seldom, and its writers would wait for blocks that they have let go of long
 * since: so whenever one is served the others are, too, once a millisecond. */
typedef struct rv_landing_round {
  const rv_env *env;
  rv_spares *spares; /* their blocks are of these */
  rv_link ends;      /* whose writers want blocks, or have some: the next one first. They leave before it ends */
  int64_t begun_ns;
} rv_landing_round;

/* `env` and `spares` outlive it. */
void rv_landing_round_init(rv_landing_round *round, const rv_env *env, rv_spares *spares);

/* Of one connection, for its loop's thread. */
typedef struct rv_landing_end rv_landing_end;

/* For the process at the other end of the socket; *shared_fd is for the client, and to be closed. NULL: there is no memory for it, or the system does
 * not tell when a process ends, or too many ends of gone connections have blocks that are not back yet. */
rv_landing_end *rv_landing_end_new(rv_landing_host *host, rv_landing_round *round, int socket, int *shared_fd);
/* The connection is gone. NULL is fine. */
void rv_landing_end_leave(rv_landing_end *end);
/* Takes back what was let go of, and gives what is wanted, here and at the other ends of its round. False: what the client says cannot be. */
bool rv_landing_end_serve(rv_landing_end *end);
/* Of a quiet connection: takes back what nobody has begun to fill. */
void rv_landing_end_rest(rv_landing_end *end);
/* The block of that turn is the one that is out. */
bool rv_landing_end_has(const rv_landing_end *end, const rv_landing_place *place);
/* To be asked at each read: are blocks to be served by now? */
bool rv_landing_end_is_due(rv_landing_end *end);
/* Bytes of a block that is out. NULL: it is not, or has fewer. */
const uint8_t *rv_landing_end_at(const rv_landing_end *end, uint32_t slot, uint64_t offset, uint64_t size);
/* What stands around those bytes will soon be written: what comes before them in their message, and behind. */
void rv_landing_end_fetch(const rv_landing_end *end, uint32_t slot, uint64_t offset, uint64_t size);
/* That block as the buffer of a message that ends so many bytes behind `offset`, of which `before` come before it: its bytes begin there. The caller's
 * reference. NULL: it was one before, has no room, or much more than the message needs, or the message would begin behind the block's first rows. */
rv_buf *rv_landing_end_land(rv_landing_end *end, uint32_t slot, uint64_t offset, size_t before, size_t behind);

#endif
