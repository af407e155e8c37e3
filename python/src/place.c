#include "place.h"

/* Where that child is, of a nest or a part of it that is at `above`, which is taken (NULL: an exception is set). */
static PyObject *below(PyObject *owned_above, const tree *parent, size_t child)
{
  if (owned_above == NULL) return NULL;
  PyObject *out;
  if (parent->key == NULL) {
    out = PyUnicode_FromFormat("%U[%zu]", owned_above, child);
  } else if (parent->kind == TREE_NAMED || parent->kind == TREE_ATTRS) {
    out = PyUnicode_FromFormat("%U.%S", owned_above, parent->key[child]);
  } else {
    out = PyUnicode_FromFormat("%U[%R]", owned_above, parent->key[child]);
  }
  Py_DECREF(owned_above);
  return out;
}

PyObject *place_text(const place *at)
{
  if (at == NULL) return PyUnicode_FromString("data");
  return below(place_text(at->above), at->parent, at->child);
}

static bool has_leaf(const tree *node, size_t leaf)
{
  if (node->kind == TREE_LEAF) return node->leaf == leaf;
  bool found = false;
  for (size_t i = 0; i < node->n && !found; i++) found = has_leaf(node->child[i], leaf);
  return found;
}

PyObject *place_of_leaf(const tree *root, const char *nest, size_t leaf)
{
  PyObject *out = PyUnicode_FromString(nest);
  const tree *node = root;
  while (out != NULL && node->kind != TREE_LEAF) {
    size_t i = 0;
    while (i < node->n && !has_leaf(node->child[i], leaf)) i++;
    if (i == node->n) break;
    out = below(out, node, i);
    node = node->child[i];
  }
  return out;
}

static PyObject *type_name(PyTypeObject *type)
{
  return PyObject_GetAttrString((PyObject *)type, "__name__");
}

static PyObject *kind_text(const tree *node)
{
  if (node->kind == TREE_LEAF) return PyUnicode_FromString("a single value");
  PyObject *name = type_name(node->type);
  PyObject *out = name == NULL ? NULL : PyUnicode_FromFormat("of type %U", name);
  Py_XDECREF(name);
  return out;
}

static bool is_sequence(const tree *node)
{
  return node->kind == TREE_LIST || node->kind == TREE_TUPLE || node->kind == TREE_NAMED || node->kind == TREE_SEQUENCE;
}

int place_raise_change(PyObject *type, const place *at, const tree *was, PyObject *nest)
{
  PyObject *where = place_text(at), *is = type_name(Py_TYPE(nest)), *before = kind_text(was);
  if (where != NULL && is != NULL && before != NULL) {
    if (is_sequence(was) && (PyTuple_Check(nest) || PyList_Check(nest))) {
      PyErr_Format(type, "%U is of type %U with %zd elements, but in the steps before it was %U with %zu", where, is,
                   PySequence_Size(nest), before, was->n);
    } else {
      PyErr_Format(type, "%U is of type %U, but in the steps before it was %U", where, is, before);
    }
  }
  Py_XDECREF(where);
  Py_XDECREF(is);
  Py_XDECREF(before);
  return -1;
}

/* ---- differences ---- */

static PyObject *difference(const tree *node, PyObject *nest, const place *at);

static PyObject *wrong_kind(const tree *node, PyObject *nest, const place *at)
{
  PyObject *where = place_text(at), *is = type_name(Py_TYPE(nest)), *wanted = kind_text(node), *out = NULL;
  const char *remedy =
      node->kind == TREE_LEAF && (PyList_Check(nest) || PyTuple_CheckExact(nest)) ? "; numpy.asarray makes one of it" : "";
  if (where != NULL && is != NULL && wanted != NULL)
    out = PyUnicode_FromFormat("%U is of type %U, but should be %U%s", where, is, wanted, remedy);
  Py_XDECREF(where);
  Py_XDECREF(is);
  Py_XDECREF(wanted);
  return out;
}

