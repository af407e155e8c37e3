/* Which items of which writer are in, as the journal has it: what a server must know to let none of them in twice. */
#ifndef RV_PERSIST_JOURNAL_WRITERS_H
#define RV_PERSIST_JOURNAL_WRITERS_H

#include "persist/done_set.h"

typedef struct rv_journal_writer {
  uint64_t id[2];
  rv_done_set done;
  bool lost; /* not everything could be remembered: it is as if it were unknown until its session begins anew */
  bool over; /* so is its session: it goes with rv_journal_writers_drop_over */
  struct rv_journal_writer *next; /* in its bucket */
} rv_journal_writer;

typedef struct rv_journal_writers {
  rv_journal_writer **buckets;
  size_t num_buckets, count;
  uint64_t seed;
  atomic_size_t runs; /* the account of their sets */
} rv_journal_writers;

void rv_journal_writers_init(rv_journal_writers *writers, uint64_t seed);
void rv_journal_writers_fini(rv_journal_writers *writers);
/* All that `from` has, which is empty after that, goes to `to`, which was not initialised. A copy would leave the sets' account behind. */
void rv_journal_writers_move(rv_journal_writers *to, rv_journal_writers *from);
/* Finds or adds; NULL: memory is out. */
rv_journal_writer *rv_journal_writers_get(rv_journal_writers *writers, const uint64_t id[2]);
/* Nothing is known of the writer, and what is noted of it from here on says nothing. */
void rv_journal_writer_lose(rv_journal_writer *writer, bool over);
void rv_journal_writers_drop_over(rv_journal_writers *writers);
/* All of them: begin with NULL, goes on until NULL. */
rv_journal_writer *rv_journal_writers_next(const rv_journal_writers *writers, const rv_journal_writer *after);

#endif
