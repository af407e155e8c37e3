/* Memory for blocks that may be large. From 2 MiB on they are mapped by themselves: in huge pages, where the system has them, so that
 * reading from random places costs one look into the page tables instead of several; and given back to the system when they are
 * freed, so that a program that runs for months does not grow by the gaps between them. */
#ifndef RV_BASE_PAGES_H
#define RV_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RV_HUGE_PAGE = 1 << 21 };

/* What a block of `size` bytes takes: whole cache lines, and whole huge pages where at most an eighth more than `size` is lost by that. 0 on
 * overflow. */
size_t rv_pages_size(size_t size);
/* A block of rv_pages_size(size) bytes that begins on a cache line; NULL: memory is out. */
void *rv_pages_alloc(size_t size);
/* With the size that it was made for; NULL is fine. */
void rv_pages_free(void *block, size_t size);
/* The system finds memory for all of a block that nobody has written to, a page at a time, so that whoever writes there first does not wait for it: it
 * clears a huge page in a third of a millisecond, and where a virtual machine's host has to find it first in several. What is there is lost. */
void rv_pages_touch(void *block, size_t size);
/* Addresses for whole pages that begin at a multiple of `to`, whole pages too, with PROT_... `how`: memory that nobody has touched, or with PROT_NONE
 * room for maps. To be unmapped. NULL: there are none. */
void *rv_pages_map(size_t bytes, size_t to, int how);
/* Of the bytes from `at` on those that are whole pages of `page` bytes (a power of two): how many bytes, and how far behind `at` the first is. */
size_t rv_pages_whole(uintptr_t at, size_t size, size_t page, size_t *skip);
/* The system takes back the memory of a shared map: of its pages that lie there with all their bytes, which are zero from then on; it would take those
 * that lie there in part, too, and with them what is others'. False: there is none, or it takes none. */
bool rv_pages_drop_shared(void *bytes, size_t size);

#endif
