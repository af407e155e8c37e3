/* How much memory there is, and how much of it this process may use. */
#ifndef RV_BASE_MACHINE_MEMORY_H
#define RV_BASE_MACHINE_MEMORY_H

#include <stddef.h>

/* Bytes that the machine has. */
size_t rv_machine_memory(void);
/* The same, or fewer where a control group that the process is in (a container's, say) has a limit. */
size_t rv_machine_memory_allowed(void);
/* The least limit of the groups that the file `groups` names (one like /proc/self/cgroup) and of those above them, in folders below `root` (like
 * /sys/fs/cgroup). SIZE_MAX: none has one, or they cannot be read. */
size_t rv_machine_memory_of_groups(const char *groups, const char *root);

#endif
