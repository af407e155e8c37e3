#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/lock.h"
#include "rig.h"

static const int64_t patience_ns = INT64_C(30000000000);

struct test_stream {
  test_peer *peer;
  rv_call *call; /* the loop's; NULL once it is over */
  rv_mutex lock;
  rv_cond changed;
  rv_buf **messages; /* what came and was not asked for yet */
  size_t count, next, capacity;
  bool over, headers;
  rv_code code;
  char message[RV_ERROR_MESSAGE_MAX];
  char pushback[16];
  char header[128];
  sampled_keys sampled;
};

/* ---- the loop's side ---- */

static void on_headers(rv_call *call, void *user)
{
  test_stream *self = user;
  (void)call;
  rv_mutex_lock(&self->lock);
  self->headers = true;
  rv_cond_broadcast(&self->changed);
  rv_mutex_unlock(&self->lock);
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  test_stream *self = user;
  (void)call, (void)buf;
  rv_buf *copy = rv_buf_copy(data, size);
  if (copy == NULL) abort();
  rv_mutex_lock(&self->lock);
  if (self->count == self->capacity) {
    self->capacity = self->capacity == 0 ? 16 : self->capacity * 2;
    self->messages = realloc(self->messages, self->capacity * sizeof(rv_buf *));
    if (self->messages == NULL) abort();
  }
  self->messages[self->count++] = copy;
  rv_cond_broadcast(&self->changed);
  rv_mutex_unlock(&self->lock);
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  test_stream *self = user;
  const char *pushback = rv_call_metadata(call, "grpc-retry-pushback-ms");
  rv_mutex_lock(&self->lock);
  snprintf(self->pushback, sizeof self->pushback, "%s", pushback != NULL ? pushback : "");
  self->call = NULL;
  self->over = self->headers = true;
  self->code = code;
  snprintf(self->message, sizeof self->message, "%s", message);
  rv_cond_broadcast(&self->changed);
  rv_mutex_unlock(&self->lock);
}

static const rv_call_events events = {.on_headers = on_headers, .on_message = on_message, .on_close = on_close};

/* ---- peers ---- */

void peer_open(test_peer *peer, const char *address)
{
  rv_error err = {.message = ""};
  if (rv_loop_new(NULL, "test", &peer->loop, &err) != RV_OK) fail_msg("%s", err.message);
  rv_channel_config config = {.loop = peer->loop, .address = address, .max_message_bytes = (size_t)1 << 30};
  if (rv_channel_new(&config, &peer->channel, &err) != RV_OK) fail_msg("%s", err.message);
}

void peer_close(test_peer *peer)
{
  rv_channel_free(peer->channel);
  rv_loop_free(peer->loop);
}

/* ---- the test's side ---- */

typedef struct opening {
  test_stream *stream;
  rv_call_config config;
} opening;

static void open_on_loop(void *argument)
{
  opening *self = argument;
  self->stream->call = rv_channel_call(self->stream->peer->channel, &self->config, &events, self->stream);
  if (self->stream->call == NULL) abort();
}

static test_stream *open_stream(test_peer *peer, rv_call_config config)
{
  test_stream *self = calloc(1, sizeof *self);
  assert_non_null(self);
  self->peer = peer;
  rv_mutex_init(&self->lock, RV_RANK_WAIT, "test stream");
  rv_cond_init(&self->changed);
  config.wait_for_ready = true;
  opening opened = {.stream = self, .config = config};
  rv_loop_call(peer->loop, open_on_loop, &opened);
  return self;
}

test_stream *stream_open(test_peer *peer, const char *path, const rv_metadata *metadata, size_t num_metadata)
{
  return open_stream(
      peer, (rv_call_config){.path = path, .metadata = metadata, .num_metadata = num_metadata, .deadline_ns = INT64_MAX});
}

test_stream *stream_open_deadline(test_peer *peer, const char *path, int64_t timeout_ns)
{
  rv_env env;
  rv_env_fill(&env, NULL);
  return open_stream(peer, (rv_call_config){.path = path, .deadline_ns = rv_monotonic_ns(&env) + timeout_ns});
}

typedef struct sending {
  test_stream *stream;
  rv_pieces pieces;
} sending;

static void send_on_loop(void *argument)
{
  sending *self = argument;
  if (self->stream->call != NULL) rv_call_send(self->stream->call, &self->pieces);
  rv_pieces_fini(&self->pieces);
}

void stream_send_bytes(test_stream *stream, const void *data, size_t size)
{
  sending sent = {.stream = stream};
  rv_pieces_init(&sent.pieces);
  assert_int_equal(rv_pieces_copy(&sent.pieces, data, size), RV_OK);
  rv_loop_call(stream->peer->loop, send_on_loop, &sent);
}

void stream_send(test_stream *stream, rv_writer_buf *owned_body)
{
  assert_false(owned_body->failed);
  stream_send_bytes(stream, owned_body->data, owned_body->size);
  rv_writer_buf_fini(owned_body);
}

