#include "persist/follower.h"

#include "base/error.h"
#include "base/thread.h"

void rv_follower_init(rv_follower *follower)
{
  rv_mutex_init(&follower->lock, RV_RANK_WAIT, "work that follows");
  rv_cond_init(&follower->changed);
}

/* The lock is held, and let go meanwhile. */
static void do_next(rv_follower *follower)
{
  rv_error fault = follower->fault;
  rv_mutex_unlock(&follower->lock);
  if (fault.code == RV_OK) follower->work(follower->context, follower->done, &fault);
  rv_mutex_lock(&follower->lock);
  follower->fault = fault;
  follower->done++;
  rv_cond_signal(&follower->changed);
}

static void *follow(void *context)
{
  rv_follower *follower = context;
  rv_mutex_lock(&follower->lock);
  while (!follower->stop) {
    if (follower->done == follower->handed)
      rv_cond_wait(&follower->changed, &follower->lock);
    else
      do_next(follower);
  }
  rv_mutex_unlock(&follower->lock);
  return NULL;
}

static rv_code wait_for(rv_follower *follower, uint64_t most, rv_error *err)
{
  while (follower->handed - follower->done > most) {
    if (follower->threaded)
      rv_cond_wait(&follower->changed, &follower->lock);
    else
      do_next(follower);
  }
  return follower->fault.code == RV_OK ? RV_OK : rv_error_copy(err, &follower->fault);
}

rv_code rv_follower_hand_over(rv_follower *follower, uint64_t most, rv_error *err)
{
  if (!follower->threaded) follower->threaded = rv_thread_start(&follower->thread, follower->name, follow, follower) == 0;
  rv_mutex_lock(&follower->lock);
  follower->handed++;
  rv_cond_signal(&follower->changed);
  rv_code code = wait_for(follower, most, err);
  rv_mutex_unlock(&follower->lock);
  return code;
}

static void end_thread(rv_follower *follower)
{
  if (!follower->threaded) return;
  rv_mutex_lock(&follower->lock);
  follower->stop = true;
  rv_cond_signal(&follower->changed);
  rv_mutex_unlock(&follower->lock);
  pthread_join(follower->thread, NULL);
  follower->threaded = false;
}

rv_code rv_follower_settle(rv_follower *follower, rv_error *err)
{
  rv_mutex_lock(&follower->lock);
  rv_code code = wait_for(follower, 0, err);
  rv_mutex_unlock(&follower->lock);
  end_thread(follower);
  return code;
}

void rv_follower_fini(rv_follower *follower)
{
  end_thread(follower);
  rv_cond_fini(&follower->changed);
  rv_mutex_fini(&follower->lock);
}
