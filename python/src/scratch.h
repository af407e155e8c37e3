/* What one call needs until it returns: references that keep its arguments' memory alive while the GIL is released, and bytes.
 * Small calls live on the stack. */
#ifndef RV_PYTHON_SCRATCH_H
#define RV_PYTHON_SCRATCH_H

#include "core.h"

#define SCRATCH_HELD 24
#define SCRATCH_BYTES 768

typedef struct scratch_block scratch_block;

typedef struct scratch {
  PyObject **held;
  size_t num_held, held_capacity;
  size_t used;
  scratch_block *blocks;
  PyObject *held_inline[SCRATCH_HELD];
  _Alignas(16) unsigned char bytes[SCRATCH_BYTES];
} scratch;

void scratch_init(scratch *s);
void scratch_fini(scratch *s); /* with the GIL */
/* Keeps the reference until scratch_fini; -1 with MemoryError (the reference is then dropped). NULL is passed on as -1. */
int scratch_hold(scratch *s, PyObject *owned_object);
/* `count` elements of `size` bytes, 16-aligned, not zeroed; NULL with MemoryError. */
void *scratch_alloc(scratch *s, size_t count, size_t size);

#endif
