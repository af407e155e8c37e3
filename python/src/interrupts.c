#include "interrupts.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "core.h"

#define PATIENCE_NS INT64_C(50000000)
#define BEFORE_NS INT64_C(200000000) /* TensorFlow was perhaps about to call us; what came earlier was handled */

typedef void (*handler)(int number);

/* The signal's handler belongs to the process, and is called with nothing but the signal's number: what it needs is static. */
static atomic_uint count;
static _Atomic(int64_t) last_ns; /* when the last one came */
static _Atomic(handler) pythons; /* Python's own, once it was seen */
static atomic_uint handled;      /* how many had come when the main thread last ran Python code that we know of */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static unsigned listeners;
static struct sigaction before;
static unsigned called;   /* for so many the main thread was called, */
static int64_t called_ns; /* then */

static int64_t now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void on_interrupt(int number)
{
  atomic_store_explicit(&last_ns, now_ns(), memory_order_relaxed);
  atomic_fetch_add(&count, 1);
  handler next = atomic_load_explicit(&pythons, memory_order_relaxed);
  if (next != NULL) next(number);
}

/* Puts ours before Python's. Under the mutex. */
static void listen(void)
{
  struct sigaction now;
  if (sigaction(SIGINT, NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) return;
  if (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN || now.sa_handler == on_interrupt) return;
  handler known = atomic_load_explicit(&pythons, memory_order_relaxed);
  if (known != NULL && known != now.sa_handler) return;
  atomic_store_explicit(&pythons, now.sa_handler, memory_order_relaxed);
  before = now;
  now.sa_handler = on_interrupt;
  sigaction(SIGINT, &now, NULL);
}

static void stop_listening(void)
{
  struct sigaction now;
  if (sigaction(SIGINT, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == on_interrupt)
    sigaction(SIGINT, &before, NULL);
}

int64_t interrupts_begin(void)
{
  pthread_mutex_lock(&mutex);
  listeners++;
  listen();
  pthread_mutex_unlock(&mutex);
  return now_ns();
}

void interrupts_end(void)
{
  pthread_mutex_lock(&mutex);
  if (--listeners == 0) stop_listening();
  pthread_mutex_unlock(&mutex);
}

/* On the main thread. */
static int is_here(void *nothing)
{
  (void)nothing;
  atomic_store(&handled, atomic_load(&count));
  return 0;
}

bool interrupts_stuck(int64_t since_ns)
{
  pthread_mutex_lock(&mutex);
  listen(); /* Python's handler may have been set anew */
  unsigned came = atomic_load(&count);
  bool open = came != atomic_load(&handled) && atomic_load(&last_ns) > since_ns - BEFORE_NS;
  bool stuck = open && called == came && now_ns() - called_ns >= PATIENCE_NS;
  if (open && called != came && Py_IsInitialized() && Py_AddPendingCall(is_here, NULL) == 0) {
    called = came;
    called_ns = now_ns();
  }
  pthread_mutex_unlock(&mutex);
  return stuck;
}
