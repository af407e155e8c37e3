/* Large messages, pausing and back-pressure: nothing is lost, nothing is unbounded, and no call stops another. */
#include "net/call.h"
#include "net/pair_testing.h"

static uint8_t *pattern(size_t size)
{
  uint8_t *data = malloc(size);
  assert_non_null(data);
  for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 31 + (i >> 13));
  return data;
}

static void a_message_of_64_MiB_goes_both_ways(void **state)
{
  both *b = *state;
  size_t size = (64 << 20) + 3;
  uint8_t *data = pattern(size);
  test_call call;
  call_init(&call, &b->client, "/echo/unary");
  call_start(&call);
  call_send(&call, data, size);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.messages, 1);
  assert_int_equal(call.bytes, size);
  assert_int_equal(call.checksum, sum(data, size));
  call_fini(&call);
  free(data);
}

static void messages_of_all_sizes_arrive_in_order(void **state)
{
  both *b = *state;
  size_t most = 3 << 20;
  uint8_t *data = pattern(most);
  test_call call;
  call_init(&call, &b->client, "/echo/stream");
  call_start(&call);
  size_t sent = 0;
  for (size_t size = 1; size < most; size = size * 2 + 1, sent++) {
    call_send(&call, data, size);
    if (sent % 3 == 0) call_wait_messages(&call, sent);
  }
  call_half_close(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.messages, sent);
  call_fini(&call);
  free(data);
}

static void too_large_a_message_is_refused_and_other_calls_go_on(void **state)
{
  (void)state;
  echo_server server;
  rv_error error = {0};
  assert_int_equal(echo_try_start(&server, "127.0.0.1:0", 1, 1000, &error), RV_OK);
  echo_client client;
  client_open_server(&client, &server);
  test_call other, call;
  call_init(&other, &client, "/echo/stream");
  call_start(&other);
  uint8_t *data = pattern(1001);
  call_init(&call, &client, "/echo/unary");
  call_start(&call);
  call_send(&call, data, 1001);
  call_wait(&call);
  assert_int_equal(call.code, RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(call.message, "1001"));
  call_send(&other, data, 1000);
  call_wait_messages(&other, 1);
  call_half_close(&other);
  call_wait(&other);
  assert_int_equal(other.code, RV_OK);
  call_fini(&call);
  call_fini(&other);
  free(data);
  client_close(&client);
  echo_stop(&server);
}

static void resume_paused(void *argument)
{
  echo_server *server = argument;
  rv_mutex_lock(&server->lock);
  rv_call *call = server->paused;
  rv_mutex_unlock(&server->lock);
  if (call != NULL) rv_call_resume(call);
}

/* The server does not read one call; another, on the same connection, must pass it, whatever the first has sent. */
static void a_paused_call_lets_others_pass(void **state)
{
  both *b = *state;
  size_t size = 24 << 20; /* larger than any initial window */
  uint8_t *data = pattern(size);
  test_call blocked, call;
  call_init(&blocked, &b->client, "/echo/pause");
  call_start(&blocked);
  enum { BIG = 4 };
  call_send(&blocked, "pause", 5);
  for (int i = 0; i < BIG; i++) call_send(&blocked, data, size);
  rv_mutex_lock(&b->server.lock);
  while (b->server.paused == NULL) rv_cond_wait(&b->server.changed, &b->server.lock);
  rv_call *paused = b->server.paused;
  rv_mutex_unlock(&b->server.lock);

  call_init(&call, &b->client, "/echo/unary");
  call_start(&call);
  call_send(&call, data, size);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.checksum, sum(data, size));
  call_fini(&call);

  assert_false(blocked.closed);
  size_t seen = echo_count(&b->server, &b->server.messages);
  call_half_close(&blocked);
  rv_loop *loop = rv_call_loop(paused);
  for (size_t i = 1; i <= BIG; i++) { /* each message pauses the call again */
    rv_loop_call(loop, resume_paused, &b->server);
    echo_wait(&b->server, &b->server.messages, seen + i);
  }
  rv_loop_call(loop, resume_paused, &b->server);
  call_wait(&blocked);
  assert_int_equal(blocked.code, RV_OK);
  call_fini(&blocked);
  free(data);
}

