/* A client's channel: one connection to one address, made when a call asks for it, and made again after it was lost. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/random.h"
#include "net/call.h"
#include "net/connector.h"
#include "net/guest.h"

#define BACKOFF_FIRST_NS INT64_C(10000000)
#define BACKOFF_MOST_NS INT64_C(1000000000)
#define GOOD_CONNECTION_NS INT64_C(1000000000) /* one that lives so long was worth making */

struct rv_channel {
  rv_loop *loop;
  rv_address address;
  size_t max_message_bytes;
  int64_t peer_timeout_ms;
  bool shares_memory;
  bool closed;             /* rv_channel_close was called */
  rv_tls *tls;             /* NULL: none */
  char *authorization;     /* NULL: none */
  rv_connector *connector; /* connecting */
  size_t first; /* of the addresses that a name stands for: where something listens that is no server, the next comes first */
  rv_session *session; /* the one for new calls; perhaps not ready yet */
  rv_link sessions;    /* this one, and those that the server shuts down */
  rv_link calls;       /* all that have not got their on_close */
  rv_link waiting;     /* those without a stream, first come first served */
  rv_timer retry;
  int64_t backoff_ns, not_before_ns, ready_ns;
  unsigned attempts; /* failed ones since the last connection */
  atomic_uint_least64_t losses;
  atomic_bool lends;       /* the last connection did */
  atomic_bool has_landing; /* there is one */
  rv_random random;
  rv_mutex lock;       /* guards the rest */
  rv_landing *landing; /* of the connection for new calls; NULL: it has none */
  char state[512];
};

static void set_state(rv_channel *channel, const char *format, ...) RV_PRINTF(2, 3);
static void set_state(rv_channel *channel, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  rv_mutex_lock(&channel->lock);
  vsnprintf(channel->state, sizeof channel->state, format, args);
  rv_mutex_unlock(&channel->lock);
  va_end(args);
}

/* What rows are put into from now on; takes the reference. */
static void use_landing(rv_channel *channel, rv_landing *owned_landing)
{
  rv_mutex_lock(&channel->lock);
  rv_landing *before = channel->landing;
  channel->landing = owned_landing;
  atomic_store_explicit(&channel->has_landing, owned_landing != NULL, memory_order_relaxed);
  rv_mutex_unlock(&channel->lock);
  rv_landing_unref(before);
}

static void ask_for_connection(rv_channel *channel);

static void start_waiting(rv_channel *channel)
{
  while (!rv_list_empty(&channel->waiting) && channel->session != NULL && rv_session_room(channel->session) > 0)
    rv_call_start(RV_CONTAINER(channel->waiting.next, rv_call, link), channel->session);
}

/* The next attempt is to wait a little, and the one after it longer. */
static void back_off(rv_channel *channel)
{
  int64_t wait = channel->backoff_ns;
  channel->backoff_ns = wait * 2 < BACKOFF_MOST_NS ? wait * 2 : BACKOFF_MOST_NS;
  wait = (int64_t)((double)wait * (0.8 + 0.4 * rv_random_unit(&channel->random))); /* so that many clients do not come at once */
  channel->not_before_ns = rv_monotonic_ns(&channel->loop->env) + wait;
}

static void fail_attempt(rv_channel *channel, const char *message)
{
  channel->attempts++;
  back_off(channel);
  set_state(channel, "connecting to %.100s (%.300s; attempt %u)", channel->address.text, message, channel->attempts);
  for (rv_link *node = channel->waiting.next, *next; node != &channel->waiting; node = next) {
    next = node->next;
    rv_call *call = RV_CONTAINER(node, rv_call, link);
    if (!call->wait_for_ready) rv_call_end(call, RV_UNAVAILABLE, message, RV_NO_RESET, false);
  }
  ask_for_connection(channel);
}

static void on_ready(void *owner, rv_session *session)
{
  rv_channel *channel = owner;
  if (session != channel->session) return;
  channel->attempts = 0;
  channel->ready_ns = rv_monotonic_ns(&channel->loop->env);
  set_state(channel, "connected to %s", channel->address.text);
  start_waiting(channel);
}

