#include "client/batch_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/backoff.h"
#include "client/batch_ahead.h"
#include "client/explain.h"
#include "client/limiter_timeout.h"
#include "client/paths.h"
#include "client/receive.h"
#include "client/untold.h"
#include "store/gather.h"

#define MILLISECOND INT64_C(1000000)
/* Of the time that is left the server gets all but a fifth, for its answer's way back: what it drew is counted, and lost if it came too
 * late. An answer may always take so long, even if the caller's time was shorter: */
#define WAY_BACK_SHARE 5
#define WAY_BACK_MOST_NS (1000 * MILLISECOND)
#define WAY_BACK_LEAST_NS (100 * MILLISECOND)
#define FIRST_BACKOFF_NS (10 * MILLISECOND)

enum { IDLE_STREAMS_MAX = 8 };

/* How far a request is. */
typedef enum phase { OVER, ASKED, UNDER_WAY } phase;

/* Lives from its making until its call has closed and nobody uses it. `ahead` and `abandoned` are its user's; call and receiver are the loop's;
 * the rest is whose the phase says, which changes under the mutex: the loop's while a request is under way, else its user's. So a user who gives
 * up has his arrays to himself without waiting for the loop. */
typedef struct batch_stream {
  rv_client *client;
  rv_link link; /* while idle: in the client's list; the client's mutex */
  rv_gate gate; /* opened at the end of each request */
  rv_batch_ahead ahead;
  bool abandoned; /* the user gave up before the last request's end */
  rv_call *call;
  rv_receiver receiver;
  rv_task task, drop;
  bool dropped; /* nobody uses it any more; the loop's */
  rv_mutex mutex;
  phase phase;
  /* the request */
  rv_sample_request request;
  rv_draw *draws;
  size_t want, count, bytes;
  rv_sink *sink; /* NULL: the draws are kept */
  rv_code code;
  rv_error error;
} batch_stream;

static void stream_free(batch_stream *stream)
{
  rv_receiver_fini(&stream->receiver);
  rv_mutex_fini(&stream->mutex);
  free(stream);
}

/* ---- on the loop ---- */

/* Under the mutex. */
static void end_request(batch_stream *stream, rv_code code)
{
  stream->phase = OVER;
  stream->code = code;
  rv_gate_open(&stream->gate);
}

static void fail_request(batch_stream *stream, rv_code code, const char *message)
{
  rv_mutex_lock(&stream->mutex);
  if (stream->phase == UNDER_WAY) end_request(stream, rv_fail(&stream->error, code, "%s", message));
  rv_mutex_unlock(&stream->mutex);
}

static bool all_alike(const rv_draw *draws, size_t n, const rv_layout *layout)
{
  for (size_t i = 0; i < n; i++)
    if (draws[i].trajectory->layout != layout) return false;
  return true;
}

/* RV_UNAVAILABLE: what they were copied from was not lent any more. */
static rv_code pour_run(rv_client *client, rv_sink *sink, const rv_draw *draws, size_t n, rv_call *gapped)
{
  rv_sink_copy_run(sink, client, draws, n, rv_call_gaps(gapped));
  if (!rv_call_give_back(gapped)) return RV_UNAVAILABLE;
  rv_sink_note_run(sink, draws, n);
  return RV_OK;
}

/* Hands on the draws from `first` on. Those that it does not take are forgotten, and the request ends with what it had. `gapped`: the call, where
 * their message has gaps, of which none is left where RV_OK is returned; else NULL. */
static rv_code pour(batch_stream *stream, size_t first, rv_call *gapped)
{
  rv_sink *sink = stream->sink;
  rv_draw *draws = stream->draws + first;
  size_t n = stream->count - first;
  if (n == 0) return RV_OK;
  size_t fitting = rv_sink_count_fitting(sink, draws, n);
  bool unlike = first == 0 && fitting == 0;
  if (unlike && (gapped == NULL || rv_call_fill_gaps(gapped))) {
    stream->sink = NULL;
    return RV_OK;
  }
  rv_code code;
  if (unlike)
    code = RV_UNAVAILABLE;
  else if (fitting < n)
    code = rv_fail(&stream->error, RV_FAILED_PRECONDITION, "the items of the batch differ in length or shape");
  else
    code = gapped != NULL ? pour_run(stream->client, sink, draws, n, gapped) : rv_sink_take(sink, draws, n, &stream->error);
  if (code != RV_OK) stream->count = first;
  rv_draws_release(draws, n);
  return code;
}

