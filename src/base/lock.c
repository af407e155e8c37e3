#include "base/lock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef RV_MEASURE_LOCKS
#include "base/lock_times.h"
#else
static void rv_lock_times_taken(const rv_mutex *mutex)
{
  (void)mutex;
}
static void rv_lock_times_given(const rv_mutex *mutex)
{
  (void)mutex;
}
static void rv_lock_times_after(const rv_mutex *mutex)
{
  (void)mutex;
}
#endif

#ifdef RV_CHECK_LOCKS

enum { HELD_MAX = 16 };
static _Thread_local const rv_mutex *held[HELD_MAX];
static _Thread_local int num_held;

static void check_order(const rv_mutex *mutex)
{
  for (int i = 0; i < num_held; i++)
    if (held[i]->rank >= mutex->rank) {
      fprintf(stderr, "lock order broken: \"%s\" (rank %d) taken while \"%s\" (rank %d) is held; see docs/locking.md\n",
              mutex->name, (int)mutex->rank, held[i]->name, (int)held[i]->rank);
      abort();
    }
}

static void note_taken(const rv_mutex *mutex)
{
  if (num_held == HELD_MAX) abort();
  held[num_held++] = mutex;
}

static void note_given(const rv_mutex *mutex)
{
  int i = num_held - 1;
  while (i >= 0 && held[i] != mutex) i--;
  if (i < 0) {
    fprintf(stderr, "lock \"%s\" released by a thread that does not hold it\n", mutex->name);
    abort();
  }
  for (; i + 1 < num_held; i++) held[i] = held[i + 1];
  num_held--;
}

void rv_mutex_check_none_held(void)
{
  if (num_held == 0) return;
  fprintf(stderr, "\"%s\" is held where no lock may be\n", held[num_held - 1]->name);
  abort();
}

#else
static void check_order(const rv_mutex *mutex)
{
  (void)mutex;
}
static void note_taken(const rv_mutex *mutex)
{
  (void)mutex;
}
static void note_given(const rv_mutex *mutex)
{
  (void)mutex;
}
void rv_mutex_check_none_held(void) {}
#endif

void rv_mutex_init(rv_mutex *mutex, rv_lock_rank rank, const char *name)
{
  pthread_mutex_init(&mutex->mutex, NULL);
  mutex->name = name;
  mutex->rank = rank;
}

void rv_mutex_fini(rv_mutex *mutex)
{
  pthread_mutex_destroy(&mutex->mutex);
}

void rv_mutex_lock(rv_mutex *mutex)
{
  check_order(mutex);
  pthread_mutex_lock(&mutex->mutex);
  note_taken(mutex);
  rv_lock_times_taken(mutex);
}

bool rv_mutex_trylock(rv_mutex *mutex)
{
  if (pthread_mutex_trylock(&mutex->mutex) != 0) return false;
  note_taken(mutex);
  rv_lock_times_taken(mutex);
  return true;
}

void rv_mutex_unlock(rv_mutex *mutex)
{
  rv_lock_times_given(mutex);
  note_given(mutex);
  pthread_mutex_unlock(&mutex->mutex);
  rv_lock_times_after(mutex);
}

void rv_cond_init(rv_cond *cond)
{
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
#ifndef __APPLE__
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
  pthread_cond_init(&cond->cond, &attributes);
  pthread_condattr_destroy(&attributes);
}

void rv_cond_fini(rv_cond *cond)
{
  pthread_cond_destroy(&cond->cond);
}
void rv_cond_signal(rv_cond *cond)
{
  pthread_cond_signal(&cond->cond);
}
void rv_cond_broadcast(rv_cond *cond)
{
  pthread_cond_broadcast(&cond->cond);
}

void rv_cond_wait(rv_cond *cond, rv_mutex *mutex)
{
  rv_lock_times_given(mutex);
  note_given(mutex);
  pthread_cond_wait(&cond->cond, &mutex->mutex);
  note_taken(mutex);
  rv_lock_times_taken(mutex);
}

bool rv_cond_wait_for(rv_cond *cond, rv_mutex *mutex, int64_t ns)
{
  struct timespec at;
#ifdef __APPLE__
  at = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  rv_lock_times_given(mutex);
  note_given(mutex);
  int rc = pthread_cond_timedwait_relative_np(&cond->cond, &mutex->mutex, &at);
#else
  clock_gettime(CLOCK_MONOTONIC, &at);
  int64_t nsec = at.tv_nsec + ns % 1000000000;
  at.tv_sec += ns / 1000000000 + nsec / 1000000000;
  at.tv_nsec = nsec % 1000000000;
  rv_lock_times_given(mutex);
  note_given(mutex);
  int rc = pthread_cond_timedwait(&cond->cond, &mutex->mutex, &at);
#endif
  note_taken(mutex);
  rv_lock_times_taken(mutex);
  return rc != ETIMEDOUT;
}
