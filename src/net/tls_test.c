/* Calls over TLS: all that calls promise holds there too, and whoever is not trusted is told why. */
#include "net/echo_testing.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/certificates_testing.h"

typedef struct world {
  char folder[64];
  test_authority ours, theirs; /* `theirs` nobody trusts */
} world;

static const char *path(const world *w, const char *name)
{
  static char room[4][128]; /* of the last four */
  static unsigned next;
  char *at = room[next++ % 4];
  snprintf(at, sizeof room[0], "%.60s/%.40s", w->folder, name);
  return at;
}

static int set_up(void **state)
{
  world *w = calloc(1, sizeof *w);
  snprintf(w->folder, sizeof w->folder, "/tmp/reverie-tls-XXXXXX");
  assert_non_null(mkdtemp(w->folder));
  authority_init(&w->ours, "our authority");
  authority_init(&w->theirs, "another authority");
  authority_write(&w->ours, path(w, "ours.pem"));
  authority_write(&w->theirs, path(w, "theirs.pem"));
  authority_issue(&w->ours, path(w, "server.pem"), "server", "DNS:replay.example,IP:127.0.0.1", 3600);
  authority_issue(&w->ours, path(w, "elsewhere.pem"), "server", "DNS:elsewhere.example", 3600);
  authority_issue(&w->ours, path(w, "expired.pem"), "server", "IP:127.0.0.1", -3600);
  authority_issue(&w->ours, path(w, "client.pem"), "actor-7", NULL, 3600);
  authority_issue(&w->ours, path(w, "dns_client.pem"), NULL, "DNS:actor.example", 3600);
  authority_issue(&w->theirs, path(w, "stranger.pem"), "actor-7", NULL, 3600);
  *state = w;
  return 0;
}

static int tear_down(void **state)
{
  static const char *const files[] = {"ours.pem",    "theirs.pem",  "server.pem",     "elsewhere.pem",
                                      "expired.pem", "client.pem",  "dns_client.pem", "stranger.pem",
                                      "broken.pem",  "revoked.pem", "old.pem",        "old_server.pem"};
  world *w = *state;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) unlink(path(w, files[i]));
  assert_int_equal(rmdir(w->folder), 0);
  authority_fini(&w->ours);
  authority_fini(&w->theirs);
  free(w);
  return 0;
}

static rv_tls *tls_of(bool server, const char *certificate, const char *authority, const char *name)
{
  rv_tls_config config = {
      .size = sizeof config, .certificate_file = certificate, .authority_file = authority, .server_name = name};
  rv_tls *tls;
  rv_error error;
  if (rv_tls_new(&config, server, &tls, &error) != RV_OK) fail_msg("%s", error.message);
  return tls;
}

static void start(echo_server *server, rv_tls *owned_tls)
{
  rv_error error;
  if (echo_try_start_tls(server, "127.0.0.1:0", 2, 0, owned_tls, &error) != RV_OK) fail_msg("%s", error.message);
  rv_tls_unref(owned_tls);
}

static void open_client(echo_client *client, const echo_server *server, rv_tls *owned_tls)
{
  char address[64];
  snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)rv_grpc_server_port(server->grpc, 0));
  client_open_tls(client, address, owned_tls);
  rv_tls_unref(owned_tls);
}

/* ---- what holds ---- */

static void calls_are_answered_over_tls(void **state)
{
  const world *w = *state;
  echo_server server;
  echo_client client;
  start(&server, tls_of(true, path(w, "server.pem"), NULL, NULL));
  open_client(&client, &server, tls_of(false, NULL, path(w, "ours.pem"), NULL));
  char answer[64];
  assert_int_equal(call_unary(&client, "/echo/unary", "hello", answer), RV_OK);
  assert_string_equal(answer, "hello");
  assert_string_equal(server.peer_name, "");
  client_close(&client);
  echo_stop(&server);
}

static void large_messages_come_whole_both_ways(void **state)
{
  const world *w = *state;
  echo_server server;
  echo_client client;
  start(&server, tls_of(true, path(w, "server.pem"), NULL, NULL));
  open_client(&client, &server, tls_of(false, NULL, path(w, "ours.pem"), NULL));
  enum { SIZE = 20000003 };
  uint8_t *data = malloc(SIZE);
  for (size_t i = 0; i < SIZE; i++) data[i] = (uint8_t)(i * 31 >> 3);
  test_call call;
  call_init(&call, &client, "/echo/stream");
  call_start(&call);
  for (int i = 0; i < 3; i++) {
    call_send(&call, data, SIZE - (size_t)i);
    call_send(&call, data, 17);
  }
  call_half_close(&call);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.messages, 6);
  assert_int_equal(call.bytes, 3 * (SIZE + 17) - 3);
  assert_int_equal(call.checksum, sum(data, 17));
  call_fini(&call);
  free(data);
  client_close(&client);
  echo_stop(&server);
}

