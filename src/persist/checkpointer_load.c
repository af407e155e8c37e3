/* What a server begins with: the newest whole checkpoint of the root, the fallback, or nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "persist/checkpoint_await.h"
#include "persist/checkpoint_mark.h"
#include "persist/checkpointer_parts.h"
#include "persist/journal.h"

enum { LISTED_AGAIN = 20 };

typedef struct restoring {
  rv_checkpointer *checkpointer;
  rv_checkpoint_source source;
  rv_store **out;
  char **loaded;
  bool for_journal; /* which goes on from what is restored */
} restoring;

/* What came after it is in its journal alone: without that it would be lost in silence. */
static rv_code needs_no_journal(const char *dir, rv_error *err)
{
  rv_journal_link link;
  bool linked = false;
  rv_code code = rv_journal_link_read(dir, &linked, &link, err);
  if (code == RV_OK && !linked) return RV_OK;
  if (code != RV_OK && code != RV_DATA_LOSS) return code;
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "a journal goes on from this checkpoint, and none was given: what was confirmed since would be lost. Give the "
                 "journal; or, to go on without what it has, remove the file " RV_LINK_FILE " from the checkpoint");
}

static rv_code load(restoring *work, const char *dir, bool *damaged, rv_error *err)
{
  *damaged = false;
  char *copy = strdup(dir);
  if (copy == NULL) return rv_fail_memory(err, strlen(dir));
  work->source.dir = dir;
  rv_code code = rv_checkpoint_read(&work->source, work->out, damaged, err);
  if (code == RV_OK) rv_log(&work->checkpointer->env, RV_LOG_INFO, "restored from %s", dir);
  if (code == RV_OK && work->loaded != NULL)
    *work->loaded = copy;
  else
    free(copy);
  return code;
}

typedef struct search {
  bool found;   /* the root has a checkpoint at all, and the result is about it */
  bool changed; /* one went before it was read: a server that saves removes older ones */
  rv_error first;
} search;

/* Goes on with the one before where it returns RV_OK without a store. */
static rv_code try_one(restoring *work, const rv_checkpoint_entry *entry, search *all, rv_error *err)
{
  const rv_env *env = &work->checkpointer->env;
  rv_error fault;
  bool damaged = false;
  char *dir = rv_path_join(work->checkpointer->path, entry->name);
  if (dir == NULL) return rv_fail_memory(err, strlen(work->checkpointer->path));
  int hold;
  rv_code code = RV_OK;
  bool named = entry->wall_ns != INT64_MIN;
  if (entry->unknown == 0 ? !entry->done : !named) { /* half written; or somebody else's, as lost+found */
    if (entry->unknown == 0 && named)
      rv_log(env, RV_LOG_WARNING, "%s has no " RV_DONE_FILE ": it is half written, and passed over", dir);
    free(dir);
    return RV_OK;
  }
  code = rv_checkpoint_hold(dir, env, work->source.watch, &hold, &fault);
  bool held = code == RV_OK;
  if (held && !work->for_journal) code = needs_no_journal(dir, &fault);
  if (held && code == RV_OK) code = load(work, dir, &damaged, &fault);
  if (held && code == RV_OK) {
    rv_checkpointer_note_newest(work->checkpointer, dir, hold);
    hold = -1;
  }
  if ((!held || damaged) && !rv_checkpoint_is_done(dir)) {
    all->changed = true;
    damaged = false;
  }
  rv_checkpoint_mark_release(hold);
  if (code != RV_OK && damaged) {
    rv_log(env, RV_LOG_WARNING, "%s cannot be used, and is passed over: %s", dir, fault.message);
    if (!all->found) all->first = fault;
    code = RV_OK;
  } else if (code != RV_OK) {
    /* the machine's fault, which may pass: going back to older data on its own the server would lose what is newer for good */
    const bool unread = code == RV_UNKNOWN;
    rv_error_prefix(&fault, "%s%s", dir,
                    unread ? " cannot be read now (start again; or, to begin with the one before, move it away)" : "");
    rv_error_copy(err, &fault);
  }
  all->found = true;
  free(dir);
  return code;
}

