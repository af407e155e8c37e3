/* Memory for batches, kept between them: fresh pages cost more than the gather that fills them. The pool itself needs no GIL. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "client.h"
#include "convert.h"

#define POOL_SLOTS 32
#define POOL_BYTES ((size_t)1 << 30)
#define HUGE_PAGE ((size_t)1 << 21)

struct pool {
  atomic_size_t refs;
  pthread_mutex_t mutex; /* of all below */
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
  pool *p = calloc(1, sizeof *p);
  if (p == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  atomic_init(&p->refs, 1);
  pthread_mutex_init(&p->mutex, NULL);
  return p;
}

static void drop_slot(pool *p, size_t i)
{
  p->bytes -= p->slot[i].size;
  free(p->slot[i].data);
  p->slot[i].data = NULL;
  p->slot[i].size = 0;
}

pool *pool_ref(pool *p)
{
  if (p != NULL) atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
  return p;
}

void pool_unref(pool *p)
{
  if (p == NULL || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) > 1) return;
  for (size_t i = 0; i < POOL_SLOTS; i++) drop_slot(p, i);
  pthread_mutex_destroy(&p->mutex);
  free(p);
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

static size_t whole_pages(size_t size)
{
  size_t unit = size >= HUGE_PAGE ? HUGE_PAGE : 64;
  return size == 0 ? unit : (size + unit - 1) & ~(unit - 1);
}

static void *take_kept(pool *p, size_t size)
{
  void *data = NULL;
  pthread_mutex_lock(&p->mutex);
  for (size_t i = 0; i < POOL_SLOTS && data == NULL; i++) {
    if (p->slot[i].size != size || p->slot[i].data == NULL) continue;
    data = p->slot[i].data;
    p->slot[i].data = NULL;
    drop_slot(p, i);
  }
  pthread_mutex_unlock(&p->mutex);
  return data;
}

void *pool_take(pool *p, size_t size)
{
  if (size > (size_t)PY_SSIZE_T_MAX) return NULL;
  size = whole_pages(size);
  void *kept = p == NULL ? NULL : take_kept(p, size);
  return kept == NULL ? allocate(size) : kept;
}

void pool_give(pool *p, void *data, size_t size)
{
  size = whole_pages(size);
  if (p == NULL || size > POOL_BYTES) {
    free(data);
    return;
  }
  pthread_mutex_lock(&p->mutex);
  size_t at = 0; /* where the next one looks first */
  while (at < POOL_SLOTS && p->slot[at].data != NULL) at++;
  if (at == POOL_SLOTS) at = p->next;
  drop_slot(p, at);
  while (p->bytes + size > POOL_BYTES) {
    drop_slot(p, p->next);
    p->next = (p->next + 1) % POOL_SLOTS;
  }
  p->slot[at].data = data;
  p->slot[at].size = size;
  p->bytes += size;
  p->next = (at + 1) % POOL_SLOTS;
  pthread_mutex_unlock(&p->mutex);
}

PyObject *buffer_new(core_state *state, pool *p, size_t size, void **data)
{
  buffer_object *self = PyObject_New(buffer_object, state->buffer_type);
  if (self == NULL) return NULL;
  self->size = size;
  self->owner = pool_ref(p);
  self->data = pool_take(p, size);
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
  void *data = NULL;
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
