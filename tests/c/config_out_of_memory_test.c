/* reverie-server reads its configuration again while it serves (SIGHUP): memory that is out then is an error, and ends nothing. */
#include "base/failing_testing.h"
#include "support/failing_libraries.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "settings.h"

static const char text[] = "listen: [127.0.0.1:0, 127.0.0.1:1]\n"
                           "limits: {max_connections: 7}\n"
                           "tls: {certificate: server.pem}\n"
                           "identities:\n"
                           "  - {name: actors, token: token-of-the-actors, rights: {replay: insert, queue: [insert, read]}}\n"
                           "  - {name: operator, certificate_name: operator, rights: {\"*\": admin}}\n"
                           "tables:\n"
                           "  - name: replay\n"
                           "    sampler: {kind: prioritized, priority_exponent: 0.6}\n"
                           "    rate_limiter: {kind: min_size, min_size: 1}\n"
                           "    extensions: [statistics, {name: diffusion, options: {steps: 3}}]\n"
                           "    signature: {obs: {dtype: float32, shape: [84, 84]}, more: [{dtype: int8, shape: any}]}\n"
                           "  - {name: queue, preset: \"queue:10\"}\n";

static void memory_that_is_out_is_an_error_wherever_the_file_is_read(void **state)
{
  (void)state;
  char path[] = "/tmp/reverie-config-XXXXXX";
  int file = mkstemp(path);
  assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
  close(file);
  bool failed = true;
  long number = 0;
  for (; failed; number++) {
    settings all;
    rv_error err = {.code = RV_OK, .message = ""};
    settings_init(&all);
    fail_allocation(number);
    bool read = read_config_file(&all, path, &err);
    failed = allocation_failed();
    if (read == failed) fail_msg("%ld: %s", number, err.message);
    if (failed) {
      if (err.code != RV_RESOURCE_EXHAUSTED && err.code != RV_INVALID_ARGUMENT) fail_msg("%s", rv_code_name(err.code));
      if (strstr(err.message, path) == NULL || strstr(err.message, "out of memory") == NULL) fail_msg("\"%s\"", err.message);
    } else {
      assert_int_equal(all.num_identities, 2);
    }
    settings_free(&all);
  }
  assert_true(number > 50);
  unlink(path);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(memory_that_is_out_is_an_error_wherever_the_file_is_read)};
  return cmocka_run_group_tests_name("config, out of memory", tests, NULL, NULL);
}
