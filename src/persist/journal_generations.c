/* What a checkpoint asks of the journal: a generation to go on from, and that older segments go once nothing goes on from them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"
#include "persist/journal_parts.h"
#include "persist/journal_read.h"

static rv_code take_turn(rv_journal *journal, rv_error *err)
{
  rv_mutex_lock(&journal->lock);
  bool busy = journal->saving;
  journal->saving = true;
  rv_mutex_unlock(&journal->lock);
  return busy ? rv_fail(err, RV_FAILED_PRECONDITION, "another checkpoint of this store is being saved; wait for that one")
              : RV_OK;
}

void rv_journal_end_checkpoint(rv_journal *journal)
{
  rv_mutex_lock(&journal->lock);
  journal->saving = false;
  rv_mutex_unlock(&journal->lock);
}

static bool has_begun(const rv_journal *journal, uint64_t generation)
{
  return journal->generations >= generation;
}

rv_code rv_journal_begin_checkpoint(rv_journal *journal, const rv_checkpoint_watch *watch, uint64_t *segment, rv_error *err)
{
  rv_code code = take_turn(journal, err);
  if (code != RV_OK) return code;
  const rv_journal_patience until = {.deadline_ns = INT64_MAX, .watch = watch, .gives_way = true};
  rv_journal_prune_early(journal);
  rv_mutex_lock(&journal->lock);
  uint64_t before = journal->generations;
  journal->wants_generation = true;
  rv_cond_signal(&journal->work);
  code = rv_journal_await(journal, has_begun, before + 1, &until, err);
  *segment = journal->last_generation;
  rv_mutex_unlock(&journal->lock);
  if (code == RV_OK)
    atomic_store(&journal->log.snapshot, *segment);
  else
    rv_journal_end_checkpoint(journal);
  return code;
}

void rv_journal_get_link(const rv_journal *journal, uint64_t segment, rv_journal_link *out)
{
  *out = (rv_journal_link){.id = {journal->id[0], journal->id[1]}, .segment = segment};
}

bool rv_journal_goes_on_from(const rv_journal *journal, const char *checkpoints)
{
  struct stat own, other;
  if (strcmp(checkpoints, journal->checkpoints) == 0) return true;
  return stat(checkpoints, &other) == 0 && stat(journal->checkpoints, &own) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

/* A new checkpoint beside `checkpoint` takes its place. */
static rv_code may_take_its_place(const rv_journal *journal, const char *checkpoint, rv_error *err)
{
  rv_journal_link link;
  bool linked = false;
  rv_code code = rv_journal_link_read(checkpoint, &linked, &link, err);
  bool own = linked && journal != NULL && link.id[0] == journal->id[0] && link.id[1] == journal->id[1];
  if (code == RV_OK && (own || !linked)) return RV_OK;
  if (code != RV_OK && code != RV_DATA_LOSS) return code;
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "a journal goes on from %s, and would be cut off by a newer checkpoint there that is not its store's, or was "
                 "saved after it had ended. Give another directory; or, if nobody needs that journal any more, remove the "
                 "file " RV_LINK_FILE " from that checkpoint",
                 checkpoint);
}

/* The one that a start would take; list->count: none. */
static size_t newest_of(const rv_checkpoint_list *list)
{
  size_t newest = 0;
  while (newest < list->count && !list->entries[newest].done) newest++;
  return newest;
}

rv_code rv_journal_newest_checkpoint(const char *checkpoints, int64_t *wall_ns, rv_error *err)
{
  rv_checkpoint_list list;
  *wall_ns = INT64_MIN;
  rv_code code = rv_checkpoint_list_read(checkpoints, &list, err);
  if (code != RV_OK) return code;
  if (newest_of(&list) < list.count) *wall_ns = list.entries[newest_of(&list)].wall_ns;
  rv_checkpoint_list_fini(&list);
  return RV_OK;
}

