#include "base/error.h"
#include "reverie/version.h"
#include "server/server.h"

/* The list of the loop; the first call on a loop adds it. NULL: more loops than there is room for. Holding the lock. */
static rv_server_loop *find_loop(rv_server *server, rv_loop *loop)
{
  for (size_t i = 0; i < server->num_loops; i++)
    if (server->loops[i].loop == loop) return &server->loops[i];
  if (server->num_loops == RV_SERVER_LOOPS_MAX) return NULL;
  rv_server_loop *added = &server->loops[server->num_loops++];
  added->loop = loop;
  rv_list_init(&added->streams);
  return added;
}

/* Whoever shows itself as Reverie is told who answers; a plain Reverb client is told nothing it does not know. */
static void greet(rv_server *server, rv_call *call)
{
  if (rv_call_metadata(call, "reverie-writer") == NULL && rv_call_metadata(call, "reverie-version") == NULL) return;
  rv_call_set_header(call, "reverie-version", RV_VERSION);
  rv_call_set_header(call, "reverie-server-state", server->state_id);
}

rv_code rv_server_stream_begin(rv_server_stream *stream, const rv_server_stream_ops *ops, rv_server *server, rv_call *call,
                               rv_error *err)
{
  stream->ops = ops;
  stream->server = server;
  stream->loop = rv_call_loop(call);
  stream->call = call;
  stream->finished = false;
  stream->caller = NULL;
  rv_code code = ops->open_to_all ? RV_OK : rv_access_find(server->access, call, &stream->caller, err);
  if (code != RV_OK) return code;
  if (!ops->open_to_all) greet(server, call);
  atomic_init(&stream->refs, 1);
  rv_mutex_lock(&server->lock);
  rv_server_loop *loop = find_loop(server, stream->loop);
  if (loop != NULL) {
    server->num_streams++;
    server->num_lingering += ops->lingers;
  }
  rv_mutex_unlock(&server->lock);
  if (loop == NULL)
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "the server has more than %d I/O threads; configure fewer", RV_SERVER_LOOPS_MAX);
  stream->home = loop;
  rv_list_push_back(&loop->streams, &stream->link);
  return RV_OK;
}

void rv_server_stream_ref(rv_server_stream *stream)
{
  atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
}

void rv_server_stream_unref(rv_server_stream *stream)
{
  if (atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) != 1) return;
  rv_server *server = stream->server;
  bool lingers = stream->ops->lingers;
  rv_list_remove(&stream->link);
  stream->ops->destroy(stream);
  rv_mutex_lock(&server->lock);
  server->num_lingering -= lingers;
  if (--server->num_streams == server->num_lingering) rv_cond_broadcast(&server->changed);
  rv_mutex_unlock(&server->lock);
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
