/* InsertStream, one call: chunks and items come in, confirmations go out (docs/protocol.md).
 *
 * The life of an item: its message is received (insert_stream.c), it becomes an operation that is submitted to its table, which
 * may complete it at once or later on any thread (insert_items.c); the answer is gathered with others, waits for the disk where the
 * journal says so (insert_journal.c), and is sent (insert_answers.c). A message is worked off item by item: while too much waits, the rest of it waits too and no further message
 * is read.
 *
 * What happens when the call is over before its items are in: of a plain Reverb client they go in all the same ("orphans"); of a
 * Reverie writer, who will send them again, they are cancelled, and its session passes to its next call when all are settled. */
#ifndef RV_SERVER_INSERT_STREAM_H
#define RV_SERVER_INSERT_STREAM_H

#include "base/map.h"
#include "server/chunk_map.h"
#include "server/server.h"
#include "wire/insert_pack.h"

typedef struct rv_insert_call rv_insert_call;

enum {
  RV_INSERTS_PENDING_MAX = 256,           /* operations that wait for the limiter, a call */
  RV_INSERT_BYTES_PENDING_MAX = 64 << 20, /* of the messages they came in, or what they take (rv_insert_operation, bytes) */
  RV_INSERTS_TURN = 512,                  /* items worked off in one go, before others on the loop get their turn */
  RV_ANSWERS_UNSENT_MAX = 65536,          /* to a client that does not read them */
  RV_ANSWER_BYTES_QUEUED_MAX = 1 << 20
};

typedef struct rv_insert_operation {
  rv_insert insert;
  rv_insert_call *call;                       /* one reference while it is pending */
  bool is_tables;                             /* it waits there, or has completed and was not answered yet */
  uint64_t sequence;                          /* 0: none */
  size_t bytes;                               /* its share of its message; of a pack, what it takes if that is more */
  rv_link link;                               /* in `pending` */
  rv_trajectory *spare;                       /* of a spare one: what its trajectory left (rv_trajectory_empty); NULL: nothing */
  struct rv_insert_operation *next_completed; /* or the next spare one */
} rv_insert_operation;

/* What of the call is pending in one table. */
typedef struct rv_insert_place {
  struct rv_insert_place *next;
  const rv_table *table;
  rv_waiting_group group;
} rv_insert_place;

struct rv_insert_call {
  rv_server_stream stream;
  char peer[160]; /* rv_call_peer */
  rv_chunk_map chunks;
  rv_chunk_forms forms; /* of the small ones */
  rv_joined joined;     /* and their rows */

  /* exactly once */
  bool by_reverie;            /* refused items are answered one by one, and the call goes on */
  rv_writer_session *session; /* NULL: the items have no numbers, or it was given back */
  bool waits_for_session;
  rv_writer_session_user session_user;
  rv_task evict_task, granted_task;

  /* the message that is being worked off */
  bool in_request;
  rv_buf *message;
  size_t message_size;
  rv_insert_request request;
  rv_insert_pack pack; /* comes in before the message's items */
  rv_placed_rows placed_rows;
  size_t next_item, bytes_per_item;
  uint64_t last_sequence; /* of the item that was worked off last */
  rv_item_room item_room;
  rv_layout *last_layout; /* of the item before; one reference, or NULL */
  bool turn_posted;
  rv_task turn_task;
  size_t chunk_bytes; /* of messages that brought chunks only; shared among the next items */
  size_t on_the_way;  /* what of it the store's account has there */

  /* operations */
  rv_table *last_table;
  bool may_not_update;         /* there */
  rv_insert_operation *spares; /* by next_completed; at most RV_INSERTS_AT_ONCE */
  size_t num_spares;
  rv_insert_operation *group[RV_INSERTS_AT_ONCE]; /* prepared, not submitted yet */
  size_t group_size;
  rv_table *group_table; /* of all of them */
  rv_insert_place *places;
  rv_link pending;
  size_t num_pending, pending_bytes;
  _Atomic(rv_insert_operation *) completed; /* pushed by any thread; whoever finds it empty posts the task */
  rv_task completed_task;
  size_t orphan_bytes; /* what this call has on the server's account */
  size_t caller_bytes; /* and on its caller's */

  /* answers */
  uint64_t *keys;
  size_t num_keys, keys_capacity;
  rv_insert_failure *failures; /* each message's bytes are owned */
  size_t num_failures, failures_capacity;
  size_t failures_sent; /* the first of them, whose messages are freed */
  bool answers_posted;
  rv_task answers_task;

