/* A server over TLS: whom a certificate makes known, and what its log says of certificates and of those who are kept out. */
#include "secured_fixture.h"

#include <arpa/inet.h>

#include "net/certificates_testing.h"
#include "net/raw_testing.h"

static void a_certificate_tells_who_calls(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  char folder[] = "/tmp/rv-test-XXXXXX", ours[64], server[64], client_file[64], stranger[64];
  assert_non_null(mkdtemp(folder));
  snprintf(ours, sizeof ours, "%s/ours.pem", folder);
  snprintf(server, sizeof server, "%s/server.pem", folder);
  snprintf(client_file, sizeof client_file, "%s/client.pem", folder);
  snprintf(stranger, sizeof stranger, "%s/stranger.pem", folder);
  test_authority authority;
  authority_init(&authority, "ours");
  authority_write(&authority, ours);
  authority_issue(&authority, server, "server", "IP:127.0.0.1", 3600);
  authority_issue(&authority, client_file, "actor-7", NULL, 3600);
  authority_issue(&authority, stranger, "actor-8", NULL, 3600);
  const rv_grant grants[] = {{"replay", RV_RIGHT_INSERT}};
  const rv_identity identity = {.name = "seventh", .certificate_name = "actor-7", .grants = grants, .num_grants = 1};
  const rv_tls_config tls = {.size = sizeof tls, .certificate_file = server, .authority_file = ours};
  open_server(&s, &tls, &identity, 1);
  rv_tls_config mine = {.size = sizeof mine, .certificate_file = client_file, .authority_file = ours};
  rv_client *known = client_of(&s, NULL, &mine);
  assert_ok(add_value(known, "replay", 1, 1.0, NULL, &long_enough, &err));
  assert_code(sample(known, "replay", &err), RV_PERMISSION_DENIED);
  assert_says("seventh");
  mine.certificate_file = stranger;
  rv_client *unknown = client_of(&s, NULL, &mine);
  assert_code(add_value(unknown, "replay", 1, 1.0, NULL, &long_enough, &err), RV_UNAUTHENTICATED);
  assert_says("the name \"actor-8\"");
  assert_ok(rv_server_reload_tls(s.f.server, &err));
  unlink(server);
  assert_code(rv_server_reload_tls(s.f.server, &err), RV_INVALID_ARGUMENT);
  assert_ok(add_value(known, "replay", 1, 1.0, NULL, &long_enough, &err));
  rv_client_free(known);
  rv_client_free(unknown);
  close_server(&s);
  unlink(ours);
  unlink(client_file);
  unlink(stranger);
  rmdir(folder);
  authority_fini(&authority);
}

static void do_nothing(void *argument)
{
  (void)argument;
}

/* This machine has all of 127.0.0.0/8. */
static int connect_from(const char *address, uint16_t port)
{
  struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET, .sin_port = htons(port)};
  assert_int_equal(inet_pton(AF_INET, address, &from.sin_addr), 1);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

/* And is refused; what is logged of it is. */
static void speak_in_the_clear(secured *s, const char *address)
{
  int fd = connect_from(address, s->f.port);
  send_raw(fd, "GET / HTTP/1.1\r\n\r\n", 18);
  read_to_end(fd);
  close(fd);
  for (size_t i = 0; i < rv_grpc_server_num_loops(s->f.server->grpc); i++)
    rv_loop_call(rv_grpc_server_loop(s->f.server->grpc, i), do_nothing, NULL);
}

static void the_log_says_whom_tls_keeps_out_and_what_expires(void **state)
{
  (void)state;
  secured s;
  rv_error err;
  char folder[] = "/tmp/rv-test-XXXXXX", file[64];
  assert_non_null(mkdtemp(folder));
  snprintf(file, sizeof file, "%s/server.pem", folder);
  test_authority authority;
  authority_init(&authority, "ours");
  authority_issue(&authority, file, "server", "IP:127.0.0.1", 3600);
  const rv_tls_config tls = {.size = sizeof tls, .certificate_file = file};
  open_server(&s, &tls, NULL, 0);
  s.stopped = now_of(&s);
  assert_int_equal(count_in_log(&s, "TLS: the certificate in \"/tmp/rv-test-"), 1); /* for an hour more it is good */
  assert_ok(rv_server_reload_tls(s.f.server, &err));
  assert_int_equal(count_in_log(&s, "TLS: the certificate in"), 2);
  let_pass(&s, 61);
  assert_int_equal(count_in_log(&s, "TLS: the certificate in"), 2);
  let_pass(&s, 86400);
  assert_int_equal(count_in_log(&s, "TLS: the certificate in"), 3);
  for (int i = 0; i < 15; i++) speak_in_the_clear(&s, "127.0.0.1");
  assert_int_equal(count_in_log(&s, "a TLS handshake failed: the connection from ipv4:127.0.0.1:"), 10);
  assert_int_equal(count_in_log(&s, "the client does not speak TLS"), 10);
  speak_in_the_clear(&s, "127.0.0.2"); /* whoever tries again and again does not hide others */
  assert_int_equal(count_in_log(&s, "a TLS handshake failed: the connection from ipv4:127.0.0.2:"), 1);
  let_pass(&s, 180);
  assert_int_equal(count_in_log(&s, "of TLS handshakes 5 more failed that are not in the log"), 1);
  s.stopped = 0;
  close_server(&s);
  unlink(file);
  rmdir(folder);
  authority_fini(&authority);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_certificate_tells_who_calls),
      cmocka_unit_test(the_log_says_whom_tls_keeps_out_and_what_expires),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
