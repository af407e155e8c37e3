#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "wire/chunk_forms.h"
#include "wire/messages.h"
#include "wire/parse.h"
#include "wire/tensor_proto.h"

enum { FEW_TENSORS = 16, FEW_DIMS = 64, MAX_TENSORS = 65536, REWRITE_SLACK = 1 << 20 };

typedef struct outline {
  rv_chunk_meta meta;
  bool delta;
  size_t num_tensors, num_deprecated;
} outline;

bool rv_sequence_range_parse(rv_span message, rv_chunk_meta *meta)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (field.type != RV_WIRE_VARINT) continue;
    switch (field.number) {
    case 1: meta->episode_id = field.value; break;
    case 2: meta->first_step = rv_field_int32(&field); break;
    case 3: meta->last_step = rv_field_int32(&field); break;
    case 4: meta->sparse = field.value != 0; break;
    default: break;
    }
  }
  return !reader.broken;
}

static bool count_tensors(rv_span data, size_t *count)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, data);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) ++*count;
  return !reader.broken;
}

static rv_code parse_outline(rv_span message, outline *out, rv_error *err)
{
  *out = (outline){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  bool good = true;
  while (good && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT))
      out->meta.key = field.value;
    else if (rv_field_is(&field, 2, RV_WIRE_BYTES))
      good = rv_sequence_range_parse(field.bytes, &out->meta);
    else if (rv_field_is(&field, 3, RV_WIRE_BYTES))
      out->num_deprecated++;
    else if (rv_field_is(&field, 4, RV_WIRE_VARINT))
      out->delta = field.value != 0;
    else if (rv_field_is(&field, 5, RV_WIRE_BYTES))
      good = count_tensors(field.bytes, &out->num_tensors);
  }
  if (!good || reader.broken) return rv_fail_parse(err, "ChunkData");
  if (out->num_tensors > MAX_TENSORS || out->num_deprecated > MAX_TENSORS)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a chunk of %zu tensors; at most %d are possible",
                   out->num_tensors + out->num_deprecated, MAX_TENSORS);
  if (out->num_tensors + out->num_deprecated == 0) return rv_fail(err, RV_INVALID_ARGUMENT, "a chunk without tensors");
  return RV_OK;
}

/* ---- walking the tensors ---- */

typedef struct tensor_walk {
  rv_reader fields, tensors;
  bool deprecated; /* field 3 of the chunk is where they are */
} tensor_walk;

static void walk_init(tensor_walk *walk, rv_span message, const outline *chunk)
{
  rv_reader_init(&walk->fields, message);
  rv_reader_init(&walk->tensors, (rv_span){0});
  walk->deprecated = chunk->num_tensors == 0;
}

/* The next tensor's bytes. All of it was read once before, so nothing can be broken. */
static bool walk_next(tensor_walk *walk, rv_span *tensor)
{
  rv_field field;
  for (;;) {
    while (rv_reader_next(&walk->tensors, &field))
      if (rv_field_is(&field, 1, RV_WIRE_BYTES)) {
        *tensor = field.bytes;
        return true;
      }
    do
      if (!rv_reader_next(&walk->fields, &field)) return false;
    while (!rv_field_is(&field, walk->deprecated ? 3 : 5, RV_WIRE_BYTES));
    if (walk->deprecated) {
      *tensor = field.bytes;
      return true;
    }
    rv_reader_init(&walk->tensors, field.bytes);
  }
}

/* ---- chunks that are not written as this store sends them ---- */

static rv_code put_tensor(rv_writer_buf *out, rv_span message, size_t max_bytes, rv_error *err)
{
  rv_tensor_proto tensor;
  rv_code code = rv_tensor_proto_parse(message, &tensor, err);
  if (code != RV_OK) return code;
  if (!rv_tensor_proto_in_values(&tensor)) {
    rv_put_bytes_always(out, 1, message.data, message.size);
    return RV_OK;
  }
  size_t mark = rv_put_open(out, 1);
  code = rv_tensor_proto_rewrite(out, message, &tensor, max_bytes, err);
  rv_put_close(out, mark);
  return code;
}

/* The same chunk with its tensors in `data` and their strings in tensor_content: other readers ignore the old places. */
static rv_code rewrite(rv_span message, const outline *chunk, rv_buf **out, rv_error *err)
{
  rv_writer_buf writer;
  rv_writer_buf_init(&writer);
  rv_put_varint(&writer, 1, chunk->meta.key);
  size_t range = rv_put_open(&writer, 2);
  rv_put_varint(&writer, 1, chunk->meta.episode_id);
  rv_put_varint(&writer, 2, (uint64_t)(int64_t)chunk->meta.first_step);
  rv_put_varint(&writer, 3, (uint64_t)(int64_t)chunk->meta.last_step);
  rv_put_varint(&writer, 4, chunk->meta.sparse);
  rv_put_close(&writer, range);
  rv_put_varint(&writer, 4, chunk->delta);
  size_t data = rv_put_open(&writer, 5), count = 0;
  size_t max_bytes = message.size + REWRITE_SLACK;
  tensor_walk walk;
  walk_init(&walk, message, chunk);
  rv_span tensor;
  rv_code code = RV_OK;
  while (code == RV_OK && walk_next(&walk, &tensor)) {
    count++;
    code = put_tensor(&writer, tensor, max_bytes, err);
    if (code == RV_OK && writer.size > max_bytes + message.size)
      code = rv_fail(err, RV_INVALID_ARGUMENT, "a chunk of %zu bytes whose strings take more than %zu", message.size, max_bytes);
  }
  rv_put_close(&writer, data);
  rv_put_varint(&writer, 6, count);
  if (code == RV_OK && writer.failed) code = rv_fail_memory(err, writer.size);
  if (code == RV_OK) {
    *out = rv_buf_copy(writer.data, writer.size);
    if (*out == NULL) code = rv_fail_memory(err, writer.size);
  }
  rv_writer_buf_fini(&writer);
  return code;
}

