/* reverie-server: a store with the configured tables, served until a signal ends it. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "check.h"
#include "differences.h"
#include "ending.h"
#include "log.h"
#include "open_files.h"
#include "persist/journal.h"
#include "warnings.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { EXIT_CONFIG = 2 };

/* How the program was started. */
typedef struct invocation {
  int argc;
  char **argv;
  server_log *log;
} invocation;

/* ---- starting ---- */

static rv_code make_checkpointer(const settings *all, const rv_env *env, rv_checkpointer **out, rv_error *err)
{
  rv_checkpointer_config config = {.size = sizeof config,
                                   .path = all->checkpoint_path,
                                   .fallback_path = all->checkpoint_fallback,
                                   .level = all->checkpoint_level == 0  ? -1
                                            : all->checkpoint_level < 0 ? 0
                                                                        : (int32_t)all->checkpoint_level,
                                   .keep = (uint32_t)all->checkpoint_keep,
                                   .incremental = all->checkpoint_incremental != 0,
                                   .required = all->checkpoint_required != 0,
                                   .env = env};
  return all->checkpoint_path == NULL ? RV_OK : rv_checkpointer_new(&config, out, err);
}

/* What came and went while a store was restored lies in this thread's heap, of which the threads that serve take nothing. */
static void give_back_memory(void)
{
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/* Empty, or with what was saved, and with what the journal says happened since. */
static rv_code make_store(const settings *all, rv_checkpointer *checkpointer, const rv_env *env, rv_store **out,
                          rv_journal **journal, rv_spill **spill, rv_error *err)
{
  const rv_spill_config spilled = {
      .size = sizeof spilled, .path = all->spill_path, .max_bytes = (size_t)all->spill_max_bytes, .env = env};
  rv_store_config config = {.size = sizeof config,
                            .env = env,
                            .tables = all->tables,
                            .num_tables = all->num_tables,
                            .max_decode_cache_bytes = (size_t)all->max_decode_cache_bytes,
                            .memory_limit = (size_t)all->memory_limit,
                            .seed = all->seed};
  const rv_checkpoint_watch watch = {
      .size = sizeof watch, .go_on = ending_go_on, .spill = spilled.path == NULL ? NULL : &spilled, .spilled = spill};
  const rv_journal_config journaled = {.size = sizeof journaled,
                                       .path = all->journal_path,
                                       .mode = all->journal_mode == 0 ? RV_JOURNAL_ALWAYS : (rv_journal_mode)all->journal_mode,
                                       .period_ms = all->journal_period_ms,
                                       .max_queued_bytes = (size_t)all->journal_max_queued_bytes,
                                       .salvage = all->journal_salvage != 0,
                                       .env = env};
  rv_code code = checkpointer == NULL        ? rv_store_new(&config, out, err)
                 : all->journal_path != NULL ? rv_journal_recover(&journaled, checkpointer, &config, &watch, out, journal, err)
                                             : rv_checkpointer_restore(checkpointer, &config, &watch, out, NULL, err);
  if (code == RV_OK && checkpointer == NULL && spilled.path != NULL) code = rv_spill_new(&spilled, *out, spill, err);
  if (checkpointer != NULL) give_back_memory();
  return code;
}

static const rv_identity nobody = {0};

/* What a server takes: NULL where nobody is asked. */
static const rv_identity *identities_of(const settings *all)
{
  return all->num_identities > 0 ? all->identities : all->asks ? &nobody : NULL;
}

static rv_code make_server(const settings *all, server_log *log, rv_store *store, rv_checkpointer *checkpointer,
                           rv_journal *journal, const rv_env *env, rv_server **out, rv_error *err)
{
  const rv_tls_config tls = tls_of(all);
  size_t max_connections = open_files_bound_connections(log, all);
  rv_server_config config = {.size = sizeof config,
                             .store = store,
                             .addresses = all->addresses,
                             .num_addresses = all->num_addresses,
                             .io_threads = (unsigned)all->threads,
                             .max_message_bytes = (size_t)all->max_message_bytes,
                             .max_connections = max_connections,
                             .max_streams_per_connection = (size_t)all->max_streams_per_connection,
                             .max_writer_sessions = (size_t)all->max_writer_sessions,
                             .writer_session_ttl_ms = all->writer_session_ttl_ms,
                             .peer_timeout_ms = all->peer_timeout_ms,
                             .max_connections_per_address = (size_t)all->max_connections_per_address,
                             .max_streams_per_identity = (size_t)all->max_streams_per_identity,
                             .max_bytes_per_identity = (size_t)all->max_bytes_per_identity,
                             .no_shared_memory = all->shared_memory == 0,
                             .env = env,
                             .max_stream_chunk_bytes = (size_t)all->max_stream_chunk_bytes,
                             .max_orphan_bytes = (size_t)all->max_orphan_bytes,
                             .checkpointer = checkpointer,
                             .checkpoint_every_ms = all->checkpoint_every_ms,
                             .checkpoint_every_inserts = all->checkpoint_every_inserts,
                             .journal = journal,
                             .checkpoint_journal_bytes = all->journal_checkpoint_bytes,
                             .identities = identities_of(all),
                             .num_identities = all->num_identities};
  if (has_tls(all)) config.tls = &tls;
  return rv_server_new(&config, out, err);
}

/* One line, once callers can be answered: whoever starts the server waits for it. */
static void announce(const settings *all, const rv_server *server)
{
  printf("listening on ");
  for (size_t i = 0; i < all->num_addresses; i++) {
    const char *address = all->addresses[i], *colon = strrchr(address, ':');
    uint16_t port = rv_server_port(server, i);
    printf("%s", i == 0 ? "" : ", ");
    if (port == 0 || colon == NULL)
      printf("%s", address);
    else
      printf("%.*s:%u", (int)(colon - address), address, port);
  }
  printf(", %zu table%s\n", all->num_tables, all->num_tables == 1 ? "" : "s");
  fflush(stdout);
}

/* ---- stopping ---- */

typedef struct stopper {
  rv_server *server;
  int64_t drain_ms;
  pthread_t main_thread;
} stopper;

static void *run_stopper(void *argument)
{
  stopper *self = argument;
  rv_server_stop(self->server, self->drain_ms);
  pthread_kill(self->main_thread, SIGUSR1); /* wakes sigwait */
  return NULL;
}

static void say_reloaded(server_log *log, const char *what, rv_code code, const rv_error *err)
{
  if (code == RV_OK)
    log_say(log, RV_LOG_INFO, "SIGHUP: the %s were read again", what);
  else
    log_say(log, RV_LOG_ERROR, "SIGHUP: %s; the %s are as before", err->message, what);
}

typedef struct reading {
  settings *again;
  int argc;
  char **argv;
  rv_error *err;
} reading;

static bool read_all_again(void *context)
{
  reading *one = context;
  flags_action action;
  return read_flags(one->again, one->argc, one->argv, &action, one->err) && settings_finish(one->again, one->err);
}

/* With its flags: those that follow the file win now as they did then. */
static bool read_again(settings *again, const invocation *how, rv_error *err)
{
  reading one = {.again = again, .argc = how->argc, .argv = how->argv, .err = err};
  bool no_memory, read = arena_try(&again->memory, read_all_again, &one, &no_memory);
  if (no_memory) rv_fail(err, RV_RESOURCE_EXHAUSTED, "out of memory while reading the configuration");
  return read;
}

/* What only a restart brings, and what of it nobody must find out by a restart. */
static void say_what_waits(server_log *log, const settings *all, const settings *again)
{
  char names[700];
  if (differences_name(all, again, names, sizeof names))
    log_say(log, RV_LOG_WARNING, "SIGHUP: what differs from the configuration that it runs with, and needs a restart: %s", names);
  if (has_tls(again) && !has_tls(all))
    log_say(log, RV_LOG_WARNING, "SIGHUP: there is a tls mapping now; connections are encrypted after a restart, not before");
  if (!has_tls(again) && has_tls(all))
    log_say(log, RV_LOG_WARNING, "SIGHUP: there is no tls mapping any more; connections are not encrypted after a restart");
}

/* The certificates, and the files' identities with the tokens in the files that those name. *asks: identities are in force. */
static void reload(rv_server *server, const settings *all, const invocation *how, bool *asks)
{
  rv_error err = {.message = ""};
  settings again;
  settings_init(&again);
  again.again = true;
  bool read = read_again(&again, how, &err);
  if (!read) say_reloaded(how->log, "identities", RV_INVALID_ARGUMENT, &err);
  if (read && (*asks || again.asks)) {
    rv_code code = check_identities(&again, &err);
    if (code == RV_OK) code = rv_server_set_identities(server, identities_of(&again), again.num_identities, &err);
    say_reloaded(how->log, "identities", code, &err);
    if (code == RV_OK) warn_of_rights(how->log, &again, all);
    *asks |= code == RV_OK;
  }
  if (read) say_what_waits(how->log, all, &again);
  if (has_tls(all) || (!*asks && !(read && has_tls(&again))))
    say_reloaded(how->log, "certificates", rv_server_reload_tls(server, &err), &err);
  settings_free(&again);
}

static sigset_t awaited_signals(void)
{
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  sigaddset(&signals, SIGHUP);
  return signals;
}

/* Waits for SIGTERM or SIGINT, then drains. A second signal cuts the drain short. Returns the exit status. */
static int serve(rv_server *server, const settings *all, const invocation *how)
{
  const sigset_t signals = awaited_signals();
  int signal_number = 0, status = 0;
  bool asks = all->asks;
  while (signal_number != SIGTERM && signal_number != SIGINT) {
    sigwait(&signals, &signal_number);
    if (signal_number == SIGHUP) reload(server, all, how, &asks);
  }
  log_say(how->log, RV_LOG_INFO, "%s: finishing calls in progress for up to %g s; a second signal ends them",
          strsignal(signal_number), (double)all->drain_ms / 1000);
  stopper self = {.server = server, .drain_ms = all->drain_ms, .main_thread = pthread_self()};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_stopper, &self) != 0) {
    rv_server_stop(server, all->drain_ms);
    return 0;
  }
  do {
    sigwait(&signals, &signal_number);
  } while (signal_number == SIGHUP);
  if (signal_number != SIGUSR1) {
    status = 128 + signal_number;
    rv_server_stop(server, 0);
  }
  pthread_join(thread, NULL);
  return status;
}

