#include "client/ask_log.h"

#include <stdbool.h>
#include <string.h>

void rv_ask_log_add(rv_ask_log *log, int64_t end, int64_t at_ns)
{
  unsigned last = log->count - 1; /* of none if there is none */
  if (log->count > 0 && end <= log->asks[last].end) return;
  bool apart = log->count == 0 || (log->count < RV_ASKS_KEPT && at_ns - log->asks[last].at_ns >= RV_ASKS_APART_NS);
  if (apart) log->asks[log->count++].at_ns = at_ns;
  log->asks[log->count - 1].end = end;
}

int64_t rv_ask_log_from(rv_ask_log *log, int64_t number)
{
  unsigned over = 0;
  while (over < log->count && log->asks[over].end <= number) over++;
  log->count -= over;
  memmove(log->asks, log->asks + over, log->count * sizeof log->asks[0]);
  return log->count > 0 ? log->asks[0].at_ns : INT64_MAX;
}
