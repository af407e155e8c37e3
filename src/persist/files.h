/* Files as the journal and checkpoints change them, so that tests can let any call fail. Each returns what the system's function does, with errno. */
#ifndef RV_PERSIST_FILES_H
#define RV_PERSIST_FILES_H

#include <sys/types.h>
#include <sys/uio.h>

typedef struct rv_files {
  int (*create)(void *context, const char *path); /* for writing; it must not be there */
  ssize_t (*write)(void *context, int file, const struct iovec *pieces, int count);
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
