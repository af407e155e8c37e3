/* Three operations, registered through TensorFlow's C API.
 *
 * ReverieSamples writes the next block of a source into tensors, without Python, its GIL, and an array in between, and says whether it found
 * any samples; at the end it fails with OUT_OF_RANGE, which ends a dataset that is mapped by it. ReverieFilledSamples does the same, but ends,
 * too, before a block with a column without elements, which it leaves to ReverieSamples: TensorFlow's unbatch cannot have it. ReverieCheck
 * fails with the code that it is given, so that what Python code in a graph raises keeps its kind.
 *
 * Each kernel finds TensorFlow's functions for itself, when TensorFlow makes it: there is no static state. */
#include "tf_ops.h"

#include <pthread.h>
#include <stdio.h>

#include "tf_api.h"

enum { FOUND = 0, FIRST_INFO, FIRST_COLUMN = FIRST_INFO + TF_INFOS };
#define OWN_MEMORY_BYTES CLIENT_SMALL_BYTES /* from here on a tensor's memory comes from our pool */

typedef struct kernel {
  tf_api api;
  pthread_mutex_t mutex; /* of the two below */
  tf_source *source;     /* the one read last; NULL: none */
  int64_t number;
} kernel;

static void *kernel_create(TF_OpKernelConstruction *construction)
{
  (void)construction;
  kernel *self = calloc(1, sizeof *self);
  const char *missing;
  if (self == NULL || !tf_api_find(&self->api, &missing)) { /* it was found at registration */
    free(self);
    return NULL;
  }
  pthread_mutex_init(&self->mutex, NULL);
  return self;
}

