#include "net/connector.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/machine_memory.h"
#include "net/resolver.h"
#include "net/shortcut.h"
#include "net/socket.h"

enum {
  ASKED_EVERY_MS = 1,       /* who takes no descriptors yet, */
  ASKED_AGAIN_NS = 20000000 /* and for so long who took none the last time */
};

struct rv_connector {
  rv_loop *loop;
  rv_address address;
  rv_connected *done;
  void *user;
  rv_lookup *lookup; /* NULL: none is under way */
  rv_sockaddr *found;
  size_t first, count, next; /* the last two: how many, and how many were tried */
  int fd;
  bool wants_rings;
  rv_rings rings;     /* given */
  bool asks, refused; /* for them: of this connection; and another one asked the same address in vain */
  bool lends;         /* and has told of the loop's arena */
  uint64_t asks_until_ns;
  uv_poll_t *poll;
  uv_timer_t *pause; /* before it asks again; the system's time, as the server's coming is no matter of the environment's */
  rv_timer timer;
  rv_task task; /* tries the next address */
  char message[400];
};

static void free_handle(uv_handle_t *handle)
{
  free(handle);
}

static void stop_waiting(rv_connector *connector)
{
  rv_timer_stop(&connector->timer);
  if (connector->pause != NULL) uv_close((uv_handle_t *)connector->pause, free_handle);
  connector->pause = NULL;
  if (connector->poll == NULL) return;
  uv_poll_stop(connector->poll);
  uv_close((uv_handle_t *)connector->poll, free_handle);
  connector->poll = NULL;
}

static void destroy(rv_connector *connector)
{
  stop_waiting(connector);
  if (connector->lookup != NULL) rv_lookup_cancel(connector->lookup);
  rv_list_remove(&connector->task.link);
  if (connector->fd >= 0) close(connector->fd);
  rv_rings_unmap(&connector->rings);
  free(connector->found);
  free(connector);
}

static void finish(rv_connector *connector, int fd)
{
  stop_waiting(connector);
  connector->fd = -1;
  rv_rings rings = connector->rings;
  connector->rings.map = NULL;
  connector->done(connector->user, fd, rings.map != NULL ? &rings : NULL, connector->message);
  destroy(connector);
}

static const char *advice(const rv_connector *connector, int error)
{
  if (error == ECONNREFUSED && connector->address.is_unix)
    return "nobody listens on this socket any more; is the server running?";
  if (error == ECONNREFUSED) return "no server listens there; is the port right?";
  if (error == EACCES && connector->address.is_unix)
    return "this user may not write to the socket, whose mode follows the server's umask, or not enter its directory";
  if (error == ENOENT) return "there is no such socket file; is the server running?";
  if (error == ETIMEDOUT) return "nothing answers there; is the host right, and does a firewall let you through?";
  if (error == EHOSTUNREACH || error == ENETUNREACH) return "there is no route to this host; is the host right?";
  if (error == EMFILE || error == ENFILE) return "raise the limit of open files";
  if (error == EAGAIN) return "the server has too many connections waiting";
  return "is the address right?";
}

static const rv_sockaddr *found_at(const rv_connector *connector, size_t number)
{
  return &connector->found[(connector->first + number) % connector->count];
}

/* This address cannot be reached; the last one's reason is told. */
static void note_failure(rv_connector *connector, int error)
{
  char peer[RV_PEER_MAX] = "";
  stop_waiting(connector);
  if (connector->fd >= 0) close(connector->fd);
  connector->fd = -1;
  if (connector->count > 1) rv_sockaddr_format(found_at(connector, connector->next - 1), peer);
  snprintf(connector->message, sizeof connector->message, "cannot connect to %.120s: %s%s%s%s (%s)", connector->address.text,
           error == ECONNREFUSED ? "connection refused" : strerror(error), peer[0] != '\0' ? " [" : "", peer,
           peer[0] != '\0' ? "]" : "", advice(connector, error));
  rv_loop_defer(connector->loop, &connector->task);
}

/* ---- a server is asked for rings ---- */

static void connect_without(rv_connector *connector)
{
  stop_waiting(connector);
  connector->refused = true;
  close(connector->fd);
  connector->fd = -1;
  connector->next--;
  rv_loop_defer(connector->loop, &connector->task);
}