static void a_server_that_sends_much_is_not_left_waiting(void **state)
{
  const world *w = *state;
  echo_server server;
  echo_client client;
  start(&server, tls_of(true, path(w, "server.pem"), NULL, NULL));
  open_client(&client, &server, tls_of(false, NULL, path(w, "ours.pem"), NULL));
  test_call call;
  call_init(&call, &client, "/echo/source");
  call_add(&call, "echo-count", "2000");
  call_add(&call, "echo-size", "40001");
  call_start(&call);
  call_send(&call, "go", 2);
  call_wait(&call);
  assert_int_equal(call.code, RV_OK);
  assert_int_equal(call.bytes, 2000 * 40001);
  call_fini(&call);
  client_close(&client);
  echo_stop(&server);
}

static void a_client_is_known_by_the_name_in_its_certificate(void **state)
{
  const world *w = *state;
  static const char *const file[] = {"client.pem", "dns_client.pem"}, *const name[] = {"actor-7", "actor.example"};
  echo_server server;
  start(&server, tls_of(true, path(w, "server.pem"), path(w, "ours.pem"), NULL));
  for (size_t i = 0; i < 2; i++) {
    echo_client client;
    open_client(&client, &server, tls_of(false, path(w, file[i]), path(w, "ours.pem"), NULL));
    assert_int_equal(call_unary(&client, "/echo/unary", "hello", NULL), RV_OK);
    assert_string_equal(server.peer_name, name[i]);
    client_close(&client);
  }
  echo_stop(&server);
}

static void a_new_certificate_is_used_without_a_restart(void **state)
{
  world *w = *state;
  authority_issue(&w->theirs, path(w, "broken.pem"), "server", "IP:127.0.0.1", 3600);
  rv_tls *tls = tls_of(true, path(w, "broken.pem"), NULL, NULL);
  echo_server server;
  start(&server, rv_tls_ref(tls));
  echo_client before, after;
  open_client(&before, &server, tls_of(false, NULL, path(w, "theirs.pem"), NULL));
  assert_int_equal(call_unary(&before, "/echo/unary", "hello", NULL), RV_OK);
  FILE *file = fopen(path(w, "broken.pem"), "w");
  fputs("half a certificate", file);
  fclose(file);
  rv_error error;
  assert_int_equal(rv_tls_reload(tls, &error), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(error.message, "broken.pem"));
  assert_int_equal(call_unary(&before, "/echo/unary", "hello", NULL), RV_OK);
  authority_issue(&w->ours, path(w, "broken.pem"), "server", "IP:127.0.0.1", 3600);
  assert_int_equal(rv_tls_reload(tls, &error), RV_OK);
  open_client(&after, &server, tls_of(false, NULL, path(w, "ours.pem"), NULL));
  assert_int_equal(call_unary(&after, "/echo/unary", "hello", NULL), RV_OK);
  assert_int_equal(call_unary(&before, "/echo/unary", "hello", NULL), RV_OK);
  client_close(&before);
  client_close(&after);
  echo_stop(&server);
  rv_tls_unref(tls);
}

/* ---- what is refused ---- */

