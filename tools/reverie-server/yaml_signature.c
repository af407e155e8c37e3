#include "yaml_signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/proto.h"

/* Fields of tensorflow.StructuredValue and what it contains (docs/protocol.md). */
enum {
  DTYPE_NUMBERS = 64, /* dtypes have numbers below it */
  TENSOR_SPEC = 33,
  LIST = 51,
  DICT = 53
};

typedef struct collector {
  arena *memory;
  rv_spec *specs;
  size_t count;
  rv_writer_buf structure;
  const yaml_place *top;
  rv_signature *signature;
  rv_error *err;
} collector;

/* ---- leaves ---- */

static bool is_leaf(const yaml_place *at)
{
  if (!yaml_is_mapping(at)) return false;
  yaml_node_pair_t *pairs = at->node->data.mapping.pairs.start;
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_node_t *key = yaml_document_get_node(&at->tree->document, pairs[i].key);
    yaml_node_t *value = yaml_document_get_node(&at->tree->document, pairs[i].value);
    if (key->type == YAML_SCALAR_NODE && value->type == YAML_SCALAR_NODE && key->data.scalar.length == 5 &&
        memcmp(key->data.scalar.value, "dtype", 5) == 0)
      return true;
  }
  return false;
}

static bool is_scalars(const yaml_tree *tree, yaml_node_t *node)
{
  if (node->type != YAML_SEQUENCE_NODE) return node->type == YAML_SCALAR_NODE;
  for (yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top; item++)
    if (yaml_document_get_node((yaml_document_t *)&tree->document, *item)->type != YAML_SCALAR_NODE) return false;
  return true;
}

/* It has a shape, which no part of a nest can be. */
static bool lacks_dtype(const yaml_place *at)
{
  if (!yaml_is_mapping(at)) return false;
  yaml_node_pair_t *pairs = at->node->data.mapping.pairs.start;
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_node_t *key = yaml_document_get_node(&at->tree->document, pairs[i].key);
    if (key->type == YAML_SCALAR_NODE && key->data.scalar.length == 5 && memcmp(key->data.scalar.value, "shape", 5) == 0)
      return is_scalars(at->tree, yaml_document_get_node(&at->tree->document, pairs[i].value));
  }
  return false;
}

static bool read_shape(collector *all, const yaml_place *at, rv_spec *spec, rv_error *err)
{
  const char *text;
  if (yaml_is_scalar(at)) {
    if (!yaml_scalar(all->memory, at, "a list of sizes", &text, err)) return false;
    if (strcmp(text, "any") != 0)
      return yaml_fail(at, err, "expected a list of sizes such as [84, 84], or any, got \"%s\"", text);
    spec->rank = -1;
    return true;
  }
  if (!yaml_is_sequence(at)) return yaml_fail(at, err, "expected a list of sizes such as [84, 84], [] for a scalar, or any");
  size_t rank = yaml_length(at);
  if (rank > RV_MAX_RANK) return yaml_fail(at, err, "%zu dimensions; there may be at most %d", rank, RV_MAX_RANK);
  int64_t *shape = arena_alloc(all->memory, rank, sizeof *shape);
  for (size_t i = 0; i < rank; i++) {
    yaml_place size;
    if (!yaml_element(all->memory, at, i, &size, err)) return false;
    if (yaml_is_null(&size)) return yaml_fail(&size, err, "null is no size; write -1 for any size");
    if (!yaml_scalar(all->memory, &size, "a size", &text, err)) return false;
    if (strcmp(text, "None") == 0) return yaml_fail(&size, err, "None is no size; write -1 for any size");
    if (!parse_int(text, -1, INT64_MAX, &shape[i], err)) return yaml_fail_here(&size, err);
  }
  spec->rank = (int32_t)rank;
  spec->shape = shape;
  return true;
}

static void put_spec(rv_writer_buf *out, const rv_spec *spec)
{
  size_t value = rv_put_open(out, TENSOR_SPEC);
  rv_put_string(out, 1, spec->name);
  size_t shape = rv_put_open(out, 2);
  for (int32_t i = 0; i < spec->rank; i++) {
    size_t dim = rv_put_open(out, 2);
    rv_put_varint(out, 1, (uint64_t)spec->shape[i]);
    rv_put_close(out, dim);
  }
  if (spec->rank < 0) rv_put_varint(out, 3, 1);
  rv_put_close(out, shape);
  rv_put_varint(out, 3, (uint64_t)spec->dtype);
  rv_put_close(out, value);
}

static bool no_dtype(const yaml_place *at, const char *text, rv_error *err)
{
  char known[300] = "";
  size_t size = 0;
  for (int number = 1; number < DTYPE_NUMBERS; number++) {
    if (rv_dtype_size((rv_dtype)number) == 0 || size >= sizeof known) continue;
    size += (size_t)snprintf(known + size, sizeof known - size, "%s%s", size == 0 ? "" : ", ", rv_dtype_name((rv_dtype)number));
  }
  return yaml_fail(at, err, "\"%.64s\" is no dtype; there are %s", text, known);
}

