#include "persist/journal_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/dir_names.h"
#include "persist/read_at.h"
#include "persist/record_file.h"

/* ---- one segment ---- */

typedef struct rv_segment_bytes {
  uint8_t *data;
  size_t size;
  const uint32_t *salt; /* of its groups; NULL: not known */
} rv_segment_bytes;

static rv_code load(const char *dir, uint64_t number, uint64_t bytes, rv_segment_bytes *out, rv_error *err)
{
  char name[RV_JOURNAL_NAME_MAX];
  rv_segment_name(number, name);
  char *path = rv_path_join(dir, name);
  *out = (rv_segment_bytes){.data = malloc(bytes + 1)};
  rv_code code = RV_OK;
  if (path == NULL || out->data == NULL) {
    code = rv_fail_memory(err, bytes);
  } else {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || rv_read_at(file, out->data, bytes, 0, &out->size) != 0) code = rv_fail_system(err, errno, "read", path);
    if (file >= 0) close(file);
  }
  free(path);
  return code;
}

/* A group whose every byte is right. Records hold what clients sent, which may look like one but for the salt. */
static bool group_at(const rv_segment_bytes *segment, size_t offset, rv_group_header *out)
{
  const uint8_t *at = segment->data + offset;
  size_t left = segment->size - offset;
  return rv_group_header_get(at, left, out) && (segment->salt == NULL || out->salt == *segment->salt) &&
         out->bytes <= left - RV_JOURNAL_GROUP_HEADER && rv_crc32c(0, at + RV_JOURNAL_GROUP_HEADER, out->bytes) == out->crc;
}

/* The next whole group behind `offset` whose number is none before `least`; segment->size: none. */
static size_t find_group(const rv_segment_bytes *segment, size_t offset, uint64_t least, rv_group_header *out)
{
  while (offset < segment->size) {
    const uint8_t *found = memmem(segment->data + offset, segment->size - offset, "RVGROUP", 8);
    if (found == NULL) return segment->size;
    offset = (size_t)(found - segment->data);
    if (group_at(segment, offset, out) && out->number >= least) return offset;
    offset++;
  }
  return segment->size;
}

/* ---- the directory ---- */

static int by_number(const void *a, const void *b)
{
  const rv_segment_entry *x = a, *y = b;
  return x->number < y->number ? -1 : x->number > y->number;
}

/* A segment whose header is damaged still has its groups, with the salt of the other segments (0: any); of one that `may_be_older` than the
 * first of those, they may have none. */
static rv_code look_for_groups(const char *dir, uint32_t salt, bool may_be_older, rv_segment_entry *entry, rv_error *err)
{
  const uint32_t none = 0;
  rv_segment_bytes segment;
  rv_group_header group;
  rv_code code = load(dir, entry->number, entry->bytes, &segment, err);
  if (salt != 0) segment.salt = &salt;
  if (code == RV_OK && segment.size > RV_JOURNAL_SEGMENT_HEADER) {
    entry->found_offset = find_group(&segment, RV_JOURNAL_SEGMENT_HEADER, 0, &group);
    if (entry->found_offset == segment.size && may_be_older) {
      segment.salt = &none;
      entry->found_offset = find_group(&segment, RV_JOURNAL_SEGMENT_HEADER, 0, &group);
    }
    entry->whole = entry->found_offset < segment.size;
    /* a segment begins with what comes behind the last group on the disk, and so does whatever was written together with that */
    if (entry->whole) {
      entry->header = (rv_segment_header){.segment = entry->number, .first_group = group.synced + 1, .salt = group.salt};
      entry->found_group = group.number;
    }
  }
  free(segment.data);
  return code;
}

static rv_code read_entry(const char *dir, const char *name, rv_segment_entry *entry, rv_error *err)
{
  char *path = rv_path_join(dir, name);
  if (path == NULL) return rv_fail_memory(err, strlen(dir));
  uint8_t header[RV_JOURNAL_SEGMENT_HEADER];
  struct stat info;
  size_t got = 0;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  rv_code code = RV_OK;
  if (file < 0 || fstat(file, &info) != 0 || rv_read_at(file, header, sizeof header, 0, &got) != 0)
    code = rv_fail_system(err, errno, "read", path);
  if (file >= 0) close(file);
  free(path);
  if (code != RV_OK) return code;
  entry->bytes = (uint64_t)info.st_size;
  entry->whole = rv_segment_header_get(header, got, &entry->header) && entry->header.segment == entry->number;
  entry->damaged = !entry->whole;
  return RV_OK;
}

/* The first whole header that has a salt; list->count: none. */
static size_t first_salted(const rv_segment_list *list)
{
  size_t i = 0;
  while (i < list->count && (list->entries[i].damaged || list->entries[i].header.salt == 0)) i++;
  return i;
}

