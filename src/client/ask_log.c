#include "client/ask_log.h"

#include <string.h>

static void forget(rv_ask_log *log, unsigned n)
{
  log->count -= n;
  memmove(log->asks, log->asks + n, log->count * sizeof log->asks[0]);
}

void rv_ask_log_add(rv_ask_log *log, int64_t end, int64_t at_ns)
{
  if (log->count > 0 && end <= log->asks[log->count - 1].end) return;
  if (log->count == RV_ASKS_KEPT) {
    log->asks[1].at_ns = log->asks[0].at_ns;
    forget(log, 1);
  }
  log->asks[log->count].end = end;
  log->asks[log->count++].at_ns = at_ns;
}

int64_t rv_ask_log_from(rv_ask_log *log, int64_t number)
{
  unsigned over = 0;
  while (over < log->count && log->asks[over].end <= number) over++;
  forget(log, over);
  return log->count > 0 ? log->asks[0].at_ns : INT64_MAX;
}
