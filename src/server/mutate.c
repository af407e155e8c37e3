#include <stdlib.h>

#include "base/error.h"
#include "server/server.h"
#include "wire/unary.h"

enum { AT_ONCE_BYTES = 64 << 10, PART = 4096, CHANGES_MAX = 1 << 25 };

/* ---- at once ---- */

static rv_code fail_answer(const rv_table *table, rv_error *err)
{
  return rv_fail(err, RV_UNAVAILABLE, "table \"%s\" was changed, but the server is out of memory for the answer",
                 rv_table_name(table));
}

static rv_code mutate(const rv_request *asked, const rv_mutate_request *request, rv_pieces *response, rv_error *err)
{
  rv_table *table;
  rv_code code = rv_request_find_table(asked, request->table, RV_RIGHT_UPDATE, &table, err);
  if (code != RV_OK) return code;
  size_t keys = request->num_updates + request->num_deletes, num_unknown = 0;
  uint64_t *unknown = malloc((keys == 0 ? 1 : keys) * sizeof *unknown);
  if (unknown == NULL) return rv_fail_memory(err, keys * sizeof *unknown);
  code = rv_table_mutate(table, request->updates, request->num_updates, request->deletes, request->num_deletes, unknown,
                         &num_unknown, err);
  if (code == RV_OK) {
    rv_writer_buf body;
    rv_writer_buf_init(&body);
    rv_mutate_response_serialize(&body, unknown, num_unknown);
    code = rv_server_put(response, &body, err);
    if (code != RV_OK) code = fail_answer(table, err);
  }
  free(unknown);
  return code;
}

static rv_code answer_at_once(const rv_request *request, rv_pieces *response, rv_error *err)
{
  rv_mutate_request parsed;
  rv_code code = rv_mutate_request_parse(request->body, &parsed, err);
  if (code != RV_OK) return code;
  code = mutate(request, &parsed, response, err);
  rv_mutate_request_fini(&parsed);
  return code;
}

/* ---- in parts ---- */

/* One message may name millions of keys: it is read where it is, a part of it in each turn of the loop, first to see whether all of it is
 * right, then for its deletes, then for its updates. */
typedef struct parts {
  enum { READS, CHECKS, DELETES, UPDATES, DONE } phase;
  rv_mutate_reader reader;
  rv_table *table;
  size_t num_changes;
  rv_mutation *mutation;
  bool no_answer; /* memory was out for it: the changes are made nevertheless, for they are all made or none */
  size_t count;   /* of what was found in this turn and is to be done: */
  uint64_t keys[PART];
  rv_key_priority updates[PART];
  uint64_t unknown[PART];
} parts;

static void drop(void *state)
{
  parts *self = state;
  rv_mutation_free(self->mutation);
  free(self);
}

static rv_code put_unknown(rv_pieces *response, const uint64_t *unknown, size_t n, bool end, rv_error *err)
{
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_mutate_response_put_unknown(&body, unknown, n);
  if (end) rv_mutate_response_put_end(&body);
  return body.size > 0 || body.failed ? rv_server_put(response, &body, err) : RV_OK;
}

static rv_code change(parts *self, rv_pieces *response, rv_error *err)
{
  size_t num_unknown = 0;
  rv_code code = RV_OK;
  if (self->phase == DELETES && self->count > 0)
    code = rv_mutation_delete(self->mutation, self->keys, self->count, self->unknown, &num_unknown, err);
  if (self->phase == UPDATES && self->count > 0)
    code = rv_mutation_update(self->mutation, self->updates, self->count, self->unknown, &num_unknown, err);
  self->count = 0;
  if (code == RV_OK && !self->no_answer) self->no_answer = put_unknown(response, self->unknown, num_unknown, false, err) != RV_OK;
  return code;
}

/* Looks at a part of the message; *end: that was the last one. */
static rv_code look(parts *self, bool *end, rv_error *err)
{
  for (int i = 0; i < PART; i++) {
    rv_key_priority one = {0};
    rv_mutate_kind kind = rv_mutate_reader_next(&self->reader, &one);
    *end = kind == RV_MUTATE_END;
    if (*end) return RV_OK;
    self->num_changes += self->phase == READS && kind != RV_MUTATE_NOTHING;
    if (self->phase == CHECKS && kind == RV_MUTATE_UPDATE) {
      rv_code code = rv_table_check_update(self->table, one.key, one.priority, err);
      if (code != RV_OK) return code;
    }
    if (self->phase == DELETES && kind == RV_MUTATE_DELETE) self->keys[self->count++] = one.key;
    if (self->phase == UPDATES && kind == RV_MUTATE_UPDATE) self->updates[self->count++] = one;
  }
  return RV_OK;
}

/* What is known once a phase is over. */
static rv_code end_phase(const rv_request *request, parts *self, rv_pieces *response, rv_error *err)
{
  rv_code code = RV_OK;
  if (self->phase == READS) {
    code = rv_mutate_reader_check(&self->reader, err);
    if (code == RV_OK && self->num_changes > CHANGES_MAX)
      code =
          rv_fail(err, RV_INVALID_ARGUMENT, "a mutation of %zu keys; send at most %d at a time", self->num_changes, CHANGES_MAX);
    if (code == RV_OK) code = rv_request_find_table(request, self->reader.table, RV_RIGHT_UPDATE, &self->table, err);
    if (code == RV_OK && !rv_table_can_mutate_in_parts(self->table)) {
      self->phase = DONE;
      return answer_at_once(request, response, err);
    }
  } else if (self->phase == CHECKS) {
    code = rv_mutation_new(self->table, self->num_changes, &self->mutation, err);
  } else if (self->phase == UPDATES) {
    if (!self->no_answer) self->no_answer = put_unknown(response, NULL, 0, true, err) != RV_OK;
    if (self->no_answer) code = fail_answer(self->table, err);
  }
  self->phase++;
  rv_mutate_reader_init(&self->reader, request->body);
  return code;
}

static rv_code go_on(const rv_request *request, rv_pieces *response, rv_error *err)
{
  parts *self = request->progress->state;
  bool end = false, changing = self->mutation != NULL;
  rv_code code = request->gone && !changing ? rv_fail(err, RV_CANCELLED, "the caller has gone") : look(self, &end, err);
  if (code == RV_OK && changing && change(self, response, err) != RV_OK)
    code = rv_fail(err, RV_UNAVAILABLE, "table \"%s\" was changed in part or wholly, but the server is out of memory",
                   rv_table_name(self->table));
  if (code == RV_OK && end) code = end_phase(request, self, response, err);
  request->progress->more = code == RV_OK && self->phase != DONE;
  return code;
}

rv_code rv_answer_mutate(const rv_request *request, rv_pieces *response, rv_error *err)
{
  if (request->body.size <= AT_ONCE_BYTES) return answer_at_once(request, response, err);
  if (request->progress->state == NULL) {
    parts *self = calloc(1, sizeof *self);
    if (self == NULL) return rv_fail_memory(err, sizeof *self);
    rv_mutate_reader_init(&self->reader, request->body);
    request->progress->state = self;
    request->progress->drop = drop;
  }
  return go_on(request, response, err);
}
