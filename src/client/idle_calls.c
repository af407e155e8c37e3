#include "client/idle_calls.h"

#include <string.h>

/* Nobody asked for it. */
static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)user, (void)buf, (void)data, (void)size;
  rv_call_cancel(call);
}

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)code, (void)message;
  rv_idle_calls *idle = user;
  for (size_t i = 0; i < idle->count; i++) {
    if (idle->call[i] != call) continue;
    idle->count--;
    memmove(&idle->call[i], &idle->call[i + 1], (idle->count - i) * sizeof idle->call[0]);
    return;
  }
}

static const rv_call_events events_of_idle = {.on_message = on_message, .on_close = on_close};

bool rv_idle_calls_keep(rv_idle_calls *idle, rv_call *call)
{
  if (idle->count == RV_IDLE_CALLS_MAX || !rv_call_hand_on(call, &events_of_idle, idle)) return false;
  idle->call[idle->count++] = call;
  return true;
}

/* One that is over stays until its on_close. */
rv_call *rv_idle_calls_take(rv_idle_calls *idle, const rv_call_events *events, void *user)
{
  for (size_t i = idle->count; i-- > 0;) {
    rv_call *call = idle->call[i];
    if (!rv_call_hand_on(call, events, user)) continue;
    idle->count--;
    memmove(&idle->call[i], &idle->call[i + 1], (idle->count - i) * sizeof idle->call[0]);
    return call;
  }
  return NULL;
}
