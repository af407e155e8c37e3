#include "net/shortcut.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/linux.h"

#ifdef RV_LINUX

enum { NOBODY = 65534 }; /* who is not known in this name space of users; several may be */

static bool is_any(const rv_sockaddr *at)
{
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
  memcpy(&v4, &at->storage, sizeof v4);
  memcpy(&v6, &at->storage, sizeof v6);
  return at->storage.ss_family == AF_INET ? v4.sin_addr.s_addr == INADDR_ANY : IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

static bool is_link_local(const rv_sockaddr *at)
{
  struct sockaddr_in6 v6;
  memcpy(&v6, &at->storage, sizeof v6);
  return at->storage.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

static bool same_host(const rv_sockaddr *a, const rv_sockaddr *b)
{
  struct sockaddr_in a4, b4;
  struct sockaddr_in6 a6, b6;
  memcpy(&a4, &a->storage, sizeof a4);
  memcpy(&b4, &b->storage, sizeof b4);
  memcpy(&a6, &a->storage, sizeof a6);
  memcpy(&b6, &b->storage, sizeof b6);
  if (a->storage.ss_family != b->storage.ss_family) return false;
  return a->storage.ss_family == AF_INET ? a4.sin_addr.s_addr == b4.sin_addr.s_addr
                                         : IN6_ARE_ADDR_EQUAL(&a6.sin6_addr, &b6.sin6_addr);
}

/* Whoever sends there sends to this machine: the system says from which address it would. Nothing is sent. */
static bool is_own(const rv_sockaddr *at)
{
  if (rv_sockaddr_is_loopback(at) || is_any(at)) return true;
  int fd = socket(at->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  rv_sockaddr from = {.length = sizeof from.storage};
  bool own = connect(fd, (const struct sockaddr *)&at->storage, at->length) == 0 &&
             getsockname(fd, (struct sockaddr *)&from.storage, &from.length) == 0 && same_host(&from, at);
  close(fd);
  return own;
}

/* Who listens: root and this process's user are trusted. */
static bool is_trusted(int fd)
{
  struct ucred peer;
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == 0 || (peer.uid == geteuid() && peer.uid != NOBODY);
}

bool rv_shortcut_name(const rv_sockaddr *bound, unsigned number, rv_sockaddr *out)
{
  sa_family_t family = bound->storage.ss_family;
  if ((family != AF_INET && family != AF_INET6) || is_link_local(bound)) return false;
  char text[RV_PEER_MAX], more[12] = "";
  rv_sockaddr_format(bound, text);
  if (number > 0) snprintf(more, sizeof more, "#%u", number);
  struct sockaddr_un name = {.sun_family = AF_UNIX}; /* abstract names begin with NUL and end with the length */
  int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "reverie/%.80s%s", text, more);
  *out = (rv_sockaddr){.length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)};
  memcpy(&out->storage, &name, sizeof name);
  return true;
}

static int connect_to_name(const rv_sockaddr *name)
{
  int fd = rv_socket_open(AF_UNIX);
  if (fd < 0) return -1;
  rv_socket_tune(fd);
  if (rv_socket_connect(fd, name) == 0 && is_trusted(fd)) return fd;
  close(fd);
  return -1;
}

static int connect_to(const rv_sockaddr *bound)
{
  rv_sockaddr name;
  int fd = -1;
  for (unsigned i = 0; i < RV_SHORTCUT_NAMES && fd < 0 && rv_shortcut_name(bound, i, &name); i++) fd = connect_to_name(&name);
  return fd;
}

int rv_shortcut_connect(const rv_sockaddr *to)
{
  if (!is_own(to)) return -1;
  int fd = connect_to(to);
  if (fd >= 0) return fd;
  rv_sockaddr any = {.length = to->length};
  any.storage.ss_family = to->storage.ss_family;
  rv_sockaddr_set_port(&any, rv_sockaddr_port(to));
  return connect_to(&any);
}

#else

bool rv_shortcut_name(const rv_sockaddr *bound, unsigned number, rv_sockaddr *out)
{
  (void)bound, (void)number, (void)out;
  return false;
}

int rv_shortcut_connect(const rv_sockaddr *to)
{
  (void)to;
  return -1;
}

#endif
