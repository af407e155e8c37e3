/* Memory that malloc is about to give, taken from the system ahead by a thread.
 *
 * Of what is read from a file at gigabytes a second, finding and clearing the pages that it comes to lie in costs as much as all that is done with it. It is no
 * work of whoever reads: a thread has malloc's next pages taken while he uses those before. Blocks of them go through malloc and free, so nothing else knows of
 * this, and where no thread can be had all goes on as without. One thread uses it. */
#ifndef RV_PERSIST_WARM_MEMORY_H
#define RV_PERSIST_WARM_MEMORY_H

#include <stddef.h>

#include "persist/follower.h"

enum { RV_WARM_BLOCKS = 8 };

typedef struct rv_warm_memory {
  size_t left;                  /* bytes that may be needed until more are taken */
  void *blocks[RV_WARM_BLOCKS]; /* each has the number that is its place modulo RV_WARM_BLOCKS */
  uint64_t made;                /* blocks */
  rv_follower taker;
} rv_warm_memory;

void rv_warm_memory_init(rv_warm_memory *warm);
/* So many bytes are about to be allocated, in small parts that stay. */
void rv_warm_memory_need(rv_warm_memory *warm, size_t size);
void rv_warm_memory_fini(rv_warm_memory *warm);

#endif
