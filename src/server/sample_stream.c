/* SampleStream, one call: requests come in one after another, samples go out (docs/protocol.md).
 *
 * One request is served at a time, by asks to its table for a batch each; at most one ask waits. The call is paused meanwhile, so
 * that further requests wait in its window. An ask that the limiter holds is taken back when its time is up or the client goes:
 * it then consumes nothing. Samples that were drawn in the moment in which the client went away are lost, and counted. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/spares.h"
#include "server/server.h"
#include "store/gather.h"
#include "wire/messages.h"
#include "wire/sample_pack.h"

/* Reverb's clients look for this sentence: only with it does a sampler's timeout end a sequence instead of failing. */
#define TIMEOUT_TEXT "Rate Limiter: Timeout exceeded before the right to insert was acquired."

enum {
  FIRST_BATCH = 128,
  WHOLE_BATCH = 1024, /* the first of a request that wants all its samples together */
  FEW_UNCOUNTED = 16,
  RESPONSE_BYTES = 2 << 20,
  PACK_BYTES = 1 << 18, /* of small samples in one message: the memory for it is still in the cache when it is used again */
  DRAW_BYTES = 256,     /* a sample is counted as at least so much when it is asked for: its draw takes memory, too */
  TURN_MIN = 64 << 10,
  TURN_MAX = 1 << 20,
  ASK_MAX = 8 << 20,        /* sent of an ask in one turn: samples may be larger than those by which it was sized */
  TURNS_OF_ALL = 32 << 20,  /* of a loop's sample streams */
  WAITING_OF_ALL = 32 << 20 /* for its sockets, up to which a turn is a whole pack */
};

typedef struct sample_call {
  rv_server_stream stream;
  char *peer;
  /* the request being served */
  bool in_request, same_layout, poll, packed;
  rv_table *table;
  int64_t remaining, timeout_ns; /* of each batch; INT64_MAX: none */
  int64_t until_ns;              /* of the request; INT64_MAX: none */
  /* the ask */
  bool asking;
  rv_sampling ask;
  rv_buf *room;    /* of its draws, the loop's; NULL: no ask is out, and all are sent */
  rv_draw *unsent; /* of the ask that is over: for the next turns */
  size_t num_unsent;
  size_t last_batch;
  size_t mean_bytes; /* of a sample of the last batch; 0: not known yet */
  uint64_t naming;   /* of what is being sent; 0: none */
  rv_timer timer;
  rv_task completed_task;
  size_t turn_bytes;
  bool turn_posted;
  rv_task turn_task; /* the next turn */
  bool half_closed, draining, paused;
} sample_call;

static void serve(sample_call *call);

/* Bytes that the stream may send in one go, before others on the loop, and news of the client's end, get their turn. Twice as much may wait
 * for its socket. A whole pack costs both ends less than several small ones, so with many streams it is that as long as their clients
 * read; once much waits for sockets it is less, so that what the clients of a loop that do not read make it hold is bounded. */
static size_t turn_of(const sample_call *call)
{
  size_t share = TURNS_OF_ALL / call->stream.home->num_samplers;
  size_t least = rv_loop_unsent_bytes(call->stream.loop) < WAITING_OF_ALL ? PACK_BYTES : TURN_MIN;
  return share < least ? least : share > TURN_MAX ? TURN_MAX : share;
}

static void finish_request(sample_call *call)
{
  call->in_request = false;
}

/* ---- responses ---- */

/* Without memory for their naming the samples go out unnamed, which is never wrong. */
static void send_response(sample_call *call, rv_pieces *response)
{
  if (call->naming != 0) rv_sample_response_put_naming(response, call->naming, NULL);
  call->turn_bytes += response->bytes;
  rv_call_send(call->stream.call, response);
}

