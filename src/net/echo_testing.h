/* For net's tests: a server that answers in simple ways, and calls that a test's thread can wait for. */
#ifndef RV_NET_ECHO_TESTING_H
#define RV_NET_ECHO_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "net/net.h"

/* ---- the server ---- */

typedef struct echo_server echo_server;

typedef struct echo_call {
  echo_server *server;
  rv_call *call;
  rv_timer timer; /* "slow" */
  char method[32];
  uint64_t seen;
  size_t source_left, source_size; /* "source" */
} echo_call;

struct echo_server {
  rv_grpc_server *grpc;
  rv_mutex lock;
  rv_cond changed;
  size_t opened, closed, half_closed, messages;
  size_t closed_by_code[RV_UNAUTHENTICATED + 1];
  rv_call *paused; /* the last call of "pause" */
  char peer[160], peer_name[160];
};

static inline void echo_reply(rv_call *call, rv_buf *buf, const uint8_t *data, size_t size)
{
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  assert_int_equal(rv_pieces_share(&pieces, buf, data, size), RV_OK);
  rv_call_send(call, &pieces);
}

static inline void echo_pump(rv_call *call, echo_call *echo)
{
  while (echo->source_left > 0 && rv_call_queued(call) < (1 << 20)) {
    rv_buf *buf = rv_buf_new(echo->source_size);
    assert_non_null(buf);
    memset(buf->data, (int)(echo->source_left & 255), echo->source_size);
    buf->size = echo->source_size;
    echo_reply(call, buf, buf->data, buf->size);
    rv_buf_unref(buf);
    echo->source_left--;
  }
  if (echo->source_left == 0) rv_call_finish(call, RV_OK, NULL);
}

static inline void echo_on_timer(rv_timer *timer)
{
  rv_call_resume(RV_CONTAINER(timer, echo_call, timer)->call);
}

static inline void echo_on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  echo_call *echo = user;
  echo->seen++;
  rv_mutex_lock(&echo->server->lock);
  echo->server->messages++;
  rv_cond_broadcast(&echo->server->changed);
  rv_mutex_unlock(&echo->server->lock);
  if (strcmp(echo->method, "unary") == 0) {
    echo_reply(call, buf, data, size);
    rv_call_finish(call, RV_OK, NULL);
  } else if (strcmp(echo->method, "stream") == 0) {
    echo_reply(call, buf, data, size);
  } else if (strcmp(echo->method, "pause") == 0) {
    rv_call_pause(call);
    rv_mutex_lock(&echo->server->lock);
    echo->server->paused = call;
    rv_cond_broadcast(&echo->server->changed);
    rv_mutex_unlock(&echo->server->lock);
  } else if (strcmp(echo->method, "status") == 0) {
    const char *message = rv_call_metadata(call, "echo-message");
    const char *code = rv_call_metadata(call, "echo-code");
    rv_call_finish(call, code == NULL ? RV_OK : (rv_code)atoi(code), message);
  } else if (strcmp(echo->method, "source") == 0) {
    echo->source_left = (size_t)atol(rv_call_metadata(call, "echo-count"));
    echo->source_size = (size_t)atol(rv_call_metadata(call, "echo-size"));
    echo_pump(call, echo);
  } else if (strcmp(echo->method, "slow") == 0) {
    echo_reply(call, buf, data, size);
    rv_call_pause(call);
    rv_timer_start(&echo->timer, 0);
  } else if (strcmp(echo->method, "cancel") == 0) {
    rv_call_cancel(call);
  }
}

static inline void echo_on_half_close(rv_call *call, void *user)
{
  echo_call *echo = user;
  rv_mutex_lock(&echo->server->lock);
  echo->server->half_closed++;
  rv_cond_broadcast(&echo->server->changed);
  rv_mutex_unlock(&echo->server->lock);
  if (strcmp(echo->method, "hang") != 0 && strcmp(echo->method, "source") != 0) rv_call_finish(call, RV_OK, NULL);
}

static inline void echo_on_writable(rv_call *call, void *user)
{
  echo_call *echo = user;
  if (strcmp(echo->method, "source") == 0) echo_pump(call, echo);
}

static inline void echo_on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)message;
  echo_call *echo = user;
  rv_mutex_lock(&echo->server->lock);
  echo->server->closed++;
  echo->server->closed_by_code[code]++;
  if (echo->server->paused == call) echo->server->paused = NULL;
  rv_cond_broadcast(&echo->server->changed);
  rv_mutex_unlock(&echo->server->lock);
  rv_timer_stop(&echo->timer);
  free(echo);
}

