/* Lines of the log that others can cause: so many a period are written, of one of them no more than his share, and the first of a later period tells how
 * many were not; or, where none comes, whoever looks by and by. Locked by its user. */
#ifndef RV_BASE_LOG_BUDGET_H
#define RV_BASE_LOG_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RV_LOG_MORE = 64, RV_LOG_LINES_MAX = 50 /* a period, where each has a share */ };

typedef struct rv_log_budget {
  size_t most;      /* lines a period; */
  size_t most_each; /* of one who causes them; 0: no matter who does. Else most is at most RV_LOG_LINES_MAX */
  int64_t period_ns;
  int64_t since_ns;                      /* when this period began */
  size_t written, left_out;              /* lines since */
  uint64_t written_of[RV_LOG_LINES_MAX]; /* who has caused each of those that were written */
} rv_log_budget;

/* A line that `who` has caused (any number that tells him from others) may be written, with `more` at its end: "" or how many before it were not. */
bool rv_log_budget_take(rv_log_budget *budget, uint64_t who, int64_t now_ns, char more[RV_LOG_MORE]);
/* How many were not written, where no line has come to tell it for a whole period: it is told now. */
size_t rv_log_budget_settle(rv_log_budget *budget, int64_t now_ns);

#endif
