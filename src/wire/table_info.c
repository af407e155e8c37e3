#include "wire/table_info.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/signature.h"
#include "wire/parse.h"
#include "wire/put.h"

enum { NS_PER_MS = 1000000 };

bool rv_info_budget_take(rv_info_budget *budget, size_t bytes)
{
  if (bytes > budget->left) return false;
  budget->left -= bytes;
  return true;
}

/* ---- parsing ---- */

static int64_t ms_to_ns(uint64_t ms)
{
  int64_t ns = 0;
  return __builtin_mul_overflow((int64_t)ms, NS_PER_MS, &ns) ? INT64_MAX : ns;
}

/* A Reverie server says in fields of its own, 1000 on, what Reverb's fields say in milliseconds. */
enum { WORKER_TIMES = 6, FIRST_NS_FIELD = 1000 };

static bool parse_worker_time(rv_span message, rv_table_info *out)
{
  int64_t *const times[WORKER_TIMES] = {&out->running_ns,
                                        &out->sampling_ns,
                                        &out->inserting_ns,
                                        &out->sleeping_ns,
                                        &out->waiting_for_sampling_ns,
                                        &out->waiting_for_inserts_ns};
  bool exact[WORKER_TIMES] = {false};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (field.type != RV_WIRE_VARINT) continue;
    uint32_t n = field.number;
    if (n >= 1 && n <= WORKER_TIMES && !exact[n - 1]) *times[n - 1] = ms_to_ns(field.value);
    if (n < FIRST_NS_FIELD || n >= FIRST_NS_FIELD + WORKER_TIMES) continue;
    *times[n - FIRST_NS_FIELD] = (int64_t)field.value;
    exact[n - FIRST_NS_FIELD] = true;
  }
  return !reader.broken;
}

static rv_code parse_text(rv_span bytes, char **out, const char *what, rv_error *err)
{
  rv_code code = rv_check_text(bytes, what, err);
  if (code != RV_OK) return code;
  char *copy = rv_span_text(bytes);
  if (copy == NULL) return rv_fail_memory(err, bytes.size);
  free(*out);
  *out = copy;
  return RV_OK;
}

static rv_code parse_signature(rv_span bytes, rv_table_info *out, rv_error *err)
{
  rv_signature signature;
  rv_code code = rv_signature_parse(bytes, &signature, err);
  if (code != RV_OK) return code;
  rv_signature *copy = rv_signature_copy(&signature);
  rv_signature_fini(&signature);
  if (copy == NULL) return rv_fail_memory(err, bytes.size);
  /* rv_signature_copy's block begins one rv_signature before the specs: that is what rv_table_info_fini frees. */
  if (out->signature.specs != NULL) free((rv_signature *)(uintptr_t)out->signature.specs - 1);
  out->signature = *copy;
  return RV_OK;
}

static rv_code parse_caller(rv_span message, rv_waiting_caller *out, rv_error *err)
{
  *out = (rv_waiting_caller){.remaining_ns = INT64_MAX};
  rv_span peer = {0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) out->id = field.value;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) out->is_insert = field.value != 0;
    if (rv_field_is(&field, 3, RV_WIRE_VARINT) && field.value <= RV_WAIT_MEMORY) out->reason = (rv_wait_reason)field.value;
    if (rv_field_is(&field, 4, RV_WIRE_VARINT)) out->waiting_ns = (int64_t)field.value;
    if (rv_field_is(&field, 5, RV_WIRE_VARINT)) out->remaining_ns = (int64_t)field.value;
    if (rv_field_is(&field, 6, RV_WIRE_VARINT)) out->wanted = (int64_t)field.value;
    if (rv_field_is(&field, 7, RV_WIRE_BYTES)) peer = field.bytes;
    if (rv_field_is(&field, 8, RV_WIRE_VARINT)) out->is_change = field.value != 0;
  }
  if (reader.broken) return rv_fail_parse(err, "TableInfo");
  rv_code code = rv_check_text(peer, "the peer of a waiting caller", err);
  if (code != RV_OK) return code;
  size_t size = peer.size < sizeof out->peer ? peer.size : sizeof out->peer - 1;
  while (size < peer.size && size > 0 && peer.data[size] >> 6 == 2) size--; /* cut between characters */
  if (size > 0) memcpy(out->peer, peer.data, size);
  out->peer[size] = '\0';
  return RV_OK;
}