/* The newest that is whole. */
static rv_code load_newest(restoring *work, search *all, rv_error *err)
{
  rv_code code = RV_OK;
  for (int tries = 0; tries < LISTED_AGAIN; tries++) {
    rv_checkpoint_list list;
    *all = (search){.found = false};
    code = rv_checkpoint_list_read_whole(work->checkpointer->path, &list, err);
    if (code != RV_OK) return code;
    for (size_t i = 0; i < list.count && code == RV_OK && *work->out == NULL; i++)
      code = try_one(work, &list.entries[i], all, err);
    rv_checkpoint_list_fini(&list);
    if (!all->changed) break;
  }
  if (code == RV_OK && *work->out == NULL && all->found) {
    code = rv_error_copy(err, &all->first);
    rv_error_prefix(err, "no checkpoint in %s is whole%s", work->checkpointer->path,
                    work->for_journal ? "" : " (to begin empty, move the damaged ones away)");
  }
  return code;
}

/* RV_OK without a store: there is none that can be used. Whoever gave up, or has no memory left, is not to begin empty for it. */
static rv_code load_fallback(restoring *work, rv_error *err)
{
  const rv_checkpointer *checkpointer = work->checkpointer;
  rv_error fault;
  bool damaged;
  if (checkpointer->fallback == NULL) return RV_OK;
  int hold;
  rv_code code = rv_checkpoint_hold(checkpointer->fallback, &checkpointer->env, work->source.watch, &hold, &fault);
  if (code == RV_OK) code = load(work, checkpointer->fallback, &damaged, &fault);
  rv_checkpoint_mark_release(hold);
  if (code == RV_CANCELLED || code == RV_RESOURCE_EXHAUSTED) {
    rv_error_prefix(&fault, "%s", checkpointer->fallback);
    return rv_error_copy(err, &fault);
  }
  if (code != RV_OK)
    rv_log(&checkpointer->env, RV_LOG_WARNING, "the fallback checkpoint %s cannot be used, and is passed over: %s%s",
           checkpointer->fallback, fault.message,
           rv_checkpointer_any_in(checkpointer->fallback) ? "; it is a directory of checkpoints: give one of those in it" : "");
  return RV_OK;
}

static rv_code begin_empty(const restoring *work, rv_error *err)
{
  const rv_checkpointer *checkpointer = work->checkpointer;
  if (checkpointer->required) return rv_checkpointer_fail_empty(checkpointer, err);
  if (!work->for_journal && !checkpointer->fresh)
    rv_log(&checkpointer->env, RV_LOG_WARNING, "begins empty: %s %s; if there should be one, is its volume mounted?",
           checkpointer->path, rv_checkpointer_lacks(checkpointer));
  rv_code code = rv_store_new(work->source.config, work->out, err);
  if (code == RV_OK) code = rv_checkpoint_begin_spill(work->source.watch, *work->out, err);
  if (code == RV_OK) return RV_OK;
  rv_store_unref(*work->out);
  *work->out = NULL;
  return code;
}

rv_code rv_checkpointer_load(rv_checkpointer *checkpointer, const rv_store_config *config, const rv_checkpoint_watch *watch,
                             bool for_journal, rv_store **out, char **loaded, rv_error *err)
{
  search all;
  restoring work = {.checkpointer = checkpointer,
                    .source = {.config = config, .watch = watch, .env = &checkpointer->env},
                    .out = out,
                    .loaded = loaded,
                    .for_journal = for_journal};
  *out = NULL;
  if (loaded != NULL) *loaded = NULL;
  rv_code code = rv_checkpoint_expect_spill(watch, err);
  if (code == RV_OK) code = rv_checkpointer_check_root(checkpointer->path, err);
  if (code == RV_OK && !for_journal) /* a journal's start has waited before it looked which is the newest */
    code = rv_checkpoint_await_writers(checkpointer->path, &checkpointer->env, watch, err);
  if (code != RV_OK) return code;
  bool taken = checkpointer->increments != NULL && rv_checkpointer_try_saving(checkpointer);
  if (taken) work.source.increments = checkpointer->increments;
  code = load_newest(&work, &all, err);
  if (code == RV_OK && !all.found) code = load_fallback(&work, err);
  if (code == RV_OK && *out == NULL) code = begin_empty(&work, err);
  if (taken) rv_checkpointer_end_saving(checkpointer);
  rv_checkpointer_hold_for_holders(checkpointer);
  if (code == RV_OK && !for_journal) rv_checkpointer_tell_others(checkpointer, NULL);
  return code;
}

rv_code rv_checkpointer_restore(rv_checkpointer *checkpointer, const rv_store_config *config, const rv_checkpoint_watch *watch,
                                rv_store **out, char **loaded, rv_error *err)
{
  return rv_checkpointer_load(checkpointer, config, watch, false, out, loaded, err);
}
