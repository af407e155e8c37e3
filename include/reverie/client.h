/* A client: the same verbs over a store in this process or a server elsewhere. The address decides.
 *
 * One client may be used from many threads. A remote client runs one I/O thread of its own (signals masked); programs with many
 * clients give them one rv_io, so that they share a few. A client does not survive fork(): in the child every call fails with
 * RV_FAILED_PRECONDITION that says to make a new one. A thread that waits for an answer may read it itself: with TLS a call wants 64 KiB of
 * stack, otherwise 16. */
#ifndef REVERIE_CLIENT_H
#define REVERIE_CLIENT_H

#include "reverie/security.h"
#include "reverie/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- how long to wait ---- */

#define RV_FOREVER INT64_C(-1)
#define RV_DEFAULT_TIMEOUT_MS INT64_C(60000)

/* Fires once, from any thread; every call that waits with it then ends with RV_CANCELLED, and so does every later one. */
typedef struct rv_cancel rv_cancel;
RV_API rv_code rv_cancel_new(rv_cancel **out, rv_error *err);
RV_API void rv_cancel_fire(rv_cancel *cancel);
RV_API void rv_cancel_free(rv_cancel *cancel); /* when no call uses it any more */

/* Given to every call that may wait; NULL means { RV_DEFAULT_TIMEOUT_MS }. A call that runs out of time returns
 * RV_DEADLINE_EXCEEDED with a sentence that says what it waited for; one that waits longer than 10 s logs it. */
typedef struct rv_wait {
  /* 0: do not wait; RV_FOREVER. Calls to a server elsewhere that do not wait still take the time of the way there and back (a
   * second at most). */
  int64_t timeout_ms;
  rv_cancel *cancel; /* may be NULL */
  /* Asked at least every 100 ms while the call waits, with no lock held; true ends the call with RV_CANCELLED. May be NULL. */
  bool (*interrupted)(void *context);
  void *context; /* of both functions */
  /* Told before the call first waits, on its thread, with no lock held; perhaps more than once. For callers who hold something that others
   * need meanwhile, and that is dear to let go of: a call that need not wait never asks for it. May be NULL. */
  void (*blocking)(void *context);
  /* Where timeout_ms is what is left of a caller's time: what he gave, in milliseconds, which errors then say. 0: timeout_ms. */
  int64_t given_ms;
} rv_wait;

/* ---- the client ---- */

typedef struct rv_client rv_client;

/* A client of a server elsewhere has a thread for its connection. Where a process has many clients, they may share a few (one for two
 * cores, at most four), which cost less the more clients there are: those given the same rv_io do, and none of them waits for another
 * that stands still. A thread runs while a client uses it. Clients take references: the maker's may go as soon as the last client
 * is made. A forked child makes an rv_io of its own. */
typedef struct rv_io rv_io;
RV_API rv_code rv_io_new(rv_io **out, rv_error *err);
RV_API void rv_io_unref(rv_io *io);

typedef struct rv_client_config {
  size_t size;              /* sizeof(rv_client_config) */
  const char *address;      /* "host:port", "[::1]:port", "unix:/path"; NULL with `store` */
  rv_store *store;          /* in process; a reference is taken; NULL with `address` */
  size_t max_message_bytes; /* received; 0: 256 MiB; else at least 16 KiB */
  const rv_env *env;        /* copied; NULL: the default */
  uint32_t gather_threads; /* with `address`: threads that write a large batch into its arrays, the caller included; 0: as many as
                               cores, at most 4; 1: nobody helps, the I/O thread neither. With `store` it is the store's */
  rv_io *io;               /* with `address`: threads to share, of the default environment; NULL: one of its own */
  const rv_tls_config *tls; /* with `address`: NULL: none. Not for a unix socket. Copied */
  const char *token; /* with `address`: who the client is to a server that asks; NULL: nobody. Copied. Without TLS it is only sent
                               to this machine */
  /* With `address`: a connection whose other end gives no sign of life for so long is lost, and another is made: 0: 10 s; negative: never.
   * A Reverie server is asked whether it is there; of another, TCP knows whether its system answers. */
  int64_t peer_timeout_ms;
  /* With `address`: where the server is on this machine (and, unless it is a unix socket, runs as this user or as root) the two share memory,
   * up to 2 MiB, and only what wakes them goes through a socket. True: all goes through the socket of the address. */
  bool no_shared_memory;
} rv_client_config;

