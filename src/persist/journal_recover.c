#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "persist/checkpoint_await.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"
#include "persist/journal.h"
#include "persist/journal_read.h"
#include "persist/journal_replay.h"
#include "persist/record_file.h"
#include "persist/table_merge.h"
#include "store/replay.h"

enum { DEFAULT_PERIOD_MS = 1000, ASK_EACH = 16, GAPS_TOLD = 20 };

static const size_t default_queued_bytes = (size_t)256 << 20;

typedef struct recovery {
  rv_journal_config config; /* whole */
  const rv_files *files;
  rv_env env;
  char *dir;
  rv_journal_lock *lock;
  rv_checkpointer *checkpointer;
  const rv_checkpoint_watch *watch;
  rv_store *store;
  char *checkpoint;            /* that was loaded; NULL: none */
  rv_segment_list segments;    /* all */
  rv_segment_list own, others; /* those of the journal that the checkpoint names; what salvage that was cut short has left */
  bool *held;                  /* of the store's tables, those that it has; NULL: not known yet */
  rv_journal_writers writers;
  uint64_t id[2], next_group, from; /* the first segment that the checkpoint does not cover */
  uint64_t linked;                  /* the segment that the checkpoint names, and that is missing; 0: none is */
  int64_t newest_ns;                /* of the checkpoints, before one was restored */
  bool known;                       /* the journal goes on: its id is the store's */
  size_t gaps;                      /* that were passed over */
  bool made;                        /* the directory: it was not there */
} recovery;

/* ---- beginning ---- */

rv_code rv_journal_check_directory(const char *path, rv_error *err)
{
  rv_code code = rv_check_directories(path, err);
  if (code == RV_OK && access(path, R_OK) != 0 && errno != ENOENT) code = rv_fail_system(err, errno, "list the directory", path);
  if (code == RV_OK) code = rv_journal_lock_check(path, err);
  if (code != RV_OK) rv_error_prefix(err, "no journal could be written");
  return code;
}

rv_code rv_journal_check_tables(size_t num_tables, rv_error *err)
{
  if (num_tables <= RV_JOURNAL_TABLES_MAX) return RV_OK;
  return rv_fail(
      err, RV_INVALID_ARGUMENT,
      "the store has %zu tables, and a journal can be recovered with %d at most: divide them among several servers, or go "
      "without a journal",
      num_tables, RV_JOURNAL_TABLES_MAX);
}

