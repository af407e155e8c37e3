#include "interrupts.h"

#include <dlfcn.h>
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

/* Python first: who sees that one was counted knows that Python was told. */
static void on_interrupt(int number)
{
  handler next = atomic_load_explicit(&pythons, memory_order_relaxed);
  if (next != NULL) next(number);
  atomic_store_explicit(&last_ns, now_ns(), memory_order_relaxed);
  atomic_fetch_add(&count, 1);
}

static bool is_of_python(handler function)
{
  Dl_info its, pythons_own;
  return dladdr((void *)(uintptr_t)function, &its) != 0 && dladdr((void *)(uintptr_t)PyErr_SetInterrupt, &pythons_own) != 0 &&
         its.dli_fbase == pythons_own.dli_fbase;
}

/* Sees which is Python's handler, if it is installed. With the GIL, without the mutex. faulthandler's lies beside it, but has flags. */
static void learn(void)
{
  struct sigaction now;
  if (atomic_load(&pythons) != NULL || sigaction(SIGINT, NULL, &now) != 0) return;
  if ((now.sa_flags & (SA_SIGINFO | SA_RESTART | SA_NODEFER)) != 0) return;
  PyObject *module = PyImport_ImportModule("signal");
  PyObject *set = module == NULL ? NULL : PyObject_CallMethod(module, "getsignal", "i", SIGINT);
  if (set != NULL && PyCallable_Check(set) && is_of_python(now.sa_handler)) atomic_store(&pythons, now.sa_handler);
  Py_XDECREF(set);
  Py_XDECREF(module);
  PyErr_Clear();
}

static bool is(const struct sigaction *action, handler function)
{
  return (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == function;
}

/* `action` in the place of `function`, whose own goes to *replaced if it was there. What somebody set meanwhile is put back. */
static void replace(handler function, const struct sigaction *action, struct sigaction *replaced)
{
  struct sigaction was;
  if (sigaction(SIGINT, action, &was) != 0) return;
  if (is(&was, function))
    *replaced = was;
  else
    sigaction(SIGINT, &was, NULL);
}

/* Puts ours before Python's. Under the mutex. */
static void listen(void)
{
  handler known = atomic_load(&pythons);
  struct sigaction now;
  if (known == NULL || sigaction(SIGINT, NULL, &now) != 0 || !is(&now, known)) return;
  now.sa_handler = on_interrupt;
  replace(known, &now, &before);
}

static void stop_listening(void)
{
  struct sigaction now;
  if (sigaction(SIGINT, NULL, &now) == 0 && is(&now, on_interrupt)) replace(on_interrupt, &before, &now);
}

int64_t interrupts_begin(void)
{
  learn();
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

int64_t interrupts_await(void)
{
  pthread_mutex_lock(&mutex);
  listen();
  pthread_mutex_unlock(&mutex);
  return now_ns();
}

/* On the main thread. */
static int is_here(void *nothing)
{
  (void)nothing;
  atomic_store(&handled, atomic_load(&count));
  return 0;
}

/* Unless it was called for these already. Under the mutex. */
static void call_main_thread(unsigned came)
{
  if (called == came || !Py_IsInitialized() || Py_AddPendingCall(is_here, NULL) != 0) return;
  called = came;
  called_ns = now_ns();
}

void interrupts_settle(void)
{
  if (atomic_load(&count) == atomic_load(&handled)) return;
  pthread_mutex_lock(&mutex);
  call_main_thread(atomic_load(&count));
  pthread_mutex_unlock(&mutex);
}

bool interrupts_stuck(int64_t since_ns)
{
  pthread_mutex_lock(&mutex);
  listen(); /* Python's handler may have been set anew */
  unsigned came = atomic_load(&count);
  bool open = came != atomic_load(&handled) && atomic_load(&last_ns) > since_ns - BEFORE_NS;
  bool stuck = open && called == came && now_ns() - called_ns >= PATIENCE_NS;
  if (open) call_main_thread(came);
  pthread_mutex_unlock(&mutex);
  return stuck;
}