/* What a header that is damaged cannot say. */
static void take_ids_of_neighbours(rv_segment_list *list)
{
  const uint64_t *id = NULL;
  for (size_t i = 0; i < list->count && id == NULL; i++)
    if (!list->entries[i].damaged) id = list->entries[i].header.id;
  for (size_t i = 0; i < list->count && id != NULL; i++) {
    rv_segment_header *header = &list->entries[i].header;
    if (list->entries[i].damaged) memcpy(header->id, id, sizeof header->id);
    id = header->id;
  }
}

rv_code rv_segment_list_read(const char *dir, rv_segment_list *out, rv_error *err)
{
  *out = (rv_segment_list){.count = 0};
  rv_dir_names found;
  rv_code code = rv_dir_names_read(dir, &found, err);
  for (size_t i = 0; code == RV_OK && i < found.count; i++) {
    rv_segment_entry entry = {.number = 0};
    if (!rv_segment_name_parse(found.names[i], &entry.number)) continue;
    rv_segment_entry *grown = realloc(out->entries, (out->count + 1) * sizeof *grown);
    if (grown == NULL) {
      code = rv_fail_memory(err, (out->count + 1) * sizeof *grown);
      break;
    }
    out->entries = grown;
    code = read_entry(dir, found.names[i], &entry, err);
    if (code == RV_OK) grown[out->count++] = entry;
  }
  rv_dir_names_fini(&found);
  if (out->count > 1) qsort(out->entries, out->count, sizeof *out->entries, by_number);
  uint32_t salt = rv_segment_list_salt(out);
  size_t salted = first_salted(out);
  for (size_t i = 0; code == RV_OK && i < out->count; i++)
    if (out->entries[i].damaged) code = look_for_groups(dir, salt, salted < out->count && i < salted, &out->entries[i], err);
  take_ids_of_neighbours(out);
  if (code != RV_OK) rv_segment_list_fini(out);
  return code;
}

uint32_t rv_segment_list_salt(const rv_segment_list *list)
{
  uint32_t salt = 0;
  for (size_t i = 0; i < list->count; i++)
    if (!list->entries[i].damaged && list->entries[i].header.salt != 0) salt = list->entries[i].header.salt;
  return salt;
}

static bool is_of(const rv_segment_entry *entry, const uint64_t id[2])
{
  return entry->header.id[0] == id[0] && entry->header.id[1] == id[1];
}

rv_code rv_segment_list_split(const rv_segment_list *list, const uint64_t id[2], bool with_damaged, rv_segment_list *own,
                              rv_segment_list *others, rv_error *err)
{
  *own = (rv_segment_list){.entries = calloc(list->count + 1, sizeof *list->entries)};
  *others = (rv_segment_list){.entries = calloc(list->count + 1, sizeof *list->entries)};
  if (own->entries == NULL || others->entries == NULL) {
    rv_segment_list_fini(own);
    rv_segment_list_fini(others);
    return rv_fail_memory(err, list->count * sizeof *list->entries);
  }
  for (size_t i = 0; i < list->count; i++) {
    const rv_segment_entry *entry = &list->entries[i];
    rv_segment_list *to = is_of(entry, id) || (with_damaged && entry->damaged) ? own : others;
    to->entries[to->count++] = list->entries[i];
  }
  return RV_OK;
}

void rv_segment_list_fini(rv_segment_list *list)
{
  free(list->entries);
  *list = (rv_segment_list){.count = 0};
}

/* ---- reading ---- */

struct rv_journal_reader {
  const char *dir;
  const rv_segment_list *list;
  size_t at;      /* in the list */
  uint64_t limit; /* groups from here on are the next segment's; UINT64_MAX: there is none */
  rv_segment_bytes segment;
  size_t offset;
  uint64_t expected; /* group */
  bool headless;     /* the first segment of all has no header, and no group where its first one would be */
  uint64_t cut;
};

static size_t next_whole(const rv_segment_list *list, size_t at)
{
  for (at++; at < list->count && !list->entries[at].whole;) at++;
  return at;
}

static rv_code load_next(rv_journal_reader *reader, rv_error *err)
{
  const rv_segment_entry *entry = &reader->list->entries[reader->at];
  size_t next = next_whole(reader->list, reader->at);
  free(reader->segment.data);
  reader->offset = RV_JOURNAL_SEGMENT_HEADER;
  reader->limit = next < reader->list->count ? reader->list->entries[next].header.first_group : UINT64_MAX;
  rv_code code = load(reader->dir, entry->number, entry->bytes, &reader->segment, err);
  reader->segment.salt = &entry->header.salt;
  return code;
}

rv_code rv_journal_reader_new(const char *dir, const rv_segment_list *list, uint64_t first_segment, rv_journal_reader **out,
                              rv_error *err)
{
  rv_journal_reader *reader = calloc(1, sizeof *reader);
  if (reader == NULL) return rv_fail_memory(err, sizeof *reader);
  reader->dir = dir;
  reader->list = list;
  while (reader->at < list->count && (list->entries[reader->at].number < first_segment || !list->entries[reader->at].whole))
    reader->at++;
  rv_code code = RV_OK;
  if (reader->at < list->count) {
    const rv_segment_entry *first = &list->entries[reader->at];
    reader->expected = first->header.first_group;
    reader->headless = first_segment != 0 && first->damaged && first->found_offset != RV_JOURNAL_SEGMENT_HEADER;
    code = load_next(reader, err);
  }
  if (code == RV_OK)
    *out = reader;
  else
    rv_journal_reader_free(reader);
  return code;
}

