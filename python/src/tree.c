#include "place.h"

/* Is it of the abstract class? 0 also where it cannot be asked; -1 with an exception such as Ctrl-C. */
static int is_instance(PyObject *object, PyObject *abstract)
{
  int found = PyObject_IsInstance(object, abstract);
  if (found < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
    PyErr_Clear();
    return 0;
  }
  return found;
}

#define CONTAINERS (Py_TPFLAGS_DICT_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS)
#define PLAIN (Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS | Py_TPFLAGS_BYTES_SUBCLASS)

/* Nothing that holds others, and quickly seen to be: no class is asked for its bases before all types that are common have been
 * looked for. */
static bool is_plain_leaf(const core_state *state, PyObject *value)
{
  PyTypeObject *type = Py_TYPE(value);
  if (type == &PyArray_Type || type == &PyFloat_Type || value == Py_None || type == state->column_type) return true;
  if ((PyType_GetFlags(type) & PLAIN) != 0) return true;
  if (state->scalar_type[core_scalar_slot(state, type)] == type) return true;
  return PyArray_Check(value) || PyFloat_Check(value) || PyArray_IsScalar(value, Generic);
}

int tree_kind_of(core_state *state, PyObject *nest)
{
  if (PyArray_CheckExact(nest)) return TREE_LEAF; /* as most */
  if (PyDict_Check(nest)) return TREE_DICT;
  if (PyTuple_Check(nest))
    return !PyTuple_CheckExact(nest) && PyObject_HasAttr(nest, state->tuple_fields) ? TREE_NAMED : TREE_TUPLE;
  if (PyList_Check(nest)) return TREE_LIST;
  if (is_plain_leaf(state, nest)) return TREE_LEAF;
  if (PyObject_HasAttr((PyObject *)Py_TYPE(nest), state->attrs_fields)) return TREE_ATTRS;
  int found = is_instance(nest, state->mapping);
  if (found != 0) return found < 0 ? -1 : TREE_MAPPING;
  if (PyObject_CheckBuffer(nest) || PyRange_Check(nest)) return TREE_LEAF;
  found = is_instance(nest, state->sequence);
  return found < 0 ? -1 : found > 0 ? TREE_SEQUENCE : TREE_LEAF;
}

void tree_free(tree *node)
{
  if (node == NULL) return;
  for (size_t i = 0; i < node->n; i++) {
    tree_free(node->child[i]);
    if (node->key != NULL) Py_XDECREF(node->key[i]);
  }
  Py_XDECREF((PyObject *)node->type);
  Py_XDECREF(node->alias);
  PyMem_Free(node->child);
  PyMem_Free(node->key);
  PyMem_Free(node->order);
  PyMem_Free(node);
}

int tree_traverse(const tree *node, visitproc visit, void *arg)
{
  if (node == NULL) return 0;
  Py_VISIT((PyObject *)node->type);
  Py_VISIT(node->alias);
  for (size_t i = 0; i < node->n; i++) {
    if (node->key != NULL) Py_VISIT(node->key[i]);
    int result = tree_traverse(node->child[i], visit, arg);
    if (result != 0) return result;
  }
  return 0;
}

/* ---- making ---- */

/* Room for one more child; key and order as the kind needs them. */
static int reserve(tree *node, size_t n)
{
  tree **child = PyMem_Realloc(node->child, n * sizeof *child);
  if (child != NULL) node->child = child;
  bool ok = child != NULL;
  if (ok && node->kind != TREE_LIST && node->kind != TREE_TUPLE && node->kind != TREE_SEQUENCE) {
    PyObject **key = PyMem_Realloc(node->key, n * sizeof *key);
    size_t *order = PyMem_Realloc(node->order, n * sizeof *order);
    if (key != NULL) node->key = key;
    if (order != NULL) node->order = order;
    ok = key != NULL && order != NULL;
  }
  if (!ok) PyErr_NoMemory();
  return ok ? 0 : -1;
}

int tree_too_deep(void)
{
  PyErr_Format(PyExc_ValueError, "the data is nested more than %d deep", TREE_MAX_DEPTH);
  return -1;
}

