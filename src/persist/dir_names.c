#include "persist/dir_names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "persist/record_file.h"

static rv_code add(rv_dir_names *names, const char *name, rv_error *err)
{
  char **grown = realloc(names->names, (names->count + 1) * sizeof *grown);
  if (grown == NULL) return rv_fail_memory(err, (names->count + 1) * sizeof *grown);
  names->names = grown;
  grown[names->count] = strdup(name);
  if (grown[names->count] == NULL) return rv_fail_memory(err, strlen(name) + 1);
  names->count++;
  return RV_OK;
}

static rv_code read_all(DIR *dir, const char *path, rv_dir_names *out, rv_error *err)
{
  rv_code code = RV_OK;
  const struct dirent *entry;
  while (code == RV_OK && (errno = 0, entry = readdir(dir)) != NULL)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) code = add(out, entry->d_name, err);
  return code == RV_OK && errno != 0 ? rv_fail_system(err, errno, "read the directory", path) : code;
}

/* By open() and not by opendir(): the thread sanitizer knows of descriptors that open() gave. It does not see libuv close one (a bare
 * system call), and takes closedir() of the same number for a race with whoever had it before. */
rv_code rv_dir_names_read(const char *path, rv_dir_names *out, rv_error *err)
{
  *out = (rv_dir_names){.count = 0};
  int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT ? RV_OK : rv_fail_system(err, errno, "read the directory", path);
  DIR *dir = fdopendir(file);
  if (dir == NULL) {
    rv_code code = rv_fail_system(err, errno, "read the directory", path);
    close(file);
    return code;
  }
  rv_code code = read_all(dir, path, out, err);
  closedir(dir);
  if (code != RV_OK) rv_dir_names_fini(out);
  return code;
}

void rv_dir_names_fini(rv_dir_names *names)
{
  for (size_t i = 0; i < names->count; i++) free(names->names[i]);
  free(names->names);
  *names = (rv_dir_names){.count = 0};
}
