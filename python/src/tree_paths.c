/* Where the leaves of a nest are: of each the keys and numbers that lead to it. */
#include "core.h"
#include "tree.h"

static int add_paths(const tree *node, PyObject *path, PyObject *out)
{
  if (node->kind == TREE_LEAF) {
    Py_INCREF(path);
    return PyList_SetItem(out, (Py_ssize_t)node->leaf, path);
  }
  for (size_t i = 0; i < node->n; i++) {
    PyObject *key = node->key != NULL ? node->key[i] : PyLong_FromSize_t(i);
    if (key == NULL) return -1;
    PyObject *step = PyTuple_Pack(1, key);
    if (node->key == NULL) Py_DECREF(key);
    PyObject *longer = step == NULL ? NULL : PySequence_Concat(path, step);
    Py_XDECREF(step);
    int bad = longer == NULL ? -1 : add_paths(node->child[i], longer, out);
    Py_XDECREF(longer);
    if (bad < 0) return -1;
  }
  return 0;
}

PyObject *tree_paths(const tree *node, size_t num_leaves)
{
  PyObject *out = PyList_New((Py_ssize_t)num_leaves);
  PyObject *root = PyTuple_New(0);
  for (size_t i = 0; out != NULL && i < num_leaves; i++) {
    Py_INCREF(Py_None);
    PyList_SetItem(out, (Py_ssize_t)i, Py_None);
  }
  if (out == NULL || root == NULL || add_paths(node, root, out) < 0) Py_CLEAR(out);
  Py_XDECREF(root);
  return out;
}

void tree_prefix_path(const tree *node, size_t num_leaves, size_t leaf)
{
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *paths = tree_paths(node, num_leaves);
  PyErr_Restore(type, value, traceback);
  PyObject *path = paths == NULL ? NULL : PyList_GetItem(paths, (Py_ssize_t)leaf);
  if (path != NULL && PyTuple_Size(path) > 0) core_prefix_error(path); /* what is no container has no place in it */
  Py_XDECREF(paths);
}