/* The connection is not for new calls any more. A server that closes each one at once is not asked again and again; where
 * something was answered before a bad line was cut, the next attempt waits no longer than the first one did. */
static void let_go(rv_channel *channel, rv_session *session)
{
  if (session != channel->session) return;
  channel->session = NULL;
  use_landing(channel, NULL);
  if (session->ready) atomic_fetch_add_explicit(&channel->losses, 1, memory_order_release);
  bool lasted = rv_monotonic_ns(&channel->loop->env) - channel->ready_ns >= GOOD_CONNECTION_NS;
  if (session->ready && (lasted || session->useful)) channel->backoff_ns = BACKOFF_FIRST_NS;
  if (session->ready && !lasted) back_off(channel);
  if (session->reason[0] != '\0')
    set_state(channel, "%s", session->reason); /* that the server takes no more connections, for one */
  else
    set_state(channel, "not connected to %s", channel->address.text);
}

static void on_goaway(void *owner, rv_session *session)
{
  let_go(owner, session);
  ask_for_connection(owner);
}

static void on_room(void *owner, rv_session *session)
{
  rv_channel *channel = owner;
  if (session == channel->session) start_waiting(channel);
}

static void on_gone(void *owner, rv_session *session, bool ready, const char *message)
{
  rv_channel *channel = owner;
  bool current = session == channel->session;
  let_go(channel, session);
  if (current && !ready) {
    channel->first++;
    fail_attempt(channel, message);
  } else {
    ask_for_connection(channel);
  }
}

static const rv_session_owner session_events = {
    .on_ready = on_ready, .on_goaway = on_goaway, .on_room = on_room, .on_gone = on_gone};

static void on_connected(void *user, int fd, rv_rings *owned_rings, const char *message)
{
  rv_channel *channel = user;
  channel->connector = NULL;
  if (fd < 0) {
    fail_attempt(channel, message);
    return;
  }
  const bool lends = owned_rings != NULL && owned_rings->out.arena != NULL;
  rv_landing *landing = owned_rings != NULL ? owned_rings->out.landing : NULL;
  if (landing != NULL) rv_landing_ref(landing);
  rv_session_config config = {.loop = channel->loop,
                              .events = &session_events,
                              .owner = channel,
                              .max_message_bytes = channel->max_message_bytes,
                              .peer_timeout_ms = channel->peer_timeout_ms,
                              .address = channel->address.text,
                              .tls = channel->tls,
                              .host = channel->address.host,
                              .owned_rings = owned_rings};
  rv_error error;
  if (rv_session_new(&config, fd, &channel->session, &error) != RV_OK) {
    channel->session = NULL;
    rv_landing_unref(landing);
    fail_attempt(channel, error.message);
    return;
  }
  use_landing(channel, landing);
  rv_list_push_back(&channel->sessions, &channel->session->owner_link);
  atomic_store_explicit(&channel->lends, lends, memory_order_relaxed);
}

static void connect_now(rv_channel *channel)
{
  if (channel->attempts == 0) set_state(channel, "connecting to %s", channel->address.text);
  channel->connector =
      rv_connector_start(channel->loop, &channel->address, channel->first, channel->shares_memory, on_connected, channel);
  if (channel->connector == NULL) fail_attempt(channel, "out of memory for a connection");
}

static void on_retry(rv_timer *timer)
{
  ask_for_connection(RV_CONTAINER(timer, rv_channel, retry));
}

static void ask_for_connection(rv_channel *channel)
{
  if (channel->closed) return;
  if (rv_list_empty(&channel->waiting) || channel->session != NULL || channel->connector != NULL) return;
  if (rv_loop_has_guest(channel->loop))
    rv_timer_start(&channel->retry, rv_monotonic_ns(&channel->loop->env));
  else if (rv_monotonic_ns(&channel->loop->env) < channel->not_before_ns)
    rv_timer_start(&channel->retry, channel->not_before_ns);
  else
    connect_now(channel);
}

/* ---- net.h ---- */

