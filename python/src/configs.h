/* What reverie.structured_writer.raw_configs returns, as the library takes it. */
#ifndef RV_PYTHON_CONFIGS_H
#define RV_PYTHON_CONFIGS_H

#include "scratch.h"
#include "types.h"

/* The configs of a list, as many as it has; they point into the list and the scratch. NULL with an exception. */
rv_pattern_config *configs_read(core_state *state, scratch *s, PyObject *list);

/* Calls `name` for each leaf of a step with its path, as error messages show it. -1 with an exception. */
typedef rv_code (*config_namer)(void *target, uint32_t column, const char *name, rv_error *err);
int configs_name_columns(const structure_object *step, config_namer name, void *target);

#endif
