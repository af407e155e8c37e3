#include "persist/file_cache.h"

#include <fcntl.h>

void rv_file_cache_fetch(int file, uint64_t at, uint64_t size)
{
#ifdef POSIX_FADV_WILLNEED
  (void)posix_fadvise(file, (off_t)at, (off_t)size, POSIX_FADV_WILLNEED);
#elif defined F_RDADVISE
  struct radvisory wanted = {.ra_offset = (off_t)at, .ra_count = (int)size};
  (void)fcntl(file, F_RDADVISE, &wanted);
#else
  (void)file, (void)at, (void)size;
#endif
}

void rv_file_cache_drop(int file, uint64_t at, uint64_t size)
{
#ifdef POSIX_FADV_DONTNEED
  (void)posix_fadvise(file, (off_t)at, (off_t)size, POSIX_FADV_DONTNEED);
#else
  (void)file, (void)at, (void)size;
#endif
}
