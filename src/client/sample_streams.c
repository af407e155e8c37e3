#include <string.h>

#include "base/error.h"
#include "base/spares.h"
#include "client/backoff.h"
#include "client/explain.h"
#include "client/limiter_timeout.h"
#include "client/paths.h"
#include "client/sampler_remote.h"

#define MILLISECOND INT64_C(1000000)
#define FIRST_BACKOFF_NS (10 * MILLISECOND)

enum { ROOM_MIN = 256 };

/* How the consumer stands, as the loop sees it. */
typedef struct consumer_state {
  int64_t ready, handed_out;
  bool waiting;
  bool wanted; /* waiting, or has looked in since the last time */
  int64_t starved_ns, batches;
} consumer_state;

static consumer_state take_demand(rv_remote_sampler *sampler)
{
  rv_mutex_lock(&sampler->mutex);
  consumer_state now = {.ready = (int64_t)sampler->count,
                        .handed_out = sampler->handed_out,
                        .waiting = sampler->waiting,
                        .wanted = sampler->wanted,
                        .starved_ns = sampler->starved_ns,
                        .batches = sampler->batches};
  sampler->wanted = false;
  sampler->consumed = 0;
  if (sampler->resumes) {
    sampler->resumes = false;
    sampler->common.max_samples = INT64_MAX;
    sampler->look_at_ns = 0;
  }
  rv_mutex_unlock(&sampler->mutex);
  return now;
}

static bool is_over(rv_remote_sampler *sampler)
{
  rv_mutex_lock(&sampler->mutex);
  bool over = sampler->ended || sampler->cancelled;
  rv_mutex_unlock(&sampler->mutex);
  return over || sampler->closed;
}

static void cancel_calls(rv_remote_sampler *sampler)
{
  for (uint32_t i = 0; i < sampler->common.num_streams; i++)
    if (sampler->streams[i].call != NULL) rv_call_cancel(sampler->streams[i].call);
}

/* ---- asking ---- */

static int64_t at_least(int64_t value, int64_t least)
{
  return value < least ? least : value;
}

/* What is left of the limiter's timeout for a consumer who already waits. */
static int64_t timeout_left(const rv_remote_sampler *sampler, const consumer_state *demand, int64_t now)
{
  int64_t timeout = sampler->common.rate_limiter_timeout_ns;
  if (timeout == INT64_MAX || !demand->waiting || demand->starved_ns == 0) return timeout;
  return at_least(timeout - (now - demand->starved_ns), 0);
}

static rv_code put_request(const rv_remote_sampler *sampler, int64_t num_samples, int64_t timeout_ns, rv_pieces *out)
{
  const char *table = sampler->common.table;
  rv_sample_request request = {.table = {.data = (const uint8_t *)table, .size = strlen(table)},
                               .num_samples = num_samples,
                               .timeout_ms = -1,
                               .packed = true};
  if (timeout_ns != INT64_MAX) {
    request.timeout_ms = at_least((timeout_ns + MILLISECOND - 1) / MILLISECOND, 1); /* 0 would be for ever */
    request.poll = timeout_ns == 0;
  }
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_sample_request_serialize(&body, &request);
  rv_code code = body.failed ? RV_RESOURCE_EXHAUSTED : rv_pieces_copy(out, body.data, body.size);
  rv_writer_buf_fini(&body);
  return code;
}

static void end_of_memory(rv_remote_sampler *sampler)
{
  rv_error error;
  rv_fail_memory(&error, 64);
  rv_remote_sampler_end(sampler, &error);
}

static bool open_call(rv_sample_stream *stream);

static void ask(rv_sample_stream *stream, int64_t num_samples, const consumer_state *demand)
{
  rv_remote_sampler *sampler = stream->sampler;
  int64_t now = rv_monotonic_ns(&sampler->common.client->env);
  int64_t timeout = timeout_left(sampler, demand, now);
  rv_pieces request;
  rv_pieces_init(&request);
  if (put_request(sampler, num_samples, timeout, &request) != RV_OK || (stream->call == NULL && !open_call(stream))) {
    rv_pieces_fini(&request);
    end_of_memory(sampler);
    return;
  }
  rv_call_send(stream->call, &request);
  stream->asked_ns = now;
  stream->timed_out = false;
  stream->requested += num_samples;
  stream->outstanding += num_samples;
  sampler->asked += num_samples;
  if (demand->batches > 0) rv_remote_sampler_note_ask(sampler, now);
  if (stream->requested >= sampler->common.max_samples_per_stream) {
    rv_call_half_close(stream->call);
    stream->half_closed = true;
  }
}

/* The limiter's timeout passed for a request that was made for the consumer who waits now. */
static bool is_conclusive(const rv_sample_stream *stream, const consumer_state *demand)
{
  return stream->timed_out && stream->conclusive && demand->starved_ns != 0 && stream->asked_ns >= demand->starved_ns;
}