/* So many bytes of a server's arena: in time writers meet all of it, tables, blocks that are out, and idle ones. It takes no memory of this
 * process's but a 512th for the system's own tables, though it looks like it (RSS). */
static size_t most_mapped(void)
{
  const size_t least = (size_t)1 << 30, most = (size_t)4 << 30, share = rv_machine_memory() / 8;
  if (share < least) return least;
  return share < most ? share : most;
}

/* Where the loop's large messages lie from the first such question on; NULL: it cannot be. */
static rv_arena *own_arena(rv_connector *connector)
{
  rv_spares *spares = rv_loop_spares(connector->loop);
  rv_arena *arena = NULL;
  if (rv_spares_arena(spares) == NULL && rv_arena_new(0, &arena, NULL) == RV_OK) rv_spares_use_arena(spares, arena);
  rv_arena_unref(arena);
  if (connector->loop->arena_maps == NULL) connector->loop->arena_maps = rv_arena_maps_new(most_mapped());
  return rv_spares_arena(spares);
}

static void on_answer(uv_poll_t *poll, int status, int events)
{
  (void)status, (void)events;
  rv_connector *connector = poll->data;
  rv_loop_enter(connector->loop);
  rv_loop *loop = connector->loop;
  rv_arena *lent = connector->lends ? rv_spares_arena(rv_loop_spares(loop)) : NULL;
  rv_rings_answer answer = rv_rings_answer_read(connector->fd, lent, loop->arena_maps, &connector->rings);
  if (answer == RV_RINGS_UNKNOWN)
    connect_without(connector);
  else
    finish(connector, connector->fd); /* with rings or without: that socket costs less than one over TCP */
}

static int wait_for(rv_connector *connector, int events, uv_poll_cb then, int64_t ns);

static void on_pause_over(uv_timer_t *pause);

/* As far as is known. */
static bool takes_none(const rv_connector *connector)
{
  return strcmp(connector->loop->takes_none, connector->address.text) == 0;
}

static bool ask_again_soon(rv_connector *connector)
{
  uv_timer_t *pause = uv_hrtime() < connector->asks_until_ns ? malloc(sizeof *pause) : NULL;
  if (pause == NULL) return false;
  uv_timer_init(&connector->loop->uv, pause);
  pause->data = connector;
  connector->pause = pause;
  uv_timer_start(pause, on_pause_over, ASKED_EVERY_MS, 0);
  return true;
}

/* A server that has not let it in for so long, or never takes descriptors, as where a security module forbids them, is asked for rings without them, and
 * the next connection does not wait for that as long. */
static void ask_for_rings(rv_connector *connector)
{
  rv_loop *loop = connector->loop;
  int error = rv_rings_ask(connector->fd, own_arena(connector), &connector->lends);
  if (error == EPERM && ask_again_soon(connector)) return;
  if (error == EPERM || error == EOPNOTSUPP) {
    snprintf(loop->takes_none, sizeof loop->takes_none, "%s", connector->address.text);
    error = rv_rings_ask(connector->fd, NULL, &connector->lends);
  } else if (connector->lends && takes_none(connector)) {
    loop->takes_none[0] = '\0';
  }
  if (error == 0) error = wait_for(connector, UV_READABLE, on_answer, RV_RINGS_ANSWER_NS);
  if (error != 0) connect_without(connector);
}

static void on_pause_over(uv_timer_t *pause)
{
  rv_connector *connector = pause->data;
  rv_loop_enter(connector->loop);
  stop_waiting(connector);
  ask_for_rings(connector);
}

/* ---- connecting ---- */

static void connected(rv_connector *connector)
{
  stop_waiting(connector);
  connector->asks_until_ns = uv_hrtime() + (takes_none(connector) ? ASKED_AGAIN_NS : RV_RINGS_ANSWER_NS);
  if (connector->asks)
    ask_for_rings(connector);
  else
    finish(connector, connector->fd);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
  (void)events;
  rv_connector *connector = poll->data;
  rv_loop_enter(connector->loop);
  int error = rv_socket_error(connector->fd);
  if (error == 0 && status < 0) error = EIO;
  if (error != 0)
    note_failure(connector, error);
  else
    connected(connector);
}

static void on_timeout(rv_timer *timer)
{
  rv_connector *connector = RV_CONTAINER(timer, rv_connector, timer);
  if (connector->asks)
    connect_without(connector);
  else
    note_failure(connector, ETIMEDOUT);
}

