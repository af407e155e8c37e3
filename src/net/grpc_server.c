/* The server's side: listeners on the first loop hand accepted sockets to all loops in turn. Stopping closes the listeners, lets
 * every loop drain its connections, and waits until none is left. Which connections there may be is admission.h's. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/error.h"
#include "net/admission.h"
#include "net/listener.h"
#include "net/session.h"

enum { ACCEPT_TURN = 1024, MAX_THREADS = 256, DEFAULT_THREADS_MAX = 8 };
#define ACCEPT_PAUSE_NS INT64_C(100000000)
#define MINUTE_NS INT64_C(60000000000)

typedef struct io_thread {
  rv_grpc_server *server;
  rv_loop *loop;
  rv_link sessions; /* rv_session.owner_link */
  rv_timer drain;
  bool stopping, drained;
} io_thread;

typedef struct watch {
  uv_poll_t poll;
  rv_grpc_server *server;
  rv_tls *tls;      /* the server's, or NULL */
  uint64_t machine; /* of all who come; 0: each has his own */
  int fd;
} watch;

struct rv_grpc_server {
  rv_env env;
  bool (*on_call)(void *context, rv_call *call, const char *path, const rv_call_events **events, void **user);
  void (*on_minute)(void *context);
  void *context;
  size_t max_message_bytes, max_streams;
  int64_t peer_timeout_ms;
  rv_tls *tls; /* NULL: none */
  io_thread *io;
  size_t num_io, next_io;
  rv_listener *listener;
  size_t num_listeners;
  watch **watching; /* one a listening socket; the first loop's */
  size_t num_watching;
  rv_timer accept_again; /* when files have run out */
  rv_timer minute;       /* runs while it listens */
  bool listens;
  rv_admission admission; /* its connections are let in by the first loop */
  rv_ring_host rings;
  rv_half_messages half;
  int64_t drain_ms;
  bool stopped;  /* of the thread that stops */
  rv_mutex lock; /* guards what follows */
  rv_cond drained;
  size_t draining;
};

/* ---- connections ---- */

static bool on_request(void *owner, rv_call *call, const char *path, const rv_call_events **events, void **user)
{
  const io_thread *io = owner;
  return io->server->on_call(io->server->context, call, path, events, user);
}

static void note_drained(io_thread *io)
{
  if (!io->stopping || io->drained || !rv_list_empty(&io->sessions)) return;
  io->drained = true;
  rv_timer_stop(&io->drain);
  rv_mutex_lock(&io->server->lock);
  io->server->draining--;
  rv_cond_signal(&io->server->drained);
  rv_mutex_unlock(&io->server->lock);
}

static void log_end(rv_grpc_server *server, const rv_session *session, const char *message)
{
  char more[RV_LOG_MORE];
  if (session->transport.disagreed && rv_admission_may_log_handshake(&server->admission, session->machine, more))
    rv_log(&server->env, RV_LOG_WARNING, "a TLS handshake failed: %s%s", message, more);
  else
    rv_log(&server->env, RV_LOG_DEBUG, "connection from %s ended: %s", session->peer, message);
}

static void on_gone(void *owner, rv_session *session, bool ready, const char *message)
{
  (void)ready;
  io_thread *io = owner;
  log_end(io->server, session, message);
  rv_admission_end(&io->server->admission, session->machine);
  note_drained(io);
}

static const rv_session_owner session_events = {.on_request = on_request, .on_gone = on_gone};

