/* The server's own state, and what the files of its RPCs share: the stream (one call's state, on its loop) and the method table.
 *
 * A stream belongs to its call's loop: everything but its reference count is touched on that loop's thread only. Whoever hands
 * something to it from elsewhere (a table that completes an operation, a writer's newer stream) takes a reference and posts a
 * task. */
#ifndef RV_SERVER_SERVER_H
#define RV_SERVER_SERVER_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/log_budget.h"
#include "base/maker.h"
#include "net/net.h"
#include "persist/saver.h"
#include "reverie/server.h"
#include "server/access.h"
#include "server/sessions.h"
#include "store/store.h"
#include "wire/proto.h"

enum { RV_SERVER_LOOPS_MAX = 256 };

/* The streams of one loop; all but `loop` is that loop's. */
typedef struct rv_server_loop {
  rv_loop *loop;
  rv_link streams;
  size_t num_samplers; /* of them, sample streams */
  rv_link
      strangers; /* of them, those of callers who are not asked who they are, the oldest first: where too many came, it goes */
  size_t num_strangers;
  rv_link waiting;     /* of them, those that asked to be looked at again, */
  rv_timer look_timer; /* which runs while there are some: what is freed outside of tables tells nobody */
} rv_server_loop;

struct rv_server {
  rv_maker maker;
  rv_env env;
  rv_store *store;
  rv_writer_sessions *sessions; /* the store's */
  rv_writer_session_limits session_limits;
  rv_saver *saver;     /* NULL: no checkpointer */
  rv_journal *journal; /* one reference; NULL: none */
  rv_tls *tls;         /* NULL: none */
  rv_grpc_server *grpc;
  uint16_t *ports;
  size_t num_addresses;
  size_t max_message_bytes, max_stream_chunk_bytes, max_orphan_bytes;
  rv_caller_limits caller_limits;
  char state_id[33]; /* the store's, in hexadecimal */
  atomic_size_t orphan_bytes;
  atomic_size_t num_inserters; /* insert streams */
  rv_mutex lock;               /* guards everything below */
  rv_cond changed;
  rv_access *access; /* one reference; NULL: nobody is asked */
  size_t num_streams, num_lingering;
  size_t num_watches;                        /* of them: Health's, that have asked */
  size_t num_sweepers;                       /* who need the loops, which therefore stay */
  rv_server_loop loops[RV_SERVER_LOOPS_MAX]; /* `loop` is set once, under the lock */
  size_t num_loops;
  enum { RV_SERVER_RUNS, RV_SERVER_DRAINS, RV_SERVER_STOPPED } phase;
  int64_t drain_until_ns;
  rv_log_budget refusals; /* lines about calls of nobody known, and too many ones; */
  rv_log_budget denials;  /* and of their own, so that those hide none, the audit's about who may not */
  rv_log_budget failed;   /* and about what of that failed otherwise */
  rv_log_budget orphans;  /* about inserts that are dropped as their clients have gone */
  int64_t dates_told_ns;  /* when the log was last told all that expires; monotonic */
  int64_t dates_seen_s;   /* what of it was so then has been told; since 1970 */
  atomic_bool draining;   /* for those who only look */
};

/* ---- streams ---- */

typedef enum rv_sweep {
  RV_SWEEP_DRAIN, /* end when what is in progress is done */
  RV_SWEEP_END,   /* end now; waits on tables are cancelled */
  RV_SWEEP_REVOKE /* the same, because its identity is gone */
} rv_sweep;

typedef struct rv_method rv_method;
typedef struct rv_server_stream rv_server_stream;
typedef struct rv_server_stream_ops {
  void (*sweep)(rv_server_stream *stream, rv_sweep sweep);
  void (*destroy)(rv_server_stream *stream); /* the last reference went: on the loop's thread */
  void (*look)(rv_server_stream *stream);    /* of those that call rv_server_stream_look_again */
  bool lingers;                              /* a drain does not wait for it */
  bool open_to_all;                          /* nobody is asked who he is, and it goes where others come */
} rv_server_stream_ops;

