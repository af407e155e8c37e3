/* A port of loopback on which a server comes and goes: bound here, too, so that nobody else is given it while no server is there. */
#ifndef RV_TESTS_SUPPORT_HELD_PORT_H
#define RV_TESTS_SUPPORT_HELD_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct held_port {
  int socket;
  char address[32]; /* empty: none is held */
} held_port;

static inline void held_port_open(held_port *held)
{
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof any;
  const int on = 1;
  held->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(setsockopt(held->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  assert_int_equal(bind(held->socket, (struct sockaddr *)&any, size), 0);
  assert_int_equal(getsockname(held->socket, (struct sockaddr *)&any, &size), 0);
  snprintf(held->address, sizeof held->address, "127.0.0.1:%d", ntohs(any.sin_port));
}

static inline void held_port_close(held_port *held)
{
  if (held->address[0] != '\0') close(held->socket);
  held->address[0] = '\0';
}

#endif
