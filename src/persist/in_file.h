/* A file that is read from its beginning to its end, a MiB at a time, past the system's cache where it can be. Of a large one a thread has the next pieces on their
 * way from the disk while those before are used: what reading and using take is not added up. */
#ifndef RV_PERSIST_IN_FILE_H
#define RV_PERSIST_IN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reverie/status.h"

typedef struct rv_in_file rv_in_file;

rv_code rv_in_file_new(const char *path, rv_in_file **out, rv_error *err);
/* The next bytes, borrowed until the next call. *size is 0 at the end, and from then on. What was read before an error is given before it is told. */
rv_code rv_in_file_next(rv_in_file *file, const uint8_t **data, size_t *size, rv_error *err);
bool rv_in_file_is_large(const rv_in_file *file); /* enough for threads to be worth starting */
void rv_in_file_free(rv_in_file *file);           /* NULL is fine */

#endif
