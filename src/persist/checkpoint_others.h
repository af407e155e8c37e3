/* Other servers that use a root, by mistake or for as long as they take to end: each holds what it began with or saved last
 * (checkpoint_mark.h). One that has done neither yet is not seen. */
#ifndef RV_PERSIST_CHECKPOINT_OTHERS_H
#define RV_PERSIST_CHECKPOINT_OTHERS_H

#include <stdbool.h>

enum { RV_WHO_MAX = 64 };

/* Has anybody one of our checkpoints there but `own` (a path; NULL: any)? Then `who` says in words which process it is, as far as the system tells.
 * It may be one that only reads. */
bool rv_checkpoint_has_others(const char *root, const char *own, char who[RV_WHO_MAX]);

#endif