/* For at least so many bytes, or for fewer; within a minute. */
static void wait_until_waiting(rv_loop *loop, size_t least, bool waiting)
{
  for (int ms = 0; (rv_loop_waiting_bytes(loop) >= least) != waiting; ms++) {
    assert_true(ms < 60000);
    usleep(1000);
  }
}

/* Messages without bytes that wait for a paused call take memory, too; what they count goes with them. */
static void empty_messages_that_wait_are_counted(void **state)
{
  both *b = *state;
  enum { EMPTY = 10000 };
  test_call call;
  call_init(&call, &b->client, "/echo/pause");
  call_start(&call);
  call_send(&call, "pause", 5);
  rv_mutex_lock(&b->server.lock);
  while (b->server.paused == NULL) rv_cond_wait(&b->server.changed, &b->server.lock);
  rv_loop *loop = rv_call_loop(b->server.paused);
  rv_mutex_unlock(&b->server.lock);
  size_t before = rv_loop_waiting_bytes(loop);
  for (int i = 0; i < EMPTY; i++) call_send(&call, "", 0);
  wait_until_waiting(loop, before + EMPTY * sizeof(rv_buf), true);
  call_cancel(&call);
  call_wait(&call);
  call_fini(&call);
  wait_until_waiting(loop, before + 1, false);
}

/* Our client does not read one stream: the server's queue must stay bounded, and other streams go on. */
static void a_client_that_pauses_holds_the_server_back_only_there(void **state)
{
  both *b = *state;
  test_call source, call;
  call_init(&source, &b->client, "/echo/source");
  source.pause_at_once = true;
  call_add(&source, "echo-count", "100");
  call_add(&source, "echo-size", "1000000");
  call_start(&source);
  call_send(&source, "go", 2);
  call_wait_messages(&source, 1);
  for (int i = 0; i < 20; i++) assert_int_equal(call_unary(&b->client, "/echo/unary", "hello", NULL), RV_OK);
  echo_wait(&b->server, &b->server.closed, 20);                    /* the server's end of a call comes after the client's */
  assert_int_equal(echo_count(&b->server, &b->server.closed), 20); /* the source is blocked: 100 MB are not anywhere in between */
  call_resume(&source);
  call_wait(&source);
  assert_int_equal(source.code, RV_OK);
  assert_int_equal(source.messages, 100);
  assert_int_equal(source.bytes, 100000000);
  call_fini(&source);
  call_init(&call, &b->client, "/echo/unary");
  call_fini(&call);
}

static void a_sender_is_told_when_the_queue_has_drained(void **state)
{
  both *b = *state;
  size_t size = 2 << 20;
  uint8_t *data = pattern(size);
  test_call call;
  call_init(&call, &b->client, "/echo/hang");
  call_start(&call);
  call_send(&call, data, size);
  rv_mutex_lock(&call.lock);
  while (call.writable == 0) rv_cond_wait(&call.changed, &call.lock);
  rv_mutex_unlock(&call.lock);
  call_cancel(&call);
  call_wait(&call);
  call_fini(&call);
  free(data);
}

static void cancelling_in_the_middle_of_large_messages_leaves_others_alone(void **state)
{
  both *b = *state;
  size_t size = 8 << 20;
  uint8_t *data = pattern(size);
  for (int i = 0; i < 10; i++) {
    test_call sending, receiving, call;
    call_init(&sending, &b->client, "/echo/hang");
    call_start(&sending);
    call_send(&sending, data, size);
    call_init(&receiving, &b->client, "/echo/source");
    call_add(&receiving, "echo-count", "50");
    call_add(&receiving, "echo-size", "1000000");
    call_start(&receiving);
    call_send(&receiving, "go", 2);
    call_init(&call, &b->client, "/echo/unary");
    call_start(&call);
    call_send(&call, data, size);
    call_cancel(&sending);
    call_wait_messages(&receiving, 1);
    call_cancel(&receiving);
    call_wait(&call);
    assert_int_equal(call.code, RV_OK);
    assert_int_equal(call.checksum, sum(data, size));
    call_wait(&sending);
    call_wait(&receiving);
    call_fini(&sending);
    call_fini(&receiving);
    call_fini(&call);
  }
  free(data);
}

/* ---- what may be sent ahead ---- */

/* A stream is sent more than half its first window, and less than all of it. */
enum { LARGE_MESSAGE = 100000, SMALL_MESSAGE = 10000, SENT = 1000000, STREAMS = RV_MOST_WIDE + 2 };

