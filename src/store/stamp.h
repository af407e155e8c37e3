/* The time of an insert, without asking the system's clock for each: between two readings, at most a millisecond apart, the
 * processor's own counter tells how much has passed. Where there is no such counter, or the environment brings a clock of its
 * own, the clock is asked every time. The caller's lock guards a stamp. */
#ifndef RV_STORE_STAMP_H
#define RV_STORE_STAMP_H

#include "base/env.h"

typedef struct rv_stamp {
  uint64_t ticks, window; /* at the last reading; as many as may pass before the next, 0: none */
  int64_t wall_ns;        /* at the last reading */
  double ns_per_tick;     /* 0: not known yet */
  uint64_t since_ticks;   /* where its measuring began; 0: not yet */
  int64_t since_ns;
  bool counts; /* the counter may be used */
} rv_stamp;

void rv_stamp_init(rv_stamp *stamp, const rv_env *env);
int64_t rv_stamp_read(rv_stamp *stamp, const rv_env *env);

static inline uint64_t rv_stamp_ticks(void)
{
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return 0;
#endif
}

/* Nanoseconds since 1970. */
static inline int64_t rv_stamp_now(rv_stamp *stamp, const rv_env *env)
{
  uint64_t passed = rv_stamp_ticks() - stamp->ticks; /* huge where the counter went back */
  if (passed < stamp->window) return stamp->wall_ns + (int64_t)((double)passed * stamp->ns_per_tick);
  return rv_stamp_read(stamp, env);
}

#endif