/* All of the configuration. The checkpointer is the caller's, also after an error. */
static rv_code check(const settings *all, const rv_env *env, rv_checkpointer **checkpointer, rv_error *err)
{
  rv_code code = check_tables(all, env, err);
  if (code != RV_OK) return code;
  code = make_checkpointer(all, env, checkpointer, err);
  if (code == RV_OK && *checkpointer != NULL) code = rv_checkpointer_check(*checkpointer, err);
  if (code != RV_OK) settings_fail_at(all, "checkpoint_path", err);
  if (code == RV_OK) code = check_tls(all, err);
  return code == RV_OK ? check_identities(all, err) : code;
}

/* Until it has ended; the journal ends with it. Returns the exit status. */
static int serve_store(const settings *all, const invocation *how, const rv_env *env, rv_checkpointer *checkpointer,
                       rv_store *store, rv_journal *journal, rv_spill *spill)
{
  int status = 1;
  rv_error err;
  rv_server *server = NULL;
  if (make_server(all, how->log, store, checkpointer, journal, env, &server, &err) != RV_OK) {
    log_say(how->log, RV_LOG_ERROR, "%s", err.message);
  } else {
    announce(all, server);
    status = serve(server, all, how);
  }
  const bool served = server != NULL;
  rv_server_free(server);
  if (served) status = ending_save(all, how->log, checkpointer, store, status);
  rv_spill_free(spill);
  if (!rv_journal_end(journal) && status == 0) status = 1;
  return status;
}

