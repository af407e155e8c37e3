/* How much memory this process may use. */
#ifndef RV_BASE_MEMORY_LIMIT_H
#define RV_BASE_MEMORY_LIMIT_H

#include <stddef.h>

/* Bytes of the machine's memory. */
size_t rv_memory_of_machine(void);
/* The same, or fewer where a control group that the process is in (a container's, say) has a limit. What the system has lent to others is not asked. */
size_t rv_memory_limit(void);
/* The least limit of the groups that `groups` names (a path, of a file like /proc/self/cgroup) and of those above them, which lie below `root` (like
 * /sys/fs/cgroup). SIZE_MAX: none has one, or they cannot be read. */
size_t rv_memory_limit_of_groups(const char *groups, const char *root);

#endif
