#include "base/log_budget.h"

#include <stdio.h>

static size_t begin_period(rv_log_budget *budget, int64_t now_ns)
{
  size_t left_out = budget->count > budget->most ? budget->count - budget->most : 0;
  budget->since_ns = now_ns;
  budget->count = 0;
  return left_out;
}

bool rv_log_budget_take(rv_log_budget *budget, int64_t now_ns, char more[RV_LOG_MORE])
{
  size_t left_out = now_ns - budget->since_ns >= budget->period_ns ? begin_period(budget, now_ns) : 0;
  more[0] = '\0';
  if (left_out > 0) snprintf(more, RV_LOG_MORE, " (before it %zu more that are not in the log)", left_out);
  return ++budget->count <= budget->most;
}

size_t rv_log_budget_settle(rv_log_budget *budget, int64_t now_ns)
{
  return now_ns - budget->since_ns >= 2 * budget->period_ns ? begin_period(budget, now_ns) : 0;
}
