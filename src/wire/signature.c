#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "wire/parse.h"
#include "wire/tensor_proto.h"
#include "wire/unary.h"

enum { MAX_DEPTH = 64, MAX_LEAVES = 65536, PATH_BYTES = RV_SIGNATURE_PLACE_MAX + 8 };

/* tensorflow.StructuredValue's kinds that a signature may have. */
enum { KIND_TENSOR_SPEC = 33, KIND_BOUNDED_SPEC = 35, KIND_LIST = 51, KIND_TUPLE = 52, KIND_DICT = 53, KIND_NAMED_TUPLE = 54 };

typedef struct leaf {
  int32_t dtype, rank;
  size_t name, name_size; /* in `names` */
  size_t shape;           /* in `sizes` */
} leaf;

/* Leaves as they are found; arrays move while they grow, so that everything is an offset until the end. */
typedef struct builder {
  leaf *leaves;
  size_t num_leaves, leaf_capacity;
  int64_t *sizes;
  size_t num_sizes, size_capacity;
  rv_writer_buf names;   /* used as a plain growing buffer */
  char path[PATH_BYTES]; /* of the value at hand: "obs/0"; cut where it does not fit */
  size_t path_size;
  size_t named;  /* keys and fields in it: parts that are no indices */
  bool by_place; /* leaves are called by their place, whatever their own name */
  int depth;
  rv_error *err;
} builder;

static rv_code walk(builder *b, rv_span value);

/* ---- memory ---- */

static void *grow(void *array, size_t *capacity, size_t needed, size_t element)
{
  if (needed <= *capacity) return array;
  size_t wanted = *capacity * 2 > needed ? *capacity * 2 : needed + 8;
  void *grown = realloc(array, wanted * element);
  if (grown != NULL) *capacity = wanted;
  return grown;
}

static rv_code add_leaf(builder *b, int32_t dtype, const rv_shape_proto *shape, rv_span name)
{
  if (b->num_leaves == MAX_LEAVES) return rv_fail(b->err, RV_INVALID_ARGUMENT, "a signature of more than %d leaves", MAX_LEAVES);
  leaf *leaves = grow(b->leaves, &b->leaf_capacity, b->num_leaves + 1, sizeof *leaves);
  if (leaves == NULL) return rv_fail_memory(b->err, sizeof *leaves);
  b->leaves = leaves;
  int64_t *sizes = grow(b->sizes, &b->size_capacity, b->num_sizes + shape->rank, sizeof *sizes);
  if (sizes == NULL && shape->rank > 0) return rv_fail_memory(b->err, sizeof *sizes * shape->rank);
  b->sizes = sizes;
  b->leaves[b->num_leaves++] = (leaf){.dtype = dtype,
                                      .rank = shape->unknown_rank ? -1 : (int32_t)shape->rank,
                                      .name = b->names.size,
                                      .name_size = name.size,
                                      .shape = b->num_sizes};
  rv_put_raw(&b->names, name.data, name.size);
  if (!shape->unknown_rank && shape->rank > 0) {
    memcpy(b->sizes + b->num_sizes, shape->sizes, shape->rank * sizeof *sizes);
    b->num_sizes += shape->rank;
  }
  return b->names.failed ? rv_fail_memory(b->err, name.size) : RV_OK;
}

/* ---- paths ---- */

static size_t enter(builder *b, const void *name, size_t size)
{
  size_t before = b->path_size, room = sizeof b->path - b->path_size;
  if (before > 0 && room > 0) {
    b->path[b->path_size++] = '/';
    room--;
  }
  if (size > room) {
    size = room;
    while (size > 0 && ((const uint8_t *)name)[size] >> 6 == 2) size--; /* cut between characters */
  }
  if (size > 0) memcpy(b->path + b->path_size, name, size);
  for (size_t i = 0; i < size; i++) {
    if (b->path[b->path_size + i] == '\0') b->path[b->path_size + i] = '?'; /* with which the name would end */
  }
  b->path_size += size;
  return before;
}

static size_t enter_index(builder *b, size_t index)
{
  char digits[24];
  int n = snprintf(digits, sizeof digits, "%zu", index);
  return enter(b, digits, (size_t)n);
}

static int path_of(const builder *b)
{
  return (int)b->path_size;
}

/* ---- leaves ---- */

static rv_code check_sizes(builder *b, const rv_shape_proto *shape)
{
  for (uint32_t i = 0; i < shape->rank; i++)
    if (shape->sizes[i] < -1)
      return rv_fail(b->err, RV_INVALID_ARGUMENT, "the signature's leaf \"%.*s\" has a dimension of size %lld", path_of(b),
                     b->path, (long long)shape->sizes[i]);
  return RV_OK;
}

