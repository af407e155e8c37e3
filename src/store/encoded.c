/* Chunks that came over the wire or from disk: kept as they came, decoded for those who read rows in this process. */
#include <stdlib.h>

#include "base/error.h"
#include "store/chunk_parts.h"

typedef struct rv_encoded_chunk {
  rv_chunk chunk;
  rv_buf *owner;
  const uint8_t *wire;
  size_t wire_size, books_bytes;
  rv_encoded *tensors;
  rv_decoded *decoded;
  rv_decode_cache *cache; /* NULL: nothing is kept */
  bool in_owner;          /* this stands behind the owner's bytes */
} rv_encoded_chunk;

enum { MOST_IN_OWNER = 16, FEW_DIMENSIONS = 4, ALIGNMENT = 16 };

static rv_encoded_chunk *encoded_of(rv_chunk *chunk)
{
  return (rv_encoded_chunk *)chunk;
}
static const rv_encoded_chunk *encoded_of_const(const rv_chunk *chunk)
{
  return (const rv_encoded_chunk *)chunk;
}

static const uint8_t nothing[1]; /* where rows of no bytes lie */

static rv_code check_tensors(const rv_encoded *tensors, size_t num_tensors, size_t *num_sizes, rv_error *err)
{
  if (num_tensors == 0 || num_tensors > UINT16_MAX + 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a chunk of %zu tensors; 1 to 65,536 are possible", num_tensors);
  *num_sizes = 0;
  for (size_t i = 0; i < num_tensors; i++) {
    rv_code code = rv_encoded_check(&tensors[i], err);
    if (code == RV_OK && tensors[i].rank == 0)
      code = rv_fail(err, RV_INVALID_ARGUMENT, "its shape has no dimension for time; a chunk's tensor is [rows, ...]");
    if (code == RV_OK && tensors[i].shape[0] > INT32_MAX)
      code = rv_fail(err, RV_INVALID_ARGUMENT, "%lld rows; at most 2^31 - 1 are possible", (long long)tensors[i].shape[0]);
    if (code == RV_OK && tensors[i].shape[0] != tensors[0].shape[0])
      code = rv_fail(err, RV_INVALID_ARGUMENT, "%lld rows, but tensor 0 has %lld; all tensors of a chunk have equally many",
                     (long long)tensors[i].shape[0], (long long)tensors[0].shape[0]);
    if (code != RV_OK) {
      rv_error_prefix(err, "tensor %zu", i);
      return code;
    }
    *num_sizes += tensors[i].rank;
  }
  return RV_OK;
}

static rv_code describe_tensor(rv_encoded_chunk *encoded, size_t index, const rv_encoded *tensor, int64_t *shape, rv_error *err)
{
  memcpy(shape, tensor->shape, tensor->rank * sizeof *shape);
  size_t elements, bytes;
  rv_code code = rv_shape_elements(tensor->dtype, tensor->rank - 1, shape + 1, &elements, &bytes, err);
  if (code != RV_OK) return code;
  rv_chunk *chunk = &encoded->chunk;
  encoded->tensors[index] = *tensor;
  encoded->tensors[index].shape = shape;
  rv_list_init(&encoded->decoded[index].link);
  encoded->decoded[index].buf = NULL;
  encoded->decoded[index].joined = false;
  chunk->columns[index] =
      (rv_chunk_column){.dtype = tensor->dtype, .rank = tensor->rank - 1, .shape = shape + 1, .row_bytes = bytes};
  if (tensor->dtype == RV_STRING) chunk->has_strings = true;
  rv_lane *lane = &chunk->lanes[index];
  lane->row_bytes = lane->stride = bytes;
  lane->base = bytes == 0 || shape[0] == 0 ? nothing : rv_encoded_raw(&encoded->tensors[index]);
  atomic_init(&lane->published, shape[0]);
  return RV_OK;
}

static size_t own_bytes(size_t num_tensors)
{
  return sizeof(rv_encoded_chunk) + num_tensors * (sizeof(rv_encoded) + sizeof(rv_decoded));
}

size_t rv_chunk_room_in_owner(size_t num_tensors)
{
  if (num_tensors > MOST_IN_OWNER) return 0;
  return ALIGNMENT + rv_chunk_books_size(own_bytes(num_tensors), num_tensors, num_tensors * FEW_DIMENSIONS);
}

/* NULL: it does not fit there. */
static rv_encoded_chunk *place_in_owner(rv_buf *owner, const uint8_t *wire, size_t wire_size, size_t bytes)
{
  if (wire != owner->data || wire_size != owner->size || owner->release != NULL ||
      atomic_load_explicit(&owner->refs, memory_order_relaxed) != 1)
    return NULL;
  uintptr_t end = (uintptr_t)owner->data + owner->size, at = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return at - (uintptr_t)owner->data + bytes <= owner->capacity ? (rv_encoded_chunk *)at : NULL;
}

rv_code rv_chunk_new_encoded(const rv_chunk_meta *meta, const rv_encoded *tensors, size_t num_tensors, rv_buf *owner,
                             const uint8_t *wire, size_t wire_size, rv_chunk **out, rv_error *err)
{
  size_t num_sizes = 0;
  rv_code code = check_tensors(tensors, num_tensors, &num_sizes, err);
  if (code != RV_OK) return code;
  size_t struct_bytes = own_bytes(num_tensors);
  size_t books = rv_chunk_books_size(struct_bytes, num_tensors, num_sizes);
  rv_encoded_chunk *encoded = place_in_owner(owner, wire, wire_size, books);
  bool in_owner = encoded != NULL;
  if (!in_owner) encoded = malloc(books);
  if (encoded == NULL) return rv_fail_memory(err, books);
  int64_t *shapes = rv_chunk_books_init(&encoded->chunk, struct_bytes, num_tensors, meta, false);
  encoded->tensors = (rv_encoded *)(void *)(encoded + 1);
  encoded->decoded = (rv_decoded *)(void *)(encoded->tensors + num_tensors);
  encoded->wire = wire;
  encoded->wire_size = wire_size;
  encoded->books_bytes = books;
  encoded->cache = NULL;
  encoded->in_owner = in_owner;
  for (size_t i = 0; i < num_tensors; i++) {
    code = describe_tensor(encoded, i, &tensors[i], shapes, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "tensor %zu", i);
      if (!in_owner) free(encoded);
      return code;
    }
    shapes += tensors[i].rank;
  }
  encoded->owner = rv_buf_ref(owner);
  *out = &encoded->chunk;
  return RV_OK;
}

