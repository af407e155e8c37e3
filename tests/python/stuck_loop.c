/* Preloaded: keeps the threads that do clients' I/O from their work, wherever they have just waited for the system. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static atomic_int held, num_held;

/* From Python. */
void stuck_loop_hold(int hold);
int stuck_loop_num_held(void);

void stuck_loop_hold(int hold)
{
  atomic_store(&held, hold);
}

int stuck_loop_num_held(void)
{
  return atomic_load(&num_held);
}

static void stay(void)
{
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  if (strcmp(name, "reverie-client") != 0 || atomic_load(&held) == 0) return;
  atomic_fetch_add(&num_held, 1);
  while (atomic_load(&held) != 0) usleep(1000);
  atomic_fetch_sub(&num_held, 1);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
  int (*real)(int, struct epoll_event *, int, int);
  *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
  int n = real(epoll, events, most, timeout);
  stay();
  return n;
}

int epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
  int (*real)(int, struct epoll_event *, int, int, const sigset_t *);
  *(void **)&real = dlsym(RTLD_NEXT, "epoll_pwait");
  int n = real(epoll, events, most, timeout, mask);
  stay();
  return n;
}
