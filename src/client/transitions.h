/* The transitions writer behind the opaque rv_transitions, and what its files share.
 *
 *   transitions.c         life, what is checked, which columns are kept and where a row stands in them
 *   transitions_local.c   rows into segments of this process, items into its table
 *   transitions_remote.c  the same through a trajectory writer
 *
 * Of a row's columns those that are a next are not kept: they are their column's rows further on. The rows of one environment
 * stand in slots, one after another, in all kept columns alike. A transition's newest frames (those of its next observation;
 * of a column without a next its own) stand in slot p together with everything that does not repeat, and the rest in the slots
 * before:
 *
 *                        p-4   p-3   p-2   p-1   p
 *   obs, a stack of 4     o     o     o     o             next_obs is the same one slot further on
 *   obs, no stack                           o
 *   action, reward                                o
 *
 * A transition that goes on from the last one takes one slot. Any other is stored whole: `reach` slots before its own. Where
 * next_obs is not obs with one frame more (only possible with a stack), the two share nothing, and reach back `whole_reach`
 * slots. */
#ifndef RV_CLIENT_TRANSITIONS_H
#define RV_CLIENT_TRANSITIONS_H

#include "client/client.h"
#include "reverie/transitions.h"

#define RV_NO_COLUMN UINT32_MAX

/* Where an item's rows are: one step on from each other (shared) or not. */
typedef enum rv_kind { RV_KIND_SHARED = 0, RV_KIND_APART = 1 } rv_kind;

/* A column as the rows have it. */
typedef struct rv_given_column {
  char *name; /* NULL: called by its number */
  uint32_t stack, of;
  bool is_next;
  uint32_t kept; /* which of the kept ones has it */
  size_t row_bytes;
} rv_given_column;

/* A column that is stored, frame by frame. */
typedef struct rv_kept_column {
  uint32_t column, next; /* of the row; RV_NO_COLUMN: it has no next */
  uint32_t frames;
  rv_spec frame;
  size_t frame_bytes;
} rv_kept_column;

typedef struct rv_local_transitions rv_local_transitions;
typedef struct rv_remote_transitions rv_remote_transitions;

struct rv_transitions {
  rv_client *client;
  char *table;
  size_t num_envs;
  uint32_t num_columns, num_kept;
  rv_given_column *given;
  rv_kept_column *kept;
  uint64_t naming;
  bool known; /* the first step has come: dtypes and shapes are fixed */
  bool begun; /* some row has become an item */
  bool closed;
  rv_error untold; /* of a writer to a server that was closed, what no call had returned; code RV_OK: nothing */
  int64_t *sizes;  /* of the frames' shapes */
  uint32_t reach, whole_reach;
  size_t rows_seen, rows_on; /* of the first ones: how many there were, and went on from the one before */
  bool rows_judged;
  const bool *where;           /* while a step is added: whose rows are taken; NULL: all environments' */
  rv_local_transitions *local; /* one of the two, from the first step on */
  rv_remote_transitions *remote;
};

/* The slots, before its own, that an item of this kind reaches back to. */
static inline uint32_t rv_kind_reach(const rv_transitions *transitions, rv_kind kind)
{
  return kind == RV_KIND_SHARED ? transitions->reach : transitions->whole_reach;
}

/* Where column `index` of an item begins, counted in slots back from its own. */
uint32_t rv_transitions_back(const rv_transitions *transitions, rv_kind kind, uint32_t index);
static inline uint32_t rv_transitions_frames(const rv_transitions *transitions, uint32_t index)
{
  return transitions->kept[transitions->given[index].kept].frames;
}

/* Is the environment's row of the step that is being added to become an item? */
static inline bool rv_row_is_taken(const rv_transitions *transitions, size_t env)
{
  return transitions->where == NULL || transitions->where[env];
}

/* One row of a column of environment `env`: all its frames. */
static inline const uint8_t *rv_given_row(const rv_transitions *transitions, const rv_tensor *columns, uint32_t index, size_t env)
{
  return (const uint8_t *)columns[index].data + env * transitions->given[index].row_bytes;
}

/* The frame of a kept column that stands `back` slots before the item's own, when it is stored whole; NULL: none does. */
const uint8_t *rv_given_frame(const rv_transitions *transitions, const rv_tensor *columns, rv_kind kind, uint32_t kept,
                              size_t env, uint32_t back);
/* Shared, where every stack with a next is one step behind it. */
rv_kind rv_given_kind(const rv_transitions *transitions, const rv_tensor *columns, size_t env);
/* What must stand in the newest slots for a row to go on from there: `count` frames, the last of them `frames` in the newest
 * slot. 0: anything may. */
static inline uint32_t rv_kept_repeats(const rv_kept_column *kept)
{
  return kept->next != RV_NO_COLUMN ? kept->frames : kept->frames - 1;
}

/* A step is in, of so many rows, so many of which went on. Logs, once, that hardly any does. */
void rv_transitions_note_step(rv_transitions *transitions, size_t rows, size_t went_on);

/* Called with columns that were checked. */
rv_code rv_local_transitions_new(rv_transitions *transitions, rv_error *err);
rv_code rv_local_transitions_add(rv_transitions *transitions, const rv_tensor *columns, const double *priorities, size_t *added,
                                 const rv_wait *wait, rv_error *err);
void rv_local_transitions_free(rv_transitions *transitions);

rv_code rv_remote_transitions_new(rv_transitions *transitions, rv_error *err);
rv_code rv_remote_transitions_add(rv_transitions *transitions, const rv_tensor *columns, const double *priorities, size_t *added,
                                  const rv_wait *wait, rv_error *err);
rv_code rv_remote_transitions_flush(rv_transitions *transitions, const rv_wait *wait, rv_error *err);
rv_code rv_remote_transitions_settle(rv_transitions *transitions, const rv_wait *wait, rv_error *err);
rv_code rv_remote_transitions_take_failure(rv_transitions *transitions, rv_error *err);
size_t rv_remote_transitions_discard_failed(rv_transitions *transitions);
/* As rv_writer_abandon. */
size_t rv_remote_transitions_abandon(rv_transitions *transitions);
void rv_remote_transitions_free(rv_transitions *transitions);

#endif
