#include "net/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/linux.h"

#ifdef RV_LINUX
#include <linux/sockios.h>
#endif

static void set_unix(const char *path, rv_sockaddr *out)
{
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  memcpy(name.sun_path, path, length);
  out->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
  if (path[0] == '@') { /* the abstract name space: its names begin with NUL and end with the length */
    name.sun_path[0] = '\0';
    out->length--;
  }
  memcpy(&out->storage, &name, sizeof name);
}

bool rv_sockaddr_of_address(const rv_address *address, rv_sockaddr *out)
{
  memset(out, 0, sizeof *out);
  if (address->is_unix) {
    set_unix(address->path, out);
    return true;
  }
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(address->port)};
  if (inet_pton(AF_INET, address->host, &v4.sin_addr) == 1) {
    memcpy(&out->storage, &v4, sizeof v4);
    out->length = sizeof v4;
    return true;
  }
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
  if (inet_pton(AF_INET6, address->host, &v6.sin6_addr) == 1) {
    memcpy(&out->storage, &v6, sizeof v6);
    out->length = sizeof v6;
    return true;
  }
  return false;
}

void rv_sockaddr_format(const rv_sockaddr *address, char out[RV_PEER_MAX])
{
  char text[INET6_ADDRSTRLEN] = "?";
  if (address->storage.ss_family == AF_INET) {
    struct sockaddr_in v4;
    memcpy(&v4, &address->storage, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    snprintf(out, RV_PEER_MAX, "ipv4:%s:%u", text, (unsigned)ntohs(v4.sin_port));
  } else if (address->storage.ss_family == AF_INET6) {
    struct sockaddr_in6 v6;
    memcpy(&v6, &address->storage, sizeof v6);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      inet_ntop(AF_INET, (const char *)&v6.sin6_addr + 12, text, sizeof text);
      snprintf(out, RV_PEER_MAX, "ipv4:%s:%u", text, (unsigned)ntohs(v6.sin6_port));
    } else {
      inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
      snprintf(out, RV_PEER_MAX, "ipv6:[%s]:%u", text, (unsigned)ntohs(v6.sin6_port));
    }
  } else {
    struct sockaddr_un name;
    memcpy(&name, &address->storage, sizeof name);
    size_t length = address->length > offsetof(struct sockaddr_un, sun_path)
                        ? (size_t)address->length - offsetof(struct sockaddr_un, sun_path)
                        : 0;
    if (length == 0)
      snprintf(out, RV_PEER_MAX, "unix:");
    else if (name.sun_path[0] == '\0')
      snprintf(out, RV_PEER_MAX, "unix:@%.*s", (int)length - 1, name.sun_path + 1);
    else
      snprintf(out, RV_PEER_MAX, "unix:%.*s", (int)strnlen(name.sun_path, length), name.sun_path);
  }
}

