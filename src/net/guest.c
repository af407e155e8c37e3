#include "net/guest.h"

#include "base/linux.h"
#include "net/loop.h"

#ifdef RV_LINUX

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

/* ---- visits ---- */

static bool can_be_visited(rv_loop *loop)
{
  rv_mutex_lock(&loop->lock);
  bool idle = loop->asleep && rv_list_empty(&loop->inbox) && !loop->stopping;
  rv_mutex_unlock(&loop->lock);
  if (!idle || rv_loop_has_rest(loop)) return false;
  if (loop->knock < 0) loop->knock = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return loop->knock >= 0;
}

bool rv_loop_begin_visit(rv_loop *loop)
{
  rv_mutex_check_none_held();
  if (atomic_load_explicit(&loop->wants_turn, memory_order_relaxed) || !rv_mutex_trylock(&loop->turn)) return false;
  if (!can_be_visited(loop)) {
    rv_mutex_unlock(&loop->turn);
    return false;
  }
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &loop->guests_cancel_state); /* who has the turn comes to its end */
  atomic_store_explicit(&loop->guest, pthread_self(), memory_order_relaxed);
  atomic_store_explicit(&loop->has_guest, true, memory_order_release);
  return true;
}

void rv_loop_end_visit(rv_loop *loop)
{
  int ignored, cancel_state = loop->guests_cancel_state;
  bool wake = rv_loop_settle_visit(loop);
  atomic_store_explicit(&loop->has_guest, false, memory_order_relaxed);
  rv_mutex_unlock(&loop->turn);
  if (wake) rv_loop_wake(loop);
  pthread_setcancelstate(cancel_state, &ignored);
}

/* ---- waiting ---- */

bool rv_loop_sit(rv_loop *loop)
{
  if (atomic_load_explicit(&loop->has_sitter, memory_order_relaxed)) return false;
  return !atomic_exchange_explicit(&loop->has_sitter, true, memory_order_acquire);
}

void rv_loop_stand(rv_loop *loop)
{
  atomic_store_explicit(&loop->has_sitter, false, memory_order_release);
}

bool rv_loop_wait_at(rv_loop *loop, int fd, int64_t ns)
{
  struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = loop->knock, .events = POLLIN}};
  struct timespec most = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  int ignored, cancel_state;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  int ready = ppoll(fds, 2, ns == INT64_MAX ? NULL : &most, NULL);
  eventfd_t knocks;
  if (ready > 0 && fds[1].revents != 0) eventfd_read(loop->knock, &knocks);
  pthread_setcancelstate(cancel_state, &ignored);
  return ready > 0 && fds[0].revents != 0;
}

void rv_loop_knock(rv_loop *loop)
{
  int ignored, cancel_state; /* under others' locks */
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  eventfd_write(loop->knock, 1);
  pthread_setcancelstate(cancel_state, &ignored);
}

#else /* who cannot be knocked at does not sit, and who does not sit does not visit */

bool rv_loop_begin_visit(rv_loop *loop)
{
  (void)loop;
  return false;
}

void rv_loop_end_visit(rv_loop *loop)
{
  (void)loop;
}

bool rv_loop_sit(rv_loop *loop)
{
  (void)loop;
  return false;
}

void rv_loop_stand(rv_loop *loop)
{
  (void)loop;
}

bool rv_loop_wait_at(rv_loop *loop, int fd, int64_t ns)
{
  (void)loop, (void)fd, (void)ns;
  return false;
}

void rv_loop_knock(rv_loop *loop)
{
  (void)loop;
}

#endif

void rv_loop_hand(rv_loop *loop, rv_task *task)
{
  bool sits = !rv_loop_is_current(loop) && rv_loop_sit(loop), visits = sits && rv_loop_begin_visit(loop);
  if (visits) {
    task->run(task);
    rv_loop_end_visit(loop);
  }
  if (sits) rv_loop_stand(loop);
  if (!visits) rv_loop_post(loop, task);
}