static void adopt(io_thread *io, int fd, uint64_t machine, rv_tls *tls)
{
  rv_grpc_server *server = io->server;
  rv_session_config config = {.loop = io->loop,
                              .events = &session_events,
                              .owner = io,
                              .server = true,
                              .machine = machine,
                              .max_message_bytes = server->max_message_bytes,
                              .max_streams = server->max_streams,
                              .peer_timeout_ms = server->peer_timeout_ms,
                              .tls = tls,
                              .half = &server->half,
                              .ring_host = rv_socket_is_unix(fd) ? &server->rings : NULL};
  rv_session *session;
  rv_error error;
  if (rv_session_new(&config, fd, &session, &error) != RV_OK) {
    char more[RV_LOG_MORE];
    if (rv_admission_may_log_failure(&server->admission, more))
      rv_log(&server->env, RV_LOG_ERROR, "a connection was refused: %s%s", error.message, more);
    rv_admission_end(&io->server->admission, machine);
    return;
  }
  rv_list_push_back(&io->sessions, &session->owner_link);
}

/* ---- accepting ---- */

typedef struct hand_over {
  rv_task task;
  io_thread *io;
  rv_tls *tls;
  uint64_t machine;
  int fd;
} hand_over;

static void run_hand_over(rv_task *task)
{
  hand_over *over = RV_CONTAINER(task, hand_over, task);
  adopt(over->io, over->fd, over->machine, over->tls);
  free(over);
}

static void give(io_thread *io, int fd, uint64_t machine, rv_tls *tls)
{
  if (rv_loop_is_current(io->loop)) {
    adopt(io, fd, machine, tls);
    return;
  }
  hand_over *over = malloc(sizeof *over);
  if (over == NULL) {
    rv_admission_fail(&io->server->admission, fd, machine, tls != NULL);
    return;
  }
  over->io = io;
  over->tls = tls;
  over->machine = machine;
  over->fd = fd;
  rv_task_init(&over->task, run_hand_over);
  rv_loop_post(io->loop, &over->task);
}

static void watch_all(rv_grpc_server *server, bool on);

static void on_accept_again(rv_timer *timer)
{
  watch_all(RV_CONTAINER(timer, rv_grpc_server, accept_again), true);
}

static void accept_failed(rv_grpc_server *server, int error)
{
  if (error == EAGAIN || error == EWOULDBLOCK || error == ECONNABORTED) return;
  char more[RV_LOG_MORE];
  if (rv_admission_may_log_failure(&server->admission, more))
    rv_log(&server->env, RV_LOG_WARNING, "a connection could not be accepted: %s%s%s", strerror(error),
           error == EMFILE || error == ENFILE ? "; raise the limit of open files (ulimit -n)" : "", more);
  /* The socket stays readable: without a pause the loop would spin. */
  watch_all(server, false);
  rv_timer_start(&server->accept_again, rv_monotonic_ns(&server->env) + ACCEPT_PAUSE_NS);
}

static void on_minute(rv_timer *timer)
{
  rv_grpc_server *server = RV_CONTAINER(timer, rv_grpc_server, minute);
  rv_timer_start(timer, rv_monotonic_ns(&server->env) + MINUTE_NS);
  rv_admission_tell(&server->admission);
  rv_landing_host_look(&server->rings.landing);
  if (server->on_minute != NULL) server->on_minute(server->context);
}

static void on_listening(uv_poll_t *poll, int status, int events)
{
  (void)status, (void)events;
  const watch *watched = poll->data;
  rv_grpc_server *server = watched->server;
  rv_loop_enter(server->io[0].loop);
  for (int i = 0; i < ACCEPT_TURN; i++) {
    int fd = rv_socket_accept(watched->fd);
    if (fd < 0) {
      accept_failed(server, -fd);
      return;
    }
    uint64_t machine = watched->machine != 0 ? watched->machine : rv_socket_peer_machine(fd);
    if (!rv_admission_begin(&server->admission, fd, machine, watched->tls != NULL)) continue;
    give(&server->io[server->next_io++ % server->num_io], fd, machine, watched->tls);
  }
}

static void watch_all(rv_grpc_server *server, bool on)
{
  for (size_t i = 0; i < server->num_watching; i++)
    if (on)
      uv_poll_start(&server->watching[i]->poll, UV_READABLE, on_listening);
    else
      uv_poll_stop(&server->watching[i]->poll);
}

