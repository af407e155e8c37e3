#include "reverie/checkpoint.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "persist/checkpoint_mark.h"
#include "persist/checkpoint_others.h"
#include "persist/checkpointer_parts.h"
#include "persist/journal.h"
#include "persist/record_file.h"

enum { WAIT_NS = 20000000 };

/* ---- making ---- */

static rv_code absolute(const char *path, char **out, rv_error *err)
{
  if (path[0] == '~' && (path[1] == '/' || path[1] == '\0'))
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "the checkpointer's path \"%.200s\" begins with ~, which only a shell knows; write the directory out", path);
  if (path[0] == '/') {
    *out = strdup(path);
  } else {
    char here[PATH_MAX];
    if (getcwd(here, sizeof here) == NULL) return rv_fail_system(err, errno, "find the directory of", path);
    *out = rv_path_join(here, path);
  }
  if (*out == NULL) return rv_fail_memory(err, strlen(path));
  for (size_t size = strlen(*out); size > 1 && (*out)[size - 1] == '/'; size--) (*out)[size - 1] = '\0';
  return RV_OK;
}

rv_code rv_checkpointer_new(const rv_checkpointer_config *config, rv_checkpointer **out, rv_error *err)
{
  return rv_checkpointer_new_with(config, &rv_files_of_system, out, err);
}

rv_code rv_checkpointer_new_with(const rv_checkpointer_config *config, const rv_files *files, rv_checkpointer **out,
                                 rv_error *err)
{
  rv_checkpointer_config full = {0};
  memcpy(&full, config, config->size < sizeof full ? config->size : sizeof full);
  if (full.path == NULL || full.path[0] == '\0')
    return rv_fail(err, RV_INVALID_ARGUMENT, "a checkpointer needs the path of a directory");
  if (full.level < -1 || full.level > 9)
    return rv_fail(err, RV_INVALID_ARGUMENT, "compression level %d: give 1 (fast) to 9 (small), or -1 for none", (int)full.level);
  rv_checkpointer *checkpointer = calloc(1, sizeof *checkpointer);
  if (checkpointer == NULL) return rv_fail_memory(err, sizeof *checkpointer);
  atomic_init(&checkpointer->refs, 1);
  rv_mutex_init(&checkpointer->lock, RV_RANK_WAIT, "checkpointer");
  rv_cond_init(&checkpointer->saved);
  rv_env_fill(&checkpointer->env, full.env);
  checkpointer->level = full.level == 0 ? RV_LEVEL_WHERE_IT_PAYS : full.level < 0 ? 0 : full.level;
  checkpointer->keep = full.keep == 0 ? 1 : full.keep;
  checkpointer->files = files;
  checkpointer->required = full.required;
  checkpointer->fresh = full.fresh;
  atomic_init(&checkpointer->made, false);
  atomic_init(&checkpointer->told_of_others, false);
  checkpointer->hold = -1;
  checkpointer->has_group = full.group != NULL && full.group[0] != '\0';
  rv_code code = absolute(full.path, &checkpointer->path, err);
  if (code == RV_OK && full.fallback_path != NULL && full.fallback_path[0] != '\0')
    code = absolute(full.fallback_path, &checkpointer->fallback, err);
  if (code == RV_OK && full.incremental) code = rv_increments_new(&checkpointer->env, files, &checkpointer->increments, err);
  if (code != RV_OK) {
    rv_checkpointer_unref(checkpointer);
    return code;
  }
  *out = checkpointer;
  return RV_OK;
}

rv_checkpointer *rv_checkpointer_ref(rv_checkpointer *checkpointer)
{
  atomic_fetch_add_explicit(&checkpointer->refs, 1, memory_order_relaxed);
  return checkpointer;
}

