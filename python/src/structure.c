#include "place.h"
#include "types.h"

/* Not tracked yet: what gives it a tree asks containers, which may look at whatever is tracked. */
static structure_object *untracked(core_state *state)
{
  structure_object *self = PyObject_GC_New(structure_object, state->structure_type);
  if (self == NULL) return NULL;
  self->state = state;
  self->num_leaves = 0;
  self->root = NULL;
  self->names = NULL;
  self->naming = 0;
  return self;
}

static structure_object *made(structure_object *owned_self, bool ok)
{
  if (ok) {
    PyObject_GC_Track(owned_self);
    return owned_self;
  }
  Py_DECREF((PyObject *)owned_self);
  return NULL;
}

structure_object *structure_new(core_state *state, PyObject *nest)
{
  structure_object *self = untracked(state);
  if (self == NULL) return NULL;
  self->root = tree_new(state, nest, &self->num_leaves);
  return made(self, self->root != NULL);
}

structure_object *structure_grown(const structure_object *before, PyObject *nest)
{
  structure_object *self = untracked(before->state);
  if (self == NULL) return NULL;
  self->root = tree_copy(before->root);
  self->num_leaves = before->num_leaves;
  return made(self, self->root != NULL && tree_grow(self->state, self->root, nest, &self->num_leaves) == 0);
}

static void free_names(char **names, size_t n)
{
  for (size_t i = 0; names != NULL && i < n; i++) PyMem_Free(names[i]);
  PyMem_Free(names);
}

/* "obs/0" of ("obs", 0). */
static char *name_of(PyObject *path)
{
  PyObject *slash = PyUnicode_FromString("/"), *parts = PyList_New(0), *name = NULL;
  bool ok = slash != NULL && parts != NULL;
  for (Py_ssize_t i = 0; ok && i < PyTuple_Size(path); i++) {
    PyObject *part = PyObject_Str(PyTuple_GetItem(path, i));
    ok = part != NULL && PyList_Append(parts, part) == 0;
    Py_XDECREF(part);
  }
  if (ok) name = PyUnicode_Join(slash, parts);
  PyObject *bytes = name == NULL ? NULL : PyUnicode_AsEncodedString(name, "utf-8", "replace");
  char *copy = bytes == NULL ? NULL : PyMem_Malloc((size_t)PyBytes_Size(bytes) + 1);
  if (copy != NULL) {
    size_t size = (size_t)PyBytes_Size(bytes);
    memcpy(copy, PyBytes_AsString(bytes), size + 1);
    for (char *nul = copy; (nul = memchr(nul, 0, size - (size_t)(nul - copy))) != NULL;)
      *nul = '?'; /* as in signatures (table.py) */
  }
  if (bytes != NULL && copy == NULL) PyErr_NoMemory();
  Py_XDECREF(bytes);
  Py_XDECREF(name);
  Py_XDECREF(parts);
  Py_XDECREF(slash);
  return copy;
}

const char *const *structure_names(structure_object *self)
{
  if (self->names != NULL) return (const char *const *)self->names;
  PyObject *paths = tree_paths(self->root, self->num_leaves);
  if (paths == NULL) return NULL;
  char **names = PyMem_Calloc(self->num_leaves + 1, sizeof *names);
  bool ok = names != NULL;
  if (!ok) PyErr_NoMemory();
  for (size_t i = 0; ok && i < self->num_leaves; i++) ok = (names[i] = name_of(PyList_GetItem(paths, (Py_ssize_t)i))) != NULL;
  Py_DECREF(paths);
  if (ok && self->names == NULL) { /* a key's __str__ may have let another thread in */
    self->names = names;
  } else {
    free_names(names, self->num_leaves);
  }
  return ok ? (const char *const *)self->names : NULL;
}

static PyObject *structure_tp_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
  static char *names[] = {"nest", NULL};
  PyObject *nest;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Structure", names, &nest)) return NULL;
  core_state *state = core_state_of_type(type);
  return state == NULL ? NULL : (PyObject *)structure_new(state, nest);
}

