/* The names in a directory, all read before the first is looked at: a directory that cannot be read to its end has an error, not fewer names. */
#ifndef RV_PERSIST_DIR_NAMES_H
#define RV_PERSIST_DIR_NAMES_H

#include <stddef.h>

#include "reverie/reverie.h"

typedef struct rv_dir_names {
  char **names;
  size_t count;
} rv_dir_names;

/* In no order, without "." and ".."; none where there is no such directory. RV_RESOURCE_EXHAUSTED: no memory; other errors are the
 * system's, and name the directory. */
rv_code rv_dir_names_read(const char *path, rv_dir_names *out, rv_error *err);
void rv_dir_names_fini(rv_dir_names *names); /* fine after an error, too */

#endif
