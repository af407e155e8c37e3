#include "persist/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/linux.h"
#include "base/off_streams.h"

#ifdef RV_LINUX
#include <sys/vfs.h>
#endif

static int create(void *context, const char *path)
{
  (void)context;
  return rv_off_streams(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

static uint32_t file_system_of(void *context, int file)
{
  (void)context;
#ifdef RV_LINUX
  struct statfs info;
  return fstatfs(file, &info) == 0 ? (uint32_t)info.f_type : 0;
#else
  (void)file;
  return 0;
#endif
}

static ssize_t write_some(void *context, int file, const struct iovec *pieces, int count)
{
  (void)context;
  return writev(file, pieces, count);
}

static int push_range(void *context, int file, off_t at, off_t size, bool wait)
{
  (void)context;
#ifdef SYNC_FILE_RANGE_WRITE
  unsigned waits = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER;
  return sync_file_range(file, at, size, SYNC_FILE_RANGE_WRITE | (wait ? waits : 0));
#else
  (void)file, (void)at, (void)size, (void)wait;
  errno = ENOSYS;
  return -1;
#endif
}

static int force(int file)
{
#ifdef F_FULLFSYNC /* where fsync leaves what it has written in the disk's own cache */
  if (fcntl(file, F_FULLFSYNC) == 0) return 0;
#endif
  return fsync(file);
}

static int sync_file(void *context, int file)
{
  (void)context;
#ifdef F_FULLFSYNC
  return force(file);
#else
  return fdatasync(file);
#endif
}

static int sync_directory(void *context, const char *path)
{
  (void)context;
  int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return -1;
  int result = force(dir), number = errno;
  close(dir);
  if (result != 0 && (number == EINVAL || number == ENOTSUP)) return 0; /* some file systems have nothing to force there */
  errno = number;
  return result;
}

static int truncate_file(void *context, int file, off_t size)
{
  (void)context;
  return ftruncate(file, size);
}

static int remove_file(void *context, const char *path)
{
  (void)context;
  return unlink(path);
}

static int link_file(void *context, const char *from, const char *to)
{
  (void)context;
  return link(from, to);
}

static int rename_file(void *context, const char *from, const char *to)
{
  (void)context;
  return rename(from, to);
}

const rv_files rv_files_of_system = {.create = create,
                                     .file_system = file_system_of,
                                     .write = write_some,
                                     .push = push_range,
                                     .sync = sync_file,
                                     .sync_directory = sync_directory,
                                     .truncate = truncate_file,
                                     .remove = remove_file,
                                     .link = link_file,
                                     .rename = rename_file};
