#include "wire/unary.h"

#include <stdlib.h>

#include "base/error.h"
#include "wire/parse.h"

/* ---- MutatePriorities ---- */

enum { UPDATE_BYTES_MAX = 4096 }; /* a key and a priority take 20 */

static bool parse_update(rv_span message, rv_key_priority *out)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  *out = (rv_key_priority){0};
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) out->key = field.value;
    if (rv_field_is(&field, 2, RV_WIRE_FIXED64)) out->priority = rv_field_double(&field);
  }
  return !reader.broken;
}

void rv_mutate_reader_init(rv_mutate_reader *reader, rv_span message)
{
  *reader = (rv_mutate_reader){0};
  rv_reader_init(&reader->reader, message);
}

rv_mutate_kind rv_mutate_reader_next(rv_mutate_reader *self, rv_key_priority *out)
{
  if (self->in_deletes) {
    self->in_deletes = rv_field_next_value(&self->reader, &self->field, RV_WIRE_VARINT, &self->in_field, &out->key);
    if (self->in_deletes) return RV_MUTATE_DELETE;
  }
  if (!rv_reader_next(&self->reader, &self->field)) return RV_MUTATE_END;
  if (rv_field_is(&self->field, 1, RV_WIRE_BYTES)) self->table = self->field.bytes;
  self->in_deletes = self->field.number == 3;
  self->in_field = 0;
  if (!rv_field_is(&self->field, 2, RV_WIRE_BYTES)) return RV_MUTATE_NOTHING;
  if (self->field.bytes.size <= UPDATE_BYTES_MAX && parse_update(self->field.bytes, out)) return RV_MUTATE_UPDATE;
  self->reader.broken = true;
  return RV_MUTATE_END;
}

rv_code rv_mutate_reader_check(const rv_mutate_reader *reader, rv_error *err)
{
  if (reader->reader.broken) return rv_fail_parse(err, "MutatePrioritiesRequest");
  return rv_check_text(reader->table, "the table name of a mutation", err);
}

static rv_code make_room(rv_mutate_request *out, size_t updates, size_t deletes, rv_error *err)
{
  size_t size = updates * sizeof *out->updates + deletes * sizeof *out->deletes;
  if (size == 0) return RV_OK;
  out->updates = malloc(size); /* one block: updates, then deletes */
  if (out->updates == NULL) return rv_fail_memory(err, size);
  out->deletes = (uint64_t *)(void *)(out->updates + updates);
  return RV_OK;
}

rv_code rv_mutate_request_parse(rv_span message, rv_mutate_request *out, rv_error *err)
{
  *out = (rv_mutate_request){0};
  size_t updates = 0, deletes = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) out->table = field.bytes;
    if (rv_field_is(&field, 2, RV_WIRE_BYTES)) updates++;
    if (field.number == 3) deletes += rv_field_count_values(&field, RV_WIRE_VARINT);
  }
  if (reader.broken) return rv_fail_parse(err, "MutatePrioritiesRequest");
  rv_code code = rv_check_text(out->table, "the table name of a mutation", err);
  if (code == RV_OK) code = make_room(out, updates, deletes, err);
  if (code != RV_OK) return code;
  rv_reader_init(&reader, message);
  bool good = true; /* as much as was counted: the message may lie where its client can change it */
  while (good && rv_reader_next(&reader, &field)) {
    size_t state = 0;
    uint64_t key;
    if (rv_field_is(&field, 2, RV_WIRE_BYTES))
      good = out->num_updates < updates && parse_update(field.bytes, &out->updates[out->num_updates++]);
    if (field.number == 3)
      while (rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &state, &key) && (good = out->num_deletes < deletes))
        out->deletes[out->num_deletes++] = key;
  }
  if (good && !reader.broken) return RV_OK;
  rv_mutate_request_fini(out);
  return rv_fail_parse(err, "MutatePrioritiesRequest");
}

void rv_mutate_request_fini(rv_mutate_request *request)
{
  free(request->updates);
  *request = (rv_mutate_request){0};
}

void rv_mutate_request_serialize(rv_writer_buf *out, const char *table, const rv_key_priority *updates, size_t num_updates,
                                 const uint64_t *deletes, size_t num_deletes)
{
  rv_put_string(out, 1, table);
  for (size_t i = 0; i < num_updates; i++) {
    size_t mark = rv_put_open(out, 2);
    rv_put_varint(out, 1, updates[i].key);
    rv_put_double(out, 2, updates[i].priority);
    rv_put_close(out, mark);
  }
  rv_put_packed(out, 3, deletes, num_deletes);
}

rv_code rv_mutate_response_parse(rv_span message, uint64_t *unknown, size_t capacity, size_t *num_unknown, rv_error *err)
{
  size_t count = 0;
  bool reports = false;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    size_t state = 0;
    uint64_t key;
    if (rv_field_is(&field, 1001, RV_WIRE_VARINT)) reports = field.value != 0;
    if (field.number == 1000)
      while (count <= capacity && rv_field_next_value(&reader, &field, RV_WIRE_VARINT, &state, &key)) {
        if (unknown != NULL && count < capacity) unknown[count] = key;
        count++;
      }
  }
  if (reader.broken) return rv_fail_parse(err, "MutatePrioritiesResponse");
  if (count > capacity)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the server reports more unknown keys than the %zu that were sent", capacity);
  *num_unknown = reports ? count : SIZE_MAX;
  return RV_OK;
}

void rv_mutate_response_put_unknown(rv_writer_buf *out, const uint64_t *unknown, size_t num_unknown)
{
  rv_put_packed(out, 1000, unknown, num_unknown);
}

void rv_mutate_response_put_end(rv_writer_buf *out)
{
  rv_put_varint(out, 1001, 1);
}

void rv_mutate_response_serialize(rv_writer_buf *out, const uint64_t *unknown, size_t num_unknown)
{
  rv_mutate_response_put_unknown(out, unknown, num_unknown);
  rv_mutate_response_put_end(out);
}

/* ---- Reset, InitializeConnection, Checkpoint ---- */

static rv_code parse_one_text(rv_span message, uint32_t number, rv_span *text, const char *name, const char *what, rv_error *err)
{
  *text = (rv_span){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, number, RV_WIRE_BYTES)) *text = field.bytes;
  return reader.broken ? rv_fail_parse(err, name) : rv_check_text(*text, what, err);
}

rv_code rv_reset_request_parse(rv_span message, rv_span *table, rv_error *err)
{
  return parse_one_text(message, 1, table, "ResetRequest", "the table name of a reset", err);
}

void rv_reset_request_serialize(rv_writer_buf *out, const char *table)
{
  rv_put_string(out, 1, table);
}

rv_code rv_initialize_connection_parse(rv_span message, int64_t *pid, rv_span *table, rv_error *err)
{
  *pid = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) *pid = (int64_t)field.value;
  return parse_one_text(message, 2, table, "InitializeConnectionRequest", "the table name of a connection", err);
}

rv_code rv_checkpoint_response_parse(rv_span message, rv_span *path, rv_error *err)
{
  return parse_one_text(message, 1, path, "CheckpointResponse", "the path of a checkpoint", err);
}

void rv_checkpoint_response_serialize(rv_writer_buf *out, const char *path)
{
  rv_put_string(out, 1, path);
}
