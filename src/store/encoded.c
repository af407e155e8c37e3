/* Chunks that came over the wire or from disk: kept as they came, decoded for those who read rows in this process. */
#include <stdlib.h>

#include "base/error.h"
#include "base/refs.h"
#include "base/spares.h"
#include "store/chunk_parts.h"

/* A tensor's content as it came; what it looks like is the chunk's column. */
typedef struct rv_content {
  const uint8_t *data;
  uint64_t size : 63;
  uint64_t delta : 1;
} rv_content;

/* What chunks have in common whose messages differ in key, range and rows alone: columns, shapes, and where contents stand. */
typedef struct rv_likeness {
  atomic_size_t refs;
  size_t bytes;
  rv_chunk_column *columns; /* in one block with this */
  rv_content contents[];    /* data: as far from the end of the message as it is from NULL */
} rv_likeness;

/* One block with lanes, columns, shapes and, where some tensor is not one literal, an rv_decoded for each; of one that was made like another, with lanes
 * alone. It stands behind the owner's bytes where the chunk made that itself. */
typedef struct rv_encoded_chunk {
  rv_chunk chunk;
  rv_buf *owner;
  const uint8_t *wire;
  size_t wire_size;
  rv_decode_cache *cache; /* NULL: nothing is kept */
  uint32_t books_bytes;
  atomic_uint number; /* rv_chunk_number; 0: none */
  bool is_like;       /* columns and contents are those of its likeness, and it has no tensors */
  uint32_t
      references; /* to its likeness that it has besides its own, for those that the one thread that looks at this makes like it */
  rv_likeness *likeness; /* NULL: none is like it */
  rv_content tensors[];
} rv_encoded_chunk;

enum { ALIGNMENT = 16 };

static rv_encoded_chunk *encoded_of(rv_chunk *chunk)
{
  return (rv_encoded_chunk *)chunk;
}
static const rv_encoded_chunk *encoded_of_const(const rv_chunk *chunk)
{
  return (const rv_encoded_chunk *)chunk;
}

/* Only of a chunk that decodes. */
static rv_decoded *decoded_of(rv_encoded_chunk *encoded, size_t column)
{
  return (rv_decoded *)(void *)(encoded->tensors + encoded->chunk.num_columns) + column;
}

static const uint8_t nothing[1]; /* where rows of no bytes lie */

static rv_content content_of(const rv_encoded_chunk *encoded, size_t column)
{
  if (!encoded->is_like) return encoded->tensors[column];
  rv_content content = encoded->likeness->contents[column];
  if (content.size > 0) content.data = encoded->wire + encoded->wire_size - (uintptr_t)content.data;
  return content;
}

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

static void describe_tensor(rv_encoded_chunk *encoded, size_t index, const rv_encoded *tensor, size_t row_bytes, int64_t *shape)
{
  memcpy(shape, tensor->shape, tensor->rank * sizeof *shape);
  rv_chunk *chunk = &encoded->chunk;
  encoded->tensors[index] =
      (rv_content){.data = tensor->content, .size = tensor->content_size & SIZE_MAX >> 1, .delta = tensor->delta};
  chunk->columns[index] =
      (rv_chunk_column){.dtype = tensor->dtype, .rank = tensor->rank - 1, .shape = shape + 1, .row_bytes = row_bytes};
  if (tensor->dtype == RV_STRING) chunk->has_strings = true;
  rv_lane *lane = &chunk->lanes[index];
  lane->row_bytes = lane->stride = row_bytes;
  lane->base = row_bytes == 0 || shape[0] == 0 ? nothing : rv_encoded_raw(tensor);
  atomic_init(&lane->published, shape[0]);
  if (!encoded->chunk.decodes) return;
  rv_decoded *decoded = decoded_of(encoded, index);
  rv_list_init(&decoded->link);
  decoded->buf = NULL;
  decoded->joined = false;
}

/* What is known of the tensors before there is memory. */
typedef struct rv_measured {
  size_t num_sizes, struct_bytes, books_bytes;
  bool decodes;
} rv_measured;

