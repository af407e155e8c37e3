#include "base/spare_core.h"

#include <sys/resource.h>

/* Pieces of work: of a tenth of a millisecond and less, mostly. */
enum { WATCHED = 32, SPARE = 512, TAKEN_LEAST = 64, TAKEN_MOST = 4096 };

/* This thread, so far; -1: the system does not say. */
static int64_t times_put_aside(void)
{
#ifdef RUSAGE_THREAD
  struct rusage used;
  if (getrusage(RUSAGE_THREAD, &used) == 0) return used.ru_nivcsw;
#endif
  return -1;
}

static void watch(rv_spare_core *core)
{
  core->state = RV_CORE_WATCHED;
  core->left = WATCHED;
  core->thread = pthread_self();
  core->put_aside = times_put_aside();
}

static void decide(rv_spare_core *core)
{
  if (!pthread_equal(core->thread, pthread_self())) { /* it was counted for another */
    watch(core);
    return;
  }
  bool taken = core->put_aside < 0 || times_put_aside() != core->put_aside;
  core->state = taken ? RV_CORE_TAKEN : RV_CORE_SPARE;
  if (!taken)
    core->rest = 0;
  else
    core->rest = core->rest == 0 ? TAKEN_LEAST : core->rest < TAKEN_MOST ? 2 * core->rest : TAKEN_MOST;
  core->left = taken ? core->rest : SPARE;
}

bool rv_core_is_spare(rv_spare_core *core)
{
  if (core->left > 0)
    core->left--;
  else if (core->state == RV_CORE_WATCHED)
    decide(core);
  else
    watch(core);
  return core->state == RV_CORE_SPARE;
}