static size_t count_sockets(const rv_grpc_server *server)
{
  size_t count = 0;
  for (size_t i = 0; i < server->num_listeners; i++) count += server->listener[i].count + server->listener[i].num_shortcuts;
  return count;
}

/* Those that no loop has seen. */
static void free_watches(rv_grpc_server *server)
{
  for (size_t i = count_sockets(server); i > 0; i--) free(server->watching[i - 1]);
}

/* Says of each watch which socket it is of; false: one cannot be watched. */
static bool choose_sockets(rv_grpc_server *server)
{
  size_t at = 0;
  bool fine = true;
  for (size_t i = 0; i < server->num_listeners; i++) {
    const rv_listener *listener = &server->listener[i];
    for (size_t k = 0; k < listener->count + listener->num_shortcuts; k++) {
      bool is_shortcut = k >= listener->count;
      watch *watched = server->watching[at++];
      watched->server = server;
      watched->fd = is_shortcut ? listener->shortcut[k - listener->count] : listener->fd[k];
      watched->tls = listener->address.is_unix ? NULL : server->tls;
      watched->machine = is_shortcut ? rv_socket_this_machine() : 0;
      fine = rv_loop_can_watch(server->io[0].loop, watched->fd) && fine;
    }
  }
  return fine;
}

static void start_listening(void *argument)
{
  rv_grpc_server *server = argument;
  if (!choose_sockets(server)) {
    free_watches(server);
    return;
  }
  size_t count = count_sockets(server);
  for (size_t i = 0; i < count; i++) {
    watch *watched = server->watching[i];
    uv_poll_init(&server->io[0].loop->uv, &watched->poll, watched->fd);
    watched->poll.data = watched;
  }
  server->num_watching = count;
  watch_all(server, true);
  rv_timer_start(&server->minute, rv_monotonic_ns(&server->env) + MINUTE_NS);
  server->listens = true;
}

static void free_watch(uv_handle_t *handle)
{
  free(handle->data);
}

static void stop_listening(void *argument)
{
  rv_grpc_server *server = argument;
  watch_all(server, false);
  rv_timer_stop(&server->accept_again);
  rv_timer_stop(&server->minute);
  for (size_t i = 0; i < server->num_watching; i++) uv_close((uv_handle_t *)&server->watching[i]->poll, free_watch);
  server->num_watching = 0;
  for (size_t i = 0; i < server->num_listeners; i++) rv_listener_close(&server->listener[i]);
}

/* ---- stopping ---- */

static void on_drain_over(rv_timer *timer)
{
  io_thread *io = RV_CONTAINER(timer, io_thread, drain);
  for (rv_link *node = io->sessions.next, *next; node != &io->sessions; node = next) {
    next = node->next;
    rv_session_finish(RV_CONTAINER(node, rv_session, owner_link), RV_UNAVAILABLE, "Cancelling all calls");
  }
}

static void drain(void *argument)
{
  io_thread *io = argument;
  io->stopping = true;
  RV_LIST_EACH(node, &io->sessions) rv_session_shut_down(RV_CONTAINER(node, rv_session, owner_link));
  int64_t wait = io->server->drain_ms < 0 ? 0 : io->server->drain_ms;
  if (wait > INT64_MAX / 4000000) wait = INT64_MAX / 4000000;
  if (wait == 0)
    on_drain_over(&io->drain);
  else
    rv_timer_start(&io->drain, rv_monotonic_ns(&io->server->env) + wait * 1000000);
  note_drained(io);
}