/* A stream whose request timed out is asked again only while somebody waits, and until that somebody has waited long enough; and once each time
 * that somebody looks in without waiting. */
static bool rests(const rv_sample_stream *stream, const consumer_state *demand)
{
  if (stream->retry_at_ns != 0 || stream->half_closed) return true;
  return stream->timed_out && (demand->waiting ? is_conclusive(stream, demand) : !demand->wanted);
}

static int64_t smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static void pump_stream(rv_sample_stream *stream, int64_t window, int64_t room, const consumer_state *demand)
{
  rv_remote_sampler *sampler = stream->sampler;
  if (rests(stream, demand)) return;
  int64_t want = smaller(window - stream->outstanding, room);
  want = smaller(want, sampler->common.max_samples - sampler->asked);
  want = smaller(want, sampler->common.max_samples_per_stream - stream->requested);
  bool worth_a_message = want * 2 >= window || stream->outstanding == 0;
  if (want > 0 && worth_a_message) ask(stream, want, demand);
}

static void decide_on_end(rv_remote_sampler *sampler, const consumer_state *demand);

void rv_sample_streams_pump(rv_remote_sampler *sampler)
{
  consumer_state demand = take_demand(sampler);
  if (is_over(sampler)) {
    cancel_calls(sampler);
    return;
  }
  decide_on_end(sampler, &demand);
  int64_t window = rv_remote_sampler_window(sampler, demand.handed_out, demand.batches);
  rv_mutex_lock(&sampler->mutex);
  sampler->window = window;
  rv_mutex_unlock(&sampler->mutex);
  for (uint32_t i = 0; i < sampler->common.num_streams && !is_over(sampler); i++) {
    int64_t in_flight = sampler->asked - demand.handed_out;
    pump_stream(&sampler->streams[i], window, window * sampler->common.num_streams - in_flight, &demand);
  }
}

/* ---- the end by the limiter's timeout ---- */

static void judge_timeout(rv_sample_stream *stream)
{
  rv_remote_sampler *sampler = stream->sampler;
  stream->timed_out = true;
  rv_mutex_lock(&sampler->mutex);
  stream->conclusive = sampler->waiting && sampler->count == 0;
  rv_mutex_unlock(&sampler->mutex);
}

/* Every stream was asked while the consumer waited, and none got anything in time. */
static void decide_on_end(rv_remote_sampler *sampler, const consumer_state *demand)
{
  if (!demand->waiting || demand->ready > 0) return;
  for (uint32_t i = 0; i < sampler->common.num_streams; i++) {
    const rv_sample_stream *stream = &sampler->streams[i];
    if (!is_conclusive(stream, demand) || stream->outstanding > 0) return;
  }
  rv_error error;
  rv_sampler_end_by_limiter(&sampler->common, "", &error);
  rv_remote_sampler_end(sampler, &error);
}

/* ---- what comes back ---- */

/* What a message brings is put down here before the consumer's lock is taken: memory of the loop's, of a few sizes only, so that one
 * sampler finds that of the one before it in the cache. NULL: out of memory. */
static rv_buf *take_room(const rv_remote_sampler *sampler, size_t n)
{
  size_t capacity = ROOM_MIN;
  while (capacity < n) capacity *= 2;
  return rv_spares_take(rv_loop_spares(sampler->common.client->loop), capacity * sizeof(rv_draw));
}

/* RV_UNAVAILABLE: there was no message, and the call is about to end. */
static rv_code take_message(rv_sample_stream *stream, rv_call *call, rv_buf *buf, rv_span message, bool *due, rv_error *error)
{
  rv_remote_sampler *sampler = stream->sampler;
  size_t most = (size_t)stream->outstanding, count = 0;
  rv_buf *room = take_room(sampler, most);
  if (room == NULL) return rv_fail_memory(error, most * sizeof(rv_draw));
  rv_draw *draws = (rv_draw *)(void *)room->data;
  bool gapped;
  bool pours = rv_call_gaps(call) != NULL && rv_remote_sampler_pours(sampler);
  rv_code code = rv_receiver_take_lent(&stream->receiver, call, pours, buf, message, draws, most, &count, &gapped, error);
  rv_code delivered = count == 0 ? RV_OK : rv_remote_sampler_deliver(sampler, draws, count, gapped ? call : NULL, due);
  rv_buf_unref(room);
  if (code == RV_UNAVAILABLE || delivered == RV_UNAVAILABLE) return RV_UNAVAILABLE;
  sampler->bytes_received += message.size;
  sampler->samples_received += count;
  stream->outstanding -= (int64_t)count;
  if (count > 0) stream->backoff_ns = FIRST_BACKOFF_NS;
  if (delivered != RV_OK) end_of_memory(sampler);
  return code;
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  rv_sample_stream *stream = user;
  rv_remote_sampler *sampler = stream->sampler;
  if (is_over(sampler)) return;
  rv_error error;
  bool due = false;
  rv_code code = take_message(stream, call, buf, (rv_span){.data = data, .size = size}, &due, &error);
  if (code == RV_UNAVAILABLE) return;
  if (code != RV_OK) rv_remote_sampler_end(sampler, &error);
  if (is_over(sampler))
    cancel_calls(sampler);
  else if (due || stream->outstanding == 0)
    rv_sample_streams_pump(sampler);
}