void rv_checkpointer_unref(rv_checkpointer *checkpointer)
{
  if (checkpointer == NULL || atomic_fetch_sub_explicit(&checkpointer->refs, 1, memory_order_acq_rel) != 1) return;
  rv_cond_fini(&checkpointer->saved);
  rv_mutex_fini(&checkpointer->lock);
  rv_increments_free(checkpointer->increments);
  rv_checkpoint_mark_release(checkpointer->hold);
  free(checkpointer->newest);
  free(checkpointer->path);
  free(checkpointer->fallback);
  free(checkpointer);
}

const char *rv_checkpointer_path(const rv_checkpointer *checkpointer)
{
  return checkpointer->path;
}

bool rv_checkpointer_has(const rv_checkpointer *checkpointer, const char *checkpoint)
{
  size_t size = strlen(checkpointer->path);
  return strncmp(checkpoint, checkpointer->path, size) == 0 && checkpoint[size] == '/' &&
         strchr(checkpoint + size + 1, '/') == NULL;
}

/* ---- looking whether it could save ---- */

rv_code rv_checkpointer_check_root(const char *path, rv_error *err)
{
  char *done = rv_path_join(path, RV_DONE_FILE);
  if (done == NULL) return rv_fail_memory(err, strlen(path));
  bool is_checkpoint = access(done, F_OK) == 0;
  free(done);
  if (!is_checkpoint) return RV_OK;
  const char *slash = strrchr(path, '/');
  int length = slash == NULL || slash == path ? 1 : (int)(slash - path);
  return rv_fail(
      err, RV_INVALID_ARGUMENT,
      "%s is a checkpoint itself, and checkpoints go into a directory of theirs: give %.*s, or this one as the fallback "
      "checkpoint of a new directory",
      path, length, path);
}

rv_code rv_checkpointer_check(const rv_checkpointer *checkpointer, rv_error *err)
{
  rv_code code = rv_checkpointer_check_root(checkpointer->path, err);
  if (code != RV_OK) return code;
  code = rv_check_directories(checkpointer->path, err);
  if (code != RV_OK) rv_error_prefix(err, "no checkpoint could be saved");
  return code;
}

bool rv_checkpointer_any_in(const char *path)
{
  rv_checkpoint_list list;
  bool any = false;
  if (rv_checkpoint_list_read_whole(path, &list, NULL) != RV_OK) return false;
  for (size_t i = 0; i < list.count && !any; i++) any = list.entries[i].done;
  rv_checkpoint_list_fini(&list);
  return any;
}

rv_code rv_checkpointer_fail_empty(const rv_checkpointer *checkpointer, rv_error *err)
{
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "%s %s, and one is required: mount its volume, or give the directory that has them. To begin empty, start once "
                 "without required (checkpoint_required)",
                 checkpointer->path, rv_checkpointer_lacks(checkpointer));
}

const char *rv_checkpointer_lacks(const rv_checkpointer *checkpointer)
{
  return access(checkpointer->path, F_OK) != 0 || atomic_load(&checkpointer->made) ? "was not there" : "has no checkpoint";
}

bool rv_checkpointer_is_fresh(const rv_checkpointer *checkpointer)
{
  return checkpointer->fresh;
}

rv_code rv_checkpointer_has_required(const rv_checkpointer *checkpointer, rv_error *err)
{
  bool has = !checkpointer->required || rv_checkpointer_any_in(checkpointer->path) ||
             (checkpointer->fallback != NULL && rv_checkpoint_is_done(checkpointer->fallback));
  return has ? RV_OK : rv_checkpointer_fail_empty(checkpointer, err);
}

