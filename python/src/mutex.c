#include <stdio.h>

#include "base/env.h"
#include "client/client.h"
#include "core.h"

#define MILLISECOND INT64_C(1000000)
#define SLICE_NS (50 * MILLISECOND) /* between two looks at signals */
#define FIRST_LOG_NS (10000 * MILLISECOND)

int core_mutex_init(core_mutex *mutex, core_state *state, const rv_client *client)
{
  mutex->state = state;
  mutex->client = client;
  mutex->owner = 0;
  mutex->lock = PyThread_allocate_lock();
  if (mutex->lock != NULL) return 0;
  PyErr_NoMemory();
  return -1;
}

void core_mutex_fini(core_mutex *mutex)
{
  if (mutex->lock != NULL) PyThread_free_lock(mutex->lock);
}

bool core_locked_here(const core_mutex *mutex)
{
  return mutex->owner == PyThread_get_thread_ident();
}

/* Why waiting makes no sense; -1 with an exception. */
static int check_other(core_mutex *mutex)
{
  rv_error err;
  if (core_locked_here(mutex)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "this thread is inside another call of this object, which a signal handler or a finaliser "
                    "interrupted; it must end first (an exception from the handler ends it)");
    return -1;
  }
  if (rv_client_is_here(mutex->client)) return 0;
  rv_client_fail_gone(mutex->client, &err);
  core_raise(mutex->state, &err);
  return -1;
}

static int raise_late(const core_mutex *mutex, int64_t given_ms)
{
  rv_error err = {.code = RV_DEADLINE_EXCEEDED};
  snprintf(
      err.message, sizeof err.message,
      "timed out after %g s: waits for another thread, which is in a call of this object; a writer or sampler belongs to one "
      "thread at a time",
      (double)given_ms * 1e-3);
  core_raise(mutex->state, &err);
  return -1;
}

/* Another thread has it. */
static int wait_for_other(core_mutex *mutex, core_time *time)
{
  const rv_env *env = &mutex->client->env;
  int64_t begun_ns = rv_monotonic_ns(env), log_ns = begun_ns + FIRST_LOG_NS, left_ns = INT64_MAX;
  bool ends = time != NULL && time->left_ms >= 0 && time->left_ms < INT64_MAX / MILLISECOND;
  if (ends) left_ns = time->left_ms * MILLISECOND;
  for (;;) {
    PyLockStatus status;
    int64_t slice_ns = left_ns < SLICE_NS ? left_ns : SLICE_NS;
    Py_BEGIN_ALLOW_THREADS
    status = PyThread_acquire_lock_timed(mutex->lock, slice_ns / 1000, 0);
    Py_END_ALLOW_THREADS
    int64_t now_ns = rv_monotonic_ns(env);
    if (ends) left_ns = time->left_ms * MILLISECOND - (now_ns - begun_ns);
    if (status == PY_LOCK_ACQUIRED) break;
    if (PyErr_CheckSignals() != 0) return -1;
    if (left_ns <= 0) return raise_late(mutex, time->given_ms);
    if (now_ns < log_ns) continue;
    rv_log(env, RV_LOG_WARNING, "a call has been waiting for %.0f s: another thread is in a call of the same object",
           (double)(now_ns - begun_ns) * 1e-9);
    log_ns = now_ns + 6 * FIRST_LOG_NS;
  }
  if (ends) time->left_ms = left_ns > 0 ? left_ns / MILLISECOND : 0;
  return 0;
}

int core_lock_within(core_mutex *mutex, core_time *time)
{
  bool taken = PyThread_acquire_lock(mutex->lock, NOWAIT_LOCK) != 0;
  if (!taken && (check_other(mutex) < 0 || wait_for_other(mutex, time) < 0)) return -1;
  mutex->owner = PyThread_get_thread_ident();
  return 0;
}

int core_lock(core_mutex *mutex)
{
  return core_lock_within(mutex, NULL);
}

void core_unlock(core_mutex *mutex)
{
  mutex->owner = 0;
  PyThread_release_lock(mutex->lock);
}
