/* The addresses that a host's name stands for. The system's resolver may take half a minute to give up, and nothing can interrupt it: so each
 * lookup has a thread of its own, and nobody waits for that, not even who closes a client. After a cancel it ends when the resolver does. */
#ifndef RV_NET_RESOLVER_H
#define RV_NET_RESOLVER_H

#include <netdb.h>

#include "net/loop.h"

typedef struct rv_lookup rv_lookup;

/* `done` gets a list to be freed with freeaddrinfo, or NULL and why there is none; it comes once, from the loop, unless the lookup is
 * cancelled, and the lookup is gone with it. NULL: memory or threads are out. On the loop's thread, as the next. */
rv_lookup *rv_lookup_start(rv_loop *loop, const char *host,
                           void (*done)(void *user, struct addrinfo *owned_list, const char *why), void *user);
void rv_lookup_cancel(rv_lookup *lookup);

#endif
