/* Which connections a server has: no more than it may, and of each machine no more than that may have; whoever is one too many is told so, and the log once in
 * a while. */
#ifndef RV_NET_ADMISSION_H
#define RV_NET_ADMISSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/lock.h"
#include "base/log_budget.h"
#include "base/map.h"

/* A line that is written when a bound is met, and again once there had been room meanwhile, or a minute later: not for each who is refused, and
 * not for each time where many come and go. */
typedef struct rv_said {
  bool now;
  int64_t at_ns;
  uint64_t machine; /* that it was about */
  rv_log_budget budget;
} rv_said;

typedef struct rv_admission {
  const rv_env *env;
  size_t most, most_of_machine;
  rv_said full, machine_full; /* of the thread that lets them in */
  atomic_size_t count;
  rv_mutex lock;            /* guards what follows */
  rv_log_budget failures;   /* lines about connections that could not be had, for want of files or memory, */
  rv_log_budget handshakes; /* and about those whose ends did not agree on TLS: one that tries again and again hides no other */
  rv_map machines;          /* connections of each (rv_socket_peer_machine) */
} rv_admission;

/* As rv_grpc_server_config's: 0 for the defaults. `env` outlives it. */
void rv_admission_init(rv_admission *admission, const rv_env *env, size_t max_connections, size_t max_connections_per_address);
void rv_admission_fini(rv_admission *admission);

/* One more connection, of that machine (0: it is not counted with others); false: it was turned away, and the socket closed. On one thread. */
bool rv_admission_begin(rv_admission *admission, int fd, uint64_t machine, bool encrypted);
/* One that had begun is over. */
void rv_admission_end(rv_admission *admission, uint64_t machine);
/* One that had begun is turned away, as memory is out, and its socket closed. */
void rv_admission_fail(rv_admission *admission, int fd, uint64_t machine, bool encrypted);

/* A line about such a connection may be written, with `more` at its end. */
bool rv_admission_may_log_failure(rv_admission *admission, char more[RV_LOG_MORE]);
bool rv_admission_may_log_handshake(rv_admission *admission, uint64_t machine, char more[RV_LOG_MORE]);
/* Each minute: how many were not written, where no other has come since. */
void rv_admission_tell(rv_admission *admission);

#endif
