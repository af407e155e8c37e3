/* Waiting for one unary call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/backoff.h"
#include "client/explain.h"
#include "client/paths.h"
#include "client/unary_call.h"

#define FIRST_BACKOFF_NS INT64_C(20000000)

/* A call's `state`. */
enum { UNDER_WAY = 0, ENDED = 1, LEFT = 2 };

/* Its caller's and, while it is under way, the loop's: whoever gives up leaves at once, also where the loop's thread is kept from ending it. */
typedef struct waiting_call {
  rv_unary_call call;
  rv_client *client;
  rv_gate gate;
  atomic_uint refs;
  atomic_int state;
  rv_task start, stop;
  bool ask_server; /* what keeps it */
  bool refused;    /* the server has more to do than it can, and said when to ask again */
} waiting_call;

static void ref(waiting_call *waiting)
{
  atomic_fetch_add_explicit(&waiting->refs, 1, memory_order_relaxed);
}

static void unref(waiting_call *waiting)
{
  if (atomic_fetch_sub_explicit(&waiting->refs, 1, memory_order_acq_rel) == 1) free(waiting);
}

/* ---- on the loop ---- */

static void start(rv_task *task)
{
  waiting_call *waiting = RV_CONTAINER(task, waiting_call, start);
  if (atomic_load_explicit(&waiting->state, memory_order_acquire) != LEFT) {
    rv_unary_call_start(&waiting->call);
    return;
  }
  rv_pieces_fini(&waiting->call.request); /* nothing of it is carried out after its time */
  unref(waiting);
}

static void stop(rv_task *task)
{
  waiting_call *waiting = RV_CONTAINER(task, waiting_call, stop);
  rv_unary_call_stop(&waiting->call);
  unref(waiting);
}

static void done(rv_unary_call *call)
{
  waiting_call *waiting = RV_CONTAINER(call, waiting_call, call);
  if (atomic_exchange_explicit(&waiting->state, ENDED, memory_order_acq_rel) == LEFT)
    rv_buf_unref(call->owner);
  else
    rv_gate_open(&waiting->gate);
  unref(waiting);
}

/* ---- its caller ---- */

static void begin(waiting_call *waiting, rv_patience *patience)
{
  atomic_store_explicit(&waiting->state, UNDER_WAY, memory_order_relaxed);
  ref(waiting); /* until `done` */
  rv_gate_ask(&waiting->gate, &waiting->start, patience);
}

/* false: it has ended meanwhile. */
static bool leave(waiting_call *waiting)
{
  if (atomic_exchange_explicit(&waiting->state, LEFT, memory_order_acq_rel) == ENDED) return false;
  ref(waiting);
  rv_loop_post(waiting->client->loop, &waiting->stop); /* behind `start` */
  return true;
}

/* Starts the call and waits for its end. */
static rv_code run(waiting_call *waiting, rv_patience *patience, rv_error *err)
{
  begin(waiting, patience);
  rv_code code = rv_gate_wait(&waiting->gate, patience, err);
  if (code != RV_OK) return leave(waiting) || waiting->call.code != RV_OK ? code : RV_OK; /* the answer came after all */
  if (waiting->call.code == RV_DEADLINE_EXCEEDED) {
    rv_code late = rv_patience_check(patience, err); /* its sentence says what the server was doing */
    if (late == RV_OK && patience->wait.timeout_ms >= 0)
      late = rv_patience_late(patience, err); /* the server's clock was ahead */
    if (late != RV_OK) return late;
  }
  if (waiting->call.code == RV_UNIMPLEMENTED)
    return rv_fail(err, RV_UNIMPLEMENTED, "%s does not know %s; it is not a Reverie server, or an older one",
                   waiting->client->address, waiting->call.path);
  return waiting->call.code == RV_OK ? RV_OK : rv_error_copy(err, &waiting->call.error);
}

static rv_code copy_request(rv_pieces *to, const rv_writer_buf *request, rv_error *err)
{
  rv_pieces_init(to);
  if (!request->failed && rv_pieces_copy(to, request->data, request->size) == RV_OK) return RV_OK;
  rv_pieces_fini(to);
  return rv_fail_memory(err, request->size);
}

