/* Calls of SampleStream that stay open when the sampler that had them is gone, for the next one: who asks for a few samples with a sampler of
 * their own each time, as Reverb's clients do, has neither a stream opened nor one closed for them. All on the loop. */
#ifndef RV_CLIENT_IDLE_CALLS_H
#define RV_CLIENT_IDLE_CALLS_H

#include "net/net.h"

enum { RV_IDLE_CALLS_MAX = 8 };

/* A client's. Begins zeroed, and is empty once its channel is freed. */
typedef struct rv_idle_calls {
  rv_call *call[RV_IDLE_CALLS_MAX]; /* the one that was used last stands last */
  size_t count;
} rv_idle_calls;

/* Keeps a call on which nothing is asked for: its last user hears of it no more. false: it is the caller's still, to be cancelled. */
bool rv_idle_calls_keep(rv_idle_calls *idle, rv_call *call);
/* One that is open, whose events go to its new user from now on; NULL: there is none. */
rv_call *rv_idle_calls_take(rv_idle_calls *idle, const rv_call_events *events, void *user);

#endif