static rv_code begin(recovery *work, const rv_journal_config *given, const rv_store_config *store_config, rv_error *err)
{
  memcpy(&work->config, given, given->size < sizeof work->config ? given->size : sizeof work->config);
  rv_journal_config *config = &work->config;
  if (config->path == NULL || config->path[0] == '\0')
    return rv_fail(err, RV_INVALID_ARGUMENT, "a journal needs the path of a directory");
  if (config->mode != RV_JOURNAL_PERIODIC && config->mode != RV_JOURNAL_ALWAYS)
    return rv_fail(err, RV_INVALID_ARGUMENT, "journal mode %d: give RV_JOURNAL_PERIODIC or RV_JOURNAL_ALWAYS", (int)config->mode);
  if (config->period_ms < 0 || config->period_ms > INT32_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "journal period_ms is %" PRId64 "; give 1 to %d", config->period_ms, INT32_MAX);
  if (work->checkpointer == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a journal needs a checkpointer: what a checkpoint holds goes from the journal");
  rv_code code = rv_journal_check_tables(store_config->num_tables, err);
  if (code != RV_OK) return code;
  if (config->period_ms == 0) config->period_ms = DEFAULT_PERIOD_MS;
  if (config->max_queued_bytes > SIZE_MAX / 4)
    return rv_fail(err, RV_INVALID_ARGUMENT, "journal max_queued_bytes is %zu; give %zu at most", config->max_queued_bytes,
                   SIZE_MAX / 4);
  if (config->max_queued_bytes == 0) config->max_queued_bytes = default_queued_bytes;
  rv_env_fill(&work->env, config->env != NULL ? config->env : store_config->env);
  char whole[PATH_MAX] = "";
  if (config->path[0] != '/' && getcwd(whole, sizeof whole) == NULL)
    return rv_fail_system(err, errno, "find the directory of", config->path);
  work->dir = config->path[0] == '/' ? strdup(config->path) : rv_path_join(whole, config->path);
  if (work->dir == NULL) return rv_fail_memory(err, strlen(config->path));
  if (rv_is_same_directory(work->dir, rv_checkpointer_path(work->checkpointer)))
    return rv_fail(err, RV_INVALID_ARGUMENT, "the journal and the checkpoints have one directory, %s; give each its own",
                   work->dir);
  code = rv_checkpointer_has_required(work->checkpointer, err);
  work->made = access(work->dir, F_OK) != 0;
  if (code == RV_OK) code = rv_make_directories(work->dir, err);
  if (code == RV_OK) code = rv_journal_lock_new(work->dir, &work->env, &work->lock, err);
  if (code == RV_OK) code = rv_segment_list_read(work->dir, &work->segments, err);
  if (code == RV_OK) rv_journal_writers_init(&work->writers, rv_entropy64(&work->env));
  return code;
}

static void fini(recovery *work)
{
  rv_segment_list_fini(&work->segments);
  rv_segment_list_fini(&work->own);
  rv_segment_list_fini(&work->others);
  rv_journal_writers_fini(&work->writers);
  free(work->held);
  if (work->store != NULL) rv_checkpoint_drop_spill(work->watch);
  rv_store_unref(work->store);
  if (work->made) /* for nothing: whoever puts the journal there finds the place as it was */
    rv_journal_lock_remove(work->lock, work->dir);
  else
    rv_journal_lock_free(work->lock);
  free(work->checkpoint);
  free(work->dir);
}

/* ---- going through the groups ---- */

typedef struct reading {
  recovery *work;
  rv_journal_reader *reader;
  rv_journal_replay *replay; /* NULL: only to see what there is */
  uint64_t segment;          /* of the last group that was made again */
  int64_t groups, changes, lost_changes;
  uint64_t lost_groups, next_group;
  bool lost_some_unknown;
  rv_journal_gap first_gap;
} reading;

static void note_gap(reading *all, const rv_journal_gap *gap)
{
  recovery *work = all->work;
  if (all->lost_groups == 0) all->first_gap = *gap;
  all->lost_groups += gap->groups;
  if (gap->changes < 0)
    all->lost_some_unknown = true;
  else
    all->lost_changes += gap->changes;
  if (all->replay != NULL) rv_journal_replay_gap(all->replay);
  if (all->replay == NULL || work->gaps++ >= GAPS_TOLD || !work->config.salvage) return;
  rv_log(&work->env, RV_LOG_ERROR,
         "journal: segment %" PRIu64 " is damaged at byte %" PRIu64 ": groups %" PRIu64 " to %" PRIu64 " are lost", gap->segment,
         gap->offset, gap->first, gap->first + gap->groups - 1);
}

static rv_code replay_one(reading *all, const rv_group_header *group, rv_span records, rv_error *err)
{
  const rv_checkpoint_progress progress = {.size = sizeof progress, .items = all->changes - group->changes, .total_items = -1};
  uint64_t segment = rv_journal_reader_segment(all->reader);
  if (segment != all->segment) rv_journal_replay_begin_segment(all->replay);
  all->segment = segment;
  if (all->groups % ASK_EACH == 1) { /* the first one may be all there is */
    rv_code goes_on = rv_checkpoint_ask(all->work->watch, &progress, err);
    if (goes_on != RV_OK) return goes_on;
  }
  rv_code code = rv_journal_replay_group(all->replay, records, all->lost_groups > 0, err);
  if (code != RV_OK) rv_error_prefix(err, "segment %" PRIu64 ", group %" PRIu64, segment, group->number);
  return code == RV_OK ? rv_checkpoint_await_spill(all->work->watch, &progress, all->work->store, err) : code;
}

static rv_code read_groups(reading *all, rv_error *err)
{
  for (;;) {
    rv_journal_found found;
    rv_group_header group;
    rv_span records;
    rv_journal_gap gap;
    rv_code code = rv_journal_reader_next(all->reader, &found, &group, &records, &gap, err);
    if (code != RV_OK || found == RV_FOUND_END) return code;
    if (found == RV_FOUND_GAP) {
      note_gap(all, &gap);
      continue;
    }
    all->groups++;
    all->changes += group.changes;
    if (all->replay != NULL) code = replay_one(all, &group, records, err);
    if (code != RV_OK) return code;
  }
}

/* Nobody allowed to go on without what is missing. That it was tried all the same, with a store that goes now, says what else would be lost
 * with it; `code` and *err are what came of it. */
static rv_code fail_damaged(const recovery *work, const reading *all, rv_code code, rv_error *err)
{
  const rv_journal_gap *gap = &all->first_gap;
  char changes[64] = "changes of unknown number";
  bool at_most;
  int64_t lost = rv_journal_replay_lost(all->replay, &at_most);
  if (code == RV_DATA_LOSS || code == RV_INVALID_ARGUMENT) {
    rv_error_prefix(err,
                    "the journal in %s is damaged: segment %" PRIu64 " from byte %" PRIu64
                    " on. Put the file back as it was; salvage alone cannot go on without it",
                    work->dir, gap->segment, gap->offset);
    return code;
  }
  if (code != RV_OK) return code;
  if (!all->lost_some_unknown) snprintf(changes, sizeof changes, "%" PRId64 " changes", all->lost_changes);
  return rv_fail(err, RV_DATA_LOSS,
                 "the journal in %s is damaged: segment %" PRIu64 " from byte %" PRIu64 " on; %" PRIu64
                 " groups with %s cannot be read, and without them %s%" PRId64 " of the %" PRId64 " changes in the other %" PRId64
                 " groups are lost, too. Put the file back as it was, or start once with salvage (journal_salvage=1) to go on "
                 "without all these",
                 work->dir, gap->segment, gap->offset, all->lost_groups, changes, at_most ? "up to " : "", lost, all->changes,
                 all->groups);
}

static rv_code look_at_one(recovery *work, const rv_segment_list *journal, uint64_t first, reading *sum, rv_error *err)
{
  reading all = {.work = work};
  rv_code code = rv_journal_reader_new(work->dir, journal, first, &all.reader, err);
  if (code == RV_OK) code = read_groups(&all, err);
  uint64_t next_group = code == RV_OK ? rv_journal_reader_next_group(all.reader) : 0;
  if (sum->next_group < next_group) sum->next_group = next_group;
  sum->changes += all.changes;
  sum->lost_groups += all.lost_groups;
  rv_journal_reader_free(all.reader);
  return code;
}

/* What there is from that segment on, where nothing will be made of it: of each journal by itself, for each numbers its groups for itself. */
static rv_code look(recovery *work, const rv_segment_list *segments, uint64_t first, reading *sum, rv_error *err)
{
  rv_segment_list left = *segments, own = {.count = 0}, others = {.count = 0};
  rv_code code = RV_OK;
  *sum = (reading){.work = work};
  while (left.count > 0 && code == RV_OK) {
    code = rv_segment_list_split(&left, left.entries[0].header.id, false, &own, &others, err);
    if (code == RV_OK) code = look_at_one(work, &own, first, sum, err);
    if (left.entries != segments->entries) rv_segment_list_fini(&left);
    rv_segment_list_fini(&own);
    left = others;
  }
  if (left.entries != segments->entries) rv_segment_list_fini(&left);
  return code;
}

/* ---- which checkpoint, which segments ---- */

static const rv_segment_entry *find_segment(const recovery *work, uint64_t number)
{
  for (size_t i = 0; i < work->segments.count; i++)
    if (work->segments.entries[i].number == number && work->segments.entries[i].whole) return &work->segments.entries[i];
  return NULL;
}

/* Also of one that is missing: it may be put back. */
static uint64_t last_segment(const recovery *work)
{
  uint64_t last = work->segments.count == 0 ? 0 : work->segments.entries[work->segments.count - 1].number;
  return last < work->linked ? work->linked : last;
}

/* The checkpoint goes on with a segment that is not to be had: what came after it is elsewhere, or lost. A link is written when its segment
 * is on the disk, so that no crash leaves this. */
static rv_code without_segment(recovery *work, uint64_t segment, const rv_segment_entry *found, rv_error *err)
{
  reading all;
  rv_code code = look(work, &work->segments, 0, &all, err);
  if (code != RV_OK) return code;
  work->next_group = all.next_group; /* so that no segment that is put back, and read again, ends before its own last group */
  work->linked = segment;
  const char *why = work->segments.count == 0 ? "that directory has no journal"
                    : found == NULL           ? "that one is not there, or cannot be read"
                                              : "that one is another journal's";
  if (work->config.salvage) {
    rv_log(&work->env, RV_LOG_ERROR,
           "journal: %s goes on with segment %" PRIu64
           " of the journal in %s, but %s: what happened after the checkpoint is lost, "
           "and %" PRId64 " changes in other segments",
           work->checkpoint, segment, work->dir, why, all.changes);
    return RV_OK;
  }
  return rv_fail(
      err, RV_DATA_LOSS,
      "%s goes on with segment %" PRIu64 " of the journal in %s, but %s: what was confirmed after the checkpoint would be "
      "lost, and %" PRId64 " changes in other segments. Mount that directory or put it back as it was, give the one that "
      "has the journal, or start once with salvage (journal_salvage=1) to lose them",
      work->checkpoint, segment, work->dir, why, all.changes);
}

/* Segments that no checkpoint goes on from: fine as long as nothing stands in them, which is so when the first start was cut short. */
static rv_code without_checkpoint(recovery *work, const char *why, rv_error *err)
{
  reading all;
  rv_code code = look(work, &work->segments, 0, &all, err);
  if (code != RV_OK) return code;
  work->next_group = all.next_group;
  if (all.changes == 0 && all.lost_groups == 0) return RV_OK;
  if (work->config.salvage) {
    rv_log(&work->env, RV_LOG_ERROR, "journal: %s; its %" PRId64 " changes are lost", why, all.changes);
    return RV_OK;
  }
  return rv_fail(
      err, work->checkpoint == NULL ? RV_DATA_LOSS : RV_FAILED_PRECONDITION,
      "the journal in %s has %" PRId64
      " changes, but %s: put the checkpoint that belongs to it back, or start once with salvage (journal_salvage=1) to lose them",
      work->dir, all.changes, why);
}

static void say_recovered(const recovery *work, const reading *all, uint64_t cut, int64_t begun_ns)
{
  const rv_replay_counts *counts = rv_journal_replay_get_counts(all->replay);
  rv_log(&work->env, work->gaps > 0 ? RV_LOG_WARNING : RV_LOG_INFO,
         "journal: %" PRId64 " changes (%" PRId64 " inserts) in %" PRId64
         " groups made again after %s in %.3g s, %zu writers known; %" PRIu64
         " bytes at the end were never confirmed, and left out",
         counts->changes, counts->inserts, counts->groups, work->checkpoint,
         (double)(rv_monotonic_ns(&work->env) - begun_ns) / 1e9, work->writers.count, cut);
  if (counts->lost_items + counts->unknown + counts->unnamed + counts->unfit > 0)
    rv_log(&work->env, RV_LOG_ERROR,
           "journal: %" PRId64 " items are lost with their rows, %" PRId64 " changes were of items that are not there, %" PRId64
           " of tables whose names are missing, and %" PRId64 " set a rate limiter that does not fit without what is missing",
           counts->lost_items, counts->unknown, counts->unnamed, counts->unfit);
}

static rv_code force_segment(const recovery *work, uint64_t number, rv_error *err)
{
  char name[RV_JOURNAL_NAME_MAX];
  rv_segment_name(number, name);
  char *path = rv_path_join(work->dir, name);
  if (path == NULL) return rv_fail_memory(err, strlen(work->dir));
  int file = open(path, O_RDONLY | O_CLOEXEC);
  rv_code code = RV_OK;
  if (file < 0)
    code = rv_fail_system(err, errno, "open", path);
  else if (work->files->sync(work->files->context, file) != 0)
    code = rv_fail_system(err, errno, "force to the disk", path);
  if (file >= 0) close(file);
  free(path);
  return code;
}

/* What was read may be in memory alone: a process that was killed had perhaps not waited for the disk, and from here on it counts. */
static rv_code force_to_disk(const recovery *work, uint64_t from, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = 0; i < work->segments.count && code == RV_OK; i++)
    if (work->segments.entries[i].number >= from) code = force_segment(work, work->segments.entries[i].number, err);
  if (code == RV_OK && work->files->sync_directory(work->files->context, work->dir) != 0)
    code = rv_fail_system(err, errno, "force to the disk", work->dir);
  return code;
}

