#include "net/admission.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/socket.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum { SAY_MOST = 10, SAY_MOST_OF_ALL = 50, DEFAULT_CONNECTIONS = 65536 };
#define MINUTE_NS INT64_C(60000000000)
#define OUT_OF_MEMORY "the server is out of memory"

void rv_admission_init(rv_admission *admission, const rv_env *env, size_t max_connections, size_t max_connections_per_address)
{
  *admission = (rv_admission){.env = env};
  admission->most = max_connections > 0 ? max_connections : DEFAULT_CONNECTIONS;
  admission->most_of_machine =
      max_connections_per_address > 0 ? max_connections_per_address : admission->most - admission->most / 10;
  admission->full.budget = admission->machine_full.budget = (rv_log_budget){.most = SAY_MOST, .period_ns = MINUTE_NS};
  admission->handshakes = (rv_log_budget){.most = SAY_MOST_OF_ALL, .most_each = SAY_MOST, .period_ns = MINUTE_NS};
  admission->failures = (rv_log_budget){.most = 1, .period_ns = MINUTE_NS};
  rv_mutex_init(&admission->lock, RV_RANK_WAIT, "admission");
  rv_map_init(&admission->machines, rv_entropy64(env));
}

void rv_admission_fini(rv_admission *admission)
{
  rv_map_fini(&admission->machines);
  rv_mutex_fini(&admission->lock);
}

/* ---- counting ---- */

typedef enum counted { COUNTED, TOO_MANY, NO_MEMORY } counted;

static bool may_say(rv_admission *admission, rv_said *what)
{
  int64_t now = rv_monotonic_ns(admission->env);
  char more[RV_LOG_MORE]; /* of no use: how often the bound was met says nothing */
  if (what->now && now - what->at_ns < MINUTE_NS) return false;
  if (!rv_log_budget_take(&what->budget, 0, now, more)) return false;
  what->now = true;
  what->at_ns = now;
  return true;
}

/* A line that this machine has caused; 0: it matters to none whose it is. */
static bool may_log(rv_admission *admission, rv_log_budget *budget, uint64_t machine, char more[RV_LOG_MORE])
{
  int64_t now = rv_monotonic_ns(admission->env);
  rv_mutex_lock(&admission->lock);
  bool may = rv_log_budget_take(budget, machine, now, more);
  rv_mutex_unlock(&admission->lock);
  return may;
}

/* An eighth is free: one that comes and goes at the bound would fill the log. */
static bool has_room(size_t count, size_t most)
{
  return count <= most - (most + 7) / 8;
}

/* One more of that machine, unless it has as many as it may. */
static counted count_in(rv_admission *admission, uint64_t machine)
{
  if (machine == 0) return COUNTED;
  rv_mutex_lock(&admission->lock);
  uint32_t *count = rv_map_get(&admission->machines, machine);
  counted result = COUNTED;
  if (count != NULL && *count >= admission->most_of_machine)
    result = TOO_MANY;
  else if (count == NULL && rv_map_put(&admission->machines, machine, 0) != RV_OK)
    result = NO_MEMORY;
  if (result == COUNTED) {
    count = rv_map_get(&admission->machines, machine);
    if (has_room(++*count, admission->most_of_machine) && admission->machine_full.machine == machine)
      admission->machine_full.now = false;
  }
  rv_mutex_unlock(&admission->lock);
  return result;
}

void rv_admission_end(rv_admission *admission, uint64_t machine)
{
  atomic_fetch_sub(&admission->count, 1);
  if (machine == 0) return;
  rv_mutex_lock(&admission->lock);
  uint32_t *count = rv_map_get(&admission->machines, machine);
  if (count != NULL && --*count == 0) rv_map_remove(&admission->machines, machine);
  rv_mutex_unlock(&admission->lock);
}

/* ---- turning away ---- */

/* Empty SETTINGS, then GOAWAY(ENHANCE_YOUR_CALM) with a reason: what a client that is one too many gets. */
static void turn_away(int fd, bool encrypted, const char *reason)
{
  uint8_t frames[128] = "\0\0\0\x04\0\0\0\0\0"
                        "\0\0\0\x07\0\0\0\0\0"
                        "\0\0\0\0\0\0\0\x0b";
  const size_t head = 26, size = strlen(reason);
  frames[11] = (uint8_t)(8 + size);
  memcpy(frames + head, reason, size);
  ssize_t sent = encrypted ? 0 : send(fd, frames, head + size, MSG_NOSIGNAL); /* in a handshake it would make no sense */
  (void)sent;
  close(fd);
}

static void log_machine_full(rv_admission *admission, uint64_t machine, int fd)
{
  if (!may_say(admission, &admission->machine_full)) return;
  admission->machine_full.machine = machine;
  char peer[RV_PEER_MAX];
  rv_socket_peer(fd, peer);
  rv_log(admission->env, RV_LOG_WARNING,
         "%zu connections of one address are open, and more of %s are refused; raise max_connections_per_address",
         admission->most_of_machine, peer);
}

static void log_no_memory(rv_admission *admission)
{
  char more[RV_LOG_MORE];
  if (may_log(admission, &admission->failures, 0, more))
    rv_log(admission->env, RV_LOG_ERROR, "a connection was refused: out of memory%s", more);
}

bool rv_admission_begin(rv_admission *admission, int fd, uint64_t machine, bool encrypted)
{
  size_t before = atomic_fetch_add(&admission->count, 1);
  if (before >= admission->most) {
    atomic_fetch_sub(&admission->count, 1);
    if (may_say(admission, &admission->full))
      rv_log(admission->env, RV_LOG_WARNING, "%zu connections are open, and more are refused; raise max_connections",
             admission->most);
    turn_away(fd, encrypted, "too many connections");
    return false;
  }
  if (has_room(before + 1, admission->most)) admission->full.now = false;
  counted result = count_in(admission, machine);
  if (result == COUNTED) return true;
  atomic_fetch_sub(&admission->count, 1);
  if (result == TOO_MANY)
    log_machine_full(admission, machine, fd);
  else
    log_no_memory(admission);
  turn_away(fd, encrypted,
            result == TOO_MANY ? "too many connections from this address (max_connections_per_address)" : OUT_OF_MEMORY);
  return false;
}

void rv_admission_fail(rv_admission *admission, int fd, uint64_t machine, bool encrypted)
{
  rv_admission_end(admission, machine);
  log_no_memory(admission);
  turn_away(fd, encrypted, OUT_OF_MEMORY);
}

/* ---- the log ---- */

bool rv_admission_may_log_failure(rv_admission *admission, char more[RV_LOG_MORE])
{
  return may_log(admission, &admission->failures, 0, more);
}

bool rv_admission_may_log_handshake(rv_admission *admission, uint64_t machine, char more[RV_LOG_MORE])
{
  return may_log(admission, &admission->handshakes, machine, more);
}

void rv_admission_tell(rv_admission *admission)
{
  int64_t now = rv_monotonic_ns(admission->env);
  rv_mutex_lock(&admission->lock);
  size_t failures = rv_log_budget_settle(&admission->failures, now),
         handshakes = rv_log_budget_settle(&admission->handshakes, now);
  rv_mutex_unlock(&admission->lock);
  if (failures > 0)
    rv_log(admission->env, RV_LOG_WARNING, "of tries to accept connections %zu more failed that are not in the log", failures);
  if (handshakes > 0)
    rv_log(admission->env, RV_LOG_WARNING, "of TLS handshakes %zu more failed that are not in the log", handshakes);
}
