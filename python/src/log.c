#include "log.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/env.h"
#include "base/lock.h"

#define SECOND INT64_C(1000000000)
#define IDLE_NS (1 * SECOND)
#define SETTLE_NS (2 * SECOND)
#define CLOSE_NS (5 * SECOND)
#define SLICE_NS (SECOND / 20) /* between two looks at signals */

enum { LINES_MAX = 1000 };

typedef struct log_line {
  struct log_line *next;
  rv_log_level level, dropped_level;
  uint64_t dropped; /* lines before this one for which there was no room; the gravest had that level */
  char text[];
} log_line;

struct log_lines {
  pid_t pid;       /* of the process whose threads fill and empty it; in a forked child the lock may be held for ever */
  rv_env plain;    /* stderr */
  PyObject *start; /* reverie._log.start */
  rv_mutex lock;   /* RV_RANK_LOG: nothing is taken under it, the GIL least of all: what follows */
  rv_cond progress;
  log_line *first, **end;
  size_t count;
  uint64_t said, taken, handled; /* lines: that had room, that a thread has taken, with which it was done */
  uint64_t dropped;
  rv_log_level dropped_level; /* of the gravest of them */
  bool running;               /* a thread takes lines, or is about to */
  bool closed;                /* lines go to stderr */
  unsigned long taker;        /* Python's number of that thread; 0: it has taken none yet */
};

static void tell_plainly(const log_lines *lines, rv_log_level level, const char *text)
{
  if (level >= lines->plain.log_level) lines->plain.log(lines->plain.context, level, text);
}

static log_line *pop(log_lines *lines)
{
  log_line *line = lines->first;
  if (line == NULL) return NULL;
  lines->first = line->next;
  if (lines->first == NULL) lines->end = &lines->first;
  lines->count--;
  lines->taken++;
  return line;
}

static void end_running(log_lines *lines)
{
  lines->running = false;
  lines->taker = 0;
  lines->handled = lines->taken;
  rv_cond_broadcast(&lines->progress);
}

/* What no thread of Python's will take. */
static void tell_rest_plainly(log_lines *lines)
{
  rv_mutex_lock(&lines->lock);
  for (log_line *line = pop(lines); line != NULL; line = pop(lines)) {
    tell_plainly(lines, line->level, line->text);
    free(line);
  }
  end_running(lines);
  rv_mutex_unlock(&lines->lock);
}

static void *start_taking(void *context)
{
  log_lines *lines = context;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *started = PyObject_CallNoArgs(lines->start);
  bool ok = started != NULL;
  if (!ok) PyErr_Clear(); /* there are no more threads, or the interpreter ends */
  Py_XDECREF(started);
  PyGILState_Release(gil);
  if (!ok) tell_rest_plainly(lines);
  return NULL;
}

/* A thread that no signal is delivered to. */
static bool begin_running(log_lines *lines)
{
  sigset_t all, before;
  pthread_t thread;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  lines->running = pthread_create(&thread, &attributes, start_taking, lines) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return lines->running;
}

/* With the lock. False: there is no room, or no memory, and the line is counted as dropped. */
static bool push(log_lines *lines, rv_log_level level, const char *text)
{
  size_t size = strlen(text) + 1;
  log_line *line = lines->count < LINES_MAX ? malloc(sizeof *line + size) : NULL;
  if (line == NULL) {
    if (lines->dropped == 0 || level > lines->dropped_level) lines->dropped_level = level;
    lines->dropped++;
    return false;
  }
  line->next = NULL;
  line->level = level;
  line->dropped = lines->dropped;
  line->dropped_level = lines->dropped_level;
  memcpy(line->text, text, size);
  lines->dropped = 0;
  lines->said++;
  *lines->end = line;
  lines->end = &line->next;
  lines->count++;
  return true;
}

static void say(void *context, rv_log_level level, const char *text)
{
  log_lines *lines = context;
  if (lines->pid != getpid()) {
    tell_plainly(lines, level, text);
    return;
  }
  rv_mutex_lock(&lines->lock);
  bool plainly = lines->closed;
  if (!plainly && push(lines, level, text) && !lines->running && !begin_running(lines)) {
    free(pop(lines)); /* the only one: whoever found no thread before this left nothing */
    plainly = true;
  }
  rv_mutex_unlock(&lines->lock);
  if (plainly) tell_plainly(lines, level, text);
}

/* ---- with the GIL ---- */

static log_lines *lines_new(void)
{
  log_lines *lines = calloc(1, sizeof *lines);
  if (lines == NULL) return NULL;
  lines->pid = getpid();
  lines->end = &lines->first;
  rv_env_default(&lines->plain);
  rv_mutex_init(&lines->lock, RV_RANK_LOG, "log");
  rv_cond_init(&lines->progress);
  return lines;
}

/* Of this process; NULL: nobody has asked for it yet. */
static log_lines *here(core_state *state)
{
  return state->log != NULL && state->log->pid == getpid() ? state->log : NULL;
}

