/* The naming of a structure: one number for its containers, keys and their order, the same in every process and every version. */
#include "types.h"

#define FNV_OFFSET UINT64_C(0xCBF29CE484222325)
#define FNV_PRIME UINT64_C(0x100000001B3)

static void mix(uint64_t *hash, const void *data, size_t size)
{
  const uint8_t *bytes = data;
  for (size_t i = 0; i < size; i++) *hash = (*hash ^ bytes[i]) * FNV_PRIME;
}

static void mix_size(uint64_t *hash, size_t size)
{
  uint8_t bytes[8];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)((uint64_t)size >> (8 * i));
  mix(hash, bytes, sizeof bytes);
}

/* A letter for the key's kind, and bytes that are the same everywhere: of a number its digits, of anything else what repr says. */
static PyObject *key_bytes(PyObject *key, char *kind)
{
  if (PyBytes_Check(key)) {
    *kind = 'b';
    Py_INCREF(key);
    return key;
  }
  PyObject *text;
  if (PyUnicode_Check(key)) {
    *kind = 's';
    Py_INCREF(key);
    text = key;
  } else if (PyIndex_Check(key)) {
    *kind = 'i';
    text = PyNumber_ToBase(key, 16);
  } else {
    *kind = 'r';
    text = PyObject_Repr(key);
  }
  PyObject *bytes = text == NULL ? NULL : PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
  Py_XDECREF(text);
  return bytes;
}

static int mix_key(uint64_t *hash, PyObject *key)
{
  char kind;
  PyObject *bytes = key_bytes(key, &kind);
  if (bytes == NULL) return -1;
  mix(hash, &kind, 1);
  mix_size(hash, (size_t)PyBytes_Size(bytes));
  mix(hash, PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
  Py_DECREF(bytes);
  return 0;
}

static char kind_of(const tree *node)
{
  switch (node->kind) {
  case TREE_LEAF: return '.';
  case TREE_DICT:
  case TREE_MAPPING: return '{';
  case TREE_LIST:
  case TREE_SEQUENCE: return '[';
  case TREE_TUPLE: return '(';
  case TREE_NAMED: return '<';
  case TREE_ATTRS: return '@';
  }
  Py_UNREACHABLE();
}

static int mix_tree(uint64_t *hash, const tree *node)
{
  char kind = kind_of(node);
  mix(hash, &kind, 1);
  if (node->kind == TREE_LEAF) return 0;
  mix_size(hash, node->n);
  for (size_t i = 0; i < node->n; i++) {
    if (node->key != NULL && mix_key(hash, node->key[i]) < 0) return -1;
    if (mix_tree(hash, node->child[i]) < 0) return -1;
  }
  return 0;
}

uint64_t structure_naming(structure_object *self)
{
  if (self->naming != 0) return self->naming;
  uint64_t hash = FNV_OFFSET;
  if (mix_tree(&hash, self->root) < 0) {
    PyErr_Clear();
    return 0;
  }
  return self->naming = hash != 0 ? hash : 1;
}
