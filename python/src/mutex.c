#include "core.h"

int core_mutex_init(core_mutex *mutex)
{
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

int core_lock(core_mutex *mutex)
{
  bool taken = PyThread_acquire_lock(mutex->lock, NOWAIT_LOCK) != 0;
  if (!taken && core_locked_here(mutex)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "this thread is inside another call of this object, which a signal handler or a finaliser "
                    "interrupted; it must end first (an exception from the handler ends it)");
    return -1;
  }
  while (!taken) {
    PyLockStatus status;
    Py_BEGIN_ALLOW_THREADS
    status = PyThread_acquire_lock_timed(mutex->lock, 50000, 0);
    Py_END_ALLOW_THREADS
    taken = status == PY_LOCK_ACQUIRED;
    if (!taken && PyErr_CheckSignals() != 0) return -1;
  }
  mutex->owner = PyThread_get_thread_ident();
  return 0;
}

void core_unlock(core_mutex *mutex)
{
  mutex->owner = 0;
  PyThread_release_lock(mutex->lock);
}