static int run(const settings *all, const invocation *how, bool only_check)
{
  server_log *log = how->log;
  rv_env env;
  rv_env_default(&env);
  env.log = log_line;
  env.context = log;
  env.log_level = all->log_level;
  rv_error err;
  rv_store *store = NULL;
  rv_checkpointer *checkpointer = NULL;
  rv_journal *journal = NULL;
  rv_spill *spill = NULL;
  rv_code code = check(all, &env, &checkpointer, &err);
  if (code == RV_OK && only_check) code = check_disks(all, &err); /* a start finds these out, and may be tried again */
  if (code == RV_OK) {
    warn_of_rights(log, all, all);
    warn_of_open_addresses(log, all);
    warn_of_memory(log, all);
    warn_of_timeouts(log, all);
    warn_of_fallback(log, all);
  }
  if (code == RV_OK && only_check) {
    printf("the configuration is right: %zu table%s\n", all->num_tables, all->num_tables == 1 ? "" : "s");
    rv_checkpointer_unref(checkpointer);
    return 0;
  }
  bool right = code == RV_OK;
  if (right && checkpointer != NULL) code = rv_checkpointer_prepare(checkpointer, &err); /* now, and not when the first is due */
  if (code == RV_OK) code = make_store(all, checkpointer, &env, &store, &journal, &spill, &err);
  if (code != RV_OK) {
    bool interrupted = right && code == RV_CANCELLED && ending_signal() != 0;
    if (interrupted)
      log_say(log, RV_LOG_INFO, "%s: it ends before it has restored its tables; what is on the disk stays as it is: %s",
              strsignal(ending_signal()), err.message);
    else
      log_say(log, RV_LOG_ERROR, "%s", err.message);
    rv_checkpointer_unref(checkpointer);
    rv_store_unref(store);
    return interrupted ? 0 : right ? 1 : EXIT_CONFIG;
  }
  int status = serve_store(all, how, &env, checkpointer, store, journal, spill);
  rv_checkpointer_unref(checkpointer);
  rv_store_unref(store);
  return status;
}