static tree *build(core_state *state, PyObject *nest, size_t *num_leaves, int depth);

/* Adds a child under the key (NULL for lists), at the end. */
static int add_child(core_state *state, tree *node, PyObject *key, PyObject *value, size_t *num_leaves, int depth)
{
  if (reserve(node, node->n + 1) < 0) return -1;
  size_t counted = *num_leaves; /* numbers are used up only by what is in the tree in the end */
  tree *child = build(state, value, &counted, depth);
  if (child == NULL) return -1;
  node->child[node->n] = child;
  if (node->key != NULL) {
    Py_INCREF(key);
    node->key[node->n] = key;
    node->order[node->n] = node->n;
  }
  node->n++;
  *num_leaves = counted;
  return 0;
}

static PyObject *sorted_keys(PyObject *mapping)
{
  PyObject *keys = PyMapping_Keys(mapping);
  if (keys == NULL || PyList_Sort(keys) == 0) return keys;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Format(PyExc_TypeError, "the keys of a dict must be of one kind, so that they can be sorted; got %R", keys);
  }
  Py_DECREF(keys);
  return NULL;
}

static PyObject *get(PyObject *mapping, tree_kind kind, PyObject *key)
{
  if (kind == TREE_DICT) {
    PyObject *value = PyDict_GetItemWithError(mapping, key);
    Py_XINCREF(value);
    return value;
  }
  PyObject *value = kind == TREE_MAPPING ? PyObject_GetItem(mapping, key) : PyObject_GetAttr(mapping, key);
  if (value == NULL && (PyErr_ExceptionMatches(PyExc_KeyError) || PyErr_ExceptionMatches(PyExc_AttributeError))) PyErr_Clear();
  return value;
}

static int build_keyed(core_state *state, tree *node, PyObject *nest, PyObject *keys, size_t *num_leaves, int depth)
{
  Py_ssize_t n = PySequence_Size(keys);
  if (n < 0) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *key = PySequence_GetItem(keys, i);
    if (key == NULL) return -1;
    PyObject *value = get(nest, node->kind, key);
    if (value == NULL && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
    int bad = value == NULL ? -1 : add_child(state, node, key, value, num_leaves, depth);
    Py_DECREF(key);
    Py_XDECREF(value);
    if (bad < 0) return -1;
  }
  return 0;
}

/* The child with the key; node->n: none, or with an exception. Equal is enough: a mapping may make its keys when it is asked. */
static size_t find_key(const tree *node, PyObject *key)
{
  size_t i = 0;
  while (i < node->n && node->key[i] != key) i++;
  if (i < node->n) return i;
  int same = 0;
  for (i = 0; i < node->n && (same = PyObject_RichCompareBool(node->key[i], key, Py_EQ)) == 0;) i++;
  return same < 0 ? node->n : i;
}

