#include "net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "net/shortcut.h"
#include "net/socket.h"

enum { BACKLOG = 4096 };

static rv_code fail(const rv_address *address, int error, rv_error *err)
{
  struct stat info;
  if (error == EADDRINUSE && address->is_unix && address->path[0] != '@' && lstat(address->path, &info) == 0 &&
      !S_ISSOCK(info.st_mode))
    return rv_fail(err, RV_UNAVAILABLE, "\"%s\" is %s, not a socket; remove it or choose another path", address->path,
                   S_ISDIR(info.st_mode)   ? "a directory"
                   : S_ISLNK(info.st_mode) ? "a link"
                                           : "a file");
  if (error == EADDRINUSE && address->is_unix)
    return rv_fail(
        err, RV_UNAVAILABLE,
        "socket file \"%s\" is in use by another process, or by a server of this one that was not stopped; choose another "
        "or stop it",
        address->path);
  if (error == EADDRINUSE)
    return rv_fail(
        err, RV_UNAVAILABLE,
        "port %u on %.200s is in use by another process, or by a server of this one that was not stopped; choose another or "
        "stop it",
        (unsigned)address->port, address->host);
  if (error == EACCES || error == EPERM)
    return rv_fail(err, RV_PERMISSION_DENIED, "listening on %.200s is not allowed; %s", address->text,
                   address->is_unix ? "choose a directory you may write to" : "choose a port above 1023");
  if (error == EADDRNOTAVAIL)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "cannot listen on %.200s: this machine has no such address; \"[::]:%u\" means all it has", address->text,
                   (unsigned)address->port);
  if (error == ENOENT || error == ENOTDIR)
    return rv_fail(err, RV_INVALID_ARGUMENT, "cannot listen on %.200s: the directory does not exist; make it first",
                   address->text);
  return rv_fail(err, RV_UNAVAILABLE, "cannot listen on %.200s: %s", address->text, strerror(error));
}

/* 0, or an errno. */
static int listen_on(rv_listener *listener, const rv_sockaddr *name)
{
  int fd = rv_socket_open(name->storage.ss_family);
  if (fd < 0) return -fd;
  int on = 1, off = 0;
  if (name->storage.ss_family == AF_UNIX)
    rv_socket_let_send_descriptors(fd, false);
  else
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (name->storage.ss_family == AF_INET6) {
    struct sockaddr_in6 v6;
    memcpy(&v6, &name->storage, sizeof v6);
    int *only = IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) ? &off : &on; /* [::] takes IPv4 too */
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, only, sizeof *only);
  }
  if (bind(fd, (const struct sockaddr *)&name->storage, name->length) != 0 || listen(fd, BACKLOG) != 0) {
    int error = errno;
    close(fd);
    return error;
  }
  listener->fd[listener->count++] = fd;
  if (listener->address.port == 0 && !listener->address.is_unix) {
    rv_sockaddr bound = {.length = sizeof bound.storage};
    if (getsockname(fd, (struct sockaddr *)&bound.storage, &bound.length) == 0) listener->address.port = rv_sockaddr_port(&bound);
  }
  return 0;
}

/* A socket file that nobody listens on is left over from a server that did not stop in order. */
static bool is_stale(const rv_sockaddr *name, const char *path)
{
  struct stat info;
  if (lstat(path, &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  int fd = rv_socket_open(AF_UNIX);
  if (fd < 0) return false;
  int error = rv_socket_connect(fd, name);
  close(fd);
  return error == ECONNREFUSED;
}

/* Of two servers that begin at once, one would take the other's socket for left over, before that listens, or take it away where the one that
 * was left over had been: so one waits for the other. Somebody may hold the lock who is no server: after two seconds it is done
 * without, as where there is no such lock. Negative: none. */
static int lock_directory_of(const char *path)
{
  enum { TRIES = 400 };
  const struct timespec pause = {.tv_nsec = 5000000};
  char directory[sizeof((rv_address *)NULL)->path];
  snprintf(directory, sizeof directory, "%s", path);
  char *slash = strrchr(directory, '/');
  if (slash == NULL)
    snprintf(directory, sizeof directory, ".");
  else
    slash[slash == directory ? 1 : 0] = '\0';
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || i == TRIES) {
      close(fd);
      return -1;
    }
    nanosleep(&pause, NULL);
  }
  return fd;
}

static void unlock_directory(int fd)
{
  if (fd < 0) return;
  flock(fd, LOCK_UN); /* a child that was forked meanwhile has a copy */
  close(fd);
}

static int listen_on_file(rv_listener *listener, const rv_sockaddr *name)
{
  const char *path = listener->address.path;
  const int lock = path[0] != '@' ? lock_directory_of(path) : -1;
  int error = listen_on(listener, name);
  if (error == EADDRINUSE && path[0] != '@' && is_stale(name, path)) {
    unlink(path);
    error = listen_on(listener, name);
  }
  unlock_directory(lock);
  struct stat info;
  if (error == 0 && path[0] != '@' && lstat(path, &info) == 0) {
    listener->device = info.st_dev;
    listener->inode = info.st_ino;
  }
  return error;
}