static rv_code walk_spec(builder *b, rv_span message)
{
  rv_span name = {0};
  rv_shape_proto shape = {0};
  int32_t dtype = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) name = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) code = rv_shape_proto_parse(field.bytes, &shape, b->err);
    if (rv_field_is(&field, 3, RV_WIRE_VARINT)) dtype = rv_field_int32(&field);
  }
  if (code == RV_OK && reader.broken) code = rv_fail_parse(b->err, "TensorSpecProto");
  if (code == RV_OK) code = rv_check_text(name, "the name of a signature's leaf", b->err);
  if (code == RV_OK) code = check_sizes(b, &shape);
  if (code != RV_OK) return code;
  if (rv_dtype_size((rv_dtype)dtype) == 0)
    return rv_fail(b->err, RV_INVALID_ARGUMENT, "the signature's leaf \"%.*s\" has dtype number %d, which Reverie does not know",
                   path_of(b), b->path, (int)dtype);
  if (name.size == 0 || (b->by_place && (b->named > 0 || b->path_size == 0)))
    name = (rv_span){(const uint8_t *)b->path, b->path_size};
  return add_leaf(b, dtype, &shape, name);
}

/* ---- nests ---- */

static rv_code walk_sequence(builder *b, rv_span message)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  for (size_t index = 0; code == RV_OK && rv_reader_next(&reader, &field);) {
    if (!rv_field_is(&field, 1, RV_WIRE_BYTES)) continue;
    size_t before = enter_index(b, index++);
    code = walk(b, field.bytes);
    b->path_size = before;
  }
  return code == RV_OK && reader.broken ? rv_fail_parse(b->err, "StructuredValue") : code;
}

typedef struct pair {
  rv_span key, value;
  size_t order;
} pair;

/* A map's entry and a named tuple's pair look alike. */
static rv_code parse_pair(builder *b, rv_span message, pair *out)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) out->key = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) out->value = field.bytes;
  }
  if (reader.broken) return rv_fail_parse(b->err, "StructuredValue");
  return rv_check_text(out->key, "a key of a signature", b->err);
}

static rv_code walk_pair(builder *b, const pair *at)
{
  size_t before = enter(b, at->key.data, at->key.size);
  b->named++;
  rv_code code = walk(b, at->value);
  b->named--;
  b->path_size = before;
  return code;
}

static rv_code walk_named_tuple(builder *b, rv_span message)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) code = rv_check_text(field.bytes, "the name of a signature's named tuple", b->err);
    if (!rv_field_is(&field, 2, RV_WIRE_BYTES)) continue;
    pair at = {0};
    code = parse_pair(b, field.bytes, &at);
    if (code == RV_OK) code = walk_pair(b, &at);
  }
  return code == RV_OK && reader.broken ? rv_fail_parse(b->err, "StructuredValue") : code;
}

static int compare_keys(rv_span a, rv_span b)
{
  size_t common = a.size < b.size ? a.size : b.size;
  int order = common > 0 ? memcmp(a.data, b.data, common) : 0;
  return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int compare_pairs(const void *left, const void *right)
{
  const pair *a = left, *b = right;
  int order = compare_keys(a->key, b->key);
  return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static rv_code walk_pairs(builder *b, pair *pairs, size_t count)
{
  qsort(pairs, count, sizeof *pairs, compare_pairs);
  rv_code code = RV_OK;
  for (size_t i = 0; code == RV_OK && i < count; i++) {
    if (i + 1 < count && compare_keys(pairs[i].key, pairs[i + 1].key) == 0) continue; /* of equal keys the last one counts */
    code = walk_pair(b, &pairs[i]);
  }
  return code;
}

/* For one behind `count`. */
static rv_code add_room(builder *b, pair **pairs, size_t *capacity, size_t count)
{
  if (count == MAX_LEAVES) return rv_fail(b->err, RV_INVALID_ARGUMENT, "a signature's dict of more than %d keys", MAX_LEAVES);
  pair *grown = grow(*pairs, capacity, count + 1, sizeof *grown);
  if (grown == NULL) return rv_fail_memory(b->err, (count + 1) * sizeof *grown);
  *pairs = grown;
  return RV_OK;
}

static rv_code walk_dict(builder *b, rv_span message)
{
  rv_reader reader;
  rv_field field;
  size_t capacity = 0, count = 0;
  pair *pairs = NULL;
  rv_code code = RV_OK;
  rv_reader_init(&reader, message);
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (!rv_field_is(&field, 1, RV_WIRE_BYTES)) continue;
    code = add_room(b, &pairs, &capacity, count);
    if (code != RV_OK) break;
    pairs[count] = (pair){.order = count};
    code = parse_pair(b, field.bytes, &pairs[count++]);
  }
  if (code == RV_OK && reader.broken) code = rv_fail_parse(b->err, "StructuredValue");
  if (code == RV_OK && count > 0) code = walk_pairs(b, pairs, count);
  free(pairs);
  return code;
}

/* The member of the oneof that came last, which is the one that counts. */
static bool find_kind(rv_span value, rv_field *out)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, value);
  *out = (rv_field){0};
  while (rv_reader_next(&reader, &field)) {
    uint32_t n = field.number;
    bool bytes = n == 1 || n == 13 || n == 31 || (n >= 33 && n <= 35) || (n >= 51 && n <= 56);
    bool number = n == 12 || n == 14 || n == 32;
    rv_wire_type type = bytes ? RV_WIRE_BYTES : number ? RV_WIRE_VARINT : RV_WIRE_FIXED64;
    if ((bytes || number || n == 11) && field.type == type) *out = field;
  }
  return !reader.broken;
}

