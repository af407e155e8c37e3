/* Memory for blocks that may be large: from 2 MiB on in huge pages, where the system has them, so that reading from random
 * places costs one look into the page tables instead of several. */
#ifndef RV_BASE_PAGES_H
#define RV_BASE_PAGES_H

#include <stddef.h>

enum { RV_HUGE_PAGE = 1 << 21 };

/* What a block of `size` bytes takes: whole cache lines, and whole huge pages where at most an eighth more than `size` is lost by that. 0 on
 * overflow. */
size_t rv_pages_size(size_t size);
/* A block of rv_pages_size(size) bytes that begins on a cache line; NULL: memory is out. Freed by free(). */
void *rv_pages_alloc(size_t size);

#endif
