/* When samples were asked for, by their number in the order in which they are handed out. Requests that follow each other closely, those for which
 * there is no room, and numbers that are asked for again count as asked for with those before: a sample may count as older than it is. */
#ifndef RV_CLIENT_ASK_LOG_H
#define RV_CLIENT_ASK_LOG_H

#include <stdint.h>

enum { RV_ASKS_KEPT = 8 };
#define RV_ASKS_APART_NS INT64_C(62500000)

typedef struct rv_ask_log {
  struct {
    int64_t end, at_ns; /* the numbers below `end`, and not below the one before's */
  } asks[RV_ASKS_KEPT];
  unsigned count;
} rv_ask_log;

/* The samples up to number `end` are asked for at `at_ns`. */
void rv_ask_log_add(rv_ask_log *log, int64_t end, int64_t at_ns);
/* Forgets those below `number`, and says when that one was asked for; INT64_MAX: it was not. */
int64_t rv_ask_log_from(rv_ask_log *log, int64_t number);

#endif
