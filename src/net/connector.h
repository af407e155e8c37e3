/* One attempt to reach an address: resolves its name, then tries each address it stands for, one after another, from number `first` on, modulo how
 * many there are. */
#ifndef RV_NET_CONNECTOR_H
#define RV_NET_CONNECTOR_H

#include "net/address.h"
#include "net/loop.h"
#include "net/ring_transport.h"

typedef struct rv_connector rv_connector;

#define RV_CONNECT_NS (INT64_C(10) * 1000000000) /* for each address */

/* A server of ours on a unix socket, or beside a TCP address (shortcut.h), says at once whether it gives rings; another one, or one that is
 * too busy to, is connected to again, without a question and at the address itself. */
#define RV_RINGS_ANSWER_NS (INT64_C(1) * 1000000000)

/* `done` gets a connected socket, and rings where the server gave them (NULL: none), or -1 and a sentence; it comes once, from the loop,
 * unless the attempt is cancelled. The connector then frees itself. NULL: out of memory. */
typedef void rv_connected(void *user, int owned_fd, rv_rings *owned_rings, const char *message);
rv_connector *rv_connector_start(rv_loop *loop, const rv_address *address, size_t first, bool wants_rings, rv_connected *done,
                                 void *user);
void rv_connector_cancel(rv_connector *connector);

#endif
