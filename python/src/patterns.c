/* The Patterns type: which items a stream of steps has by configs, for whoever keeps the rows himself. */
#include "configs.h"
#include "convert.h"

typedef struct patterns_object {
  PyObject_HEAD
  core_state *state;
  rv_patterns *patterns;
  size_t num_columns;
  int64_t num_steps; /* since it was made */
} patterns_object;

/* ---- life ---- */

static rv_code name_column(void *patterns, uint32_t column, const char *name, rv_error *err)
{
  return rv_patterns_name_column(patterns, column, name, err);
}

static int begin(patterns_object *self, PyObject *list, const structure_object *step)
{
  scratch s;
  scratch_init(&s);
  rv_error err;
  rv_pattern_config *configs = configs_read(self->state, &s, list);
  bool ok = configs != NULL;
  if (ok && (rv_patterns_new(configs, (size_t)PyList_Size(list), &self->patterns, &err) != RV_OK ||
             rv_patterns_check_columns(self->patterns, step->num_leaves, &err) != RV_OK)) {
    core_raise(self->state, &err);
    ok = false;
  }
  scratch_fini(&s);
  return ok ? configs_name_columns(step, name_column, self->patterns) : -1;
}

static PyObject *patterns_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"configs", "step", NULL};
  core_state *state = core_state_of_type(type);
  PyObject *list, *step;
  if (state == NULL ||
      !PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:Patterns", names, &PyList_Type, &list, state->structure_type, &step))
    return NULL;
  patterns_object *self = PyObject_New(patterns_object, type);
  if (self == NULL) return NULL;
  self->state = state;
  self->patterns = NULL;
  self->num_columns = ((structure_object *)step)->num_leaves;
  self->num_steps = 0;
  if (begin(self, list, (structure_object *)step) < 0) Py_CLEAR(self);
  return (PyObject *)self;
}

static void patterns_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  rv_patterns_free(((patterns_object *)object)->patterns);
  PyObject_Free(object);
  Py_DECREF((PyObject *)type);
}

/* ---- append ---- */

/* Room for every config's item in every step: a config is applied at most once a step. */
typedef struct found_items {
  int64_t *steps;
  int32_t *configs;
  size_t count;
  int64_t now; /* the newest step */
} found_items;

static int found_items_init(found_items *found, scratch *s, const patterns_object *self, size_t num_steps)
{
  size_t room = num_steps * rv_patterns_num_configs(self->patterns);
  *found = (found_items){.steps = scratch_alloc(s, room, sizeof(int64_t)), .configs = scratch_alloc(s, room, sizeof(int32_t))};
  return found->steps == NULL || found->configs == NULL ? -1 : 0;
}

static rv_code on_item(void *context, const rv_pattern_item *item, rv_error *err)
{
  (void)err;
  found_items *found = context;
  found->steps[found->count] = found->now;
  found->configs[found->count++] = (int32_t)item->config;
  return RV_OK;
}

/* A column's rows [n, ...] as a cell of the first, and bytes to the next. */
static int read_column(const patterns_object *self, PyObject *given, uint32_t column, Py_ssize_t n, rv_cell *cell, size_t *stride)
{
  static const rv_bytes no_text = {NULL, 0};
  PyArrayObject *array = (PyArrayObject *)given;
  if (!PyArray_Check(given) || !PyArray_ISCARRAY_RO(array) || PyArray_NDIM(array) < 1 || PyArray_DIM(array, 0) != n) {
    PyErr_Format(PyExc_ValueError, "column %u must be a C-contiguous array of %zd rows, or None", (unsigned)column, n);
    return -1;
  }
  rv_dtype dtype = dtype_of_array(self->state, array);
  if (dtype == RV_DTYPE_INVALID) return tensor_bad_dtype(given);
  *cell = (rv_cell){.column = column,
                    .value = {.dtype = dtype,
                              .rank = (uint32_t)PyArray_NDIM(array) - 1,
                              .shape = (const int64_t *)PyArray_DIMS(array) + 1,
                              .data = PyArray_DATA(array)}};
  *stride = (size_t)PyArray_STRIDE(array, 0);
  if (dtype == RV_STRING) { /* no condition reads text */
    cell->value.data = &no_text;
    *stride = 0;
  }
  return 0;
}

static PyObject *array_of(core_state *state, rv_dtype dtype, const void *data, size_t n)
{
  int64_t shape[1] = {(int64_t)n};
  PyArrayObject *array = array_new(state, dtype, 1, shape);
  if (array != NULL && n > 0) memcpy(PyArray_DATA(array), data, n * rv_dtype_size(dtype));
  return (PyObject *)array;
}