/* -1 with an exception. */
static int make_lines(core_state *state, PyObject *module)
{
  PyObject *begun = PyObject_CallMethod(module, "begin", NULL);
  if (begun == NULL) return -1;
  Py_DECREF(begun);
  if (here(state) != NULL) return 0; /* another thread was let in */
  log_lines *lines = lines_new();
  if (lines == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  lines->start = PyObject_GetAttrString(module, "start");
  if (lines->start == NULL) return -1;
  state->log = lines; /* a forked child leaves its parent's as it is */
  return 0;
}

int log_env(core_state *state, rv_env *out)
{
  PyObject *module = PyImport_ImportModule("reverie._log");
  PyObject *debug = module == NULL ? NULL : PyObject_CallMethod(module, "wants_debug", NULL);
  int wanted = debug == NULL ? -1 : PyObject_IsTrue(debug);
  Py_XDECREF(debug);
  if (wanted >= 0 && here(state) == NULL && make_lines(state, module) < 0) wanted = -1;
  Py_XDECREF(module);
  if (wanted < 0) return -1;
  rv_env_default(out);
  out->context = state->log;
  out->log = say;
  out->log_level = wanted ? RV_LOG_DEBUG : RV_LOG_INFO;
  return 0;
}

PyObject *log_take(PyObject *module, PyObject *none)
{
  (void)none;
  log_lines *lines = here(PyModule_GetState(module));
  if (lines == NULL) Py_RETURN_NONE;
  rv_mutex_lock(&lines->lock);
  lines->handled = lines->taken; /* whoever asks for the next is done with the last */
  rv_cond_broadcast(&lines->progress);
  log_line *line = pop(lines);
  if (line != NULL)
    lines->taker = PyThread_get_thread_ident();
  else
    end_running(lines);
  rv_mutex_unlock(&lines->lock);
  if (line == NULL) Py_RETURN_NONE;
  PyObject *text = PyUnicode_DecodeUTF8(line->text, (Py_ssize_t)strlen(line->text), "replace");
  PyObject *out =
      text == NULL ? NULL
                   : Py_BuildValue("(iNKi)", (int)line->level, text, (unsigned long long)line->dropped, (int)line->dropped_level);
  free(line);
  if (out == NULL) tell_rest_plainly(lines); /* no memory: the thread that asks ends by that */
  return out;
}

/* With the lock: of the lines until then, may one more be handled by somebody else? */
static bool unsettled(const log_lines *lines, uint64_t until, unsigned long me)
{
  return lines->running && lines->taker != me && lines->handled < until;
}

/* Waits for lines that were said before, while one is handled each second, and so long in all. -1 with the exception of a signal's handler. */
static int settle(log_lines *lines, int64_t most_ns)
{
  unsigned long me = PyThread_get_thread_ident();
  int64_t now_ns = rv_monotonic_ns(&lines->plain), end_ns = now_ns + most_ns, idle_ns = now_ns + IDLE_NS;
  rv_mutex_lock(&lines->lock);
  uint64_t until = lines->said, handled = lines->handled;
  bool waits = unsettled(lines, until, me);
  rv_mutex_unlock(&lines->lock);
  while (waits && now_ns < end_ns && now_ns < idle_ns) {
    bool late = false;
    Py_BEGIN_ALLOW_THREADS
    rv_mutex_lock(&lines->lock);
    while (unsettled(lines, until, me) && !late) late = !rv_cond_wait_for(&lines->progress, &lines->lock, SLICE_NS);
    now_ns = rv_monotonic_ns(&lines->plain);
    if (lines->handled != handled) idle_ns = now_ns + IDLE_NS;
    handled = lines->handled;
    waits = unsettled(lines, until, me);
    rv_mutex_unlock(&lines->lock);
    Py_END_ALLOW_THREADS
    if (PyErr_CheckSignals() != 0) return -1;
  }
  return 0;
}

PyObject *log_settle(PyObject *module, PyObject *none)
{
  (void)none;
  log_lines *lines = here(PyModule_GetState(module));
  if (lines != NULL && settle(lines, SETTLE_NS) < 0) return NULL;
  Py_RETURN_NONE;
}

PyObject *log_close(PyObject *module, PyObject *none)
{
  (void)none;
  core_state *state = PyModule_GetState(module);
  if (here(state) == NULL) {
    log_lines *lines = lines_new(); /* for those who begin to log after this */
    if (lines == NULL) return PyErr_NoMemory();
    state->log = lines;
  }
  log_lines *lines = state->log;
  rv_mutex_lock(&lines->lock);
  lines->closed = true;
  rv_mutex_unlock(&lines->lock);
  int settled = settle(lines, CLOSE_NS);
  Py_BEGIN_ALLOW_THREADS
  tell_rest_plainly(lines);
  Py_END_ALLOW_THREADS
  if (settled < 0) return NULL;
  Py_RETURN_NONE;
}
