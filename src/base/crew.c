#include "base/crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/linux.h"
#include "base/lock.h"
#include "base/maker.h"
#include "base/thread.h"

#ifdef RV_LINUX
#include <sched.h>
#endif

enum { DEFAULT_MAX = 4, MOST = 64, MOST_PASSED = 63, COMPARED_EACH = 64, SLOW_ENOUGH = 3, MUCH_SLOWER = 2 };

/* To be woken takes 3 to 60 us. So a helper stays awake for the next loop, about twice as long as loops have been apart, where that is
 * not longer than being woken; and a caller for his last helper. Whoever else wants the core gets it meanwhile, but for a moment in
 * which most of what is waited for happens. */
enum { APART_NS = 50 * 1000, AWAKE_NS = 100 * 1000, MOMENT_NS = 10 * 1000, LOOKS = 16 };

/* A loop under way; on its caller's stack. */
typedef struct rv_crew_loop {
  void (*step)(void *context, size_t i);
  void *context;
  atomic_uint_fast64_t left; /* the first step that nobody has taken, and 32 bits higher the one behind the last */
} rv_crew_loop;

struct rv_crew {
  rv_maker maker;
  uint32_t max_threads;
  _Atomic(rv_crew_loop *) loop; /* helpers may join */
  atomic_uint_fast64_t serial;  /* of the loop: a helper joins each at most once; changes under the mutex */
  atomic_uint inside;           /* helpers that may still look at the loop */
  atomic_bool waits;            /* the caller sleeps until none is */
  atomic_bool stop;             /* set under the mutex */
  rv_mutex mutex;               /* RV_RANK_WAIT: what follows */
  rv_cond wake;                 /* for helpers: a loop, or the end */
  rv_cond left;                 /* for the caller: the last helper is out of the loop */
  uint32_t asleep;              /* helpers */
  bool busy, started;
  uint32_t pass, passes;      /* loops still to go without help; how many those that were slow with it have cost at last */
  uint32_t slow;              /* loops in a row with help: the first of them has woken the helpers, and says little */
  uint32_t helped;            /* loops with help since the last without */
  double alone;               /* ns a unit of work without help, smoothed; 0: not known */
  int64_t ended_ns;           /* the last loop */
  atomic_int_fast64_t gap_ns; /* from a loop's end to the next one's begin, smoothed */
  uint32_t num_threads;
  pthread_t threads[];
};

static uint32_t default_threads(void)
{
#ifdef RV_LINUX
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
#else
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
#endif
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
  rv_maker_init(&crew->maker);
  crew->max_threads = max_threads;
  atomic_init(&crew->loop, NULL);
  atomic_init(&crew->gap_ns, APART_NS);
  rv_mutex_init(&crew->mutex, RV_RANK_WAIT, "crew");
  rv_cond_init(&crew->wake);
  rv_cond_init(&crew->left);
  *out = crew;
  return RV_OK;
}

void rv_crew_free(rv_crew *crew)
{
  if (crew == NULL || !rv_maker_is_this_process(&crew->maker)) return;
  rv_mutex_lock(&crew->mutex);
  atomic_store(&crew->stop, true);
  rv_cond_broadcast(&crew->wake);
  rv_mutex_unlock(&crew->mutex);
  for (uint32_t i = 0; i < crew->num_threads; i++) pthread_join(crew->threads[i], NULL);
  rv_cond_fini(&crew->wake);
  rv_cond_fini(&crew->left);
  rv_mutex_fini(&crew->mutex);
  rv_maker_fini(&crew->maker);
  free(crew);
}

uint32_t rv_crew_max_threads(const rv_crew *crew)
{
  return crew->max_threads;
}

/* The caller takes steps from the front and helpers from the back, so that loop after loop the same core writes the same memory: what
 * lies in the other's caches takes longer to change. False: all are taken. */
static bool take(rv_crew_loop *loop, bool back, size_t *step)
{
  uint64_t left = atomic_load_explicit(&loop->left, memory_order_relaxed), first, behind;
  do {
    first = left & UINT32_MAX;
    behind = left >> 32;
    if (first == behind) return false;
    if (back)
      behind--;
    else
      first++;
  } while (!atomic_compare_exchange_weak_explicit(&loop->left, &left, behind << 32 | first, memory_order_relaxed,
                                                  memory_order_relaxed));
  *step = (size_t)(back ? behind : first - 1);
  return true;
}

static void work(rv_crew_loop *loop, bool back)
{
  size_t step;
  while (take(loop, back, &step)) loop->step(loop->context, step);
}

static int64_t now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_a_moment(void)
{
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause();
#elif defined __aarch64__
  __asm__ volatile("yield");
#endif
}

static bool is_called(rv_crew *crew, uint64_t seen)
{
  return atomic_load(&crew->serial) != seen || atomic_load(&crew->stop);
}

static bool is_left(rv_crew *crew, uint64_t unused)
{
  (void)unused;
  return atomic_load(&crew->inside) == 0;
}

/* Until that is so; false: it has taken too long. */
static bool stay_awake(rv_crew *crew, bool (*is_so)(rv_crew *crew, uint64_t what), uint64_t what, int64_t most_ns)
{
  const int64_t begun = now_ns();
  for (int64_t past = 0; past < most_ns; past = now_ns() - begun) {
    for (int i = 0; i < LOOKS; i++) {
      if (is_so(crew, what)) return true;
      pause_a_moment();
    }
    if (past > MOMENT_NS) sched_yield();
  }
  return is_so(crew, what);
}