static rv_code send_entries(sample_call *call, rv_pieces *response, rv_draw *draw, rv_error *err)
{
  uint32_t next = 0, chunks = draw->chunk != NULL ? 1 : draw->trajectory->num_chunks;
  rv_code code = RV_OK;
  do {
    size_t room = response->bytes < RESPONSE_BYTES ? RESPONSE_BYTES - response->bytes : 0;
    code = rv_sample_entry_serialize(response, draw, rv_table_name(call->table), next, room, &next, err);
    if (code == RV_OK && (next < chunks || response->bytes >= RESPONSE_BYTES)) send_response(call, response);
  } while (code == RV_OK && next < chunks && rv_server_stream_is_open(&call->stream));
  return code;
}

/* Puts the draws into responses and sends them, as many as the turn may have; those are released. Returns how many they were. */
static size_t send_draws(sample_call *call, rv_draw *draws, size_t n, rv_code *out, rv_error *err)
{
  rv_pieces response;
  rv_pieces_init(&response);
  call->naming = rv_draws_naming(draws, n);
  rv_code code = RV_OK;
  size_t i = 0, pack_bytes = turn_of(call) < PACK_BYTES ? turn_of(call) : PACK_BYTES;
  while (i < n && code == RV_OK && rv_server_stream_is_open(&call->stream) && call->turn_bytes + response.bytes < ASK_MAX) {
    size_t packed = call->packed ? rv_sample_pack_count(draws + i, n - i, pack_bytes) : 0;
    if (packed == 0) {
      code = send_entries(call, &response, &draws[i++], err);
      continue;
    }
    if (response.bytes > 0) send_response(call, &response);
    code = rv_sample_pack_serialize(&response, draws + i, packed, err);
    i += packed;
    if (code == RV_OK) send_response(call, &response);
  }
  if (code == RV_OK && response.bytes > 0 && rv_server_stream_is_open(&call->stream)) send_response(call, &response);
  rv_pieces_fini(&response);
  rv_draws_release(draws, i);
  if (code == RV_DATA_LOSS) rv_error_prefix(err, "table \"%s\"", rv_table_name(call->table));
  *out = code;
  return i;
}

/* ---- asks ---- */

static void drop_unsent(sample_call *call)
{
  rv_draws_release(call->unsent, call->num_unsent);
  call->num_unsent = 0;
  rv_buf_unref(call->room);
  call->room = NULL;
}

static rv_code send_unsent(sample_call *call, rv_error *err)
{
  rv_code code;
  const size_t before = call->turn_bytes, sent = send_draws(call, call->unsent, call->num_unsent, &code, err);
  if (code == RV_OK && sent > 0) call->mean_bytes = (call->turn_bytes - before) / sent + 1;
  call->unsent += sent;
  call->num_unsent -= sent;
  if (code == RV_OK && call->num_unsent > 0) return RV_OK;
  drop_unsent(call);
  if (code == RV_OK && call->remaining == 0) finish_request(call);
  return code;
}

/* Sends what was drawn, or drops it where nobody is there. */
static rv_code hand_over(sample_call *call, rv_error *err)
{
  call->unsent = call->ask.draws;
  call->num_unsent = call->ask.count;
  call->ask.count = 0;
  if (!rv_server_stream_is_open(&call->stream)) {
    drop_unsent(call);
    return RV_OK;
  }
  call->remaining -= (int64_t)call->num_unsent;
  const rv_cold_reading reading = rv_draws_begin_reading(call->unsent, call->num_unsent);
  rv_code code = send_unsent(call, err);
  rv_draws_end_reading(&reading);
  return code;
}

/* The call ends as its ask did, behind all that was drawn before: that has been counted. */
static void end_as_asked(sample_call *call)
{
  const rv_waiter *waiter = &call->ask.waiter;
  if (waiter->code != RV_OK && call->num_unsent == 0) rv_server_stream_finish(&call->stream, waiter->code, waiter->error.message);
}

