#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/memory.h"

enum {
  REFUSALS_A_SECOND = 10,        /* that are in the log, of one caller; */
  REFUSALS_OF_ALL_A_SECOND = 20, /* of all */
  LAST_WORDS_MS = 500            /* for trailers to reach clients that read, after everything was ended */
};

static const size_t default_message_bytes = (size_t)256 << 20, default_connections = 10000, default_streams = 10000,
                    default_sessions = 100000, default_chunk_bytes = (size_t)1 << 30, default_orphan_bytes = (size_t)1 << 30,
                    default_caller_streams = 50000, default_caller_bytes = (size_t)16 << 30;
static const int64_t default_session_ttl_ms = 3600 * 1000, first_log_ns = INT64_C(10000000000), day_ns = INT64_C(86400000000000);

/* ---- making one ---- */

static size_t or_default(size_t value, size_t fallback)
{
  return value == 0 ? fallback : value;
}

static rv_code start_saver(rv_server *server, const rv_server_config *config, rv_error *err)
{
  const rv_saver_config saver = {.size = sizeof saver,
                                 .store = server->store,
                                 .checkpointer = config->checkpointer,
                                 .env = &server->env,
                                 .every_ms = config->checkpoint_every_ms,
                                 .every_inserts = config->checkpoint_every_inserts,
                                 .every_journal_bytes = config->checkpoint_journal_bytes};
  return rv_saver_new(&saver, &server->saver, err);
}

/* All that expires, and after that what does so since. */
static void tell_dates(rv_server *server, bool all)
{
  if (server->tls == NULL) return;
  int64_t now_ns = rv_monotonic_ns(&server->env), now_s = rv_wall_ns(&server->env) / 1000000000;
  rv_mutex_lock(&server->lock);
  if (now_ns - server->dates_told_ns >= day_ns) all = true;
  int64_t before_s = all ? 0 : server->dates_seen_s;
  if (all) server->dates_told_ns = now_ns;
  server->dates_seen_s = now_s;
  rv_mutex_unlock(&server->lock);
  rv_tls_log_dates(server->tls, &server->env, before_s, now_s);
}

static void on_minute(void *context)
{
  rv_service_tell_refusals(context);
  tell_dates(context, false);
}

/* 0: there is none. */
static size_t memory_limit(void *context)
{
  const rv_server *server = context;
  size_t limit = rv_memory_limit(rv_store_memory(server->store));
  return limit == SIZE_MAX ? 0 : limit;
}

static rv_code start(rv_server *server, const rv_server_config *config, rv_error *err)
{
  rv_grpc_server_config grpc = {
      .env = &server->env,
      .addresses = config->addresses,
      .num_addresses = config->num_addresses,
      .io_threads = config->io_threads,
      .max_message_bytes = server->max_message_bytes,
      .max_connections = or_default(config->max_connections, default_connections),
      .max_connections_per_address = config->max_connections_per_address,
      .max_streams_per_connection = or_default(config->max_streams_per_connection, default_streams),
      .shares_memory = !config->no_shared_memory,
      .lends_memory = !config->no_shared_memory && server->access == NULL, /* whoever can read one table can then read all */
      .memory_limit = memory_limit,
      .peer_timeout_ms = config->peer_timeout_ms,
      .tls = server->tls,
      .on_call = rv_service_on_call,
      .on_minute = on_minute,
      .context = server,
  };
  rv_code code = rv_grpc_server_new(&grpc, &server->grpc, err);
  if (code != RV_OK) return code;
  for (size_t i = 0; i < config->num_addresses; i++) server->ports[i] = rv_grpc_server_port(server->grpc, i);
  return RV_OK;
}

static rv_code make_secure(rv_server *server, const rv_server_config *config, rv_error *err)
{
  rv_code code = config->tls != NULL ? rv_tls_new(config->tls, true, &server->tls, err) : RV_OK;
  if (code == RV_OK && config->identities != NULL)
    code = rv_access_new(config->identities, config->num_identities, NULL, &server->access, err);
  return code;
}

static void destroy(rv_server *server)
{
  rv_saver_free(server->saver);
  rv_journal_unref(server->journal);
  rv_access_unref(server->access);
  rv_tls_unref(server->tls);
  rv_cond_fini(&server->changed);
  rv_mutex_fini(&server->lock);
  rv_store_unref(server->store);
  rv_maker_fini(&server->maker);
  free(server->ports);
  free(server);
}

