/* A journal's segments, read from one of them to the end: groups in order, and what is missing. */
#ifndef RV_PERSIST_JOURNAL_READ_H
#define RV_PERSIST_JOURNAL_READ_H

#include "base/env.h"
#include "persist/journal_format.h"

typedef struct rv_segment_entry {
  uint64_t number;
  uint64_t bytes;
  bool whole;   /* the header is, or it has groups all the same: then only segment, first_group and salt of `header` are known, */
  bool damaged; /* the header is not; its id is that of the segment before it, or, where none before has one, behind it */
  rv_segment_header header;
  uint64_t found_offset, found_group; /* of a damaged one: the first group that is whole */
} rv_segment_entry;

typedef struct rv_segment_list {
  rv_segment_entry *entries; /* by number, ascending */
  size_t count;
} rv_segment_list;

/* The segments of a directory, with their headers. A directory that is not there has none. */
rv_code rv_segment_list_read(const char *dir, rv_segment_list *out, rv_error *err);
/* The segments of the journal `id`, `with_damaged` all whose headers cannot say; and the others. */
rv_code rv_segment_list_split(const rv_segment_list *list, const uint64_t id[2], bool with_damaged, rv_segment_list *own,
                              rv_segment_list *others, rv_error *err);
void rv_segment_list_fini(rv_segment_list *list);
uint32_t rv_segment_list_salt(const rv_segment_list *list); /* of the last header that has one; 0: none has */

/* A stretch that cannot be read although it was on the disk once. */
typedef struct rv_journal_gap {
  uint64_t segment, offset; /* where it begins */
  uint64_t first, groups;   /* numbers that are missing */
  int64_t changes;          /* in them, as far as their headers can be read; -1: not known */
} rv_journal_gap;

typedef struct rv_journal_reader rv_journal_reader;

/* Begins with that segment, which was on the disk from its first group on; 0: with whichever is there. `list` is borrowed. */
rv_code rv_journal_reader_new(const char *dir, const rv_segment_list *list, uint64_t first_segment, rv_journal_reader **out,
                              rv_error *err);
void rv_journal_reader_free(rv_journal_reader *reader);

typedef enum rv_journal_found { RV_FOUND_GROUP, RV_FOUND_GAP, RV_FOUND_END } rv_journal_found;

/* The next group, whose records are the reader's until the next call, or a gap in the place of some. RV_RESOURCE_EXHAUSTED, RV_UNKNOWN:
 * reading failed. */
rv_code rv_journal_reader_next(rv_journal_reader *reader, rv_journal_found *found, rv_group_header *group, rv_span *records,
                               rv_journal_gap *gap, rv_error *err);
uint64_t rv_journal_reader_next_group(const rv_journal_reader *reader); /* the number of the group behind the last one */
uint64_t rv_journal_reader_segment(const rv_journal_reader *reader);    /* that it reads */
uint64_t rv_journal_reader_cut(const rv_journal_reader *reader); /* bytes at the ends of segments that were never confirmed */

#endif
