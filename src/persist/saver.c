#include "persist/saver.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/env.h"
#include "base/error.h"
#include "base/linux.h"
#include "base/lock.h"
#include "base/thread.h"
#include "persist/checkpoint_files.h"
#include "persist/journal.h"
#include "store/store.h"

enum {
  LOOK_NS = 1000000000, /* at how many inserts there are */
  NICER = 10
};
#define TELL_NS INT64_C(10000000000)
#define RETRY_NS INT64_C(60000000000)

static const int64_t default_journal_bytes = (int64_t)4 << 30;

struct rv_saver {
  rv_env env;
  rv_store *store;
  rv_journal *journal; /* the store's, with a reference: it must not go while it is asked; NULL: none */
  rv_checkpointer *checkpointer;
  int64_t every_ns, every_inserts, every_journal_bytes;
  pthread_t thread;
  atomic_bool stopping;
  rv_mutex lock; /* guards what follows */
  rv_cond changed;
  rv_link asked;
  bool joined; /* the thread is over */
  /* the thread's own */
  int64_t last_ns, last_inserts; /* when the last one began, and how many inserts there were at the last that is whole */
  int64_t told_ns;
  rv_checkpoint_progress progress;
  bool failed; /* the last one: what it was due for is then no reason to try again at once */
};

static int64_t num_inserts(const rv_saver *saver)
{
  int64_t sum = 0;
  for (size_t i = 0; i < rv_store_num_tables(saver->store); i++) sum += rv_table_num_inserts(rv_store_table(saver->store, i));
  return sum;
}

/* ---- saving ---- */

static bool go_on(void *context, const rv_checkpoint_progress *progress)
{
  rv_saver *saver = context;
  int64_t now = rv_monotonic_ns(&saver->env);
  if (progress->items > 0) saver->progress = *progress; /* 0: all are written, and it waits for the journal */
  if (now - saver->told_ns >= TELL_NS) {
    saver->told_ns = now;
    rv_log(&saver->env, RV_LOG_INFO, "checkpoint: %" PRId64 " of %" PRId64 " items are saved, %" PRId64 " MiB", progress->items,
           progress->total_items, progress->bytes_written >> 20);
  }
  return !atomic_load(&saver->stopping);
}

static void answer(rv_link *askers, rv_code code, const char *path_or_message)
{
  for (rv_link *link; (link = rv_list_pop_front(askers)) != NULL;) {
    rv_saver_request *request = RV_CONTAINER(link, rv_saver_request, link);
    request->done(request, code, path_or_message);
  }
}

typedef struct asked_save {
  rv_saver *saver;
  rv_link *askers;
} asked_save;

static void tell_saved(void *context, const char *path)
{
  const asked_save *one = context;
  rv_saver *saver = one->saver;
  double seconds = (double)(rv_monotonic_ns(&saver->env) - saver->last_ns) / 1e9;
  rv_log(&saver->env, RV_LOG_INFO, "checkpoint: %" PRId64 " items saved to %s in %.3g s", saver->progress.items, path, seconds);
  answer(one->askers, RV_OK, path);
}

/* Who asked is answered as soon as it is on the disk: where a file system gives back room slowly, removing older ones takes seconds. */
static void save(rv_saver *saver, rv_link *askers)
{
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = go_on, .context = saver};
  asked_save one = {saver, askers};
  rv_error err;
  saver->last_ns = saver->told_ns = rv_monotonic_ns(&saver->env);
  int64_t inserts = saver->every_inserts > 0 ? num_inserts(saver) : 0;
  saver->progress = (rv_checkpoint_progress){.size = sizeof saver->progress};
  const rv_saved_hook hook = {tell_saved, &one};
  rv_code code = rv_checkpointer_save_telling(saver->checkpointer, saver->store, &watch, hook, NULL, &err);
  saver->failed = code != RV_OK;
  if (code == RV_OK) {
    saver->last_inserts = inserts;
    return;
  }
  rv_log(&saver->env, code == RV_CANCELLED ? RV_LOG_INFO : RV_LOG_ERROR, "checkpoint: %s", err.message);
  answer(askers, code, err.message);
}

