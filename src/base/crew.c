#include "base/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"

enum { DEFAULT_MAX = 4, MOST = 64, MOST_PASSED = 63, COMPARED_EACH = 64 };

/* A loop under way; on its caller's stack. */
typedef struct rv_crew_loop {
  void (*step)(void *context, size_t i);
  void *context;
  size_t n;
  atomic_size_t next;
} rv_crew_loop;

struct rv_crew {
  pid_t pid;
  uint32_t max_threads;
  rv_mutex mutex;     /* RV_RANK_WAIT: what follows */
  rv_cond wake;       /* for helpers: a loop, or the end */
  rv_cond left;       /* for the caller: the last helper is out of the loop */
  rv_crew_loop *loop; /* helpers may join */
  uint64_t serial;    /* of the loop: a helper joins each at most once */
  uint32_t inside;    /* helpers that may still look at the loop */
  bool busy, stop, started;
  uint32_t pass, passes; /* loops still to go without help; how many the last that was slow with it has cost */
  uint32_t helped;       /* loops with help since the last without */
  double alone;          /* ns a unit of work without help, smoothed; 0: not known */
  uint32_t num_threads;
  pthread_t threads[];
};

static uint32_t default_threads(void)
{
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return cores < 1 ? 1 : cores > DEFAULT_MAX ? DEFAULT_MAX : (uint32_t)cores;
}

rv_code rv_crew_new(uint32_t max_threads, rv_crew **out, rv_error *err)
{
  if (max_threads > MOST)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%u threads to gather with; at most %d are possible (0: as many as cores, up to %d)",
                   (unsigned)max_threads, MOST, DEFAULT_MAX);
  if (max_threads == 0) max_threads = default_threads();
  size_t bytes = sizeof(rv_crew) + (max_threads - 1) * sizeof(pthread_t);
  rv_crew *crew = calloc(1, bytes);
  if (crew == NULL) return rv_fail_memory(err, bytes);
  crew->pid = getpid();
  crew->max_threads = max_threads;
  rv_mutex_init(&crew->mutex, RV_RANK_WAIT, "crew");
  rv_cond_init(&crew->wake);
  rv_cond_init(&crew->left);
  *out = crew;
  return RV_OK;
}

void rv_crew_free(rv_crew *crew)
{
  if (crew == NULL || crew->pid != getpid()) return;
  rv_mutex_lock(&crew->mutex);
  crew->stop = true;
  rv_cond_broadcast(&crew->wake);
  rv_mutex_unlock(&crew->mutex);
  for (uint32_t i = 0; i < crew->num_threads; i++) pthread_join(crew->threads[i], NULL);
  rv_cond_fini(&crew->wake);
  rv_cond_fini(&crew->left);
  rv_mutex_fini(&crew->mutex);
  free(crew);
}

uint32_t rv_crew_max_threads(const rv_crew *crew)
{
  return crew->max_threads;
}

static void work(rv_crew_loop *loop)
{
  size_t i;
  while ((i = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed)) < loop->n) loop->step(loop->context, i);
}

static void *help(void *context)
{
  rv_crew *crew = context;
  uint64_t seen = 0;
  rv_mutex_lock(&crew->mutex);
  while (!crew->stop) {
    if (crew->loop == NULL || crew->serial == seen) {
      rv_cond_wait(&crew->wake, &crew->mutex);
      continue;
    }
    rv_crew_loop *loop = crew->loop;
    seen = crew->serial;
    crew->inside++;
    rv_mutex_unlock(&crew->mutex);
    work(loop);
    rv_mutex_lock(&crew->mutex);
    if (--crew->inside == 0) rv_cond_signal(&crew->left);
  }
  rv_mutex_unlock(&crew->mutex);
  return NULL;
}

/* As many as can be had; with fewer, or none, loops take longer. */
static void start(rv_crew *crew)
{
  crew->started = true;
  while (crew->num_threads + 1 < crew->max_threads &&
         rv_thread_start(&crew->threads[crew->num_threads], "rv-gather", help, crew) == 0)
    crew->num_threads++;
}

/* False: the crew is at work for somebody else. */
static bool begin(rv_crew *crew, rv_crew_loop *loop)
{
  rv_mutex_lock(&crew->mutex);
  bool ours = !crew->busy && crew->pass == 0;
  if (ours && crew->helped == (crew->alone > 0 ? COMPARED_EACH : 1)) {
    crew->helped = 0;
    ours = false;
  }
  if (!crew->busy && crew->pass > 0) crew->pass--;
  if (ours) {
    if (!crew->started) start(crew);
    crew->busy = true;
    crew->loop = loop;
    crew->serial++;
    if (loop->n == 2)
      rv_cond_signal(&crew->wake);
    else
      rv_cond_broadcast(&crew->wake);
  }
  rv_mutex_unlock(&crew->mutex);
  return ours;
}

static int64_t now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void end(rv_crew *crew, size_t amount, int64_t began_ns)
{
  rv_mutex_lock(&crew->mutex);
  crew->loop = NULL;
  while (crew->inside > 0) rv_cond_wait(&crew->left, &crew->mutex);
  double rate = (double)(now_ns() - began_ns) / (double)amount;
  bool slow = crew->alone > 0 && rate > crew->alone;
  crew->passes = !slow ? 0 : crew->passes >= MOST_PASSED ? MOST_PASSED : 2 * crew->passes + 1;
  crew->pass = crew->passes;
  crew->helped++;
  crew->busy = false;
  rv_mutex_unlock(&crew->mutex);
}

static void learn(rv_crew *crew, size_t amount, int64_t began_ns)
{
  double rate = (double)(now_ns() - began_ns) / (double)amount;
  rv_mutex_lock(&crew->mutex);
  /* quickly down and slowly up: what was measured while others had this core too says little */
  crew->alone = crew->alone == 0 || rate < crew->alone ? rate : crew->alone + (rate - crew->alone) / 16;
  rv_mutex_unlock(&crew->mutex);
}

void rv_crew_run(rv_crew *crew, size_t n, size_t amount, void (*step)(void *context, size_t i), void *context)
{
  rv_crew_loop loop = {.step = step, .context = context, .n = n};
  atomic_init(&loop.next, 0);
  if (crew == NULL || n < 2 || amount == 0 || crew->max_threads < 2 || crew->pid != getpid()) {
    work(&loop);
    return;
  }
  int64_t began_ns = now_ns();
  bool helped = begin(crew, &loop);
  work(&loop);
  if (helped)
    end(crew, amount, began_ns);
  else
    learn(crew, amount, began_ns);
}
