/* A line that stands and on which nobody answers any more: both ends notice, free what it held, and go on over another. */
#include "support/rig.h"

#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "net/socket.h"
#include "support/place.h"
#include "support/proxy.h"

enum { TIMEOUT_MS = 300, LONGEST_MS = 64 * TIMEOUT_MS };

static const rv_wait patient = {.timeout_ms = 60000};

typedef struct line {
  test_rig rig;
  test_proxy proxy;
  rv_client *client; /* through the proxy */
  rv_client *here;   /* of the store itself */
} line;

static rv_client *connect_to(const char *address, rv_store *store)
{
  const rv_client_config config = {.size = sizeof config, .address = address, .store = store, .peer_timeout_ms = TIMEOUT_MS};
  rv_client *client = NULL;
  OK(rv_client_new(&config, &client, error));
  return client;
}

static void set_up(line *l)
{
  rv_table_config table = rig_table("t");
  rig_start_with(&l->rig, &table, 1, (rv_server_config){.peer_timeout_ms = TIMEOUT_MS});
  proxy_start(&l->proxy, rv_server_port(l->rig.server, 0), -1, 1);
  l->client = connect_to(l->proxy.address, NULL);
  l->here = connect_to(NULL, l->rig.store);
}

static void tear_down(line *l)
{
  rv_client_free(l->client);
  rv_client_free(l->here);
  proxy_stop(&l->proxy);
  rig_stop(&l->rig);
}

static rv_code add(rv_client *client, float value, rv_error *err)
{
  const rv_tensor column = {.dtype = RV_FLOAT32, .data = &value};
  return rv_client_add(client, "t", &column, 1, 1.0, NULL, &patient, err);
}

typedef struct waiting_batch {
  rv_client *client;
  rv_code code;
  rv_error error;
} waiting_batch;

static void *run_batch(void *argument)
{
  waiting_batch *self = argument;
  rv_batch *batch = NULL;
  self->code = rv_client_sample_batch(self->client, "t", 1, RV_UNEQUAL_ERROR, &patient, &batch, &self->error);
  rv_batch_free(batch);
  return NULL;
}

/* Who waits in the table; "" unless it is one. */
static void who_waits(line *l, char out[64])
{
  rv_table_info info = {.size = sizeof info};
  OK(rv_table_get_info(rig_find(&l->rig, "t"), &info, error));
  snprintf(out, 64, "%s", info.num_waiting_samples == 1 && info.num_waiting == 1 ? info.waiting[0].peer : "");
  rv_table_info_fini(&info);
}

static void a_waiting_sample_goes_on_over_another_connection_and_leaves_nothing_of_the_first(void **state)
{
  (void)state;
  line l;
  set_up(&l);
  waiting_batch waiting = {.client = l.client};
  pthread_t thread;
  pthread_create(&thread, NULL, run_batch, &waiting);
  rig_wait_for_waiting(&l.rig, "t", 0, 1);
  char first[64], now[64] = "";
  who_waits(&l, first);
  proxy_silence(&l.proxy);
  /* the server has let go of the first, and the client has come back */
  for (int i = 0; i < 300000 && (now[0] == '\0' || strcmp(first, now) == 0); i++) {
    who_waits(&l, now);
    usleep(100);
  }
  assert_string_not_equal(now, "");
  assert_string_not_equal(first, now);
  OK(add(l.here, 1, error));
  pthread_join(thread, NULL);
  if (waiting.code != RV_OK) fail_msg("%s: %s", rv_code_name(waiting.code), waiting.error.message);
  tear_down(&l);
}

static void an_insert_on_its_way_is_made_once_over_the_next_connection(void **state)
{
  (void)state;
  line l;
  set_up(&l);
  OK(add(l.client, 1, error));
  for (int i = 0; i < 3; i++) {
    proxy_silence(&l.proxy);
    OK(add(l.client, 2, error));
  }
  rv_table_info info = {.size = sizeof info};
  OK(rv_table_get_info(rig_find(&l.rig, "t"), &info, error));
  assert_int_equal(info.inserts, 4);
  rv_table_info_fini(&info);
  tear_down(&l);
}

static void a_call_that_may_not_be_made_twice_ends_and_says_why(void **state)
{
  (void)state;
  line l;
  set_up(&l);
  OK(add(l.client, 1, error));
  proxy_silence(&l.proxy);
  FAILS(RV_UNAVAILABLE, "was lost: nothing came from the other end for 0.3 s, not even the answer to a PING",
        rv_client_reset(l.client, "t", &patient, error));
  rv_error err;
  rv_code code = RV_UNAVAILABLE;
  for (int i = 0; i < 100 && code == RV_UNAVAILABLE; i++) /* on a busy machine the next line may be taken for dead, too */
    code = rv_client_reset(l.client, "t", &patient, &err);
  if (code != RV_OK) fail_msg("%s: %s", rv_code_name(code), err.message);
  tear_down(&l);
}

static void what_accepts_connections_and_says_nothing_is_given_up_and_named(void **state)
{
  (void)state;
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof name;
  char address[32];
  int listener = socket(AF_INET, SOCK_STREAM, 0); /* the system takes connections for it */
  assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof name), 0);
  assert_int_equal(listen(listener, 64), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &length), 0);
  snprintf(address, sizeof address, "127.0.0.1:%d", (int)ntohs(name.sin_port));
  rv_client *client = connect_to(address, NULL);
  rv_error err = {.message = ""};
  for (int64_t ms = 4 * TIMEOUT_MS; ms <= LONGEST_MS && strstr(err.message, "accepts connections but does not answer") == NULL;
       ms *= 2) { /* on a busy machine a short time passes before it could be seen */
    const rv_wait a_while = {.timeout_ms = ms};
    rv_server_info *info;
    assert_int_equal(rv_client_server_info(client, &a_while, &info, &err), RV_DEADLINE_EXCEEDED);
  }
  assert_non_null(strstr(err.message, "accepts connections but does not answer"));
  rv_client_free(client);
  close(listener);
}