static void kernel_delete(void *object)
{
  kernel *self = object;
  if (self == NULL) return;
  tf_source_unref(self->source);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

/* ---- one call of a kernel ---- */

typedef struct run {
  const tf_api *api;
  TF_OpKernelContext *context;
  TF_Status *status;
} run;

static bool begin(run *r, const kernel *self, TF_OpKernelContext *context)
{
  if (self == NULL) return false; /* TensorFlow says that the kernel's outputs are missing */
  *r = (run){.api = &self->api, .context = context, .status = self->api.NewStatus()};
  return r->status != NULL;
}

static void end(const run *r)
{
  if (r->api->GetCode(r->status) != RV_OK) r->api->OpKernelContext_Failure(r->context, r->status);
  r->api->DeleteStatus(r->status);
}

static bool failed(const run *r)
{
  return r->api->GetCode(r->status) != RV_OK;
}

/* Copies `size` bytes of input `i` out. */
static void read_input(const run *r, int i, void *out, size_t size)
{
  TF_Tensor *tensor = NULL;
  r->api->GetInput(r->context, i, &tensor, r->status);
  if (failed(r)) return;
  if (r->api->TensorByteSize(tensor) < size)
    r->api->SetStatus(r->status, RV_INVALID_ARGUMENT, "an input is shorter than it should be");
  else
    memcpy(out, r->api->TensorData(tensor), size);
  r->api->DeleteTensor(tensor);
}

/* ---- ReverieCheck ---- */

static void fail_with_text(const run *r, int code)
{
  TF_Tensor *tensor = NULL;
  rv_error err;
  r->api->GetInput(r->context, 1, &tensor, r->status);
  if (failed(r)) return;
  size_t size = r->api->TensorByteSize(tensor);
  if (size >= sizeof err.message) size = sizeof err.message - 1;
  memcpy(err.message, r->api->TensorData(tensor), size);
  err.message[size] = '\0';
  r->api->DeleteTensor(tensor);
  r->api->SetStatus(r->status, code, err.message);
}

static void check(void *object, TF_OpKernelContext *context)
{
  run r;
  if (!begin(&r, object, context)) return;
  int32_t code = RV_OK;
  read_input(&r, 0, &code, sizeof code);
  if (!failed(&r) && code != RV_OK) fail_with_text(&r, code);
  if (!failed(&r)) {
    TF_Tensor *out = r.api->AllocateOutput(context, 0, RV_INT32, NULL, 0, sizeof code, r.status);
    if (!failed(&r)) memcpy(r.api->TensorData(out), &code, sizeof code);
    if (out != NULL) r.api->DeleteTensor(out);
  }
  end(&r);
}

/* ---- ReverieSamples ---- */

static void give_back(void *data, size_t size, void *buffers)
{
  pool_give(buffers, data, size);
  pool_unref(buffers);
}

/* An output over memory of the pool, NULL: there is none. The tensor is the caller's to delete. */
static TF_Tensor *set_output(const run *r, int i, rv_dtype dtype, const int64_t *sizes, int rank, void *owned_data, size_t size,
                             pool *buffers)
{
  TF_Tensor *tensor =
      owned_data == NULL ? NULL : r->api->NewTensor((int)dtype, sizes, rank, owned_data, size, give_back, pool_ref(buffers));
  if (tensor == NULL) { /* then TensorFlow has given the memory back */
    r->api->SetStatus(r->status, RV_RESOURCE_EXHAUSTED, "no memory for sampled data; lower the batch size, or add memory");
    return NULL;
  }
  r->api->SetOutput(r->context, i, tensor, r->status);
  return tensor;
}

/* An output's memory, `size` bytes; the tensor is the caller's to delete. */
static void *output_memory(const run *r, int i, rv_dtype dtype, const int64_t *sizes, int rank, size_t size, pool *buffers,
                           TF_Tensor **tensor)
{
  if (dtype == RV_STRING || size < OWN_MEMORY_BYTES)
    *tensor = r->api->AllocateOutput(r->context, i, (int)dtype, sizes, rank, size, r->status);
  else
    *tensor = set_output(r, i, dtype, sizes, rank, pool_take(buffers, size), size, buffers);
  return *tensor == NULL || failed(r) ? NULL : r->api->TensorData(*tensor);
}

static void fail_as(const run *r, rv_code code, const rv_error *err)
{
  if (code != RV_OK) r->api->SetStatus(r->status, (int)code, err->message);
}

static void write_strings(const run *r, tf_source *source, const tf_block *block, size_t column, tf_string *out, size_t count)
{
  rv_error err;
  rv_bytes *strings = malloc((count + 1) * sizeof *strings);
  rv_code code = RV_RESOURCE_EXHAUSTED;
  snprintf(err.message, sizeof err.message, "no memory for %zu strings", count);
  if (strings != NULL) code = tf_source_gather(source, block, column, strings, count * sizeof *strings, &err);
  for (size_t i = 0; code == RV_OK && i < count; i++) {
    if (tf_string_set(&out[i], strings[i].data, strings[i].size)) continue;
    code = RV_RESOURCE_EXHAUSTED;
    snprintf(err.message, sizeof err.message, "no memory for a string of %zu bytes", strings[i].size);
  }
  free(strings);
  fail_as(r, code, &err);
}

static void write_column(const run *r, tf_source *source, const tf_block *block, size_t column, rv_dtype dtype)
{
  int64_t sizes[TF_MAX_RANK];
  int rank = tf_source_shape(source, block, column, sizes);
  size_t count = 1;
  for (int d = 0; d < rank; d++) count *= (size_t)sizes[d];
  size_t size = count * (dtype == RV_STRING ? sizeof(tf_string) : rv_dtype_size(dtype));
  pool *buffers = tf_source_buffers(source);
  bool written = block->in_rows && size >= OWN_MEMORY_BYTES;
  TF_Tensor *tensor = NULL;
  void *out = NULL;
  rv_error err;
  if (written) {
    size_t whole;
    void *rows = tf_source_hand_out(source, column, &whole);
    tensor = set_output(r, FIRST_COLUMN + (int)column, dtype, sizes, rank, rows, whole, buffers);
  } else {
    out = output_memory(r, FIRST_COLUMN + (int)column, dtype, sizes, rank, size, buffers, &tensor);
  }
  if (failed(r) || written || block->n == 0) {
    ; /* nothing to write */
  } else if (dtype == RV_STRING) {
    write_strings(r, source, block, column, out, count);
  } else {
    fail_as(r, tf_source_gather(source, block, column, out, size, &err), &err);
  }
  if (tensor != NULL) r->api->DeleteTensor(tensor);
}

static void write_found(const run *r, bool found)
{
  TF_Tensor *out = r->api->AllocateOutput(r->context, FOUND, RV_BOOL, NULL, 0, sizeof found, r->status);
  if (!failed(r)) memcpy(r->api->TensorData(out), &found, sizeof found);
  if (out != NULL) r->api->DeleteTensor(out);
}

static void write_infos(const run *r, const tf_source *source, const tf_block *block)
{
  static const rv_dtype dtypes[TF_INFOS] = {RV_UINT64, RV_FLOAT64, RV_INT64, RV_FLOAT64, RV_INT32};
  int64_t sizes[2];
  int rank = tf_source_leading(source, block, sizes);
  size_t count = block->n * block->steps;
  TF_Tensor *tensors[TF_INFOS] = {NULL};
  void *out[TF_INFOS] = {NULL};
  for (int i = 0; i < TF_INFOS && !failed(r); i++) {
    tensors[i] = r->api->AllocateOutput(r->context, FIRST_INFO + i, (int)dtypes[i], sizes, rank, count * rv_dtype_size(dtypes[i]),
                                        r->status);
    if (!failed(r)) out[i] = r->api->TensorData(tensors[i]);
  }
  if (!failed(r)) tf_source_infos(source, block, out);
  for (int i = 0; i < TF_INFOS; i++)
    if (tensors[i] != NULL) r->api->DeleteTensor(tensors[i]);
}

static bool lacks_elements(const tf_source *source, const tf_block *block)
{
  int64_t sizes[TF_MAX_RANK];
  int leading = tf_source_leading(source, block, sizes);
  for (size_t c = 0; block->n > 0 && c < tf_source_columns(source); c++) {
    int rank = tf_source_shape(source, block, c, sizes);
    for (int d = leading; d < rank; d++)
      if (sizes[d] == 0) return true;
  }
  return false;
}

static void write_block(const run *r, tf_source *source, bool filled)
{
  tf_block block;
  rv_error err;
  rv_code code = tf_source_next(source, &block, &err);
  if (code != RV_OK) {
    fail_as(r, code, &err);
    return;
  }
  if (filled && lacks_elements(source, &block)) {
    block = (tf_block){.going = false}; /* nothing is taken */
    r->api->SetStatus(r->status, RV_OUT_OF_RANGE, "a column without elements follows");
  } else if (!block.going) {
    r->api->SetStatus(r->status, RV_OUT_OF_RANGE, "the sequence has ended");
  }
  if (!failed(r)) write_found(r, block.n > 0);
  if (!failed(r)) write_infos(r, source, &block);
  for (size_t c = 0; c < tf_source_columns(source) && !failed(r); c++)
    write_column(r, source, &block, c, tf_source_dtype(source, c));
  tf_source_done(source, &block);
}

/* A reference to the source of that number; NULL: there is none. */
static tf_source *find_source(kernel *self, int64_t number)
{
  pthread_mutex_lock(&self->mutex);
  tf_source *source = self->source != NULL && self->number == number ? tf_source_ref(self->source) : NULL;
  pthread_mutex_unlock(&self->mutex);
  if (source != NULL) return source;
  source = tf_source_find(number); /* not under the mutex: it takes the GIL */
  if (source == NULL) return NULL;
  pthread_mutex_lock(&self->mutex);
  tf_source *before = self->source;
  self->source = tf_source_ref(source);
  self->number = number;
  pthread_mutex_unlock(&self->mutex);
  tf_source_unref(before);
  return source;
}

static void write_samples(void *object, TF_OpKernelContext *context, bool filled)
{
  run r;
  if (!begin(&r, object, context)) return;
  int64_t number = 0;
  read_input(&r, 0, &number, sizeof number);
  tf_source *source = failed(&r) ? NULL : find_source(object, number);
  if (source != NULL) {
    write_block(&r, source, filled);
    tf_source_unref(source);
  } else if (!failed(&r)) {
    r.api->SetStatus(r.status, RV_FAILED_PRECONDITION, "this iterator has ended, or is of another process: make a new one");
  }
  end(&r);
}

static void samples(void *object, TF_OpKernelContext *context)
{
  write_samples(object, context, false);
}

static void filled_samples(void *object, TF_OpKernelContext *context)
{
  write_samples(object, context, true);
}

/* ---- registration ---- */

static void register_operation(const tf_api *api, TF_Status *status, const char *name, const char *const *inputs,
                               const char *const *outputs, const char *attr, void (*compute)(void *, TF_OpKernelContext *))
{
  TF_OpDefinitionBuilder *builder = api->NewOpDefinitionBuilder(name);
  for (; *inputs != NULL; inputs++) api->OpDefinitionBuilderAddInput(builder, *inputs);
  if (attr != NULL) api->OpDefinitionBuilderAddAttr(builder, attr);
  for (; *outputs != NULL; outputs++) api->OpDefinitionBuilderAddOutput(builder, *outputs);
  api->OpDefinitionBuilderSetIsStateful(builder, true);
  api->OpDefinitionBuilderSetShapeInferenceFunction(builder, api->ShapeInferenceContextSetUnknownShape);
  api->RegisterOpDefinition(builder, status);
  if (api->GetCode(status) != RV_OK) return;
  api->RegisterKernelBuilder(name, api->NewKernelBuilder(name, "CPU", kernel_create, compute, kernel_delete), status);
}

static void register_samples(const tf_api *api, TF_Status *status, const char *name,
                             void (*compute)(void *, TF_OpKernelContext *))
{
  register_operation(api, status, name, (const char *[]){"number: int64", NULL},
                     (const char *[]){"found: bool", "key: uint64", "probability: double", "table_size: int64",
                                      "priority: double", "times_sampled: int32", "columns: dtypes", NULL},
                     "dtypes: list(type) >= 0", compute);
}

PyObject *tf_register(PyObject *module, PyObject *none)
{
  (void)module, (void)none;
  tf_api api;
  const char *missing;
  if (!tf_api_find(&api, &missing))
    return PyErr_Format(PyExc_ImportError, "this TensorFlow has no %s; install TensorFlow 2.15 or later", missing);
  TF_Status *status = api.NewStatus();
  if (status == NULL) return PyErr_NoMemory();
  register_operation(&api, status, "ReverieCheck", (const char *[]){"code: int32", "text: uint8", NULL},
                     (const char *[]){"checked: int32", NULL}, NULL, check);
  if (api.GetCode(status) == RV_OK) {
    register_samples(&api, status, "ReverieSamples", samples);
  }
  if (api.GetCode(status) == RV_OK) {
    register_samples(&api, status, "ReverieFilledSamples", filled_samples);
  }
  if (api.GetCode(status) != RV_OK) PyErr_Format(PyExc_ImportError, "TensorFlow refused an operation: %s", api.Message(status));
  api.DeleteStatus(status);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}
