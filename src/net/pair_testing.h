/* For net's tests: an echo server and a client of it, over each way that bytes can go between them. */
#ifndef RV_NET_PAIR_TESTING_H
#define RV_NET_PAIR_TESTING_H

#include "net/burst_testing.h"

/* What is sent in a message, by its number, so that whatever is mixed up is seen. */
static inline uint8_t byte_of(size_t message, size_t i)
{
  return (uint8_t)(message * 59 + i * 131 + (i >> 11));
}

static inline void check(const uint8_t *data, size_t size, size_t message)
{
  for (size_t i = 0; i < size; i++)
    if (data[i] != byte_of(message, i)) fail_msg("byte %zu of message %zu is another", i, message);
}

/* A server whose clients share memory with it, on one loop. */
static inline rv_grpc_server *start_lending(const char *address,
                                            bool (*on_call)(void *, rv_call *, const char *, const rv_call_events **, void **),
                                            void *context)
{
  rv_grpc_server *server = NULL;
  rv_error err;
  rv_grpc_server_config config = {
      .addresses = &address, .num_addresses = 1, .io_threads = 1, .lends_memory = true, .on_call = on_call, .context = context};
  if (rv_grpc_server_new(&config, &server, &err) != RV_OK) fail_msg("%s", err.message);
  return server;
}

typedef struct both {
  echo_server server;
  echo_client client;
  socket_place place; /* of rings */
} both;

static inline int set_up_over_tcp(void **state)
{
  both *b = calloc(1, sizeof *b);
  assert_non_null(b);
  echo_start(&b->server, "127.0.0.1:0", 2);
  client_open_server(&b->client, &b->server);
  *state = b;
  return 0;
}

/* Mappings of rings that this process has: both ends of a connection are in it. */
static inline int count_mappings(void)
{
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  int count = 0;
  for (char line[500]; fgets(line, sizeof line, maps) != NULL;) count += strstr(line, "memfd:reverie-rings") != NULL;
  fclose(maps);
  return count;
}

/* What was counted so far is forgotten. */
static inline void echo_forget(echo_server *server)
{
  echo_wait(server, &server->closed, echo_count(server, &server->opened));
  rv_mutex_lock(&server->lock);
  server->opened = server->closed = server->messages = server->half_closed = 0;
  memset(server->closed_by_code, 0, sizeof server->closed_by_code);
  rv_mutex_unlock(&server->lock);
}

static inline int set_up_over_rings(void **state)
{
  both *b = calloc(1, sizeof *b);
  assert_non_null(b);
  place_init(&b->place);
  echo_start(&b->server, b->place.address, 2);
  client_open(&b->client, b->place.address);
  call_unary(&b->client, "/echo/unary", "hello", NULL);
  for (int i = 0; i < 20 && count_mappings() < 2; i++) { /* a server that takes a second to answer is spoken to without */
    client_close(&b->client);
    client_open(&b->client, b->place.address);
    call_unary(&b->client, "/echo/unary", "hello", NULL);
  }
  assert_true(count_mappings() >= 2);
  echo_forget(&b->server);
  *state = b;
  return 0;
}

static inline int tear_down_both(void **state)
{
  both *b = *state;
  client_close(&b->client);
  echo_stop(&b->server);
  if (b->place.directory[0] != '\0') place_fini(&b->place);
  free(b);
  return 0;
}

#define OVER_TCP(test)                                                                                                           \
  {                                                                                                                              \
#test " over TCP", test, set_up_over_tcp, tear_down_both, NULL                                                               \
  }
#define OVER_RINGS(test)                                                                                                         \
  {                                                                                                                              \
#test " over rings", test, set_up_over_rings, tear_down_both, NULL                                                           \
  }
#define EACH_WAY(test) OVER_TCP(test), OVER_RINGS(test)

#endif
