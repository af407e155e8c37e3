/* Writing to the disk past the system's cache (O_DIRECT on Linux): what nobody reads soon takes neither the place of others' pages there nor
 * the processor time that finding, copying to and dropping pages takes. Memory, place in the file and size of what is written so must
 * be multiples of RV_PAST_CACHE_ALIGNED. A file system that cannot do it says so when it is wanted, or by EINVAL when something is written.
 *
 * On a file system whose server is elsewhere it is no gain: each piece is a request whose answer is waited for, and many a server forces each
 * to its disk, where the cache sends many at a time and has them forced together. */
#ifndef RV_PERSIST_PAST_CACHE_H
#define RV_PERSIST_PAST_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum { RV_PAST_CACHE_ALIGNED = 4096 };

/* Whether files of such a file system (rv_files.file_system) are better off past the cache. */
bool rv_past_cache_is_gain(uint32_t file_system);
/* From the next write on; false: it cannot be. */
bool rv_past_cache_set(int file, bool wanted);

#endif
