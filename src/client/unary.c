/* Waiting for one unary call. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "client/backoff.h"
#include "client/explain.h"
#include "client/paths.h"
#include "client/unary_call.h"

#define FIRST_BACKOFF_NS INT64_C(20000000)

typedef struct waiting_call {
  rv_unary_call call;
  rv_client *client;
  rv_gate gate;
  rv_task start;
  bool ask_server; /* what keeps it */
  bool refused;    /* the server has more to do than it can, and said when to ask again */
} waiting_call;

static void start(rv_task *task)
{
  rv_unary_call_start(&RV_CONTAINER(task, waiting_call, start)->call);
}

static void stop(void *context)
{
  rv_unary_call_stop(context);
}

static void done(rv_unary_call *call)
{
  rv_gate_open(&RV_CONTAINER(call, waiting_call, call)->gate);
}

/* Starts the call and waits for its end. */
static rv_code run(waiting_call *waiting, rv_patience *patience, rv_error *err)
{
  rv_gate_ask(&waiting->gate, &waiting->start, patience);
  rv_code code = rv_gate_wait(&waiting->gate, patience, err);
  if (code != RV_OK) {
    rv_loop_call(waiting->client->loop, stop, &waiting->call); /* behind `start`, which has then run */
    rv_gate_wait_forever(&waiting->gate);
    if (waiting->call.code != RV_OK) return code;
    return RV_OK; /* the answer came after all */
  }
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

rv_code rv_client_unary(rv_client *client, const char *path, rv_writer_buf *request, rv_unary_mode mode, rv_patience *patience,
                        rv_buf **owner, rv_span *out, rv_error *err)
{
  int64_t deadline_ns = patience->deadline_ns;
  if (patience->wait.timeout_ms == 0) patience->deadline_ns = patience->begun_ns + RV_ROUND_TRIP_NS;
  waiting_call waiting = {.client = client,
                          .call = {.channel = NULL,
                                   .path = path,
                                   .deadline_ns = patience->deadline_ns,
                                   .wait_for_ready = mode != RV_UNARY_FAIL_FAST,
                                   .done = done},
                          .start = {.run = start},
                          .ask_server = rv_patience_is_long(patience) && strcmp(path, RV_PATH_SERVER_INFO) != 0};
  rv_code code = rv_client_connect(client, err);
  if (code == RV_OK) {
    waiting.call.channel = client->channel;
    patience->describe = describe;
    patience->context = &waiting;
    rv_gate_init_at(&waiting.gate, client->loop, client->channel);
    code = rv_patience_check(patience, err);
    if (code == RV_OK) code = run_with_repeats(&waiting, request, mode, patience, err);
    patience->describe = NULL;
  }
  patience->deadline_ns = deadline_ns;
  rv_writer_buf_fini(request);
  if (code != RV_OK) return code;
  *owner = waiting.call.owner;
  *out = waiting.call.response;
  return RV_OK;
}