/* RV_UNAVAILABLE: there was no message, and the call is about to end. */
static rv_code take_message(batch_stream *stream, rv_call *call, rv_buf *buf, rv_span message)
{
  size_t before = stream->count;
  bool gapped;
  rv_code code = rv_receiver_take_lent(&stream->receiver, call, stream->sink != NULL, buf, message, stream->draws, stream->want,
                                       &stream->count, &gapped, &stream->error);
  if (stream->sink != NULL) {
    rv_code poured = pour(stream, before, gapped ? call : NULL);
    if (poured != RV_OK) code = poured;
  }
  if (code == RV_UNAVAILABLE) return code;
  stream->bytes += message.size;
  if (code != RV_OK || stream->count == stream->want) end_request(stream, code);
  return code;
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  batch_stream *stream = user;
  rv_code code = RV_CANCELLED; /* nobody asked for it, or does any more */
  rv_mutex_lock(&stream->mutex);
  if (stream->phase == UNDER_WAY) code = take_message(stream, call, buf, (rv_span){.data = data, .size = size});
  rv_mutex_unlock(&stream->mutex);
  if (code != RV_OK && code != RV_UNAVAILABLE) rv_call_cancel(call);
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call;
  batch_stream *stream = user;
  stream->call = NULL;
  rv_receiver_clear(&stream->receiver);
  if (stream->dropped) {
    stream_free(stream);
    return;
  }
  fail_request(stream, code == RV_OK ? RV_UNAVAILABLE : code,
               message != NULL && message[0] != '\0' ? message : "the server ended the stream early");
}

static const rv_call_events events = {.takes_gaps = true, .on_message = on_message, .on_close = on_close};

static rv_code put_request(const rv_sample_request *request, rv_pieces *out)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_sample_request_serialize(&body, request);
  rv_code code = body.failed ? RV_RESOURCE_EXHAUSTED : rv_pieces_copy(out, body.data, body.size);
  rv_writer_buf_fini(&body);
  return code;
}

/* false: its user has given up. */
static bool take_request(batch_stream *stream, rv_pieces *out, rv_code *code)
{
  rv_mutex_lock(&stream->mutex);
  bool wanted = stream->phase == ASKED;
  if (wanted) {
    stream->phase = UNDER_WAY;
    *code = put_request(&stream->request, out);
  }
  rv_mutex_unlock(&stream->mutex);
  return wanted;
}

static void open_call(batch_stream *stream)
{
  rv_call_config config = {.path = RV_PATH_SAMPLE, .deadline_ns = INT64_MAX, .wait_for_ready = true};
  stream->call = rv_channel_call(stream->client->channel, &config, &events, stream);
}

static void begin_request(rv_task *task)
{
  batch_stream *stream = RV_CONTAINER(task, batch_stream, task);
  rv_pieces request;
  rv_code code;
  rv_pieces_init(&request);
  if (!take_request(stream, &request, &code)) return;
  if (code == RV_OK && stream->call == NULL) open_call(stream);
  if (code == RV_OK && stream->call != NULL) {
    rv_call_send(stream->call, &request);
  } else {
    rv_error error;
    fail_request(stream, rv_fail_memory(&error, sizeof *stream), error.message);
  }
  rv_pieces_fini(&request);
}

/* By the user, who gives up: what has arrived so far is his. */
static void abandon_request(batch_stream *stream)
{
  rv_mutex_lock(&stream->mutex);
  stream->abandoned = stream->phase != OVER;
  stream->phase = OVER;
  rv_mutex_unlock(&stream->mutex);
}

static void drop_stream(rv_task *task)
{
  batch_stream *stream = RV_CONTAINER(task, batch_stream, drop);
  stream->dropped = true;
  if (stream->call == NULL)
    stream_free(stream);
  else
    rv_call_cancel(stream->call);
}

/* ---- streams that nobody uses ---- */

/* One whose last user asked for the same table, if there is one. */
static batch_stream *take_idle(rv_client *client, const char *table)
{
  if (rv_list_empty(&client->batch_streams)) return NULL;
  batch_stream *stream = RV_CONTAINER(client->batch_streams.next, batch_stream, link);
  RV_LIST_EACH(link, &client->batch_streams)
  {
    batch_stream *candidate = RV_CONTAINER(link, batch_stream, link);
    if (!rv_batch_ahead_is_for(&candidate->ahead, table)) continue;
    stream = candidate;
    break;
  }
  rv_list_remove(&stream->link);
  client->num_batch_streams--;
  return stream;
}