struct rv_server_stream {
  const rv_server_stream_ops *ops;
  rv_server *server;
  rv_loop *loop;
  rv_server_loop *home;    /* where it is listed; NULL where it could not begin */
  rv_call *call;           /* NULL once on_close has come */
  rv_access *access;       /* that was in force when it began; NULL: nobody was asked */
  const rv_caller *caller; /* of it; NULL: nobody was asked */
  bool finished;           /* rv_call_finish was called */
  atomic_uint refs;
  rv_link link;     /* in its loop's list */
  rv_link waiting;  /* and in that of those to look at again, */
  rv_link stranger; /* or of those that may have to go */
};

/* Joins the server's streams with one reference, which is the call's: rv_server_stream_closed drops it. RV_UNAUTHENTICATED: the server
 * does not know who calls. RV_UNAVAILABLE: it drains. */
rv_code rv_server_stream_begin(rv_server_stream *stream, const rv_server_stream_ops *ops, rv_server *server, rv_call *call,
                               rv_error *err);
void rv_server_stream_ref(rv_server_stream *stream);
void rv_server_stream_unref(rv_server_stream *stream); /* on the loop's thread */
/* `look` is called once before long, whatever happens elsewhere; by then those that wait for memory have asked for it again. */
void rv_server_stream_look_again(rv_server_stream *stream);
/* Of one that is open to all: it goes no more where others come. Whoever calls this has a bound of his own. */
void rv_server_stream_keep(rv_server_stream *stream);
/* What on_close must call, last. */
void rv_server_stream_closed(rv_server_stream *stream);
/* Sends the trailers; the first time counts. RV_OK takes no message. */
void rv_server_stream_finish(rv_server_stream *stream, rv_code code, const char *message);
/* RV_PERMISSION_DENIED: the caller has the right, which the method needs, on no table; what he sends is not to be waited for. */
rv_code rv_server_stream_check(const rv_server_stream *stream, const rv_method *method, rv_error *err);
/* Ends it as a sweep that is no drain does. */
void rv_server_stream_swept(rv_server_stream *stream, rv_sweep kind);
/* What callers are told who come while it drains, */
rv_code rv_server_fail_draining(rv_error *err);
/* and whom a sweep ends. */
rv_code rv_sweep_says(rv_sweep kind, const char **message);
static inline bool rv_server_stream_is_open(const rv_server_stream *stream)
{
  return stream->call != NULL && !stream->finished;
}

/* ---- methods ---- */

/* Of an answer that takes more than one turn of the loop: the method is called again, with what it noted, until there is no `more`; also
 * when the caller has gone. */
typedef struct rv_progress {
  uint64_t number; /* the method's; 0 at first */
  bool more;
  void *state;               /* the method's, too; */
  void (*drop)(void *state); /* NULL: there is none */
} rv_progress;

/* What a unary method is asked. */
typedef struct rv_request {
  rv_server *server;
  const rv_caller *caller;
  const char *peer;
  rv_span body;
  rv_progress *progress;
  bool gone;              /* nobody waits for the answer any more */
  const rv_table **table; /* where the table that was found is noted; NULL: nowhere */
} rv_request;

struct rv_method {
  const char *path;
  /* Makes the call's state. RV_OK: events and user are set. */
  rv_code (*begin)(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events, void **user,
                   rv_error *err);
  /* For unary methods (whose `begin` is rv_begin_unary): reads the request, appends the response. */
  rv_code (*answer)(const rv_request *request, rv_pieces *response, rv_error *err);
  bool while_draining; /* answered although the server drains */
  bool changes;        /* what it answers is to be in the journal first */
  bool open_to_all;    /* answered whoever asks */
  bool takes_much;     /* a message may have max_message_bytes; else SMALL_BYTES_MAX: they name a table and a few numbers */
  rv_right needs;      /* who has it on no table is refused before his message has come; 0: any identity may call */
};

