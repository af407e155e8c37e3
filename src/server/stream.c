#include "base/error.h"
#include "reverie/version.h"
#include "server/server.h"
#include "store/memory.h"

enum { LOOK_MS = 100, STRANGERS_MAX = 1000 };

/* At as many as there are now: each may come back, or go. */
static void look_at_waiting(rv_timer *timer)
{
  rv_server_loop *loop = RV_CONTAINER(timer, rv_server_loop, look_timer);
  rv_link now;
  rv_list_init(&now);
  rv_list_splice(&now, &loop->waiting);
  for (bool first = true; !rv_list_empty(&now); first = false) {
    rv_server_stream *stream = RV_CONTAINER(now.next, rv_server_stream, waiting);
    rv_list_remove(&stream->waiting);
    rv_server_stream_ref(stream);
    if (first) rv_memory_ask_again(rv_store_memory(stream->server->store));
    stream->ops->look(stream);
    rv_server_stream_unref(stream);
  }
}

void rv_server_stream_look_again(rv_server_stream *stream)
{
  rv_timer *timer = &stream->home->look_timer;
  if (!rv_list_empty(&stream->waiting)) return;
  rv_list_push_back(&stream->home->waiting, &stream->waiting);
  if (!timer->runs) rv_timer_start(timer, rv_monotonic_ns(&stream->server->env) + LOOK_MS * 1000000);
}

/* The list of the loop; the first call on a loop adds it. NULL: more loops than there is room for. Holding the lock. */
static rv_server_loop *find_loop(rv_server *server, rv_loop *loop)
{
  for (size_t i = 0; i < server->num_loops; i++)
    if (server->loops[i].loop == loop) return &server->loops[i];
  if (server->num_loops == RV_SERVER_LOOPS_MAX) return NULL;
  rv_server_loop *added = &server->loops[server->num_loops++];
  added->loop = loop;
  rv_list_init(&added->streams);
  rv_list_init(&added->waiting);
  rv_list_init(&added->strangers);
  rv_timer_init(&added->look_timer, loop, look_at_waiting);
  return added;
}

/* Whoever shows itself as Reverie is told who answers; a plain Reverb client is told nothing it does not know. */
static void greet(rv_server *server, rv_call *call)
{
  if (rv_call_metadata(call, "reverie-writer") == NULL && rv_call_metadata(call, "reverie-version") == NULL) return;
  rv_call_set_header(call, "reverie-version", RV_VERSION);
  rv_call_set_header(call, "reverie-server-state", server->state_id);
}

/* What the server counts, and the stream's access. */
static void leave(rv_server *server, rv_access *access, const rv_server_stream_ops *ops)
{
  rv_access_unref(access);
  rv_mutex_lock(&server->lock);
  server->num_lingering -= ops->lingers;
  if (--server->num_streams == server->num_lingering) rv_cond_broadcast(&server->changed);
  rv_mutex_unlock(&server->lock);
}

void rv_server_stream_keep(rv_server_stream *stream)
{
  if (rv_list_empty(&stream->stranger)) return;
  rv_list_remove(&stream->stranger);
  stream->home->num_strangers--;
}

/* Nobody who comes is refused because of those who leave calls open, for that is how a probe would find a server dead that is well: whoever
 * has had the longest to ask, or to take his answer, makes room. */
static void let_in(rv_server_stream *stream)
{
  rv_server_loop *loop = stream->home;
  rv_list_push_back(&loop->strangers, &stream->stranger);
  if (++loop->num_strangers <= STRANGERS_MAX) return;
  rv_server_stream *oldest = RV_CONTAINER(loop->strangers.next, rv_server_stream, stranger);
  rv_server_stream_keep(oldest);
  if (rv_server_stream_is_open(oldest))
    rv_server_stream_finish(oldest, RV_RESOURCE_EXHAUSTED,
                            "many calls of callers who are not asked who they are came after this one, whose request did not; "
                            "send it with the call");
  else if (oldest->call != NULL)
    rv_call_cancel(oldest->call);
}

