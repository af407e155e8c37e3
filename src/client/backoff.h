/* How long to wait before something is tried again: twice as long each time, and up to a quarter longer than that, so that the many clients
 * of a server that comes back do not all come at once. */
#ifndef RV_CLIENT_BACKOFF_H
#define RV_CLIENT_BACKOFF_H

#include "base/env.h"

#define RV_BACKOFF_MOST_NS INT64_C(1000000000)

/* *backoff_ns is where the next wait begins: set it to the first, again after a success. */
static inline int64_t rv_backoff_next(int64_t *backoff_ns, const rv_env *env)
{
  int64_t wait = *backoff_ns;
  *backoff_ns = 2 * wait < RV_BACKOFF_MOST_NS ? 2 * wait : RV_BACKOFF_MOST_NS;
  return wait + (int64_t)(rv_entropy64(env) % (uint64_t)(wait / 4 + 1));
}

#endif