  /* the journal: what of `keys` it must have on the disk first (insert_journal.c) */
  rv_journal_waiter journal_waiter;
  rv_task journal_task;
  bool waits_for_journal; /* the waiter is queued, with a reference, or its task posted */
  bool opening;           /* it waits for the writer's session to be on the disk; no header and no answer goes out before */
  size_t waiting_keys;    /* the first so many wait for the waiter's ticket */
  uint64_t last_ticket;   /* of the newest answer */

  bool half_closed, draining, paused;
  bool keeps_too_much; /* and is read no further until the disk has what waits for it */
};

/* insert_stream.c */
/* Ends the call with that status, once; what is unanswered and pending is dealt with as above. */
void rv_insert_call_end(rv_insert_call *call, rv_code code, const char *message);

/* Those that the message brings. Where it has a pack, once its items are taken: their rows come first, and join in the order of their steps. */
rv_code rv_insert_call_take_chunks(rv_insert_call *call, rv_error *err);

/* The account learns what the stream has that is no table's. RV_RESOURCE_EXHAUSTED: all streams have more than the store's limit leaves
 * them, this one has more than its share of that, and none of its items waits that would let it go. Where some wait for the disk to be told to a
 * Reverie writer that is found out, if it is still so, once they are told. */
rv_code rv_insert_call_count(rv_insert_call *call, rv_error *err);
/* The streams together have brought more than the store's limit leaves them, and this one more than its share of that. */
bool rv_insert_call_brings_too_much(const rv_insert_call *call);
/* Its caller has as many bytes here as he may, and something of this call waits: more of it waits too. */
static inline bool rv_insert_call_is_held(const rv_insert_call *call)
{
  return call->num_pending > 0 && rv_caller_bytes(call->stream.caller) >= call->stream.server->caller_limits.max_bytes;
}

/* insert_items.c */
void rv_insert_items_init(rv_insert_call *call);
void rv_insert_items_fini(rv_insert_call *call);
/* Of a message just begun: the table of its first item is the call's last one, if there is such a table, and it may insert there. */
void rv_insert_items_meet_table(rv_insert_call *call);
/* Works off the message's items until none is left, too much waits, or others are to have their turn. */
void rv_insert_items_advance(rv_insert_call *call);
/* Takes back whatever still waits; the rest completes soon. False: a table has completed some that are not answered yet. */
bool rv_insert_items_cancel(rv_insert_call *call);
void rv_insert_items_drop_request(rv_insert_call *call);
/* What waits counts with the chunks it holds, each once, where they take more than its share of its message: nobody else may have them. */
void rv_insert_items_count_chunks(rv_insert_call *call);
/* After operations have completed: brings the call's state up to date (insert_stream.c). */
void rv_insert_call_update(rv_insert_call *call);

/* insert_answers.c */
void rv_insert_answers_init(rv_insert_call *call);
void rv_insert_answers_fini(rv_insert_call *call);
/* Remembers, and tells the client in time, what became of an item. RV_CANCELLED and RV_RESOURCE_EXHAUSTED end the call: the item
 * may be sent again. So does any refusal to others than Reverie's writers. */
void rv_insert_answer(rv_insert_call *call, uint64_t key, uint64_t sequence, rv_code code, const char *message);
/* The same for an item that was answered before. */
void rv_insert_answer_again(rv_insert_call *call, uint64_t key, rv_code code, const char *message);
/* Sends what has gathered, unless the client is not reading (`always`: even so). */
void rv_insert_answers_send(rv_insert_call *call, bool always);
/* insert_journal.c: nothing of it matters where there is no journal */
void rv_insert_journal_init(rv_insert_call *call);
/* The writer's session was attached. True: headers may go out; false: they will. */
bool rv_insert_journal_open(rv_insert_call *call);
/* An item is in, and its key was pushed. */
void rv_insert_journal_note(rv_insert_call *call);
/* How many of `keys` may be sent; the others wait, and are sent when they may be. */
size_t rv_insert_journal_ready(rv_insert_call *call);
bool rv_insert_journal_is_busy(const rv_insert_call *call); /* something waits that must be answered before the call ends well */
void rv_insert_journal_cancel(rv_insert_call *call);

static inline size_t rv_insert_answers_unsent(const rv_insert_call *call)
{
  return call->num_keys + call->num_failures - call->failures_sent;
}

#endif