rv_code rv_server_fail_draining(rv_error *err)
{
  return rv_fail(err, RV_UNAVAILABLE, "the server is shutting down");
}

rv_code rv_server_stream_begin(rv_server_stream *stream, const rv_server_stream_ops *ops, rv_server *server, rv_call *call,
                               rv_error *err)
{
  stream->ops = ops;
  stream->server = server;
  stream->loop = rv_call_loop(call);
  stream->home = NULL;
  rv_list_init(&stream->waiting);
  rv_list_init(&stream->stranger);
  stream->call = call;
  stream->finished = false;
  stream->access = NULL;
  stream->caller = NULL;
  atomic_init(&stream->refs, 1);
  rv_mutex_lock(&server->lock);
  /* Looked at again where the drain's sweep looks for loops: a stream that it did not find on a loop of its own would be waited for. */
  bool drains = atomic_load(&server->draining) && !ops->open_to_all;
  rv_server_loop *loop = drains ? NULL : find_loop(server, stream->loop);
  if (loop != NULL) {
    if (!ops->open_to_all) stream->access = rv_access_ref(server->access);
    server->num_streams++;
    server->num_lingering += ops->lingers;
  }
  rv_mutex_unlock(&server->lock);
  if (drains) return rv_server_fail_draining(err);
  if (loop == NULL)
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "the server has more than %d I/O threads; configure fewer", RV_SERVER_LOOPS_MAX);
  rv_code code = rv_access_find(stream->access, call, &stream->caller, err);
  if (code == RV_OK) code = rv_caller_take_stream(stream->caller, &server->caller_limits, err);
  if (code != RV_OK) {
    stream->caller = NULL; /* it goes with its access */
    leave(server, stream->access, ops);
    return code;
  }
  if (!ops->open_to_all) greet(server, call);
  stream->home = loop;
  rv_list_push_back(&loop->streams, &stream->link);
  if (ops->open_to_all) let_in(stream);
  return RV_OK;
}

rv_code rv_server_stream_check(const rv_server_stream *stream, const rv_method *method, rv_error *err)
{
  if (method->needs == 0 || rv_caller_may_somewhere(stream->caller, method->needs)) return RV_OK;
  return rv_fail(err, RV_PERMISSION_DENIED, "\"%.80s\" has not the right \"%s\" on any table", rv_caller_name(stream->caller),
                 method->needs == RV_RIGHT_INSERT ? "insert" : "update");
}

void rv_server_stream_ref(rv_server_stream *stream)
{
  atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
}

void rv_server_stream_unref(rv_server_stream *stream)
{
  if (atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) != 1) return;
  rv_server *server = stream->server;
  rv_access *access = stream->access;
  const rv_server_stream_ops *ops = stream->ops;
  rv_caller_give_stream(stream->caller);
  rv_list_remove(&stream->link);
  rv_list_remove(&stream->waiting);
  rv_server_stream_keep(stream);
  ops->destroy(stream);
  rv_memory_serve(rv_store_memory(server->store)); /* what it held may be what others wait for */
  leave(server, access, ops);
}

void rv_server_stream_closed(rv_server_stream *stream)
{
  stream->call = NULL;
  rv_server_stream_unref(stream);
}

void rv_server_stream_finish(rv_server_stream *stream, rv_code code, const char *message)
{
  if (!rv_server_stream_is_open(stream)) return;
  stream->finished = true;
  rv_call_finish(stream->call, code, code == RV_OK ? "" : message);
}

rv_code rv_sweep_says(rv_sweep kind, const char **message)
{
  if (kind == RV_SWEEP_REVOKE) {
    *message =
        "the server's identities were changed, and the one of this call is not among them any more, or may do other things";
    return RV_UNAUTHENTICATED;
  }
  *message = "Cancelling all calls: the server is shutting down";
  return RV_UNAVAILABLE;
}

void rv_server_stream_swept(rv_server_stream *stream, rv_sweep kind)
{
  const char *message;
  rv_code code = rv_sweep_says(kind, &message);
  rv_server_stream_finish(stream, code, message);
}
