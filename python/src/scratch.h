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
/* For those below: */
int scratch_grow(scratch *s, size_t n);
void *scratch_alloc_more(scratch *s, size_t count, size_t size);

/* Keeps the reference until scratch_fini; -1 with MemoryError (the reference is then dropped). NULL is passed on as -1. */
static inline int scratch_hold(scratch *s, PyObject *owned_object)
{
  if (owned_object == NULL) return -1;
  if (s->num_held == s->held_capacity && scratch_grow(s, 1) < 0) {
    Py_DECREF(owned_object);
    return -1;
  }
  s->held[s->num_held++] = owned_object;
  return 0;
}

/* The same of n references, in order; on -1 all of them are dropped. */
int scratch_hold_all(scratch *s, PyObject *const *owned_objects, size_t n);

/* Where n references more may be written, which are held once num_held counts them. The next that is held may move them. NULL with
 * MemoryError. */
static inline PyObject **scratch_room(scratch *s, size_t n)
{
  return n <= s->held_capacity - s->num_held || scratch_grow(s, n) == 0 ? s->held + s->num_held : NULL;
}

/* `count` elements of `size` bytes, 16-aligned, not zeroed; NULL with MemoryError. */
static inline void *scratch_alloc(scratch *s, size_t count, size_t size)
{
  if (count > SCRATCH_BYTES || size > SCRATCH_BYTES) return scratch_alloc_more(s, count, size);
  size_t bytes = (count * size + 15) & ~(size_t)15;
  if (bytes > SCRATCH_BYTES - s->used) return scratch_alloc_more(s, count, size);
  void *out = s->bytes + s->used;
  s->used += bytes;
  return out;
}

#endif
