/* The world outside: time, entropy and the log, so that tests and embedders can set them.
 *
 * A store, a server and a client each take an rv_env when they are made. Fields that are NULL mean the default (the
 * system's clocks, the kernel's entropy, warnings and errors to stderr). The functions must be callable from any thread. */
#ifndef REVERIE_ENV_H
#define REVERIE_ENV_H

#include "reverie/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rv_log_level { RV_LOG_DEBUG = 0, RV_LOG_INFO = 1, RV_LOG_WARNING = 2, RV_LOG_ERROR = 3 } rv_log_level;

typedef struct rv_env {
  size_t size; /* sizeof(rv_env) */
  void *context;
  int64_t (*wall_ns)(void *context);                                /* nanoseconds since 1970-01-01 UTC */
  int64_t (*monotonic_ns)(void *context);                           /* nanoseconds, never going back */
  void (*entropy)(void *context, void *out, size_t n);              /* fills n bytes; seeds generators, keys and ids */
  void (*log)(void *context, rv_log_level level, const char *line); /* one line, in UTF-8, without the newline */
  rv_log_level log_level;                                           /* lines below it are not formatted */
} rv_env;

/* The default environment: system clocks, kernel entropy, warnings and errors to stderr. */
RV_API void rv_env_default(rv_env *out);

#ifdef __cplusplus
}
#endif
#endif