rv_code rv_checkpointer_prepare(rv_checkpointer *checkpointer, rv_error *err)
{
  rv_partial partial;
  rv_error fault;
  rv_code code = rv_checkpointer_check_root(checkpointer->path, err);
  if (code == RV_OK) code = rv_checkpointer_has_required(checkpointer, err);
  if (code != RV_OK) return code;
  if (access(checkpointer->path, F_OK) != 0) atomic_store(&checkpointer->made, true);
  code = rv_partial_begin(checkpointer->path, &checkpointer->env, checkpointer->files, &partial, &fault);
  if (code == RV_OK) rv_partial_drop(&partial, &checkpointer->env);
  if (code == RV_OK) return RV_OK;
  rv_error_prefix(&fault, "no checkpoint could be saved");
  if (code != RV_RESOURCE_EXHAUSTED) return rv_error_copy(err, &fault);
  rv_log(&checkpointer->env, RV_LOG_WARNING, "%s", fault.message);
  return RV_OK;
}

/* ---- holding the newest ---- */

/* Under the lock. */
static void let_go(rv_checkpointer *checkpointer)
{
  rv_checkpoint_mark_release(checkpointer->hold);
  checkpointer->hold = -1;
}

void rv_checkpointer_note_newest(rv_checkpointer *checkpointer, const char *path, int hold)
{
  rv_mutex_lock(&checkpointer->lock);
  free(checkpointer->newest);
  checkpointer->newest = strdup(path);
  let_go(checkpointer);
  checkpointer->hold = hold;
  rv_mutex_unlock(&checkpointer->lock);
}

void rv_checkpointer_begin_holding(rv_checkpointer *checkpointer)
{
  rv_mutex_lock(&checkpointer->lock);
  checkpointer->holders++;
  if (checkpointer->hold < 0 && checkpointer->newest != NULL) checkpointer->hold = rv_checkpoint_mark_share(checkpointer->newest);
  rv_mutex_unlock(&checkpointer->lock);
}

void rv_checkpointer_end_holding(rv_checkpointer *checkpointer)
{
  rv_mutex_lock(&checkpointer->lock);
  if (--checkpointer->holders == 0) let_go(checkpointer);
  rv_mutex_unlock(&checkpointer->lock);
}

void rv_checkpointer_hold_for_holders(rv_checkpointer *checkpointer)
{
  rv_mutex_lock(&checkpointer->lock);
  if (checkpointer->holders == 0) let_go(checkpointer);
  rv_mutex_unlock(&checkpointer->lock);
}

void rv_checkpointer_tell_others(rv_checkpointer *checkpointer, const char *own)
{
  char who[RV_WHO_MAX];
  if (atomic_load(&checkpointer->told_of_others) || !rv_checkpoint_has_others(checkpointer->path, own, who)) return;
  atomic_store(&checkpointer->told_of_others, true);
  rv_log(
      &checkpointer->env, RV_LOG_WARNING,
      "%s uses %s, too: what it inserts is not in this server, nor this one's in it, a start begins with what either saved last, "
      "and each removes the other's older checkpoints. Unless it only reads one, or is about to end, give each server a "
      "directory of its own",
      who, checkpointer->path);
}

/* ---- saving ---- */

static void set_saving(rv_checkpointer *checkpointer)
{
  checkpointer->saving = true;
  checkpointer->by = pthread_self();
}

/* Waits for one that is under way, as long as the watch lets it. */
static rv_code begin_saving(rv_checkpointer *checkpointer, const rv_checkpoint_watch *watch, rv_error *err)
{
  const rv_checkpoint_progress none = {.size = sizeof none};
  rv_code code = RV_OK;
  rv_mutex_lock(&checkpointer->lock);
  while (checkpointer->saving && code == RV_OK) {
    if (pthread_equal(checkpointer->by, pthread_self()))
      code = rv_fail(
          err, RV_FAILED_PRECONDITION,
          "this thread is saving one to %s already, and what it calls meanwhile (a signal handler, say) cannot save another",
          checkpointer->path);
    else if (watch == NULL)
      code = rv_fail(err, RV_FAILED_PRECONDITION, "one is being saved to %s already; wait for that", checkpointer->path);
    else if (!rv_cond_wait_for(&checkpointer->saved, &checkpointer->lock, WAIT_NS)) {
      rv_mutex_unlock(&checkpointer->lock);
      code = rv_checkpoint_ask(watch, &none, err);
      rv_mutex_lock(&checkpointer->lock);
    }
  }
  if (code == RV_OK) set_saving(checkpointer);
  rv_mutex_unlock(&checkpointer->lock);
  return code;
}