/* Connects to nothing yet. RV_INVALID_ARGUMENT for an address that cannot be parsed, and a max_message_bytes that is too small. */
RV_API rv_code rv_client_new(const rv_client_config *config, rv_client **out, rv_error *err);
/* Writers, samplers and batches made by the client must be freed first. */
RV_API void rv_client_free(rv_client *client);

/* ---- looking in ---- */

typedef struct rv_server_info {
  uint64_t state_id[2]; /* changes when the server restarts, unless it goes on from a journal */
  rv_table_info *tables;
  size_t num_tables;
  rv_memory_info memory; /* all 0 from a plain Reverb server */
  /* Of a server elsewhere with a journal (reverie/journal.h): how long the oldest change that is not on the disk has waited (0: all are),
   * and what keeps it from there ("": nothing). */
  int64_t journal_lag_ns;
  char journal_fault[256];
} rv_server_info;
RV_API rv_code rv_client_server_info(rv_client *client, const rv_wait *wait, rv_server_info **out, rv_error *err);
RV_API void rv_server_info_free(rv_server_info *info);

/* Up to `capacity` items of the table, in the order of insertion, after the one that *cursor names (0: from the start). *count
 * is what was written; *cursor becomes 0 when there are no more. Items inserted or removed between two pages may be
 * missing or present; none that stayed is missed or given twice. RV_ABORTED: the server was started again between two
 * pages, which counts its items anew: begin again at 0. RV_UNIMPLEMENTED from a plain Reverb server. */
RV_API rv_code rv_client_items(rv_client *client, const char *table, uint64_t *cursor, rv_item_info *out, size_t capacity,
                               size_t *count, const rv_wait *wait, rv_error *err);

/* ---- changing ---- */

typedef struct rv_key_priority {
  uint64_t key;
  double priority;
} rv_key_priority;

/* Deletes first, then updates, under one hold of the table; where there are more than 256 updates, or deletes, each of which counts as eight of
 * these, it lets others in after each so many, once all are checked. If any priority is refused (NaN always; negative or infinite where
 * a Prioritized selector is attached) nothing is changed and RV_INVALID_ARGUMENT is returned. Keys that are not in the table
 * are skipped; the first *num_unknown of them are written to `unknown` (room for num_updates + num_deletes; may be NULL). A
 * plain Reverb server does not say which were unknown: *num_unknown is then SIZE_MAX. */
RV_API rv_code rv_client_mutate(rv_client *client, const char *table, const rv_key_priority *updates, size_t num_updates,
                                const uint64_t *deletes, size_t num_deletes, uint64_t *unknown, size_t *num_unknown,
                                const rv_wait *wait, rv_error *err);
/* The same for two arrays, without deletes. */
RV_API rv_code rv_client_update_priorities(rv_client *client, const char *table, const uint64_t *keys, const double *priorities,
                                           size_t n, uint64_t *unknown, size_t *num_unknown, const rv_wait *wait, rv_error *err);
/* Removes all items and zeroes the limiter's counters; callers that wait go on waiting. */
RV_API rv_code rv_client_reset(rv_client *client, const char *table, const rv_wait *wait, rv_error *err);
/* Changes the limiter of a running table (in process or Reverie servers). Waiting callers are looked at again. */
RV_API rv_code rv_client_set_rate_limiter(rv_client *client, const char *table, const rv_rate_limiter_config *limiter,
                                          const rv_wait *wait, rv_error *err);
/* Changes the bounds of a running table (in process or Reverie servers). Where there are more items than the new max_size, or they take more
 * than the new max_bytes, the remover takes the rest away, a few at a time, and others go on in between; it returns when that is done. Items
 * that were sampled as often as the new max_times_sampled already go when they are sampled next. Journals and checkpoints keep the new bounds.
 * RV_INVALID_ARGUMENT: out of range, or the table's rate limiter waits for more items than there could be. RV_ABORTED: another change of its
 * bounds came in between, and holds, or a rate limiter did that waits for more items than were to stay. */
