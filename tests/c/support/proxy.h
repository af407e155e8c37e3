/* A TCP relay between a client and a server that drops connections: after a number of bytes, at once, or for as long as the test
 * says; or lets them stand, and forwards nothing any more. Header only, for tests. */
#ifndef RV_TEST_PROXY_H
#define RV_TEST_PROXY_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/random.h"

enum { PROXY_MAX_CONNECTIONS = 4096 };

typedef struct test_proxy test_proxy;

typedef struct proxied {
  test_proxy *proxy;
  int client, server;
  atomic_bool silent; /* what comes is thrown away */
  pthread_t up, down;
} proxied;

struct test_proxy {
  int listener;
  char address[32];
  atomic_int server_port; /* 0: nobody is there */
  atomic_llong budget;    /* bytes until the next cut; negative budget_max: never */
  int64_t budget_max;
  pthread_mutex_t mutex; /* random, connections */
  rv_random random;
  proxied *connections[PROXY_MAX_CONNECTIONS];
  size_t num_connections;
  atomic_size_t cuts;
  atomic_bool stopping;
  pthread_t thread;
};

static inline void proxy_shut(proxied *connection)
{
  shutdown(connection->client, SHUT_RDWR);
  shutdown(connection->server, SHUT_RDWR);
}

/* Bytes of these `n` that may still pass; fewer than n: the connection is cut behind them. */
static inline size_t proxy_allow(test_proxy *proxy, size_t n)
{
  if (proxy->budget_max < 0) return n;
  long long left = atomic_fetch_sub(&proxy->budget, (long long)n) - (long long)n;
  if (left >= 0) return n;
  pthread_mutex_lock(&proxy->mutex);
  size_t allowed = (size_t)(rv_random_next(&proxy->random) % n);
  atomic_store(&proxy->budget, (long long)(rv_random_next(&proxy->random) % (uint64_t)proxy->budget_max));
  pthread_mutex_unlock(&proxy->mutex);
  atomic_fetch_add(&proxy->cuts, 1);
  return allowed;
}

static inline void proxy_relay(proxied *connection, int from, int to)
{
  char bytes[16384];
  for (;;) {
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0) break;
    if (atomic_load(&connection->silent)) continue;
    size_t allowed = proxy_allow(connection->proxy, (size_t)n), sent = 0;
    while (sent < allowed) {
      ssize_t m = send(to, bytes + sent, allowed - sent, MSG_NOSIGNAL);
      if (m <= 0) break;
      sent += (size_t)m;
    }
    if (sent < (size_t)n) break;
  }
  if (!atomic_load(&connection->silent)) proxy_shut(connection); /* else neither end hears of the other's */
}

static void *proxy_up(void *argument)
{
  proxied *connection = argument;
  proxy_relay(connection, connection->client, connection->server);
  return NULL;
}

static void *proxy_down(void *argument)
{
  proxied *connection = argument;
  proxy_relay(connection, connection->server, connection->client);
  return NULL;
}

static inline int proxy_connect(int port)
{
  int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (port == 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
    close(fd);
    return -1;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static void *proxy_accept(void *argument)
{
  test_proxy *proxy = argument;
  for (;;) {
    int client = accept(proxy->listener, NULL, NULL);
    if (client < 0 || atomic_load(&proxy->stopping)) {
      if (client >= 0) close(client);
      return NULL;
    }
    int server = proxy_connect(atomic_load(&proxy->server_port));
    if (server < 0 || proxy->num_connections == PROXY_MAX_CONNECTIONS) {
      if (server >= 0) close(server);
      close(client);
      continue;
    }
    proxied *connection = malloc(sizeof *connection);
    if (connection == NULL) abort();
    *connection = (proxied){.proxy = proxy, .client = client, .server = server};
    atomic_init(&connection->silent, false);
    pthread_mutex_lock(&proxy->mutex);
    proxy->connections[proxy->num_connections++] = connection; /* from its first byte on it can be cut, and silenced */
    pthread_mutex_unlock(&proxy->mutex);
    if (pthread_create(&connection->up, NULL, proxy_up, connection) != 0) abort();
    if (pthread_create(&connection->down, NULL, proxy_down, connection) != 0) abort();
  }
}

/* budget_max: connections are cut after random numbers of bytes below it; -1: only by proxy_cut. */
static inline void proxy_start(test_proxy *proxy, int server_port, int64_t budget_max, uint64_t seed)
{
  memset(proxy, 0, sizeof *proxy);
  rv_random_init(&proxy->random, seed);
  pthread_mutex_init(&proxy->mutex, NULL);
  atomic_store(&proxy->server_port, server_port);
  proxy->budget_max = budget_max;
  atomic_store(&proxy->budget, budget_max);
  proxy->listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof at;
  if (bind(proxy->listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(proxy->listener, 64) != 0) abort();
  if (getsockname(proxy->listener, (struct sockaddr *)&at, &length) != 0) abort();
  snprintf(proxy->address, sizeof proxy->address, "127.0.0.1:%d", (int)ntohs(at.sin_port));
  if (pthread_create(&proxy->thread, NULL, proxy_accept, proxy) != 0) abort();
}

/* Drops all connections there are. */
static inline void proxy_cut(test_proxy *proxy)
{
  pthread_mutex_lock(&proxy->mutex);
  for (size_t i = 0; i < proxy->num_connections; i++) proxy_shut(proxy->connections[i]);
  pthread_mutex_unlock(&proxy->mutex);
}

/* Both ends of all connections there are find the line up, and nobody on it. */
static inline void proxy_silence(test_proxy *proxy)
{
  pthread_mutex_lock(&proxy->mutex);
  for (size_t i = 0; i < proxy->num_connections; i++) atomic_store(&proxy->connections[i]->silent, true);
  pthread_mutex_unlock(&proxy->mutex);
}

/* No more cuts; what comes passes. */
static inline void proxy_calm(test_proxy *proxy)
{
  atomic_store(&proxy->budget, INT64_MAX / 2);
}

static inline void proxy_stop(test_proxy *proxy)
{
  atomic_store(&proxy->stopping, true);
  shutdown(proxy->listener, SHUT_RDWR);
  pthread_join(proxy->thread, NULL);
  close(proxy->listener);
  proxy_cut(proxy);
  for (size_t i = 0; i < proxy->num_connections; i++) {
    pthread_join(proxy->connections[i]->up, NULL);
    pthread_join(proxy->connections[i]->down, NULL);
    close(proxy->connections[i]->client);
    close(proxy->connections[i]->server);
    free(proxy->connections[i]);
  }
  pthread_mutex_destroy(&proxy->mutex);
}

#endif
