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
  rv_mutex_lock(&journal->lock);
  uint64_t before = journal->generations;
  journal->wants_generation = true;
  rv_cond_signal(&journal->work);
  code = rv_journal_await(journal, has_begun, before + 1, watch, INT64_MAX, err);
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

rv_code rv_journal_lets_save(const rv_journal *journal, const char *checkpoints, rv_error *err)
{
  rv_checkpoint_list list;
  if (journal != NULL && rv_journal_goes_on_from(journal, checkpoints)) return RV_OK;
  rv_code code = rv_checkpoint_list_read(checkpoints, &list, err);
  if (code != RV_OK) return code;
  size_t newest = 0;
  while (newest < list.count && !list.entries[newest].done) newest++;
  if (newest < list.count) {
    char *path = rv_path_join(checkpoints, list.entries[newest].name);
    code = path == NULL ? rv_fail_memory(err, strlen(checkpoints)) : may_take_its_place(journal, path, err);
    free(path);
  }
  rv_checkpoint_list_fini(&list);
  return code;
}

/* False: none is. What cannot be looked at may need all: *least is 0. */
static bool least_needed(const rv_journal *journal, const char *root, uint64_t *least)
{
  rv_checkpoint_list list;
  *least = UINT64_MAX;
  if (rv_checkpoint_list_read(root, &list, NULL) != RV_OK) return false;
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

void rv_journal_prune(rv_journal *journal, const char *checkpoints)
{
  const rv_files *files = journal->file.files;
  rv_segment_list list;
  uint64_t least;
  int64_t left = 0;
  if (!rv_journal_goes_on_from(journal, checkpoints)) return;
  rv_mutex_lock(&journal->lock);
  journal->covered_bytes = journal->generation_bytes;
  rv_mutex_unlock(&journal->lock);
  if (!least_needed(journal, checkpoints, &least) || rv_segment_list_read(journal->dir, &list, NULL) != RV_OK) return;
  for (size_t i = 0; i < list.count; i++) {
    char name[RV_JOURNAL_NAME_MAX];
    rv_segment_name(list.entries[i].number, name);
    char *path = rv_path_join(journal->dir, name);
    bool goes = list.entries[i].number < least && path != NULL;
    if (goes && files->remove(files->context, path) != 0)
      rv_log(&journal->env, RV_LOG_WARNING, "journal: %s is no longer needed, and cannot be removed: %s", path,
             strerrordesc_np(errno));
    if (!goes) left += (int64_t)list.entries[i].bytes;
    free(path);
  }
  rv_segment_list_fini(&list);
  rv_mutex_lock(&journal->lock);
  journal->stats.disk_bytes = left;
  rv_mutex_unlock(&journal->lock);
}