void rv_encoded_free(rv_chunk *chunk)
{
  rv_encoded_chunk *encoded = encoded_of(chunk);
  if (encoded->cache != NULL) {
    for (uint32_t i = 0; i < chunk->num_columns; i++) rv_decode_cache_forget(encoded->cache, &encoded->decoded[i]);
    rv_decode_cache_unref(encoded->cache);
  }
  rv_buf *owner = encoded->owner;
  if (!encoded->in_owner) free(encoded);
  rv_buf_unref(owner);
}

size_t rv_encoded_memory(const rv_chunk *chunk)
{
  const rv_encoded_chunk *encoded = encoded_of_const(chunk);
  return encoded->books_bytes + encoded->wire_size;
}

void rv_chunk_attach_cache(rv_chunk *chunk, rv_decode_cache *cache)
{
  if (chunk->is_segment) return;
  rv_encoded_chunk *encoded = encoded_of(chunk);
  rv_decode_cache *old = encoded->cache;
  encoded->cache = rv_decode_cache_ref(cache);
  if (old != NULL) rv_decode_cache_unref(old);
}

rv_buf *rv_chunk_wire(const rv_chunk *chunk, const uint8_t **wire, size_t *wire_size)
{
  if (chunk->is_segment) return NULL;
  const rv_encoded_chunk *encoded = encoded_of_const(chunk);
  *wire = encoded->wire;
  *wire_size = encoded->wire_size;
  return encoded->owner;
}

bool rv_chunk_encoded(const rv_chunk *chunk, size_t column, rv_encoded *out)
{
  if (chunk->is_segment || column >= chunk->num_columns) return false;
  *out = encoded_of_const(chunk)->tensors[column];
  return true;
}

rv_code rv_chunk_decode(rv_chunk *chunk, size_t column, rv_buf **out, rv_error *err)
{
  rv_encoded_chunk *encoded = encoded_of(chunk);
  if (encoded->cache != NULL) {
    *out = rv_decode_cache_get(encoded->cache, &encoded->decoded[column]);
    if (*out != NULL) return RV_OK;
  }
  const rv_encoded *tensor = &encoded->tensors[column];
  size_t bytes = chunk->lanes[column].row_bytes * (size_t)tensor->shape[0]; /* rv_encoded_check has seen that it fits */
  rv_buf *buf = rv_buf_new(bytes);
  if (buf == NULL) return rv_fail_memory(err, bytes);
  rv_code code = rv_decode(tensor, buf->data, bytes, err);
  if (code != RV_OK) {
    rv_buf_unref(buf);
    return code;
  }
  buf->size = bytes;
  *out = encoded->cache == NULL ? buf : rv_decode_cache_put(encoded->cache, &encoded->decoded[column], buf);
  return RV_OK;
}
