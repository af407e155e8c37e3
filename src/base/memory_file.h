/* Files without a name whose bytes are memory, for processes that map it together. */
#ifndef RV_BASE_MEMORY_FILE_H
#define RV_BASE_MEMORY_FILE_H

#include <stddef.h>
#include <stdint.h>

/* A new one, of `size` bytes for good: what of it nobody has touched takes no memory. The name is for people who look at a process's maps. Its descriptor is the caller's; or a negated errno.
 * -ENOTSUP: this system may have no memory when it is touched, and then kills who touches it, or has no such files. */
int rv_memory_file_new(const char *name, size_t size);
/* The same file for reading only; or a negated errno. Who is not this process's user cannot write to it by that. */
int rv_memory_file_for_readers(int fd);
/* Another descriptor of one, which is the caller's; or a negated errno. */
int rv_memory_file_again(int fd);
/* There is memory behind all of those bytes from now on, of the caller's: that the system charges him with, and on his node of the machine. Nobody has it
 * mapped by that, which would cost more than to have it. 0, or a negated errno. */
int rv_memory_file_reserve(int fd, uint64_t offset, size_t size);
/* Its size, where it is such a file, which cannot become shorter while it is mapped; 0: it is none. */
size_t rv_memory_file_size(int fd);

#endif
