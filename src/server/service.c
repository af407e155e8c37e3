#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/server.h"

#define REVERB "/deepmind.reverb.ReverbService/"
#define REVERIE "/reverie.Reverie/"
#define HEALTH "/grpc.health.v1.Health/"

static const rv_method methods[] = {
    {.path = REVERB "InsertStream", .begin = rv_begin_insert_stream},
    {.path = REVERB "SampleStream", .begin = rv_begin_sample_stream},
    {.path = REVERB "MutatePriorities", .begin = rv_begin_unary, .answer = rv_answer_mutate, .changes = true},
    {.path = REVERB "ServerInfo", .begin = rv_begin_unary, .answer = rv_answer_server_info},
    {.path = REVERB "InitializeConnection", .begin = rv_begin_initialize_connection},
    {.path = REVERB "Reset", .begin = rv_begin_unary, .answer = rv_answer_reset, .changes = true},
    {.path = REVERB "Checkpoint", .begin = rv_begin_checkpoint},
    {.path = REVERIE "Items", .begin = rv_begin_unary, .answer = rv_answer_items},
    {.path = REVERIE "Get", .begin = rv_begin_unary, .answer = rv_answer_get},
    {.path = REVERIE "SetRateLimiter", .begin = rv_begin_unary, .answer = rv_answer_set_rate_limiter, .changes = true},
    {.path = HEALTH "Check",
     .begin = rv_begin_unary,
     .answer = rv_answer_health_check,
     .while_draining = true,
     .open_to_all = true},
    {.path = HEALTH "Watch", .begin = rv_begin_health_watch, .while_draining = true},
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

static bool refuse(rv_call *call, const rv_error *err, const rv_call_events **events, void **user)
{
  *events = &refused_events;
  *user = NULL;
  rv_call_finish(call, err->code, err->message);
  return true;
}

bool rv_service_on_call(void *context, rv_call *call, const char *path, const rv_call_events **events, void **user)
{
  rv_server *server = context;
  const rv_method *method = methods, *end = methods + sizeof methods / sizeof methods[0];
  while (method != end && strcmp(method->path, path) != 0) method++;
  if (method == end) return false;
  rv_error err;
  if (atomic_load(&server->draining) && !method->while_draining) {
    rv_fail(&err, RV_UNAVAILABLE, "the server is shutting down");
    return refuse(call, &err, events, user);
  }
  if (method->begin(server, call, method, events, user, &err) != RV_OK) return refuse(call, &err, events, user);
  return true;
}

/* A caller chooses the name: it must not be able to write lines of its own. */
static void copy_printable(char *out, size_t capacity, rv_span name)
{
  size_t n = name.size < capacity - 1 ? name.size : capacity - 1;
  for (size_t i = 0; i < n; i++) out[i] = name.data[i] < 0x20 || name.data[i] == 0x7f ? '?' : (char)name.data[i];
  out[n] = '\0';
}

void rv_server_audit(rv_server *server, const rv_caller *caller, const char *peer, const char *what, rv_span name, rv_code code)
{
  char printable[129] = "";
  if (name.data != NULL) copy_printable(printable, sizeof printable, name);
  const char *quote = name.data != NULL ? "\"" : "";
  rv_log(&server->env, code == RV_OK ? RV_LOG_INFO : RV_LOG_WARNING, "audit: %.80s from %.120s: %s%s%s%s%s: %s",
         rv_caller_name(caller), peer, what, name.data != NULL ? " " : "", quote, printable, quote, rv_code_name(code));
}

rv_code rv_server_put(rv_pieces *response, rv_writer_buf *owned_body, rv_error *err)
{
  rv_code code = RV_OK;
  if (owned_body->failed || rv_pieces_copy(response, owned_body->data, owned_body->size) != RV_OK)
    code = rv_fail_memory(err, owned_body->size);
  rv_writer_buf_fini(owned_body);
  return code;
}