bool rv_sockaddr_is_loopback(const rv_sockaddr *address)
{
  if (address->storage.ss_family == AF_INET) {
    struct sockaddr_in v4;
    memcpy(&v4, &address->storage, sizeof v4);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  if (address->storage.ss_family != AF_INET6) return false;
  struct sockaddr_in6 v6;
  memcpy(&v6, &address->storage, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
}

void rv_sockaddr_set_port(rv_sockaddr *address, uint16_t port)
{
  struct sockaddr_in *v4 = (struct sockaddr_in *)&address->storage;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->storage;
  if (address->storage.ss_family == AF_INET) v4->sin_port = htons(port);
  if (address->storage.ss_family == AF_INET6) v6->sin6_port = htons(port);
}

uint16_t rv_sockaddr_port(const rv_sockaddr *address)
{
  const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->storage;
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->storage;
  if (address->storage.ss_family == AF_INET) return ntohs(v4->sin_port);
  if (address->storage.ss_family == AF_INET6) return ntohs(v6->sin6_port);
  return 0;
}

#ifndef SOCK_NONBLOCK
static int make_private(int fd)
{
  if (fd >= 0 && (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0)) {
    int error = errno;
    close(fd);
    return -error;
  }
  return fd >= 0 ? fd : -errno;
}
#endif

int rv_socket_open(int family)
{
#ifdef SOCK_NONBLOCK
  int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  return fd >= 0 ? fd : -errno;
#else
  return make_private(socket(family, SOCK_STREAM, 0));
#endif
}

/* Where the system's congestion control is one that paces by an estimate of the path's bandwidth (BBR), it takes the pauses
 * between two requests on a busy machine for a slow path, and sends the next answer at a fraction of what memory allows. Reno is
 * in every Linux, needs no privilege and has nothing to do where nothing is lost. */
static void tune_for_loopback(int fd, const rv_sockaddr *peer)
{
#ifdef TCP_CONGESTION
  static const char reno[] = "reno";
  if (rv_sockaddr_is_loopback(peer)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof reno - 1);
#else
  (void)fd, (void)peer;
#endif
}

int rv_socket_accept(int listener)
{
  int fd;
  do {
#ifdef SOCK_NONBLOCK
    fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) fd = -errno;
#else
    fd = make_private(accept(listener, NULL, NULL));
#endif
  } while (fd == -EINTR);
  if (fd >= 0) {
    rv_sockaddr peer = {.length = sizeof peer.storage};
    rv_socket_tune(fd);
    if (getpeername(fd, (struct sockaddr *)&peer.storage, &peer.length) == 0) tune_for_loopback(fd, &peer);
  }
  return fd;
}

static void set_option(int fd, int level, int option, int value)
{
  setsockopt(fd, level, option, &value, sizeof value);
}

/* What a unix socket holds is counted with the system's books, and its writer is only woken when three quarters are read: with the
 * 208 KiB that are usual each wake-up moves one frame. */
enum { UNIX_BUFFER = 1 << 20 };

void rv_socket_tune(int fd)
{
  struct sockaddr_storage name;
  socklen_t length = sizeof name;
#ifdef SO_NOSIGPIPE
  set_option(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
  if (getsockname(fd, (struct sockaddr *)&name, &length) != 0) return;
  if (name.ss_family == AF_UNIX) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER);
    return;
  }
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

/* Two fifths of the time it may be silent; then it is asked three times, a fifth apart. */
void rv_socket_probe(int fd, int64_t timeout_ns)
{
  if (timeout_ns == INT64_MAX) return;
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#if !defined TCP_KEEPIDLE && defined TCP_KEEPALIVE
#define TCP_KEEPIDLE TCP_KEEPALIVE /* macOS */
#endif
#ifdef TCP_KEEPIDLE
  const int64_t fifth = timeout_ns / 5000000000;
  const int interval = fifth < 1 ? 1 : fifth > 3600 ? 3600 : (int)fifth;
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2 * interval);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
#endif
}

size_t rv_socket_unsent(int fd)
{
#ifdef SIOCOUTQ
  int bytes = 0;
  if (ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0) return (size_t)bytes;
#else
  (void)fd;
#endif
  return 0;
}

bool rv_socket_is_unheard(int fd, int64_t ns)
{
#ifdef RV_LINUX
  struct tcp_info info = {0};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  /* a peer without room for more answers the probes that ask for it */
  bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
  return waits && (int64_t)info.tcpi_last_ack_recv * 1000000 >= ns;
#else
  (void)fd, (void)ns;
  return false;
#endif
}

bool rv_socket_acknowledge(int fd)
{
#ifdef TCP_QUICKACK
  const int on = 1;
  return setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on) == 0;
#else
  (void)fd;
  return false;
#endif
}