static int structure_traverse(PyObject *object, visitproc visit, void *arg)
{
  Py_VISIT(Py_TYPE(object));
  return tree_traverse(((structure_object *)object)->root, visit, arg);
}

static void structure_dealloc(PyObject *object)
{
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  free_names(((structure_object *)object)->names, ((structure_object *)object)->num_leaves);
  tree_free(((structure_object *)object)->root);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

static PyObject *structure_flatten(PyObject *object, PyObject *nest)
{
  structure_object *self = (structure_object *)object;
  PyObject **leaves = PyMem_Calloc(self->num_leaves + 1, sizeof *leaves);
  if (leaves == NULL) return PyErr_NoMemory();
  int found = tree_flatten(self->state, self->root, nest, leaves);
  PyObject *out = found > 0 ? PyList_New((Py_ssize_t)self->num_leaves) : NULL;
  if (found == 0) {
    PyObject *text = place_difference(self->root, nest);
    if (text != NULL) PyErr_Format(PyExc_ValueError, "the nest has another structure: %U", text);
    Py_XDECREF(text);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the nest has another structure");
  }
  for (size_t i = 0; found > 0 && i < self->num_leaves; i++) {
    if (out != NULL) {
      PyList_SetItem(out, (Py_ssize_t)i, leaves[i]);
    } else {
      Py_DECREF(leaves[i]);
    }
  }
  PyMem_Free(leaves);
  return out;
}

static PyObject *structure_unflatten(PyObject *object, PyObject *sequence)
{
  structure_object *self = (structure_object *)object;
  PyObject *list = PySequence_List(sequence);
  if (list == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "leaves must be a sequence with the new leaves, got %R", sequence);
  }
  if (list == NULL) return NULL;
  size_t n = (size_t)PyList_Size(list);
  PyObject *out = NULL;
  PyObject **leaves = PyMem_Calloc(n + 1, sizeof *leaves);
  if (leaves == NULL) {
    PyErr_NoMemory();
  } else if (n != self->num_leaves) {
    PyErr_Format(PyExc_ValueError, "the structure has %zu leaves, got %zu", self->num_leaves, n);
  } else {
    for (size_t i = 0; i < n; i++) leaves[i] = PyList_GetItem(list, (Py_ssize_t)i);
    out = tree_unflatten(self->root, leaves, n);
  }
  PyMem_Free(leaves);
  Py_DECREF(list);
  return out;
}

static PyObject *structure_paths(PyObject *object, PyObject *none)
{
  (void)none;
  structure_object *self = (structure_object *)object;
  return tree_paths(self->root, self->num_leaves);
}

static Py_ssize_t structure_length(PyObject *object)
{
  return (Py_ssize_t)((structure_object *)object)->num_leaves;
}

static PyMethodDef structure_methods[] = {
    {"flatten", structure_flatten, METH_O, "flatten($self, nest, /)\n--\n\nThe leaves of a nest of this structure, in order."},
    {"unflatten", structure_unflatten, METH_O, "unflatten($self, leaves, /)\n--\n\nA nest of this structure with these leaves."},
    {"paths", structure_paths, METH_NOARGS,
     "paths($self, /)\n--\n\nWhere each leaf is: tuples of keys, indices and field names."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot structure_slots[] = {
    {Py_tp_doc,
     "Structure(nest)\n--\n\nThe shape of a nest, kept to flatten others like it. Its length is the number of leaves."},
    {Py_tp_new, CORE_SLOT(structure_tp_new)},
    {Py_tp_dealloc, CORE_SLOT(structure_dealloc)},
    {Py_tp_traverse, CORE_SLOT(structure_traverse)},
    {Py_tp_methods, structure_methods},
    {Py_sq_length, CORE_SLOT(structure_length)},
    {0, NULL}};

PyType_Spec structure_spec = {
    .name = "reverie._core.Structure",
    .basicsize = sizeof(structure_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = structure_slots,
};