/* ---- waiting ---- */

/* How long until one is due; 0: now. */
static int64_t wait_ns(const rv_saver *saver)
{
  int64_t wait = INT64_MAX;
  if (saver->every_ns > 0) {
    int64_t passed = rv_monotonic_ns(&saver->env) - saver->last_ns;
    wait = passed >= saver->every_ns ? 0 : saver->every_ns - passed;
  }
  bool again = !saver->failed || rv_monotonic_ns(&saver->env) - saver->last_ns >= RETRY_NS;
  if (saver->every_inserts > 0) {
    if (again && num_inserts(saver) - saver->last_inserts >= saver->every_inserts) return 0;
    if (wait > LOOK_NS) wait = LOOK_NS;
  }
  if (saver->journal != NULL) {
    bool is_long = rv_journal_fresh_bytes(saver->journal) >= saver->every_journal_bytes;
    if (again && is_long) return 0;
    if (wait > LOOK_NS) wait = LOOK_NS;
  }
  return wait;
}

/* True: one is to be saved, for those who asked and were moved to `askers`. */
static bool wait_for_work(rv_saver *saver, rv_link *askers)
{
  rv_list_init(askers);
  for (;;) {
    int64_t wait = wait_ns(saver); /* asks the tables: not under the lock */
    rv_mutex_lock(&saver->lock);
    bool stop = atomic_load(&saver->stopping), due = !rv_list_empty(&saver->asked) || wait == 0;
    if (!stop && !due && wait == INT64_MAX) rv_cond_wait(&saver->changed, &saver->lock);
    if (!stop && !due && wait != INT64_MAX) rv_cond_wait_for(&saver->changed, &saver->lock, wait);
    rv_list_splice(askers, &saver->asked);
    stop = atomic_load(&saver->stopping);
    rv_mutex_unlock(&saver->lock);
    if (stop) return false;
    if (due || !rv_list_empty(askers)) return true;
  }
}

/* Saving takes most of a core for seconds. A thread that weighs as much as those that answer requests takes their process's share with it:
 * where other processes want the cores too, each of them would then wait for milliseconds. With less weight still, saving itself would wait
 * too long where it holds a table's lock. */
static void step_back(void)
{
#ifdef RV_LINUX /* the calling thread's alone; elsewhere it is the whole process's */
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICER);
#endif
}

static void *run(void *argument)
{
  rv_saver *saver = argument;
  rv_link askers;
  step_back();
  while (wait_for_work(saver, &askers)) save(saver, &askers);
  answer(&askers, RV_UNAVAILABLE, "the server is shutting down");
  return NULL;
}

/* ---- life ---- */

static void destroy(rv_saver *saver)
{
  rv_cond_fini(&saver->changed);
  rv_mutex_fini(&saver->lock);
  rv_checkpointer_unref(saver->checkpointer);
  rv_journal_unref(saver->journal);
  rv_store_unref(saver->store);
  free(saver);
}

static rv_code check(const rv_saver_config *config, rv_error *err)
{
  if (config->store == NULL || config->checkpointer == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "saving checkpoints needs a store and a checkpointer");
  if (config->every_ms < 0 || config->every_ms > INT64_MAX / 1000000 || config->every_inserts < 0 ||
      config->every_journal_bytes < 0)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "every_ms is %" PRId64 ", every_inserts %" PRId64 " and every_journal_bytes %" PRId64 "; none may be negative",
                   config->every_ms, config->every_inserts, config->every_journal_bytes);
  return RV_OK;
}

static rv_code take_journal(rv_saver *saver, rv_error *err)
{
  const char *path = rv_checkpointer_path(saver->checkpointer);
  saver->journal = rv_journal_of(saver->store);
  if (saver->journal == NULL || rv_journal_goes_on_from(saver->journal, path)) return RV_OK;
  return rv_fail(
      err, RV_INVALID_ARGUMENT,
      "the store's journal was recovered with the checkpoints of another directory than %s, and goes from it only when "
      "checkpoints are saved there: give the checkpointer that it was recovered with",
      path);
}