static void fails(echo_server *server, rv_tls *owned_tls, const char *why)
{
  echo_client client;
  test_call call;
  open_client(&client, server, owned_tls);
  call_init(&call, &client, "/echo/unary");
  call_start(&call);
  call_send(&call, "hello", 5);
  call_wait(&call);
  assert_int_equal(call.code, RV_UNAVAILABLE);
  if (strstr(call.message, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", call.message, why);
  call_fini(&call);
  client_close(&client);
}

static void who_is_not_trusted_is_told_why(void **state)
{
  const world *w = *state;
  echo_server server;
  start(&server, tls_of(true, path(w, "server.pem"), path(w, "ours.pem"), NULL));
  fails(&server, tls_of(false, path(w, "client.pem"), path(w, "theirs.pem"), NULL), "is not trusted");
  fails(&server, tls_of(false, path(w, "client.pem"), path(w, "ours.pem"), "other.example"),
        "for another name than \"other.example\"");
  fails(&server, tls_of(false, NULL, path(w, "ours.pem"), NULL), "wants a certificate of this client");
  fails(&server, tls_of(false, path(w, "stranger.pem"), path(w, "ours.pem"), NULL), "does not trust our certificate");
  fails(&server, NULL, "does it expect TLS");
  assert_int_equal(server.opened, 0);
  echo_client client; /* the others are served as before */
  open_client(&client, &server, tls_of(false, path(w, "client.pem"), path(w, "ours.pem"), "replay.example"));
  assert_int_equal(call_unary(&client, "/echo/unary", "hello", NULL), RV_OK);
  client_close(&client);
  echo_stop(&server);
}

static void a_revoked_certificate_is_refused_from_the_next_reading_of_the_list_on(void **state)
{
  world *w = *state;
  authority_issue(&w->ours, path(w, "broken.pem"), "actor-8", NULL, 3600);
  const long theirs = w->ours.serial;
  authority_revoke(&w->ours, path(w, "revoked.pem"), 0, 3600);
  rv_tls_config config = {.size = sizeof config,
                          .certificate_file = strdup(path(w, "server.pem")),
                          .authority_file = strdup(path(w, "ours.pem")),
                          .revocation_file = strdup(path(w, "revoked.pem"))};
  rv_tls *tls;
  rv_error error;
  if (rv_tls_new(&config, true, &tls, &error) != RV_OK) fail_msg("%s", error.message);
  echo_server server;
  start(&server, rv_tls_ref(tls));
  echo_client before, other;
  open_client(&before, &server, tls_of(false, path(w, "broken.pem"), path(w, "ours.pem"), NULL));
  assert_int_equal(call_unary(&before, "/echo/unary", "hello", NULL), RV_OK);
  authority_revoke(&w->ours, config.revocation_file, theirs, -60);
  assert_int_equal(rv_tls_reload(tls, &error), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(error.message, "is out of date"));
  authority_revoke(&w->ours, config.revocation_file, theirs, 3600);
  assert_int_equal(rv_tls_reload(tls, &error), RV_OK);
  fails(&server, tls_of(false, path(w, "broken.pem"), path(w, "ours.pem"), NULL), "says that our certificate was revoked");
  open_client(&other, &server, tls_of(false, path(w, "client.pem"), path(w, "ours.pem"), NULL));
  assert_int_equal(call_unary(&other, "/echo/unary", "hello", NULL), RV_OK);
  assert_int_equal(call_unary(&before, "/echo/unary", "hello", NULL), RV_OK); /* a connection that stands goes on */
  client_close(&before);
  client_close(&other);
  echo_stop(&server);
  rv_tls_unref(tls);
  free((void *)(uintptr_t)config.certificate_file);
  free((void *)(uintptr_t)config.authority_file);
  free((void *)(uintptr_t)config.revocation_file);
}

/* What a client of OpenSSL's own keeps of its connection: could it come back without showing its certificate? */
static bool may_resume(const world *w, const echo_server *server, int version)
{
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(rv_grpc_server_port(server->grpc, 0)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_min_proto_version(context, version);
  SSL_CTX_set_max_proto_version(context, version);
  SSL_CTX_set_alpn_protos(context, (const unsigned char *)"\x02h2", 3);
  assert_int_equal(SSL_CTX_use_certificate_chain_file(context, path(w, "client.pem")), 1);
  assert_int_equal(SSL_CTX_use_PrivateKey_file(context, path(w, "client.pem"), SSL_FILETYPE_PEM), 1);
  SSL *ssl = SSL_new(context);
  char answer[9];
  SSL_set_fd(ssl, fd);
  assert_int_equal(SSL_connect(ssl), 1);
  assert_int_equal(SSL_write(ssl, preface, sizeof preface - 1), sizeof preface - 1);
  assert_true(SSL_read(ssl, answer, sizeof answer) > 0); /* tickets come before it */
  SSL_SESSION *session = SSL_get1_session(ssl);
  bool may = SSL_SESSION_is_resumable(session) == 1;
  SSL_SESSION_free(session);
  SSL_free(ssl);
  SSL_CTX_free(context);
  close(fd);
  return may;
}

static void who_must_show_a_certificate_shows_it_each_time(void **state)
{
  const world *w = *state;
  static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
  for (size_t i = 0; i < 2; i++) {
    echo_server asks, does_not;
    start(&asks, tls_of(true, path(w, "server.pem"), path(w, "ours.pem"), NULL));
    start(&does_not, tls_of(true, path(w, "server.pem"), NULL, NULL));
    assert_false(may_resume(w, &asks, versions[i]));
    assert_true(may_resume(w, &does_not, versions[i]));
    echo_stop(&asks);
    echo_stop(&does_not);
  }
}

/* What expires while a server runs is refused by clients, or refuses them. */
static void whose_time_is_over_is_told_so(void **state)
{
  const world *w = *state;
  test_authority old;
  authority_init(&old, "old authority");
  X509_gmtime_adj(X509_getm_notAfter(old.certificate), -60);
  assert_true(X509_sign(old.certificate, old.key, EVP_sha256()) > 0);
  authority_write(&old, path(w, "old.pem"));
  authority_issue(&old, path(w, "old_server.pem"), "server", "IP:127.0.0.1", 3600);
  echo_server server;
  start(&server, tls_of(true, path(w, "old_server.pem"), NULL, NULL));
  fails(&server, tls_of(false, NULL, path(w, "old.pem"), NULL), "has expired, or its authority's has; have it renewed there");
  echo_stop(&server);
  start(&server, tls_of(true, path(w, "server.pem"), path(w, "old.pem"), NULL));
  fails(&server, tls_of(false, path(w, "old_server.pem"), path(w, "ours.pem"), NULL), "says that our certificate has expired");
  echo_stop(&server);
  authority_fini(&old);
}

typedef struct lines {
  size_t warnings, errors;
  char last[400];
} lines;

static void note_line(void *context, rv_log_level level, const char *line)
{
  lines *noted = context;
  noted->warnings += level == RV_LOG_WARNING;
  noted->errors += level == RV_LOG_ERROR;
  snprintf(noted->last, sizeof noted->last, "%s", line);
}

static void tells(rv_tls *tls, int64_t before_s, int64_t now_s, size_t warnings, size_t errors, const char *what)
{
  lines noted = {0};
  rv_env env;
  rv_env_default(&env);
  env.context = &noted;
  env.log = note_line;
  rv_tls_log_dates(tls, &env, before_s, now_s);
  assert_int_equal(noted.warnings, warnings);
  assert_int_equal(noted.errors, errors);
  if (strstr(noted.last, what) == NULL) fail_msg("\"%s\" does not say \"%s\"", noted.last, what);
}

static void what_will_expire_is_told_two_weeks_ahead_and_what_has_expired_too(void **state)
{
  enum { DAY = 86400 };
  world *w = *state;
  const int64_t now = (int64_t)time(NULL);
  authority_issue(&w->ours, path(w, "broken.pem"), "server", NULL, 100 * DAY);
  rv_tls *tls = tls_of(true, path(w, "broken.pem"), NULL, NULL);
  tells(tls, 0, now + 85 * DAY, 0, 0, "");
  tells(tls, now + 85 * DAY, now + 87 * DAY, 1, 0, "broken.pem\" expires in 13.0 days");
  tells(tls, now + 87 * DAY, now + 88 * DAY, 0, 0, "");
  tells(tls, 0, now + 88 * DAY, 1, 0, "the certificate in");
  tells(tls, now + 88 * DAY, now + 101 * DAY, 0, 1, "has expired");
  tells(tls, now + 101 * DAY, now + 102 * DAY, 0, 0, "");
  authority_issue(&w->ours, path(w, "broken.pem"), "server", NULL, 8 * DAY); /* for nine in all: three of them are time enough */
  rv_error error;
  assert_int_equal(rv_tls_reload(tls, &error), RV_OK);
  tells(tls, 0, now + 4 * DAY, 0, 0, "");
  tells(tls, 0, now + 6 * DAY, 1, 0, "expires in 2.0 days");
  rv_tls_unref(tls);
  authority_revoke(&w->ours, path(w, "revoked.pem"), 0, 30 * DAY);
  rv_tls_config config = {.size = sizeof config,
                          .certificate_file = path(w, "broken.pem"),
                          .authority_file = path(w, "ours.pem"),
                          .revocation_file = path(w, "revoked.pem")};
  if (rv_tls_new(&config, true, &tls, &error) != RV_OK) fail_msg("%s", error.message);
  tells(tls, 0, now + DAY / 2, 1, 0, "the authority's certificate in");
  tells(tls, now + 9 * DAY, now + 29 * DAY, 1, 0, "the revocation list in");
  tells(tls, 0, now + 31 * DAY, 0, 3, "fetch the authority's new one");
  rv_tls_unref(tls);
}

static void the_address_must_be_in_the_certificate(void **state)
{
  const world *w = *state;
  echo_server server;
  start(&server, tls_of(true, path(w, "elsewhere.pem"), NULL, NULL));
  fails(&server, tls_of(false, NULL, path(w, "ours.pem"), NULL), "for another name than \"127.0.0.1\"");
  echo_stop(&server);
}

static void a_server_without_tls_is_told_apart(void **state)
{
  const world *w = *state;
  echo_server server;
  echo_start(&server, "127.0.0.1:0", 1);
  fails(&server, tls_of(false, NULL, path(w, "ours.pem"), NULL), "does not speak TLS");
  echo_stop(&server);
}

static void refuses(const rv_tls_config *config, bool server, const char *why)
{
  rv_tls *tls;
  rv_error error;
  assert_int_equal(rv_tls_new(config, server, &tls, &error), RV_INVALID_ARGUMENT);
  if (strstr(error.message, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", error.message, why);
}

static void files_that_cannot_be_used_are_named(void **state)
{
  const world *w = *state;
  rv_tls_config config = {.size = sizeof config};
  refuses(&config, true, "needs a certificate");
  config.certificate_file = path(w, "nowhere.pem");
  refuses(&config, true, "nowhere.pem\" cannot be read: No such file");
  config.certificate_file = path(w, "expired.pem");
  refuses(&config, true, "expired.pem\" has expired");
  config.certificate_file = path(w, "server.pem");
  config.key_file = path(w, "client.pem");
  refuses(&config, true, "client.pem\" cannot be used");
  key_write(path(w, "broken.pem"), NULL);
  config.key_file = path(w, "broken.pem"); /* of another kind, as when a renewal is half copied */
  refuses(&config, true, "broken.pem\" cannot be used");
  key_write(config.key_file, "a password that nobody is asked for");
  refuses(&config, true, "without a password");
  config.key_file = NULL;
  config.certificate_file = path(w, "ours.pem"); /* the authority's, whose key is nowhere */
  refuses(&config, true, "certificate file \"");
  refuses(&config, true, "no key file is given");
  config.certificate_file = path(w, "server.pem");
  config.authority_file = path(w, "broken.pem");
  FILE *file = fopen(config.authority_file, "w");
  fclose(file);
  refuses(&config, true, "broken.pem\" cannot be used");
  config.authority_file = NULL;
  config.revocation_file = path(w, "broken.pem");
  refuses(&config, true, "give the authority_file");
  config.authority_file = path(w, "ours.pem");
  refuses(&config, true, "broken.pem\" cannot be used");
  config = (rv_tls_config){.size = sizeof config, .key_file = path(w, "client.pem")};
  refuses(&config, false, "no certificate");
}

static void a_server_name_that_no_certificate_has_is_refused(void **state)
{
  (void)state;
  char name[300] = "";
  rv_tls_config config = {.size = sizeof config, .server_name = name};
  refuses(&config, false, "server_name of 0 characters");
  memset(name, 'a', 256);
  refuses(&config, false, "server_name of 256 characters");
}

static void a_unix_socket_takes_no_tls(void **state)
{
  const world *w = *state;
  rv_loop *loop;
  rv_channel *channel;
  rv_error error;
  rv_tls *tls = tls_of(false, NULL, path(w, "ours.pem"), NULL);
  assert_int_equal(rv_loop_new(NULL, "client", &loop, &error), RV_OK);
  rv_channel_config config = {.loop = loop, .address = "unix:/tmp/socket", .tls = tls};
  assert_int_equal(rv_channel_new(&config, &channel, &error), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(error.message, "needs no TLS"));
  rv_loop_free(loop);
  rv_tls_unref(tls);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_are_answered_over_tls),
      cmocka_unit_test(large_messages_come_whole_both_ways),
      cmocka_unit_test(a_server_that_sends_much_is_not_left_waiting),
      cmocka_unit_test(a_client_is_known_by_the_name_in_its_certificate),
      cmocka_unit_test(a_new_certificate_is_used_without_a_restart),
      cmocka_unit_test(who_is_not_trusted_is_told_why),
      cmocka_unit_test(a_revoked_certificate_is_refused_from_the_next_reading_of_the_list_on),
      cmocka_unit_test(who_must_show_a_certificate_shows_it_each_time),
      cmocka_unit_test(whose_time_is_over_is_told_so),
      cmocka_unit_test(what_will_expire_is_told_two_weeks_ahead_and_what_has_expired_too),
      cmocka_unit_test(the_address_must_be_in_the_certificate),
      cmocka_unit_test(a_server_without_tls_is_told_apart),
      cmocka_unit_test(files_that_cannot_be_used_are_named),
      cmocka_unit_test(a_server_name_that_no_certificate_has_is_refused),
      cmocka_unit_test(a_unix_socket_takes_no_tls),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