static rv_code new_replay(recovery *work, uint64_t segment, rv_journal_replay **out, rv_error *err)
{
  work->held = calloc(rv_store_num_tables(work->store), sizeof *work->held);
  if (work->held == NULL) return rv_fail_memory(err, rv_store_num_tables(work->store));
  rv_code code = rv_checkpoint_tables(work->checkpoint, work->store, work->held, err);
  return code == RV_OK ? rv_journal_replay_new(work->store, segment, work->held, &work->writers, out, err) : code;
}

static rv_code replay_from(recovery *work, uint64_t segment, rv_error *err)
{
  int64_t begun_ns = rv_monotonic_ns(&work->env);
  reading all = {.work = work};
  rv_code code = force_to_disk(work, segment, err);
  if (code == RV_OK) code = new_replay(work, segment, &all.replay, err);
  if (code == RV_OK) code = rv_journal_reader_new(work->dir, &work->own, segment, &all.reader, err);
  if (code == RV_OK) code = read_groups(&all, err);
  bool refused = all.lost_groups > 0 && !work->config.salvage;
  if (code == RV_OK && !refused) code = rv_journal_replay_end(all.replay, work->config.salvage, err);
  if (refused) {
    code = fail_damaged(work, &all, code, err);
  } else if (code == RV_OK) {
    work->gaps += (size_t)rv_journal_replay_get_counts(all.replay)->not_begun;
    work->next_group = rv_journal_reader_next_group(all.reader);
    say_recovered(work, &all, rv_journal_reader_cut(all.reader), begun_ns);
  } else {
    rv_error_prefix(err, "the journal in %s", work->dir);
  }
  rv_journal_reader_free(all.reader);
  rv_journal_replay_free(all.replay);
  return code;
}