/* The first pass has counted them. */
static rv_code parse_waiting(rv_span message, size_t count, rv_info_budget *budget, rv_table_info *out, rv_error *err)
{
  if (count == 0) return RV_OK;
  size_t size = count * sizeof *out->waiting;
  if (!rv_info_budget_take(budget, size))
    return rv_fail(err, RV_INVALID_ARGUMENT, "a TableInfo with %zu waiting callers: most of them are empty", count);
  out->waiting = calloc(1, size);
  if (out->waiting == NULL) return rv_fail_memory(err, size);
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1005, RV_WIRE_BYTES)) code = parse_caller(field.bytes, &out->waiting[out->num_waiting++], err);
  return code;
}

static void parse_varint(const rv_field *field, rv_table_info *out)
{
  int64_t value = (int64_t)field->value;
  switch (field->number) {
  case 3: out->max_size = value; break;
  case 4: out->max_times_sampled = rv_field_int32(field); break;
  case 7: out->current_size = value; break;
  case 9: out->num_episodes = value; break;
  case 10: out->num_deleted_episodes = value; break;
  case 11: out->num_unique_samples = value; break;
  case 1000: out->deletes = value; break;
  case 1001: out->updates = value; break;
  case 1004: out->memory_bytes = value; break;
  case 1006: out->num_waiting_inserts = value; break;
  case 1007: out->num_waiting_samples = value; break;
  case 1011: out->max_bytes = value; break;
  case 1012: out->item_bytes = value; break;
  default: break;
  }
}

static void parse_double(const rv_field *field, rv_table_info *out)
{
  double value = rv_field_double(field);
  switch (field->number) {
  case 1002: out->inserts_per_second = value; break;
  case 1003: out->samples_per_second = value; break;
  case 1008: out->min_priority = value; break;
  case 1009: out->max_priority = value; break;
  default: break;
  }
}

static rv_code parse_bytes(const rv_field *field, rv_table_info *out, size_t *waiting, rv_error *err)
{
  switch (field->number) {
  case 1: return rv_selector_parse(field->bytes, &out->sampler, err);
  case 2: return rv_selector_parse(field->bytes, &out->remover, err);
  case 5: return rv_rate_limiter_parse(field->bytes, &out->rate_limiter, &out->inserts, &out->samples, err);
  case 6: return parse_signature(field->bytes, out, err);
  case 8: return parse_text(field->bytes, &out->name, "a table's name", err);
  case 12: return parse_worker_time(field->bytes, out) ? RV_OK : rv_fail_parse(err, "TableWorkerTime");
  case 1005: ++*waiting; return RV_OK;
  case 1010: return parse_text(field->bytes, &out->extensions, "the text of a table's extensions", err);
  default: return RV_OK;
  }
}

static rv_code fill_in_texts(rv_table_info *out, rv_error *err)
{
  if (out->name == NULL) out->name = calloc(1, 1);
  if (out->extensions == NULL) out->extensions = calloc(1, 1);
  return out->name != NULL && out->extensions != NULL ? RV_OK : rv_fail_memory(err, 0);
}

rv_code rv_table_info_parse(rv_span message, rv_info_budget *budget, rv_table_info *out, rv_error *err)
{
  *out = (rv_table_info){.size = sizeof *out, .min_priority = NAN, .max_priority = NAN};
  size_t waiting = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (field.type == RV_WIRE_VARINT) parse_varint(&field, out);
    if (field.type == RV_WIRE_FIXED64) parse_double(&field, out);
    if (field.type == RV_WIRE_BYTES) code = parse_bytes(&field, out, &waiting, err);
  }
  if (code == RV_OK && reader.broken) code = rv_fail_parse(err, "TableInfo");
  if (code == RV_OK) code = parse_waiting(message, waiting, budget, out, err);
  return code == RV_OK ? fill_in_texts(out, err) : code;
}

