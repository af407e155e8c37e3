/* Our operations in TensorFlow's graphs, and the sources that one of them reads by number. */
#ifndef RV_PYTHON_TF_OPS_H
#define RV_PYTHON_TF_OPS_H

#include "tf_source.h"

/* register_tensorflow_operations(): once in a process. */
PyObject *tf_register(PyObject *module, PyObject *none);
/* The source of this number in this process, a new reference; NULL: there is none (any longer). Takes the GIL. */
tf_source *tf_source_find(int64_t number);

#endif
