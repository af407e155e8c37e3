/* The transport of two of Reverie's own ends on one machine: the bytes go through memory (ring.h), the unix socket between them wakes and
 * tells of the end.
 *
 * A client asks for it in its first bytes (rv_rings_ask), and the server makes the memory and answers with one byte; one that knows nothing
 * of it answers something else, or ends the connection, and is connected to again, without a question. Each may tell the
 * other, if that is its own user's, of the arena that its large messages lie in. */
#ifndef RV_NET_RING_TRANSPORT_H
#define RV_NET_RING_TRANSPORT_H

#include "net/ring.h"
#include "net/transport.h"

/* Connections of a server that may have rings, of which each takes up to two times RV_RING_BYTES; others use the socket. */
enum { RV_MOST_RINGS = 512 };

/* What the connections of a server share. */
typedef struct rv_ring_host {
  atomic_uint in_use;      /* connections that have rings */
  rv_arena *arena;         /* what lies here is lent to clients of the server's own user; NULL: nothing is */
  rv_landing_host landing; /* and they get blocks of it to fill */
  rv_arena_maps *maps;     /* of what those clients lend */
} rv_ring_host;

typedef enum rv_rings_answer { RV_RINGS_GIVEN, RV_RINGS_DECLINED, RV_RINGS_UNKNOWN } rv_rings_answer;

/* A client's, on a socket that is just connected: 0, or an errno. EPERM: the server takes no descriptors yet, for it has not seen who comes; it is to be
 * asked again soon, or without `arena`: what the client will lend, if the server is its own user's, and sees it; NULL: nothing. *told: it is known now.
 * EOPNOTSUPP: none can be sent here at all; it is to be asked without. */
int rv_rings_ask(int fd, rv_arena *arena, bool *told);
/* What the server says to it, when the socket is readable; with RV_RINGS_GIVEN `out` has them, and lends `arena`, that was told by the question. What
 * the server lends, and the blocks that it gives, are mapped by `maps` (NULL: it is to do neither). */
rv_rings_answer rv_rings_answer_read(int fd, rv_arena *arena, rv_arena_maps *maps, rv_rings *out);

/* A client's who got them; owns the rings and the socket from here on. False: out of memory, nothing is owned. */
bool rv_transport_init_rings(rv_transport *transport, int owned_fd, rv_rings *owned_rings);
/* A server's on a unix socket: rings where the client asks for them and fewer than RV_MOST_RINGS are in use, the socket otherwise. Blocks that its
 * client is to fill are given in that round. */
void rv_transport_init_undecided(rv_transport *transport, int owned_fd, rv_ring_host *host, rv_landing_round *round);

#endif
