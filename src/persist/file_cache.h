/* Advice to the system's cache of files: what will be read soon, and what nobody reads soon. A system that takes none goes by its own guesses. */
#ifndef RV_PERSIST_FILE_CACHE_H
#define RV_PERSIST_FILE_CACHE_H

#include <stdint.h>

void rv_file_cache_fetch(int file, uint64_t at, uint64_t size);
/* What has not reached the disk yet stays. size 0: all from `at` on. */
void rv_file_cache_drop(int file, uint64_t at, uint64_t size);

#endif
