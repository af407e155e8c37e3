/* The thread that takes cold chunks to the spill's file while memory is short, and live rows out of those that are mostly dead there. */
#include "reverie/spill.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "persist/spill_file.h"
#include "store/cold.h"
#include "store/memory.h"
#include "store/store.h"

enum {
  AT_ONCE = 64, /* chunks, and */
  AT_ONCE_BYTES = 1 << 20,
  MOVED_BYTES = 1 << 20, /* out of the file, until memory is looked at again, */
  MOVED_PART =
      2,      /* and of what goes to it: rows that go in no order are moved 0.7 times, once they are there, for each that comes */
  BARREN = 16 /* rounds, each of which looks at other chunks, until it is said that nothing is left */
};
#define LOOK_NS INT64_C(5000000)    /* at the memory in use, while that is much */
#define REST_NS INT64_C(50000000)   /* while it is little */
#define RETRY_NS INT64_C(500000000) /* after the file could take no more */
static const size_t default_max_bytes = (size_t)1 << 40, default_least_bytes = (size_t)1 << 34;

struct rv_spill {
  rv_env env;
  rv_store *store;
  rv_memory *memory; /* the store's */
  rv_spill_file *file;
  pthread_t thread;
  rv_mutex lock; /* guards `stopping` */
  rv_cond changed;
  bool stopping;
  bool failed;        /* the last write: the log was told */
  size_t first_table; /* in which rows are moved, as a count of rounds */
  unsigned barren;    /* rounds in a row in which nothing could be moved */
};

/* It begins with a quarter of the limit left, and goes on until there is a little more: inserts wait with a sixteenth left. */
static bool is_much(const rv_memory *memory)
{
  return rv_memory_used(memory) > rv_memory_limit(memory) / 4 * 3;
}
static bool is_enough(const rv_memory *memory)
{
  return rv_memory_used(memory) <= rv_memory_limit(memory) / 16 * 11;
}

static bool is_stopping(rv_spill *spill)
{
  rv_mutex_lock(&spill->lock);
  bool stopping = spill->stopping;
  rv_mutex_unlock(&spill->lock);
  return stopping;
}

static void note_result(rv_spill *spill, int error)
{
  atomic_store_explicit(&spill->memory->spill_fault, error, memory_order_relaxed);
  if (error != 0 && !spill->failed)
    rv_log(&spill->env, RV_LOG_WARNING, "the spill file takes no more: %s; inserts wait for memory from now on", strerror(error));
  if (error == 0 && spill->failed) rv_log(&spill->env, RV_LOG_INFO, "the spill file takes chunks again");
  spill->failed = error != 0;
}

static void give_back(rv_cold *cold)
{
  if (cold->place != NULL) rv_buf_unref(&cold->place->buf);
  cold->place = NULL;
}

/* Some of the table's coldest chunks; how many bytes of memory were won. Where there is no room for one there may be for another. */
static size_t spill_some(rv_spill *spill, rv_table *table)
{
  rv_cold cold[AT_ONCE];
  size_t n = rv_table_take_cold(table, cold, AT_ONCE, AT_ONCE_BYTES), put = 0;
  int error = 0;
  n = rv_table_leave_busy(table, spill->store, cold, n);
  for (size_t i = 0; i < n && (error == 0 || rv_spill_is_full(error)); i++) {
    cold[i].place = rv_spill_file_put(spill->file, cold[i].bytes, cold[i].size);
    if (cold[i].place != NULL)
      put++;
    else
      error = errno;
  }
  const int lost = put > 0 ? rv_spill_file_settle(spill->file) : 0;
  for (size_t i = 0; lost != 0 && i < n; i++) give_back(&cold[i]);
  if (n > 0) note_result(spill, lost != 0 ? lost : put > 0 ? 0 : error);
  return rv_table_move_cold(table, cold, n);
}

/* A round of all tables; 0: nothing could be won. */
static size_t spill_round(rv_spill *spill)
{
  size_t won = 0;
  for (size_t i = 0; i < rv_store_num_tables(spill->store) && !is_enough(spill->memory); i++)
    won += spill_some(spill, rv_store_table(spill->store, i));
  return won;
}

/* What is dead in the file is its room for more: that of chunks which are mostly so, where there are many, or any at all where it is full. How many
 * bytes were moved, at most a little more than `most`; 0: nothing is to be done. */
static size_t compact_some(rv_spill *spill, size_t most)
{
  const size_t n = rv_store_num_tables(spill->store);
  size_t moved = 0;
  for (size_t i = 0; i < n && moved < most && !is_stopping(spill); i++)
    moved += rv_table_compact_spilled(rv_store_table(spill->store, (spill->first_table + i) % n), most - moved, spill->failed);
  spill->first_table++;
  return moved;
}

/* What is moved takes memory until it goes to the file again, so less is moved than what goes. */
static bool make_room(rv_spill *spill)
{
  size_t won = 1;
  while (won > 0 && !is_enough(spill->memory) && !is_stopping(spill)) {
    won = spill_round(spill);
    compact_some(spill, won / MOVED_PART);
  }
  spill->barren = won > 0 || spill->failed ? 0 : spill->barren + (spill->barren < BARREN);
  atomic_store_explicit(&spill->memory->all_spilled, spill->barren == BARREN, memory_order_relaxed);
  return won > 0;
}

