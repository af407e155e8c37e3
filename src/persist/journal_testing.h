/* What the tests of journals share: a server's disk in a directory, a store that is journaled there, and crashes. */
#ifndef RV_PERSIST_JOURNAL_TESTING_H
#define RV_PERSIST_JOURNAL_TESTING_H

#include "persist/journal.h"
#include "persist/journal_read.h"
#include "persist/stores_testing.h"

/* A journal in f->top/NAME/journal over checkpoints in f->top/NAME/checkpoints. */
typedef struct disk {
  fixture *f;
  char dir[128], journal[160], checkpoints[160];
  rv_checkpointer *checkpointer;
} disk;

static inline disk disk_of(fixture *f, const char *name)
{
  rv_error err;
  disk d = {.f = f};
  snprintf(d.dir, sizeof d.dir, "%s/%s", f->top, name);
  snprintf(d.journal, sizeof d.journal, "%s/journal", d.dir);
  snprintf(d.checkpoints, sizeof d.checkpoints, "%s/checkpoints", d.dir);
  rv_checkpointer_config config = {.size = sizeof config, .path = d.checkpoints, .env = &f->env};
  must(rv_checkpointer_new(&config, &d.checkpointer, &err), &err);
  return d;
}

static inline void disk_fini(disk *d)
{
  rv_checkpointer_unref(d->checkpointer);
}

/* As it is now, for somebody else: what a process that is killed leaves. What a living server removes meanwhile (checkpoints and pieces of
 * its journal that are too old) makes cp fail; then it is copied again. */
static inline disk copy_of(const disk *d, const char *name)
{
  enum { TRIES = 20 };
  char command[512];
  disk copy = disk_of(d->f, name);
  snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", copy.dir, d->dir, copy.dir);
  int failed = 1;
  for (int i = 0; i < TRIES && failed != 0; i++) failed = system(command);
  assert_int_equal(failed, 0);
  return copy;
}

typedef struct journaled {
  rv_store *store;
  rv_journal *journal;
} journaled;

typedef struct how {
  rv_journal_mode mode;
  const rv_files *files;
  size_t max_queued_bytes;
  int64_t period_ms;
  bool salvage;
} how;

static inline rv_code try_open(const disk *d, how as, const rv_table_config *tables, size_t n, journaled *out, rv_error *err)
{
  rv_store_config store = {.size = sizeof store, .tables = tables, .num_tables = n, .env = &d->f->env};
  rv_journal_config config = {.size = sizeof config,
                              .path = d->journal,
                              .mode = as.mode == 0 ? RV_JOURNAL_ALWAYS : as.mode,
                              .period_ms = as.period_ms,
                              .max_queued_bytes = as.max_queued_bytes,
                              .salvage = as.salvage,
                              .env = &d->f->env};
  *out = (journaled){NULL, NULL};
  return rv_journal_recover_with(&config, as.files == NULL ? &rv_files_of_system : as.files, d->checkpointer, &store, NULL,
                                 &out->store, &out->journal, err);
}

static inline journaled open_with(const disk *d, how as, const rv_table_config *tables, size_t n)
{
  rv_error err;
  journaled j;
  must(try_open(d, as, tables, n, &j, &err), &err);
  return j;
}

static inline void sync_all(const journaled *j)
{
  rv_error err;
  must(rv_journal_sync(j->journal, 60000, &err), &err);
}

static inline void close_all(journaled *j)
{
  rv_journal_unref(j->journal);
  rv_store_unref(j->store);
  *j = (journaled){NULL, NULL};
}

static inline int64_t size_of(rv_store *store, size_t table)
{
  rv_table_info info = info_of(rv_store_table(store, table));
  int64_t size = info.current_size;
  rv_table_info_fini(&info);
  return size;
}

/* The segment that is written to, by name. */
static inline void last_segment_name(const disk *d, char out[RV_JOURNAL_NAME_MAX])
{
  rv_error err;
  rv_segment_list list;
  must(rv_segment_list_read(d->journal, &list, &err), &err);
  assert_true(list.count > 0);
  rv_segment_name(list.entries[list.count - 1].number, out);
  rv_segment_list_fini(&list);
}

/* The offset of the records of the first group behind `after` that has one of that kind; 0: none. `after` is 0 or what this returned. */
static inline size_t group_with(const uint8_t *bytes, size_t size, size_t after, uint8_t kind)
{
  rv_group_header group;
  for (size_t at = RV_JOURNAL_SEGMENT_HEADER; at < size; at += RV_JOURNAL_GROUP_HEADER + group.bytes) {
    uint8_t found;
    rv_span body;
    bool broken = false;
    assert_true(rv_group_header_get(bytes + at, size - at, &group));
    rv_span records = {bytes + at + RV_JOURNAL_GROUP_HEADER, group.bytes};
    while (at >= after && rv_journal_record_next(&records, &found, &body, &broken))
      if (found == kind) return at + RV_JOURNAL_GROUP_HEADER;
  }
  return 0;
}

#endif