static inline bool echo_on_call(void *context, rv_call *call, const char *path, const rv_call_events **events, void **user)
{
  static const rv_call_events echo_events = {.on_message = echo_on_message,
                                             .on_half_close = echo_on_half_close,
                                             .on_writable = echo_on_writable,
                                             .on_close = echo_on_close};
  echo_server *server = context;
  if (strncmp(path, "/echo/", 6) != 0) return false;
  echo_call *echo = calloc(1, sizeof *echo);
  assert_non_null(echo);
  echo->server = server;
  echo->call = call;
  rv_timer_init(&echo->timer, rv_call_loop(call), echo_on_timer);
  snprintf(echo->method, sizeof echo->method, "%s", path + 6);
  rv_mutex_lock(&server->lock);
  server->opened++;
  snprintf(server->peer, sizeof server->peer, "%s", rv_call_peer(call));
  snprintf(server->peer_name, sizeof server->peer_name, "%s", rv_call_peer_name(call));
  rv_cond_broadcast(&server->changed);
  rv_mutex_unlock(&server->lock);
  if (rv_call_metadata(call, "echo-header") != NULL) {
    rv_call_set_header(call, "echo-header", rv_call_metadata(call, "echo-header"));
    rv_call_send_headers(call);
  }
  *events = &echo_events;
  *user = echo;
  if (strcmp(echo->method, "refuse") == 0) {
    char why[1000];
    memset(why, 'x', sizeof why);
    why[sizeof why - 1] = '\0';
    rv_call_finish(call, RV_UNAUTHENTICATED, why);
  }
  return true;
}

static inline rv_code echo_try_start_tls(echo_server *server, const char *address, unsigned threads, size_t max_message,
                                         rv_tls *tls, rv_error *err)
{
  memset(server, 0, sizeof *server);
  rv_mutex_init(&server->lock, RV_RANK_CLIENT, "echo server");
  rv_cond_init(&server->changed);
  rv_grpc_server_config config = {.addresses = &address,
                                  .num_addresses = 1,
                                  .io_threads = threads,
                                  .max_message_bytes = max_message,
                                  .tls = tls,
                                  .lends_memory = true,
                                  .on_call = echo_on_call,
                                  .context = server};
  return rv_grpc_server_new(&config, &server->grpc, err);
}

static inline rv_code echo_try_start(echo_server *server, const char *address, unsigned threads, size_t max_message,
                                     rv_error *err)
{
  return echo_try_start_tls(server, address, threads, max_message, NULL, err);
}

static inline void echo_start(echo_server *server, const char *address, unsigned threads)
{
  rv_error error = {0};
  if (echo_try_start(server, address, threads, 0, &error) != RV_OK) fail_msg("%s", error.message);
}

static inline void echo_stop(echo_server *server)
{
  rv_grpc_server_free(server->grpc);
  assert_int_equal(server->opened, server->closed);
  rv_cond_fini(&server->changed);
  rv_mutex_fini(&server->lock);
}

/* Waits until *what (one of the server's counters) is at least `count`. */
static inline void echo_wait(echo_server *server, const size_t *what, size_t count)
{
  rv_mutex_lock(&server->lock);
  while (*what < count) rv_cond_wait(&server->changed, &server->lock);
  rv_mutex_unlock(&server->lock);
}

static inline size_t echo_count(echo_server *server, const size_t *what)
{
  rv_mutex_lock(&server->lock);
  size_t count = *what;
  rv_mutex_unlock(&server->lock);
  return count;
}

/* ---- the client ---- */

typedef struct echo_client {
  rv_loop *loop;
  rv_channel *channel;
  char address[200];
} echo_client;

static inline void client_open_tls(echo_client *client, const char *address, rv_tls *tls)
{
  rv_error error = {0};
  memset(client, 0, sizeof *client);
  snprintf(client->address, sizeof client->address, "%s", address);
  if (rv_loop_new(NULL, "client", &client->loop, &error) != RV_OK) fail_msg("%s", error.message);
  rv_channel_config config = {.loop = client->loop, .address = address, .tls = tls, .shares_memory = true};
  if (rv_channel_new(&config, &client->channel, &error) != RV_OK) fail_msg("%s", error.message);
}

static inline void client_open(echo_client *client, const char *address)
{
  client_open_tls(client, address, NULL);
}

static inline void client_open_server(echo_client *client, const echo_server *server)
{
  char address[64];
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)rv_grpc_server_port(server->grpc, 0));
  client_open(client, address);
}

static inline void client_close(echo_client *client)
{
  rv_channel_free(client->channel);
  rv_loop_free(client->loop);
}

typedef struct test_call {
  echo_client *client;
  rv_call_config config;
  rv_metadata metadata[4];
  rv_call *call; /* of the loop's thread */
  rv_pieces pieces;
  rv_mutex lock;
  rv_cond changed;
  size_t messages, bytes, headers, writable;
  uint64_t checksum;
  bool closed, pause_at_once;
  rv_code code;
  char message[512], header[64], text[64]; /* text: the last message's beginning */
} test_call;

static inline uint64_t sum(const uint8_t *data, size_t size)
{
  uint64_t value = size;
  for (size_t i = 0; i < size; i += 251) value = value * 31 + data[i];
  return value;
}