void rv_grpc_server_stop(rv_grpc_server *server, int64_t drain_ms)
{
  if (server->stopped) return;
  server->stopped = true;
  server->drain_ms = drain_ms;
  rv_loop_call(server->io[0].loop, stop_listening, server);
  rv_mutex_lock(&server->lock);
  server->draining = server->num_io;
  rv_mutex_unlock(&server->lock);
  for (size_t i = 0; i < server->num_io; i++) rv_loop_call(server->io[i].loop, drain, &server->io[i]);
  rv_mutex_lock(&server->lock);
  while (server->draining > 0) rv_cond_wait(&server->drained, &server->lock);
  rv_mutex_unlock(&server->lock);
}

void rv_grpc_server_free(rv_grpc_server *server)
{
  if (server == NULL) return;
  if (server->num_io > 0) rv_grpc_server_stop(server, 0);
  for (size_t i = 0; i < server->num_io; i++) rv_loop_free(server->io[i].loop);
  for (size_t i = 0; i < server->num_listeners; i++) rv_listener_close(&server->listener[i]);
  rv_cond_fini(&server->drained);
  rv_mutex_fini(&server->lock);
  rv_tls_unref(server->tls);
  rv_landing_host_fini(&server->rings.landing);
  rv_arena_unref(server->rings.arena);
  rv_arena_maps_unref(server->rings.maps);
  rv_admission_fini(&server->admission);
  free(server->watching);
  free(server->listener);
  free(server->io);
  free(server);
}

/* ---- making one ---- */

