/* One unary call on the client's loop, for those who wait for it (rv_client_unary) and those who do not (a sampler that wants to
 * know its table). */
#ifndef RV_CLIENT_UNARY_CALL_H
#define RV_CLIENT_UNARY_CALL_H

#include "client/client.h"

typedef struct rv_unary_call {
  /* the caller's; they stay until `done` */
  rv_channel *channel;
  const char *path;
  rv_pieces request;   /* emptied */
  int64_t deadline_ns; /* monotonic; INT64_MAX: none */
  bool wait_for_ready;
  void (*done)(struct rv_unary_call *call); /* exactly once, on the loop's thread; may free the call */
  void *context;
  /* the result */
  rv_code code;
  rv_error error;
  rv_buf *owner; /* one reference, the caller's; NULL unless RV_OK */
  rv_span response;
  int64_t
      again_ns; /* RV_RESOURCE_EXHAUSTED: the server did not begin with it, and it may be tried again after so long; 0: it did */
  /* its own */
  rv_call *call;
} rv_unary_call;

/* Both on the loop's thread. `done` may be called from within start. After stop it comes soon, unless it has come. */
void rv_unary_call_start(rv_unary_call *call);
void rv_unary_call_stop(rv_unary_call *call);

#endif