/* Where each child comes in the container's own order. */
static int find_order(tree *node, PyObject *nest)
{
  PyObject *keys = PyMapping_Keys(nest);
  if (keys == NULL) return -1;
  bool found = (size_t)PyList_Size(keys) == node->n;
  for (size_t at = 0; found && at < node->n; at++) {
    node->order[at] = find_key(node, PyList_GetItem(keys, (Py_ssize_t)at));
    found = node->order[at] < node->n;
  }
  Py_DECREF(keys);
  if (!found && !PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a dict changed while it was flattened");
  return found ? 0 : -1;
}

static PyObject *field_name(PyObject *field)
{
  return PyObject_GetAttrString(field, "name");
}

/* What the class calls the field when it is made. Fields of attrs below 22.2 do not say: underscores in front are dropped. */
static PyObject *field_alias(PyObject *field)
{
  PyObject *alias = PyObject_GetAttrString(field, "alias");
  if (alias != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) return alias;
  PyErr_Clear();
  PyObject *name = field_name(field);
  alias = name == NULL ? NULL : PyObject_CallMethod(name, "lstrip", "s", "_");
  Py_XDECREF(name);
  return alias;
}

/* What `ask` gets of each field of an attrs class, in a list. */
static PyObject *attrs_fields(core_state *state, PyTypeObject *type, PyObject *(*ask)(PyObject *field))
{
  PyObject *fields = PyObject_GetAttr((PyObject *)type, state->attrs_fields);
  if (fields == NULL) return NULL;
  PyObject *out = PyList_New(0);
  Py_ssize_t n = PySequence_Size(fields);
  if (n < 0) Py_CLEAR(out);
  for (Py_ssize_t i = 0; out != NULL && i < n; i++) {
    PyObject *field = PySequence_GetItem(fields, i);
    PyObject *got = field == NULL ? NULL : ask(field);
    if (got == NULL || PyList_Append(out, got) < 0) Py_CLEAR(out);
    Py_XDECREF(field);
    Py_XDECREF(got);
  }
  Py_DECREF(fields);
  return out;
}

/* A class of the user's may be asked for its size, and raise, here and below. */
static int build_elements(core_state *state, tree *node, PyObject *nest, size_t *num_leaves, int depth)
{
  Py_ssize_t n;
  for (Py_ssize_t i = 0; i < (n = PySequence_Size(nest)); i++) {
    PyObject *value = PySequence_GetItem(nest, i);
    int bad = value == NULL ? -1 : add_child(state, node, NULL, value, num_leaves, depth);
    Py_XDECREF(value);
    if (bad < 0) return -1;
  }
  return n < 0 ? -1 : 0;
}

static int build_children(core_state *state, tree *node, PyObject *nest, size_t *num_leaves, int depth)
{
  PyObject *keys = NULL;
  switch (node->kind) {
  case TREE_LEAF: node->leaf = (*num_leaves)++; return 0;
  case TREE_LIST:
  case TREE_TUPLE:
  case TREE_SEQUENCE: return build_elements(state, node, nest, num_leaves, depth);
  case TREE_DICT:
  case TREE_MAPPING: keys = sorted_keys(nest); break;
  case TREE_NAMED: keys = PyObject_GetAttr(nest, state->tuple_fields); break;
  case TREE_ATTRS:
    keys = attrs_fields(state, node->type, field_name);
    if (keys != NULL && (node->alias = attrs_fields(state, node->type, field_alias)) == NULL) Py_CLEAR(keys);
    break;
  }
  if (keys == NULL) return -1;
  int bad = build_keyed(state, node, nest, keys, num_leaves, depth);
  Py_DECREF(keys);
  if (bad == 0 && (node->kind == TREE_DICT || node->kind == TREE_MAPPING)) bad = find_order(node, nest);
  return bad;
}

static tree *build(core_state *state, PyObject *nest, size_t *num_leaves, int depth)
{
  if (depth > TREE_MAX_DEPTH) {
    tree_too_deep();
    return NULL;
  }
  int kind = tree_kind_of(state, nest);
  if (kind < 0) return NULL;
  tree *node = PyMem_Calloc(1, sizeof *node);
  if (node == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  node->kind = (tree_kind)kind;
  if (node->kind != TREE_LEAF) {
    node->type = Py_TYPE(nest);
    Py_INCREF((PyObject *)node->type);
  }
  if (build_children(state, node, nest, num_leaves, depth + 1) < 0) {
    tree_free(node);
    return NULL;
  }
  return node;
}

tree *tree_copy(const tree *node)
{
  tree *copy = PyMem_Calloc(1, sizeof *copy);
  if (copy == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  copy->kind = node->kind;
  copy->leaf = node->leaf;
  copy->type = (PyTypeObject *)Py_XNewRef((PyObject *)node->type);
  copy->alias = Py_XNewRef(node->alias);
  for (size_t i = 0; i < node->n; i++) {
    tree *child = reserve(copy, i + 1) < 0 ? NULL : tree_copy(node->child[i]);
    if (child == NULL) {
      tree_free(copy);
      return NULL;
    }
    copy->child[i] = child;
    if (copy->key != NULL) {
      copy->key[i] = Py_NewRef(node->key[i]);
      copy->order[i] = node->order[i];
    }
    copy->n++;
  }
  return copy;
}

tree *tree_new(core_state *state, PyObject *nest, size_t *num_leaves)
{
  size_t counted = *num_leaves;
  tree *root = build(state, nest, &counted, 0);
  if (root != NULL) *num_leaves = counted;
  return root;
}

/* ---- flattening ---- */

static void drop_leaves(const tree *node, PyObject **leaves)
{
  if (node->kind == TREE_LEAF) {
    Py_CLEAR(leaves[node->leaf]);
    return;
  }
  for (size_t i = 0; i < node->n; i++) drop_leaves(node->child[i], leaves);
}

/* A container where the tree has a leaf is another shape. -1 with an exception. */
static int is_container(core_state *state, PyObject *value)
{
  if (PyArray_CheckExact(value)) return 0;
  if ((PyType_GetFlags(Py_TYPE(value)) & CONTAINERS) != 0) return 1;
  if (is_plain_leaf(state, value)) return 0;
  int kind = tree_kind_of(state, value);
  return kind < 0 ? -1 : kind != TREE_LEAF;
}

/* The value may be NULL, with an exception: a mapping may do anything when it is asked, so that what was there is gone. */
static int flatten_child(core_state *state, const tree *child, PyObject *value, PyObject **leaves)
{
  if (value == NULL) {
    PyErr_Clear();
    return 0;
  }
  Py_INCREF(value);
  if (child->kind != TREE_LEAF) {
    int found = tree_flatten(state, child, value, leaves);
    Py_DECREF(value);
    return found;
  }
  int other = is_container(state, value);
  if (other == 0) {
    leaves[child->leaf] = value;
    return 1;
  }
  Py_DECREF(value);
  return other < 0 ? -1 : 0;
}

/* A dict with the tree's own keys in the tree's own order, which most are: nothing is looked up. 2: it is another one. */
static int flatten_in_order(core_state *state, const tree *node, PyObject *dict, PyObject **leaves)
{
  PyObject *key, *value;
  Py_ssize_t position = 0;
  size_t at = 0;
  int found = 1;
  for (; at < node->n; at++) {
    size_t i = node->order[at];
    found = PyDict_Next(dict, &position, &key, &value) && key == node->key[i]
                ? flatten_child(state, node->child[i], value, leaves)
                : 2;
    if (found != 1) break;
  }
  if (found == 1) return 1;
  for (size_t before = 0; before < at; before++) drop_leaves(node->child[node->order[before]], leaves);
  return found;
}

/* Is it of the type, and as large as a mapping or sequence has to be? -1 with an exception. */
static int may_match(const tree *node, PyObject *nest)
{
  if (Py_TYPE(nest) != node->type) return 0;
  if (node->kind == TREE_ATTRS) return 1;
  Py_ssize_t n = PyObject_Size(nest);
  return n < 0 ? -1 : (size_t)n == node->n;
}

int tree_flatten(core_state *state, const tree *node, PyObject *nest, PyObject **leaves)
{
  int found = 1;
  size_t i = 0;
  switch (node->kind) {
  case TREE_LEAF: return flatten_child(state, node, nest, leaves);
  case TREE_DICT:
    if (!(Py_TYPE(nest) == node->type || PyDict_Check(nest)) || (size_t)PyDict_Size(nest) != node->n) return 0;
    found = flatten_in_order(state, node, nest, leaves);
    if (found < 2) return found;
    for (; i < node->n && found > 0; i++) {
      PyObject *value = PyDict_GetItemWithError(nest, node->key[i]);
      found = value != NULL ? flatten_child(state, node->child[i], value, leaves) : PyErr_Occurred() ? -1 : 0;
    }
    break;
  case TREE_LIST:
    if (!PyList_Check(nest) || (size_t)PyList_Size(nest) != node->n) return 0;
    for (; i < node->n && found > 0; i++) {
      found = flatten_child(state, node->child[i], PyList_GetItem(nest, (Py_ssize_t)i), leaves);
    }
    break;
  case TREE_TUPLE:
  case TREE_NAMED:
    if (!PyTuple_Check(nest) || (size_t)PyTuple_Size(nest) != node->n) return 0;
    for (; i < node->n && found > 0; i++) {
      found = flatten_child(state, node->child[i], PyTuple_GetItem(nest, (Py_ssize_t)i), leaves);
    }
    break;
  case TREE_MAPPING:
  case TREE_ATTRS:
    found = may_match(node, nest);
    for (; i < node->n && found > 0; i++) {
      PyObject *value = get(nest, node->kind, node->key[i]);
      found = value != NULL ? flatten_child(state, node->child[i], value, leaves) : PyErr_Occurred() ? -1 : 0;
      Py_XDECREF(value);
    }
    break;
  case TREE_SEQUENCE:
    found = may_match(node, nest);
    for (; i < node->n && found > 0; i++) {
      PyObject *value = PySequence_GetItem(nest, (Py_ssize_t)i);
      found = value != NULL ? flatten_child(state, node->child[i], value, leaves) : -1;
      Py_XDECREF(value);
    }
    break;
  }
  if (found <= 0 && i > 0) { /* the child that did not match has dropped its own leaves */
    for (size_t before = 0; before + 1 < i; before++) drop_leaves(node->child[before], leaves);
  }
  return found;
}

/* Of attrs: under the names that its class takes them by. */
static PyObject *unflatten_dict(const tree *node, PyObject *const *leaves, size_t num_leaves)
{
  PyObject *out = PyDict_New();
  for (size_t at = 0; out != NULL && at < node->n; at++) {
    size_t i = node->order[at];
    PyObject *key = node->alias == NULL ? node->key[i] : PyList_GetItem(node->alias, (Py_ssize_t)i);
    PyObject *value = tree_unflatten(node->child[i], leaves, num_leaves);
    if (key == NULL || value == NULL || PyDict_SetItem(out, key, value) < 0) Py_CLEAR(out);
    Py_XDECREF(value);
  }
  return out;
}

static PyObject *unflatten_tuple(const tree *node, PyObject *const *leaves, size_t num_leaves)
{
  size_t n = node->n;
  PyObject *out = PyTuple_New((Py_ssize_t)n);
  for (size_t i = 0; out != NULL && i < n; i++) {
    PyObject *value = tree_unflatten(node->child[i], leaves, num_leaves);
    if (value == NULL || PyTuple_SetItem(out, (Py_ssize_t)i, value) < 0) Py_CLEAR(out);
  }
  return out;
}

/* Makes a container of its own class: the class is called with the plain one, or with fields as arguments. */
static PyObject *convert(const tree *node, PyObject *owned_plain)
{
  if (owned_plain == NULL) return NULL;
  PyObject *out;
  if (node->kind == TREE_NAMED) {
    out = PyObject_CallObject((PyObject *)node->type, owned_plain);
  } else if (node->kind == TREE_ATTRS) {
    PyObject *none = PyTuple_New(0);
    out = none == NULL ? NULL : PyObject_Call((PyObject *)node->type, none, owned_plain);
    Py_XDECREF(none);
  } else {
    out = PyObject_CallFunctionObjArgs((PyObject *)node->type, owned_plain, NULL);
  }
  Py_DECREF(owned_plain);
  return out;
}

PyObject *tree_unflatten(const tree *node, PyObject *const *leaves, size_t num_leaves)
{
  switch (node->kind) {
  case TREE_LEAF: {
    PyObject *leaf = node->leaf < num_leaves && leaves[node->leaf] != NULL ? leaves[node->leaf] : Py_None;
    Py_INCREF(leaf);
    return leaf;
  }
  case TREE_DICT: {
    PyObject *out = unflatten_dict(node, leaves, num_leaves);
    if (node->type == &PyDict_Type || out == NULL) return out;
    if (PyObject_HasAttrString((PyObject *)node->type, "__missing__")) return out; /* a defaultdict takes no dict first */
    return convert(node, out);
  }
  case TREE_MAPPING:
  case TREE_ATTRS: return convert(node, unflatten_dict(node, leaves, num_leaves));
  case TREE_NAMED: return convert(node, unflatten_tuple(node, leaves, num_leaves));
  case TREE_TUPLE: {
    PyObject *out = unflatten_tuple(node, leaves, num_leaves);
    if (out == NULL || node->type == &PyTuple_Type) return out;
    Py_INCREF(out);
    PyObject *made = convert(node, out);
    if (made == NULL && !core_clear_refusal()) Py_CLEAR(out);
    if (made == NULL) return out; /* it takes no arrays, as torch.Size does, and what was drawn is not lost for that */
    Py_DECREF(out);
    return made;
  }
  case TREE_LIST:
  case TREE_SEQUENCE: {
    size_t n = node->n;
    PyObject *out = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; out != NULL && i < n; i++) {
      PyObject *value = tree_unflatten(node->child[i], leaves, num_leaves);
      if (value == NULL || PyList_SetItem(out, (Py_ssize_t)i, value) < 0) Py_CLEAR(out);
    }
    return node->type == &PyList_Type ? out : convert(node, out);
  }
  }
  Py_UNREACHABLE();
}

/* ---- growing ---- */

/* Lists, tuples and other sequences may stand for each other. */
static bool is_ordered(int kind)
{
  return kind == TREE_LIST || kind == TREE_TUPLE || kind == TREE_NAMED || kind == TREE_SEQUENCE;
}

static int match_sequence(core_state *state, const tree *node, PyObject *nest, tree_visit visit, void *context)
{
  Py_ssize_t n = PySequence_Size(nest);
  if (n < 0) return -1;
  if ((size_t)n > node->n) return 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *value = PySequence_GetItem(nest, i);
    int found = value == NULL ? -1 : tree_match(state, node->child[i], value, visit, context);
    Py_XDECREF(value);
    if (found <= 0) return found;
  }
  return 1;
}

/* Dicts and other mappings may stand for each other. */
static bool is_mapped(int kind)
{
  return kind == TREE_DICT || kind == TREE_MAPPING;
}

static int match_keyed(core_state *state, const tree *node, PyObject *nest, int kind, tree_visit visit, void *context)
{
  Py_ssize_t size = node->kind == TREE_ATTRS ? (Py_ssize_t)node->n : PyMapping_Size(nest);
  Py_ssize_t seen = 0;
  if (size < 0) return -1;
  for (size_t i = 0; i < node->n && seen < size; i++) {
    PyObject *value = get(nest, (tree_kind)kind, node->key[i]);
    if (value == NULL && PyErr_Occurred()) return -1;
    if (value == NULL) continue;
    seen++;
    int found = tree_match(state, node->child[i], value, visit, context);
    Py_DECREF(value);
    if (found <= 0) return found;
  }
  return seen == size;
}

int tree_match(core_state *state, const tree *node, PyObject *nest, tree_visit visit, void *context)
{
  if (nest == Py_None) return 1;
  switch (node->kind) {
  case TREE_LEAF: {
    int other = is_container(state, nest);
    return other != 0 ? (other < 0 ? -1 : 0) : visit(context, node->leaf, nest);
  }
  case TREE_DICT:
  case TREE_MAPPING:
  case TREE_ATTRS: {
    int kind = tree_kind_of(state, nest);
    if (kind < 0) return -1;
    bool same = kind == (int)node->kind || (is_mapped(kind) && is_mapped((int)node->kind));
    return same ? match_keyed(state, node, nest, kind, visit, context) : 0;
  }
  case TREE_LIST:
  case TREE_TUPLE:
  case TREE_NAMED:
  case TREE_SEQUENCE: {
    int kind = tree_kind_of(state, nest);
    if (kind < 0) return -1;
    return is_ordered(kind) ? match_sequence(state, node, nest, visit, context) : 0;
  }
  }
  Py_UNREACHABLE();
}

/* `depth`: of the node's children, so that a tree which grows step by step is as deep at most as one that is made at once. */
static int grow(core_state *state, tree *node, PyObject *nest, size_t *num_leaves, const place *at, int depth);

static int grow_keyed(core_state *state, tree *node, PyObject *nest, int kind, size_t *num_leaves, const place *at, int depth)
{
  PyObject *keys = node->kind == TREE_ATTRS ? attrs_fields(state, Py_TYPE(nest), field_name) : sorted_keys(nest);
  if (keys == NULL) return -1;
  int bad = 0;
  for (Py_ssize_t k = 0; bad == 0 && k < PyList_Size(keys); k++) {
    PyObject *key = PyList_GetItem(keys, k);
    PyObject *value = get(nest, (tree_kind)kind, key);
    if (value == NULL) {
      bad = PyErr_Occurred() ? -1 : 0;
      continue;
    }
    size_t i = find_key(node, key);
    if (i < node->n) {
      place below = {.above = at, .parent = node, .child = i};
      bad = grow(state, node->child[i], value, num_leaves, &below, depth + 1);
    } else if (PyErr_Occurred()) {
      bad = -1;
    } else if (node->kind == TREE_ATTRS) {
      bad = place_raise_change(state->structure_error, at, node, nest);
    } else {
      bad = add_child(state, node, key, value, num_leaves, depth);
    }
    Py_DECREF(value);
  }
  Py_DECREF(keys);
  return bad;
}

static int grow_sequence(core_state *state, tree *node, PyObject *nest, size_t *num_leaves, const place *at, int depth)
{
  Py_ssize_t n = PySequence_Size(nest);
  if (n < 0) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *value = PySequence_GetItem(nest, i);
    if (value == NULL) return -1;
    int bad;
    if ((size_t)i < node->n) {
      place below = {.above = at, .parent = node, .child = (size_t)i};
      bad = grow(state, node->child[i], value, num_leaves, &below, depth + 1);
    } else if (node->kind == TREE_NAMED) {
      bad = place_raise_change(state->structure_error, at, node, nest);
    } else {
      bad = add_child(state, node, NULL, value, num_leaves, depth);
    }
    Py_DECREF(value);
    if (bad < 0) return -1;
  }
  return 0;
}