static rv_code open_listeners(rv_grpc_server *server, const rv_grpc_server_config *config, rv_error *err)
{
  if (config->num_addresses == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a server needs an address to listen on, such as [::]:8000");
  server->listener = calloc(config->num_addresses, sizeof *server->listener);
  if (server->listener == NULL) return rv_fail_memory(err, config->num_addresses * sizeof *server->listener);
  for (size_t i = 0; i < config->num_addresses; i++) {
    rv_address address;
    rv_code code = rv_address_parse(config->addresses[i], &address, err);
    if (code == RV_OK) rv_address_from_root(&address);
    if (code == RV_OK) code = rv_listener_open(&address, &server->listener[i], err);
    if (code != RV_OK) return code;
    rv_listener *listener = &server->listener[server->num_listeners++];
    int error = config->shares_memory && server->tls == NULL && !address.is_unix ? rv_listener_open_shortcuts(listener) : 0;
    if (error == EADDRINUSE)
      rv_log(&server->env, RV_LOG_WARNING,
             "another process listens where clients of this machine look for %.200s, and may be taken for this server; "
             "grep reverie/ /proc/net/unix shows the names",
             address.text);
    else if (error != 0)
      rv_log(&server->env, RV_LOG_WARNING, "clients of this machine share no memory with the server by %.200s: %s", address.text,
             strerror(error));
  }
  return RV_OK;
}

static rv_code make_watches(rv_grpc_server *server, rv_error *err)
{
  size_t count = count_sockets(server);
  server->watching = calloc(count, sizeof(watch *));
  if (server->watching == NULL) return rv_fail_memory(err, count * sizeof(watch *));
  for (size_t i = 0; i < count; i++) {
    server->watching[i] = calloc(1, sizeof(watch));
    if (server->watching[i] != NULL) continue;
    free_watches(server);
    return rv_fail_memory(err, sizeof(watch));
  }
  return RV_OK;
}

/* The other half of the cores is for those who fill and read the tables. */
static size_t default_threads(void)
{
  long half = sysconf(_SC_NPROCESSORS_ONLN) / 2;
  return half < 1 ? 1 : half > DEFAULT_THREADS_MAX ? DEFAULT_THREADS_MAX : (size_t)half;
}

static bool has_local_listeners(const rv_grpc_server *server)
{
  for (size_t i = 0; i < server->num_listeners; i++)
    if (server->listener[i].address.is_unix || server->listener[i].num_shortcuts > 0) return true;
  return false;
}

/* Without it all is copied, as to other machines. */
static void make_arena(rv_grpc_server *server, const rv_grpc_server_config *config)
{
  rv_error error;
  if (rv_arena_new(0, &server->rings.arena, &error) != RV_OK)
    rv_log(&server->env, RV_LOG_INFO, "large messages are copied to clients of this machine instead of lent: %s", error.message);
  rv_landing_host_use(&server->rings.landing, server->rings.arena, config->memory_limit, config->context);
}

static rv_code make_loops(rv_grpc_server *server, unsigned threads, rv_error *err)
{
  size_t count = threads == 0 ? default_threads() : threads > MAX_THREADS ? MAX_THREADS : threads;
  server->io = calloc(count, sizeof *server->io);
  if (server->io == NULL) return rv_fail_memory(err, count * sizeof *server->io);
  for (size_t i = 0; i < count; i++) {
    io_thread *io = &server->io[i];
    char name[16];
    snprintf(name, sizeof name, "rv-io-%u", (unsigned)i & 0xFFFFU);
    rv_code code = rv_loop_new(&server->env, name, &io->loop, err);
    if (code != RV_OK) return code;
    if (server->rings.arena != NULL) rv_spares_use_arena(rv_loop_spares(io->loop), server->rings.arena);
    io->server = server;
    rv_list_init(&io->sessions);
    rv_timer_init(&io->drain, io->loop, on_drain_over);
    if (i == 0) { /* stopped also where the next loop fails */
      rv_timer_init(&server->accept_again, io->loop, on_accept_again);
      rv_timer_init(&server->minute, io->loop, on_minute);
    }
    server->num_io++;
  }
  return RV_OK;
}

rv_code rv_grpc_server_new(const rv_grpc_server_config *config, rv_grpc_server **out, rv_error *err)
{
  rv_grpc_server *server = calloc(1, sizeof *server);
  if (server == NULL) return rv_fail_memory(err, sizeof *server);
  rv_env_fill(&server->env, config->env);
  server->on_call = config->on_call;
  server->on_minute = config->on_minute;
  server->context = config->context;
  server->max_message_bytes = config->max_message_bytes > 0 ? config->max_message_bytes : RV_DEFAULT_MAX_MESSAGE;
  server->max_streams = config->max_streams_per_connection;
  server->peer_timeout_ms = config->peer_timeout_ms;
  server->tls = config->tls != NULL ? rv_tls_ref(config->tls) : NULL;
  rv_mutex_init(&server->lock, RV_RANK_WAIT, "gRPC server");
  rv_cond_init(&server->drained);
  rv_admission_init(&server->admission, &server->env, config->max_connections, config->max_connections_per_address);
  rv_landing_host_init(&server->rings.landing);
  server->rings.maps = rv_arena_maps_new(0); /* none of them is written to */
  rv_socket_raise_limit();
  rv_half_messages_init(&server->half, server->max_message_bytes, config->memory_limit, config->context);
  rv_code code = server->rings.maps != NULL ? RV_OK : rv_fail_memory(err, sizeof(void *));
  if (code == RV_OK) code = open_listeners(server, config, err);
  if (code == RV_OK && config->lends_memory && has_local_listeners(server)) make_arena(server, config);
  if (code == RV_OK) code = make_loops(server, config->io_threads, err);
  if (code == RV_OK) code = make_watches(server, err);
  if (code == RV_OK) {
    rv_loop_call(server->io[0].loop, start_listening, server);
    if (!server->listens) code = rv_fail_memory(err, server->num_listeners * sizeof(void *));
  }
  if (code != RV_OK) {
    rv_grpc_server_free(server);
    return code;
  }
  *out = server;
  return RV_OK;
}

uint16_t rv_grpc_server_port(const rv_grpc_server *server, size_t index)
{
  return index < server->num_listeners ? server->listener[index].address.port : 0;
}

size_t rv_grpc_server_num_loops(const rv_grpc_server *server)
{
  return server->num_io;
}
rv_loop *rv_grpc_server_loop(const rv_grpc_server *server, size_t index)
{
  return server->io[index].loop;
}
