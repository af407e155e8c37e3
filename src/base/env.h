/* The environment with every function filled in, and short ways to use it. */
#ifndef RV_BASE_ENV_H
#define RV_BASE_ENV_H

#include "reverie/env.h"

/* Copies `from` (which may be NULL, or from an older, shorter rv_env) and fills in defaults. */
void rv_env_fill(rv_env *to, const rv_env *from);

int64_t rv_wall_ns(const rv_env *env);
int64_t rv_monotonic_ns(const rv_env *env);
uint64_t rv_entropy64(const rv_env *env);

/* Formats only when the level is wanted. */
void rv_log(const rv_env *env, rv_log_level level, const char *format, ...) RV_PRINTF(3, 4);

#endif
