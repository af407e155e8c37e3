/* An array that grows in blocks which never move, so that no single step copies or touches all of it: element i stands at
 * block[i / 4096][i % 4096]. Only the directory of blocks (8 bytes for 4096 elements) is ever reallocated, and not even that
 * while the array stays within the number of elements it was made for. A block's memory is touched page by page as it fills,
 * since the kernel takes its time over each page that is new. Clearing takes constant time: the blocks leave as one chain that
 * the caller frees later, outside its lock. */
#ifndef RV_BASE_SEGARRAY_H
#define RV_BASE_SEGARRAY_H

#include "reverie/status.h"

enum { RV_SEGMENT_SHIFT = 12, RV_SEGMENT_LENGTH = 1 << RV_SEGMENT_SHIFT };

/* Blocks that nobody uses any more, chained. {0} is an empty chain. */
typedef struct rv_blocks {
  struct rv_block *first;
} rv_blocks;

/* Frees them all, however many; not under a lock. */
void rv_blocks_free(rv_blocks *blocks);
/* Frees at most `n`; false when nothing is left. For whoever frees in slices. */
bool rv_blocks_free_some(rv_blocks *blocks, size_t n);

typedef struct rv_segarray {
  void **block; /* num_blocks of directory_capacity are there, each 64-byte aligned */
  size_t num_blocks, directory_capacity;
  uint64_t length;   /* elements that exist; a page's worth at a time */
  uint64_t capacity; /* elements that the blocks have room for */
  uint64_t expected;
  rv_blocks chain;       /* all blocks, newest first */
  struct rv_block *last; /* of the chain */
  size_t memory;
  uint32_t element_size;
  uint8_t fill; /* every byte of a new element */
} rv_segarray;

/* Takes no memory yet. `expected` elements will do without growing the directory; more are fine. Where fewer than a block's
 * are expected the first block is smaller: growing past the expectation then copies it (at most 4096 elements) and keeps the
 * old one until the array is cleared. */
void rv_segarray_init(rv_segarray *array, uint32_t element_size, uint8_t fill, uint64_t expected);
void rv_segarray_fini(rv_segarray *array);
/* Makes elements [0, n) exist; new ones hold the fill byte. RV_RESOURCE_EXHAUSTED: those that were there stay. */
rv_code rv_segarray_grow(rv_segarray *array, uint64_t n, rv_error *err);
/* Empties the array; its blocks join `garbage`, or are freed at once where that is NULL. */
void rv_segarray_clear(rv_segarray *array, rv_blocks *garbage);
size_t rv_segarray_memory(const rv_segarray *array);

/* Element i of an array of `type`; i must be below the array's length. */
#define RV_SEGARRAY_AT(array, type, i) (&((type *)(array)->block[(i) >> RV_SEGMENT_SHIFT])[(i) & (RV_SEGMENT_LENGTH - 1)])

#endif