static int grow(core_state *state, tree *node, PyObject *nest, size_t *num_leaves, const place *at, int depth)
{
  if (nest == Py_None) return 0;
  int kind = tree_kind_of(state, nest);
  if (kind < 0) return -1;
  bool sequences = is_ordered(kind) && is_ordered((int)node->kind);
  bool mappings = is_mapped(kind) && is_mapped((int)node->kind);
  if (kind != (int)node->kind && !sequences && !mappings) return place_raise_change(state->structure_error, at, node, nest);
  if (kind == TREE_LEAF) return 0;
  return sequences ? grow_sequence(state, node, nest, num_leaves, at, depth)
                   : grow_keyed(state, node, nest, kind, num_leaves, at, depth);
}

int tree_grow(core_state *state, tree *node, PyObject *nest, size_t *num_leaves)
{
  return grow(state, node, nest, num_leaves, NULL, 1);
}

/* ---- two trees ---- */

int tree_keys_are_alike(const tree *a, const tree *b)
{
  if (a->kind == TREE_LEAF || b->kind == TREE_LEAF) return a->kind == b->kind;
  if (a->n != b->n || (a->key == NULL) != (b->key == NULL)) return 0;
  int alike = 1;
  for (size_t i = 0; alike > 0 && i < a->n; i++) {
    if (a->key != NULL) alike = PyObject_RichCompareBool(a->key[i], b->key[i], Py_EQ);
    if (alike > 0) alike = tree_keys_are_alike(a->child[i], b->child[i]);
  }
  return alike;
}

bool tree_is_flat(const tree *node)
{
  if (node->kind == TREE_LEAF) return true;
  for (size_t i = 0; i < node->n; i++)
    if (node->child[i]->kind != TREE_LEAF) return false;
  return node->key == NULL;
}
