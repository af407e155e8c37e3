#include "base/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL: a file. */
static const char *kind_of(mode_t mode)
{
  if (S_ISREG(mode)) return NULL;
  return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static int open_one(const char *path, bool any, const char **instead)
{
  struct stat found;
  *instead = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), error = errno;
  bool known = (fd >= 0 ? fstat(fd, &found) : stat(path, &found)) == 0; /* a socket cannot even be opened */
  if (known) *instead = kind_of(found.st_mode);
  if (fd >= 0 && (*instead == NULL || (any && !S_ISDIR(found.st_mode)))) return fd;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

int rv_plain_file_open(const char *path, const char **instead)
{
  return open_one(path, false, instead);
}

int rv_plain_file_open_any(const char *path, const char **instead)
{
  return open_one(path, true, instead);
}
