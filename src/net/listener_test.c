/* Socket files that are left over, and servers that begin at once. */
#include "net/listener.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "net/socket.h"

enum { SERVERS = 4, ROUNDS = 300 };

typedef struct starter {
  pthread_barrier_t *begin;
  rv_address address;
  rv_listener listener;
  rv_code code;
} starter;

static void *start(void *argument)
{
  starter *self = argument;
  pthread_barrier_wait(self->begin);
  self->code = rv_listener_open(&self->address, &self->listener, NULL);
  return NULL;
}

/* As of a server that was killed. */
static void leave_socket(const rv_sockaddr *name)
{
  int fd = rv_socket_open(AF_UNIX);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (const struct sockaddr *)&name->storage, name->length), 0);
  close(fd);
}

static void of_servers_that_begin_at_once_one_has_the_socket_that_was_left_over(void **state)
{
  (void)state;
  char directory[] = "/tmp/reverie-listener-XXXXXX", text[64];
  assert_non_null(mkdtemp(directory));
  snprintf(text, sizeof text, "unix:%s/socket", directory);
  pthread_barrier_t begin;
  assert_int_equal(pthread_barrier_init(&begin, NULL, SERVERS), 0);
  for (int round = 0; round < ROUNDS; round++) {
    starter servers[SERVERS];
    pthread_t threads[SERVERS];
    rv_sockaddr name;
    for (int i = 0; i < SERVERS; i++) {
      servers[i] = (starter){.begin = &begin};
      assert_int_equal(rv_address_parse(text, &servers[i].address, NULL), RV_OK);
    }
    assert_true(rv_sockaddr_of_address(&servers[0].address, &name));
    leave_socket(&name);
    for (int i = 0; i < SERVERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, start, &servers[i]), 0);
    for (int i = 0; i < SERVERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    int listening = 0;
    for (int i = 0; i < SERVERS; i++) listening += servers[i].code == RV_OK;
    int fd = rv_socket_open(AF_UNIX);
    assert_int_equal(rv_socket_connect(fd, &name), 0);
    close(fd);
    for (int i = 0; i < SERVERS; i++)
      if (servers[i].code == RV_OK) rv_listener_close(&servers[i].listener);
    assert_int_equal(listening, 1);
    assert_int_not_equal(access(servers[0].address.path, F_OK), 0);
  }
  pthread_barrier_destroy(&begin);
  rmdir(directory);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_servers_that_begin_at_once_one_has_the_socket_that_was_left_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