static rv_code walk(builder *b, rv_span value)
{
  if (b->depth == MAX_DEPTH) return rv_fail(b->err, RV_INVALID_ARGUMENT, "a signature nested more than %d deep", MAX_DEPTH);
  rv_field kind;
  if (!find_kind(value, &kind)) return rv_fail_parse(b->err, "StructuredValue");
  b->depth++;
  rv_code code;
  switch (kind.number) {
  case KIND_TENSOR_SPEC:
  case KIND_BOUNDED_SPEC: code = walk_spec(b, kind.bytes); break;
  case KIND_LIST:
  case KIND_TUPLE: code = walk_sequence(b, kind.bytes); break;
  case KIND_DICT: code = walk_dict(b, kind.bytes); break;
  case KIND_NAMED_TUPLE: code = walk_named_tuple(b, kind.bytes); break;
  default:
    code = rv_fail(b->err, RV_INVALID_ARGUMENT,
                   "the signature has something else than a tensor spec at \"%.*s\" (kind %u); make every leaf a spec",
                   path_of(b), b->path, (unsigned)kind.number);
  }
  b->depth--;
  return code;
}

/* ---- the result ---- */

/* One block: specs, sizes, names with a NUL each, structure. It begins with the specs, so that they are what is freed. */
static rv_code assemble(const builder *b, rv_span structure, rv_signature *out, rv_error *err)
{
  size_t size = b->num_leaves * sizeof(rv_spec) + b->num_sizes * sizeof(int64_t) + b->names.size + b->num_leaves + structure.size;
  rv_spec *specs = malloc(size > 0 ? size : 1);
  if (specs == NULL) return rv_fail_memory(err, size);
  int64_t *sizes = (int64_t *)(void *)(specs + b->num_leaves);
  char *text = (char *)(sizes + b->num_sizes);
  if (b->num_sizes > 0) memcpy(sizes, b->sizes, b->num_sizes * sizeof *sizes);
  for (size_t i = 0; i < b->num_leaves; i++) {
    const leaf *from = &b->leaves[i];
    specs[i] = (rv_spec){.name = text, .dtype = (rv_dtype)from->dtype, .rank = from->rank, .shape = sizes + from->shape};
    if (from->name_size > 0) memcpy(text, b->names.data + from->name, from->name_size);
    text += from->name_size;
    *text++ = '\0';
  }
  if (structure.size > 0) memcpy(text, structure.data, structure.size);
  *out = (rv_signature){.specs = specs, .num_specs = b->num_leaves, .structure = {text, structure.size}};
  return RV_OK;
}

static rv_code parse(rv_span structured_value, bool by_place, rv_signature *out, rv_error *err)
{
  builder b = {.by_place = by_place, .err = err};
  rv_writer_buf_init(&b.names);
  rv_code code = walk(&b, structured_value);
  if (code == RV_OK) code = assemble(&b, structured_value, out, err);
  free(b.leaves);
  free(b.sizes);
  rv_writer_buf_fini(&b.names);
  return code;
}

rv_code rv_signature_parse(rv_span structured_value, rv_signature *out, rv_error *err)
{
  return parse(structured_value, false, out, err);
}

rv_code rv_signature_parse_places(rv_span structured_value, rv_signature *out, rv_error *err)
{
  return parse(structured_value, true, out, err);
}

void rv_signature_fini(rv_signature *signature)
{
  free((void *)(uintptr_t)signature->specs);
  *signature = (rv_signature){0};
}

void rv_signature_serialize(rv_writer_buf *out, const rv_signature *signature)
{
  size_t list = rv_put_open(out, KIND_LIST);
  for (size_t i = 0; i < signature->num_specs; i++) {
    const rv_spec *spec = &signature->specs[i];
    size_t value = rv_put_open(out, 1), tensor = rv_put_open(out, KIND_TENSOR_SPEC);
    rv_put_string(out, 1, spec->name);
    if (spec->rank >= 0) {
      rv_shape_proto_put(out, 2, (uint32_t)spec->rank, spec->shape);
    } else {
      size_t shape = rv_put_open(out, 2);
      rv_put_varint(out, 3, 1);
      rv_put_close(out, shape);
    }
    rv_put_varint(out, 3, (uint64_t)spec->dtype);
    rv_put_close(out, tensor);
    rv_put_close(out, value);
  }
  rv_put_close(out, list);
}

void rv_signature_put(rv_writer_buf *out, uint32_t field, const rv_signature *signature)
{
  if (signature->structure.size > 0) {
    rv_put_bytes_always(out, field, signature->structure.data, signature->structure.size);
  } else if (signature->num_specs > 0) {
    size_t mark = rv_put_open(out, field);
    rv_signature_serialize(out, signature);
    rv_put_close(out, mark);
  }
}