static rv_code listen_on_name(rv_listener *listener, rv_error *err)
{
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
  int rc = getaddrinfo(listener->address.host, NULL, &hints, &list);
  if (rc != 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "cannot listen on %.200s: the host cannot be resolved (%s); is its name right?",
                   listener->address.text, gai_strerror(rc));
  bool any_port = listener->address.port == 0;
  int error = 0;
  for (const struct addrinfo *at = list; at != NULL && listener->count < RV_LISTENER_SOCKETS; at = at->ai_next) {
    rv_sockaddr name = {.length = at->ai_addrlen};
    memcpy(&name.storage, at->ai_addr, at->ai_addrlen);
    rv_sockaddr_set_port(&name, listener->address.port);
    int failed = listen_on(listener, &name);
    bool harmless = failed == EADDRNOTAVAIL || failed == EAFNOSUPPORT || (any_port && listener->count > 0);
    if (failed != 0 && (!harmless || error == 0)) error = failed;
    if (failed != 0 && !harmless) break;
    if (failed == 0) error = 0;
  }
  freeaddrinfo(list);
  return error == 0 || (listener->count > 0 && error != EADDRINUSE) ? RV_OK : fail(&listener->address, error, err);
}

static rv_code open_all(rv_listener *listener, rv_error *err)
{
  rv_sockaddr name;
  rv_address *address = &listener->address;
  if (!rv_sockaddr_of_address(address, &name)) return listen_on_name(listener, err);
  int error = address->is_unix ? listen_on_file(listener, &name) : listen_on(listener, &name);
  if ((error == EAFNOSUPPORT || error == EADDRNOTAVAIL) && strcmp(address->host, "::") == 0) { /* a machine without IPv6 */
    rv_address v4 = *address;
    memcpy(v4.host, "0.0.0.0", sizeof "0.0.0.0");
    rv_sockaddr_of_address(&v4, &name);
    error = listen_on(listener, &name);
  }
  return error == 0 ? RV_OK : fail(address, error, err);
}

rv_code rv_listener_open(const rv_address *address, rv_listener *out, rv_error *err)
{
  *out = (rv_listener){.address = *address};
  rv_code code = open_all(out, err);
  if (code != RV_OK) rv_listener_close(out);
  return code;
}

static bool is_listened_to(const rv_sockaddr *name)
{
  int fd = rv_socket_open(AF_UNIX);
  if (fd < 0) return false;
  int error = rv_socket_connect(fd, name);
  close(fd);
  return error == 0 || error == EAGAIN;
}

/* The first name that is free. 0, or an errno; *met: before it there is one at which somebody listens. */
static int bind_beside(int fd, const rv_sockaddr *bound, bool *met)
{
  rv_sockaddr name;
  int error = 0;
  for (unsigned i = 0; i < RV_SHORTCUT_NAMES && rv_shortcut_name(bound, i, &name); i++) {
    error = bind(fd, (const struct sockaddr *)&name.storage, name.length) == 0 ? 0 : errno;
    if (error != EADDRINUSE) break;
    *met = *met || is_listened_to(&name);
  }
  return error;
}

/* Beside a socket that is bound to that TCP address. */
static int open_shortcut(rv_listener *listener, const rv_sockaddr *bound)
{
  rv_sockaddr name;
  if (listener->num_shortcuts == RV_LISTENER_SOCKETS || !rv_shortcut_name(bound, 0, &name)) return 0;
  int fd = rv_socket_open(AF_UNIX);
  if (fd < 0) return -fd;
  rv_socket_let_send_descriptors(fd, false);
  bool met = false;
  int error = bind_beside(fd, bound, &met);
  if (error == 0 && listen(fd, BACKLOG) != 0) error = errno;
  if (error == 0)
    listener->shortcut[listener->num_shortcuts++] = fd;
  else
    close(fd);
  return met ? EADDRINUSE : error;
}

/* [::] takes IPv4, too. */
static bool takes_v4(const rv_sockaddr *bound, rv_sockaddr *v4)
{
  struct sockaddr_in6 v6;
  memcpy(&v6, &bound->storage, sizeof v6);
  *v4 = (rv_sockaddr){.length = sizeof(struct sockaddr_in)};
  v4->storage.ss_family = AF_INET;
  rv_sockaddr_set_port(v4, rv_sockaddr_port(bound));
  return bound->storage.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

int rv_listener_open_shortcuts(rv_listener *listener)
{
  int error = 0;
  for (size_t i = 0; i < listener->count; i++) {
    rv_sockaddr bound = {.length = sizeof bound.storage}, v4;
    if (getsockname(listener->fd[i], (struct sockaddr *)&bound.storage, &bound.length) != 0) continue;
    int failed = open_shortcut(listener, &bound);
    if (failed == 0 && takes_v4(&bound, &v4)) failed = open_shortcut(listener, &v4);
    if (failed != 0) error = failed;
  }
  return error;
}

void rv_listener_close(rv_listener *listener)
{
  struct stat info;
  if (listener->inode != 0 && lstat(listener->address.path, &info) == 0 && info.st_dev == listener->device &&
      info.st_ino == listener->inode)
    unlink(listener->address.path);
  listener->inode = 0;
  for (size_t i = 0; i < listener->count; i++) rv_socket_close(listener->fd[i]);
  for (size_t i = 0; i < listener->num_shortcuts; i++) rv_socket_close(listener->shortcut[i]);
  listener->count = listener->num_shortcuts = 0;
}
