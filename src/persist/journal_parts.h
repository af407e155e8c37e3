/* What the journal's files share: the journal itself (journal.c makes and ends it), its thread's round (journal_cycle.c), those who wait for
 * a round (journal_wait.c) and what checkpoints ask (journal_generations.c). */
#ifndef RV_PERSIST_JOURNAL_PARTS_H
#define RV_PERSIST_JOURNAL_PARTS_H

#include <stdatomic.h>

#include "base/lock.h"
#include "persist/journal.h"
#include "persist/journal_encode.h"

/* A writer's session that began or ended. */
typedef struct rv_writer_note {
  uint64_t id[2];
  bool forgotten;
  bool taken;       /* the writers know of it */
  rv_done_set done; /* then: what was done of one that began, before the changes of the cycle */
  struct rv_writer_note *next;
} rv_writer_note;

struct rv_journal {
  rv_change_log log; /* the tables' */
  atomic_size_t refs;
  rv_env env;
  rv_store *store; /* one reference */
  char *dir;
  char *checkpoints; /* the directory that it goes on from */
  rv_journal_lock *dir_lock;
  _Atomic(int64_t) newest_ns; /* the time in the name of the newest checkpoint that it knows of; INT64_MIN: none */
  uint64_t last_found;        /* segment that was there before it */
  atomic_bool abandoned;      /* its own segments go with it */
  rv_journal_mode mode;
  int64_t period_ns;
  uint64_t id[2];
  pthread_t thread;
  _Atomic(uint64_t) written; /* cycle */

  rv_mutex lock; /* guards what follows */
  rv_cond work, done;
  bool pending, urgent, stopping, stopped;
  bool wants_generation, saving; /* for a checkpoint; one is being saved */
  uint64_t generations;          /* begun so far, and the segment of the last */
  uint64_t last_generation;
  int64_t generation_bytes, covered_bytes;  /* of stats.bytes: before the last generation; before that of the last checkpoint */
  int64_t pending_since_ns, batch_since_ns; /* 0: nothing waits there */
  rv_link waiters;
  rv_writer_note *notes, *last_note;
  rv_journal_stats stats;
  rv_code fault_code; /* of stats.fault */

  /* the thread's own */
  rv_journal_file file;
  rv_journal_encoder encoder;
  rv_journal_writers writers;
  rv_change_list *lists; /* one a table */
  int64_t began_ns;      /* the last cycle */
  uint64_t named_offset; /* in the segment at hand, behind its tables' names, the last time that they were written */
  bool new_generation, forget_chunks;
  bool told;         /* that it cannot write */
  int64_t end_by_ns; /* it is to end, and does not try any more after that; 0: it is not, or nothing failed since */
  bool cut_short;    /* it ended with changes that are not on the disk */
};

/* The thread, until the journal stops. */
void *rv_journal_run(void *journal);
/* Writes what is encoded, in a new segment where one is due, and waits for the disk; *number is the errno of a failure. */
rv_code rv_journal_write_once(rv_journal *journal, int *number, rv_error *err);
void rv_journal_note_success(rv_journal *journal, int64_t bytes);

/* Does a checkpoint in `root` go on from one of its segments, and from which at least? True also where nobody can say: *least is 0. */
bool rv_journal_is_needed(const rv_journal *journal, const char *root, uint64_t *least);

/* Before anything new is written: the segments that only checkpoints needed which somebody has removed since. On a disk that is full they may
 * be all the room that there is to be had. */
void rv_journal_prune_early(rv_journal *journal);

/* What ends a wait besides what is waited for. */
typedef struct rv_journal_patience {
  int64_t deadline_ns;              /* monotonic; INT64_MAX: none */
  const rv_checkpoint_watch *watch; /* asked without the lock; NULL: none */
  bool gives_way;                   /* that the disk has taken nothing for some seconds */
} rv_journal_patience;

/* Waits until `there` is true of the journal and `what`. Holding the lock, which it lets go meanwhile. */
rv_code rv_journal_await(rv_journal *journal, bool (*there)(const rv_journal *journal, uint64_t what), uint64_t what,
                         const rv_journal_patience *until, rv_error *err);

#endif
