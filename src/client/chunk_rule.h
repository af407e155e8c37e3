/* How many rows a chunk gets when the caller leaves it to the writer.
 *
 * Two wishes pull: an item should leave at once, which cuts the chunk that its newest rows are still being written into; and
 * chunks should be long, because each costs some hundred bytes of books at either end and one slice in every item that runs
 * across it. The rule:
 *
 *   - An item whose newest rows are in the open chunk cuts it, unless its runs are so long that many short chunks would have to
 * be named in every item: the open chunk must have an eighth of the longest run that recent items referred to. So an item of up
 * to 15 rows never waits, a run is never in more than about nine chunks, and an item of 80 rows waits for at most 9 more steps,
 * or a flush.
 *   - A chunk that nobody cuts grows up to the longest run that recent items referred to (no run yet: up to the number of rows
 * kept), so that an item makes at most about twice its own rows travel. The room a new chunk gets is twice what the last one came
 * to, so that none is wasted.
 *   - A writer that is told how many rows come before each time that items are made of them (a step of many environments) has room for so
 * many, for they are cut together.
 *   - No more than a megabyte of rows, where that is more than one row.
 *   - Large rows get no more room than the chunk before had when an item ended with it: what is not used of it would be sent nowhere, but would
 * stay with them where they are not copied (net/landing.h).
 *
 * Items at the end of every `period` steps thus find chunks of exactly `period` rows; an item after every step finds chunks of
 * one row, or of an eighth of its length. With a fixed length nothing is cut but by flush and end_episode, and where columns that shared the chunk part. */
#ifndef RV_CLIENT_CHUNK_RULE_H
#define RV_CLIENT_CHUNK_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rv_chunk_rule {
  uint32_t fixed;   /* 0: chosen */
  uint32_t keep;    /* rows that items may refer to */
  uint32_t at_once; /* rows that come before items are made; 0: not known */
  uint32_t longest; /* run in this window of items, and in the one before it; 0: none yet */
  uint32_t longest_before;
  uint32_t items;     /* in this window */
  uint32_t cut;       /* rows of the chunk before, if an item ended with it; 0: it was full before */
  uint32_t last_rows; /* of the chunk before */
} rv_chunk_rule;

void rv_chunk_rule_init(rv_chunk_rule *rule, uint32_t fixed, uint32_t keep);
/* Rows that the next chunk gets room for, when a row has so many bytes. */
uint32_t rv_chunk_rule_room(const rv_chunk_rule *rule, size_t row_bytes);
/* So many bytes of rows are all that a chunk gets: more where its last row is that large. */
size_t rv_chunk_rule_most_bytes(const rv_chunk_rule *rule);
/* An item needs rows of the open chunk, which has `rows`: is it cut? */
bool rv_chunk_rule_cuts(const rv_chunk_rule *rule, uint32_t rows);
void rv_chunk_rule_saw_run(rv_chunk_rule *rule, uint32_t rows);   /* an item referred to so many rows in one go */
void rv_chunk_rule_saw_chunk(rv_chunk_rule *rule, uint32_t rows); /* a chunk came to so many rows, */
void rv_chunk_rule_saw_cut(rv_chunk_rule *rule, uint32_t rows);   /* and an item ended with it */

#endif
