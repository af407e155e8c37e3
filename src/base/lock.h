/* A mutex that knows its place: locks are taken in the order of their ranks, which docs/locking.md lists. Debug builds
 * (RV_CHECK_LOCKS) abort with both names when the order is broken. */
#ifndef RV_BASE_LOCK_H
#define RV_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A lock may be taken only while every lock held has a lower rank. */
typedef enum rv_lock_rank {
  RV_RANK_TURN = 1,     /* whoever does a loop's work */
  RV_RANK_STATUS = 5,   /* a writer's stream, while somebody looks at it */
  RV_RANK_CLIENT = 10,  /* client, writer, sampler: state shared with the I/O thread */
  RV_RANK_IO = 15,      /* threads that clients share */
  RV_RANK_SERVER = 20,  /* server: connections, writer sessions */
  RV_RANK_TABLE = 30,   /* a table */
  RV_RANK_CHUNK = 40,   /* decode cache, layouts */
  RV_RANK_LANDING = 44, /* blocks in which the rows of other processes land */
  RV_RANK_SPARES = 45,  /* buffers kept for their next use */
  RV_RANK_LOOKUP = 46,  /* whether somebody still waits for a host's addresses */
  RV_RANK_ARENA = 47,   /* memory that other processes may read */
  RV_RANK_LOOP = 50,    /* a loop's inbox */
  RV_RANK_WAIT = 60,    /* a blocking caller's condition */
  RV_RANK_LOG = 70      /* lines that a log has not given away yet */
} rv_lock_rank;

typedef struct rv_mutex {
  pthread_mutex_t mutex;
  const char *name;
  rv_lock_rank rank;
} rv_mutex;

void rv_mutex_init(rv_mutex *mutex, rv_lock_rank rank, const char *name);
void rv_mutex_fini(rv_mutex *mutex);
void rv_mutex_lock(rv_mutex *mutex);
bool rv_mutex_trylock(rv_mutex *mutex);
/* In builds that check locks: stops the process where this thread holds one. */
void rv_mutex_check_none_held(void);
void rv_mutex_unlock(rv_mutex *mutex);

/* A condition on the monotonic clock. */
typedef struct rv_cond {
  pthread_cond_t cond;
} rv_cond;

void rv_cond_init(rv_cond *cond);
void rv_cond_fini(rv_cond *cond);
void rv_cond_signal(rv_cond *cond);
void rv_cond_broadcast(rv_cond *cond);
void rv_cond_wait(rv_cond *cond, rv_mutex *mutex);
/* Waits at most `ns`; false when that has passed. */
bool rv_cond_wait_for(rv_cond *cond, rv_mutex *mutex, int64_t ns);

#endif
