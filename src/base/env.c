#include "base/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

static int64_t clock_ns(clockid_t clock)
{
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t default_wall_ns(void *context)
{
  (void)context;
  return clock_ns(CLOCK_REALTIME);
}

static int64_t default_monotonic_ns(void *context)
{
  (void)context;
  return clock_ns(CLOCK_MONOTONIC);
}

static void default_entropy(void *context, void *out, size_t n)
{
  (void)context;
  enum { AT_ONCE = 256 }; /* getentropy gives no more */
  unsigned char *at = out;
  while (n > 0) {
    size_t got = n < AT_ONCE ? n : AT_ONCE;
    if (getentropy(at, got) != 0) { /* a kernel without it: the clock is the best that is left */
      int64_t now = clock_ns(CLOCK_MONOTONIC) ^ (int64_t)(uintptr_t)at;
      got = n < sizeof now ? n : sizeof now;
      memcpy(at, &now, got);
    }
    at += got;
    n -= got;
  }
}

static void default_log(void *context, rv_log_level level, const char *line)
{
  (void)context;
  static const char *const names[] = {"debug", "info", "warning", "error"};
  fprintf(stderr, "reverie: %s: %s\n", names[level], line);
}

void rv_env_default(rv_env *out)
{
  *out = (rv_env){.size = sizeof *out,
                  .wall_ns = default_wall_ns,
                  .monotonic_ns = default_monotonic_ns,
                  .entropy = default_entropy,
                  .log = default_log,
                  .log_level = RV_LOG_WARNING};
}

void rv_env_fill(rv_env *to, const rv_env *from)
{
  rv_env defaults;
  rv_env_default(&defaults);
  if (from == NULL || from->size == 0) {
    *to = defaults;
    return;
  }
  rv_env filled = {0};
  memcpy(&filled, from, from->size < sizeof filled ? from->size : sizeof filled);
  filled.size = sizeof filled;
  if (filled.wall_ns == NULL) filled.wall_ns = defaults.wall_ns;
  if (filled.monotonic_ns == NULL) filled.monotonic_ns = defaults.monotonic_ns;
  if (filled.entropy == NULL) filled.entropy = defaults.entropy;
  if (filled.log == NULL) filled.log = defaults.log;
  *to = filled;
}

int64_t rv_wall_ns(const rv_env *env)
{
  return env->wall_ns(env->context);
}
int64_t rv_monotonic_ns(const rv_env *env)
{
  return env->monotonic_ns(env->context);
}

uint64_t rv_entropy64(const rv_env *env)
{
  uint64_t value = 0;
  env->entropy(env->context, &value, sizeof value);
  return value;
}

void rv_log(const rv_env *env, rv_log_level level, const char *format, ...)
{
  if (level < env->log_level) return;
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  rv_utf8_repair(line); /* cut, or with a path in it, which may have any bytes */
  env->log(env->context, level, line);
}