static void on_retry(rv_timer *timer)
{
  rv_sample_stream *stream = RV_CONTAINER(timer, rv_sample_stream, retry);
  stream->retry_at_ns = 0;
  rv_sample_streams_pump(stream->sampler);
}

/* Perhaps at another server. */
static void retry_later(rv_sample_stream *stream)
{
  rv_remote_sampler *sampler = stream->sampler;
  const rv_env *env = &sampler->common.client->env;
  sampler->may_grow = false;
  sampler->look_at_ns = 0;
  stream->retry_at_ns = rv_monotonic_ns(env) + rv_backoff_next(&stream->backoff_ns, env);
  rv_timer_start(&stream->retry, stream->retry_at_ns);
}

/* Forgets the call. What it had not delivered is asked for again. */
static int64_t forget_call(rv_sample_stream *stream)
{
  int64_t lost = stream->outstanding;
  stream->sampler->asked -= lost;
  stream->call = NULL;
  stream->outstanding = 0;
  stream->requested = 0;
  stream->half_closed = false;
  rv_receiver_clear(&stream->receiver);
  return lost;
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call;
  rv_sample_stream *stream = user;
  rv_remote_sampler *sampler = stream->sampler;
  bool done_with_it = stream->half_closed;
  int64_t lost = forget_call(stream);
  if (is_over(sampler)) {
    rv_remote_sampler_unref(sampler);
    return;
  }
  if (rv_is_limiter_timeout(code, message)) {
    judge_timeout(stream);
    rv_sample_streams_pump(sampler);
  } else if (code == RV_OK && done_with_it && lost == 0) {
    rv_sample_streams_pump(sampler);
  } else if (code == RV_OK || rv_is_lost_connection(code, message)) {
    retry_later(stream);
  } else {
    rv_error error;
    char unknown[RV_EXPLAINED_UNKNOWN];
    if (code == RV_UNIMPLEMENTED) {
      rv_explain_unknown(RV_PATH_SAMPLE, message, unknown, sizeof unknown);
      message = unknown;
    }
    rv_fail(&error, code, "%s", message != NULL && message[0] != '\0' ? message : rv_code_name(code));
    rv_remote_sampler_end(sampler, &error);
    cancel_calls(sampler);
  }
  rv_remote_sampler_unref(sampler);
}

static const rv_call_events events = {.takes_gaps = true, .on_message = on_message, .on_close = on_close};

static bool open_call(rv_sample_stream *stream)
{
  rv_client *client = stream->sampler->common.client;
  rv_call_config config = {.path = RV_PATH_SAMPLE, .deadline_ns = INT64_MAX, .wait_for_ready = true};
  stream->call = rv_idle_calls_take(&client->sample_calls, &events, stream);
  if (stream->call == NULL) stream->call = rv_channel_call(client->channel, &config, &events, stream);
  if (stream->call == NULL) return false;
  rv_remote_sampler_ref(stream->sampler);
  return true;
}

/* ---- life ---- */

void rv_sample_streams_init(rv_remote_sampler *sampler)
{
  for (uint32_t i = 0; i < sampler->common.num_streams; i++) {
    rv_sample_stream *stream = &sampler->streams[i];
    stream->sampler = sampler;
    stream->backoff_ns = FIRST_BACKOFF_NS;
    rv_receiver_init(&stream->receiver, sampler->common.client, true);
    rv_timer_init(&stream->retry, sampler->common.client->loop, on_retry);
  }
}

/* A call on which all that was asked for has come. */
static void leave_call(rv_sample_stream *stream)
{
  rv_remote_sampler *sampler = stream->sampler;
  if (stream->call == NULL || stream->outstanding > 0) return;
  if (!rv_idle_calls_keep(&sampler->common.client->sample_calls, stream->call)) return;
  forget_call(stream);
  rv_remote_sampler_unref(sampler);
}

void rv_sample_streams_close(rv_remote_sampler *sampler)
{
  bool fine = !is_over(sampler);
  sampler->closed = true;
  rv_remote_sampler_leave_share(sampler);
  for (uint32_t i = 0; i < sampler->common.num_streams; i++) {
    rv_timer_stop(&sampler->streams[i].retry);
    if (fine) leave_call(&sampler->streams[i]);
  }
  cancel_calls(sampler);
}
