/* The short way to a server of the same machine: beside each of its TCP addresses it listens on a unix socket whose name, in Linux's
 * abstract name space, tells that address, and a client that is to connect to the address looks there first. Whom it meets makes memory
 * that both map (ring_transport.h), or says that there is none left, and they stay at that socket; bytes go through the address itself where nobody is
 * met, or somebody whom it cannot trust, or who says something else.
 *
 * Such names are seen by whoever shares the network's name space, as the loopback address is, and anybody may take one that is free: a
 * client goes to its own user and to root only. It cannot tell them apart from whoever else is that user in the same name space of networks
 * and is confined otherwise (docs/security.md). */
#ifndef RV_NET_SHORTCUT_H
#define RV_NET_SHORTCUT_H

#include "net/socket.h"

/* Names beside each address: a server takes the first that is free, a client tries all. A process that was forked from a server keeps its
 * names taken, when that has stopped and another one has the address. */
enum { RV_SHORTCUT_NAMES = 4 };

/* Such a name, from 0 on, beside a TCP address that a server is bound to. False: there is none (a link's address, or another system than
 * Linux). */
bool rv_shortcut_name(const rv_sockaddr *bound, unsigned number, rv_sockaddr *out);
/* A client's: a connected socket to the server at that TCP address; -1: there is no short way. */
int rv_shortcut_connect(const rv_sockaddr *to);

#endif
