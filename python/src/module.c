/* The module reverie._core: its state, its types, and the few functions that belong to none. */
#define RV_PYTHON_IMPORTS_NUMPY
#include "batch.h"
#include "log.h"
#include "tf_ops.h"

/* ---- dtypes ---- */

static int set_builtin(core_state *state, rv_dtype dtype, int type)
{
  state->descr[dtype] = PyArray_DescrFromType(type);
  state->dtype_of_builtin[type] = dtype;
  return state->descr[dtype] == NULL ? -1 : 0;
}

static int set_ml_dtype(core_state *state, PyObject *module, size_t slot, rv_dtype dtype, const char *name)
{
  PyObject *type = PyObject_GetAttrString(module, name);
  if (type == NULL) return -1;
  int ok = PyArray_DescrConverter(type, &state->descr[dtype]);
  Py_DECREF(type);
  if (ok != NPY_SUCCEED) return -1;
  state->ml_type[slot] = state->descr[dtype]->type_num;
  state->ml_dtype[slot] = dtype;
  return 0;
}

static int set_dtypes(core_state *state)
{
  static const struct {
    rv_dtype dtype;
    int type;
  } builtins[] = {
      {RV_BOOL, NPY_BOOL},           {RV_INT8, NPY_INT8},
      {RV_INT16, NPY_INT16},         {RV_INT32, NPY_INT32},
      {RV_INT64, NPY_INT64},         {RV_UINT8, NPY_UINT8},
      {RV_UINT16, NPY_UINT16},       {RV_UINT32, NPY_UINT32},
      {RV_UINT64, NPY_UINT64},       {RV_FLOAT16, NPY_FLOAT16},
      {RV_FLOAT32, NPY_FLOAT32},     {RV_FLOAT64, NPY_FLOAT64},
      {RV_COMPLEX64, NPY_COMPLEX64}, {RV_COMPLEX128, NPY_COMPLEX128},
      {RV_STRING, NPY_OBJECT},
  };
  for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++) {
    if (set_builtin(state, builtins[i].dtype, builtins[i].type) < 0) return -1;
    if (i == CORE_SCALARS) continue; /* strings come last: their scalars are Python's own */
    PyTypeObject *type = (PyTypeObject *)PyArray_TypeObjectFromType(builtins[i].type);
    if (type == NULL) return -1;
    size_t slot = core_scalar_slot(state, type);
    state->scalar_type[slot] = type;
    state->scalar_dtype[slot] = builtins[i].dtype;
  }
  /* Other names of the same layouts, and the other kinds of strings. */
  state->dtype_of_builtin[NPY_LONGLONG] = RV_INT64;
  state->dtype_of_builtin[NPY_ULONGLONG] = RV_UINT64;
  state->dtype_of_builtin[NPY_UNICODE] = RV_STRING;
  state->dtype_of_builtin[NPY_STRING] = RV_STRING;
  /* Quantized integers are shown as the integers they are stored as. */
  static const rv_dtype quantized[][2] = {
      {RV_QINT8, RV_INT8}, {RV_QUINT8, RV_UINT8}, {RV_QINT16, RV_INT16}, {RV_QUINT16, RV_UINT16}, {RV_QINT32, RV_INT32}};
  for (size_t i = 0; i < sizeof quantized / sizeof quantized[0]; i++) {
    Py_INCREF((PyObject *)state->descr[quantized[i][1]]);
    state->descr[quantized[i][0]] = state->descr[quantized[i][1]];
  }
  PyObject *module = PyImport_ImportModule("ml_dtypes");
  if (module == NULL) return -1;
  int bad = set_ml_dtype(state, module, 0, RV_BFLOAT16, "bfloat16");
  if (bad == 0) bad = set_ml_dtype(state, module, 1, RV_FLOAT8_E5M2, "float8_e5m2");
  if (bad == 0) bad = set_ml_dtype(state, module, 2, RV_FLOAT8_E4M3FN, "float8_e4m3fn");
  if (bad == 0) bad = set_ml_dtype(state, module, 3, RV_INT4, "int4");
  if (bad == 0) bad = set_ml_dtype(state, module, 4, RV_UINT4, "uint4");
  Py_DECREF(module);
  return bad;
}

/* ---- classes written in Python ---- */

static int import_attribute(const char *module_name, const char *name, PyObject **out)
{
  PyObject *module = PyImport_ImportModule(module_name);
  if (module == NULL) return -1;
  *out = PyObject_GetAttrString(module, name);
  Py_DECREF(module);
  return *out == NULL ? -1 : 0;
}

