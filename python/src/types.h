/* The extension's types: how each is made, and what others may do with it. */
#ifndef RV_PYTHON_TYPES_H
#define RV_PYTHON_TYPES_H

#include <sys/types.h>

#include "core.h"
#include "tree.h"

extern PyType_Spec checkpointer_spec, saver_spec, structure_spec, store_spec, server_spec, cancel_spec, client_spec, handle_spec,
    batch_spec, sample_spec;
extern PyType_Spec sampler_spec, stream_spec, step_writer_spec, writer_spec, structured_spec, history_spec, column_spec,
    reference_spec, buffer_spec, transitions_spec, patterns_spec, source_spec;

/* ---- a nest's shape ---- */
typedef struct structure_object {
  PyObject_HEAD
  core_state *state;
  tree *root;
  size_t num_leaves;
  char **names;    /* NULL: nobody has asked yet */
  uint64_t naming; /* 0: nobody has asked yet */
} structure_object;
structure_object *structure_new(core_state *state, PyObject *nest);
/* The same leaves, and behind them those that the nest has more. NULL with an exception: tree_grow. */
structure_object *structure_grown(const structure_object *before, PyObject *nest);
/* What the library calls the leaves: their places, "obs/pixels" or "actions/0". They live as long as the structure; NULL with an
 * exception. */
const char *const *structure_names(structure_object *self);
/* A number that stands for containers, keys and their order (rv_writer_set_naming), the same in every process; 0 where a key cannot
 * be told. No exception. */
uint64_t structure_naming(structure_object *self);

/* ---- tables in this process ---- */
typedef struct store_object {
  PyObject_HEAD
  core_state *state;
  rv_store *store;
  rv_journal *journal; /* NULL: none, or closed */
  rv_spill *spill;     /* NULL: none, or closed */
  pid_t pid;           /* of the process that made it; in a forked child its locks may be held for ever */
} store_object;

/* FailedPreconditionError and -1 in a forked child, whose copy nobody else sees and whose locks may be held for ever. */
int store_check(const store_object *self);

/* What Python's TableInfo is made from; NULL with an exception. */
PyObject *table_info_to_dict(const rv_table_info *info);

/* ---- checkpoints ---- */
typedef struct checkpointer_object {
  PyObject_HEAD
  core_state *state;
  rv_checkpointer *checkpointer;
} checkpointer_object;

/* Saving and restoring without the GIL; signals and a deadline end it. `wait` is for core_wait_end. */
typedef struct checkpoint_wait {
  core_wait wait;
  rv_checkpoint_watch watch;
  int64_t deadline_ns, next_look_ns;
  bool late; /* the deadline ended it */
} checkpoint_wait;
void checkpoint_wait_begin(checkpoint_wait *self, int64_t timeout_ms);

typedef struct cancel_object {
  PyObject_HEAD
  rv_cancel *cancel;
} cancel_object;

#endif