bool rv_checkpointer_try_saving(rv_checkpointer *checkpointer)
{
  rv_mutex_lock(&checkpointer->lock);
  bool taken = !checkpointer->saving;
  if (taken) set_saving(checkpointer);
  rv_mutex_unlock(&checkpointer->lock);
  return taken;
}

void rv_checkpointer_end_saving(rv_checkpointer *checkpointer)
{
  rv_mutex_lock(&checkpointer->lock);
  checkpointer->saving = false;
  rv_cond_signal(&checkpointer->saved);
  rv_mutex_unlock(&checkpointer->lock);
}

/* Which items of which writer are in is in the journal alone: what the checkpoint holds of them must be there before it counts. */
static rv_code link_journal(const rv_partial *partial, rv_journal *journal, uint64_t segment, const rv_checkpoint_watch *watch,
                            rv_error *err)
{
  rv_journal_link link;
  char text[128];
  rv_code code = rv_journal_settle(journal, watch, err);
  if (code != RV_OK) return code;
  rv_journal_get_link(journal, segment, &link);
  rv_journal_link_text(&link, text);
  return rv_partial_put(partial, RV_LINK_FILE, text, err);
}

/* Again, since others may have saved there meanwhile. */
static rv_code finish(rv_partial *partial, const rv_checkpointer *checkpointer, const rv_journal *journal, char **path,
                      rv_error *err)
{
  rv_code code = rv_journal_lets_save(journal, checkpointer->path, err);
  return code == RV_OK ? rv_partial_finish(partial, checkpointer->path, &checkpointer->env, path, err) : code;
}

static rv_code write_checkpoint(rv_checkpointer *checkpointer, rv_store *store, rv_journal *journal,
                                const rv_checkpoint_watch *watch, char **path, rv_error *err)
{
  const rv_env *env = &checkpointer->env;
  rv_partial partial;
  uint64_t segment = 0;
  rv_code code = rv_journal_lets_save(journal, checkpointer->path, err);
  if (code == RV_OK) code = rv_partial_begin(checkpointer->path, env, checkpointer->files, &partial, err);
  if (code != RV_OK) return code;
  bool begun = false;
  if (journal != NULL) {
    code = rv_journal_begin_checkpoint(journal, watch, &segment, err);
    begun = code == RV_OK;
  }
  const rv_checkpoint_target target = {.dir = partial.path,
                                       .level = checkpointer->level,
                                       .files = checkpointer->files,
                                       .increments = checkpointer->increments,
                                       .watch = watch};
  if (code == RV_OK) code = rv_checkpoint_write(&target, store, err);
  if (begun && code == RV_OK) code = link_journal(&partial, journal, segment, watch, err);
  if (code == RV_OK) code = finish(&partial, checkpointer, journal, path, err);
  if (checkpointer->increments != NULL) rv_increments_end(checkpointer->increments, code == RV_OK ? *path : NULL);
  if (code == RV_OK) {
    rv_checkpointer_note_newest(checkpointer, *path, partial.lock); /* the lock that it had when it got its name */
    partial.lock = -1;
  }
  rv_partial_drop(&partial, env);
  if (code == RV_OK) rv_checkpoints_retire(checkpointer->path, checkpointer->keep, env);
  if (code == RV_OK && journal == NULL) rv_checkpointer_tell_others(checkpointer, *path);
  if (begun && code == RV_OK) rv_journal_note_checkpoint(journal, checkpointer->path, *path);
  if (begun) rv_journal_end_checkpoint(journal);
  return code;
}

