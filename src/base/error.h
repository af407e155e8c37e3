/* Filling an rv_error. */
#ifndef RV_BASE_ERROR_H
#define RV_BASE_ERROR_H

#include <stdarg.h>

#include "reverie/status.h"

/* Writes the sentence (as UTF-8, whatever it names: rv_utf8_repair) into err, which may be NULL, and returns code, so that a function can end with
 * `return rv_fail(err, RV_NOT_FOUND, "table \"%s\" does not exist", name);` */
rv_code rv_fail(rv_error *err, rv_code code, const char *format, ...) RV_PRINTF(3, 4);
rv_code rv_vfail(rv_error *err, rv_code code, const char *format, va_list args) RV_PRINTF(3, 0);

/* The sentence for an allocation of `bytes` (0: not known how many) that failed: RV_RESOURCE_EXHAUSTED. */
rv_code rv_fail_memory(rv_error *err, size_t bytes);

/* Copies `from` to `to`, which may be NULL, and returns its code. */
rv_code rv_error_copy(rv_error *to, const rv_error *from);

/* What the system says of an error of its own (an errno), in English. A string that lasts. */
const char *rv_system_error(int number);

/* Puts "context: " before the sentence. */
void rv_error_prefix(rv_error *err, const char *format, ...) RV_PRINTF(2, 3);

#endif