/* The ask is over and its memory ours again: sends what was drawn, or ends the call. */
static void settle(sample_call *call)
{
  rv_error err;
  call->asking = false;
  rv_timer_stop(&call->timer);
  rv_code code = call->ask.count > 0 ? hand_over(call, &err) : RV_OK;
  if (call->num_unsent == 0) drop_unsent(call); /* its room */
  if (!rv_server_stream_is_open(&call->stream)) return;
  if (code != RV_OK)
    rv_server_stream_finish(&call->stream, err.code, err.message);
  else
    end_as_asked(call);
}

/* Takes the ask back. false: it completes, or has completed, and its task comes. */
static bool take_back(sample_call *call)
{
  if (!rv_waiter_cancel(&call->ask.waiter)) return false;
  rv_server_stream_unref(&call->stream); /* the ask's; the caller holds another */
  return true;
}

static void end_by_timeout(sample_call *call)
{
  rv_error err;
  char reason[256];
  rv_waiter_explain(&call->ask.waiter, reason, sizeof reason);
  rv_fail(&err, RV_DEADLINE_EXCEEDED, "%s %s", TIMEOUT_TEXT, reason);
  rv_server_stream_finish(&call->stream, err.code, err.message);
}

/* Nothing came in time. */
static void expire(sample_call *call)
{
  if (!take_back(call)) return;
  size_t count = call->ask.count;
  call->ask.waiter.code = RV_OK;
  if (count == 0) end_by_timeout(call);
  settle(call);
}

static void on_timer(rv_timer *timer)
{
  sample_call *call = RV_CONTAINER(timer, sample_call, timer);
  rv_server_stream_ref(&call->stream);
  if (call->asking) expire(call);
  serve(call);
  rv_server_stream_unref(&call->stream);
}

static void on_completed_task(rv_task *task)
{
  sample_call *call = RV_CONTAINER(task, sample_call, completed_task);
  settle(call);
  serve(call);
  rv_server_stream_unref(&call->stream); /* the ask's */
}

/* On any thread. One ask is out at a time, so its task is free. */
static void on_complete(rv_waiter *waiter)
{
  sample_call *call = RV_CONTAINER(waiter, sample_call, ask.waiter);
  rv_loop_post(call->stream.loop, &call->completed_task);
}

/* Of a few sizes only, so that what one stream gives back fits the next: one that does not wait holds none, and what it draws into is still
 * in the cache. */
static rv_draw *take_room(sample_call *call, size_t want, rv_error *err)
{
  size_t capacity = 2 * FIRST_BATCH;
  while (capacity < want) capacity *= 2;
  call->room = rv_spares_take(rv_loop_spares(call->stream.loop), capacity * sizeof(rv_draw));
  if (call->room != NULL) return (rv_draw *)(void *)call->room->data;
  rv_fail_memory(err, capacity * sizeof(rv_draw));
  return NULL;
}

/* Counting bytes makes each draw dearer, so small ones are drawn without it, as many as stay below the bound. */
static size_t without_counting(const sample_call *call, size_t want)
{
  size_t bytes = turn_of(call) < PACK_BYTES ? turn_of(call) : PACK_BYTES;
  size_t most = call->mean_bytes == 0 ? 0 : bytes / call->mean_bytes;
  if (most < FEW_UNCOUNTED) return 0;
  return want < most ? want : most;
}

