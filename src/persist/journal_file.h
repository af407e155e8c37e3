/* The segment that is being written. A segment that something went wrong with is given up where it was last on the disk, and what was not
 * on the disk goes into the next one: after a failed fsync nobody knows what the file holds. */
#ifndef RV_PERSIST_JOURNAL_FILE_H
#define RV_PERSIST_JOURNAL_FILE_H

#include "base/buf.h"
#include "persist/files.h"
#include "persist/journal_format.h"

typedef struct rv_journal_file {
  const rv_files *files;
  const char *dir; /* borrowed */
  uint64_t id[2];
  uint32_t salt;       /* of the segments that are begun */
  int file;            /* -1: none is open */
  char *path;          /* of it */
  uint64_t segment;    /* the last one that was begun */
  uint64_t generation; /* that a checkpoint begins with */
  uint64_t next_group, synced_group;
  uint64_t offset, synced_offset; /* in the segment */
  uint64_t dropped_offset;        /* up to where it has left the system's cache, or further */
  uint8_t *stage;                 /* what was put last, behind as many bytes as make its place in the file one in memory */
  size_t staged;                  /* not written yet: up to `offset` */
  bool past_cache;                /* large parts are written past the system's cache */
} rv_journal_file;

void rv_journal_file_init(rv_journal_file *journal, const rv_files *files, const char *dir, const uint64_t id[2], uint32_t salt,
                          uint64_t segment, uint64_t generation, uint64_t next_group);
void rv_journal_file_fini(rv_journal_file *journal);

/* Closes the segment that is open, and begins the next one, which must be on the disk with what follows it: rv_journal_file_sync. */
rv_code rv_journal_file_begin(rv_journal_file *journal, bool new_generation, int64_t wall_ns, int *number, rv_error *err);
/* Writes a group. */
rv_code rv_journal_file_put(rv_journal_file *journal, const rv_pieces *records, uint32_t changes, int *number, rv_error *err);
/* Waits until all is on the disk. */
rv_code rv_journal_file_sync(rv_journal_file *journal, int *number, rv_error *err);
/* After an error of any of these (whose errno is in *number): as it was at the last sync, with no segment open. */
void rv_journal_file_give_up(rv_journal_file *journal);

#endif
