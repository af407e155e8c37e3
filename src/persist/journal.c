#include "persist/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/thread.h"
#include "persist/checkpoint_dir.h"
#include "persist/journal_parts.h"

static rv_journal *of_log(rv_change_log *log)
{
  return RV_CONTAINER(log, rv_journal, log);
}

/* One without references is ending: nothing revives it. */
static bool ref_unless_ending(rv_change_log *log)
{
  rv_journal *journal = of_log(log);
  size_t refs = atomic_load_explicit(&journal->refs, memory_order_relaxed);
  while (refs > 0)
    if (atomic_compare_exchange_weak_explicit(&journal->refs, &refs, refs + 1, memory_order_relaxed, memory_order_relaxed))
      return true;
  return false;
}

rv_journal *rv_journal_of(rv_store *store)
{
  rv_change_log *log = rv_store_change_log(store, ref_unless_ending);
  return log == NULL ? NULL : of_log(log);
}

bool rv_journal_is_always(const rv_journal *journal)
{
  return journal->mode == RV_JOURNAL_ALWAYS;
}

const rv_store *rv_journal_store(const rv_journal *journal)
{
  return journal->store;
}

/* ---- being told ---- */

/* Something has come that is to be written. Holding the lock. */
static void call_for_work(rv_journal *journal)
{
  if (journal->pending_since_ns == 0) journal->pending_since_ns = rv_monotonic_ns(&journal->env);
  journal->pending = true;
  rv_cond_signal(&journal->work);
}

static void wake(rv_change_log *log, bool urgent)
{
  rv_journal *journal = of_log(log);
  rv_mutex_lock(&journal->lock);
  journal->urgent |= urgent;
  call_for_work(journal);
  rv_mutex_unlock(&journal->lock);
}

void rv_journal_note_writer(rv_journal *journal, const uint64_t id[2], bool forgotten)
{
  rv_writer_note *note = malloc(sizeof *note);
  if (note == NULL) return;
  *note = (rv_writer_note){.id = {id[0], id[1]}, .forgotten = forgotten};
  rv_mutex_lock(&journal->lock);
  *(journal->last_note == NULL ? &journal->notes : &journal->last_note->next) = note;
  journal->last_note = note;
  atomic_fetch_add(&journal->log.bytes, sizeof *note);
  call_for_work(journal);
  rv_mutex_unlock(&journal->lock);
}

bool rv_journal_takes_writers(const rv_journal *journal)
{
  return atomic_load(&journal->log.bytes) < 4 * journal->log.max_bytes;
}

const rv_journal_writer *rv_journal_recovered_writer(const rv_journal *journal, const rv_journal_writer *after)
{
  return rv_journal_writers_next(&journal->writers, after);
}

/* ---- looking ---- */

int64_t rv_journal_fresh_bytes(rv_journal *journal)
{
  rv_mutex_lock(&journal->lock);
  int64_t bytes = journal->stats.bytes - journal->covered_bytes;
  rv_mutex_unlock(&journal->lock);
  return bytes;
}

void rv_journal_get_stats(rv_journal *journal, rv_journal_stats *out)
{
  rv_mutex_lock(&journal->lock);
  rv_journal_stats stats = journal->stats;
  int64_t since = journal->batch_since_ns != 0 ? journal->batch_since_ns : journal->pending_since_ns;
  rv_mutex_unlock(&journal->lock);
  stats.queued_bytes = (int64_t)atomic_load(&journal->log.bytes);
  stats.lag_ns = since == 0 ? 0 : rv_monotonic_ns(&journal->env) - since;
  size_t size = out->size < sizeof stats ? out->size : sizeof stats;
  stats.size = size;
  memcpy(out, &stats, size);
}

/* ---- life ---- */

static void destroy(rv_journal *journal)
{
  rv_journal_encoder_fini(&journal->encoder);
  rv_journal_writers_fini(&journal->writers);
  rv_journal_file_fini(&journal->file);
  rv_cond_fini(&journal->work);
  rv_cond_fini(&journal->done);
  rv_mutex_fini(&journal->lock);
  rv_journal_lock_free(journal->dir_lock);
  rv_store_unref(journal->store);
  free(journal->lists);
  free(journal->checkpoints);
  free(journal->dir);
  free(journal);
}

/* Of a start that failed, while the directory is still its own. */
static void remove_segments(rv_journal *journal)
{
  const rv_files *files = journal->file.files;
  uint64_t least;
  if (journal->file.segment == journal->last_found) return;
  if (rv_journal_is_needed(journal, journal->checkpoints, &least)) return;
  for (uint64_t segment = journal->last_found + 1; segment <= journal->file.segment; segment++) {
    char name[RV_JOURNAL_NAME_MAX];
    rv_segment_name(segment, name);
    char *path = rv_path_join(journal->dir, name);
    if (path == NULL || (files->remove(files->context, path) != 0 && errno != ENOENT))
      rv_log(&journal->env, RV_LOG_WARNING, "journal: segment %" PRIu64 " of a start that failed stays in %s, and is passed over",
             segment, journal->dir);
    free(path);
  }
}

