/* A server whose log is kept and whose clock can be set, for tests of who may call it. */
#ifndef SECURED_FIXTURE_H
#define SECURED_FIXTURE_H

#include "client_fixture.h"
#include "net/loop.h"
#include "server/server.h"

enum { MOST_STREAMS = 20, MOST_BYTES = 100000 };

typedef struct secured {
  fixture f;
  char log[4096];
  pthread_mutex_t lock;    /* guards log */
  _Atomic int64_t stopped; /* what the server's clock says; 0: the time */
} secured;

static inline int64_t now_of(void *context)
{
  secured *s = context;
  struct timespec now;
  if (s->stopped != 0) return s->stopped;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline void note(void *context, rv_log_level level, const char *line)
{
  secured *s = context;
  (void)level;
  pthread_mutex_lock(&s->lock);
  size_t length = strlen(s->log);
  snprintf(s->log + length, sizeof s->log - length, "%s\n", line);
  pthread_mutex_unlock(&s->lock);
}

static inline void open_server(secured *s, const rv_tls_config *tls, const rv_identity *identities, size_t num_identities)
{
  rv_error err;
  rv_env env;
  *s = (secured){.f = {.way = LOOPBACK}};
  pthread_mutex_init(&s->lock, NULL);
  new_store(&s->f);
  rv_env_default(&env);
  env.log = note;
  env.monotonic_ns = now_of;
  env.context = s;
  env.log_level = RV_LOG_INFO;
  const char *address = "127.0.0.1:0";
  rv_server_config config = {.size = sizeof config,
                             .store = s->f.store,
                             .addresses = &address,
                             .num_addresses = 1,
                             .env = &env,
                             .tls = tls,
                             .identities = identities,
                             .num_identities = num_identities,
                             .max_streams_per_identity = MOST_STREAMS,
                             .max_bytes_per_identity = MOST_BYTES};
  assert_ok(rv_server_new(&config, &s->f.server, &err));
  s->f.port = rv_server_port(s->f.server, 0);
  snprintf(s->f.address, sizeof s->f.address, "127.0.0.1:%u", (unsigned)s->f.port);
}

static inline void close_server(secured *s)
{
  stop_server(&s->f);
  rv_store_unref(s->f.store);
  pthread_mutex_destroy(&s->lock);
}

static inline rv_client *client_of(const secured *s, const char *token, const rv_tls_config *tls)
{
  rv_error err;
  rv_client *client;
  rv_client_config config = {.size = sizeof config, .address = s->f.address, .token = token, .tls = tls};
  assert_ok(rv_client_new(&config, &client, &err));
  return client;
}

static inline rv_code sample(rv_client *client, const char *table, rv_error *err)
{
  rv_batch *batch;
  rv_code code = rv_client_sample_batch(client, table, 1, RV_UNEQUAL_ERROR, &long_enough, &batch, err);
  if (code == RV_OK) rv_batch_free(batch);
  return code;
}

static inline size_t count_in_log(secured *s, const char *what)
{
  pthread_mutex_lock(&s->lock);
  size_t count = 0;
  for (const char *at = s->log; (at = strstr(at, what)) != NULL; at++) count++;
  pthread_mutex_unlock(&s->lock);
  return count;
}

static inline void fire_what_is_due(void *argument)
{
  secured *s = argument;
  const rv_loop *loop = rv_grpc_server_loop(s->f.server->grpc, 0);
  for (rv_timer *first; (first = loop->timers)->at_ns <= s->stopped;) {
    rv_timer_stop(first);
    first->fire(first);
  }
}

static inline void let_pass(secured *s, int64_t seconds)
{
  s->stopped += seconds * INT64_C(1000000000);
  rv_loop_call(rv_grpc_server_loop(s->f.server->grpc, 0), fire_what_is_due, s);
}

#endif
