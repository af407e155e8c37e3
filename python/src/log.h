/* Log lines of the library as records of Python's logging (reverie/_log.py).
 *
 * A line comes from any thread, under any lock, with or without the GIL. It is put into a queue, and whoever puts the first one there starts
 * a thread, which starts a Python thread that takes lines until there are none, and ends. So nobody who logs ever waits for Python, and a
 * process that logs nothing has no thread for it. Where Python cannot be had (the interpreter ends, a forked child with its parent's
 * objects, no thread can be made) warnings and errors go to stderr. */
#ifndef RV_PYTHON_LOG_H
#define RV_PYTHON_LOG_H

#include "core.h"

/* The queue of the process that made it; its line, its lock and its memory last until the process ends, since threads of the library may log
 * until then. */
typedef struct log_lines log_lines;

/* The environment of an object that is made now: the default one, with Python's logging. -1 with an exception. */
int log_env(core_state *state, rv_env *out);

/* take_log(): (level, line, number of lines dropped before it), or None where there are no more; the caller's thread then has to end. */
PyObject *log_take(PyObject *module, PyObject *none);
/* settle_log(): returns when every line said before was handled, or none has been for a second, or after two seconds; or with the exception of
 * a signal's handler. */
PyObject *log_settle(PyObject *module, PyObject *none);
/* close_log(): the same, after five seconds at most; warnings and errors that were not handled go to stderr, as those from then on. */
PyObject *log_close(PyObject *module, PyObject *none);

#endif
