#include "base/machine_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where a kind of control group keeps its limit. */
typedef struct group_kind {
  const char *controller; /* in the list of a line of /proc/self/cgroup; "": there is none, which is the newer kind */
  const char *folder, *file;
} group_kind;

static const group_kind kinds[] = {{"", "", "memory.max"},
                                   {"", "/unified", "memory.max"} /* beside older ones */,
                                   {"memory", "/memory", "memory.limit_in_bytes"}};

enum { LINE = PATH_MAX + 256 };

/* A number of bytes; "max", and what cannot be read, is none. */
static size_t read_limit(const char *path)
{
  char text[32];
  FILE *file = fopen(path, "re");
  if (file == NULL) return SIZE_MAX;
  char *end = text;
  unsigned long long bytes = fgets(text, sizeof text, file) == NULL ? 0 : strtoull(text, &end, 10);
  fclose(file);
  return end == text || bytes > SIZE_MAX ? SIZE_MAX : (size_t)bytes;
}

/* Of a group and all above it. In a container its name may be the machine's, whose folder is not there; that of the root is. */
static size_t least_above(const group_kind *kind, const char *root, const char *name)
{
  size_t least = SIZE_MAX;
  for (size_t length = strlen(name);; length--) {
    if (length > 0 && name[length] != '/' && name[length] != '\0') continue;
    char path[LINE + 64];
    int n = snprintf(path, sizeof path, "%s%s%.*s/%s", root, kind->folder, (int)length, name, kind->file);
    size_t limit = n > 0 && (size_t)n < sizeof path ? read_limit(path) : SIZE_MAX;
    if (limit < least) least = limit;
    if (length == 0) return least;
  }
}

static bool is_among(const char *controllers, const char *wanted)
{
  size_t length = strlen(wanted);
  if (length == 0) return controllers[0] == '\0';
  for (const char *at = controllers; at != NULL; at = strchr(at, ',')) {
    if (*at == ',') at++;
    if (strncmp(at, wanted, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
  }
  return false;
}

/* A line "number:controllers:/name". */
static size_t limit_of_line(char *line, const char *root)
{
  size_t least = SIZE_MAX;
  line[strcspn(line, "\n")] = '\0';
  char *controllers = strchr(line, ':'), *name = controllers == NULL ? NULL : strchr(controllers + 1, ':');
  if (name == NULL) return SIZE_MAX;
  controllers++;
  *name++ = '\0';
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!is_among(controllers, kinds[i].controller)) continue;
    size_t limit = least_above(&kinds[i], root, name);
    if (limit < least) least = limit;
  }
  return least;
}

size_t rv_machine_memory_of_groups(const char *groups, const char *root)
{
  size_t least = SIZE_MAX;
  char line[LINE];
  FILE *file = fopen(groups, "re");
  if (file == NULL) return SIZE_MAX;
  while (fgets(line, sizeof line, file) != NULL) {
    size_t limit = limit_of_line(line, root);
    if (limit < least) least = limit;
  }
  fclose(file);
  return least;
}

size_t rv_machine_memory(void)
{
  return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

size_t rv_machine_memory_allowed(void)
{
  size_t machine = rv_machine_memory(), groups = rv_machine_memory_of_groups("/proc/self/cgroup", "/sys/fs/cgroup");
  return groups < machine ? groups : machine;
}
