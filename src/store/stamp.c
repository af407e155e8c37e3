#include "store/stamp.h"

#define WINDOW_NS 1e6
#define SHORTEST_NS INT64_C(200000)     /* that the counter's speed is measured over */
#define LONGEST_NS INT64_C(10000000000) /* the machine may have slept */
enum { PRECISION = 1000 };

void rv_stamp_init(rv_stamp *stamp, const rv_env *env)
{
  rv_env plain;
  rv_env_default(&plain);
  *stamp =
      (rv_stamp){.counts = rv_stamp_ticks() != 0 && env->wall_ns == plain.wall_ns && env->monotonic_ns == plain.monotonic_ns};
}

/* The speed comes from the monotonic clock, which nobody sets. */
static void measure(rv_stamp *stamp, uint64_t ticks, int64_t monotonic_ns)
{
  int64_t elapsed = monotonic_ns - stamp->since_ns;
  if (stamp->since_ticks != 0 && elapsed < SHORTEST_NS) return;
  if (stamp->since_ticks != 0 && elapsed <= LONGEST_NS && ticks > stamp->since_ticks)
    stamp->ns_per_tick = (double)elapsed / (double)(ticks - stamp->since_ticks);
  stamp->since_ticks = ticks;
  stamp->since_ns = monotonic_ns;
}

int64_t rv_stamp_read(rv_stamp *stamp, const rv_env *env)
{
  if (!stamp->counts) return rv_wall_ns(env);
  uint64_t begun = rv_stamp_ticks();
  int64_t now = rv_wall_ns(env), monotonic = rv_monotonic_ns(env);
  uint64_t took = rv_stamp_ticks() - begun;
  /* a thread that was interrupted in between has clocks and counter of different times */
  bool sharp = stamp->ns_per_tick > 0 ? (double)took * stamp->ns_per_tick * PRECISION < WINDOW_NS * 10
                                      : took < (begun - stamp->since_ticks) / PRECISION || stamp->since_ticks == 0;
  if (sharp) measure(stamp, begun, monotonic);
  stamp->ticks = begun;
  stamp->wall_ns = now;
  stamp->window = sharp && stamp->ns_per_tick > 0 ? (uint64_t)(WINDOW_NS / stamp->ns_per_tick) : 0;
  return now;
}