typedef struct measured {
  test_call call;
  int64_t ahead; /* so many bytes more may be sent */
} measured;

static void measure_on_loop(void *argument)
{
  measured *stream = argument;
  const rv_call *call = stream->call.call;
  stream->ahead = nghttp2_session_get_stream_remote_window_size(call->session->http, call->stream_id);
}

static int64_t ahead_after(measured *stream, size_t message)
{
  static const uint8_t data[LARGE_MESSAGE];
  size_t before = stream->call.messages, count = SENT / message;
  for (size_t i = 0; i < count; i++) call_send(&stream->call, data, message);
  call_wait_messages(&stream->call, before + count); /* what it may send was told before they were answered */
  rv_loop_call(stream->call.client->loop, measure_on_loop, stream);
  return stream->ahead;
}

static int64_t ahead_of(measured *stream)
{
  return ahead_after(stream, LARGE_MESSAGE);
}

static void begin_stream(measured *stream, echo_client *client)
{
  call_init(&stream->call, client, "/echo/stream");
  call_start(&stream->call);
}

static void end_stream(measured *stream)
{
  call_half_close(&stream->call);
  call_wait(&stream->call);
  call_fini(&stream->call);
}

static void a_few_streams_of_who_lends_may_be_sent_more_ahead(void **state)
{
  both *b = *state;
  static measured streams[STREAMS];
  for (int i = 0; i < STREAMS; i++) begin_stream(&streams[i], &b->client);
  for (int i = 0; i < STREAMS; i++) assert_true(ahead_after(&streams[i], SMALL_MESSAGE) <= RV_STREAM_WINDOW); /* nothing lent */
  for (int i = 0; i < RV_MOST_WIDE; i++) assert_true(ahead_of(&streams[i]) > RV_BORROWED_WINDOW / 2);
  for (int i = RV_MOST_WIDE; i < STREAMS; i++) assert_true(ahead_of(&streams[i]) <= RV_STREAM_WINDOW);
  end_stream(&streams[0]); /* others have their places */
  call_cancel(&streams[1].call);
  call_wait(&streams[1].call);
  call_fini(&streams[1].call);
  echo_wait(&b->server, &b->server.closed, 2);
  for (int i = RV_MOST_WIDE; i < STREAMS; i++) assert_true(ahead_of(&streams[i]) > RV_BORROWED_WINDOW / 2);
  for (int i = 2; i < STREAMS; i++) end_stream(&streams[i]);
}

/* Nor shares it any memory. */
static void who_does_not_lend_may_send_one_window_ahead(void **state)
{
  both *b = *state;
  measured stream;
  begin_stream(&stream, &b->client);
  assert_true(ahead_of(&stream) <= RV_STREAM_WINDOW);
  end_stream(&stream);
}

/* ---- a peer that pads its frames ---- */

enum { PADDED_MESSAGE = 4 << 20, PADDED_WHOLE = 5 + PADDED_MESSAGE, PADDED_DATA = 512, PADDING = 256 };

typedef struct padder {
  size_t sent;    /* of two messages */
  size_t between; /* frames of nothing but padding between them, to be sent yet */
  size_t pongs;
} padder;

static ssize_t read_padded(nghttp2_session *session, int32_t stream, uint8_t *to, size_t size, uint32_t *flags,
                           nghttp2_data_source *source, void *user)
{
  (void)session, (void)stream, (void)flags, (void)source;
  static const uint8_t prefix[5] = {0, PADDED_MESSAGE >> 24, PADDED_MESSAGE >> 16 & 255, PADDED_MESSAGE >> 8 & 255,
                                    PADDED_MESSAGE & 255};
  padder *sender = user;
  if (sender->sent == PADDED_WHOLE && sender->between > 0) {
    sender->between--;
    return 0;
  }
  if (sender->sent == 2 * PADDED_WHOLE) return NGHTTP2_ERR_DEFERRED;
  size_t at = sender->sent % PADDED_WHOLE, n = size < PADDED_DATA ? size : PADDED_DATA;
  if (n > PADDED_WHOLE - at) n = PADDED_WHOLE - at;
  for (size_t i = 0; i < n; i++) to[i] = at + i < sizeof prefix ? prefix[at + i] : 0;
  sender->sent += n;
  return (ssize_t)n;
}

