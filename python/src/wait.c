#include <unistd.h>

#include "core.h"
#include "interrupts.h"

/* Of a thread in core_call_in_graph. */
static _Thread_local bool in_graph;
static _Thread_local int64_t in_graph_since_ns;

static void let_go(void *context)
{
  core_wait *wait = context;
  if (wait->thread == NULL) wait->thread = PyEval_SaveThread();
}

/* Of a thread that has waited: does it run Python's signal handlers? */
static _Thread_local struct {
  bool handlers;
  pid_t pid; /* of the process in which that was asked; 0: it was not */
} here;

/* The main thread of the main interpreter runs them, and only there set_wakeup_fd is no ValueError (but an OSError: -2 is no file). The module
 * threading takes for the main thread who imported it first, or the greenlet that somebody put there. */
static void ask_who_runs_here(void)
{
  if (here.pid != 0) return;
  PyObject *module = PyImport_ImportModule("signal");
  PyObject *old = module == NULL ? NULL : PyObject_CallMethod(module, "set_wakeup_fd", "i", -2);
  here.handlers = PyErr_Occurred() == NULL || !PyErr_ExceptionMatches(PyExc_ValueError);
  here.pid = getpid();
  PyErr_Clear();
  Py_XDECREF(old);
  Py_XDECREF(module);
}

/* The thread that forked is its child's main thread. */
static bool runs_handlers(void)
{
  return here.handlers || here.pid != getpid();
}

/* Asked on the thread that waits. Only one that runs handlers takes the GIL for it: another might be ended there, by an interpreter that exits,
 * while those who would wake it still know its stack. */
static bool signal_raised(void *context)
{
  core_wait *wait = context;
  if (wait->raised) return true;
  if (in_graph) return interrupts_stuck(in_graph_since_ns);
  if (!runs_handlers()) return false;
  if (wait->thread != NULL) PyEval_RestoreThread(wait->thread);
  wait->raised = PyErr_CheckSignals() != 0;
  if (wait->raised) PyErr_Fetch(&wait->exception[0], &wait->exception[1], &wait->exception[2]);
  if (wait->thread != NULL) wait->thread = PyEval_SaveThread();
  return wait->raised;
}

void core_wait_begin_short(core_wait *wait, int64_t timeout_ms, rv_cancel *cancel)
{
  wait->wait =
      (rv_wait){.timeout_ms = timeout_ms, .cancel = cancel, .interrupted = signal_raised, .context = wait, .blocking = let_go};
  wait->raised = false;
  wait->thread = NULL;
  ask_who_runs_here();
}

void core_wait_begin(core_wait *wait, int64_t timeout_ms, rv_cancel *cancel)
{
  core_wait_begin_short(wait, timeout_ms, cancel);
  let_go(wait);
}

int core_time_begin(PyObject *seconds, int64_t otherwise, core_time *out)
{
  int code = core_timeout(seconds, otherwise, &out->given_ms);
  out->left_ms = out->given_ms;
  return code;
}

void core_wait_begin_rest(core_wait *wait, const core_time *time, rv_cancel *cancel, bool briefly)
{
  core_wait_begin_short(wait, time->left_ms, cancel);
  wait->wait.given_ms = time->given_ms;
  if (!briefly) let_go(wait);
}

static int raise_late(void *exception)
{
  PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
  Py_DECREF((PyObject *)exception);
  return -1;
}

void core_wait_end(core_wait *wait, rv_code code)
{
  if (wait->thread != NULL) PyEval_RestoreThread(wait->thread);
  if (!wait->raised) return;
  PyObject **exception = wait->exception;
  if (code == RV_OK) {
    PyErr_NormalizeException(&exception[0], &exception[1], &exception[2]);
    Py_XINCREF(exception[1]);
    if (exception[1] == NULL || Py_AddPendingCall(raise_late, exception[1]) != 0) {
      Py_XDECREF(exception[1]);
      PyErr_SetInterrupt(); /* no room for a call: as if Ctrl-C came once more */
    }
    for (int i = 0; i < 3; i++) Py_XDECREF(exception[i]);
    return;
  }
  PyErr_Restore(exception[0], exception[1], exception[2]);
}

PyObject *core_call_in_graph(PyObject *module, PyObject *args)
{
  (void)module;
  PyObject *function, *arguments;
  if (!PyArg_ParseTuple(args, "OO!:call_in_graph", &function, &PyTuple_Type, &arguments)) return NULL;
  bool outermost = !in_graph;
  if (outermost) in_graph_since_ns = interrupts_begin();
  in_graph = true;
  PyObject *result = PyObject_CallObject(function, arguments);
  if (outermost) {
    in_graph = false;
    interrupts_end();
  }
  return result;
}

PyObject *core_settle_interrupts(PyObject *module, PyObject *none)
{
  (void)module, (void)none;
  interrupts_settle();
  Py_RETURN_NONE;
}

PyObject *core_wait_raise(core_state *state, const core_wait *wait, const rv_error *err)
{
  return wait->raised ? NULL : core_raise(state, err);
}

PyObject *core_wait_raise_of_writer(core_state *state, const core_wait *wait, bool closed, const rv_error *err)
{
  if (err->code != RV_CANCELLED || wait->raised || !closed) return core_wait_raise(state, wait, err);
  return PyErr_Format(state->errors[RV_CANCELLED], "the writer was closed meanwhile, by another thread or a signal handler (%s)",
                      err->message);
}
