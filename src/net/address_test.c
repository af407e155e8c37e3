#include "net/echo_testing.h"

#include <unistd.h>

#include "net/address.h"

static void addresses_are_taken_apart(void **state)
{
  (void)state;
  rv_address address;
  assert_int_equal(rv_address_parse("localhost:8000", &address, NULL), RV_OK);
  assert_string_equal(address.host, "localhost");
  assert_int_equal(address.port, 8000);
  assert_int_equal(rv_address_parse("[::1]:65535", &address, NULL), RV_OK);
  assert_string_equal(address.host, "::1");
  assert_int_equal(address.port, 65535);
  assert_int_equal(rv_address_parse("unix:/tmp/x", &address, NULL), RV_OK);
  assert_true(address.is_unix);
  assert_string_equal(address.path, "/tmp/x");
  assert_int_equal(rv_address_parse("unix:///tmp/x", &address, NULL), RV_OK);
  assert_string_equal(address.path, "/tmp/x");
  assert_int_equal(rv_address_parse("unix:x", &address, NULL), RV_OK);
  assert_string_equal(address.path, "x");
  assert_int_equal(rv_address_parse("0.0.0.0:0", &address, NULL), RV_OK);
}

static void a_sockets_path_is_what_it_was_when_the_program_goes_elsewhere(void **state)
{
  (void)state;
  rv_address address;
  char here[4096], whole[4200], first[1100];
  assert_non_null(getcwd(here, sizeof here));
  assert_int_equal(chdir("/tmp"), 0);
  assert_int_equal(rv_address_parse("unix:dir/x", &address, NULL), RV_OK);
  rv_address_from_root(&address);
  assert_string_equal(address.path, "/tmp/dir/x");
  assert_string_equal(address.text, "unix:dir/x");
  assert_int_equal(chdir("/"), 0);
  assert_int_equal(rv_address_parse("unix:x", &address, NULL), RV_OK);
  rv_address_from_root(&address);
  assert_string_equal(address.path, "/x");
  static const char *const as_they_are[] = {"unix:/a/b", "unix:@abstract", "localhost:8000"};
  for (size_t i = 0; i < sizeof as_they_are / sizeof *as_they_are; i++) {
    rv_address before;
    assert_int_equal(rv_address_parse(as_they_are[i], &address, NULL), RV_OK);
    before = address;
    rv_address_from_root(&address);
    assert_memory_equal(&address, &before, sizeof address);
  }
  snprintf(first, sizeof first, "unix:%0*d", (int)sizeof address.path - 1, 7); /* as long as one may be */
  assert_int_equal(rv_address_parse(first, &address, NULL), RV_OK);
  rv_address_from_root(&address);
  snprintf(whole, sizeof whole, "unix:%s", address.path);
  assert_string_equal(whole, first);
  assert_int_equal(chdir(here), 0);
}

static void targets_of_grpcs_that_name_one_address_are_taken(void **state)
{
  (void)state;
  static const struct {
    const char *target, *host;
  } right[] = {{"dns:///localhost:8000", "localhost"},
               {"dns:localhost:8000", "localhost"},
               {"dns:///[::1]:8000", "::1"},
               {"ipv4:1.2.3.4:8000", "1.2.3.4"},
               {"ipv6:[::1]:8000", "::1"},
               {"dns:8000", "dns"},
               {"ipv4:8000", "ipv4"}};
  for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
    rv_address address;
    rv_error error = {0};
    if (rv_address_parse(right[i].target, &address, &error) != RV_OK) fail_msg("%s: %s", right[i].target, error.message);
    assert_string_equal(address.host, right[i].host);
    assert_int_equal(address.port, 8000);
    assert_string_equal(address.text, right[i].target);
  }
}

static void a_wrong_address_is_told_what_to_write(void **state)
{
  (void)state;
  static const struct {
    const char *address, *advice;
  } wrong[] = {{"", "empty"},
               {"localhost", "no port"},
               {"/run/replay.sock", "written as unix:/run/replay.sock"},
               {"localhost:", "not a port"},
               {"localhost:70000", "not a port"},
               {"localhost:80x", "not a port"},
               {"localhost:99999999999999999999", "not a port"},
               {":8000", "write localhost:8000 for a server on this machine, or HOST:8000"},
               {"7110", "write localhost:7110 for a server on this machine, or HOST:7110"},
               {"::1:8000", "[::1]:8000"},
               {"[::1", "[::1]:8000"},
               {"[::1]", "no port"},
               {"http://localhost:8000", "URL"},
               {"dns://8.8.8.8/localhost:8000", "URL"},
               {"dns:///localhost", "no port"},
               {"ipv6:::1:8000", "[::1]:8000"},
               {"ipv4:1.2.3.4:8000,5.6.7.8:8000", "by itself"},
               {"dns:///a:1,b:1", "by itself"},
               {"a b:1", "space"},
               {"unix:", "no socket file"},
               {"localhost:0", "free port"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    rv_error error = {0};
    assert_int_equal(rv_address_check(wrong[i].address, &error), RV_INVALID_ARGUMENT);
    if (strstr(error.message, wrong[i].advice) == NULL) fail_msg("%s: %s", wrong[i].address, error.message);
  }
  static const char *const no_host[] = {":7110", "7110"};
  for (size_t i = 0; i < 2; i++) {
    rv_address address;
    rv_error error = {0};
    assert_int_equal(rv_address_parse(no_host[i], &address, &error), RV_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "write localhost:7110 for this machine, or [::]:7110 to listen on all its networks"));
  }
  char long_path[200];
  memset(long_path, 'x', sizeof long_path);
  memcpy(long_path, "unix:", 5);
  long_path[sizeof long_path - 1] = '\0';
  assert_int_equal(rv_address_check(long_path, NULL), RV_INVALID_ARGUMENT);
  char long_host[1000];
  memset(long_host, 'x', sizeof long_host);
  memcpy(long_host + 990, ":1", 3);
  assert_int_equal(rv_address_check(long_host, NULL), RV_INVALID_ARGUMENT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(addresses_are_taken_apart),
      cmocka_unit_test(a_sockets_path_is_what_it_was_when_the_program_goes_elsewhere),
      cmocka_unit_test(targets_of_grpcs_that_name_one_address_are_taken),
      cmocka_unit_test(a_wrong_address_is_told_what_to_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