/* Who saves by itself would fail again and again, unseen; who saves when it is asked to answers that with the error. */
static rv_code prepare(const rv_saver *saver, rv_error *err)
{
  rv_error fault;
  if (rv_checkpointer_prepare(saver->checkpointer, &fault) == RV_OK) return RV_OK;
  if (saver->every_ns > 0 || saver->every_inserts > 0 || saver->journal != NULL) return rv_error_copy(err, &fault);
  rv_log(&saver->env, RV_LOG_WARNING, "checkpoint: %s", fault.message);
  return RV_OK;
}

rv_code rv_saver_new(const rv_saver_config *config, rv_saver **out, rv_error *err)
{
  rv_saver_config full = {0};
  if (config != NULL) memcpy(&full, config, config->size < sizeof full ? config->size : sizeof full);
  rv_code code = check(&full, err);
  if (code != RV_OK) return code;
  rv_saver *saver = calloc(1, sizeof *saver);
  if (saver == NULL) return rv_fail_memory(err, sizeof *saver);
  rv_env_fill(&saver->env, full.env != NULL ? full.env : rv_store_env(full.store));
  saver->store = rv_store_ref(full.store);
  saver->checkpointer = rv_checkpointer_ref(full.checkpointer);
  saver->every_ns = full.every_ms * 1000000;
  saver->every_inserts = full.every_inserts;
  saver->every_journal_bytes = full.every_journal_bytes == 0 ? default_journal_bytes : full.every_journal_bytes;
  atomic_init(&saver->stopping, false);
  rv_mutex_init(&saver->lock, RV_RANK_SERVER, "saver");
  rv_cond_init(&saver->changed);
  rv_list_init(&saver->asked);
  saver->last_ns = rv_monotonic_ns(&saver->env);
  saver->last_inserts = num_inserts(saver);
  code = take_journal(saver, err);
  if (code == RV_OK) code = prepare(saver, err);
  if (code != RV_OK) {
    destroy(saver);
    return code;
  }
  if (rv_thread_start(&saver->thread, "rv-save", run, saver) !=
      0) { /* which takes no signal for a file that grows too large either */
    destroy(saver);
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "no thread could be started for checkpoints");
  }
  rv_checkpointer_begin_holding(saver->checkpointer);
  *out = saver;
  return RV_OK;
}

void rv_saver_ask(rv_saver *saver, rv_saver_request *request)
{
  rv_mutex_lock(&saver->lock);
  bool late = saver->joined;
  if (!late) rv_list_push_back(&saver->asked, &request->link);
  rv_cond_signal(&saver->changed);
  rv_mutex_unlock(&saver->lock);
  if (late) request->done(request, RV_UNAVAILABLE, "the server is shutting down");
}

void rv_saver_stop(rv_saver *saver)
{
  rv_mutex_lock(&saver->lock);
  bool first = !atomic_exchange(&saver->stopping, true);
  rv_cond_signal(&saver->changed);
  rv_mutex_unlock(&saver->lock);
  if (!first) return;
  pthread_join(saver->thread, NULL);
  rv_checkpointer_end_holding(saver->checkpointer);
  rv_journal_unref(saver->journal); /* who stops a server may open its journal again before he frees it */
  saver->journal = NULL;
  rv_link late;
  rv_list_init(&late);
  rv_mutex_lock(&saver->lock);
  saver->joined = true;
  rv_list_splice(&late, &saver->asked);
  rv_mutex_unlock(&saver->lock);
  answer(&late, RV_UNAVAILABLE, "the server is shutting down");
}

void rv_saver_free(rv_saver *saver)
{
  if (saver == NULL) return;
  rv_saver_stop(saver);
  destroy(saver);
}