static rv_code replay_and_compare(recovery *work, uint64_t segment, const rv_store_config *configured, rv_error *err)
{
  rv_table_settings *before;
  rv_store_drop_key_seed(work->store);
  rv_code code = rv_table_settings_read(work->store, &before, err);
  if (code == RV_OK) code = replay_from(work, segment, err);
  if (code == RV_OK) rv_table_settings_compare(work->store, before, configured, &work->env);
  free(before);
  return code;
}

/* They are what a start with salvage made. If that was cut short, nothing stands in them; otherwise the checkpoint that it saved is gone. */
static rv_code without_others(recovery *work, uint64_t segment, rv_error *err)
{
  reading all;
  rv_code code = look(work, &work->others, segment, &all, err);
  if (code != RV_OK || (all.changes == 0 && all.lost_groups == 0)) return code;
  if (work->config.salvage) {
    work->gaps++;
    rv_log(&work->env, RV_LOG_ERROR,
           "journal: %" PRId64 " changes are lost, which stand in segments of another journal in %s behind segment %" PRIu64,
           all.changes, work->dir, segment);
    return RV_OK;
  }
  return rv_fail(err, RV_DATA_LOSS,
                 "%s goes on with segment %" PRIu64
                 " of the journal in %s, but behind that are segments of another journal, which was begun with salvage: %" PRId64
                 " changes in them would be lost. Put the checkpoint back that belongs to them, or start once with salvage "
                 "(journal_salvage=1) to "
                 "lose them",
                 work->checkpoint, segment, work->dir, all.changes);
}

