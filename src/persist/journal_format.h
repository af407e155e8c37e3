/* The journal's files (docs/journal.md): segments of groups of records. Everything is little endian.
 *
 * A segment is a header of 64 bytes and groups; a group is a header of 48 bytes and records, written at once. Groups are numbered through
 * all segments. A group's header says up to which group everything was on the disk when it was written, so that what a crash tore, which
 * nobody was told of, can be told from what was damaged later. */
#ifndef RV_PERSIST_JOURNAL_FORMAT_H
#define RV_PERSIST_JOURNAL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/proto.h"

/* What a journal tells apart: an index beyond it is damage. */
#define RV_JOURNAL_TABLES_MAX 65536

enum { RV_JOURNAL_SEGMENT_HEADER = 64, RV_JOURNAL_GROUP_HEADER = 48, RV_JOURNAL_NAME_MAX = 40, RV_JOURNAL_ID = 16 };

/* What changes is described by table, an index into the names at the head of the segment. */
typedef enum rv_journal_record {
  RV_RECORD_TABLE = 1,         /* varint table, name */
  RV_RECORD_WRITER = 2,        /* id; of the numbers that are done: first and last of each run, varints */
  RV_RECORD_FORGET_WRITER = 3, /* id */
  RV_RECORD_CHUNK = 4,         /* ChunkData; takes the place of one before it that has its key */
  RV_RECORD_FORGET_CHUNKS = 5, /* none of the chunks so far is referred to any more */
  RV_RECORD_INSERT = 6,        /* varint table; id, varint number (both 0: none); PrioritizedItem without its table */
  RV_RECORD_DELETE = 7,        /* varint table, keys */
  RV_RECORD_UPDATE = 8,        /* varint table, keys with their priorities */
  RV_RECORD_SAMPLE = 9,        /* varint table, keys with their times_sampled, four bytes each */
  RV_RECORD_RESET = 10,        /* varint table */
  RV_RECORD_LIMITER = 11,     /* varint table; samples_per_insert, min_diff, max_diff, doubles; min_size_to_sample, eight bytes */
  RV_RECORD_DONE = 12,        /* id, varint number */
  RV_RECORD_BOUNDS = 14,      /* varint table; max_size, eight bytes; max_times_sampled, four */
  RV_RECORD_TABLE_BYTES = 15, /* varint table; max_bytes, eight bytes, 0 for none */
  RV_RECORD_SNAPSHOT = 13     /* varint table, which, eight bytes: the checkpoint of that segment holds what stands before */
} rv_journal_record;

typedef struct rv_segment_header {
  uint64_t segment;     /* its number, and its name */
  uint64_t first_group; /* a segment before it may have groups of these numbers too, which were given up */
  uint64_t generation;  /* the segment that a checkpoint begins with: this one or one before */
  uint64_t id[2];       /* of the journal */
  int64_t wall_ns;
  uint32_t salt; /* that its groups have: random, so that no client's bytes pass for a group's header. 0 in older journals */
} rv_segment_header;

void rv_segment_name(uint64_t segment, char out[RV_JOURNAL_NAME_MAX]);
bool rv_segment_name_parse(const char *name, uint64_t *segment);
void rv_segment_header_put(const rv_segment_header *header, uint8_t out[RV_JOURNAL_SEGMENT_HEADER]);
bool rv_segment_header_get(const uint8_t *in, size_t size, rv_segment_header *out);

typedef struct rv_group_header {
  uint64_t number;
  uint64_t synced; /* groups up to this one were on the disk */
  uint64_t bytes;  /* of records */
  uint32_t changes;
  uint32_t crc;  /* of the records, CRC-32C */
  uint32_t salt; /* its segment's */
} rv_group_header;

void rv_group_header_put(const rv_group_header *header, uint8_t out[RV_JOURNAL_GROUP_HEADER]);
/* false: no group begins there. */
bool rv_group_header_get(const uint8_t *in, size_t size, rv_group_header *out);

/* One record; false at the end, or where the bytes are none (then *broken). */
bool rv_journal_record_next(rv_span *records, uint8_t *kind, rv_span *body, bool *broken);
/* Reads from the front of a body; false: it is too short. */
bool rv_take_varint(rv_span *body, uint64_t *out);
bool rv_take_fixed64(rv_span *body, uint64_t *out);
bool rv_take_fixed32(rv_span *body, uint32_t *out);

/* The head of a record with so many bytes behind it; returns its length, at most 11. */
size_t rv_journal_record_head(uint8_t out[11], rv_journal_record kind, uint64_t bytes);
size_t rv_put_plain_varint(uint8_t out[10], uint64_t value);

#endif
