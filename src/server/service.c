#include <string.h>

#include "base/error.h"
#include "server/server.h"

#define REVERB "/deepmind.reverb.ReverbService/"
#define REVERIE "/reverie.Reverie/"
#define HEALTH "/grpc.health.v1.Health/"

#define SHED_MS "250"
#define ANSWERS_UNSENT_MAX ((size_t)8 << 20)

enum {
  SMALL_BYTES_MAX = 4096, /* of a message of methods that take little; */
  OPEN_BYTES_MAX = 4096,  /* of a message of those who are not asked who they are, */
  OPEN_AT_ONCE_MAX = 100  /* and of their calls on a connection */
};

static const rv_method methods[] = {
    {.path = REVERB "InsertStream", .begin = rv_begin_insert_stream, .takes_much = true, .needs = RV_RIGHT_INSERT},
    {.path = REVERB "SampleStream", .begin = rv_begin_sample_stream},
    {.path = REVERB "MutatePriorities",
     .begin = rv_begin_unary,
     .answer = rv_answer_mutate,
     .changes = true,
     .takes_much = true,
     .needs = RV_RIGHT_UPDATE},
    {.path = REVERB "ServerInfo", .begin = rv_begin_unary, .answer = rv_answer_server_info},
    {.path = REVERB "InitializeConnection", .begin = rv_begin_initialize_connection},
    {.path = REVERB "Reset", .begin = rv_begin_unary, .answer = rv_answer_reset, .changes = true},
    {.path = REVERB "Checkpoint", .begin = rv_begin_checkpoint},
    {.path = REVERIE "Items", .begin = rv_begin_unary, .answer = rv_answer_items},
    {.path = REVERIE "Get", .begin = rv_begin_unary, .answer = rv_answer_get},
    {.path = REVERIE "SetRateLimiter", .begin = rv_begin_unary, .answer = rv_answer_set_rate_limiter, .changes = true},
    {.path = REVERIE "SetBounds", .begin = rv_begin_unary, .answer = rv_answer_set_bounds, .changes = true},
    {.path = REVERIE "SetMemoryLimit", .begin = rv_begin_unary, .answer = rv_answer_set_memory_limit},
    {.path = HEALTH "Check",
     .begin = rv_begin_unary,
     .answer = rv_answer_health_check,
     .while_draining = true,
     .open_to_all = true},
    {.path = HEALTH "Watch", .begin = rv_begin_health_watch, .while_draining = true, .open_to_all = true},
};

/* A call that is refused has no state: its trailers are on their way. */
static void ignore_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)call, (void)user, (void)buf, (void)data, (void)size;
}
static void ignore_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call, (void)user, (void)code, (void)message;
}
static const rv_call_events refused_events = {.on_message = ignore_message, .on_close = ignore_close};

/* Part of it is a caller's choice, who must not be able to write lines of its own. */
static void copy_printable(char *out, size_t capacity, rv_span text)
{
  size_t n = text.size < capacity - 1 ? text.size : capacity - 1;
  for (size_t i = 0; i < n; i++) out[i] = text.data[i] < 0x20 || text.data[i] == 0x7f ? '?' : (char)text.data[i];
  out[n] = '\0';
}

/* A number for whoever comes from there, by whichever connection. */
static uint64_t number_of(const char *peer)
{
  size_t size = strlen(peer);
  if (strncmp(peer, "ip", 2) == 0)
    while (size > 0 && peer[size - 1] != ':') size--; /* his port */
  uint64_t hash = UINT64_C(0xCBF29CE484222325);
  for (size_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)peer[i]) * UINT64_C(0x100000001B3);
  return hash;
}

/* Who is refused may go on asking; others' lines are written all the same. */
static bool may_log(rv_server *server, rv_log_budget *budget, uint64_t who, char more[RV_LOG_MORE])
{
  int64_t now = rv_monotonic_ns(&server->env);
  rv_mutex_lock(&server->lock);
  bool may = rv_log_budget_take(budget, who, now, more);
  rv_mutex_unlock(&server->lock);
  return may;
}

bool rv_server_may_log(rv_server *server, rv_log_budget *budget, const char *peer, char more[RV_LOG_MORE])
{
  return may_log(server, budget, number_of(peer), more);
}

void rv_service_tell_refusals(rv_server *server)
{
  int64_t now = rv_monotonic_ns(&server->env);
  rv_mutex_lock(&server->lock);
  size_t refusals = rv_log_budget_settle(&server->refusals, now), denials = rv_log_budget_settle(&server->denials, now);
  size_t failed = rv_log_budget_settle(&server->failed, now), orphans = rv_log_budget_settle(&server->orphans, now);
  rv_mutex_unlock(&server->lock);
  if (refusals > 0) rv_log(&server->env, RV_LOG_WARNING, "of refused calls %zu more came that are not in the log", refusals);
  if (denials > 0)
    rv_log(&server->env, RV_LOG_WARNING, "audit: %zu more were PERMISSION_DENIED that are not in the log", denials);
  if (failed > 0) rv_log(&server->env, RV_LOG_WARNING, "audit: %zu more failed that are not in the log", failed);
  if (orphans > 0)
    rv_log(&server->env, RV_LOG_WARNING, "inserts of clients that have gone were dropped %zu times more that are not in the log",
           orphans);
}

