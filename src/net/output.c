#include "net/output.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 << 10, WRITE_PARTS = 128 };

void rv_output_init(rv_output *output, rv_buf **spare)
{
  *output = (rv_output){.spare = spare};
}

/* A reference of this output's. */
static void drop(rv_output *output, rv_buf *owner)
{
  if (*output->spare == NULL && owner->capacity == BLOCK && owner->release == NULL &&
      atomic_load_explicit(&owner->refs, memory_order_acquire) == 1) {
    owner->size = 0;
    *output->spare = owner;
  } else {
    rv_buf_unref(owner);
  }
}

static void drop_block(rv_output *output)
{
  if (output->block != NULL) drop(output, output->block);
  output->block = NULL;
}

void rv_output_fini(rv_output *output)
{
  for (size_t i = 0; i < output->count; i++) rv_buf_unref(output->part[output->head + i].owner);
  rv_buf_unref(output->block);
  free(output->part);
  *output = (rv_output){.spare = output->spare};
}

static bool reserve(rv_output *output)
{
  if (output->head + output->count < output->capacity) return true;
  if (output->head > output->capacity / 2) {
    memmove(output->part, output->part + output->head, output->count * sizeof *output->part);
    output->head = 0;
    return true;
  }
  size_t capacity = output->capacity == 0 ? 16 : output->capacity * 2;
  rv_output_part *grown = realloc(output->part, capacity * sizeof *grown);
  if (grown == NULL) return false;
  output->part = grown;
  output->capacity = capacity;
  return true;
}

static rv_output_part *last(rv_output *output)
{
  return output->count == 0 ? NULL : &output->part[output->head + output->count - 1];
}

static bool add(rv_output *output, rv_buf *owned_owner, const uint8_t *data, size_t size)
{
  if (!reserve(output)) {
    rv_buf_unref(owned_owner);
    return false;
  }
  output->part[output->head + output->count++] = (rv_output_part){.data = data, .size = size, .owner = owned_owner};
  output->bytes += size;
  return true;
}

static bool has_room(const rv_output *output)
{
  return output->block != NULL && output->block->size < BLOCK;
}

static bool take_block(rv_output *output)
{
  drop_block(output);
  output->block = *output->spare;
  *output->spare = NULL;
  if (output->block == NULL) output->block = rv_buf_new(BLOCK);
  return output->block != NULL;
}

/* The last part, if what is copied to the block next stands right behind it; else one that begins there. NULL: out of memory. */
static rv_output_part *part_at_end(rv_output *output)
{
  const uint8_t *end = output->block->data + output->block->size;
  rv_output_part *part = last(output);
  if (part != NULL && part->owner == output->block && part->data + part->size == end) return part;
  return add(output, rv_buf_ref(output->block), end, 0) ? last(output) : NULL;
}

bool rv_output_copy(rv_output *output, const void *data, size_t size)
{
  const uint8_t *from = data;
  while (size > 0) {
    if (!has_room(output) && !take_block(output)) return false;
    rv_output_part *part = part_at_end(output);
    if (part == NULL) return false;
    rv_buf *block = output->block;
    size_t n = BLOCK - block->size < size ? BLOCK - block->size : size;
    memcpy(block->data + block->size, from, n);
    block->size += n;
    part->size += n;
    output->bytes += n;
    from += n;
    size -= n;
  }
  return true;
}

bool rv_output_share(rv_output *output, rv_buf *owner, const uint8_t *data, size_t size)
{
  if (size < RV_OUTPUT_SHARE) return rv_output_copy(output, data, size);
  return add(output, rv_buf_ref(owner), data, size);
}

bool rv_output_give(rv_output *output, rv_buf *owned_owner, const uint8_t *data, size_t size)
{
  if (size >= RV_OUTPUT_SHARE) return add(output, owned_owner, data, size);
  bool copied = rv_output_copy(output, data, size);
  rv_buf_unref(owned_owner);
  return copied;
}

ssize_t rv_output_write(rv_output *output, rv_transport *transport)
{
  struct iovec vec[WRITE_PARTS];
  int count = 0;
  while (count < WRITE_PARTS && (size_t)count < output->count) {
    const rv_output_part *part = &output->part[output->head + (size_t)count];
    vec[count++] = (struct iovec){.iov_base = (void *)(uintptr_t)part->data, .iov_len = part->size};
  }
  ssize_t written = transport->ops->write(transport, vec, count);
  if (written <= 0) return written;
  size_t left = (size_t)written;
  output->bytes -= left;
  while (output->count > 0 && output->part[output->head].size <= left) {
    left -= output->part[output->head].size;
    drop(output, output->part[output->head].owner);
    output->head++;
    output->count--;
  }
  if (left > 0) {
    output->part[output->head].data += left;
    output->part[output->head].size -= left;
  }
  if (output->count == 0) {
    drop_block(output);
    output->head = 0;
    if (output->capacity > 64) {
      free(output->part);
      output->part = NULL;
      output->capacity = 0;
    }
  }
  return written;
}