static rv_code measure_row(const rv_encoded *tensor, size_t index, size_t *row_bytes, rv_error *err)
{
  size_t elements;
  rv_code code = rv_shape_elements(tensor->dtype, tensor->rank - 1, tensor->shape + 1, &elements, row_bytes, err);
  if (code != RV_OK) rv_error_prefix(err, "tensor %zu", index);
  return code;
}

static rv_code measure(const rv_encoded *tensors, size_t num_tensors, rv_measured *out, rv_error *err)
{
  *out = (rv_measured){0};
  rv_code code = check_tensors(tensors, num_tensors, &out->num_sizes, err);
  for (size_t i = 0; i < num_tensors && code == RV_OK; i++) {
    size_t row_bytes = 0;
    code = measure_row(&tensors[i], i, &row_bytes, err);
    out->decodes |= code == RV_OK && row_bytes > 0 && tensors[i].shape[0] > 0 && rv_encoded_raw(&tensors[i]) == NULL;
  }
  if (code != RV_OK) return code;
  out->struct_bytes = sizeof(rv_encoded_chunk) + num_tensors * sizeof(rv_content);
  if (out->decodes) out->struct_bytes += num_tensors * sizeof(rv_decoded);
  out->books_bytes = rv_chunk_books_size(out->struct_bytes, num_tensors, out->num_sizes); /* at most 65,536 tensors of 9 sizes */
  return RV_OK;
}

/* Fills the memory with a chunk; the caller adds whose the bytes are. */
static void lay_out(rv_encoded_chunk *encoded, const rv_measured *measured, const rv_chunk_meta *meta, const rv_encoded *tensors,
                    size_t num_tensors)
{
  int64_t *shapes = rv_chunk_books_init(&encoded->chunk, measured->struct_bytes, num_tensors, meta, false);
  encoded->books_bytes = (uint32_t)measured->books_bytes;
  atomic_init(&encoded->number, 0);
  encoded->cache = NULL;
  encoded->is_like = false;
  encoded->likeness = NULL;
  encoded->references = 0;
  encoded->chunk.decodes = measured->decodes;
  for (size_t i = 0; i < num_tensors; i++) {
    size_t row_bytes = 0;
    (void)measure_row(&tensors[i], i, &row_bytes, NULL); /* it could before */
    describe_tensor(encoded, i, &tensors[i], row_bytes, shapes);
    shapes += tensors[i].rank;
  }
}

rv_code rv_chunk_new_encoded(const rv_chunk_meta *meta, const rv_encoded *tensors, size_t num_tensors, rv_buf *owner,
                             const uint8_t *wire, size_t wire_size, rv_chunk **out, rv_error *err)
{
  rv_measured measured;
  rv_code code = measure(tensors, num_tensors, &measured, err);
  if (code != RV_OK) return code;
  rv_encoded_chunk *encoded = malloc(measured.books_bytes);
  if (encoded == NULL) return rv_fail_memory(err, measured.books_bytes);
  lay_out(encoded, &measured, meta, tensors, num_tensors);
  encoded->owner = rv_buf_ref(owner);
  encoded->wire = wire;
  encoded->wire_size = wire_size;
  *out = &encoded->chunk;
  return RV_OK;
}