/* One that was closed would be the journal's, or a connection's: whatever gets its number, and would have the log in it. */
static void fill_streams(void)
{
  int file;
  do file = open("/dev/null", O_RDWR);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0) close(file);
}

int main(int argc, char **argv)
{
  fill_streams();
  /* From the start: a signal that comes before sigwait is kept for it. */
  const sigset_t signals = awaited_signals();
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of its write, like a full disk */

  server_log *log = log_begin();
  if (log == NULL) {
    fputs("reverie-server: out of memory\n", stderr);
    return 1;
  }
  const invocation how = {.argc = argc, .argv = argv, .log = log};
  settings all;
  flags_action action;
  rv_error err = {.message = ""};
  settings_init(&all);
  int status = EXIT_CONFIG;
  if (!read_flags(&all, argc, argv, &action, &err)) {
    log_say(log, RV_LOG_ERROR, "%s", err.message);
  } else if (action == FLAGS_HELP) {
    fputs(flags_help, stdout);
    status = 0;
  } else if (action == FLAGS_VERSION) {
    printf("reverie-server %s\n", rv_version());
    status = 0;
  } else if (!settings_finish(&all, &err)) {
    log_say(log, RV_LOG_ERROR, "%s", err.message);
  } else {
    log_set_level(log, all.log_level);
    status = run(&all, &how, action == FLAGS_CHECK);
  }
  settings_free(&all);
  log_end(log);
  return status;
}