static rv_code check(const rv_server_config *config, rv_error *err)
{
  if (config == NULL || config->store == NULL) return rv_fail(err, RV_INVALID_ARGUMENT, "a server needs a store");
  if (config->identities == NULL && config->num_identities > 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "num_identities is %zu, but there are no identities", config->num_identities);
  if (config->addresses == NULL || config->num_addresses == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a server needs at least one address, such as \"127.0.0.1:8000\"");
  rv_code code = rv_check_max_message(config->max_message_bytes, err);
  if (code != RV_OK) return code;
  if (config->io_threads > RV_SERVER_LOOPS_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "io_threads is %u; it must not exceed %d", config->io_threads, RV_SERVER_LOOPS_MAX);
  if (config->writer_session_ttl_ms < 0 || config->writer_session_ttl_ms > INT64_MAX / 1000000)
    return rv_fail(err, RV_INVALID_ARGUMENT, "writer_session_ttl_ms is %" PRId64 "; it must be a positive number of milliseconds",
                   config->writer_session_ttl_ms);
  if (config->checkpoint_every_ms < 0 || config->checkpoint_every_ms > INT64_MAX / 1000000 ||
      config->checkpoint_every_inserts < 0)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "checkpoint_every_ms is %" PRId64 " and checkpoint_every_inserts %" PRId64 "; neither may be negative",
                   config->checkpoint_every_ms, config->checkpoint_every_inserts);
  if (config->checkpointer == NULL && (config->checkpoint_every_ms > 0 || config->checkpoint_every_inserts > 0))
    return rv_fail(err, RV_INVALID_ARGUMENT, "checkpoints are to be saved, but there is no checkpointer; give one");
  if (config->journal != NULL && rv_journal_store(config->journal) != config->store)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the journal is another store's: give the store that it was recovered with");
  if (config->checkpoint_journal_bytes < 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "checkpoint_journal_bytes is %" PRId64 "; it must not be negative",
                   config->checkpoint_journal_bytes);
  return RV_OK;
}

rv_code rv_server_new(const rv_server_config *config, rv_server **out, rv_error *err)
{
  /* A caller compiled against an older header gives a shorter struct: what it does not know is 0. */
  rv_server_config full = {0};
  if (config != NULL) memcpy(&full, config, config->size < sizeof full ? config->size : sizeof full);
  rv_code code = check(&full, err);
  if (code != RV_OK) return code;
  rv_server *server = calloc(1, sizeof *server);
  uint16_t *ports = calloc(full.num_addresses, sizeof *ports);
  if (server == NULL || ports == NULL) {
    free(server);
    free(ports);
    return rv_fail_memory(err, sizeof *server);
  }
  rv_maker_init(&server->maker);
  rv_env_fill(&server->env, full.env != NULL ? full.env : rv_store_env(full.store));
  server->store = rv_store_ref(full.store);
  server->ports = ports;
  server->num_addresses = full.num_addresses;
  server->max_message_bytes = or_default(full.max_message_bytes, default_message_bytes);
  server->max_stream_chunk_bytes = or_default(full.max_stream_chunk_bytes, default_chunk_bytes);
  server->max_orphan_bytes = or_default(full.max_orphan_bytes, default_orphan_bytes);
  server->caller_limits = (rv_caller_limits){.max_streams = or_default(full.max_streams_per_identity, default_caller_streams),
                                             .max_bytes = or_default(full.max_bytes_per_identity, default_caller_bytes)};
  atomic_init(&server->orphan_bytes, 0);
  atomic_init(&server->num_inserters, 0);
  atomic_init(&server->draining, false);
  server->refusals = server->denials = server->failed = server->orphans =
      (rv_log_budget){.most = REFUSALS_OF_ALL_A_SECOND, .most_each = REFUSALS_A_SECOND, .period_ns = 1000000000};
  rv_mutex_init(&server->lock, RV_RANK_SERVER, "server");
  rv_cond_init(&server->changed);
  server->journal = full.journal != NULL ? rv_journal_ref(full.journal) : rv_journal_of(server->store);
  uint64_t id[2];
  rv_store_state_id(server->store, id);
  snprintf(server->state_id, sizeof server->state_id, "%016" PRIx64 "%016" PRIx64, id[0], id[1]);
  int64_t ttl_ms = full.writer_session_ttl_ms == 0 ? default_session_ttl_ms : full.writer_session_ttl_ms;
  server->session_limits = (rv_writer_session_limits){.max_sessions = or_default(full.max_writer_sessions, default_sessions),
                                                      .ttl_ns = ttl_ms * 1000000,
                                                      .journal = server->journal};
  code = rv_writer_sessions_of_store(server->store, server->journal, &server->sessions, err);
  if (code == RV_OK) code = make_secure(server, &full, err);
  if (code == RV_OK && full.checkpointer != NULL) code = start_saver(server, &full, err);
  if (code == RV_OK) code = start(server, &full, err);
  if (code == RV_OK) tell_dates(server, true);
  if (code != RV_OK) {
    destroy(server);
    return code;
  }
  *out = server;
  return RV_OK;
}

