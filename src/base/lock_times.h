/* How long tables' locks are held, for the benchmark's own build (RV_MEASURE_LOCKS); no other build includes this.
 *
 * Each hold's processor time on its thread goes into a histogram in the file that RV_MEASURE_LOCKS_FILE names, which the benchmark maps,
 * reads and zeroes while the program runs: 64 rows of 16 counters, where nanoseconds v below 16 count in counter v, and others with
 * e = floor(log2 v) in counter 16 (e - 3) + (v >> (e - 4)) mod 16, that is within a sixteenth.
 *
 * A thread's clock also counts what interrupts it: the timer, the network's interrupts, being put aside for another thread, and on a virtual
 * machine whatever its host does meanwhile. So after each hold, without the lock, its thread computes for as long in registers alone, and what
 * the clock says of that goes into a second histogram behind the first: what of the holds' long ones is there too, is not the table's. */
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

enum {
  RV_LOCK_TIMES = 64 * 16, /* counters of one histogram */
  RV_LOCK_HISTOGRAMS = 2,  /* holds; spans of arithmetic */
  RV_LOCK_SPAN_MOST =
      20000 /* nanoseconds; a longer hold may itself have been interrupted: the one before it says how long to compute */
};

static _Atomic uint64_t *rv_lock_times; /* NULL: nobody asked */
static double rv_lock_step_ns;          /* one step of arithmetic */
static int64_t rv_lock_clock_ns;        /* reading the clock, as much of it as is in each figure */
static pthread_once_t rv_lock_times_once = PTHREAD_ONCE_INIT;
static _Thread_local int64_t rv_lock_times_begin; /* of the table's lock that this thread holds: it holds one at most */
static _Thread_local int64_t rv_lock_times_span;  /* nanoseconds of the last hold that was not long */

static int64_t rv_lock_times_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* In registers alone: it waits for no memory and for nobody. */
static void rv_lock_times_spin(int64_t steps)
{
  uint64_t x = (uint64_t)steps;
  for (int64_t i = 0; i < steps; i++) {
    x = x * UINT64_C(6364136223846793005) + 1;
    __asm__ volatile("" : "+r"(x));
  }
}

static int64_t rv_lock_times_shortest(int64_t steps)
{
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < 200; i++) {
    int64_t begin = rv_lock_times_now();
    rv_lock_times_spin(steps);
    int64_t took = rv_lock_times_now() - begin;
    if (took < shortest) shortest = took;
  }
  return shortest;
}

static void rv_lock_times_open(void)
{
  const char *path = getenv("RV_MEASURE_LOCKS_FILE");
  int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  size_t size = RV_LOCK_HISTOGRAMS * RV_LOCK_TIMES * sizeof *rv_lock_times;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return;
  rv_lock_clock_ns = rv_lock_times_shortest(0);
  rv_lock_step_ns = (double)(rv_lock_times_shortest(10000) - rv_lock_clock_ns) / 10000;
  rv_lock_times = memory;
}

static void rv_lock_times_count(size_t histogram, int64_t took)
{
  uint64_t v = took < 0 ? 0 : (uint64_t)took;
  unsigned e = v < 16 ? 3 : 63 - (unsigned)__builtin_clzll(v);
  size_t place = v < 16 ? (size_t)v : 16 * (size_t)(e - 3) + ((v >> (e - 4)) & 15);
  atomic_fetch_add_explicit(&rv_lock_times[histogram * RV_LOCK_TIMES + place], 1, memory_order_relaxed);
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
  rv_lock_times_count(0, took);
  if (took <= RV_LOCK_SPAN_MOST) rv_lock_times_span = took;
}

/* Now that the lock is free. */
static void rv_lock_times_after(const rv_mutex *mutex)
{
  if (mutex->rank != RV_RANK_TABLE || rv_lock_times == NULL) return;
  int64_t steps = (int64_t)((double)(rv_lock_times_span - rv_lock_clock_ns) / rv_lock_step_ns);
  int64_t begin = rv_lock_times_now();
  rv_lock_times_spin(steps);
  rv_lock_times_count(1, rv_lock_times_now() - begin);
}

#endif