static void half_close_on_loop(void *argument)
{
  test_stream *self = argument;
  if (self->call != NULL) rv_call_half_close(self->call);
}
void stream_half_close(test_stream *stream)
{
  rv_loop_call(stream->peer->loop, half_close_on_loop, stream);
}

static void cancel_on_loop(void *argument)
{
  test_stream *self = argument;
  if (self->call != NULL) rv_call_cancel(self->call);
}
void stream_cancel(test_stream *stream)
{
  rv_loop_call(stream->peer->loop, cancel_on_loop, stream);
}

static void pause_on_loop(void *argument)
{
  test_stream *self = argument;
  if (self->call != NULL) rv_call_pause(self->call);
}
static void resume_on_loop(void *argument)
{
  test_stream *self = argument;
  if (self->call != NULL) rv_call_resume(self->call);
}
void stream_pause(test_stream *stream, bool pause)
{
  rv_loop_call(stream->peer->loop, pause ? pause_on_loop : resume_on_loop, stream);
}

static rv_buf *take(test_stream *self)
{
  return self->next < self->count ? self->messages[self->next++] : NULL;
}

rv_buf *stream_next(test_stream *stream)
{
  rv_mutex_lock(&stream->lock);
  while (stream->next == stream->count && !stream->over)
    if (!rv_cond_wait_for(&stream->changed, &stream->lock, patience_ns)) break;
  rv_buf *message = take(stream);
  bool over = stream->over;
  rv_mutex_unlock(&stream->lock);
  if (message == NULL && !over) fail_msg("no message came");
  return message;
}

rv_buf *stream_poll(test_stream *stream)
{
  rv_mutex_lock(&stream->lock);
  rv_buf *message = take(stream);
  rv_mutex_unlock(&stream->lock);
  return message;
}

const char *stream_pushback(const test_stream *stream)
{
  return stream->pushback;
}

rv_code stream_end(test_stream *stream, char message[RV_ERROR_MESSAGE_MAX])
{
  for (rv_buf *buf = stream_next(stream); buf != NULL; buf = stream_next(stream)) rv_buf_unref(buf);
  if (message != NULL) memcpy(message, stream->message, sizeof stream->message);
  return stream->code;
}

bool stream_is_over(test_stream *stream)
{
  rv_mutex_lock(&stream->lock);
  bool over = stream->over;
  rv_mutex_unlock(&stream->lock);
  return over;
}

typedef struct reading_header {
  test_stream *stream;
  const char *name;
  bool found;
} reading_header;

static void read_header_on_loop(void *argument)
{
  reading_header *self = argument;
  const char *value = self->stream->call == NULL ? NULL : rv_call_metadata(self->stream->call, self->name);
  self->found = value != NULL;
  if (value != NULL) snprintf(self->stream->header, sizeof self->stream->header, "%s", value);
}

const char *stream_header(test_stream *stream, const char *name)
{
  rv_mutex_lock(&stream->lock);
  while (!stream->headers)
    if (!rv_cond_wait_for(&stream->changed, &stream->lock, patience_ns)) break;
  bool came = stream->headers;
  rv_mutex_unlock(&stream->lock);
  if (!came) fail_msg("no headers came");
  reading_header reading = {.stream = stream, .name = name};
  rv_loop_call(stream->peer->loop, read_header_on_loop, &reading);
  return reading.found ? stream->header : NULL;
}

void stream_free(test_stream *stream)
{
  stream_cancel(stream);
  stream_end(stream, NULL);
  for (size_t i = stream->next; i < stream->count; i++) rv_buf_unref(stream->messages[i]);
  free(stream->messages);
  free(stream->sampled.keys);
  rv_cond_fini(&stream->changed);
  rv_mutex_fini(&stream->lock);
  free(stream);
}

sampled_keys *stream_sampled(test_stream *stream)
{
  return &stream->sampled;
}

rv_code unary(test_peer *peer, const char *path, rv_writer_buf *owned_body, rv_buf **response, char message[RV_ERROR_MESSAGE_MAX])
{
  test_stream *call = stream_open(peer, path, NULL, 0);
  stream_send(call, owned_body);
  stream_half_close(call);
  rv_buf *answer = stream_next(call);
  rv_code code = stream_end(call, message);
  stream_free(call);
  if (response != NULL && code == RV_OK)
    *response = answer;
  else
    rv_buf_unref(answer);
  return code;
}

rv_memory_info peer_memory(test_peer *peer)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_buf *response = NULL;
  char message[RV_ERROR_MESSAGE_MAX] = "";
  if (unary(peer, SERVER_INFO, &body, &response, message) != RV_OK) fail_msg("%s", message);
  rv_server_info *info = NULL;
  assert_int_equal(rv_server_info_parse((rv_span){response->data, response->size}, &info, NULL), RV_OK);
  rv_memory_info memory = info->memory;
  rv_server_info_free(info);
  rv_buf_unref(response);
  return memory;
}
