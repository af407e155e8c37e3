/* Actors that take turns by a seed: threads of a program, run one at a time on stacks of their own, so that a schedule can be had again.
 *
 * The linker puts the functions below in the place of the real ones (CMakeLists.txt): before a lock is taken, after it was given back, where a
 * thread would sleep or yield, the next actor is chosen by chance. Nobody is ever interrupted while it holds a lock, which nobody else
 * could tell. The clock stands still until nobody can go on, or, now and then, leaps to the next moment that somebody waits for.
 * Included by one file of a test's program. */
#ifndef RV_BASE_ACTORS_TESTING_H
#define RV_BASE_ACTORS_TESTING_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "base/lock.h"
#include "base/random.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { ACTORS_MAX = 8, ACTOR_STACK = 1 << 18, ACTOR_NOTES = 64, LEAP_ONE_IN = 24 };

typedef struct actor {
  ucontext_t context;
  void (*run)(void *argument);
  void *argument;
  void *stack;
  const atomic_int *parked; /* where it sleeps; NULL: it can go on */
  int64_t wake_ns;          /* when it does so by itself; INT64_MAX: never */
  bool over;
  bool outside; /* of all operations: between two of its own */
} actor;

typedef struct actor_note {
  int actor;
  const char *what;
} actor_note;

static struct {
  actor actors[ACTORS_MAX];
  int count;
  actor *current; /* NULL: the test itself */
  ucontext_t test;
  rv_random random;
  uint64_t seed;
  uint32_t keep; /* of 8: how often an actor goes on although others could */
  int64_t clock_ns;
  int held;                           /* locks, by the one actor that may hold some */
  void (*look)(bool calm);            /* at each step; calm: nobody is inside an operation but those who sleep there */
  void (*unlocking)(rv_mutex *mutex); /* a lock that is about to be given back */
  int64_t clock_end_ns;               /* nobody may wait so long */
  uint64_t steps, hash;               /* of all choices */
  actor_note notes[ACTOR_NOTES];
  const void *test_stack; /* for the sanitizer */
  size_t test_stack_size;
} stage;

void __real_rv_mutex_lock(rv_mutex *mutex);
bool __real_rv_mutex_trylock(rv_mutex *mutex);
void __real_rv_mutex_unlock(rv_mutex *mutex);
void __real_rv_park(const atomic_int *word, int expected, int64_t ns);
void __real_rv_unpark(const atomic_int *word);
int __real_sched_yield(void);
void __wrap_rv_mutex_lock(rv_mutex *mutex);
bool __wrap_rv_mutex_trylock(rv_mutex *mutex);
void __wrap_rv_mutex_unlock(rv_mutex *mutex);
void __wrap_rv_park(const atomic_int *word, int expected, int64_t ns);
void __wrap_rv_unpark(const atomic_int *word);
int __wrap_sched_yield(void);

/* Ends the program: an actor's stack is no place to return from to the test. */
static _Noreturn void stage_fail(const char *format, ...)
{
  va_list args;
  va_start(args, format);
  fprintf(stderr, "\nRV_TEST_SEED=%llu, step %llu, actor %d, clock %lld ns: ", (unsigned long long)stage.seed,
          (unsigned long long)stage.steps, stage.current == NULL ? -1 : (int)(stage.current - stage.actors),
          (long long)stage.clock_ns);
  vfprintf(stderr, format, args);
  fprintf(stderr, "\nthe last steps (actor: what it did):");
  uint64_t first = stage.steps > ACTOR_NOTES ? stage.steps - ACTOR_NOTES : 0;
  for (uint64_t i = first; i < stage.steps; i++)
    fprintf(stderr, " %d: %s;", stage.notes[i % ACTOR_NOTES].actor, stage.notes[i % ACTOR_NOTES].what);
  fprintf(stderr, "\n");
  va_end(args);
  _Exit(1);
}

#define STAGE_EXPECT(condition, ...)                                                                                             \
  do {                                                                                                                           \
    if (!(condition)) stage_fail(__VA_ARGS__);                                                                                   \
  } while (0)