rv_code rv_server_reload_tls(rv_server *server, rv_error *err)
{
  if (server->tls == NULL) return rv_fail(err, RV_FAILED_PRECONDITION, "the server has no TLS whose files could be read again");
  rv_code code = rv_tls_reload(server->tls, err);
  if (code == RV_OK) tell_dates(server, true);
  return code;
}

uint16_t rv_server_port(const rv_server *server, size_t index)
{
  return index < server->num_addresses ? server->ports[index] : 0;
}

/* ---- all streams ---- */

typedef struct sweep_of_loop {
  rv_server_loop *loop;
  rv_sweep kind;
  const rv_access *access; /* of RV_SWEEP_REVOKE: the new one */
  size_t ended;            /* by RV_SWEEP_REVOKE */
} sweep_of_loop;

static bool concerns(const sweep_of_loop *sweep, const rv_server_stream *stream)
{
  if (sweep->kind != RV_SWEEP_REVOKE) return true;
  if (stream->ops->open_to_all || stream->access == sweep->access) return false;
  return stream->caller == NULL || !rv_access_has(sweep->access, stream->caller);
}

/* On the loop's thread. A sweep may end its own stream, but no other. */
static void sweep_loop(void *argument)
{
  sweep_of_loop *sweep = argument;
  for (rv_link *link = sweep->loop->streams.next, *next; link != &sweep->loop->streams; link = next) {
    next = link->next;
    rv_server_stream *stream = RV_CONTAINER(link, rv_server_stream, link);
    if (!concerns(sweep, stream)) continue;
    sweep->ended += rv_server_stream_is_open(stream);
    stream->ops->sweep(stream, sweep->kind);
  }
}

/* How many calls were open that it concerned. */
static size_t sweep_all(rv_server *server, rv_sweep kind, const rv_access *access)
{
  size_t ended = 0;
  rv_mutex_lock(&server->lock);
  size_t num_loops = server->num_loops; /* entries below it do not change any more */
  rv_mutex_unlock(&server->lock);
  for (size_t i = 0; i < num_loops; i++) {
    sweep_of_loop sweep = {.loop = &server->loops[i], .kind = kind, .access = access};
    rv_loop_call(sweep.loop->loop, sweep_loop, &sweep);
    ended += sweep.ended;
  }
  return ended;
}

/* While others' lists are swept in, it waits: first come, first served. One reference; RV_FAILED_PRECONDITION: it does not run any more. */
static rv_code access_in_force(rv_server *server, rv_access **out, rv_error *err)
{
  rv_mutex_lock(&server->lock);
  while (server->num_sweepers > 0) rv_cond_wait(&server->changed, &server->lock);
  bool runs = server->phase == RV_SERVER_RUNS;
  *out = runs ? rv_access_ref(server->access) : NULL;
  rv_mutex_unlock(&server->lock);
  return runs ? RV_OK : rv_fail(err, RV_FAILED_PRECONDITION, "the server is stopped, or about to be");
}

/* Takes the place of the one before, unless another has. */
static bool put_in_force(rv_server *server, rv_access *access, const rv_access *before)
{
  rv_mutex_lock(&server->lock);
  bool mine = server->phase == RV_SERVER_RUNS && server->num_sweepers == 0 && server->access == before;
  if (mine) {
    rv_access_unref(server->access);
    server->access = rv_access_ref(access);
    server->num_sweepers++;
  }
  rv_mutex_unlock(&server->lock);
  return mine;
}

