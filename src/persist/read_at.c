#include "persist/read_at.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

int rv_read_at(int file, void *out, size_t size, off_t at, size_t *got)
{
  *got = 0;
  while (*got < size) {
    ssize_t n = pread(file, (uint8_t *)out + *got, size - *got, at + (off_t)*got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) break;
    *got += (size_t)n;
  }
  return 0;
}
