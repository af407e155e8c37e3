#include "base/off_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int rv_off_streams(int fd)
{
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
  close(fd);
  errno = error;
  return other;
}