static void ask(sample_call *call)
{
  rv_server *server = call->stream.server;
  size_t want = call->last_batch * 2, most = turn_of(call) / DRAW_BYTES;
  if (want > most) want = most;
  if ((int64_t)want > call->remaining) want = (size_t)call->remaining;
  rv_error err;
  rv_draw *draws = take_room(call, want, &err);
  if (draws == NULL) {
    rv_server_stream_finish(&call->stream, err.code, err.message);
    return;
  }
  call->last_batch = want;
  size_t uncounted = without_counting(call, want);
  if (uncounted > 0) want = uncounted;
  int64_t now = rv_monotonic_ns(&server->env);
  int64_t deadline = call->timeout_ns > INT64_MAX - now ? INT64_MAX : now + call->timeout_ns;
  if (deadline > call->until_ns) deadline = call->until_ns;
  call->ask = (rv_sampling){.want = want,
                            .partial = true,
                            .same_layout = call->same_layout,
                            .max_bytes = uncounted > 0 ? 0 : turn_of(call),
                            .draws = draws,
                            .waiter = {.complete = on_complete, .deadline_ns = deadline, .peer = call->peer}};
  call->asking = true;
  rv_server_stream_ref(&call->stream);
  if (rv_table_sample(call->table, &call->ask) == RV_SUBMIT_DONE) {
    settle(call);
    rv_server_stream_unref(&call->stream);
  } else if (call->poll) {
    expire(call);
  } else if (deadline != INT64_MAX) {
    rv_timer_start(&call->timer, deadline);
  }
}

/* ---- the call ---- */

static void set_reading(sample_call *call)
{
  if (!rv_server_stream_is_open(&call->stream) || call->in_request == call->paused) return;
  call->paused = call->in_request;
  if (call->paused)
    rv_call_pause(call->stream.call);
  else
    rv_call_resume(call->stream.call); /* may call on_message: nothing comes after it */
}

static void on_turn_task(rv_task *task)
{
  sample_call *call = RV_CONTAINER(task, sample_call, turn_task);
  call->turn_posted = false;
  serve(call);
  rv_server_stream_unref(&call->stream);
}

static void post_turn(sample_call *call)
{
  if (call->turn_posted) return;
  call->turn_posted = true;
  rv_server_stream_ref(&call->stream);
  rv_loop_turn(call->stream.loop, &call->turn_task);
}

static bool can_send(const sample_call *call)
{
  return rv_server_stream_is_open(&call->stream) && rv_call_queued(call->stream.call) < 2 * turn_of(call);
}

static bool can_ask(const sample_call *call)
{
  return can_send(call) && call->in_request && !call->asking && call->num_unsent == 0;
}

static void go_on_sending(sample_call *call)
{
  rv_error err;
  if (!rv_server_stream_is_open(&call->stream))
    drop_unsent(call);
  else if (can_send(call) && send_unsent(call, &err) != RV_OK)
    rv_server_stream_finish(&call->stream, err.code, err.message);
  else
    end_as_asked(call);
}

/* Goes on until it must wait: for the limiter, for the client to read, for the next request, or for its next turn. */
static void serve(sample_call *call)
{
  call->turn_bytes = 0;
  if (call->num_unsent > 0) go_on_sending(call);
  while (can_ask(call) && call->turn_bytes < turn_of(call)) ask(call);
  if (can_ask(call) || (call->num_unsent > 0 && can_send(call))) post_turn(call);
  if (!call->in_request && !call->asking) {
    if (call->half_closed) rv_server_stream_finish(&call->stream, RV_OK, "");
    if (call->draining) rv_server_stream_finish(&call->stream, RV_UNAVAILABLE, "the server is shutting down");
  }
  set_reading(call);
}

static rv_code take_request(sample_call *call, rv_span message, rv_error *err)
{
  rv_sample_request request;
  rv_code code = rv_sample_request_parse(message, &request, err);
  if (code != RV_OK) return code;
  if (request.num_samples <= 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "num_samples must be > 0, got %lld", (long long)request.num_samples);
  rv_table *table;
  code = rv_caller_check(call->stream.caller, RV_RIGHT_READ, request.table, err);
  if (code == RV_OK) code = rv_server_find_table(call->stream.server, request.table, &table, err);
  if (code != RV_OK) return code;
  if (table != call->table) call->mean_bytes = 0; /* another's items may be larger */
  call->table = table;
  call->remaining = request.num_samples;
  call->timeout_ns =
      request.timeout_ms <= 0 || request.timeout_ms > INT64_MAX / 1000000 ? INT64_MAX : request.timeout_ms * 1000000;
  int64_t now = rv_monotonic_ns(&call->stream.server->env);
  bool bounded = request.whole && call->timeout_ns <= INT64_MAX - now;
  call->until_ns = bounded ? now + call->timeout_ns : INT64_MAX;
  if (request.whole && call->last_batch < WHOLE_BATCH / 2) call->last_batch = WHOLE_BATCH / 2;
  call->same_layout = request.same_layout;
  call->poll = request.poll;
  call->packed = request.packed;
  call->in_request = true;
  return RV_OK;
}

