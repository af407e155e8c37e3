/* Memory for batches, kept between them: fresh pages cost more than the gather that fills them. Everything under the GIL. */
#include <sys/mman.h>

#include "client.h"
#include "convert.h"

#define POOL_SLOTS 32
#define POOL_BYTES ((size_t)1 << 30)
#define HUGE_PAGE ((size_t)1 << 21)

struct pool {
  size_t refs;
  size_t bytes;
  size_t next; /* the slot to be replaced when all are taken */
  struct {
    void *data;
    size_t size;
  } slot[POOL_SLOTS];
};

typedef struct buffer_object {
  PyObject_HEAD
  pool *owner;
  void *data;
  size_t size;
} buffer_object;

pool *pool_new(void)
{
  pool *p = PyMem_Calloc(1, sizeof *p);
  if (p == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  p->refs = 1;
  return p;
}

static void drop_slot(pool *p, size_t i)
{
  p->bytes -= p->slot[i].size;
  free(p->slot[i].data);
  p->slot[i].data = NULL;
  p->slot[i].size = 0;
}

void pool_unref(pool *p)
{
  if (p == NULL || --p->refs > 0) return;
  for (size_t i = 0; i < POOL_SLOTS; i++) drop_slot(p, i);
  PyMem_Free(p);
}

/* Large ones in huge pages, where the system has them: they are touched for the first time in a tenth of the time. */
static void *allocate(size_t size)
{
#ifdef MADV_HUGEPAGE
  if (size >= HUGE_PAGE) {
    void *data = aligned_alloc(HUGE_PAGE, size);
    if (data != NULL) madvise(data, size, MADV_HUGEPAGE);
    return data;
  }
#endif
  return aligned_alloc(64, size);
}

static void *pool_take(pool *p, size_t size)
{
  for (size_t i = 0; p != NULL && i < POOL_SLOTS; i++) {
    if (p->slot[i].size != size || p->slot[i].data == NULL) continue;
    void *data = p->slot[i].data;
    p->slot[i].data = NULL;
    drop_slot(p, i);
    return data;
  }
  return allocate(size);
}

static void pool_give(pool *p, void *data, size_t size)
{
  if (p == NULL || size > POOL_BYTES) {
    free(data);
    return;
  }
  size_t at = p->next;
  for (size_t i = 0; i < POOL_SLOTS; i++) {
    if (p->slot[i].data == NULL) at = i;
  }
  drop_slot(p, at);
  while (p->bytes + size > POOL_BYTES) {
    drop_slot(p, p->next);
    p->next = (p->next + 1) % POOL_SLOTS;
  }
  p->slot[at].data = data;
  p->slot[at].size = size;
  p->bytes += size;
  p->next = (at + 1) % POOL_SLOTS;
}

PyObject *buffer_new(core_state *state, pool *p, size_t size, void **data)
{
  buffer_object *self = PyObject_New(buffer_object, state->buffer_type);
  if (self == NULL) return NULL;
  size_t unit = size >= HUGE_PAGE ? HUGE_PAGE : 64;
  self->size = (size + unit - 1) & ~(unit - 1);
  if (self->size == 0) self->size = 64;
  self->owner = p;
  self->data = size > (size_t)PY_SSIZE_T_MAX ? NULL : pool_take(p, self->size);
  if (p != NULL) p->refs++;
  if (self->data == NULL) {
    Py_DECREF((PyObject *)self);
    return PyErr_Format(PyExc_MemoryError, "%zu bytes for sampled data could not be allocated; lower batch_size, or add memory",
                        size);
  }
  *data = self->data;
  return (PyObject *)self;
}

PyArrayObject *result_array(core_state *state, pool *p, size_t pooled, rv_dtype dtype, uint32_t rank, const int64_t *shape,
                            size_t bytes)
{
  if (p == NULL || dtype == RV_STRING || bytes < pooled || state->descr[dtype & (CORE_DTYPES - 1)] == NULL)
    return array_new(state, dtype, rank, shape);
  void *data;
  PyObject *buffer = buffer_new(state, p, bytes, &data);
  if (buffer == NULL) return NULL;
  PyArrayObject *array = array_over(state, dtype, rank, shape, data, buffer, true);
  Py_DECREF(buffer);
  return array;
}

static void buffer_dealloc(PyObject *object)
{
  buffer_object *self = (buffer_object *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->data != NULL) pool_give(self->owner, self->data, self->size);
  pool_unref(self->owner);
  PyObject_Free(object);
  Py_DECREF((PyObject *)type);
}

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc, "Memory that arrays lie in; given back for the next batch when the last of them goes."},
    {Py_tp_dealloc, CORE_SLOT(buffer_dealloc)},
    {0, NULL}};

PyType_Spec buffer_spec = {
    .name = "reverie._core.Buffer",
    .basicsize = sizeof(buffer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};
