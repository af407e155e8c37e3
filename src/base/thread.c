#include "base/thread.h"

#include <signal.h>
#include <string.h>

#include "base/linux.h"

static void set_name(pthread_t thread, const char *name)
{
#ifdef RV_LINUX
  char shortened[16] = "";
  strncpy(shortened, name, sizeof shortened - 1);
  pthread_setname_np(thread, shortened);
#else
  (void)thread;
  (void)name;
#endif
}

int rv_thread_start(pthread_t *out, const char *name, void *(*run)(void *context), void *context)
{
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&thread, NULL, run, context);
  if (failed == 0) {
    *out = thread;
    set_name(thread, name);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}