/* Of the checkpoint that was loaded; one that is *damaged is none for salvage. */
static rv_code read_link(const recovery *work, bool *linked, bool *damaged, rv_journal_link *out, rv_error *err)
{
  rv_error fault;
  *linked = *damaged = false;
  if (work->checkpoint == NULL) return RV_OK;
  rv_code code = rv_journal_link_read(work->checkpoint, linked, out, &fault);
  if (code == RV_OK) return RV_OK;
  if (code != RV_DATA_LOSS) return rv_error_copy(err, &fault);
  if (!work->config.salvage)
    return rv_fail(err, code,
                   "%s; put it back as it was, or start once with salvage (journal_salvage=1), from the checkpoint alone",
                   fault.message);
  rv_log(&work->env, RV_LOG_ERROR, "journal: %s; what happened after the checkpoint is lost", fault.message);
  *damaged = true;
  return RV_OK;
}

/* Makes the store as it was. */
static rv_code restore(recovery *work, const rv_store_config *store_config, rv_error *err)
{
  rv_journal_link link;
  char why[512];
  const char *checkpoints = rv_checkpointer_path(work->checkpointer);
  rv_code code = rv_checkpoint_await_writers(checkpoints, &work->env, work->watch, err);
  if (code == RV_OK) code = rv_journal_newest_checkpoint(checkpoints, &work->newest_ns, err);
  if (code == RV_OK)
    code = rv_checkpointer_load(work->checkpointer, store_config, work->watch, true, &work->store, &work->checkpoint, err);
  if (code != RV_OK) return code;
  bool linked, damaged;
  code = read_link(work, &linked, &damaged, &link, err);
  if (code != RV_OK) return code;
  if (!linked && work->segments.count == 0) return RV_OK;
  if (!linked) {
    snprintf(why, sizeof why,
             work->checkpoint == NULL ? "there is no checkpoint"
             : damaged                ? "the file " RV_LINK_FILE " of %s is damaged"
                                      : "%s was saved without it",
             work->checkpoint);
    return without_checkpoint(work, why, err);
  }
  const rv_segment_entry *first = find_segment(work, link.segment);
  bool ours = first != NULL && (first->damaged || (first->header.id[0] == link.id[0] && first->header.id[1] == link.id[1]));
  if (!ours && rv_checkpointer_has(work->checkpointer, work->checkpoint)) return without_segment(work, link.segment, first, err);
  if (!ours) {
    snprintf(why, sizeof why, "%s, the fallback, goes on with another", work->checkpoint);
    return without_checkpoint(work, why, err);
  }
  code = rv_segment_list_split(&work->segments, link.id, true, &work->own, &work->others, err);
  if (code == RV_OK) code = without_others(work, link.segment, err);
  if (code == RV_OK) code = replay_and_compare(work, link.segment, store_config, err);
  work->from = link.segment;
  work->known = code == RV_OK && work->gaps == 0;
  if (work->known) {
    work->id[0] = link.id[0];
    work->id[1] = link.id[1];
    rv_store_set_state_id(work->store, link.id);
  } else {
    rv_journal_writers_fini(&work->writers); /* the store is another: whoever had items on their way is told */
  }
  return code;
}