/* As rv_grpc_server_config.on_call; `context` is the server. */
bool rv_service_on_call(void *context, rv_call *call, const char *path, const rv_call_events **events, void **user);
/* Unary calls that were not begun with are put off where more come than can be answered, */
bool rv_service_is_late(const rv_method *method, rv_call *call);
/* and where more answers wait for their connection than are kept for it, also once it was asked to take them. */
bool rv_service_has_unread(const rv_method *method, const rv_call *call);
/* What such a call is to be finished with. It is told when to come again, and the log that it was put off. */
rv_code rv_service_put_off(rv_server *server, rv_call *call, bool late, rv_error *err);
/* A line for what was refused and is not in the log, where none has told it since. */
void rv_service_tell_refusals(rv_server *server);

rv_code rv_begin_unary(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events, void **user,
                       rv_error *err);
rv_code rv_begin_insert_stream(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events,
                               void **user, rv_error *err);
rv_code rv_begin_sample_stream(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events,
                               void **user, rv_error *err);
rv_code rv_begin_initialize_connection(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events,
                                       void **user, rv_error *err);
rv_code rv_begin_checkpoint(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events, void **user,
                            rv_error *err);
/* How long Health's callers, who are not asked who they are, may take. */
enum { RV_HEALTH_MS = 20000 };
rv_code rv_begin_health_watch(rv_server *server, rv_call *call, const rv_method *method, const rv_call_events **events,
                              void **user, rv_error *err);

rv_code rv_answer_mutate(const rv_request *request, rv_pieces *response, rv_error *err);
rv_code rv_answer_reset(const rv_request *request, rv_pieces *response, rv_error *err);
rv_code rv_answer_server_info(const rv_request *request, rv_pieces *response, rv_error *err);
rv_code rv_answer_items(const rv_request *request, rv_pieces *response, rv_error *err);
rv_code rv_answer_get(const rv_request *request, rv_pieces *response, rv_error *err);
rv_code rv_answer_set_rate_limiter(const rv_request *request, rv_pieces *response, rv_error *err);
rv_code rv_answer_set_bounds(const rv_request *request, rv_pieces *response, rv_error *err);
rv_code rv_answer_set_memory_limit(const rv_request *request, rv_pieces *response, rv_error *err);
rv_code rv_answer_health_check(const rv_request *request, rv_pieces *response, rv_error *err);

/* ---- what several of them need ---- */

/* RV_NOT_FOUND's sentence has "was not found" in it, which Reverb's clients look for. */
static inline rv_code rv_server_find_table(rv_server *server, rv_span name, rv_table **out, rv_error *err)
{
  return rv_store_find(server->store, (const char *)name.data, name.size, out, err);
}
/* The same, for a caller who needs that right on it. */
static inline rv_code rv_request_find_table(const rv_request *request, rv_span name, rv_right right, rv_table **out,
                                            rv_error *err)
{
  rv_code code = rv_caller_check(request->caller, right, name, err);
  if (code == RV_OK) code = rv_server_find_table(request->server, name, out, err);
  if (code == RV_OK && request->table != NULL) *request->table = *out;
  return code;
}
/* A line that whoever comes from there has caused may be written. */
bool rv_server_may_log(rv_server *server, rv_log_budget *budget, const char *peer, char more[RV_LOG_MORE]);
/* A line in the log for what an administrator did or tried; `what` as in "reset table". */
void rv_server_audit(rv_server *server, const rv_caller *caller, const char *peer, const char *what, rv_span name, rv_code code);
/* Appends a flat buffer's bytes and frees the buffer; RV_RESOURCE_EXHAUSTED when memory was out, then or before. */
rv_code rv_server_put(rv_pieces *response, rv_writer_buf *owned_body, rv_error *err);

#endif