static rv_code take_stream(rv_client *client, const char *table, batch_stream **out, rv_error *err)
{
  rv_code code = rv_client_connect(client, err);
  if (code != RV_OK) return code;
  rv_mutex_lock(&client->mutex);
  rv_untold *untold = rv_untold_take(client, table);
  *out = untold == NULL ? take_idle(client, table) : NULL;
  rv_mutex_unlock(&client->mutex);
  if (untold != NULL) return rv_untold_tell(untold, err);
  if (*out != NULL) return RV_OK;
  batch_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return rv_fail_memory(err, sizeof *stream);
  stream->client = client;
  stream->task.run = begin_request;
  stream->drop.run = drop_stream;
  rv_mutex_init(&stream->mutex, RV_RANK_CLIENT, "batch stream");
  rv_gate_init_at(&stream->gate, client->loop, client->channel);
  rv_receiver_init(&stream->receiver, client, false);
  *out = stream;
  return RV_OK;
}

/* Nobody uses it any more. */
static void let_go(batch_stream *stream)
{
  rv_batch_ahead_fini(&stream->ahead);
  rv_loop_hand(stream->client->loop, &stream->drop);
}

static void give_back(batch_stream *stream, bool usable)
{
  rv_client *client = stream->client;
  rv_mutex_lock(&client->mutex);
  bool keep = usable && client->num_batch_streams < IDLE_STREAMS_MAX;
  if (keep) {
    rv_list_push_front(&client->batch_streams, &stream->link);
    client->num_batch_streams++;
  }
  rv_mutex_unlock(&client->mutex);
  if (!keep) let_go(stream);
}

void rv_batch_streams_free(rv_client *client)
{
  for (;;) {
    rv_mutex_lock(&client->mutex);
    rv_link *link = rv_list_pop_front(&client->batch_streams);
    rv_mutex_unlock(&client->mutex);
    if (link == NULL) return;
    let_go(RV_CONTAINER(link, batch_stream, link));
  }
}

/* ---- one batch ---- */

typedef struct waiting_batch {
  batch_stream *stream;
  const char *table;
  bool ask_server;  /* there is time for it */
  bool failed;      /* it ended other than by the caller's patience */
  char reason[256]; /* why the server's limiter let nothing through, when it said so */
} waiting_batch;

static void describe(void *context, char *out, size_t capacity)
{
  const waiting_batch *waiting = context;
  rv_client *client = waiting->stream->client;
  char state[64];
  rv_client_state(client, state, sizeof state);
  if (waiting->reason[0] != '\0')
    snprintf(out, capacity, "%s", waiting->reason);
  else if (strncmp(state, "connected", 9) != 0)
    rv_describe_server(client, "SampleStream", out, capacity);
  else if (!waiting->ask_server || !rv_explain_table(client, waiting->table, false, out, capacity))
    snprintf(out, capacity, "waits for %zu sample%s of table \"%s\" from %s", waiting->stream->want,
             waiting->stream->want == 1 ? "" : "s", waiting->table, client->address);
}

static void set_timeout(rv_sample_request *request, const rv_patience *patience)
{
  request->timeout_ms = -1;
  if (patience->deadline_ns == INT64_MAX) return;
  int64_t left = patience->deadline_ns - rv_monotonic_ns(patience->env), back = left / WAY_BACK_SHARE;
  if (back > WAY_BACK_MOST_NS) back = WAY_BACK_MOST_NS;
  request->timeout_ms = left - back <= MILLISECOND ? 1 : (left - back) / MILLISECOND;
  request->poll = left <= 0;
}

static void begin(batch_stream *stream)
{
  stream->abandoned = false;
  rv_mutex_lock(&stream->mutex);
  stream->phase = ASKED;
  rv_mutex_unlock(&stream->mutex);
}

/* Sends one request and waits for its end. stream->abandoned: the caller gave up, and the code says why. */
static rv_code ask(batch_stream *stream, rv_patience *patience, rv_error *err)
{
  set_timeout(&stream->request, patience);
  stream->request.num_samples = (int64_t)(stream->want - stream->count);
  rv_patience longer = *patience;
  if (longer.deadline_ns != INT64_MAX) {
    int64_t answered_ns =
        rv_monotonic_ns(patience->env) +
        (stream->request.poll ? RV_ROUND_TRIP_NS : stream->request.timeout_ms * MILLISECOND + WAY_BACK_LEAST_NS);
    if (longer.deadline_ns < answered_ns) longer.deadline_ns = answered_ns;
  }
  begin(stream);
  rv_gate_ask(&stream->gate, &stream->task, &longer);
  rv_code gave_up = rv_gate_wait(&stream->gate, &longer, err);
  patience->asked_ns = longer.asked_ns;
  patience->interrupted = longer.interrupted;
  patience->log_ns = longer.log_ns;
  if (gave_up != RV_OK) {
    abandon_request(stream);
    if (stream->abandoned) return gave_up;
    rv_gate_wait_forever(&stream->gate); /* which is open: it ended meanwhile */
  }
  return stream->code == RV_OK ? RV_OK : rv_error_copy(err, &stream->error);
}

