/* How long tables' locks are held, for the benchmark's own build (RV_MEASURE_LOCKS); no other build includes this.
 *
 * Each hold's processor time on its thread goes into a histogram in the file that RV_MEASURE_LOCKS_FILE names, which the benchmark maps,
 * reads and zeroes while the program runs: 64 rows of 16 counters, where nanoseconds v below 16 count in counter v, and others with
 * e = floor(log2 v) in counter 16 (e - 3) + (v >> (e - 4)) mod 16, that is within a sixteenth. */
#ifndef RV_BASE_LOCK_TIMES_H
#define RV_BASE_LOCK_TIMES_H

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"

enum { RV_LOCK_TIMES = 64 * 16 };

static _Atomic uint64_t *rv_lock_times; /* NULL: nobody asked */
static pthread_once_t rv_lock_times_once = PTHREAD_ONCE_INIT;
static _Thread_local int64_t rv_lock_times_begin; /* of the table's lock that this thread holds: it holds one at most */

static void rv_lock_times_open(void)
{
  const char *path = getenv("RV_MEASURE_LOCKS_FILE");
  int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  size_t size = RV_LOCK_TIMES * sizeof *rv_lock_times;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory != MAP_FAILED) rv_lock_times = memory;
}

static int64_t rv_lock_times_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void rv_lock_times_taken(const rv_mutex *mutex)
{
  if (mutex->rank != RV_RANK_TABLE) return;
  pthread_once(&rv_lock_times_once, rv_lock_times_open);
  if (rv_lock_times != NULL) rv_lock_times_begin = rv_lock_times_now();
}

static void rv_lock_times_given(const rv_mutex *mutex)
{
  if (mutex->rank != RV_RANK_TABLE || rv_lock_times == NULL) return;
  int64_t took = rv_lock_times_now() - rv_lock_times_begin;
  uint64_t v = took < 0 ? 0 : (uint64_t)took;
  unsigned e = v < 16 ? 3 : 63 - (unsigned)__builtin_clzll(v);
  size_t place = v < 16 ? (size_t)v : 16 * (size_t)(e - 3) + ((v >> (e - 4)) & 15);
  atomic_fetch_add_explicit(&rv_lock_times[place], 1, memory_order_relaxed);
}

#endif
