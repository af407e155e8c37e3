#include "configs.h"

/* (column, start, stop, step), the last three None where they are not given. */
static int read_node(PyObject *given, rv_pattern_node *out)
{
  PyObject *start, *stop, *step;
  int column;
  if (!PyArg_ParseTuple(given, "iOOO", &column, &start, &stop, &step)) return -1;
  *out = (rv_pattern_node){
      .column = column, .has_start = start != Py_None, .has_stop = stop != Py_None, .has_step = step != Py_None};
  if (out->has_start) out->start = (int32_t)PyLong_AsLong(start);
  if (out->has_stop) out->stop = (int32_t)PyLong_AsLong(stop);
  if (out->has_step) out->step = (int32_t)PyLong_AsLong(step);
  return PyErr_Occurred() ? -1 : 0;
}

/* (of, column, test, value, mod, inverse) */
static int read_condition(PyObject *given, rv_condition *out)
{
  int of, column, test, value, mod, inverse;
  if (!PyArg_ParseTuple(given, "iiiiip", &of, &column, &test, &value, &mod, &inverse)) return -1;
  *out = (rv_condition){.of = (rv_condition_of)of,
                        .column = column,
                        .test = (rv_condition_test)test,
                        .value = value,
                        .mod = mod,
                        .inverse = inverse != 0};
  return 0;
}

/* (table, nodes, conditions, (kind, constant, max_weight, column), structure) */
static int read_config(core_state *state, scratch *s, PyObject *given, rv_pattern_config *out)
{
  PyObject *nodes, *conditions, *structure;
  int kind, column;
  *out = (rv_pattern_config){.size = sizeof *out};
  if (!PyArg_ParseTuple(given, "sO!O!(iddi)O!", &out->table, &PyList_Type, &nodes, &PyList_Type, &conditions, &kind,
                        &out->priority.constant, &out->priority.max_weight, &column, state->structure_type, &structure)) {
    return -1;
  }
  out->priority.kind = (rv_priority_kind)kind;
  out->priority.column = column;
  out->num_nodes = (size_t)PyList_Size(nodes);
  out->num_conditions = (size_t)PyList_Size(conditions);
  out->naming = structure_naming((structure_object *)structure);
  bool names_all = ((structure_object *)structure)->num_leaves == out->num_nodes;
  if (names_all && (out->names = structure_names((structure_object *)structure)) == NULL) return -1;
  rv_pattern_node *node = scratch_alloc(s, out->num_nodes, sizeof *node);
  rv_condition *condition = scratch_alloc(s, out->num_conditions, sizeof *condition);
  if (node == NULL || condition == NULL) return -1;
  for (size_t i = 0; i < out->num_nodes; i++) {
    if (read_node(PyList_GetItem(nodes, (Py_ssize_t)i), &node[i]) < 0) return -1;
  }
  for (size_t i = 0; i < out->num_conditions; i++) {
    if (read_condition(PyList_GetItem(conditions, (Py_ssize_t)i), &condition[i]) < 0) return -1;
  }
  out->nodes = node;
  out->conditions = condition;
  return 0;
}

rv_pattern_config *configs_read(core_state *state, scratch *s, PyObject *list)
{
  size_t n = (size_t)PyList_Size(list);
  rv_pattern_config *configs = scratch_alloc(s, n, sizeof *configs);
  for (size_t i = 0; configs != NULL && i < n; i++) {
    if (read_config(state, s, PyList_GetItem(list, (Py_ssize_t)i), &configs[i]) < 0) return NULL;
  }
  return configs;
}

int configs_name_columns(const structure_object *step, config_namer name, void *target)
{
  PyObject *paths = tree_paths(step->root, step->num_leaves);
  bool ok = paths != NULL;
  for (size_t i = 0; ok && i < step->num_leaves; i++) {
    PyObject *text = PyObject_Repr(PyList_GetItem(paths, (Py_ssize_t)i));
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    rv_error err;
    ok = utf8 != NULL;
    if (ok && name(target, (uint32_t)i, utf8, &err) != RV_OK) {
      core_raise(step->state, &err);
      ok = false;
    }
    Py_XDECREF(text);
  }
  Py_XDECREF(paths);
  return ok ? 0 : -1;
}
