#include "net/output.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 << 10, WRITE_PARTS = 128 };

void rv_output_init(rv_output *output, rv_buf **spare)
{
  *output = (rv_output){.spare = spare};
}

static void drop(rv_output *output, rv_buf *block)
{
  if (*output->spare == NULL && block->capacity == BLOCK && block->release == NULL &&
      atomic_load_explicit(&block->refs, memory_order_acquire) == 1) {
    block->size = 0;
    *output->spare = block;
  } else {
    rv_buf_unref(block);
  }
}

void rv_output_fini(rv_output *output)
{
  for (size_t i = 0; i < output->count; i++) rv_buf_unref(output->part[output->head + i].owner);
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

bool rv_output_copy(rv_output *output, const void *data, size_t size)
{
  const uint8_t *from = data;
  while (size > 0) {
    rv_output_part *part = last(output);
    bool own = part != NULL && part->owner->capacity == BLOCK &&
               part->data + part->size == part->owner->data + part->owner->size && part->owner->size < BLOCK &&
               part->owner->release == NULL && atomic_load_explicit(&part->owner->refs, memory_order_relaxed) == 1;
    if (!own) {
      rv_buf *block = *output->spare;
      *output->spare = NULL;
      if (block == NULL) block = rv_buf_new(BLOCK);
      if (block == NULL || !add(output, block, block->data, 0)) return false;
      part = last(output);
    }
    rv_buf *block = part->owner;
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
    output->head = 0;
    if (output->capacity > 64) {
      free(output->part);
      output->part = NULL;
      output->capacity = 0;
    }
  }
  return written;
}