static int wait_for(rv_connector *connector, int events, uv_poll_cb then, int64_t ns)
{
  if (!rv_loop_can_watch(connector->loop, connector->fd)) return ENOMEM;
  uv_poll_t *poll = malloc(sizeof *poll);
  if (poll == NULL) return ENOMEM;
  int rc = uv_poll_init(&connector->loop->uv, poll, connector->fd);
  if (rc != 0) {
    free(poll);
    return -rc;
  }
  poll->data = connector;
  connector->poll = poll;
  uv_poll_start(poll, events, then);
  rv_timer_start(&connector->timer, rv_monotonic_ns(&connector->loop->env) + ns);
  return 0;
}

static void try_next(rv_task *task)
{
  rv_connector *connector = RV_CONTAINER(task, rv_connector, task);
  if (connector->next == connector->count) {
    finish(connector, -1);
    return;
  }
  const rv_sockaddr *address = found_at(connector, connector->next++);
  bool may_ask = connector->wants_rings && !connector->refused;
  connector->refused = false;
  if (may_ask && !connector->address.is_unix) connector->fd = rv_shortcut_connect(address);
  connector->asks = may_ask && (connector->fd >= 0 || connector->address.is_unix);
  if (connector->fd >= 0) {
    connected(connector);
    return;
  }
  connector->fd = rv_socket_open(address->storage.ss_family);
  if (connector->fd < 0) {
    note_failure(connector, -connector->fd);
    return;
  }
  rv_socket_tune(connector->fd);
  int error = rv_socket_connect(connector->fd, address);
  if (error == 0) {
    connected(connector);
    return;
  }
  if (error == EINPROGRESS) error = wait_for(connector, UV_WRITABLE, on_writable, RV_CONNECT_NS);
  if (error != 0) note_failure(connector, error);
}

static void on_resolved(void *user, struct addrinfo *owned_list, const char *why)
{
  rv_connector *connector = user;
  connector->lookup = NULL;
  size_t count = 0;
  for (const struct addrinfo *at = owned_list; at != NULL; at = at->ai_next) count++;
  connector->found = count > 0 ? calloc(count, sizeof *connector->found) : NULL;
  for (const struct addrinfo *at = owned_list; connector->found != NULL && at != NULL; at = at->ai_next) {
    rv_sockaddr *found = &connector->found[connector->count];
    if (at->ai_addrlen > sizeof found->storage) continue;
    memcpy(&found->storage, at->ai_addr, at->ai_addrlen);
    found->length = at->ai_addrlen;
    rv_sockaddr_set_port(found, connector->address.port);
    connector->count++;
  }
  if (owned_list != NULL) freeaddrinfo(owned_list);
  if (connector->count == 0)
    snprintf(connector->message, sizeof connector->message, "cannot resolve the host \"%.150s\": %s; is its name right?",
             connector->address.host, why != NULL ? why : "out of memory");
  rv_loop_defer(connector->loop, &connector->task);
}

static bool begin(rv_connector *connector)
{
  rv_sockaddr known;
  if (rv_sockaddr_of_address(&connector->address, &known)) {
    connector->found = malloc(sizeof *connector->found);
    if (connector->found == NULL) return false;
    connector->found[0] = known;
    connector->count = 1;
    rv_loop_defer(connector->loop, &connector->task);
    return true;
  }
  connector->lookup = rv_lookup_start(connector->loop, connector->address.host, on_resolved, connector);
  return connector->lookup != NULL;
}

rv_connector *rv_connector_start(rv_loop *loop, const rv_address *address, size_t first, bool wants_rings, rv_connected *done,
                                 void *user)
{
  rv_connector *connector = calloc(1, sizeof *connector);
  if (connector == NULL) return NULL;
  connector->loop = loop;
  connector->address = *address;
  connector->first = first;
  connector->wants_rings = wants_rings;
  connector->done = done;
  connector->user = user;
  connector->fd = -1;
  rv_task_init(&connector->task, try_next);
  rv_timer_init(&connector->timer, loop, on_timeout);
  if (begin(connector)) return connector;
  destroy(connector);
  return NULL;
}

void rv_connector_cancel(rv_connector *connector)
{
  destroy(connector);
}