static bool read_leaf(collector *all, const yaml_place *at, rv_error *err)
{
  rv_spec spec = {.name = "", .rank = -1};
  bool has_shape = false;
  for (size_t i = 0; i < yaml_length(at); i++) {
    const char *key, *text;
    yaml_place value;
    if (!yaml_entry(all->memory, at, i, &key, &value, err)) return false;
    if (strcmp(key, "shape") == 0) {
      if (!read_shape(all, &value, &spec, err)) return false;
      has_shape = true;
      continue;
    }
    if (!yaml_scalar(all->memory, &value, "text", &text, err)) return false;
    if (strcmp(key, "dtype") == 0) {
      spec.dtype = rv_dtype_from_name(text);
      if (spec.dtype == RV_DTYPE_INVALID) return no_dtype(&value, text, err);
    } else if (strcmp(key, "name") == 0) {
      spec.name = text;
    } else {
      return yaml_fail(&value, err, "a column has no field \"%s\"; it has dtype, shape and name", key);
    }
  }
  if (!has_shape) return yaml_fail(at, err, "the column has no shape; add shape: [] for a scalar, or shape: any");
  put_spec(&all->structure, &spec);
  all->specs = arena_append(all->memory, all->specs, all->count, sizeof *all->specs);
  all->specs[all->count++] = spec;
  return true;
}

/* ---- nests ---- */

static bool read_nest(collector *all, const yaml_place *at, rv_error *err);

static bool read_list(collector *all, const yaml_place *at, rv_error *err)
{
  size_t list = rv_put_open(&all->structure, LIST);
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_place element;
    if (!yaml_element(all->memory, at, i, &element, err)) return false;
    size_t value = rv_put_open(&all->structure, 1);
    if (!read_nest(all, &element, err)) return false;
    rv_put_close(&all->structure, value);
  }
  rv_put_close(&all->structure, list);
  return true;
}

typedef struct named_place {
  const char *name;
  yaml_place place;
} named_place;

static int by_name(const void *a, const void *b)
{
  const named_place *left = a, *right = b;
  return strcmp(left->name, right->name);
}

static bool read_dict(collector *all, const yaml_place *at, rv_error *err)
{
  size_t count = yaml_length(at);
  named_place *entries = arena_alloc(all->memory, count, sizeof *entries);
  for (size_t i = 0; i < count; i++)
    if (!yaml_entry(all->memory, at, i, &entries[i].name, &entries[i].place, err)) return false;
  qsort(entries, count, sizeof *entries, by_name);
  size_t dict = rv_put_open(&all->structure, DICT);
  for (size_t i = 0; i < count; i++) {
    size_t field = rv_put_open(&all->structure, 1);
    rv_put_string(&all->structure, 1, entries[i].name);
    size_t value = rv_put_open(&all->structure, 2);
    if (!read_nest(all, &entries[i].place, err)) return false;
    rv_put_close(&all->structure, value);
    rv_put_close(&all->structure, field);
  }
  rv_put_close(&all->structure, dict);
  return true;
}

static bool read_nest(collector *all, const yaml_place *at, rv_error *err)
{
  if (is_leaf(at)) return read_leaf(all, at, err);
  if (lacks_dtype(at)) return yaml_fail(at, err, "the column has no dtype; add one, such as dtype: float32");
  if (!yaml_is_scalar(at) && yaml_length(at) == 0) return yaml_fail(at, err, "an empty part of a signature");
  if (yaml_is_sequence(at)) return read_list(all, at, err);
  if (yaml_is_mapping(at)) return read_dict(all, at, err);
  return yaml_fail(at, err, "expected a column {dtype: float32, shape: [4]}, or a mapping or list of such");
}

static bool read_all(void *context)
{
  collector *all = context;
  if (!read_nest(all, all->top, all->err)) return false;
  if (all->structure.failed) return yaml_fail(all->top, all->err, "out of memory");
  rv_signature *signature = arena_alloc(all->memory, 1, sizeof *signature);
  signature->specs = all->specs;
  signature->num_specs = all->count;
  signature->structure.data = arena_copy(all->memory, (const char *)all->structure.data, all->structure.size);
  signature->structure.size = all->structure.size;
  all->signature = signature;
  return true;
}

bool yaml_signature(arena *memory, const yaml_place *at, rv_signature **out, rv_error *err)
{
  collector all = {.memory = memory, .top = at, .err = err};
  rv_writer_buf_init(&all.structure);
  bool no_memory, ok = arena_try(memory, read_all, &all, &no_memory);
  if (no_memory) yaml_fail(at, err, "out of memory");
  if (ok) *out = all.signature;
  rv_writer_buf_fini(&all.structure);
  return ok;
}