/* Waits for a loop that was not seen yet; false: for the end. */
static bool next_loop(rv_crew *crew, uint64_t *seen)
{
  const int64_t apart = atomic_load_explicit(&crew->gap_ns, memory_order_relaxed);
  const bool soon = *seen > 0 && apart < APART_NS;
  if (!soon || !stay_awake(crew, is_called, *seen, 2 * apart + MOMENT_NS)) {
    rv_mutex_lock(&crew->mutex);
    crew->asleep++;
    while (!is_called(crew, *seen)) rv_cond_wait(&crew->wake, &crew->mutex);
    crew->asleep--;
    rv_mutex_unlock(&crew->mutex);
  }
  *seen = atomic_load(&crew->serial);
  return !atomic_load(&crew->stop);
}

/* The last one out tells the caller, if he sleeps: he looks at `inside` after he has set `waits`, we the other way round. */
static void leave(rv_crew *crew)
{
  if (atomic_fetch_sub(&crew->inside, 1) > 1 || !atomic_load(&crew->waits)) return;
  rv_mutex_lock(&crew->mutex);
  rv_cond_signal(&crew->left);
  rv_mutex_unlock(&crew->mutex);
}

/* A helper is inside before it looks for the loop, and the caller takes the loop away before he looks who is inside. */
static void *help(void *context)
{
  rv_crew *crew = context;
  uint64_t seen = 0;
  while (next_loop(crew, &seen)) {
    atomic_fetch_add(&crew->inside, 1);
    rv_crew_loop *loop = atomic_load(&crew->loop);
    if (loop != NULL) work(loop, true);
    leave(crew);
  }
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

static void note_gap(rv_crew *crew, int64_t now)
{
  const int64_t since = now - crew->ended_ns; /* below 0: another loop has ended meanwhile */
  const int64_t gap = since < 0 ? 0 : since > 2 * AWAKE_NS ? 2 * AWAKE_NS : since;
  const int64_t smoothed = atomic_load_explicit(&crew->gap_ns, memory_order_relaxed);
  if (crew->ended_ns > 0) atomic_store_explicit(&crew->gap_ns, smoothed + (gap - smoothed) / 8, memory_order_relaxed);
}

/* False: the crew is at work for somebody else, or this loop goes without it. */
static bool begin(rv_crew *crew, rv_crew_loop *loop, size_t n, int64_t now)
{
  rv_mutex_lock(&crew->mutex);
  note_gap(crew, now);
  bool ours = !crew->busy && crew->pass == 0;
  if (ours && crew->helped == (crew->alone > 0 ? COMPARED_EACH : 1)) {
    crew->helped = 0;
    ours = false;
  }
  if (!crew->busy && crew->pass > 0) crew->pass--;
  if (ours) {
    if (!crew->started) start(crew);
    crew->busy = true;
    atomic_store(&crew->loop, loop);
    atomic_fetch_add(&crew->serial, 1);
    if (crew->asleep > 0) {
      if (n == 2)
        rv_cond_signal(&crew->wake);
      else
        rv_cond_broadcast(&crew->wake);
    }
  }
  rv_mutex_unlock(&crew->mutex);
  return ours;
}

static void wait_for_helpers(rv_crew *crew)
{
  if (stay_awake(crew, is_left, 0, AWAKE_NS)) return;
  rv_mutex_lock(&crew->mutex);
  atomic_store(&crew->waits, true);
  while (!is_left(crew, 0)) rv_cond_wait(&crew->left, &crew->mutex);
  atomic_store(&crew->waits, false);
  rv_mutex_unlock(&crew->mutex);
}

/* How the loop went, in ns a unit of work. */
static void judge(rv_crew *crew, double rate)
{
  if (crew->alone == 0 || rate <= crew->alone) {
    crew->slow = crew->passes = 0;
    return;
  }
  crew->slow += rate > MUCH_SLOWER * crew->alone ? SLOW_ENOUGH : 1;
  if (crew->slow < SLOW_ENOUGH) return;
  crew->slow = 0;
  crew->passes = crew->passes >= MOST_PASSED ? MOST_PASSED : 2 * crew->passes + 1;
  crew->pass = crew->passes;
}

static void end(rv_crew *crew, size_t amount, int64_t began_ns)
{
  atomic_store(&crew->loop, NULL);
  wait_for_helpers(crew);
  rv_mutex_lock(&crew->mutex);
  crew->ended_ns = now_ns();
  judge(crew, (double)(crew->ended_ns - began_ns) / (double)amount);
  crew->helped++;
  crew->busy = false;
  rv_mutex_unlock(&crew->mutex);
}

static void learn(rv_crew *crew, size_t amount, int64_t began_ns)
{
  rv_mutex_lock(&crew->mutex);
  crew->ended_ns = now_ns();
  double rate = (double)(crew->ended_ns - began_ns) / (double)amount;
  /* quickly down and slowly up: what was measured while others had this core too says little */
  crew->alone = crew->alone == 0 || rate < crew->alone ? rate : crew->alone + (rate - crew->alone) / 16;
  rv_mutex_unlock(&crew->mutex);
}

void rv_crew_run(rv_crew *crew, size_t n, size_t amount, void (*step)(void *context, size_t i), void *context)
{
  rv_crew_loop loop = {.step = step, .context = context};
  atomic_init(&loop.left, (uint64_t)n << 32);
  if (crew == NULL || n < 2 || amount == 0 || crew->max_threads < 2 || !rv_maker_is_this_process(&crew->maker)) {
    work(&loop, false);
    return;
  }
  int64_t began_ns = now_ns();
  bool helped = begin(crew, &loop, n, began_ns);
  work(&loop, false);
  if (helped)
    end(crew, amount, began_ns);
  else
    learn(crew, amount, began_ns);
}
