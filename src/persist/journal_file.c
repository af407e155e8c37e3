#include "persist/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/record_file.h"

enum {
  PIECES_AT_ONCE = 256,
  DROP_BYTES = 1 << 20 /* leave the system's cache at once, or a few more */
};

void rv_journal_file_init(rv_journal_file *journal, const rv_files *files, const char *dir, const uint64_t id[2], uint32_t salt,
                          uint64_t segment, uint64_t generation, uint64_t next_group)
{
  *journal = (rv_journal_file){.files = files,
                               .dir = dir,
                               .id = {id[0], id[1]},
                               .salt = salt,
                               .file = -1,
                               .segment = segment,
                               .generation = generation,
                               .next_group = next_group,
                               .synced_group = next_group - 1};
}

static void close_segment(rv_journal_file *journal)
{
  if (journal->file >= 0) close(journal->file);
  journal->file = -1;
  free(journal->path);
  journal->path = NULL;
}

void rv_journal_file_fini(rv_journal_file *journal)
{
  close_segment(journal);
}

static rv_code fail(rv_journal_file *journal, const char *what, int *number, rv_error *err)
{
  *number = errno == 0 ? EIO : errno;
  return rv_fail_system(err, *number, what, journal->path);
}

/* ---- writing ---- */

static rv_code write_all(rv_journal_file *journal, struct iovec *pieces, int count, int *number, rv_error *err)
{
  const rv_files *files = journal->files;
  while (count > 0) {
    ssize_t wrote = files->write(files->context, journal->file, pieces, count);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = ENOSPC;
    if (wrote <= 0) return fail(journal, "write", number, err);
    journal->offset += (uint64_t)wrote;
    size_t left = (size_t)wrote;
    while (count > 0 && left >= pieces->iov_len) {
      left -= pieces->iov_len;
      pieces++;
      count--;
    }
    if (count > 0) {
      pieces->iov_base = (char *)pieces->iov_base + left;
      pieces->iov_len -= left;
    }
  }
  return RV_OK;
}

rv_code rv_journal_file_begin(rv_journal_file *journal, bool new_generation, int64_t wall_ns, int *number, rv_error *err)
{
  const rv_files *files = journal->files;
  char name[RV_JOURNAL_NAME_MAX];
  uint8_t header[RV_JOURNAL_SEGMENT_HEADER];
  close_segment(journal);
  journal->segment++; /* also where this fails: its file may be there */
  if (new_generation) journal->generation = journal->segment;
  rv_segment_name(journal->segment, name);
  journal->offset = journal->synced_offset = journal->dropped_offset = 0;
  journal->path = rv_path_join(journal->dir, name);
  if (journal->path == NULL) {
    *number = ENOMEM;
    return rv_fail_memory(err, strlen(journal->dir));
  }
  journal->file = files->create(files->context, journal->path);
  if (journal->file < 0) return fail(journal, "create", number, err);
  const rv_segment_header head = {.segment = journal->segment,
                                  .first_group = journal->next_group,
                                  .generation = journal->generation,
                                  .id = {journal->id[0], journal->id[1]},
                                  .wall_ns = wall_ns,
                                  .salt = journal->salt};
  rv_segment_header_put(&head, header);
  struct iovec piece = {header, sizeof header};
  rv_code code = write_all(journal, &piece, 1, number, err);
  if (code == RV_OK && files->sync_directory(files->context, journal->dir) != 0)
    code = fail(journal, "make known to its directory", number, err);
  return code;
}

rv_code rv_journal_file_put(rv_journal_file *journal, const rv_pieces *records, uint32_t changes, int *number, rv_error *err)
{
  uint8_t header[RV_JOURNAL_GROUP_HEADER];
  rv_group_header head = {.number = journal->next_group,
                          .synced = journal->synced_group,
                          .bytes = records->bytes,
                          .changes = changes,
                          .salt = journal->salt};
  for (size_t i = 0; i < records->count; i++) head.crc = rv_crc32c(head.crc, records->piece[i].data, records->piece[i].size);
  rv_group_header_put(&head, header);
  struct iovec pieces[PIECES_AT_ONCE] = {{header, sizeof header}};
  int count = 1;
  rv_code code = RV_OK;
  for (size_t i = 0; i < records->count && code == RV_OK; i++) {
    pieces[count++] = (struct iovec){(void *)(uintptr_t)records->piece[i].data, records->piece[i].size};
    if (count < PIECES_AT_ONCE) continue;
    code = write_all(journal, pieces, count, number, err);
    count = 0;
  }
  if (code == RV_OK) code = write_all(journal, pieces, count, number, err);
  if (code == RV_OK) journal->next_group++;
  return code;
}

/* Nobody reads it before a recovery. The pages take the next ones: memory that the system has to find for each would be dearer than all the
 * rest, and take the place of what others have in the cache. The last page, which may be half full, stays. */
static void drop_from_cache(rv_journal_file *journal)
{
  uint64_t bytes = journal->synced_offset - journal->dropped_offset;
  if (bytes < DROP_BYTES) return;
  posix_fadvise(journal->file, (off_t)journal->dropped_offset, (off_t)bytes, POSIX_FADV_DONTNEED);
  journal->dropped_offset = journal->synced_offset - journal->synced_offset % DROP_BYTES;
}

rv_code rv_journal_file_sync(rv_journal_file *journal, int *number, rv_error *err)
{
  const rv_files *files = journal->files;
  if (files->sync(files->context, journal->file) != 0) return fail(journal, "force to the disk", number, err);
  journal->synced_group = journal->next_group - 1;
  journal->synced_offset = journal->offset;
  drop_from_cache(journal);
  return RV_OK;
}

void rv_journal_file_give_up(rv_journal_file *journal)
{
  const rv_files *files = journal->files;
  journal->next_group = journal->synced_group + 1;
  /* only to give the room back: whoever reads it knows by the next segment's header where this one ends */
  if (journal->file >= 0 && journal->synced_offset > 0)
    files->truncate(files->context, journal->file, (off_t)journal->synced_offset);
  if (journal->file >= 0 && journal->synced_offset == 0) files->remove(files->context, journal->path);
  close_segment(journal);
}