/* ---- writing ---- */

static void put_worker_time(rv_writer_buf *out, const rv_table_info *info)
{
  const int64_t times[WORKER_TIMES] = {info->running_ns,
                                       info->sampling_ns,
                                       info->inserting_ns,
                                       info->sleeping_ns,
                                       info->waiting_for_sampling_ns,
                                       info->waiting_for_inserts_ns};
  size_t mark = rv_put_open(out, 12);
  for (uint32_t i = 0; i < WORKER_TIMES; i++) rv_put_varint(out, i + 1, (uint64_t)(times[i] / NS_PER_MS));
  for (uint32_t i = 0; i < WORKER_TIMES; i++) rv_put_varint(out, FIRST_NS_FIELD + i, (uint64_t)times[i]);
  rv_put_close(out, mark);
}

static void put_waiting(rv_writer_buf *out, const rv_waiting_caller *caller)
{
  size_t mark = rv_put_open(out, 1005);
  rv_put_varint(out, 1, caller->id);
  rv_put_varint(out, 2, caller->is_insert);
  rv_put_varint(out, 3, (uint64_t)caller->reason);
  rv_put_varint(out, 4, (uint64_t)caller->waiting_ns);
  if (caller->remaining_ns != INT64_MAX) rv_put_varint_always(out, 5, (uint64_t)caller->remaining_ns);
  rv_put_varint(out, 6, (uint64_t)caller->wanted);
  rv_put_string(out, 7, caller->peer);
  rv_put_varint(out, 8, caller->is_change);
  rv_put_close(out, mark);
}

static void put_extensions(rv_writer_buf *out, const rv_table_info *info)
{
  rv_put_varint(out, 1000, (uint64_t)info->deletes);
  rv_put_varint(out, 1001, (uint64_t)info->updates);
  rv_put_double(out, 1002, info->inserts_per_second);
  rv_put_double(out, 1003, info->samples_per_second);
  rv_put_varint(out, 1004, (uint64_t)info->memory_bytes);
  for (size_t i = 0; i < info->num_waiting; i++) put_waiting(out, &info->waiting[i]);
  rv_put_varint(out, 1006, (uint64_t)info->num_waiting_inserts);
  rv_put_varint(out, 1007, (uint64_t)info->num_waiting_samples);
  if (!isnan(info->min_priority)) rv_put_double_always(out, 1008, info->min_priority);
  if (!isnan(info->max_priority)) rv_put_double_always(out, 1009, info->max_priority);
  rv_put_string(out, 1010, info->extensions);
  rv_put_varint(out, 1011, (uint64_t)info->max_bytes);
  rv_put_varint(out, 1012, (uint64_t)info->item_bytes);
}

void rv_table_info_put(rv_writer_buf *out, uint32_t field, const rv_table_info *info)
{
  size_t mark = rv_put_open(out, field);
  rv_selector_put(out, 1, &info->sampler);
  rv_selector_put(out, 2, &info->remover);
  rv_put_varint(out, 3, (uint64_t)info->max_size);
  rv_put_int32(out, 4, info->max_times_sampled);
  rv_rate_limiter_put(out, 5, &info->rate_limiter, info->inserts, info->samples);
  rv_signature_put(out, 6, &info->signature);
  rv_put_varint(out, 7, (uint64_t)info->current_size);
  rv_put_string(out, 8, info->name);
  rv_put_varint(out, 9, (uint64_t)info->num_episodes);
  rv_put_varint(out, 10, (uint64_t)info->num_deleted_episodes);
  rv_put_varint(out, 11, (uint64_t)info->num_unique_samples);
  put_worker_time(out, info);
  put_extensions(out, info);
  rv_put_close(out, mark);
}