static inline void call_on_headers(rv_call *call, void *user)
{
  test_call *test = user;
  rv_mutex_lock(&test->lock);
  test->headers++;
  const char *header = rv_call_metadata(call, "echo-header");
  if (header != NULL) snprintf(test->header, sizeof test->header, "%s", header);
  rv_cond_broadcast(&test->changed);
  rv_mutex_unlock(&test->lock);
}

static inline void call_on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)buf;
  test_call *test = user;
  rv_mutex_lock(&test->lock);
  test->messages++;
  test->bytes += size;
  test->checksum = sum(data, size);
  memset(test->text, 0, sizeof test->text);
  memcpy(test->text, data, size < sizeof test->text - 1 ? size : sizeof test->text - 1);
  rv_cond_broadcast(&test->changed);
  rv_mutex_unlock(&test->lock);
  if (test->pause_at_once) rv_call_pause(call);
}

static inline void call_on_writable(rv_call *call, void *user)
{
  (void)call;
  test_call *test = user;
  rv_mutex_lock(&test->lock);
  test->writable++;
  rv_cond_broadcast(&test->changed);
  rv_mutex_unlock(&test->lock);
}

static inline void call_on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call;
  test_call *test = user;
  rv_mutex_lock(&test->lock);
  assert_false(test->closed);
  test->closed = true;
  test->code = code;
  test->call = NULL;
  snprintf(test->message, sizeof test->message, "%s", message);
  rv_cond_broadcast(&test->changed);
  rv_mutex_unlock(&test->lock);
}

static inline void call_init(test_call *test, echo_client *client, const char *path)
{
  memset(test, 0, sizeof *test);
  test->client = client;
  test->config = (rv_call_config){.path = path, .deadline_ns = INT64_MAX, .metadata = test->metadata};
  rv_mutex_init(&test->lock, RV_RANK_CLIENT, "test call");
  rv_cond_init(&test->changed);
}

static inline void call_add(test_call *test, const char *name, const char *value)
{
  test->metadata[test->config.num_metadata++] = (rv_metadata){name, value};
}

static inline void call_start_on_loop(void *argument)
{
  static const rv_call_events test_events = {
      .on_headers = call_on_headers, .on_message = call_on_message, .on_writable = call_on_writable, .on_close = call_on_close};
  test_call *test = argument;
  test->call = rv_channel_call(test->client->channel, &test->config, &test_events, test);
  assert_non_null(test->call);
}

static inline void call_start(test_call *test)
{
  rv_loop_call(test->client->loop, call_start_on_loop, test);
}

static inline void call_send_on_loop(void *argument)
{
  test_call *test = argument;
  if (test->call != NULL)
    rv_call_send(test->call, &test->pieces);
  else
    rv_pieces_fini(&test->pieces);
}

static inline void call_send(test_call *test, const void *data, size_t size)
{
  rv_pieces_init(&test->pieces);
  assert_int_equal(rv_pieces_copy(&test->pieces, data, size), RV_OK);
  rv_loop_call(test->client->loop, call_send_on_loop, test);
}

static inline void call_half_close_on_loop(void *argument)
{
  test_call *test = argument;
  if (test->call != NULL) rv_call_half_close(test->call);
}
static inline void call_half_close(test_call *test)
{
  rv_loop_call(test->client->loop, call_half_close_on_loop, test);
}

static inline void call_cancel_on_loop(void *argument)
{
  test_call *test = argument;
  if (test->call != NULL) rv_call_cancel(test->call);
}
static inline void call_cancel(test_call *test)
{
  rv_loop_call(test->client->loop, call_cancel_on_loop, test);
}

static inline void call_resume_on_loop(void *argument)
{
  test_call *test = argument;
  test->pause_at_once = false;
  if (test->call != NULL) rv_call_resume(test->call);
}
static inline void call_resume(test_call *test)
{
  rv_loop_call(test->client->loop, call_resume_on_loop, test);
}

static inline void call_wait_messages(test_call *test, size_t count)
{
  rv_mutex_lock(&test->lock);
  while (test->messages < count && !test->closed) rv_cond_wait(&test->changed, &test->lock);
  rv_mutex_unlock(&test->lock);
}

static inline void call_wait(test_call *test)
{
  rv_mutex_lock(&test->lock);
  while (!test->closed) rv_cond_wait(&test->changed, &test->lock);
  rv_mutex_unlock(&test->lock);
}

static inline void call_fini(test_call *test)
{
  rv_cond_fini(&test->changed);
  rv_mutex_fini(&test->lock);
}

/* One unary call, whole: its status; the answer's beginning in `answer`, if given. */
static inline rv_code call_unary(echo_client *client, const char *path, const char *text, char answer[64])
{
  test_call test;
  call_init(&test, client, path);
  call_start(&test);
  call_send(&test, text, strlen(text));
  call_half_close(&test);
  call_wait(&test);
  if (answer != NULL) memcpy(answer, test.text, 64);
  rv_code code = test.code;
  call_fini(&test);
  return code;
}

#endif