static int set_errors(core_state *state)
{
  PyObject *classes;
  if (import_attribute("reverie.errors", "_BY_CODE", &classes) < 0) return -1;
  for (Py_ssize_t i = 0; i < CORE_CODES; i++) {
    state->errors[i] = PySequence_GetItem(classes, i);
    if (state->errors[i] == NULL) break;
  }
  Py_DECREF(classes);
  return PyErr_Occurred() ? -1 : import_attribute("reverie.errors", "StructureError", &state->structure_error);
}

static int set_classes(core_state *state)
{
  if (set_errors(state) < 0) return -1;
  if (import_attribute("reverie.samples", "SampleInfo", &state->sample_info) < 0) return -1;
  if (import_attribute("reverie.samples", "ReplaySample", &state->replay_sample) < 0) return -1;
  if (import_attribute("collections.abc", "Mapping", &state->mapping) < 0) return -1;
  if (import_attribute("collections.abc", "Sequence", &state->sequence) < 0) return -1;
  state->attrs_fields = PyUnicode_InternFromString("__attrs_attrs__");
  state->tuple_fields = PyUnicode_InternFromString("_fields");
  return state->attrs_fields == NULL || state->tuple_fields == NULL ? -1 : 0;
}

/* ---- types ---- */

typedef struct type_entry {
  PyType_Spec *spec;
  size_t offset;    /* in core_state */
  const char *name; /* in the module; NULL: not shown */
} type_entry;

static const type_entry type_entries[] = {
    {&structure_spec, offsetof(core_state, structure_type), "Structure"},
    {&checkpointer_spec, offsetof(core_state, checkpointer_type), "Checkpointer"},
    {&saver_spec, offsetof(core_state, saver_type), "Saver"},
    {&store_spec, offsetof(core_state, store_type), "Store"},
    {&server_spec, offsetof(core_state, server_type), "Server"},
    {&cancel_spec, offsetof(core_state, cancel_type), "Cancel"},
    {&client_spec, offsetof(core_state, client_type), "Client"},
    {&handle_spec, offsetof(core_state, handle_type), NULL},
    {&batch_spec, offsetof(core_state, batch_type), "ReplayBatch"},
    {&sample_spec, offsetof(core_state, sample_type), NULL},
    {&sampler_spec, offsetof(core_state, sampler_type), "Sampler"},
    {&stream_spec, offsetof(core_state, stream_type), "Stream"},
    {&step_writer_spec, offsetof(core_state, step_writer_type), "StepWriter"},
    {&writer_spec, offsetof(core_state, writer_type), "TrajectoryWriter"},
    {&structured_spec, offsetof(core_state, structured_type), "StructuredWriter"},
    {&patterns_spec, offsetof(core_state, patterns_type), "Patterns"},
    {&history_spec, offsetof(core_state, history_type), "ColumnHistory"},
    {&column_spec, offsetof(core_state, column_type), "TrajectoryColumn"},
    {&reference_spec, offsetof(core_state, reference_type), "RowReference"},
    {&transitions_spec, offsetof(core_state, transitions_type), "Transitions"},
    {&source_spec, offsetof(core_state, source_type), "TensorSource"},
    {&buffer_spec, offsetof(core_state, buffer_type), NULL},
};

static PyTypeObject **type_slot(core_state *state, const type_entry *entry)
{
  return (PyTypeObject **)(void *)((char *)state + entry->offset);
}

#define NUM_TYPES (sizeof type_entries / sizeof type_entries[0])

static int set_types(PyObject *module, core_state *state)
{
  for (size_t i = 0; i < NUM_TYPES; i++) {
    PyObject *type = PyType_FromModuleAndSpec(module, type_entries[i].spec, NULL);
    if (type == NULL) return -1;
    *type_slot(state, &type_entries[i]) = (PyTypeObject *)type;
    if (type_entries[i].name != NULL && PyModule_AddObjectRef(module, type_entries[i].name, type) < 0) return -1;
  }
  return 0;
}

/* ---- the module ---- */