static PyObject *wrong_size(const tree *node, Py_ssize_t size, const place *at)
{
  PyObject *where = place_text(at);
  PyObject *out = where == NULL ? NULL : PyUnicode_FromFormat("%U has %zd elements, but should have %zu", where, size, node->n);
  Py_XDECREF(where);
  return out;
}

static PyObject *wrong_key(PyObject *key, bool missing, const place *at)
{
  PyObject *where = place_text(at);
  PyObject *out =
      where == NULL
          ? NULL
          : PyUnicode_FromFormat(missing ? "%U has no %R, but should have" : "%U has %R, but should not have", where, key);
  Py_XDECREF(where);
  return out;
}

static PyObject *compare_sequences(const tree *node, PyObject *nest, const place *at)
{
  Py_ssize_t size = PySequence_Size(nest);
  if (size < 0) return NULL;
  if ((size_t)size != node->n) return wrong_size(node, size, at);
  PyObject *out = NULL;
  for (size_t i = 0; out == NULL && !PyErr_Occurred() && i < node->n; i++) {
    PyObject *value = PySequence_GetItem(nest, (Py_ssize_t)i);
    place below = {.above = at, .parent = node, .child = i};
    if (value != NULL) out = difference(node->child[i], value, &below);
    Py_XDECREF(value);
  }
  return out;
}

static PyObject *find_other_key(const tree *node, PyObject *mapping, const place *at)
{
  PyObject *keys = PyMapping_Keys(mapping), *out = NULL;
  for (Py_ssize_t k = 0; keys != NULL && out == NULL && !PyErr_Occurred() && k < PyList_Size(keys); k++) {
    PyObject *key = PyList_GetItem(keys, k);
    int same = 0;
    for (size_t i = 0; same == 0 && i < node->n; i++) same = PyObject_RichCompareBool(node->key[i], key, Py_EQ);
    if (same == 0) out = wrong_key(key, false, at);
  }
  Py_XDECREF(keys);
  return out;
}

static PyObject *compare_keyed(const tree *node, PyObject *nest, const place *at)
{
  PyObject *out = NULL;
  for (size_t i = 0; out == NULL && !PyErr_Occurred() && i < node->n; i++) {
    PyObject *value = node->kind == TREE_ATTRS ? PyObject_GetAttr(nest, node->key[i]) : PyObject_GetItem(nest, node->key[i]);
    place below = {.above = at, .parent = node, .child = i};
    if (value != NULL) {
      out = difference(node->child[i], value, &below);
    } else if (PyErr_ExceptionMatches(PyExc_KeyError) || PyErr_ExceptionMatches(PyExc_AttributeError)) {
      PyErr_Clear();
      out = wrong_key(node->key[i], true, at);
    }
    Py_XDECREF(value);
  }
  if (out != NULL || PyErr_Occurred() || node->kind == TREE_ATTRS) return out;
  return find_other_key(node, nest, at);
}

static PyObject *difference(const tree *node, PyObject *nest, const place *at)
{
  switch (node->kind) {
  case TREE_LEAF: return PyDict_Check(nest) || PyList_Check(nest) || PyTuple_Check(nest) ? wrong_kind(node, nest, at) : NULL;
  case TREE_LIST: return PyList_Check(nest) ? compare_sequences(node, nest, at) : wrong_kind(node, nest, at);
  case TREE_TUPLE:
  case TREE_NAMED: return PyTuple_Check(nest) ? compare_sequences(node, nest, at) : wrong_kind(node, nest, at);
  case TREE_SEQUENCE: return Py_TYPE(nest) == node->type ? compare_sequences(node, nest, at) : wrong_kind(node, nest, at);
  case TREE_DICT: return PyDict_Check(nest) ? compare_keyed(node, nest, at) : wrong_kind(node, nest, at);
  case TREE_MAPPING:
  case TREE_ATTRS: return Py_TYPE(nest) == node->type ? compare_keyed(node, nest, at) : wrong_kind(node, nest, at);
  }
  Py_UNREACHABLE();
}

PyObject *place_difference(const tree *node, PyObject *nest)
{
  return difference(node, nest, NULL);
}
