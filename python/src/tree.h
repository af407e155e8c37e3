/* The shape of a nest, kept: which containers, which keys, where the leaves are (dm-tree's rules).
 *
 * A tree is made from a nest and then flattens every nest of the same shape without looking for it again. A copy of it (a
 * writer's history) takes new keys and longer lists as they come; its leaves keep their numbers. */
#ifndef RV_PYTHON_TREE_H
#define RV_PYTHON_TREE_H

#include "core.h"

typedef enum tree_kind {
  TREE_LEAF,
  TREE_DICT,    /* dict and its subclasses */
  TREE_MAPPING, /* other mappings */
  TREE_LIST,
  TREE_TUPLE,
  TREE_NAMED, /* namedtuple */
  TREE_ATTRS, /* attrs class */
  /* Other sequences, such as deques. What has a buffer (bytearray, memoryview, array) and ranges are leaves. */
  TREE_SEQUENCE
} tree_kind;

typedef struct tree {
  tree_kind kind;
  PyTypeObject *type; /* of the container */
  size_t n;           /* children: of dicts in the order of sorted keys */
  struct tree **child;
  PyObject **key;  /* dicts: the keys; named tuples and attrs: field names; NULL for lists, tuples and other sequences */
  size_t *order;   /* dicts: children in the container's own order */
  PyObject *alias; /* attrs: a list of what the class calls its fields when it is made; NULL elsewhere */
  size_t leaf;     /* TREE_LEAF: its number */
} tree;

#define TREE_MAX_DEPTH 200 /* of a nest; what holds itself goes deeper than any bound */
int tree_too_deep(void);   /* -1, with the ValueError of a nest that goes deeper */

/* The tree of a nest, its leaves numbered from *num_leaves on. NULL with an exception, and *num_leaves as it was. */
tree *tree_new(core_state *state, PyObject *nest, size_t *num_leaves);
/* The same. NULL with MemoryError. */
tree *tree_copy(const tree *node);
void tree_free(tree *node); /* NULL is fine */
/* For the tp_traverse of whoever has the tree: a class or a key may refer to him. NULL is fine. */
int tree_traverse(const tree *node, visitproc visit, void *arg);

/* A tree_kind; a leaf where the object cannot even be asked what it is. -1 with an exception such as Ctrl-C. */
int tree_kind_of(core_state *state, PyObject *nest);

/* Writes new references to the nest's leaves to `leaves`, by number. 1; 0 if the nest has another shape (nothing is written
 * then that would have to be dropped); -1 with an exception. */
int tree_flatten(core_state *state, const tree *node, PyObject *nest, PyObject **leaves);
/* A nest of the leaves (borrowed); None for a leaf of a higher number. NULL with an exception. */
PyObject *tree_unflatten(const tree *node, PyObject *const *leaves, size_t num_leaves);
/* Do two trees have the same keys in the same places? Lists and tuples are alike, and so are dicts, named tuples and attrs classes whose keys
 * come in one order. -1 with an exception, a key's. */
int tree_keys_are_alike(const tree *a, const tree *b);
/* Nothing but leaves, without keys: their numbers are all that tells them apart. */
bool tree_is_flat(const tree *node);
/* A list of the leaves' paths: tuples of keys, indices and field names. */
PyObject *tree_paths(const tree *node, size_t num_leaves);
/* Puts that leaf's path before the sentence of the exception that is set. */
void tree_prefix_path(const tree *node, size_t num_leaves, size_t leaf);

/* For a growing tree: calls visit for each leaf of the nest that is not None, with its number. Parts of the tree that the nest
 * lacks are passed over. 1; 0 if the nest has a part that the tree lacks; -1 with an exception. */
typedef int (*tree_visit)(void *context, size_t leaf, PyObject *value);
int tree_match(core_state *state, const tree *node, PyObject *nest, tree_visit visit, void *context);
/* Adds what the nest has and the tree lacks, numbering new leaves from *num_leaves on. -1 with an exception: structure_error
 * where a leaf would become a container or the other way round. The tree is then only to be freed. */
int tree_grow(core_state *state, tree *node, PyObject *nest, size_t *num_leaves);

#endif