rv_code rv_channel_new(const rv_channel_config *config, rv_channel **out, rv_error *err)
{
  rv_code code = rv_address_check(config->address, err);
  if (code != RV_OK) return code;
  rv_address address;
  rv_address_parse(config->address, &address, NULL);
  if (address.is_unix && config->tls != NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%.200s is a unix socket, which needs no TLS; leave it out", address.text);
  rv_channel *channel = calloc(1, sizeof *channel);
  if (channel == NULL) return rv_fail_memory(err, sizeof *channel);
  if (config->authorization != NULL) {
    channel->authorization = strdup(config->authorization);
    if (channel->authorization == NULL) {
      free(channel);
      return rv_fail_memory(err, strlen(config->authorization) + 1);
    }
  }
  channel->address = address;
  channel->tls = config->tls != NULL ? rv_tls_ref(config->tls) : NULL;
  channel->loop = config->loop;
  channel->max_message_bytes = config->max_message_bytes;
  channel->peer_timeout_ms = config->peer_timeout_ms;
  channel->shares_memory = config->shares_memory && config->tls == NULL;
  channel->backoff_ns = BACKOFF_FIRST_NS;
  rv_list_init(&channel->sessions);
  rv_list_init(&channel->calls);
  rv_list_init(&channel->waiting);
  rv_timer_init(&channel->retry, channel->loop, on_retry);
  rv_random_init(&channel->random, rv_entropy64(&config->loop->env));
  rv_mutex_init(&channel->lock, RV_RANK_WAIT, "channel state");
  set_state(channel, "not connected to %s", channel->address.text);
  *out = channel;
  return RV_OK;
}

static const char CLOSED[] = "the client was closed";

static void end_connections(rv_channel *channel)
{
  while (!rv_list_empty(&channel->sessions)) {
    rv_session *session = RV_CONTAINER(channel->sessions.next, rv_session, owner_link);
    rv_list_remove(&session->owner_link);
    rv_session_disown(session);
    rv_session_finish(session, RV_CANCELLED, CLOSED);
  }
  if (channel->connector != NULL) rv_connector_cancel(channel->connector);
  channel->connector = NULL;
  rv_timer_stop(&channel->retry);
}

static void close_channel(void *argument)
{
  rv_channel *channel = argument;
  if (channel->closed) return;
  channel->closed = true;
  channel->session = NULL; /* before its calls end, which may make others */
  use_landing(channel, NULL);
  set_state(channel, "%s", CLOSED);
  end_connections(channel);
}

void rv_channel_close(rv_channel *channel)
{
  rv_loop_call(channel->loop, close_channel, channel);
}

static void free_channel(void *argument)
{
  rv_channel *channel = argument;
  while (!rv_list_empty(&channel->calls)) {
    rv_call *call = RV_CONTAINER(channel->calls.next, rv_call, channel_link);
    rv_list_remove(&call->channel_link);
    call->channel = NULL;
    if (call->over)
      rv_call_cancel(call); /* what waits for a paused call to go on is dropped */
    else
      rv_call_end(call, RV_CANCELLED, CLOSED, NGHTTP2_CANCEL, false);
  }
  end_connections(channel);
  rv_landing_unref(channel->landing);
  rv_mutex_fini(&channel->lock);
  rv_tls_unref(channel->tls);
  free(channel->authorization);
  free(channel);
}

static void nothing(void *argument)
{
  (void)argument;
}

void rv_channel_free(rv_channel *channel)
{
  if (channel == NULL) return;
  rv_loop *loop = channel->loop;
  rv_loop_call(loop, free_channel, channel);
  if (!rv_loop_is_current(loop)) rv_loop_call(loop, nothing, NULL); /* the calls' on_close have come before this runs */
}

/* NULL, or what is wrong with it. */
static const char *check_metadata(const rv_call_config *config)
{
  static const char wrong[] = "the call's metadata has more than 48 pairs, or a name or value with characters HTTP/2 forbids";
  if (config->num_metadata > RV_MAX_PAIRS) return wrong;
  for (size_t i = 0; i < config->num_metadata; i++) {
    const char *name = config->metadata[i].name, *value = config->metadata[i].value;
    if (nghttp2_check_header_name((const uint8_t *)name, strlen(name)) == 0 || name[0] == ':' ||
        nghttp2_check_header_value((const uint8_t *)value, strlen(value)) == 0)
      return wrong;
  }
  return NULL;
}

/* false: out of memory. */
static bool copy_metadata(rv_call *call, const rv_call_config *config)
{
  const char *authorization = call->channel->authorization;
  if (authorization != NULL &&
      !rv_metadata_store_add(&call->to_send, "authorization", sizeof "authorization" - 1, authorization, strlen(authorization)))
    return false;
  for (size_t i = 0; i < config->num_metadata; i++) {
    const char *name = config->metadata[i].name, *value = config->metadata[i].value;
    if (!rv_metadata_store_add(&call->to_send, name, strlen(name), value, strlen(value))) return false;
  }
  return true;
}

rv_call *rv_channel_call(rv_channel *channel, const rv_call_config *config, const rv_call_events *events, void *user)
{
  RV_LOOP_CHECK(channel->loop);
  rv_call *call = rv_call_new(channel->loop, false);
  if (call == NULL) return NULL;
  call->path = strdup(config->path);
  if (call->path == NULL) {
    rv_call_free(call);
    return NULL;
  }
  call->channel = channel;
  call->events = events;
  call->user = user;
  call->wait_for_ready = config->wait_for_ready;
  call->deadline_ns = config->deadline_ns;
  call->started_ns = rv_monotonic_ns(&channel->loop->env);
  rv_list_push_back(&channel->calls, &call->channel_link);
  const char *wrong = check_metadata(config);
  if (wrong != NULL || !copy_metadata(call, config)) {
    rv_call_end(call, wrong != NULL ? RV_INVALID_ARGUMENT : RV_RESOURCE_EXHAUSTED,
                wrong != NULL ? wrong : "out of memory for a call", RV_NO_RESET, false);
    return call;
  }
  rv_list_push_back(&channel->waiting, &call->link);
  rv_call_start_deadline(call);
  start_waiting(channel);
  ask_for_connection(channel);
  return call;
}

/* ---- guests ---- */

static bool is_usable(const rv_channel *channel)
{
  const rv_session *session = channel->session;
  return session != NULL && session->ready && !session->lost && session->state == RV_SESSION_OPEN && !session->write_blocked &&
         rv_list_empty(&channel->waiting);
}

bool rv_channel_visit(rv_channel *channel, rv_task *task, int *fd)
{
  *fd = -1;
  if (!rv_loop_begin_visit(channel->loop)) return false;
  bool usable = is_usable(channel);
  if (usable && task != NULL) task->run(task);
  *fd = usable && channel->session != NULL && !channel->session->lost ? channel->session->transport.fd : -1;
  rv_loop_end_visit(channel->loop);
  return usable;
}

rv_guest_read rv_channel_receive(rv_channel *channel, int fd)
{
  if (!rv_loop_begin_visit(channel->loop)) return RV_GUEST_CANNOT;
  rv_guest_read outcome = RV_GUEST_CANNOT;
  if (is_usable(channel) && channel->session->transport.fd == fd)
    outcome = rv_session_receive(channel->session) < RV_LOOP_SCRATCH ? RV_GUEST_READ : RV_GUEST_READ_MUCH;
  rv_loop_end_visit(channel->loop);
  return outcome;
}

void rv_channel_state(rv_channel *channel, char *out, size_t capacity)
{
  if (capacity == 0) return;
  rv_mutex_lock(&channel->lock);
  snprintf(out, capacity, "%s", channel->state);
  rv_mutex_unlock(&channel->lock);
}

bool rv_channel_lends(const rv_channel *channel)
{
  return atomic_load_explicit(&channel->lends, memory_order_relaxed);
}

bool rv_channel_gives_blocks(const rv_channel *channel)
{
  return atomic_load_explicit(&channel->has_landing, memory_order_relaxed);
}

rv_buf *rv_channel_take_block(rv_channel *channel, size_t bytes)
{
  rv_mutex_lock(&channel->lock);
  rv_landing *landing = channel->landing != NULL ? rv_landing_ref(channel->landing) : NULL;
  rv_mutex_unlock(&channel->lock);
  rv_buf *block = landing != NULL ? rv_landing_take(landing, bytes) : NULL;
  rv_landing_unref(landing);
  return block;
}

uint64_t rv_channel_losses(const rv_channel *channel)
{
  return atomic_load_explicit(&channel->losses, memory_order_acquire);
}