static rv_code back_off(batch_stream *stream, int64_t *backoff, rv_patience *patience, rv_error *err)
{
  bool opened;
  int64_t at_ns = rv_monotonic_ns(patience->env) + rv_backoff_next(backoff, patience->env);
  rv_code code = rv_gate_wait_until(&stream->gate, patience, at_ns, &opened, err);
  return code;
}

/* Asks, and asks again for what is missing where that makes sense. */
static rv_code ask_until_done(waiting_batch *waiting, rv_patience *patience, rv_error *err)
{
  batch_stream *stream = waiting->stream;
  int64_t backoff = FIRST_BACKOFF_NS;
  for (;;) {
    rv_error cause = {0};
    rv_code code = ask(stream, patience, &cause);
    if (stream->abandoned) {
      return rv_error_copy(err, &cause);
    } else if (rv_is_limiter_timeout(code, cause.message)) {
      snprintf(waiting->reason, sizeof waiting->reason, "%s", rv_limiter_timeout_reason(cause.message));
      /* where there is no time for another answer, nothing opens the gate */
      bool too_late = patience->deadline_ns - rv_monotonic_ns(patience->env) < WAY_BACK_LEAST_NS / 2;
      code = too_late ? rv_gate_wait(&stream->gate, patience, err) : rv_patience_check(patience, err);
      if (code != RV_OK) return code;
    } else if (rv_is_lost_connection(code, cause.message)) {
      code = back_off(stream, &backoff, patience, err);
      if (code != RV_OK) return code;
    } else {
      waiting->failed = code != RV_OK;
      return code == RV_OK ? RV_OK : rv_error_copy(err, &cause);
    }
  }
}

/* What was drawn ahead, if it is what the caller's arrays are for. */
static rv_code take_ahead(waiting_batch *waiting, bool same_layout, rv_patience *patience)
{
  batch_stream *stream = waiting->stream;
  if (!same_layout) return RV_OK;
  stream->count = rv_batch_ahead_fetch(&stream->ahead, waiting->table, stream->want, patience, stream->draws);
  if (stream->count == 0) return RV_OK;
  const rv_layout *layout = stream->sink != NULL ? stream->sink->fill.layout : stream->draws[0].trajectory->layout;
  if (all_alike(stream->draws, stream->count, layout)) return stream->sink != NULL ? pour(stream, 0, NULL) : RV_OK;
  rv_draws_release(stream->draws, stream->count);
  rv_batch_ahead_stop(&stream->ahead);
  stream->count = 0;
  return RV_OK;
}

static rv_code fetch(waiting_batch *waiting, bool same_layout, rv_patience *patience, rv_error *err)
{
  batch_stream *stream = waiting->stream;
  rv_code code = take_ahead(waiting, same_layout, patience);
  if (code != RV_OK) return rv_error_copy(err, &stream->error);
  if (stream->count == stream->want) return RV_OK;
  bool whole = stream->count == 0;
  code = ask_until_done(waiting, patience, err);
  if (code == RV_OK && whole && same_layout)
    rv_batch_ahead_note(&stream->ahead, stream->client, waiting->table, stream->want, stream->bytes, patience);
  return code;
}

rv_code rv_sample_remote(rv_client *client, const char *table, size_t want, bool same_layout, rv_sink *sink,
                         rv_patience *patience, rv_draw *draws, size_t *count, rv_error *err)
{
  batch_stream *stream = NULL;
  rv_code code = take_stream(client, table, &stream, err);
  if (code != RV_OK) return code;
  rv_span name = {.data = (const uint8_t *)table, .size = strlen(table)};
  stream->request = (rv_sample_request){.table = name, .same_layout = same_layout, .whole = true, .packed = true};
  stream->draws = draws;
  stream->want = want;
  stream->count = stream->bytes = 0;
  stream->sink = sink;
  if (sink != NULL) rv_sink_expect(sink, client, want);
  waiting_batch waiting = {.stream = stream, .table = table, .ask_server = rv_patience_is_long(patience)};
  patience->describe = describe;
  patience->context = &waiting;
  rv_error own, *failure = err != NULL ? err : &own;
  code = fetch(&waiting, same_layout, patience, failure);
  patience->describe = NULL;
  *count = stream->count;
  if (sink != NULL) rv_sink_expect_no_more(sink, client);
  give_back(stream, code == RV_OK);
  if (*count == 0 || patience->interrupted) return code;
  if (waiting.failed) rv_untold_note(client, table, *count, want, failure);
  return RV_OK;
}
