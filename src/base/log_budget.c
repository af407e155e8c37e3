#include "base/log_budget.h"

#include <stdio.h>

static size_t begin_period(rv_log_budget *budget, int64_t now_ns)
{
  size_t left_out = budget->left_out;
  budget->since_ns = now_ns;
  budget->written = budget->left_out = 0;
  return left_out;
}

static bool has_his_share(const rv_log_budget *budget, uint64_t who)
{
  size_t lines = 0;
  if (budget->most_each == 0) return false;
  for (size_t i = 0; i < budget->written; i++) lines += budget->written_of[i] == who;
  return lines >= budget->most_each;
}

bool rv_log_budget_take(rv_log_budget *budget, uint64_t who, int64_t now_ns, char more[RV_LOG_MORE])
{
  size_t left_out = now_ns - budget->since_ns >= budget->period_ns ? begin_period(budget, now_ns) : 0;
  more[0] = '\0';
  if (left_out > 0) snprintf(more, RV_LOG_MORE, " (before it %zu more that are not in the log)", left_out);
  if (budget->written >= budget->most || has_his_share(budget, who)) {
    budget->left_out++;
    return false;
  }
  if (budget->most_each > 0) budget->written_of[budget->written] = who;
  budget->written++;
  return true;
}

size_t rv_log_budget_settle(rv_log_budget *budget, int64_t now_ns)
{
  return now_ns - budget->since_ns >= 2 * budget->period_ns ? begin_period(budget, now_ns) : 0;
}
