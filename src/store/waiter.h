/* The one way to wait: an operation that is submitted to a table completes exactly once.
 *
 * Submitting returns RV_SUBMIT_DONE (it is complete, `complete` is not called) or RV_SUBMIT_PENDING (`complete` will be called
 * once, by whichever thread serves it, with no lock held; it must not block). rv_waiter_cancel takes a pending operation out: true means that it
 * was still waiting, nothing was consumed beyond what it already holds, `complete` will not be called, and it is the caller's
 * again; false means that it has completed or is completing, and `complete` was or will be called. The table enforces no
 * deadlines: whoever submits sets a timer and cancels; `deadline_ns` is for those who look.
 *
 * First come, first served per table and kind; inserts and samples alternate. The memory of an operation belongs to the caller
 * and must stay until it is complete or cancelled. */
#ifndef RV_STORE_WAITER_H
#define RV_STORE_WAITER_H

#include "base/list.h"
#include "reverie/table.h"
#include "store/fill.h"
#include "store/trajectory.h"

typedef struct rv_table rv_table;
typedef struct rv_waiter rv_waiter;

typedef enum rv_operation_kind { RV_OPERATION_INSERT = 1, RV_OPERATION_ROWS = 2, RV_OPERATION_SAMPLE = 3 } rv_operation_kind;
typedef enum rv_submitted { RV_SUBMIT_DONE = 0, RV_SUBMIT_PENDING = 1 } rv_submitted;

/* Pending operations of one call to one table, which are shown as one caller. The call's, zeroed before the first is submitted; it must
 * outlive them. What is in it is the table's. */
typedef struct rv_waiting_group {
  rv_link link;    /* among the groups of the table */
  rv_link waiters; /* the oldest first */
  int64_t count;
} rv_waiting_group;

struct rv_waiter {
  /* set by the caller before submitting */
  void (*complete)(rv_waiter *waiter);
  void *context;
  int64_t deadline_ns; /* monotonic; INT64_MAX: none */
  const char *peer;    /* who asks, for table info; must outlive the operation; may be NULL */
  /* set by the table */
  rv_operation_kind kind;
  rv_code code;   /* the result; RV_CANCELLED: the table was closed */
  rv_error error; /* when code is not RV_OK */
  rv_table *table;
  rv_link link;
  int64_t since_ns;
  uint64_t id;
  int state;
  rv_link of_group;       /* while it is pending */
  rv_waiting_group alone; /* its group, if the caller gave none */
};

/* Inserts one item, or, if its key is present, updates that item's priority. */
typedef struct rv_insert {
  rv_waiter waiter;
  uint64_t key; /* chosen by the caller; with `choose_key`, by the table, which writes it here */
  bool choose_key;
  bool may_not_update; /* where the key is there already and has another priority: RV_PERMISSION_DENIED */
  double priority;
  int32_t times_sampled;     /* to begin with; usually 0 */
  rv_trajectory *trajectory; /* the caller's reference is kept by the caller; the table takes its own */
  uint64_t naming;           /* 0: not said (reverie/client.h) */
  rv_waiting_group *group;   /* with others of the same call; NULL: it is alone */
  uint64_t writer[2];        /* who sends it, and */
  uint64_t number;           /* as which of its items, for the journal; 0: nobody who numbers them */
  bool updated;              /* out: the key was there */
  struct rv_loose *loose;    /* the table's own, and what follows: of an item of many chunks, linked by and by; NULL: none */
  uint64_t epoch;            /* of the books that it is linked in */
  uint32_t linked;           /* so many of its chunks */
  size_t bytes;              /* it takes with its chunks and their holds, when it was made */
  uint32_t looked_at;        /* so many of its chunks; of these, */
  size_t comes, uncounted;   /* what comes with it */
} rv_insert;

/* Rows of the operation that were copied already. */
typedef struct rv_prepared {
  rv_chunk *segment; /* one reference */
  int64_t first;     /* of them, there */
  size_t rows;
  size_t largest; /* bytes of one of them, strings included */
} rv_prepared;

/* Where an item's rows lie that its writer has placed itself (placed.h): they are counted from `base`. */
typedef struct rv_place {
  rv_chunk *segment; /* the writer's */
  int64_t base;
} rv_place;

