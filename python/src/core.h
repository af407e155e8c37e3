/* What the files of the extension share: the module's state, how errors are raised, how arguments are parsed.
 *
 * The extension is thin: parse, release the GIL, call C, wrap. It keeps to CPython's limited API of 3.11 with NumPy's C API
 * under it. There is no static state besides NumPy's table of functions and what a signal handler needs (interrupts.c); a type's
 * methods find the module's state through the object (`state`), which holds a reference to its type and so to the module.
 *
 * A type whose objects refer to others has a tp_traverse, and its objects are tracked once all that they need is there. Most have no
 * tp_clear: a circle goes through something of the user's that refers back, an instance, a class or a container, and that has one. */
#ifndef RV_PYTHON_CORE_H
#define RV_PYTHON_CORE_H

#include <stdlib.h>
#include <string.h>

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_25_API_VERSION
#define NPY_TARGET_VERSION NPY_1_25_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL rv_python_numpy
#ifndef RV_PYTHON_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "reverie/reverie.h"

/* rv_dtype numbers are below this. */
#define CORE_DTYPES 32
#define CORE_CODES 17
#define CORE_SCALARS 14
#define CORE_SCALAR_SLOTS 64 /* a power of two, mostly empty */

typedef struct core_state {
  PyObject *errors[CORE_CODES]; /* exception classes by status code */
  PyObject *structure_error;
  PyObject *sample_info; /* classes: reverie.samples */
  PyObject *replay_sample;
  PyObject *mapping;                            /* collections.abc.Mapping */
  PyObject *sequence;                           /* collections.abc.Sequence */
  PyObject *attrs_fields;                       /* "__attrs_attrs__" */
  PyObject *tuple_fields;                       /* "_fields" */
  PyArray_Descr *descr[CORE_DTYPES];            /* how a dtype is shown; NULL for a number that is no dtype */
  rv_dtype dtype_of_builtin[32];                /* by NumPy's type number */
  int ml_type[5];                               /* NumPy's numbers of ml_dtypes' types ... */
  rv_dtype ml_dtype[5];                         /* ... and ours */
  PyTypeObject *scalar_type[CORE_SCALAR_SLOTS]; /* NumPy's numeric scalars, by core_scalar_slot ... */
  rv_dtype scalar_dtype[CORE_SCALAR_SLOTS];     /* ... and ours */
  PyTypeObject *checkpointer_type, *saver_type;
  PyTypeObject *structure_type, *store_type, *server_type, *cancel_type, *client_type, *handle_type, *batch_type, *sample_type;
  PyTypeObject *sampler_type, *stream_type, *step_writer_type, *writer_type, *structured_type, *history_type, *column_type,
      *reference_type, *buffer_type, *transitions_type, *patterns_type, *source_type;
  PyObject *sources;     /* dict: number -> TensorSource, until it is closed */
  long long next_source; /* number */
  rv_io *io;             /* the threads that clients share, of this process; NULL: not made yet */
  long io_pid;
  struct log_lines *log; /* lines for Python's logging (log.h); NULL: nobody logs yet */
} core_state;

/* For type slots and method tables: ISO C has no conversion from function pointers to void pointers. */
#define CORE_SLOT(function) ((void *)(uintptr_t)(function))
#define CORE_METHOD(function) ((PyCFunction)(void (*)(void))(function))
#define CORE_FAST (METH_FASTCALL | METH_KEYWORDS)

/* The state of the module that made `type` or one of its bases; NULL with an exception set. */
core_state *core_state_of_type(PyTypeObject *type);

/* Where the type of NumPy's numeric scalars stands in scalar_type; NULL stands there for any other type. */
static inline size_t core_scalar_slot(const core_state *state, const PyTypeObject *type)
{
  size_t slot = (size_t)((uint64_t)(uintptr_t)type * UINT64_C(0x9E3779B97F4A7C15) >> 32) % CORE_SCALAR_SLOTS;
  while (state->scalar_type[slot] != type && state->scalar_type[slot] != NULL) slot = (slot + 1) % CORE_SCALAR_SLOTS;
  return slot;
}

/* ---- errors ---- */

/* Its sentence as a str. NULL with an exception set. */
PyObject *core_sentence(const rv_error *err);
/* Raises the error as the exception of its code. Returns NULL, so that a method can end with `return core_raise(...)`. */
PyObject *core_raise(core_state *state, const rv_error *err);
/* Puts "text: " before the sentence of the TypeError or ValueError that is set, where `text` is repr(what). */
void core_prefix_error(PyObject *what);
/* Is it a tensor of PyTorch's? An exception that is set stays. */
bool core_is_tensor(PyObject *value);
/* The text of the TypeError or ValueError that is set, with which a conversion refused a value; the error is cleared. Of a tensor it may
 * be a RuntimeError, too: with that PyTorch refuses one that requires grad. NULL: another exception is set, Ctrl-C, say, or one of the
 * value's own, and stays. */
PyObject *core_take_refusal(bool of_tensor);
/* Clears such an error, or an OverflowError, for a sentence that names the argument. False: another exception is set, and stays. */
bool core_clear_refusal(void);

/* ---- arguments of METH_FASTCALL | METH_KEYWORDS methods ---- */