/* Others may save by now. */
static void remove_older(rv_checkpointer *checkpointer, rv_journal *journal)
{
  rv_checkpoints_retain(checkpointer->path, checkpointer->keep, &checkpointer->env);
  rv_checkpointer_hold_for_holders(checkpointer);
  if (journal != NULL) rv_journal_prune(journal, checkpointer->path);
}

static rv_code save(rv_checkpointer *checkpointer, rv_store *store, const rv_checkpoint_watch *watch, rv_saved_hook hook,
                    char **path, rv_error *err)
{
  char *made = NULL;
  rv_journal *journal = rv_journal_of(store);
  rv_code code = write_checkpoint(checkpointer, store, journal, watch, &made, err);
  rv_checkpointer_end_saving(checkpointer);
  if (code == RV_OK && hook.saved != NULL) hook.saved(hook.context, made);
  if (code == RV_OK) remove_older(checkpointer, journal);
  rv_journal_unref(journal);
  if (code == RV_OK && path != NULL)
    *path = made;
  else
    free(made);
  return code;
}

rv_code rv_checkpointer_save_telling(rv_checkpointer *checkpointer, rv_store *store, const rv_checkpoint_watch *watch,
                                     rv_saved_hook hook, char **path, rv_error *err)
{
  if (path != NULL) *path = NULL;
  if (checkpointer->has_group)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "no checkpoint was saved: the checkpointer has a group, and there are none; leave it empty");
  rv_code code = begin_saving(checkpointer, watch, err);
  if (code == RV_OK) {
    rv_store_ref(store);
    code = save(checkpointer, store, watch, hook, path, err);
    rv_store_unref(store);
  }
  if (code != RV_OK) rv_error_prefix(err, "no checkpoint was saved");
  return code;
}

rv_code rv_checkpointer_save(rv_checkpointer *checkpointer, rv_store *store, const rv_checkpoint_watch *watch, char **path,
                             rv_error *err)
{
  return rv_checkpointer_save_telling(checkpointer, store, watch, (rv_saved_hook){NULL, NULL}, path, err);
}

/* ---- exporting ---- */

/* Under a name of now it would be the newest there: a start would begin with it, and a save remove what is newer. */
static rv_code check_elsewhere(const char *checkpoint, const char *root, rv_error *err)
{
  char *above = rv_path_join(checkpoint, "..");
  if (above == NULL) return rv_fail_memory(err, strlen(checkpoint));
  bool same = rv_is_same_directory(above, root);
  free(above);
  if (!same) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT, "%s is in %s itself, whose newest the copy would be; export it to another directory",
                 checkpoint, root);
}

rv_code rv_checkpoint_export(const char *checkpoint, rv_checkpointer *to, const rv_checkpoint_watch *watch, char **path,
                             rv_error *err)
{
  char *made = NULL;
  rv_partial partial = {.lock = -1};
  if (path != NULL) *path = NULL;
  if (checkpoint == NULL || checkpoint[0] == '\0')
    return rv_fail(err, RV_INVALID_ARGUMENT, "nothing was exported: no checkpoint was named");
  int hold = -1;
  rv_code code = rv_journal_lets_save(NULL, to->path, err);
  if (code == RV_OK) code = rv_partial_begin(to->path, &to->env, to->files, &partial, err);
  if (code == RV_OK) code = rv_checkpoint_hold(checkpoint, &to->env, watch, &hold, err);
  if (code == RV_OK) code = check_elsewhere(checkpoint, to->path, err);
  if (code == RV_OK) code = rv_checkpoint_copy(checkpoint, &partial, to->level, watch, err);
  rv_checkpoint_mark_release(hold);
  if (code == RV_OK) code = finish(&partial, to, NULL, &made, err);
  rv_partial_drop(&partial, &to->env);
  if (code == RV_OK && path != NULL)
    *path = made;
  else
    free(made);
  if (code != RV_OK) rv_error_prefix(err, "nothing was exported");
  return code;
}