rv_code rv_journal_lets_save(const rv_journal *journal, const char *checkpoints, rv_error *err)
{
  rv_checkpoint_list list;
  bool own = journal != NULL && rv_journal_goes_on_from(journal, checkpoints);
  rv_code code = rv_checkpoint_list_read(checkpoints, &list, err);
  if (code != RV_OK) return code;
  size_t newest = newest_of(&list);
  if (newest < list.count && !(own && list.entries[newest].wall_ns <= atomic_load(&journal->newest_ns))) {
    char *path = rv_path_join(checkpoints, list.entries[newest].name);
    code = path == NULL ? rv_fail_memory(err, strlen(checkpoints)) : may_take_its_place(journal, path, err);
    free(path);
  }
  rv_checkpoint_list_fini(&list);
  return code;
}

bool rv_journal_is_needed(const rv_journal *journal, const char *root, uint64_t *least)
{
  rv_checkpoint_list list;
  *least = 0;
  if (rv_checkpoint_list_read(root, &list, NULL) != RV_OK) return true;
  *least = UINT64_MAX;
  for (size_t i = 0; i < list.count; i++) {
    rv_journal_link link;
    rv_error err;
    bool found = false;
    if (list.entries[i].unknown == EACCES && list.entries[i].wall_ns == INT64_MIN) continue; /* somebody else's, as lost+found */
    char *path = rv_path_join(root, list.entries[i].name);
    rv_code code = path == NULL ? rv_fail_memory(&err, strlen(root)) : rv_journal_link_read(path, &found, &link, &err);
    if (code != RV_OK) {
      *least = 0;
      rv_log(&journal->env, RV_LOG_WARNING, "journal: all its segments stay: %s", err.message);
    } else if (found && link.id[0] == journal->id[0] && link.id[1] == journal->id[1] && link.segment < *least) {
      *least = link.segment;
    }
    free(path);
  }
  rv_checkpoint_list_fini(&list);
  return *least != UINT64_MAX;
}

/* Of any journal; or `only_own`, as their headers say. */
static void remove_segments(rv_journal *journal, uint64_t least, bool only_own)
{
  const rv_files *files = journal->file.files;
  rv_segment_list list;
  int64_t left = 0;
  bool gone = false;
  if (rv_segment_list_read(journal->dir, &list, NULL) != RV_OK) return;
  for (size_t i = 0; i < list.count; i++) {
    const rv_segment_entry *entry = &list.entries[i];
    bool own = !entry->damaged && entry->header.id[0] == journal->id[0] && entry->header.id[1] == journal->id[1];
    char name[RV_JOURNAL_NAME_MAX];
    rv_segment_name(entry->number, name);
    char *path = rv_path_join(journal->dir, name);
    bool goes = entry->number < least && path != NULL && (own || !only_own);
    if (goes && files->remove(files->context, path) != 0 && errno != ENOENT) /* another saver was quicker */
      rv_log(&journal->env, RV_LOG_WARNING, "journal: %s is no longer needed, and cannot be removed: %s", path,
             rv_system_error(errno));
    if (!goes) left += (int64_t)entry->bytes;
    gone |= goes;
    free(path);
  }
  rv_segment_list_fini(&list);
  if (!gone) return;
  rv_mutex_lock(&journal->lock);
  journal->stats.disk_bytes = left;
  rv_mutex_unlock(&journal->lock);
}

void rv_journal_note_checkpoint(rv_journal *journal, const char *checkpoints, const char *checkpoint)
{
  int64_t newest_ns;
  if (!rv_journal_goes_on_from(journal, checkpoints)) return;
  if (rv_checkpoint_name_parse(strrchr(checkpoint, '/') + 1, &newest_ns)) atomic_store(&journal->newest_ns, newest_ns);
  rv_mutex_lock(&journal->lock);
  journal->covered_bytes = journal->generation_bytes;
  rv_mutex_unlock(&journal->lock);
}

void rv_journal_prune(rv_journal *journal, const char *checkpoints)
{
  uint64_t least;
  if (!rv_journal_goes_on_from(journal, checkpoints)) return;
  if (rv_journal_is_needed(journal, checkpoints, &least)) remove_segments(journal, least, false);
}

void rv_journal_prune_early(rv_journal *journal)
{
  const rv_files *files = journal->file.files;
  uint64_t least;
  if (files->sync_directory(files->context, journal->checkpoints) != 0) return;
  if (rv_journal_is_needed(journal, journal->checkpoints, &least)) remove_segments(journal, least, true);
}