typedef struct core_signature {
  const char *function;
  const char *const *names; /* of all parameters */
  int count;                /* of names */
  int positional;           /* so many may be given by position */
  int required;             /* the first so many must be given */
} core_signature;

/* Fills out[count] with borrowed references, NULL where nothing was given; -1 with TypeError. */
int core_parse(const core_signature *signature, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out);

/* Seconds (None: for ever; NULL: `otherwise`) as milliseconds, rounded up. -1 with an exception set. */
int core_timeout(PyObject *seconds, int64_t otherwise, int64_t *out);
/* The UTF-8 of a str, or of bytes, which Reverb's callers give for names; NULL with TypeError that names `what`, or ValueError for what is
 * no text of ours. Valid while the object lives. */
const char *core_text(PyObject *text, const char *what);
/* The same text as a str: a new reference, or NULL with an exception. */
PyObject *core_str(PyObject *text, const char *what);
/* The bytes of a path, of which files may have any but NUL; NULL for None. false with an exception that names `what`. Valid while the object
 * lives. */
bool core_path(PyObject *bytes, const char *what, const char **out);
/* A positive or zero int that fits size_t; -1 with an exception. */
int core_size(PyObject *value, const char *what, size_t least, size_t *out);
/* What float() takes, but no complex number, and arrays of one element. -1 with an exception. */
int core_double(PyObject *value, const char *what, double *out);
/* Of NumPy's complex numbers float() takes the real part, with a warning. */
static inline bool core_is_complex(PyObject *value)
{
  return !PyFloat_Check(value) && PyArray_IsScalar(value, ComplexFloating);
}
/* Are the elements of this contiguous array real numbers, or objects of which float() may make some? A cast also makes numbers of text, times
 * and complex numbers. */
bool core_holds_reals(PyArrayObject *array);

/* ValueError that names `what`, and -1, for an array of numpy.ma's of which elements are masked: what is under the mask would be taken. */
int core_check_mask(PyArrayObject *array, const char *what);

/* ---- waiting ---- */

/* Milliseconds that a caller gave for all of a call that waits more than once (RV_FOREVER: no end), and what is left of them. */
typedef struct core_time {
  int64_t given_ms, left_ms;
} core_time;

/* A call that may block: releases the GIL and lets signals through. */
typedef struct core_wait {
  rv_wait wait;
  PyThreadState *thread;  /* NULL: the GIL is held */
  bool raised;            /* a signal handler raised: */
  PyObject *exception[3]; /* this, until the call is over; then it is set */
} core_wait;

void core_wait_begin(core_wait *wait, int64_t timeout_ms, rv_cancel *cancel); /* the GIL is released afterwards */
/* The GIL stays held until the call first waits: for short calls in process, which other threads would make dear by taking it. */
void core_wait_begin_short(core_wait *wait, int64_t timeout_ms, rv_cancel *cancel);
/* core_timeout's seconds, all of which are left. */
int core_time_begin(PyObject *seconds, int64_t otherwise, core_time *out);
/* core_wait_begin, or with `briefly` core_wait_begin_short, of what is left; errors say what was given. */
void core_wait_begin_rest(core_wait *wait, const core_time *time, rv_cancel *cancel, bool briefly);
/* The GIL is held again. What a signal handler raised is set if the call failed; if it succeeded after all, its result counts, and the
 * exception comes right after the call. */
void core_wait_end(core_wait *wait, rv_code code);
/* call_in_graph(function, arguments): on a thread of TensorFlow's, which runs no signal handlers. What waits in there ends by Ctrl-C all the same,
 * with CancelledError (interrupts.h). */
PyObject *core_call_in_graph(PyObject *module, PyObject *args);
/* settle_interrupts(): interrupts_settle. */
PyObject *core_settle_interrupts(PyObject *module, PyObject *none);
/* After core_wait_end: raises what the call failed with, or keeps what a signal handler raised. */
PyObject *core_wait_raise(core_state *state, const core_wait *wait, const rv_error *err);
/* The same of a writer; if its wait was cancelled because it was closed, says so. */
PyObject *core_wait_raise_of_writer(core_state *state, const core_wait *wait, bool closed, const rv_error *err);

/* ---- a lock for objects that belong to one thread at a time ---- */

typedef struct core_mutex {
  core_state *state;
  const rv_client *client;
  PyThread_type_lock lock;
  unsigned long owner; /* the thread that has it, 0: nobody; read and changed with the GIL */
} core_mutex;

/* The client is the object's, and outlives it. -1 with MemoryError; fini is allowed then, too. */
int core_mutex_init(core_mutex *mutex, core_state *state, const rv_client *client);
void core_mutex_fini(core_mutex *mutex);
/* Takes the lock, waiting without the GIL if another thread has it; -1 if a signal handler raised meanwhile. If this thread has it already,
 * -1 with RuntimeError: a signal handler or a finaliser, which runs inside its call, would wait for itself. In a forked child, where the
 * thread that has it is not there, -1 with FailedPreconditionError. Who waits for 10 s is told of in the log. */
int core_lock(core_mutex *mutex);
/* The same for a call with a time of its own, off what is left of which the wait goes; -1 with DeadlineExceededError when nothing is left. */
int core_lock_within(core_mutex *mutex, core_time *time);
void core_unlock(core_mutex *mutex);
/* Does this thread have it? */
bool core_locked_here(const core_mutex *mutex);

#endif