/* ---- the tensors as they are ---- */

/* Room for a chunk's tensors: a few on the stack, many on the heap. */
typedef struct tensor_room {
  rv_encoded few[FEW_TENSORS], *tensors;
  int64_t few_dims[FEW_DIMS], *dims;
  size_t count, num_dims, dims_capacity;
} tensor_room;

static rv_code room_init(tensor_room *room, size_t count, rv_error *err)
{
  room->tensors = count <= FEW_TENSORS ? room->few : malloc(count * sizeof *room->tensors);
  room->dims = room->few_dims;
  room->dims_capacity = FEW_DIMS;
  room->count = room->num_dims = 0;
  return room->tensors != NULL ? RV_OK : rv_fail_memory(err, count * sizeof *room->tensors);
}

static void room_fini(tensor_room *room)
{
  if (room->tensors != room->few) free(room->tensors);
  if (room->dims != room->few_dims) free(room->dims);
}

/* Shapes are kept as offsets until all are known, for the array may move. */
static rv_code room_add_dims(tensor_room *room, const rv_shape_proto *shape, rv_error *err)
{
  if (room->dims_capacity - room->num_dims < shape->rank) {
    size_t capacity = room->dims_capacity * 4;
    int64_t *grown = malloc(capacity * sizeof *grown);
    if (grown == NULL) return rv_fail_memory(err, capacity * sizeof *grown);
    memcpy(grown, room->dims, room->num_dims * sizeof *grown);
    if (room->dims != room->few_dims) free(room->dims);
    room->dims = grown;
    room->dims_capacity = capacity;
  }
  memcpy(room->dims + room->num_dims, shape->sizes, shape->rank * sizeof *room->dims);
  room->num_dims += shape->rank;
  return RV_OK;
}

/* *in_values: some tensor must be rewritten; the room is then not complete. */
static rv_code read_tensors(tensor_room *room, rv_span message, const outline *chunk, bool *in_values, rv_error *err)
{
  tensor_walk walk;
  walk_init(&walk, message, chunk);
  rv_span bytes;
  *in_values = false;
  while (room->count < chunk->num_tensors &&
         walk_next(&walk, &bytes)) { /* no more than were counted, whoever changes the message */
    rv_tensor_proto tensor;
    rv_code code = rv_tensor_proto_parse(bytes, &tensor, err);
    if (code == RV_OK) code = room_add_dims(room, &tensor.shape, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "tensor %zu of chunk %llu", room->count, (unsigned long long)chunk->meta.key);
      return code;
    }
    *in_values = rv_tensor_proto_in_values(&tensor);
    if (*in_values) return RV_OK;
    room->tensors[room->count++] = (rv_encoded){.dtype = (rv_dtype)tensor.dtype,
                                                .rank = tensor.shape.rank,
                                                .delta = chunk->delta,
                                                .content = tensor.content.data,
                                                .content_size = tensor.content.size};
  }
  const int64_t *dims = room->dims;
  for (size_t i = 0; i < room->count; i++) {
    room->tensors[i].shape = dims;
    dims += room->tensors[i].rank;
  }
  return RV_OK;
}

/* Without an owner the bytes are copied. */
static rv_code make(rv_buf *owner, rv_span message, const outline *chunk, bool *in_values, rv_chunk **out, rv_error *err)
{
  tensor_room room;
  rv_code code = room_init(&room, chunk->num_tensors, err);
  if (code != RV_OK) return code;
  code = read_tensors(&room, message, chunk, in_values, err);
  if (code == RV_OK && !*in_values)
    code = owner == NULL
               ? rv_chunk_new_encoded_copy(&chunk->meta, room.tensors, room.count, message.data, message.size, out, err)
               : rv_chunk_new_encoded(&chunk->meta, room.tensors, room.count, owner, message.data, message.size, out, err);
  room_fini(&room);
  return code;
}

static rv_code make_rewritten(rv_span message, const outline *chunk, rv_chunk **out, rv_error *err)
{
  rv_buf *owner = NULL;
  rv_code code = rewrite(message, chunk, &owner, err);
  if (code != RV_OK) return code;
  rv_span written = {owner->data, owner->size};
  outline rewritten;
  bool in_values = false;
  code = parse_outline(written, &rewritten, err);
  if (code == RV_OK) code = make(owner, written, &rewritten, &in_values, out, err);
  if (code == RV_OK && in_values) code = rv_fail(err, RV_INTERNAL, "a chunk's strings could not be moved to their content");
  rv_buf_unref(owner);
  return code;
}

rv_code rv_chunk_parse(rv_buf *owner, rv_span message, bool copy, rv_chunk **out, rv_error *err)
{
  outline chunk;
  rv_code code = parse_outline(message, &chunk, err);
  if (code != RV_OK) return code;
  if (chunk.num_tensors == 0) return make_rewritten(message, &chunk, out, err);
  bool in_values = false;
  code = make(copy ? NULL : owner, message, &chunk, &in_values, out, err);
  return code == RV_OK && in_values ? make_rewritten(message, &chunk, out, err) : code;
}

rv_code rv_chunk_parse_apart(rv_span message, rv_chunk **out, rv_error *err)
{
  rv_buf *own = rv_buf_copy(message.data, message.size);
  if (own == NULL) return rv_fail_memory(err, message.size);
  rv_code code = rv_chunk_parse(own, (rv_span){.data = own->data, .size = own->size}, false, out, err);
  rv_buf_unref(own);
  return code;
}
