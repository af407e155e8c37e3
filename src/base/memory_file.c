#include "base/memory_file.h"

#include <errno.h>

#include "base/linux.h"

#ifdef RV_LINUX

#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/off_streams.h"

/* It must not become shorter while it is mapped: what is missing kills who touches it. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static int open_anew(int fd, int flags)
{
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return open(path, flags | O_CLOEXEC);
}

/* Where the system counts memory before it is used (vm.overcommit_memory = 2), it does not count this, and has none when it is touched. */
static bool memory_is_sure(void)
{
  char mode = '2';
  int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, &mode, 1);
  close(fd);
  return n == 1 && mode != '2';
}

/* Who makes a longer file than he may gets a signal. */
static bool may_be_so_long(size_t size)
{
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= size;
}

int rv_memory_file_new(const char *name, size_t size)
{
  if (!may_be_so_long(size) || !memory_is_sure()) return -ENOTSUP;
  int fd = rv_off_streams(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) return -errno;
  if (ftruncate(fd, (off_t)size) == 0 && fchmod(fd, S_IRUSR | S_IWUSR) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0) return fd;
  int error = errno;
  close(fd);
  return -error;
}

int rv_memory_file_for_readers(int fd)
{
  int reader = open_anew(fd, O_RDONLY);
  return reader >= 0 ? reader : -errno;
}

int rv_memory_file_again(int fd)
{
  int again = rv_off_streams(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  return again >= 0 ? again : -errno;
}

int rv_memory_file_reserve(int fd, uint64_t offset, size_t size)
{
  int failed;
  do failed = fallocate(fd, 0, (off_t)offset, (off_t)size) == 0 ? 0 : errno;
  while (failed == EINTR);
  return -failed;
}

size_t rv_memory_file_size(int fd)
{
  struct stat info;
  struct statfs kind;
  int seals = fcntl(fd, F_GET_SEALS);
  bool sealed = seals >= 0 && (seals & SEALS) == SEALS;
  if (!sealed || fstatfs(fd, &kind) != 0 || kind.f_type != TMPFS_MAGIC || fstat(fd, &info) != 0 || info.st_size < 0) return 0;
  return (size_t)info.st_size; /* of others, such as those of huge pages, there may be none when they are touched */
}

#else

int rv_memory_file_new(const char *name, size_t size)
{
  (void)name, (void)size;
  return -ENOTSUP;
}

int rv_memory_file_for_readers(int fd)
{
  (void)fd;
  return -ENOTSUP;
}

int rv_memory_file_again(int fd)
{
  (void)fd;
  return -ENOTSUP;
}

int rv_memory_file_reserve(int fd, uint64_t offset, size_t size)
{
  (void)fd, (void)offset, (void)size;
  return -ENOTSUP;
}

size_t rv_memory_file_size(int fd)
{
  (void)fd;
  return 0;
}

#endif
