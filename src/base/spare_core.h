/* Is there a core that nobody uses? A helper on one that others need takes more from them than he gives, and who is helped does not see it.
 *
 * Whoever often has work that a helper could share asks before each piece of it, and does some pieces by himself: if he is put aside meanwhile for
 * another thread, all cores have something to do. Then he asks that again later, the later the more often it was so. */
#ifndef RV_BASE_SPARE_CORE_H
#define RV_BASE_SPARE_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroed: nothing is known. One thread at a time. */
typedef struct rv_spare_core {
  enum { RV_CORE_UNKNOWN, RV_CORE_WATCHED, RV_CORE_SPARE, RV_CORE_TAKEN } state;
  uint32_t left; /* pieces of work until it ends */
  uint32_t rest; /* how many the last RV_CORE_TAKEN had */
  pthread_t thread;
  int64_t put_aside; /* how often that thread had been, when RV_CORE_WATCHED began */
} rv_spare_core;

/* Before a piece of work: may it be shared? Mostly costs a count, else a system call. Where the system does not say how often a thread was put
 * aside: never. */
bool rv_core_is_spare(rv_spare_core *core);

#endif
