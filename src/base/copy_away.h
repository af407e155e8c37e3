/* Copying what this processor does not read again: what is about to go to a disk or a peer from there. Stores that pass its caches
 * do not fetch what they are about to replace, and leave in them what is needed. */
#ifndef RV_BASE_COPY_AWAY_H
#define RV_BASE_COPY_AWAY_H

#include <stddef.h>

/* As memcpy. */
void rv_copy_away(void *to, const void *from, size_t size);

#endif