/* How long to wait before the next time. */
static int64_t work(rv_spill *spill)
{
  const bool much = is_much(spill->memory), won = !much || make_room(spill);
  if ((spill->failed || !is_much(spill->memory)) && compact_some(spill, MOVED_BYTES) > 0) return 0;
  if (!won && spill->failed) return RETRY_NS;
  return much || rv_memory_used(spill->memory) > rv_memory_limit(spill->memory) / 2 ? LOOK_NS : REST_NS;
}

static void *run(void *argument)
{
  rv_spill *spill = argument;
  rv_mutex_lock(&spill->lock);
  while (!spill->stopping) {
    rv_mutex_unlock(&spill->lock);
    int64_t pause_ns = work(spill);
    rv_mutex_lock(&spill->lock);
    if (!spill->stopping && pause_ns > 0) rv_cond_wait_for(&spill->changed, &spill->lock, pause_ns);
  }
  rv_mutex_unlock(&spill->lock);
  return NULL;
}

/* ---- the verbs ---- */

static rv_code start(rv_spill *spill, rv_error *err)
{
  int failed = rv_thread_start(&spill->thread, "rv-spill", run, spill);
  return failed == 0 ? RV_OK : rv_fail(err, RV_RESOURCE_EXHAUSTED, "a thread could not be started: %s", strerror(failed));
}

static void destroy(rv_spill *spill)
{
  rv_memory_give_spill(spill->memory);
  rv_spill_file_close(spill->file);
  rv_cond_fini(&spill->changed);
  rv_mutex_fini(&spill->lock);
  rv_store_unref(spill->store);
  free(spill);
}

static rv_code take_config(const rv_spill_config *given, rv_spill_config *config, rv_error *err)
{
  *config = (rv_spill_config){.size = 0};
  memcpy(config, given, given->size < sizeof *config ? given->size : sizeof *config);
  if (config->path == NULL || config->path[0] == '\0')
    return rv_fail(err, RV_INVALID_ARGUMENT, "the spill has no path; give a directory");
  if (config->max_bytes != 0 && config->max_bytes < 2 * (size_t)RV_SPILL_PIECE)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the spill's max_bytes is %zu; give %zu at least", config->max_bytes,
                   2 * (size_t)RV_SPILL_PIECE);
  return RV_OK;
}

rv_code rv_spill_check(const rv_spill_config *given, rv_error *err)
{
  rv_spill_config config;
  rv_code code = take_config(given, &config, err);
  return code == RV_OK ? rv_spill_file_check(config.path, err) : code;
}

rv_code rv_spill_new(const rv_spill_config *given, rv_store *store, rv_spill **out, rv_error *err)
{
  rv_spill_config config;
  rv_code code = take_config(given, &config, err);
  if (code != RV_OK) return code;
  if (rv_memory_limit(rv_store_memory(store)) == SIZE_MAX)
    return rv_fail(err, RV_FAILED_PRECONDITION,
                   "a spill is for a store with a memory_limit, near which chunks go to its file; give one");
  if (!rv_memory_take_spill(rv_store_memory(store)))
    return rv_fail(
        err, RV_ALREADY_EXISTS,
        "the store has a spill already, which takes all that is to leave memory; give that one the room, or end it first");
  size_t max_bytes = config.max_bytes == 0 ? default_max_bytes : config.max_bytes;
  rv_spill *spill = calloc(1, sizeof *spill);
  if (spill == NULL) {
    rv_memory_give_spill(rv_store_memory(store));
    return rv_fail_memory(err, sizeof *spill);
  }
  rv_env_fill(&spill->env, config.env != NULL ? config.env : rv_store_env(store));
  spill->store = rv_store_ref(store);
  spill->memory = rv_store_memory(store);
  rv_mutex_init(&spill->lock, RV_RANK_WAIT, "spill");
  rv_cond_init(&spill->changed);
  code = rv_spill_file_new(config.path, max_bytes, &spill->file, err);
  /* where addresses are few, as many as there are */
  while (code == RV_RESOURCE_EXHAUSTED && config.max_bytes == 0 && (max_bytes /= 4) >= default_least_bytes)
    code = rv_spill_file_new(config.path, max_bytes, &spill->file, err);
  if (code == RV_OK) {
    rv_memory_begin_spilling(spill->memory);
    for (size_t i = 0; i < rv_store_num_tables(store); i++) rv_table_keep_cold(rv_store_table(store, i));
    code = start(spill, err);
  }
  if (code != RV_OK) {
    destroy(spill);
    return code;
  }
  *out = spill;
  return RV_OK;
}

void rv_spill_free(rv_spill *spill)
{
  if (spill == NULL) return;
  rv_mutex_lock(&spill->lock);
  spill->stopping = true;
  rv_cond_broadcast(&spill->changed);
  rv_mutex_unlock(&spill->lock);
  pthread_join(spill->thread, NULL);
  atomic_store_explicit(&spill->memory->spill_fault, 0, memory_order_relaxed); /* who waits from now on waits for no file */
  atomic_store_explicit(&spill->memory->all_spilled, false, memory_order_relaxed);
  destroy(spill);
}