rv_code rv_server_set_identities(rv_server *server, const rv_identity *identities, size_t num_identities, rv_error *err)
{
  if (identities == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "no identities are given, and a server that asks who calls cannot stop asking");
  rv_access *access = NULL, *before;
  for (bool mine = false; !mine;) {
    rv_code code = access_in_force(server, &before, err);
    if (code != RV_OK) return code;
    code = rv_access_new(identities, num_identities, before, &access, err);
    mine = code == RV_OK && put_in_force(server, access, before);
    rv_access_unref(before);
    if (code != RV_OK) return code;
    if (!mine) rv_access_unref(access);
  }
  size_t ended = sweep_all(server, RV_SWEEP_REVOKE, access);
  rv_mutex_lock(&server->lock);
  server->num_sweepers--;
  rv_cond_broadcast(&server->changed);
  rv_mutex_unlock(&server->lock);
  rv_access_unref(access);
  rv_log(&server->env, RV_LOG_INFO, "%zu identities are in force; calls of others that were ended: %zu", num_identities, ended);
  return RV_OK;
}

/* ---- stopping ---- */

static int64_t deadline_in(const rv_server *server, int64_t ms)
{
  int64_t now = rv_monotonic_ns(&server->env);
  if (ms < 0) ms = 0;
  return ms > (INT64_MAX - now) / 1000000 ? INT64_MAX : now + ms * 1000000;
}

static void log_drain(const rv_server *server, size_t calls, int64_t waited_ns, int64_t left_ns)
{
  rv_log(&server->env, RV_LOG_WARNING,
         "stopping has been waiting for %.0f s: calls in progress, %zu of them, have up to %.0f s more", (double)waited_ns * 1e-9,
         calls, (double)left_ns * 1e-9);
}

/* Waits until only streams that linger are left, or the time (which others may shorten) is up; logs it as calls of a client do. */
static void wait_for_streams(rv_server *server)
{
  int64_t begun_ns = rv_monotonic_ns(&server->env), log_ns = begun_ns + first_log_ns;
  rv_mutex_lock(&server->lock);
  while (server->num_streams > server->num_lingering) {
    int64_t now = rv_monotonic_ns(&server->env), left = server->drain_until_ns - now;
    if (left <= 0) break;
    if (now < log_ns) {
      rv_cond_wait_for(&server->changed, &server->lock, left < 1000000000 ? left : 1000000000);
      continue;
    }
    size_t calls = server->num_streams - server->num_lingering;
    rv_mutex_unlock(&server->lock);
    log_drain(server, calls, now - begun_ns, left);
    log_ns = now + 6 * first_log_ns;
    rv_mutex_lock(&server->lock);
  }
  rv_mutex_unlock(&server->lock);
}

static void drain(rv_server *server)
{
  atomic_store(&server->draining, true);
  sweep_all(server, RV_SWEEP_DRAIN, NULL);
  wait_for_streams(server);
  if (server->saver != NULL) rv_saver_stop(server->saver); /* those who wait for it are answered through their loops */
  sweep_all(server, RV_SWEEP_END, NULL);
  rv_grpc_server_stop(server->grpc, LAST_WORDS_MS);
  /* Operations that were completing while they were cancelled still come home through their loops, which must run until then. */
  rv_mutex_lock(&server->lock);
  while (server->num_streams > 0 || server->num_sweepers > 0) rv_cond_wait_for(&server->changed, &server->lock, 10000000);
  rv_mutex_unlock(&server->lock);
  rv_grpc_server_free(server->grpc);
  server->grpc = NULL;
  rv_journal_unref(server->journal); /* whoever begins anew with it need not wait until this server is freed */
  server->journal = NULL;
}

void rv_server_stop(rv_server *server, int64_t drain_ms)
{
  if (!rv_maker_is_this_process(&server->maker)) return; /* a forked child: its threads are not here */
  int64_t until = deadline_in(server, drain_ms);
  rv_mutex_lock(&server->lock);
  bool first = server->phase == RV_SERVER_RUNS;
  if (first) {
    server->phase = RV_SERVER_DRAINS;
    server->drain_until_ns = until;
  } else if (until < server->drain_until_ns) {
    server->drain_until_ns = until;
    rv_cond_broadcast(&server->changed);
  }
  if (!first)
    while (server->phase != RV_SERVER_STOPPED) rv_cond_wait(&server->changed, &server->lock);
  rv_mutex_unlock(&server->lock);
  if (!first) return;
  drain(server);
  rv_mutex_lock(&server->lock);
  server->phase = RV_SERVER_STOPPED;
  rv_cond_broadcast(&server->changed);
  rv_mutex_unlock(&server->lock);
}

void rv_server_free(rv_server *server)
{
  if (server == NULL || !rv_maker_is_this_process(&server->maker)) return;
  rv_server_stop(server, 0);
  destroy(server);
}