static rv_code start_thread(rv_journal *journal, rv_error *err)
{
  int failed = rv_thread_start(&journal->thread, "rv-journal", rv_journal_run, journal);
  return failed == 0 ? RV_OK : rv_fail(err, RV_RESOURCE_EXHAUSTED, "no thread could be started for the journal");
}

/* The first segment is begun at once, so that a disk that takes nothing is known before anything depends on it. */
static rv_code begin(rv_journal *journal, rv_error *err)
{
  int number;
  rv_code code = rv_journal_write_once(journal, &number, err);
  if (code != RV_OK) {
    rv_journal_file_give_up(&journal->file);
    return code;
  }
  rv_journal_note_success(journal, (int64_t)journal->file.offset);
  code = rv_store_keep_changes(journal->store, &journal->log, err);
  if (code != RV_OK) return code;
  code = start_thread(journal, err);
  if (code != RV_OK) rv_store_drop_changes(journal->store);
  return code;
}

/* Of checkpoints, by a server that was killed when it wrote or removed them, and of segments: the disk may be full of that. One that does not go
 * on gives nothing up before its own checkpoint is whole. */
static void remove_left_behind(rv_journal *journal, bool goes_on)
{
  rv_partials_remove(journal->checkpoints, &journal->env);
  if (!goes_on) return;
  rv_checkpoints_retain(journal->checkpoints, UINT32_MAX, &journal->env);
  rv_journal_prune_early(journal);
}

rv_code rv_journal_open(const rv_journal_start *start, const rv_files *files, rv_journal **out, rv_error *err)
{
  rv_journal *journal = calloc(1, sizeof *journal);
  if (journal == NULL) {
    rv_journal_lock_free(start->lock);
    return rv_fail_memory(err, sizeof *journal);
  }
  const rv_journal_config *config = start->config;
  rv_change_log_init(&journal->log, config->max_queued_bytes, wake);
  journal->log.waits_on_fault = config->mode == RV_JOURNAL_PERIODIC; /* no more than the period may be lost */
  atomic_init(&journal->refs, 1);
  rv_env_fill(&journal->env, config->env != NULL ? config->env : rv_store_env(start->store));
  journal->store = rv_store_ref(start->store);
  journal->dir = strdup(start->dir);
  journal->checkpoints = strdup(start->checkpoints);
  journal->lists = calloc(rv_store_num_tables(start->store), sizeof *journal->lists);
  journal->dir_lock = start->lock;
  journal->mode = config->mode;
  journal->period_ns = config->period_ms * 1000000;
  journal->id[0] = start->id[0];
  journal->id[1] = start->id[1];
  atomic_init(&journal->newest_ns, start->newest_ns);
  journal->last_found = start->segment;
  atomic_init(&journal->abandoned, false);
  atomic_init(&journal->written, 0);
  rv_mutex_init(&journal->lock, RV_RANK_WAIT, "journal");
  rv_cond_init(&journal->work);
  rv_cond_init(&journal->done);
  rv_list_init(&journal->waiters);
  journal->stats.disk_bytes = start->disk_bytes;
  journal->covered_bytes = -start->fresh_bytes;
  rv_journal_writers_move(&journal->writers, start->writers);
  uint32_t salt = start->salt != 0 ? start->salt : (uint32_t)rv_entropy64(&journal->env) | 1;
  rv_journal_file_init(&journal->file, files, journal->dir, start->id, salt, start->segment, start->generation,
                       start->next_group);
  rv_code code = rv_journal_encoder_init(&journal->encoder, start->store, err);
  if (code == RV_OK && (journal->dir == NULL || journal->checkpoints == NULL || journal->lists == NULL))
    code = rv_fail_memory(err, strlen(start->dir));
  if (code == RV_OK) code = rv_journal_encode_forget_chunks(&journal->encoder, err);
  if (code == RV_OK) remove_left_behind(journal, start->goes_on);
  if (code == RV_OK) code = begin(journal, err);
  if (code == RV_OK) {
    rv_journal_encoder_clear(&journal->encoder);
    *out = journal;
    return RV_OK;
  }
  remove_segments(journal);
  destroy(journal);
  return code;
}

rv_journal *rv_journal_ref(rv_journal *journal)
{
  atomic_fetch_add_explicit(&journal->refs, 1, memory_order_relaxed);
  return journal;
}

bool rv_journal_end(rv_journal *journal)
{
  if (journal == NULL || atomic_fetch_sub_explicit(&journal->refs, 1, memory_order_acq_rel) != 1) return true;
  rv_mutex_lock(&journal->lock);
  journal->stopping = true;
  rv_cond_signal(&journal->work);
  rv_mutex_unlock(&journal->lock);
  pthread_join(journal->thread, NULL);
  bool whole = !journal->cut_short;
  rv_store_drop_changes(journal->store);
  if (atomic_load(&journal->abandoned)) remove_segments(journal);
  destroy(journal);
  return whole;
}

void rv_journal_unref(rv_journal *journal)
{
  rv_journal_end(journal);
}

void rv_journal_abandon(rv_journal *owned_journal)
{
  atomic_store(&owned_journal->abandoned, true);
  rv_journal_unref(owned_journal);
}
