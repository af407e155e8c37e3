/* Where in a nest something is, and what is wrong there, in words: "data['obs'][1] is a list, ...". */
#ifndef RV_PYTHON_PLACE_H
#define RV_PYTHON_PLACE_H

#include "tree.h"

/* A child of the place above it; the chain lives on the stack of whoever walks down. NULL is the nest itself. */
typedef struct place {
  const struct place *above;
  const tree *parent;
  size_t child;
} place;

/* "data['obs'][1].reward", of a nest that is called data; NULL with an exception. */
PyObject *place_text(const place *at);
/* Where the tree's leaf of this number is, in a nest that the user calls so: "out['obs'][1]". NULL with an exception. */
PyObject *place_of_leaf(const tree *root, const char *nest, size_t leaf);
/* Raises the error of this type: the nest is no longer what it was at this place. Returns -1. */
int place_raise_change(PyObject *type, const place *at, const tree *was, PyObject *nest);
/* A sentence on the first place where the nest is not of the tree's shape; NULL with an exception, and NULL without one if it is. */
PyObject *place_difference(const tree *node, PyObject *nest);

#endif
