/* Where to listen or connect: "host:port", "[::1]:port", "unix:/path"; also as gRPC's targets of one address, "dns:///host:port",
 * "dns:host:port", "ipv4:1.2.3.4:port", "ipv6:[::1]:port". */
#ifndef RV_NET_ADDRESS_H
#define RV_NET_ADDRESS_H

#include <sys/un.h>

#include "reverie/status.h"

enum { RV_ADDRESS_TEXT_MAX = 320 };

typedef struct rv_address {
  bool is_unix;
  uint16_t port;
  char host[256];                                      /* without brackets */
  char path[sizeof((struct sockaddr_un){0}.sun_path)]; /* of a unix socket; '@' in front: Linux's abstract name space */
  char text[RV_ADDRESS_TEXT_MAX];                      /* for people */
} rv_address;

/* RV_INVALID_ARGUMENT says what to write instead. Port 0 is accepted here; only a server can use it. */
rv_code rv_address_parse(const char *text, rv_address *out, rv_error *err);
/* A unix socket's path from the root on: a program that goes to another directory still means the same socket when it connects again, or takes it
 * away. One that would be too long for a socket so stays as it was given. */
void rv_address_from_root(rv_address *address);

#endif