/* Inserts `n` rows that the caller gives as columns [n, ...], each row an item. */
typedef struct rv_rows {
  rv_waiter waiter;
  const rv_tensor *columns; /* with the leading dimension n */
  size_t num_columns;
  size_t n;
  const double *priorities; /* n, or NULL: 1.0 */
  uint64_t *keys;           /* n, or NULL */
  uint64_t naming;          /* of all of them; 0: not said */
  const rv_place *placed;   /* n, for rv_table_insert_placed, which reads no columns */
  size_t done;              /* out: rows inserted so far, in order */
  struct rv_form *form;     /* the table's own, and what follows */
  size_t begun, end;        /* the rows of this piece */
  rv_prepared *prepared;    /* all of these, segment by segment; NULL: none */
  size_t num_prepared;
  size_t on_the_way;           /* their bytes, as counted in the store's account */
  struct rv_left_chunks *left; /* where those go that come into no table; as long as there are any prepared */
} rv_rows;

/* Draws items, as many at a time as the limiter allows and a hold of the lock has room for. */
typedef struct rv_sampling {
  rv_waiter waiter;
  size_t want;       /* >= 1 */
  bool partial;      /* complete as soon as something was drawn and the limiter lets no more through */
  bool same_layout;  /* RV_FAILED_PRECONDITION before anything is counted, if the table holds items of more than one layout */
  rv_fill *fill;     /* copies what it can straight into arrays; needs same_layout. NULL: all are drawn into `draws` */
  size_t max_bytes;  /* stop after the item with which the chunks' bytes reach this; 0: no bound */
  rv_draw *draws;    /* room for `want`; draw i stands at i, those before fill->done are not set; the caller releases them */
  size_t count;      /* out: drawn so far */
  bool rate_limited; /* the table's own, and what follows */
  size_t bytes;
} rv_sampling;

enum { RV_INSERTS_AT_ONCE = 16 };

/* RV_SUBMIT_DONE with waiter.code set when refused at once (NaN, signature, closed table). */
rv_submitted rv_table_insert(rv_table *table, rv_insert *insert);
/* The same for several, in order, which cost less together: they meet the lock once, and what they need from memory is fetched for
 * all at the same time. Stops after the first that is refused, and after
 * RV_INSERTS_AT_ONCE; returns how many were submitted, and says of each of these in
 * `submitted` what rv_table_insert would have returned. */
size_t rv_table_insert_many(rv_table *table, rv_insert *const *inserts, size_t n, rv_submitted *submitted);
/* Many rows are copied before the table is entered, as many as are bounded at one time: a piece of them, which is an operation of its own.
 * Where a piece is pending, it completes with RV_OK while rows are left (rv_rows_are_left), and its submitter goes on with the next. Between
 * two pieces others' inserts may come in. */
rv_submitted rv_table_insert_rows(rv_table *table, rv_rows *rows);
static inline bool rv_rows_are_left(const rv_rows *rows)
{
  return rows->waiter.code == RV_OK && rows->done < rows->n;
}
/* Goes on behind the rows that are in; not for placed ones, which are one piece. */
rv_submitted rv_table_insert_rows_left(rv_table *table, rv_rows *rows);
/* One row, whose columns are given without a leading dimension, where nothing stands in its way and there is nothing to prepare.
 * False: nothing was done, and rv_table_insert_rows finds out why. */
typedef struct rv_row {
  const rv_tensor *columns;
  size_t num_columns;
  double priority;
  uint64_t naming; /* 0: not said */
  uint64_t key;    /* out */
} rv_row;
bool rv_table_add_row(rv_table *table, rv_row *row);
rv_submitted rv_table_sample(rv_table *table, rv_sampling *sampling);
bool rv_waiter_cancel(rv_waiter *waiter);
/* "table \"replay\": sampling waits for 10 items, has 7 (min_size_to_sample)": what a pending operation waits for now. Also right
 * after cancelling. Returns the reason. It only looks: no completion is called, so that who asks may hold what one takes. */
rv_wait_reason rv_waiter_explain(rv_waiter *waiter, char *out, size_t capacity);

#endif