/* ---- the whole ---- */

static void say_empty(const recovery *work)
{
  if (work->checkpoint != NULL || rv_checkpointer_is_fresh(work->checkpointer)) return;
  rv_log(&work->env, RV_LOG_WARNING, "begins empty: %s %s, and %s %s; if there should be, is their volume mounted?",
         rv_checkpointer_path(work->checkpointer), rv_checkpointer_lacks(work->checkpointer), work->dir,
         work->made                 ? "was not there"
         : work->segments.count > 0 ? "has no changes"
                                    : "has no journal");
}

static rv_code open_journal(recovery *work, const rv_files *files, rv_journal **out, rv_error *err)
{
  rv_store_state_id(work->store, work->id); /* of the journal, too */
  rv_journal_start start = {.config = &work->config,
                            .dir = work->dir,
                            .checkpoints = rv_checkpointer_path(work->checkpointer),
                            .lock = work->lock,
                            .store = work->store,
                            .id = {work->id[0], work->id[1]},
                            .segment = last_segment(work),
                            .generation = last_segment(work) + 1,
                            .next_group = work->next_group == 0 ? 1 : work->next_group,
                            .newest_ns = work->newest_ns,
                            .salt = rv_segment_list_salt(&work->segments),
                            .writers = &work->writers,
                            .goes_on = work->known};
  if (work->known) {
    for (size_t i = 0; i < work->segments.count; i++) {
      start.disk_bytes += (int64_t)work->segments.entries[i].bytes;
      if (work->segments.entries[i].number >= work->from) start.fresh_bytes += (int64_t)work->segments.entries[i].bytes;
    }
    for (size_t i = 0; i < work->own.count; i++)
      if (work->own.entries[i].whole && !work->own.entries[i].damaged) start.generation = work->own.entries[i].header.generation;
  }
  work->lock = NULL;
  return rv_journal_open(&start, files, out, err);
}