static PyObject *check_rate_limiter(PyObject *module, PyObject *args)
{
  rv_rate_limiter_config limiter;
  long long min_size;
  if (!PyArg_ParseTuple(args, "dLdd:check_rate_limiter", &limiter.samples_per_insert, &min_size, &limiter.min_diff,
                        &limiter.max_diff)) {
    return NULL;
  }
  limiter.min_size_to_sample = min_size;
  rv_error err;
  if (rv_rate_limiter_check(&limiter, &err) != RV_OK) return core_raise(PyModule_GetState(module), &err);
  Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"check_rate_limiter", check_rate_limiter, METH_VARARGS,
     "check_rate_limiter(samples_per_insert, min_size_to_sample, min_diff, max_diff, /)\n--\n\n"
     "InvalidArgumentError for parameters out of range, or that could never let anybody through."},
    {"replay_batch", replay_batch_make, METH_VARARGS,
     "replay_batch(data, table_size, keys, probabilities, priorities, times_sampled, lengths, table_sizes=None, /)\n--\n\n"
     "A ReplayBatch of copies of these arrays: what one is when it is unpickled."},
    {"call_in_graph", core_call_in_graph, METH_VARARGS,
     "call_in_graph(function, arguments, /)\n--\n\n"
     "The same as `function(*arguments)`, for threads of TensorFlow's on whose result the main thread waits: Ctrl-C ends what "
     "waits "
     "in there, with CancelledError."},
    {"take_log", log_take, METH_NOARGS,
     "take_log()\n--\n\n"
     "The next line that the library said: level (0 to 3), text, how many lines before it were dropped, and the gravest one's "
     "level. "
     "None: there are no more; the caller's thread ends."},
    {"settle_log", log_settle, METH_NOARGS,
     "settle_log()\n--\n\nReturns when every line that was said before was handled, or none has been for a second, or after two "
     "seconds."},
    {"close_log", log_close, METH_NOARGS,
     "close_log()\n--\n\nThe same, after five seconds at most; warnings and errors that were not handled go to stderr, and later "
     "ones do."},
    {"settle_interrupts", core_settle_interrupts, METH_NOARGS,
     "settle_interrupts()\n--\n\n"
     "Before a call of TensorFlow's: a Ctrl-C that came earlier is Python's, and ends no wait in there."},
    {"register_tensorflow_operations", tf_register, METH_NOARGS,
     "register_tensorflow_operations()\n--\n\n"
     "ReverieSamples and ReverieCheck, in the TensorFlow that this process has imported. Not twice in a process: TensorFlow ends "
     "it.\n\n"
     "Raises\n------\nImportError\n    There is none, or an older one."},
    {NULL, NULL, 0, NULL}};

static int module_exec(PyObject *module)
{
  core_state *state = PyModule_GetState(module);
  import_array1(-1);
  state->sources = PyDict_New();
  if (state->sources == NULL) return -1;
  if (set_dtypes(state) < 0 || set_classes(state) < 0 || set_types(module, state) < 0) return -1;
  return PyModule_AddStringConstant(module, "version", rv_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
  core_state *state = PyModule_GetState(module);
  if (state == NULL) return 0;
  for (size_t i = 0; i < CORE_CODES; i++) Py_VISIT(state->errors[i]);
  for (size_t i = 0; i < NUM_TYPES; i++) Py_VISIT((PyObject *)*type_slot(state, &type_entries[i]));
  Py_VISIT(state->structure_error);
  Py_VISIT(state->sample_info);
  Py_VISIT(state->replay_sample);
  Py_VISIT(state->mapping);
  Py_VISIT(state->sequence);
  Py_VISIT(state->sources);
  return 0;
}

static int module_clear(PyObject *module)
{
  core_state *state = PyModule_GetState(module);
  if (state == NULL) return 0;
  for (size_t i = 0; i < CORE_CODES; i++) Py_CLEAR(state->errors[i]);
  for (size_t i = 0; i < CORE_DTYPES; i++) Py_CLEAR(state->descr[i]);
  for (size_t i = 0; i < CORE_SCALAR_SLOTS; i++) Py_CLEAR(state->scalar_type[i]);
  for (size_t i = 0; i < NUM_TYPES; i++) Py_CLEAR(*type_slot(state, &type_entries[i]));
  Py_CLEAR(state->structure_error);
  Py_CLEAR(state->sample_info);
  Py_CLEAR(state->replay_sample);
  Py_CLEAR(state->mapping);
  Py_CLEAR(state->sequence);
  Py_CLEAR(state->sources);
  Py_CLEAR(state->attrs_fields);
  Py_CLEAR(state->tuple_fields);
  return 0;
}

static void module_free(void *module)
{
  core_state *state = PyModule_GetState(module);
  module_clear(module);
  if (state != NULL) rv_io_unref(state->io);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, CORE_SLOT(module_exec)}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "reverie._core",
    .m_doc = "The C extension under the package reverie.",
    .m_size = sizeof(core_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
  return PyModuleDef_Init(&definition);
}
