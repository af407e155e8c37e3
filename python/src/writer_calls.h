/* What trajectory and structured writers have in common for Python: how they wait, tell how it went, and end. */
#ifndef RV_PYTHON_WRITER_CALLS_H
#define RV_PYTHON_WRITER_CALLS_H

#include "stream.h"

/* What an object of either type begins with. */
typedef struct writer_base {
  PyObject_HEAD
  core_state *state;
  stream_object *stream; /* NULL: not initialised */
} writer_base;

/* -1 with RuntimeError where it was not initialised. */
int writer_check_made(PyObject *writer);
/* The same, and takes its stream's lock; -1 also where it is closed. */
int writer_enter(PyObject *writer);

PyObject *writer_flush(PyObject *writer, PyObject *args);
PyObject *writer_settle(PyObject *writer, PyObject *timeout);
PyObject *writer_end_episode(PyObject *writer, PyObject *args);
PyObject *writer_take_failure(PyObject *writer, PyObject *none);
PyObject *writer_status(PyObject *writer, PyObject *none);
PyObject *writer_discard(PyObject *writer, PyObject *none);
PyObject *writer_abandon(PyObject *writer, PyObject *none);
PyObject *writer_close(PyObject *writer, PyObject *none);

/* Their entries among a type's methods. */
/* clang-format off */
#define WRITER_CALLS                                                                                                              \
  {"_flush", writer_flush, METH_VARARGS, "_flush($self, keep, timeout, /)\n--\n\n"},                                              \
  {"_end_episode", writer_end_episode, METH_VARARGS, "_end_episode($self, clear_buffers, timeout, /)\n--\n\n"},                   \
  {"_settle", writer_settle, METH_O,                                                                                              \
   "_settle($self, timeout, /)\n--\n\nWaits as a flush does, but for every item, whether or not others were refused."},           \
  {"_take_failure", writer_take_failure, METH_NOARGS,                                                                             \
   "_take_failure($self, /)\n--\n\nWhat the server refused and no call has raised, in words, or None; it is told then."},         \
  {"_status", writer_status, METH_NOARGS, "_status($self, /)\n--\n\n"},                                                           \
  {"discard_failed", writer_discard, METH_NOARGS,                                                                                 \
   "discard_failed($self, /)\n--\n\nForgets items that failed for good, so that the writer can go on. Returns how many."},        \
  {"_abandon", writer_abandon, METH_NOARGS,                                                                                       \
   "_abandon($self, /)\n--\n\nCloses without a word in the log; how many items were given up (0 inside a call)."},                \
  {"close", writer_close, METH_NOARGS,                                                                                            \
   "close($self, /)\n--\n\nReturns at once; items that were not sent and confirmed are dropped, which is logged, as is what the " \
   "server refused\n"                                                                                                             \
   "and no call has raised. A flush or end_episode that another thread is in, or that this one is in while a signal handler\n"    \
   "calls close, ends with CancelledError. Idempotent."}
/* clang-format on */

#endif