static rv_code come_down(const recovery *work, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = 0; i < rv_store_num_tables(work->store) && code == RV_OK; i++)
    code = rv_table_replay_come_down(rv_store_table(work->store, i), err);
  return code;
}

/* A table that the checkpoint has not is made of its changes alone, the first of which fit the configuration that it began with. */
static rv_code note_settings(const recovery *work, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = 0; i < rv_store_num_tables(work->store) && code == RV_OK; i++)
    if (!work->held[i]) code = rv_table_note_settings(rv_store_table(work->store, i), err);
  return code;
}

rv_code rv_journal_recover_with(const rv_journal_config *config, const rv_files *files, rv_checkpointer *checkpointer,
                                const rv_store_config *store_config, const rv_checkpoint_watch *watch, rv_store **store,
                                rv_journal **journal, rv_error *err)
{
  recovery work = {.files = files, .checkpointer = checkpointer, .watch = watch};
  rv_journal *opened = NULL;
  rv_code code = rv_checkpoint_expect_spill(watch, err);
  if (code != RV_OK) return code;
  code = begin(&work, config, store_config, err);
  if (code == RV_OK) code = restore(&work, store_config, err);
  if (code == RV_OK) say_empty(&work);
  if (code == RV_OK) code = open_journal(&work, files, &opened, err);
  if (code == RV_OK) code = come_down(&work, err);
  if (code == RV_OK && work.known) code = note_settings(&work, err);
  if (code == RV_OK && !work.known) code = rv_checkpointer_save(checkpointer, work.store, watch, NULL, err);
  if (code == RV_OK) {
    *store = work.store;
    *journal = opened;
    work.store = NULL;
  } else if (opened != NULL) {
    rv_journal_abandon(opened);
  }
  fini(&work);
  return code;
}

rv_code rv_journal_recover(const rv_journal_config *config, rv_checkpointer *checkpointer, const rv_store_config *store_config,
                           const rv_checkpoint_watch *watch, rv_store **store, rv_journal **journal, rv_error *err)
{
  return rv_journal_recover_with(config, &rv_files_of_system, checkpointer, store_config, watch, store, journal, err);
}
