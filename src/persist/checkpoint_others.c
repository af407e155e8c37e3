#include "persist/checkpoint_others.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/linux.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_mark.h"

#ifdef RV_LINUX
#include <sys/sysmacros.h>
#endif

/* 0: nobody can say, as of one on another machine or in another container. */
static long holder_of(const char *mark)
{
  long holder = 0;
#ifdef RV_LINUX
  char line[256];
  struct stat at;
  FILE *locks = stat(mark, &at) == 0 ? fopen("/proc/locks", "re") : NULL;
  while (locks != NULL && holder == 0 && fgets(line, sizeof line, locks) != NULL) {
    unsigned major_number, minor_number;
    unsigned long long inode;
    long process;
    if (sscanf(line, "%*u: FLOCK %*s %*s %ld %x:%x:%llu", &process, &major_number, &minor_number, &inode) == 4 &&
        inode == at.st_ino && major_number == major(at.st_dev) && minor_number == minor(at.st_dev))
      holder = process;
  }
  if (locks != NULL) fclose(locks);
#else
  (void)mark;
#endif
  return holder;
}

static void tell_who(const char *checkpoint, char who[RV_WHO_MAX])
{
  char *mark = rv_path_join(checkpoint, RV_OURS_FILE);
  long holder = mark == NULL ? 0 : holder_of(mark);
  free(mark);
  if (holder == getpid())
    snprintf(who, RV_WHO_MAX, "another server of this process");
  else if (holder > 0)
    snprintf(who, RV_WHO_MAX, "another process (%ld)", holder);
  else
    snprintf(who, RV_WHO_MAX, "another process");
}

bool rv_checkpoint_has_others(const char *root, const char *own, char who[RV_WHO_MAX])
{
  rv_checkpoint_list list;
  bool found = false;
  if (rv_checkpoint_list_read(root, &list, NULL) != RV_OK) return false;
  for (size_t i = 0; i < list.count && !found; i++) {
    char *path = rv_path_join(root, list.entries[i].name);
    if (path != NULL && list.entries[i].ours && list.entries[i].done && (own == NULL || strcmp(path, own) != 0)) {
      rv_checkpoint_mark_release(rv_checkpoint_mark_try(path, &found));
      if (found) tell_who(path, who);
    }
    free(path);
  }
  rv_checkpoint_list_fini(&list);
  return found;
}