/* ---- going from one to the other ---- */

static void switch_stacks(ucontext_t *from, actor *to, bool for_good)
{
  actor *self = stage.current;
  stage.current = to;
#ifdef __SANITIZE_ADDRESS__
  void *fake = NULL;
  const void *bottom = to == NULL ? stage.test_stack : to->stack;
  __sanitizer_start_switch_fiber(for_good ? NULL : &fake, bottom, to == NULL ? stage.test_stack_size : (size_t)ACTOR_STACK);
#endif
  (void)for_good;
  swapcontext(from, to == NULL ? &stage.test : &to->context);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
  stage.current = self;
}

static void wake_by_time(int64_t *next_ns)
{
  *next_ns = INT64_MAX;
  for (int i = 0; i < stage.count; i++) {
    actor *a = &stage.actors[i];
    if (a->over || a->parked == NULL) continue;
    if (a->wake_ns <= stage.clock_ns)
      a->parked = NULL;
    else if (a->wake_ns < *next_ns)
      *next_ns = a->wake_ns;
  }
}

static bool can_go_on(const actor *a)
{
  return !a->over && a->parked == NULL;
}

static int choices(actor **out)
{
  int n = 0;
  for (int i = 0; i < stage.count; i++)
    if (can_go_on(&stage.actors[i])) out[n++] = &stage.actors[i];
  return n;
}

static bool all_over(void)
{
  for (int i = 0; i < stage.count; i++)
    if (!stage.actors[i].over) return false;
  return true;
}

/* Whose turn it is; NULL: all are over. */
static actor *choose(void)
{
  if (all_over()) return NULL;
  int64_t next_ns;
  actor *may[ACTORS_MAX];
  wake_by_time(&next_ns);
  int n = choices(may);
  if (n == 0 || (next_ns != INT64_MAX && rv_random_below(&stage.random, LEAP_ONE_IN) == 0)) {
    for (int i = 0; i < stage.count && n == 0; i++) {
      const actor *a = &stage.actors[i];
      STAGE_EXPECT(a->over || a->wake_ns != INT64_MAX, "actor %d waits for ever for what nobody does", i);
    }
    STAGE_EXPECT(next_ns < stage.clock_end_ns, "somebody waits without end");
    stage.clock_ns = next_ns;
    wake_by_time(&next_ns);
    n = choices(may);
  }
  if (n > 1 && stage.current != NULL && can_go_on(stage.current) && rv_random_below(&stage.random, 8) < stage.keep)
    return stage.current;
  return may[rv_random_below(&stage.random, (uint32_t)n)];
}

static bool is_calm(void)
{
  for (int i = 0; i < stage.count; i++) {
    const actor *a = &stage.actors[i];
    if (!a->over && a->parked == NULL && !a->outside) return false;
  }
  return true;
}

/* A step of the current actor is over, called `what`; it may be continued at any time later. */
static void stage_step(const char *what)
{
  actor *self = stage.current;
  int index = (int)(self - stage.actors);
  stage.notes[stage.steps++ % ACTOR_NOTES] = (actor_note){.actor = index, .what = what};
  if (stage.look != NULL) stage.look(is_calm());
  actor *next = choose();
  stage.hash = (stage.hash ^ (uint64_t)(next == NULL ? ACTORS_MAX : next - stage.actors)) * UINT64_C(0x100000001B3);
  if (next == self) return;
  switch_stacks(&self->context, next, self->over);
}

static void begin_actor(void)
{
#ifdef __SANITIZE_ADDRESS__
  const void *bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(NULL, &bottom, &size);
  if (stage.test_stack == NULL) { /* the first actor comes from there */
    stage.test_stack = bottom;
    stage.test_stack_size = size;
  }
#endif
  actor *self = stage.current;
  self->outside = false;
  self->run(self->argument);
  self->over = true;
  stage_step("ends");
  abort(); /* nobody goes back to it */
}

