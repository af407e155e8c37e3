#include "scratch.h"

struct scratch_block {
  _Alignas(16) scratch_block *next;
};

void scratch_init(scratch *s)
{
  s->held = s->held_inline;
  s->num_held = 0;
  s->held_capacity = SCRATCH_HELD;
  s->used = 0;
  s->blocks = NULL;
}

void scratch_fini(scratch *s)
{
  for (size_t i = 0; i < s->num_held; i++) Py_DECREF(s->held[i]);
  if (s->held != s->held_inline) PyMem_Free(s->held);
  while (s->blocks != NULL) {
    scratch_block *block = s->blocks;
    s->blocks = block->next;
    PyMem_Free(block);
  }
}

/* Room for n references more. */
int scratch_grow(scratch *s, size_t n)
{
  size_t capacity = s->held_capacity * 2;
  while (capacity - s->num_held < n && capacity < (size_t)PY_SSIZE_T_MAX / sizeof(PyObject *) / 2) capacity *= 2;
  PyObject **held = capacity - s->num_held < n ? NULL : PyMem_Malloc(capacity * sizeof *held);
  if (held == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  memcpy(held, s->held, s->num_held * sizeof *held);
  if (s->held != s->held_inline) PyMem_Free(s->held);
  s->held = held;
  s->held_capacity = capacity;
  return 0;
}

int scratch_hold_all(scratch *s, PyObject *const *owned_objects, size_t n)
{
  PyObject **held = scratch_room(s, n);
  if (held == NULL) {
    for (size_t i = 0; i < n; i++) Py_DECREF(owned_objects[i]);
    return -1;
  }
  if (n > 0) memcpy(held, owned_objects, n * sizeof *held);
  s->num_held += n;
  return 0;
}

/* A block of its own. */
void *scratch_alloc_more(scratch *s, size_t count, size_t size)
{
  if (size != 0 && count > ((size_t)PY_SSIZE_T_MAX - 64) / size) {
    PyErr_NoMemory();
    return NULL;
  }
  size_t bytes = (count * size + 15) & ~(size_t)15;
  scratch_block *block = PyMem_Malloc(sizeof *block + bytes);
  if (block == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  block->next = s->blocks;
  s->blocks = block;
  return block + 1;
}
