#include "base/segarray.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Stands before a block's elements; as large as a cache line, so that they begin on one. */
struct rv_block {
  struct rv_block *next;
};

enum { HEADER = 64, FIRST_LENGTH_MIN = 16, PAGE = 4096 };

bool rv_blocks_free_some(rv_blocks *blocks, size_t n)
{
  while (blocks->first != NULL && n-- > 0) {
    struct rv_block *block = blocks->first;
    blocks->first = block->next;
    free(block);
  }
  return blocks->first != NULL;
}

void rv_blocks_free(rv_blocks *blocks)
{
  rv_blocks_free_some(blocks, SIZE_MAX);
}

void rv_segarray_init(rv_segarray *array, uint32_t element_size, uint8_t fill, uint64_t expected)
{
  *array = (rv_segarray){.element_size = element_size, .fill = fill, .expected = expected};
}

void rv_segarray_fini(rv_segarray *array)
{
  rv_blocks_free(&array->chain);
  free(array->block);
  *array = (rv_segarray){.element_size = array->element_size, .fill = array->fill, .expected = array->expected};
}

static rv_code grow_directory(rv_segarray *array, rv_error *err)
{
  size_t wanted = array->directory_capacity * 2;
  if (array->directory_capacity == 0) wanted = (size_t)(array->expected >> RV_SEGMENT_SHIFT) + 1;
  void **block = wanted <= SIZE_MAX / sizeof *block ? realloc(array->block, wanted * sizeof *block) : NULL;
  if (block == NULL) return rv_fail_memory(err, wanted * sizeof *block);
  array->block = block;
  array->directory_capacity = wanted;
  return RV_OK;
}

static void *add_block(rv_segarray *array, size_t length, rv_error *err)
{
  size_t payload = length * array->element_size;
  size_t size = (HEADER + payload + HEADER - 1) / HEADER * HEADER;
  struct rv_block *block = aligned_alloc(HEADER, size);
  if (block == NULL) {
    rv_fail_memory(err, size);
    return NULL;
  }
  block->next = array->chain.first;
  if (array->chain.first == NULL) array->last = block;
  array->chain.first = block;
  array->memory += size;
  return (char *)block + HEADER;
}

static size_t first_length(const rv_segarray *array, uint64_t n)
{
  size_t length = FIRST_LENGTH_MIN;
  uint64_t wanted = n > array->expected ? n : array->expected;
  while (length < wanted && length < RV_SEGMENT_LENGTH) length *= 2;
  return length;
}

/* Full: room for one more block. */
static rv_code grow_capacity(rv_segarray *array, uint64_t n, rv_error *err)
{
  bool first = array->capacity < RV_SEGMENT_LENGTH;
  size_t length = first ? first_length(array, n) : RV_SEGMENT_LENGTH;
  size_t index = first ? 0 : array->num_blocks;
  if (index == array->directory_capacity && grow_directory(array, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
  void *elements = add_block(array, length, err);
  if (elements == NULL) return RV_RESOURCE_EXHAUSTED;
  if (first && array->length > 0) memcpy(elements, array->block[0], (size_t)array->length * array->element_size);
  array->block[index] = elements;
  array->num_blocks = index + 1;
  array->capacity = first ? length : array->capacity + length;
  return RV_OK;
}

/* Elements to a page: a power of two, so that steps end where blocks do. */
static uint64_t step(const rv_segarray *array)
{
  uint64_t elements = FIRST_LENGTH_MIN;
  while (elements * 2 * array->element_size <= PAGE) elements *= 2;
  return elements;
}

rv_code rv_segarray_grow(rv_segarray *array, uint64_t n, rv_error *err)
{
  while (array->length < n) {
    if (array->length == array->capacity && grow_capacity(array, n, err) != RV_OK) return RV_RESOURCE_EXHAUSTED;
    uint64_t room = array->capacity - array->length, more = step(array);
    if (more > room) more = room;
    char *block = array->block[array->length >> RV_SEGMENT_SHIFT];
    size_t at = (size_t)(array->length & (RV_SEGMENT_LENGTH - 1)) * array->element_size;
    memset(block + at, array->fill, (size_t)more * array->element_size);
    array->length += more;
  }
  return RV_OK;
}

void rv_segarray_clear(rv_segarray *array, rv_blocks *garbage)
{
  if (garbage == NULL) {
    rv_blocks_free(&array->chain);
  } else if (array->chain.first != NULL) {
    array->last->next = garbage->first;
    garbage->first = array->chain.first;
  }
  array->chain.first = array->last = NULL;
  array->num_blocks = 0;
  array->length = array->capacity = 0;
  array->memory = 0;
}

size_t rv_segarray_memory(const rv_segarray *array)
{
  return array->memory + array->directory_capacity * sizeof(void *);
}
