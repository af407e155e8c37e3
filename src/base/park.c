#include "base/park.h"

#include <stddef.h>
#include <time.h>

#include "base/linux.h"

#ifdef RV_LINUX
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static struct timespec timespec_of(int64_t ns)
{
  return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

#ifdef RV_LINUX

void rv_park(const atomic_int *word, int expected, int64_t ns)
{
  if (ns <= 0) return;
  struct timespec most = timespec_of(ns);
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, ns == INT64_MAX ? NULL : &most, NULL, 0);
}

void rv_unpark(const atomic_int *word)
{
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#else

void rv_park(const atomic_int *word, int expected, int64_t ns)
{
  if (ns <= 0 || atomic_load_explicit(word, memory_order_acquire) != expected) return;
  struct timespec most = timespec_of(ns < 1000000 ? ns : 1000000);
  nanosleep(&most, NULL);
}

void rv_unpark(const atomic_int *word)
{
  (void)word;
}

#endif
