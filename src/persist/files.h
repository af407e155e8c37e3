/* Files as the journal and checkpoints change them, so that tests can let any call fail. Each returns what the system's function does, with errno.
 * `write` and `push` are called by a thread for each file that is written (out_file.h). */
#ifndef RV_PERSIST_FILES_H
#define RV_PERSIST_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef struct rv_files {
  int (*create)(void *context, const char *path);   /* for writing; it must not be there */
  uint32_t (*file_system)(void *context, int file); /* its kind, as statfs says it (f_type); 0: not known */
  ssize_t (*write)(void *context, int file, const struct iovec *pieces, int count);
  /* Has so much from `at` on its way from the cache to the disk, and waits until it is there where `wait` is set. A wait that fails takes away
   * from `sync` what could not be written: the system tells it once. */
  int (*push)(void *context, int file, off_t at, off_t size, bool wait);
  int (*sync)(void *context, int file);
  int (*sync_directory)(void *context, const char *path);
  int (*truncate)(void *context, int file, off_t size);
  int (*remove)(void *context, const char *path);
  int (*link)(void *context, const char *from, const char *to);
  int (*rename)(void *context, const char *from, const char *to);
  void *context;
} rv_files;

extern const rv_files rv_files_of_system;

#endif