/* ---- those who are there ---- */

/* For longer than the peer timeout. */
static rv_code keep_quiet(int64_t peer_timeout_ms, char message[RV_ERROR_MESSAGE_MAX])
{
  test_rig rig;
  rv_table_config table = rig_table("t");
  rig_start_with(&rig, &table, 1, (rv_server_config){.peer_timeout_ms = peer_timeout_ms});
  test_peer peer;
  peer_open(&peer, rig.address);
  test_stream *stream = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(stream, "t", 1, peer_timeout_ms / 3 * 8); /* nothing is there, so nothing is said for so long */
  rv_code code = stream_end(stream, message);
  stream_free(stream);
  peer_close(&peer);
  rig_stop(&rig);
  return code;
}

static void a_quiet_line_with_somebody_on_it_stays(void **state)
{
  (void)state;
  char message[RV_ERROR_MESSAGE_MAX];
  rv_code code = RV_UNAVAILABLE;
  for (int64_t ms = 1500; ms <= 9000 && code == RV_UNAVAILABLE;
       ms *= 2) /* who stands still for a third of it is taken for dead */
    code = keep_quiet(ms, message);
  assert_int_equal(code, RV_DEADLINE_EXCEEDED);
  assert_non_null(strstr(message, "Rate Limiter")); /* the server's own words */
}

/* Reads frames until one acknowledges a PING, or nothing comes for `ms`; how many were PINGs without an acknowledgement, and with one. */
static void read_frames(int fd, int ms, size_t *asked, size_t *answered)
{
  uint8_t bytes[4096];
  size_t have = 0;
  const struct timeval patience = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  *asked = *answered = 0;
  for (ssize_t n; *answered == 0 && (n = recv(fd, bytes + have, sizeof bytes - have, 0)) > 0;) {
    have += (size_t)n;
    for (size_t length; have >= 9; have -= 9 + length) {
      length = (size_t)bytes[0] << 16 | (size_t)bytes[1] << 8 | bytes[2];
      if (have < 9 + length) break;
      if (bytes[3] == 6) ++*((bytes[4] & 1) != 0 ? answered : asked);
      memmove(bytes, bytes + 9 + length, have - 9 - length);
    }
  }
}

static void who_does_not_say_that_he_answers_is_not_asked_and_stays(void **state)
{
  (void)state;
  static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
  static const char ping[] = "\0\0\x08\x06\0\0\0\0\0reveries";
  line l;
  set_up(&l);
  int fd = proxy_connect(rv_server_port(l.rig.server, 0));
  size_t asked, answered;
  assert_int_equal(send(fd, hello, sizeof hello - 1, MSG_NOSIGNAL), sizeof hello - 1);
  read_frames(fd, 5 * TIMEOUT_MS, &asked, &answered);
  assert_int_equal(asked, 0);
  assert_int_equal(send(fd, ping, sizeof ping - 1, MSG_NOSIGNAL), sizeof ping - 1);
  read_frames(fd, 60000, &asked, &answered);
  assert_int_equal(answered, 1);
  close(fd);
  tear_down(&l);
}

/* He may be far away, or in a debugger. */
static void who_says_that_he_answers_and_does_not_is_let_go(void **state)
{
  (void)state;
  static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\xF5\xE1\0\0\0\x01";
  line l;
  set_up(&l);
  int fd = proxy_connect(rv_server_port(l.rig.server, 0));
  size_t asked, answered;
  assert_int_equal(send(fd, hello, sizeof hello - 1, MSG_NOSIGNAL), sizeof hello - 1);
  read_frames(fd, 60000, &asked, &answered); /* until the server closes */
  assert_int_equal(asked, 1);
  close(fd);
  tear_down(&l);
}

static void the_system_asks_for_those_who_are_not_asked(void **state)
{
  (void)state;
  int fd = socket(AF_INET, SOCK_STREAM, 0), idle = 0, interval = 0, count = 0;
  socklen_t length = sizeof idle;
  rv_socket_probe(fd, INT64_C(10000000000));
  assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &length), 0);
  assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, &length), 0);
  assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, &length), 0);
  assert_true(idle + count * interval <= 10);
  close(fd);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_waiting_sample_goes_on_over_another_connection_and_leaves_nothing_of_the_first),
      cmocka_unit_test(an_insert_on_its_way_is_made_once_over_the_next_connection),
      cmocka_unit_test(a_call_that_may_not_be_made_twice_ends_and_says_why),
      cmocka_unit_test(what_accepts_connections_and_says_nothing_is_given_up_and_named),
      cmocka_unit_test(a_quiet_line_with_somebody_on_it_stays),
      cmocka_unit_test(who_does_not_say_that_he_answers_is_not_asked_and_stays),
      cmocka_unit_test(who_says_that_he_answers_and_does_not_is_let_go),
      cmocka_unit_test(the_system_asks_for_those_who_are_not_asked),
  };
  return cmocka_run_group_tests_name("dead peers", tests, NULL, NULL);
}
