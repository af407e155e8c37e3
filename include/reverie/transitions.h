/* Transitions: rows of which parts repeat from step to step, each part stored once.
 *
 * An environment's next observation is mostly its observation one step later, and of a stack of frames all but the newest were
 * in the stack before. A transitions writer is told which columns are so and adds one row for each of its environments at
 * every step. What is sampled is what was added, in value, dtype and shape, as after rv_client_add_batch; what was there
 * already is not stored again. It finds that out by comparing contents: after a reset, or wherever a row does not go on from
 * the last one of its environment, it is stored whole, so nobody needs to say where episodes end.
 *
 * A writer belongs to one thread at a time, and ends before its client does. */
#ifndef REVERIE_TRANSITIONS_H
#define REVERIE_TRANSITIONS_H

#include "reverie/client.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_transitions rv_transitions;

typedef struct rv_transitions_column {
  /* In the row's nest, "obs/pixels": compared with the table's signature (rv_signature_check_names) and used in sentences.
   * NULL: the column is called by its number. */
  const char *name;
  /* k >= 2: dimension 0 of a row has size k, oldest frame first, and each frame is stored once. 0 and 1: no stack. That of a
   * column which is a next is its `of`'s. */
  uint32_t stack;
  bool is_next; /* this column is column `of` of the same environment one step on */
  uint32_t of;  /* that column, which is itself no next, and has no other */
} rv_transitions_column;

typedef struct rv_transitions_config {
  size_t size; /* sizeof(rv_transitions_config) */
  const char *table;
  size_t num_envs; /* environments that step together, >= 1 */
  const rv_transitions_column *columns;
  size_t num_columns; /* of a row */
  uint64_t naming;    /* reverie/client.h; 0: not said */
} rv_transitions_config;

/* Copies the config. Connects to nothing: in process RV_NOT_FOUND says that there is no such table, elsewhere the first add
 * does. RV_INVALID_ARGUMENT: a column that is next of what is no column, of itself, or of another's; a stack of more than
 * 1,024 frames. */
RV_API rv_code rv_transitions_new(rv_client *client, const rv_transitions_config *config, rv_transitions **out, rv_error *err);

/* One step of every environment: columns[i] is [num_envs, ...row], in host byte order and contiguous; each row becomes an
 * item. `priorities` (num_envs) may be NULL: all 1.0. Data is copied. The first step fixes dtypes and row shapes.
 *
 * In process the items are in the table when this returns; it waits while the limiter forbids that. Elsewhere they are on
 * their way when it returns (rv_transitions_flush); it waits for the server's answer about its tables, once, and while 64 MiB,
 * or four steps where these are more, are not confirmed. *added (may be NULL) is how many rows became items, or were sent, in
 * the environments' order; fewer than num_envs only with an error.
 *
 * RV_INVALID_ARGUMENT: another number of columns or of environments, another dtype or row shape than the first step's or the
 * table's signature's, a next column that is unlike its column, a stack whose first dimension is not its number of frames, a
 * NaN priority; nothing was added then. RV_UNIMPLEMENTED: strings. RV_DEADLINE_EXCEEDED: see *added; what is in stays.
 * Elsewhere also what the server refused before (rv_writer_create_item). */
RV_API rv_code rv_transitions_add(rv_transitions *transitions, const rv_tensor *columns, size_t num_columns,
                                  const double *priorities, size_t *added, const rv_wait *wait, rv_error *err);

/* As rv_transitions_add for those environments alone whose `where` (num_envs) is true; NULL: for all. The rows of the others are not
 * looked at, nor are their priorities, and their environments stay where they are. For steps in which some environments only reset
 * themselves, which are no transitions. *added counts, and the error of a step that went in partly tells, the rows that are taken. */
RV_API rv_code rv_transitions_add_where(rv_transitions *transitions, const rv_tensor *columns, size_t num_columns,
                                        const double *priorities, const bool *where, size_t *added, const rv_wait *wait,
                                        rv_error *err);

/* Waits until everything that was added is in the table; in process it is. RV_DEADLINE_EXCEEDED says what it waits for. Other
 * errors are what the server refused, told until they are discarded. */
RV_API rv_code rv_transitions_flush(rv_transitions *transitions, const rv_wait *wait, rv_error *err);
/* As rv_writer_discard_failed; 0 in process, and after close. */
RV_API size_t rv_transitions_discard_failed(rv_transitions *transitions);
/* As rv_writer_settle; in process there is nothing to wait for. */
RV_API rv_code rv_transitions_settle(rv_transitions *transitions, const rv_wait *wait, rv_error *err);
/* As rv_writer_take_failure, but not while another thread is in a call; RV_OK in process. What nobody takes is logged as a warning by free. */
RV_API rv_code rv_transitions_take_failure(rv_transitions *transitions, rv_error *err);

/* Drops what is not confirmed, without waiting, and returns how many items that were (what was refused is not among them:
 * rv_transitions_take_failure); adding and flushing is RV_FAILED_PRECONDITION from then on. Idempotent. */
RV_API size_t rv_transitions_close(rv_transitions *transitions);
/* Closes it if need be. NULL is fine. */
RV_API void rv_transitions_free(rv_transitions *transitions);

#ifdef __cplusplus
}
#endif
#endif
