/* Listening sockets of one address: a name may stand for several. */
#ifndef RV_NET_LISTENER_H
#define RV_NET_LISTENER_H

#include <sys/stat.h>

#include "net/address.h"

enum { RV_LISTENER_SOCKETS = 8 };

typedef struct rv_listener {
  rv_address address; /* its port is the real one */
  int fd[RV_LISTENER_SOCKETS];
  size_t count;
  int shortcut[RV_LISTENER_SOCKETS]; /* beside them, for clients of this machine (shortcut.h) */
  size_t num_shortcuts;
  dev_t device; /* of a unix socket's file, to remove no one else's */
  ino_t inode;
} rv_listener;

/* Blocks while a name is resolved, and, of a socket file, while another server begins in its directory (at most two seconds). The sentence names
 * the address, the reason and a remedy. */
rv_code rv_listener_open(const rv_address *address, rv_listener *out, rv_error *err);
/* Shortcuts beside a TCP address. 0; EADDRINUSE: others listen at one of the names, where clients may meet them instead; another errno: there
 * are not all. */
int rv_listener_open_shortcuts(rv_listener *listener);
void rv_listener_close(rv_listener *listener);

#endif