/* A buffer with the wire's bytes, and behind them room for a chunk's books. NULL: out of memory. */
static rv_buf *copy_wire(const rv_bytes *parts, size_t num_parts, size_t books_bytes, rv_encoded_chunk **books)
{
  size_t size = 0, more = ALIGNMENT + books_bytes;
  for (size_t i = 0; i < num_parts; i++) size += parts[i].size;
  rv_buf *owner = size > SIZE_MAX - more ? NULL : rv_buf_new(size + more);
  if (owner == NULL) return NULL;
  for (size_t i = 0; i < num_parts; i++) {
    if (parts[i].size > 0) memcpy(owner->data + owner->size, parts[i].data, parts[i].size);
    owner->size += parts[i].size;
  }
  uintptr_t end = (uintptr_t)owner->data + size;
  *books = (rv_encoded_chunk *)((end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return owner;
}

static void own_wire(rv_encoded_chunk *encoded, rv_buf *owner)
{
  encoded->owner = owner;
  encoded->wire = owner->data;
  encoded->wire_size = owner->size;
  encoded->chunk.in_owner = true;
}

static void rebase(rv_encoded_chunk *encoded, const uint8_t *from, const uint8_t *to)
{
  for (uint32_t i = 0; i < encoded->chunk.num_columns; i++) {
    rv_content *content = &encoded->tensors[i];
    rv_lane *lane = &encoded->chunk.lanes[i];
    if (content->size > 0) content->data = to + (content->data - from);
    if (lane->base != NULL && lane->base != nothing) lane->base = to + (lane->base - from);
  }
}

rv_code rv_chunk_new_encoded_copy(const rv_chunk_meta *meta, const rv_encoded *tensors, size_t num_tensors, const uint8_t *wire,
                                  size_t wire_size, rv_chunk **out, rv_error *err)
{
  rv_measured measured;
  rv_code code = measure(tensors, num_tensors, &measured, err);
  if (code != RV_OK) return code;
  rv_encoded_chunk *encoded = NULL;
  rv_buf *owner = copy_wire(&(rv_bytes){wire, wire_size}, 1, measured.books_bytes, &encoded);
  if (owner == NULL) return rv_fail_memory(err, wire_size);
  lay_out(encoded, &measured, meta, tensors, num_tensors);
  rebase(encoded, wire, owner->data);
  own_wire(encoded, owner);
  *out = &encoded->chunk;
  return RV_OK;
}

bool rv_chunk_is_plain_copy(const rv_chunk *chunk)
{
  return !chunk->is_segment && chunk->in_owner && !chunk->decodes;
}

/* ---- chunks like others ---- */

enum { REFERENCES_AT_ONCE = 64 }; /* a locked instruction for each would wait for all that was written before */

static void drop_likeness(rv_encoded_chunk *encoded)
{
  rv_likeness *likeness = encoded->likeness;
  if (likeness != NULL && rv_refs_drop(&likeness->refs, 1 + (size_t)encoded->references)) free(likeness);
}

static rv_likeness *give_likeness(rv_encoded_chunk *model)
{
  if (model->references == 0) {
    atomic_fetch_add_explicit(&model->likeness->refs, REFERENCES_AT_ONCE, memory_order_relaxed);
    model->references = REFERENCES_AT_ONCE;
  }
  model->references--;
  return model->likeness;
}

/* The model's, from now on. NULL: out of memory. */
static rv_likeness *make_likeness(rv_encoded_chunk *model)
{
  const rv_chunk *chunk = &model->chunk;
  const size_t n = chunk->num_columns;
  size_t bytes = sizeof(rv_likeness) + n * (sizeof(rv_content) + sizeof(rv_chunk_column));
  for (size_t i = 0; i < n; i++) bytes += (chunk->columns[i].rank + 1) * sizeof(int64_t);
  rv_likeness *made = malloc(bytes);
  if (made == NULL) return NULL;
  atomic_init(&made->refs, 1);
  made->bytes = bytes;
  made->columns = (rv_chunk_column *)(void *)(made->contents + n);
  int64_t *shapes = (int64_t *)(void *)(made->columns + n);
  const uint8_t *end = model->wire + model->wire_size;
  for (size_t i = 0; i < n; i++) {
    const rv_chunk_column *column = &chunk->columns[i];
    memcpy(shapes, column->shape - 1, (column->rank + 1) * sizeof *shapes); /* the number of rows stands before a row's sizes */
    made->columns[i] = *column;
    made->columns[i].shape = shapes + 1;
    shapes += column->rank + 1;
    made->contents[i] = model->tensors[i];
    if (made->contents[i].size > 0) made->contents[i].data = (const uint8_t *)(uintptr_t)(end - made->contents[i].data);
  }
  return model->likeness = made;
}

/* Books of one like the model, whose lanes lie as far from the end of its bytes as the model's. */
static void lay_out_like(rv_encoded_chunk *encoded, rv_encoded_chunk *model, const rv_chunk_meta *meta, const rv_buf *owner)
{
  const rv_chunk *known = &model->chunk;
  const uint8_t *their_end = model->wire + model->wire_size, *end = owner->data + owner->size;
  rv_chunk_books_init(&encoded->chunk, sizeof *encoded, known->num_columns, meta, false);
  encoded->chunk.columns = model->likeness->columns;
  encoded->chunk.has_strings = known->has_strings;
  for (uint32_t i = 0; i < known->num_columns; i++) {
    const rv_lane *lane = &known->lanes[i];
    rv_lane *own = &encoded->chunk.lanes[i];
    own->base = lane->base == nothing ? nothing : end - (their_end - lane->base);
    own->stride = lane->stride;
    own->row_bytes = lane->row_bytes;
    atomic_init(&own->published, rv_chunk_num_rows(known, i));
  }
  encoded->is_like = true;
  encoded->likeness = give_likeness(model);
  encoded->references = 0;
  atomic_init(&encoded->number, 0);
  encoded->cache = NULL;
}

rv_code rv_chunk_new_alike(rv_chunk *model, const rv_chunk_meta *meta, const rv_bytes *wire, size_t num_parts, rv_chunk **out,
                           rv_error *err)
{
  rv_encoded_chunk *known = encoded_of(model), *encoded = NULL;
  if (known->likeness == NULL && make_likeness(known) == NULL) return rv_fail_memory(err, sizeof(rv_likeness));
  const size_t books_bytes = sizeof *encoded + model->num_columns * sizeof(rv_lane);
  rv_buf *owner = copy_wire(wire, num_parts, books_bytes, &encoded);
  if (owner == NULL) return rv_fail_memory(err, known->wire_size);
  lay_out_like(encoded, known, meta, owner);
  /* what they have together is counted by each, as any may be the last that has it */
  encoded->books_bytes = (uint32_t)(books_bytes + known->likeness->bytes);
  own_wire(encoded, owner);
  *out = &encoded->chunk;
  return RV_OK;
}

void rv_encoded_free(rv_chunk *chunk)
{
  rv_encoded_chunk *encoded = encoded_of(chunk);
  if (encoded->cache != NULL) {
    for (uint32_t i = 0; encoded->chunk.decodes && i < chunk->num_columns; i++)
      rv_decode_cache_forget(encoded->cache, decoded_of(encoded, i));
    rv_decode_cache_unref(encoded->cache);
  }
  drop_likeness(encoded);
  rv_buf *owner = encoded->owner;
  if (!encoded->chunk.in_owner) free(encoded);
  rv_buf_unref(owner);
}

uint32_t rv_chunk_number(rv_chunk *chunk, uint32_t fresh)
{
  unsigned none = 0;
  if (chunk->is_segment) return 0;
  if (fresh == 0) return atomic_load_explicit(&encoded_of(chunk)->number, memory_order_relaxed);
  return atomic_compare_exchange_strong(&encoded_of(chunk)->number, &none, fresh) ? fresh : none;
}

void rv_chunk_prefetch_owner(const rv_chunk *chunk)
{
  if (!chunk->is_segment) __builtin_prefetch(encoded_of_const(chunk)->owner, 1);
}

bool rv_encoded_movable(const rv_chunk *chunk, const uint8_t **bytes, size_t *size)
{
  const rv_encoded_chunk *encoded = encoded_of_const(chunk);
  *bytes = encoded->wire;
  *size = encoded->wire_size;
  return !encoded->chunk.in_owner;
}

/* They point into the bytes that they were decoded from; numbers stand by themselves. */
static void forget_decoded_strings(rv_encoded_chunk *encoded)
{
  if (encoded->cache == NULL || !encoded->chunk.has_strings || !encoded->chunk.decodes) return;
  for (uint32_t i = 0; i < encoded->chunk.num_columns; i++)
    if (encoded->chunk.columns[i].dtype == RV_STRING) rv_decode_cache_forget(encoded->cache, decoded_of(encoded, i));
}

void rv_encoded_move(rv_chunk *chunk, rv_cold_place *owned_place, rv_moved *old)
{
  rv_encoded_chunk *encoded = encoded_of(chunk);
  forget_decoded_strings(encoded);
  rebase(encoded, encoded->wire, owned_place->buf.data);
  for (uint32_t i = 0; i < chunk->num_columns; i++) {
    rv_lane *lane = &chunk->lanes[i];
    if (lane->base == NULL) lane->stride = 0;
    if (lane->base != nothing) lane->base = NULL;
  }
  *old = (rv_moved){.buf = encoded->owner};
  encoded->wire = owned_place->buf.data;
  encoded->owner = &owned_place->buf;
}

const rv_cold_place *rv_encoded_place(const rv_chunk *chunk)
{
  return (const rv_cold_place *)(const void *)encoded_of_const(chunk)->owner;
}

/* Rows that are not compressed are the end of their content (tensor/literal.h). */
const uint8_t *rv_encoded_rows_there(const rv_chunk *chunk, size_t column)
{
  const rv_content content = content_of(encoded_of_const(chunk), column);
  return content.data + content.size - chunk->lanes[column].row_bytes * (size_t)rv_chunk_num_rows(chunk, column);
}

size_t rv_encoded_memory(const rv_chunk *chunk)
{
  const rv_encoded_chunk *encoded = encoded_of_const(chunk);
  return encoded->books_bytes + encoded->wire_size;
}

void rv_chunk_attach_cache(rv_chunk *chunk, rv_decode_cache *cache)
{
  if (chunk->is_segment || !chunk->decodes) return;
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
  const rv_chunk_column *spec = &chunk->columns[column];
  const rv_content content = content_of(encoded_of_const(chunk), column);
  *out = (rv_encoded){.dtype = spec->dtype,
                      .rank = spec->rank + 1,
                      .shape = spec->shape - 1, /* the number of rows stands before a row's sizes */
                      .delta = content.delta != 0,
                      .content = content.data,
                      .content_size = content.size};
  return true;
}

/* A copy of the content, where it does not lie here or is not to be read twice: a writer of this machine may reach the arena's rows still, and snappy reads
 * how much it writes a second time, after it was found to fit. *out NULL: it is read where it lies. */
static rv_code take_content(const rv_encoded_chunk *encoded, const rv_encoded *tensor, rv_buf **out, rv_error *err)
{
  const rv_chunk *chunk = &encoded->chunk;
  if (tensor->dtype == RV_STRING)
    return chunk->spilled > 0 ? rv_chunk_bring(chunk, tensor->content, tensor->content_size, err) : RV_OK;
  if (chunk->spilled > 0) return rv_chunk_read_back(chunk, tensor->content, tensor->content_size, out, err);
  if (!rv_buf_is_lendable(encoded->owner) || rv_encoded_raw(tensor) != NULL) return RV_OK;
  *out = rv_buf_copy(tensor->content, tensor->content_size);
  return *out == NULL ? rv_fail_memory(err, tensor->content_size) : RV_OK;
}

static rv_code decode_into(const rv_encoded_chunk *encoded, rv_encoded *tensor, rv_buf *out, size_t bytes, rv_error *err)
{
  rv_buf *own = NULL;
  rv_code code = take_content(encoded, tensor, &own, err);
  if (code != RV_OK) return code;
  if (own != NULL) tensor->content = own->data;
  code = rv_decode(tensor, out->data, bytes, err);
  rv_buf_unref(own);
  if (code == RV_OK) out->size = bytes;
  return code;
}

rv_code rv_chunk_decode(rv_chunk *chunk, size_t column, rv_buf **out, rv_error *err)
{
  rv_encoded_chunk *encoded = encoded_of(chunk);
  rv_decoded *decoded = encoded->cache == NULL || !encoded->chunk.decodes ? NULL : decoded_of(encoded, column);
  if (decoded != NULL) {
    *out = rv_decode_cache_get(encoded->cache, decoded);
    if (*out != NULL) return RV_OK;
  }
  rv_encoded tensor;
  rv_chunk_encoded(chunk, column, &tensor);
  size_t bytes = chunk->lanes[column].row_bytes * (size_t)tensor.shape[0]; /* rv_encoded_check has seen that it fits */
  rv_buf *buf = rv_buf_new(bytes);
  if (buf == NULL) return rv_fail_memory(err, bytes);
  rv_code code = decode_into(encoded, &tensor, buf, bytes, err);
  if (code != RV_OK) {
    rv_buf_unref(buf);
    return code;
  }
  *out = decoded == NULL ? buf : rv_decode_cache_put(encoded->cache, decoded, buf);
  return RV_OK;
}