void rv_journal_reader_free(rv_journal_reader *reader)
{
  if (reader == NULL) return;
  free(reader->segment.data);
  free(reader);
}

uint64_t rv_journal_reader_next_group(const rv_journal_reader *reader)
{
  return reader->expected;
}
uint64_t rv_journal_reader_segment(const rv_journal_reader *reader)
{
  return reader->at < reader->list->count ? reader->list->entries[reader->at].number : 0;
}
uint64_t rv_journal_reader_cut(const rv_journal_reader *reader)
{
  return reader->cut;
}

/* The highest group that anything behind here knows to have been on the disk. */
static uint64_t synced_behind(const rv_journal_reader *reader, size_t offset)
{
  uint64_t synced = 0;
  rv_group_header group;
  for (; (offset = find_group(&reader->segment, offset, reader->expected, &group)) < reader->segment.size; offset++)
    if (group.number < reader->limit && group.synced > synced) synced = group.synced;
  if (reader->limit != UINT64_MAX && reader->limit - 1 > synced) synced = reader->limit - 1; /* what a segment goes on from was */
  return synced;
}

/* What the header of a damaged group says of it, if it is whole. */
static int64_t changes_at(const rv_journal_reader *reader, size_t offset, uint64_t groups)
{
  rv_group_header group;
  if (groups != 1 || offset >= reader->segment.size ||
      !rv_group_header_get(reader->segment.data + offset, reader->segment.size - offset, &group))
    return -1;
  return group.number == reader->expected ? (int64_t)group.changes : -1;
}

static void fill_gap(const rv_journal_reader *reader, uint64_t up_to, rv_journal_gap *gap)
{
  *gap = (rv_journal_gap){.segment = rv_journal_reader_segment(reader),
                          .offset = reader->offset,
                          .first = reader->expected,
                          .groups = up_to - reader->expected,
                          .changes = changes_at(reader, reader->offset, up_to - reader->expected)};
}

static rv_code next_segment(rv_journal_reader *reader, rv_error *err)
{
  reader->cut += reader->segment.size > reader->offset ? reader->segment.size - reader->offset : 0;
  reader->at = next_whole(reader->list, reader->at);
  if (reader->at < reader->list->count) return load_next(reader, err);
  for (size_t i = reader->list->count; i > 0 && !reader->list->entries[i - 1].whole; i--)
    reader->cut += reader->list->entries[i - 1].bytes;
  return RV_OK;
}

/* How many groups stood before the first one that is whole is known to nobody: at least one did, and was on the disk. */
static void fill_headless_gap(rv_journal_reader *reader, rv_journal_gap *gap)
{
  const rv_segment_entry *first = &reader->list->entries[reader->at];
  bool ours = first->found_group < reader->limit;
  uint64_t up_to = ours ? first->found_group : reader->limit;
  if (reader->expected >= up_to) reader->expected = up_to - 1;
  fill_gap(reader, up_to, gap);
  gap->changes = -1;
  reader->expected = up_to;
  reader->offset = ours ? (size_t)first->found_offset : reader->segment.size;
  reader->headless = false;
}

rv_code rv_journal_reader_next(rv_journal_reader *reader, rv_journal_found *found, rv_group_header *group, rv_span *records,
                               rv_journal_gap *gap, rv_error *err)
{
  if (reader->headless) {
    fill_headless_gap(reader, gap);
    *found = RV_FOUND_GAP;
    return RV_OK;
  }
  while (reader->at < reader->list->count) {
    if (reader->expected < reader->limit && group_at(&reader->segment, reader->offset, group) &&
        group->number == reader->expected) {
      *records = (rv_span){reader->segment.data + reader->offset + RV_JOURNAL_GROUP_HEADER, group->bytes};
      reader->offset += RV_JOURNAL_GROUP_HEADER + group->bytes;
      reader->expected++;
      *found = RV_FOUND_GROUP;
      return RV_OK;
    }
    uint64_t synced = reader->expected < reader->limit ? synced_behind(reader, reader->offset) : 0;
    if (synced >= reader->expected) {
      rv_group_header later;
      size_t offset = find_group(&reader->segment, reader->offset, reader->expected + 1, &later);
      uint64_t up_to = offset < reader->segment.size && later.number < reader->limit ? later.number : reader->limit;
      if (up_to == UINT64_MAX) up_to = synced + 1;
      fill_gap(reader, up_to, gap);
      reader->expected = up_to;
      reader->offset = offset;
      *found = RV_FOUND_GAP;
      return RV_OK;
    }
    rv_code code = next_segment(reader, err);
    if (code != RV_OK) return code;
  }
  *found = RV_FOUND_END;
  return RV_OK;
}