RV_API rv_code rv_client_set_bounds(rv_client *client, const char *table, const rv_table_bounds *bounds, const rv_wait *wait,
                                    rv_error *err);
/* Changes the memory_limit of a store in use (in process or a Reverie server's), in bytes, 0 for none. Raised: inserts that waited for memory
 * go on. Lowered below what is used: nothing is thrown away, inserts wait until there is room again (or, with a spill, it has moved enough
 * to its file), and those that could not fit any more fail with RV_INVALID_ARGUMENT. It lasts as long as the store: a program that
 * starts again begins with its configuration's. */
RV_API rv_code rv_client_set_memory_limit(rv_client *client, size_t bytes, const rv_wait *wait, rv_error *err);
/* Asks the server to write a checkpoint, and returns once it is on the disk; files of older ones may still be on their way out. *path is the
 * caller's to free(); where the server's path is not UTF-8, a text for people: "?" stands for bytes that are none. RV_INVALID_ARGUMENT where it has no checkpointer. */
RV_API rv_code rv_client_checkpoint(rv_client *client, char **path, const rv_wait *wait, rv_error *err);

/* ---- what columns are called ---- */

/* Columns have numbers; what they are called is their users' affair. So that nobody takes one column for another, whoever inserts may
 * say with each item a naming: a number that stands for the names of its columns and their order, such as a hash of them; 0 says
 * nothing. With what is sampled comes the naming that all items in the table had at the draw (rv_batch_naming, rv_sample_naming):
 * whoever knows the names that it stands for may use them. It is 0 where the items differ in it, where some came without, and from
 * a plain Reverb server. The table's signature, where it has one, says the names itself. */

/* ---- rows, for those who need no trajectories ---- */

/* Inserts one item of one row: columns[i] is column i of the row. Sampled, each column has the row's own shape (no time
 * dimension). *key may be NULL. Waits while the limiter forbids it; at the timeout nothing was inserted. On a server
 * elsewhere the item may still get in after RV_DEADLINE_EXCEEDED or RV_CANCELLED, if room appears before the server learns that
 * the caller gave up, and is in where it waited for the disk of the server's journal alone. */
RV_API rv_code rv_client_add(rv_client *client, const char *table, const rv_tensor *columns, size_t num_columns, double priority,
                             uint64_t *key, const rv_wait *wait, rv_error *err);
/* n inserts in order: columns[i] has shape [n, ...]. `priorities` (n) may be NULL: all 1.0; `keys` (n) may be NULL. *added is
 * how many were inserted, also when it is fewer than n because the time ran out (then RV_DEADLINE_EXCEEDED), or a row was refused (then
 * what the first of them was refused with, also if the time ran out for others). Others' inserts may come in between; in process between
 * any two pieces of 64 MiB, or of a 16th of the table's max_bytes. On a server elsewhere, rows whose confirmation was on its way at that
 * moment, or waited for the disk of the server's journal, are in the table and not counted; a plain Reverb also lets in later what it was
 * sent. */
RV_API rv_code rv_client_add_batch(rv_client *client, const char *table, const rv_tensor *columns, size_t num_columns, size_t n,
                                   const double *priorities, uint64_t *keys, size_t *added, const rv_wait *wait, rv_error *err);
/* The same, with the rows' naming. */
RV_API rv_code rv_client_add_named(rv_client *client, const char *table, uint64_t naming, const rv_tensor *columns,
                                   size_t num_columns, double priority, uint64_t *key, const rv_wait *wait, rv_error *err);
RV_API rv_code rv_client_add_batch_named(rv_client *client, const char *table, uint64_t naming, const rv_tensor *columns,
                                         size_t num_columns, size_t n, const double *priorities, uint64_t *keys, size_t *added,
                                         const rv_wait *wait, rv_error *err);

#ifdef __cplusplus
}
#endif
#endif