static rv_code run_with_repeats(waiting_call *waiting, const rv_writer_buf *request, rv_unary_mode mode, rv_patience *patience,
                                rv_error *err)
{
  int64_t backoff = FIRST_BACKOFF_NS;
  for (;;) {
    rv_code code = copy_request(&waiting->call.request, request, err);
    if (code == RV_OK) code = run(waiting, patience, err);
    waiting->refused = code == RV_RESOURCE_EXHAUSTED && waiting->call.again_ns > 0;
    if (!waiting->refused && (code != RV_UNAVAILABLE || mode != RV_UNARY_REPEAT)) return code;
    if (waiting->refused && backoff < waiting->call.again_ns) backoff = waiting->call.again_ns;
    bool opened;
    code = rv_gate_wait_until(&waiting->gate, patience, rv_monotonic_ns(patience->env) + rv_backoff_next(&backoff, patience->env),
                              &opened, err);
    if (code != RV_OK) return code;
  }
}

void rv_describe_server(rv_client *client, const char *call, char *out, size_t capacity)
{
  char state[448]; /* with all that it says of a failed attempt: a part would end within a bracket */
  rv_client_state(client, state, sizeof state);
  if (strncmp(state, "connected", 9) == 0)
    snprintf(out, capacity, "waits for %s to answer %s", client->address, call);
  else
    snprintf(out, capacity, "waits for a server at %s (%s)%s", client->address, state,
             strncmp(state, "the peer at", 11) == 0 ? "" : "; is one running there?");
}

static void describe(void *context, char *out, size_t capacity)
{
  const waiting_call *waiting = context;
  const char *name = strrchr(waiting->call.path, '/');
  if (waiting->refused)
    snprintf(out, capacity, "waits to ask %s again, which gets more calls than it can answer", waiting->client->address);
  else
    rv_describe_server(waiting->client, name != NULL ? name + 1 : waiting->call.path, out, capacity);
  char fault[256];
  size_t size = strlen(out);
  if (!waiting->refused && waiting->ask_server && rv_explain_journal(waiting->client, fault, sizeof fault))
    snprintf(out + size, capacity - size, "; its journal: %s", fault);
}

static rv_code new_call(rv_client *client, const char *path, rv_unary_mode mode, const rv_patience *patience, waiting_call **out,
                        rv_error *err)
{
  waiting_call *waiting = calloc(1, sizeof *waiting);
  if (waiting == NULL) return rv_fail_memory(err, sizeof *waiting);
  waiting->call = (rv_unary_call){.channel = client->channel,
                                  .path = path,
                                  .deadline_ns = patience->deadline_ns,
                                  .wait_for_ready = mode != RV_UNARY_FAIL_FAST,
                                  .done = done};
  waiting->client = client;
  waiting->start.run = start;
  waiting->stop.run = stop;
  waiting->ask_server = rv_patience_is_long(patience) && strcmp(path, RV_PATH_SERVER_INFO) != 0;
  atomic_init(&waiting->refs, 1);
  atomic_init(&waiting->state, UNDER_WAY);
  rv_gate_init_at(&waiting->gate, client->loop, client->channel);
  *out = waiting;
  return RV_OK;
}

rv_code rv_client_unary(rv_client *client, const char *path, rv_writer_buf *request, rv_unary_mode mode, rv_patience *patience,
                        rv_buf **owner, rv_span *out, rv_error *err)
{
  int64_t deadline_ns = patience->deadline_ns;
  if (patience->wait.timeout_ms == 0) patience->deadline_ns = patience->begun_ns + RV_ROUND_TRIP_NS;
  waiting_call *waiting = NULL;
  rv_code code = rv_client_connect(client, err);
  if (code == RV_OK) code = new_call(client, path, mode, patience, &waiting, err);
  if (code == RV_OK) {
    patience->describe = describe;
    patience->context = waiting;
    code = rv_patience_check(patience, err);
    if (code == RV_OK) code = run_with_repeats(waiting, request, mode, patience, err);
    patience->describe = NULL;
  }
  patience->deadline_ns = deadline_ns;
  rv_writer_buf_fini(request);
  if (code == RV_OK) {
    *owner = waiting->call.owner;
    *out = waiting->call.response;
  }
  if (waiting != NULL) unref(waiting);
  return code;
}