/* Only the first step can fail: the others are of its dtypes and shapes. */
static rv_code append_steps(patterns_object *self, rv_cell *cells, const size_t *strides, size_t num_cells, PyArrayObject *ends,
                            bool clear_buffers, found_items *found, rv_error *err)
{
  const npy_bool *end = PyArray_DATA(ends);
  rv_code code = RV_OK;
  for (npy_intp i = 0; i < PyArray_DIM(ends, 0) && code == RV_OK; i++) {
    found->now = self->num_steps;
    code = rv_patterns_append(self->patterns, cells, num_cells, false, on_item, found, err);
    if (code != RV_OK) break;
    self->num_steps++;
    if (end[i]) code = rv_patterns_end_episode(self->patterns, clear_buffers, on_item, found, err);
    for (size_t c = 0; c < num_cells; c++) cells[c].value.data = (const char *)cells[c].value.data + strides[c];
  }
  return code;
}

static PyObject *patterns_append(PyObject *object, PyObject *args)
{
  patterns_object *self = (patterns_object *)object;
  PyObject *columns, *ends;
  int clear_buffers;
  if (!PyArg_ParseTuple(args, "O!O!p:append", &PyList_Type, &columns, &PyArray_Type, &ends, &clear_buffers)) return NULL;
  PyArrayObject *flags = (PyArrayObject *)ends;
  if (PyArray_NDIM(flags) != 1 || PyArray_TYPE(flags) != NPY_BOOL || !PyArray_ISCARRAY_RO(flags))
    return PyErr_Format(PyExc_ValueError, "ends must be a C-contiguous array of bools, one for each step");
  size_t num_columns = (size_t)PyList_Size(columns), num_cells = 0;
  if (num_columns != self->num_columns)
    return PyErr_Format(PyExc_ValueError, "%zu columns were given, steps have %zu", num_columns, self->num_columns);
  scratch s;
  scratch_init(&s);
  rv_cell *cells = scratch_alloc(&s, num_columns, sizeof *cells);
  size_t *strides = scratch_alloc(&s, num_columns, sizeof *strides);
  bool ok = cells != NULL && strides != NULL;
  for (size_t c = 0; ok && c < num_columns; c++) {
    PyObject *column = PyList_GetItem(columns, (Py_ssize_t)c);
    if (column == Py_None) continue;
    ok = read_column(self, column, (uint32_t)c, PyArray_DIM(flags, 0), &cells[num_cells], &strides[num_cells]) == 0;
    num_cells++;
  }
  found_items found;
  rv_error err;
  ok = ok && found_items_init(&found, &s, self, (size_t)PyArray_DIM(flags, 0)) == 0;
  if (ok && append_steps(self, cells, strides, num_cells, flags, clear_buffers != 0, &found, &err) != RV_OK) {
    core_raise(self->state, &err);
    ok = false;
  }
  PyObject *out = NULL;
  if (ok) {
    out = Py_BuildValue("(NN)", array_of(self->state, RV_INT64, found.steps, found.count),
                        array_of(self->state, RV_INT32, found.configs, found.count));
  }
  scratch_fini(&s);
  return out;
}

static PyObject *patterns_column_window(PyObject *object, PyObject *column)
{
  size_t index;
  if (core_size(column, "column", 0, &index) < 0) return NULL;
  return PyLong_FromUnsignedLong(rv_patterns_column_window(((patterns_object *)object)->patterns, (uint32_t)index));
}

static PyMethodDef patterns_methods[] = {
    {"append", patterns_append, METH_VARARGS,
     "append($self, columns, ends, clear_buffers, /)\n--\n\n"
     "Takes steps, and tells which items they make, in order: each one's newest step, counted from the first of all (int64 [n]), "
     "and "
     "its\nconfig's position (int32 [n]).\n\n"
     "Parameters\n----------\n"
     "columns : list\n    For each leaf of a step C-contiguous rows [B, ...], or None where these steps have no value.\n"
     "ends : ndarray\n    bool [B]: does the episode end with the step?\n"
     "clear_buffers : bool\n    No item reaches back across the end of an episode."},
    {"column_window", patterns_column_window, METH_O,
     "column_window($self, column, /)\n--\n\nRows of the column that its oldest reference reaches back; 0: nothing refers to "
     "it."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot patterns_slots[] = {
    {Py_tp_doc,
     "Patterns(configs, step)\n--\n\nWhich items steps like `step` (a Structure) make by raw configs. For one thread at a time."},
    {Py_tp_new, CORE_SLOT(patterns_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(patterns_dealloc)},
    {Py_tp_methods, patterns_methods},
    {0, NULL}};

PyType_Spec patterns_spec = {
    .name = "reverie._core.Patterns",
    .basicsize = sizeof(patterns_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = patterns_slots,
};
