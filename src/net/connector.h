/* One attempt to reach an address: resolves its name, then tries each address it stands for, one after another. */
#ifndef RV_NET_CONNECTOR_H
#define RV_NET_CONNECTOR_H

#include "net/address.h"
#include "net/loop.h"

typedef struct rv_connector rv_connector;

#define RV_CONNECT_NS (INT64_C(10) * 1000000000) /* for each address */

/* `done` gets a connected socket, or -1 and a sentence; it comes once, from the loop, unless the attempt is cancelled. The
 * connector then frees itself. NULL: out of memory. */
rv_connector *rv_connector_start(rv_loop *loop, const rv_address *address,
                                 void (*done)(void *user, int owned_fd, const char *message), void *user);
void rv_connector_cancel(rv_connector *connector);

#endif