uint64_t rv_socket_peer_machine(int fd)
{
  struct sockaddr_storage peer;
  socklen_t length = sizeof peer;
  if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0) return 0;
  const uint8_t *v6 = ((const struct sockaddr_in6 *)&peer)->sin6_addr.s6_addr;
  uint32_t v4 = 0;
  if (peer.ss_family == AF_INET) v4 = ((const struct sockaddr_in *)&peer)->sin_addr.s_addr;
  if (peer.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)v6)) memcpy(&v4, v6 + 12, sizeof v4);
  if (v4 != 0) return (uint64_t)1 << 32 | v4;
  uint64_t network = 0;
  if (peer.ss_family == AF_INET6) memcpy(&network, v6, sizeof network);
  return peer.ss_family == AF_INET6 && network == 0 ? 1 : network; /* ::1 */
}

uint64_t rv_socket_this_machine(void)
{
  return (uint64_t)1 << 32 | htonl(INADDR_LOOPBACK);
}

#if !defined SO_PASSRIGHTS && defined RV_LINUX && !defined __hppa__ && !defined __sparc__
#define SO_PASSRIGHTS 83 /* newer than many systems' headers */
#endif

void rv_socket_let_send_descriptors(int fd, bool let)
{
#ifdef SO_PASSRIGHTS
  set_option(fd, SOL_SOCKET, SO_PASSRIGHTS, let);
#else
  (void)fd, (void)let;
#endif
}

bool rv_socket_may_refuse_descriptors(int fd)
{
#ifdef SO_PASSRIGHTS
  int let;
  socklen_t size = sizeof let;
  return getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &let, &size) == 0;
#else
  (void)fd;
  return false;
#endif
}

bool rv_socket_is_unix(int fd)
{
  struct sockaddr_storage name;
  socklen_t length = sizeof name;
  return getsockname(fd, (struct sockaddr *)&name, &length) == 0 && name.ss_family == AF_UNIX;
}

/* Of a client of a unix socket: who the system says it is, and the name that it came to. Its own name it chooses itself. */
static void format_visitor(int fd, const rv_sockaddr *own, char out[RV_PEER_MAX])
{
  char name[RV_PEER_MAX], who[64] = "";
  rv_sockaddr_format(own, name);
#ifdef RV_LINUX
  struct ucred is;
  socklen_t length = sizeof is;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &is, &length) == 0)
    snprintf(who, sizeof who, "process %ld of user %lu to ", (long)is.pid, (unsigned long)is.uid);
#else
  (void)fd;
#endif
  snprintf(out, RV_PEER_MAX, "unix:%s%s", who, name + strlen("unix:"));
}

void rv_socket_peer(int fd, char out[RV_PEER_MAX])
{
  rv_sockaddr peer = {.length = sizeof peer.storage}, own = {.length = sizeof own.storage};
  bool visited = getsockname(fd, (struct sockaddr *)&own.storage, &own.length) == 0 && own.storage.ss_family == AF_UNIX &&
                 own.length > offsetof(struct sockaddr_un, sun_path);
  if (visited)
    format_visitor(fd, &own, out);
  else if (getpeername(fd, (struct sockaddr *)&peer.storage, &peer.length) == 0)
    rv_sockaddr_format(&peer, out);
  else
    snprintf(out, RV_PEER_MAX, "unknown");
  for (char *at = out; *at != '\0'; at++) /* in logs and messages; a path may have any bytes */
    if (*at < ' ' || *at > '~') *at = '?';
}

void rv_socket_close(int fd)
{
  shutdown(fd, SHUT_RDWR);
  close(fd);
}

void rv_socket_reset_when_closed(int fd)
{
  const struct linger none = {.l_onoff = 1};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

int rv_socket_connect(int fd, const rv_sockaddr *address)
{
  tune_for_loopback(fd, address);
  if (connect(fd, (const struct sockaddr *)&address->storage, address->length) == 0) return 0;
  return errno == EINTR ? EINPROGRESS : errno;
}

int rv_socket_error(int fd)
{
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

void rv_socket_raise_limit(void)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}
