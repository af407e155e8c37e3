/* The thread of a client's loop, kept from its work for as long as a test says. Header only, for tests. */
#ifndef RV_TEST_STUCK_LOOP_H
#define RV_TEST_STUCK_LOOP_H

#include <pthread.h>
#include <stdbool.h>

#include "client/client.h"

typedef struct stuck_loop {
  rv_task task;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool stuck, free, gone;
} stuck_loop;

static inline void stuck_loop_set(stuck_loop *loop, bool *what)
{
  pthread_mutex_lock(&loop->mutex);
  *what = true;
  pthread_cond_broadcast(&loop->changed);
  pthread_mutex_unlock(&loop->mutex);
}

static inline void stuck_loop_await(stuck_loop *loop, const bool *what)
{
  pthread_mutex_lock(&loop->mutex);
  while (!*what) pthread_cond_wait(&loop->changed, &loop->mutex);
  pthread_mutex_unlock(&loop->mutex);
}

static inline void stuck_loop_run(rv_task *task)
{
  stuck_loop *loop = RV_CONTAINER(task, stuck_loop, task);
  stuck_loop_set(loop, &loop->stuck);
  stuck_loop_await(loop, &loop->free);
  stuck_loop_set(loop, &loop->gone);
}

/* From here on it does nothing. */
static inline void stuck_loop_begin(stuck_loop *loop, rv_client *client)
{
  *loop = (stuck_loop){.task = {.run = stuck_loop_run}};
  pthread_mutex_init(&loop->mutex, NULL);
  pthread_cond_init(&loop->changed, NULL);
  OK(rv_client_connect(client, error));
  rv_loop_post(client->loop, &loop->task);
  stuck_loop_await(loop, &loop->stuck);
}

static inline void stuck_loop_end(stuck_loop *loop)
{
  stuck_loop_set(loop, &loop->free);
  stuck_loop_await(loop, &loop->gone);
  pthread_mutex_lock(&loop->mutex); /* its thread has left it */
  pthread_mutex_unlock(&loop->mutex);
  pthread_cond_destroy(&loop->changed);
  pthread_mutex_destroy(&loop->mutex);
}

#endif