static void on_message(rv_call *net_call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  sample_call *call = user;
  rv_error err;
  (void)net_call, (void)buf;
  if (!rv_server_stream_is_open(&call->stream)) return;
  rv_server_stream_ref(&call->stream);
  if (take_request(call, (rv_span){.data = data, .size = size}, &err) != RV_OK)
    rv_server_stream_finish(&call->stream, err.code, err.message);
  serve(call);
  rv_server_stream_unref(&call->stream);
}

static void on_half_close(rv_call *net_call, void *user)
{
  sample_call *call = user;
  (void)net_call;
  call->half_closed = true;
  serve(call);
}

static void on_writable(rv_call *net_call, void *user)
{
  (void)net_call;
  serve(user);
}

static void on_close(rv_call *net_call, void *user, rv_code code, const char *message)
{
  sample_call *call = user;
  (void)net_call, (void)code, (void)message;
  call->stream.call = NULL;
  if (call->asking && take_back(call)) settle(call);
  if (call->num_unsent > 0) drop_unsent(call);
  rv_timer_stop(&call->timer);
  rv_server_stream_closed(&call->stream);
}

static const rv_call_events sample_events = {
    .on_message = on_message, .on_half_close = on_half_close, .on_writable = on_writable, .on_close = on_close};

/* ---- life ---- */

static void sweep(rv_server_stream *stream, rv_sweep kind)
{
  sample_call *call = RV_CONTAINER(stream, sample_call, stream);
  rv_server_stream_ref(stream);
  call->draining = true;
  if (kind != RV_SWEEP_DRAIN) {
    bool waited = call->asking && take_back(call);
    if (waited) {
      call->ask.waiter.code = RV_OK;
      settle(call); /* what it already held goes out */
    }
    if (waited && kind == RV_SWEEP_END)
      rv_server_stream_finish(stream, RV_CANCELLED, "the server is shutting down while the sample waits for its table");
    else
      rv_server_stream_swept(stream, kind);
  }
  serve(call);
  rv_server_stream_unref(stream);
}

static void destroy(rv_server_stream *stream)
{
  sample_call *call = RV_CONTAINER(stream, sample_call, stream);
  if (stream->home != NULL) stream->home->num_samplers--;
  if (call->num_unsent > 0) drop_unsent(call);
  free(call->peer);
  free(call);
}

static const rv_server_stream_ops sample_ops = {.sweep = sweep, .destroy = destroy};

rv_code rv_begin_sample_stream(rv_server *server, rv_call *net_call, const rv_method *method, const rv_call_events **events,
                               void **user, rv_error *err)
{
  (void)method;
  sample_call *call = calloc(1, sizeof *call);
  if (call == NULL) return rv_fail_memory(err, sizeof *call);
  call->peer = strdup(rv_call_peer(net_call));
  call->last_batch = FIRST_BATCH / 2;
  call->completed_task.run = on_completed_task;
  rv_task_init(&call->turn_task, on_turn_task);
  rv_code code =
      call->peer == NULL ? rv_fail_memory(err, 64) : rv_server_stream_begin(&call->stream, &sample_ops, server, net_call, err);
  if (code != RV_OK) {
    destroy(&call->stream);
    return code;
  }
  call->stream.home->num_samplers++;
  rv_timer_init(&call->timer, call->stream.loop, on_timer);
  *events = &sample_events;
  *user = call;
  return RV_OK;
}