/* ---- what the test calls ---- */

static void stage_begin(uint64_t seed)
{
  rv_random_init(&stage.random, seed);
  stage.seed = seed;
  stage.keep = rv_random_below(&stage.random, 8);
  stage.count = stage.held = 0;
  stage.clock_ns = 1000000000;
  stage.clock_end_ns = INT64_C(3600) * 1000000000;
  stage.steps = 0;
  stage.hash = UINT64_C(0xCBF29CE484222325);
}

static void stage_add(void (*run)(void *argument), void *argument)
{
  actor *a = &stage.actors[stage.count++];
  if (a->stack == NULL) a->stack = malloc(ACTOR_STACK);
  STAGE_EXPECT(a->stack != NULL, "no memory for a stack");
  a->run = run;
  a->argument = argument;
  a->parked = NULL;
  a->over = false;
  a->outside = true;
  getcontext(&a->context);
  a->context.uc_stack.ss_sp = a->stack;
  a->context.uc_stack.ss_size = ACTOR_STACK;
  a->context.uc_link = NULL;
  makecontext(&a->context, begin_actor, 0);
}

/* Until all are over. */
static void stage_run(void)
{
  stage.current = NULL;
  actor *first = choose();
  if (first != NULL) switch_stacks(&stage.test, first, false);
}

static void stage_fini(void)
{
  for (int i = 0; i < ACTORS_MAX; i++) {
    free(stage.actors[i].stack);
    stage.actors[i].stack = NULL;
  }
}

/* The current actor sleeps until then, outside of any operation. */
static void stage_sleep(int64_t ns)
{
  static const atomic_int word;
  stage.current->outside = true;
  stage.current->parked = &word;
  stage.current->wake_ns = stage.clock_ns + ns;
  stage_step("sleeps");
  stage.current->outside = false;
}

/* Between two operations. */
static void stage_idle(void)
{
  stage.current->outside = true;
  stage_step("begins the next");
  stage.current->outside = false;
}

/* ---- in the place of the real ones ---- */

void __wrap_rv_mutex_lock(rv_mutex *mutex)
{
  if (stage.current != NULL && stage.held == 0) stage_step("is about to lock");
  __real_rv_mutex_lock(mutex);
  stage.held++;
}

bool __wrap_rv_mutex_trylock(rv_mutex *mutex)
{
  if (stage.current != NULL && stage.held == 0) stage_step("is about to lock");
  if (!__real_rv_mutex_trylock(mutex)) return false;
  stage.held++;
  return true;
}

void __wrap_rv_mutex_unlock(rv_mutex *mutex)
{
  if (stage.current != NULL && stage.unlocking != NULL) stage.unlocking(mutex);
  __real_rv_mutex_unlock(mutex);
  stage.held--;
  if (stage.current != NULL && stage.held == 0) stage_step("has unlocked");
}

void __wrap_rv_park(const atomic_int *word, int expected, int64_t ns)
{
  if (stage.current == NULL) {
    __real_rv_park(word, expected, ns);
    return;
  }
  int64_t wake_ns = ns == INT64_MAX ? INT64_MAX : stage.clock_ns + ns;
  stage_step("is about to sleep");
  if (wake_ns <= stage.clock_ns || atomic_load(word) != expected) return;
  stage.current->parked = word;
  stage.current->wake_ns = wake_ns;
  stage_step("sleeps");
}

/* Wakes one, whichever the system would. */
void __wrap_rv_unpark(const atomic_int *word)
{
  if (stage.current == NULL) {
    __real_rv_unpark(word);
    return;
  }
  if (stage.held == 0) stage_step("is about to wake somebody");
  for (int i = 0; i < stage.count; i++) {
    actor *a = &stage.actors[i];
    if (a->over || a->parked != word) continue;
    a->parked = NULL;
    return;
  }
}

int __wrap_sched_yield(void)
{
  if (stage.current == NULL) return __real_sched_yield();
  stage_step("yields");
  return 0;
}

#endif