static bool refuse(rv_server *server, rv_call *call, const rv_error *err, const rv_call_events **events, void **user)
{
  char printable[256], more[RV_LOG_MORE];
  if (err->code == RV_UNAUTHENTICATED && rv_server_may_log(server, &server->refusals, rv_call_peer(call), more)) {
    copy_printable(printable, sizeof printable, (rv_span){(const uint8_t *)err->message, strlen(err->message)});
    rv_log(&server->env, RV_LOG_WARNING, "a call from %.120s was refused: %s%s", rv_call_peer(call), printable, more);
  }
  rv_call_drop_metadata(call); /* the caller may take his time to read the refusal */
  *events = &refused_events;
  *user = NULL;
  rv_call_finish(call, err->code, err->message);
  return true;
}

static bool may_be_put_off(const rv_method *method)
{
  return method->answer != NULL && !method->while_draining;
}

/* Work that was asked for long ago is mostly no longer wanted: where more comes than can be done, doing it would leave no time for what is. */
bool rv_service_is_late(const rv_method *method, rv_call *call)
{
  return may_be_put_off(method) && rv_call_is_late(call);
}

bool rv_service_has_unread(const rv_method *method, const rv_call *call)
{
  return may_be_put_off(method) && rv_call_answers_unsent(call) > ANSWERS_UNSENT_MAX;
}

/* The header is gRPC's own (gRFC A6): how long to wait before it is tried again. */
rv_code rv_service_put_off(rv_server *server, rv_call *call, bool late, rv_error *err)
{
  if (late)
    rv_fail(err, RV_RESOURCE_EXHAUSTED,
            "the server gets more calls than it can answer; try again in " SHED_MS " ms, or ask less of it");
  else
    rv_fail(err, RV_RESOURCE_EXHAUSTED,
            "%zu bytes of answers wait for this connection to take them; read them, and try again in " SHED_MS " ms",
            rv_call_answers_unsent(call));
  char more[RV_LOG_MORE];
  if (rv_server_may_log(server, &server->refusals, rv_call_peer(call), more))
    rv_log(&server->env, RV_LOG_WARNING, "a call from %.120s was put off: %s%s", rv_call_peer(call), err->message, more);
  rv_call_drop_metadata(call); /* the caller may take his time to read it */
  rv_call_set_header(call, "grpc-retry-pushback-ms", SHED_MS);
  return err->code;
}

bool rv_service_on_call(void *context, rv_call *call, const char *path, const rv_call_events **events, void **user)
{
  rv_server *server = context;
  const rv_method *method = methods, *end = methods + sizeof methods / sizeof methods[0];
  while (method != end && strcmp(method->path, path) != 0) method++;
  if (method == end) return false;
  rv_error err;
  if (atomic_load(&server->draining) && !method->while_draining) {
    rv_server_fail_draining(&err);
    return refuse(server, call, &err, events, user);
  }
  if (rv_service_is_late(method, call)) { /* its message need not be kept, nor need anybody be asked who he is */
    rv_service_put_off(server, call, true, &err);
    return refuse(server, call, &err, events, user);
  }
  if (method->open_to_all &&
      !rv_call_keep_small(call, OPEN_BYTES_MAX, OPEN_AT_ONCE_MAX, method->answer != NULL ? RV_HEALTH_MS : 0)) {
    rv_fail(&err, RV_RESOURCE_EXHAUSTED, "%d calls of Health are open on this connection already; end some", OPEN_AT_ONCE_MAX);
    return refuse(server, call, &err, events, user);
  }
  if (!method->takes_much && !method->open_to_all) rv_call_take_at_most(call, SMALL_BYTES_MAX);
  if (method->begin(server, call, method, events, user, &err) != RV_OK) return refuse(server, call, &err, events, user);
  return true;
}

/* What was done is always written. */
static bool may_audit(rv_server *server, const rv_caller *caller, const char *peer, rv_code code, char more[RV_LOG_MORE])
{
  uint64_t who = caller != NULL ? rv_caller_id(caller) : number_of(peer);
  if (code == RV_PERMISSION_DENIED) return may_log(server, &server->denials, who, more);
  return code == RV_OK || may_log(server, &server->failed, who, more);
}

void rv_server_audit(rv_server *server, const rv_caller *caller, const char *peer, const char *what, rv_span name, rv_code code)
{
  char printable[129] = "", more[RV_LOG_MORE] = "";
  if (!may_audit(server, caller, peer, code, more)) return;
  if (name.data != NULL) copy_printable(printable, sizeof printable, name);
  const char *quote = name.data != NULL ? "\"" : "";
  rv_log(&server->env, code == RV_OK ? RV_LOG_INFO : RV_LOG_WARNING, "audit: %.80s from %.120s: %s%s%s%s%s: %s%s",
         rv_caller_name(caller), peer, what, name.data != NULL ? " " : "", quote, printable, quote, rv_code_name(code), more);
}

rv_code rv_server_put(rv_pieces *response, rv_writer_buf *owned_body, rv_error *err)
{
  rv_code code = RV_OK;
  if (owned_body->failed || rv_pieces_copy(response, owned_body->data, owned_body->size) != RV_OK)
    code = rv_fail_memory(err, owned_body->size);
  rv_writer_buf_fini(owned_body);
  return code;
}