static ssize_t pad(nghttp2_session *session, const nghttp2_frame *frame_, size_t most, void *user)
{
  (void)session, (void)user;
  size_t padded = frame_->hd.length + (frame_->hd.type == NGHTTP2_DATA ? PADDING : 0);
  return (ssize_t)(padded < most ? padded : most);
}

static int on_pong(nghttp2_session *session, const nghttp2_frame *frame_, void *user)
{
  (void)session;
  padder *sender = user;
  if (frame_->hd.type == NGHTTP2_PING && (frame_->hd.flags & NGHTTP2_FLAG_ACK) != 0) sender->pongs++;
  return 0;
}

static nghttp2_session *open_padding(padder *sender)
{
  nghttp2_session_callbacks *callbacks;
  nghttp2_session *session;
  assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
  nghttp2_session_callbacks_set_select_padding_callback(callbacks, pad);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_pong);
  assert_int_equal(nghttp2_session_client_new(&session, callbacks, sender), 0);
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_submit_settings(session, 0, NULL, 0);
  const char *headers[][2] = {{":method", "POST"}, {":scheme", "http"}, {":path", "/echo/hang"},
                              {":authority", "x"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
  enum { COUNT = sizeof headers / sizeof headers[0] };
  nghttp2_nv nv[COUNT];
  for (size_t i = 0; i < COUNT; i++)
    nv[i] = (nghttp2_nv){(uint8_t *)(uintptr_t)headers[i][0], (uint8_t *)(uintptr_t)headers[i][1], strlen(headers[i][0]),
                         strlen(headers[i][1]), 0};
  nghttp2_data_provider provider = {.read_callback = read_padded};
  assert_int_equal(nghttp2_submit_request(session, NULL, nv, COUNT, &provider, NULL), 1);
  return session;
}

/* Sends what may be sent, then waits until the server has seen it and what it sent thereupon is here: credit, with which there is more to
 * send. PINGs and their answers pass what waits to be sent: the first is sent before it, and the second may be answered before it. */
static void send_padded(nghttp2_session *session, padder *sender, int fd)
{
  for (int round = 0; round < 3; round++) {
    size_t before = sender->sent - sender->between;
    sender->pongs = 0;
    nghttp2_submit_ping(session, 0, NULL);
    const uint8_t *out;
    for (ssize_t n; (n = nghttp2_session_mem_send(session, &out)) > 0;) assert_true(send_raw(fd, out, (size_t)n));
    while (sender->pongs == 0) {
      uint8_t in[4096];
      ssize_t n = recv(fd, in, sizeof in, 0);
      assert_true(n > 0);
      assert_int_equal(nghttp2_session_mem_recv(session, in, (size_t)n), n);
    }
    if (sender->sent - sender->between != before) round = -1;
  }
}

/* Padding counts for flow control: its credit comes back as that of data does, also where nothing but padding comes. */
static void a_peer_that_pads_its_frames_can_send_on(void **state)
{
  both *b = *state;
  padder sender = {.between = (3 << 20) / PADDING};
  nghttp2_session *session = open_padding(&sender);
  int fd = connect_port(rv_grpc_server_port(b->server.grpc, 0));
  while (sender.sent < 2 * PADDED_WHOLE) {
    send_padded(session, &sender, fd);
    assert_true(nghttp2_session_get_stream_remote_window_size(session, 1) > 0);
  }
  echo_wait(&b->server, &b->server.messages, 2);
  close(fd);
  nghttp2_session_del(session);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      EACH_WAY(a_message_of_64_MiB_goes_both_ways),
      EACH_WAY(messages_of_all_sizes_arrive_in_order),
      cmocka_unit_test(too_large_a_message_is_refused_and_other_calls_go_on),
      EACH_WAY(a_paused_call_lets_others_pass),
      OVER_TCP(empty_messages_that_wait_are_counted),
      EACH_WAY(a_client_that_pauses_holds_the_server_back_only_there),
      EACH_WAY(a_sender_is_told_when_the_queue_has_drained),
      EACH_WAY(cancelling_in_the_middle_of_large_messages_leaves_others_alone),
      OVER_RINGS(a_few_streams_of_who_lends_may_be_sent_more_ahead),
      OVER_TCP(who_does_not_lend_may_send_one_window_ahead),
      OVER_TCP(a_peer_that_pads_its_frames_can_send_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
