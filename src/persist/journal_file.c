#include "persist/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/file_cache.h"
#include "persist/past_cache.h"
#include "persist/record_file.h"

enum {
  ALIGNED = RV_PAST_CACHE_ALIGNED,
  STAGE_BYTES = 1 << 20,
  LARGE_BYTES = 1 << 16, /* are worth going past the system's cache */
  DROP_BYTES = 1 << 20   /* leave it at once, or a few more */
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
  journal->staged = 0;
}

void rv_journal_file_fini(rv_journal_file *journal)
{
  close_segment(journal);
  free(journal->stage);
  journal->stage = NULL;
}

static rv_code fail(rv_journal_file *journal, const char *what, int *number, rv_error *err)
{
  *number = errno == 0 ? EIO : errno;
  return rv_fail_system(err, *number, what, journal->path);
}

/* ---- writing ---- */

/* A disk that is nearly full takes a part; what is left then begins where only the cache can write. */
static rv_code write_range(rv_journal_file *journal, size_t from, size_t to, bool past_cache, int *number, rv_error *err)
{
  const rv_files *files = journal->files;
  bool direct = past_cache && from < to && rv_past_cache_set(journal->file, true);
  rv_code code = RV_OK;
  while (from < to && code == RV_OK) {
    struct iovec piece = {journal->stage + from, to - from};
    ssize_t wrote = files->write(files->context, journal->file, &piece, 1);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote == 0) errno = ENOSPC;
    bool refused = direct && wrote < 0 && errno == EINVAL;
    if (wrote <= 0 && !refused) code = fail(journal, "write", number, err);
    if (wrote > 0) from += (size_t)wrote;
    if (direct && (refused || from % ALIGNED != 0)) {
      direct = journal->past_cache = false;
      rv_past_cache_set(journal->file, false);
    }
  }
  if (direct) rv_past_cache_set(journal->file, false);
  return code;
}

/* The pages at both ends, which this shares with what came before and what will come, go through the cache. */
static rv_code write_staged(rv_journal_file *journal, int *number, rv_error *err)
{
  size_t from = (size_t)((journal->offset - journal->staged) % ALIGNED), to = from + journal->staged;
  size_t first = (from + ALIGNED - 1) / ALIGNED * ALIGNED, last = to / ALIGNED * ALIGNED;
  if (!journal->past_cache || journal->staged < LARGE_BYTES) first = last = to;
  rv_code code = write_range(journal, from, first, false, number, err);
  if (code == RV_OK) code = write_range(journal, first, last, true, number, err);
  if (code == RV_OK) code = write_range(journal, last, to, false, number, err);
  journal->staged = 0;
  return code;
}

static rv_code put_bytes(rv_journal_file *journal, const void *data, size_t size, int *number, rv_error *err)
{
  const uint8_t *from = data;
  while (size > 0) {
    size_t at = (size_t)((journal->offset - journal->staged) % ALIGNED) + journal->staged;
    size_t part = STAGE_BYTES - at < size ? STAGE_BYTES - at : size;
    memcpy(journal->stage + at, from, part);
    journal->staged += part;
    journal->offset += part;
    from += part;
    size -= part;
    rv_code code = at + part == STAGE_BYTES ? write_staged(journal, number, err) : RV_OK;
    if (code != RV_OK) return code;
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
  if (journal->stage == NULL) journal->stage = aligned_alloc(ALIGNED, STAGE_BYTES);
  if (journal->path == NULL || journal->stage == NULL) {
    *number = ENOMEM;
    return rv_fail_memory(err, STAGE_BYTES);
  }
  journal->file = files->create(files->context, journal->path);
  if (journal->file < 0) return fail(journal, "create", number, err);
  journal->past_cache = rv_past_cache_is_gain(files->file_system(files->context, journal->file));
  const rv_segment_header head = {.segment = journal->segment,
                                  .first_group = journal->next_group,
                                  .generation = journal->generation,
                                  .id = {journal->id[0], journal->id[1]},
                                  .wall_ns = wall_ns,
                                  .salt = journal->salt};
  rv_segment_header_put(&head, header);
  rv_code code = put_bytes(journal, header, sizeof header, number, err);
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
  rv_code code = put_bytes(journal, header, sizeof header, number, err);
  for (size_t i = 0; i < records->count && code == RV_OK; i++)
    code = put_bytes(journal, records->piece[i].data, records->piece[i].size, number, err);
  if (code == RV_OK) journal->next_group++;
  return code;
}

/* Nobody reads it before a recovery. The pages take the next ones: memory that the system has to find for each would be dearer than all the
 * rest, and take the place of what others have in the cache. The last page, which may be half full, stays. */
static void drop_from_cache(rv_journal_file *journal)
{
  uint64_t bytes = journal->synced_offset - journal->dropped_offset;
  if (bytes < DROP_BYTES) return;
  rv_file_cache_drop(journal->file, journal->dropped_offset, bytes);
  journal->dropped_offset = journal->synced_offset - journal->synced_offset % DROP_BYTES;
}

rv_code rv_journal_file_sync(rv_journal_file *journal, int *number, rv_error *err)
{
  const rv_files *files = journal->files;
  rv_code code = write_staged(journal, number, err);
  if (code != RV_OK) return code;
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
