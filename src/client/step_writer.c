#include "reverie/step_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/paths.h"
#include "client/step_change.h"
#include "client/writer.h"
#include "tensor/codec.h"

enum { DEFAULT_CHUNK_LENGTH = 10, DEFAULT_IN_FLIGHT = 25, MAX_IN_FLIGHT = 1000000, GIVE_UP_SLICE_MS = 100, OTHERS_MS = 1000 };

struct rv_step_writer {
  rv_writer *writer;
  uint32_t max_sequence_length, max_in_flight_items;
  uint32_t chunk_length;
  uint32_t chunk_steps;            /* in the chunk that the next step joins; 0: it begins one */
  rv_step_change change;           /* the last */
  size_t num_columns, column_room; /* 0: no step yet */
  bool closed;
  bool pending; /* in process: a writer elsewhere would still keep an item back for its chunk */
  rv_cell *cells;
  rv_run *runs;
  rv_item_column *columns;
  rv_step_names names; /* the caller's */
};

/* ---- life ---- */

static rv_code read_config(const rv_step_writer_config *from, rv_step_writer_config *to, rv_error *err)
{
  if (from == NULL || from->size < offsetof(rv_step_writer_config, chunk_length))
    return rv_fail(err, RV_INVALID_ARGUMENT, "step writer config: size must be sizeof(rv_step_writer_config)");
  memset(to, 0, sizeof *to);
  memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
  uint32_t length = to->max_sequence_length;
  if (length < 1) return rv_fail(err, RV_INVALID_ARGUMENT, "step writer config: max_sequence_length must be a positive integer");
  if (to->chunk_length == 0) to->chunk_length = length < DEFAULT_CHUNK_LENGTH ? length : DEFAULT_CHUNK_LENGTH;
  if (to->chunk_length > length)
    return rv_fail(err, RV_INVALID_ARGUMENT, "step writer config: chunk_length %u is larger than max_sequence_length %u",
                   (unsigned)to->chunk_length, (unsigned)length);
  if (to->max_in_flight_items == 0) to->max_in_flight_items = DEFAULT_IN_FLIGHT;
  return RV_OK;
}

rv_code rv_step_writer_new(rv_client *client, const rv_step_writer_config *config, rv_step_writer **out, rv_error *err)
{
  rv_step_writer_config filled;
  rv_code code = read_config(config, &filled, err);
  if (code != RV_OK) return code;
  rv_step_writer *steps = calloc(1, sizeof *steps);
  if (steps == NULL) return rv_fail_memory(err, sizeof *steps);
  steps->max_sequence_length = filled.max_sequence_length;
  steps->max_in_flight_items = filled.max_in_flight_items;
  steps->chunk_length = filled.chunk_length;
  rv_writer_config inner = {.size = sizeof inner,
                            .num_keep_alive_refs = filled.max_sequence_length,
                            .chunk_length = filled.chunk_length,
                            .columns_share_chunks = true,
                            .delta_encoded = filled.delta_encoded,
                            .compression = filled.compression,
                            .max_in_flight_items = MAX_IN_FLIGHT,
                            .signatures_of_steps = true};
  code = rv_writer_new(client, &inner, &steps->writer, err);
  if (code == RV_OK) {
    *out = steps;
  } else {
    free(steps);
  }
  return code;
}

void rv_step_writer_free(rv_step_writer *steps)
{
  if (steps == NULL) return;
  if (steps->closed) rv_writer_abandon(steps->writer); /* what became of its items was said, or was not to be */
  rv_writer_free(steps->writer);
  free(steps->cells);
  free(steps->runs);
  free(steps->columns);
  free(steps);
}

rv_code rv_step_writer_wait_ready(rv_step_writer *steps, const rv_wait *wait, rv_error *err)
{
  return rv_writer_wait_ready(steps->writer, wait, err);
}

static rv_code check_open(const rv_step_writer *steps, const char *call, rv_error *err)
{
  if (!steps->closed) return RV_OK;
  return rv_fail(err, RV_FAILED_PRECONDITION, "%s after Close has been called; make a new writer", call);
}

/* ---- steps ---- */

static rv_code begin(rv_step_writer *steps, size_t num_columns, rv_error *err)
{
  if (num_columns == 0 || num_columns > RV_MAX_COLUMNS)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a step of %zu columns; 1 to %d are possible", num_columns, RV_MAX_COLUMNS);
  if (num_columns <= steps->column_room) return RV_OK;
  rv_cell *cells = realloc(steps->cells, num_columns * sizeof *cells);
  if (cells != NULL) steps->cells = cells;
  rv_run *runs = realloc(steps->runs, num_columns * sizeof *runs);
  if (runs != NULL) steps->runs = runs;
  rv_item_column *columns = realloc(steps->columns, num_columns * sizeof *columns);
  if (columns != NULL) steps->columns = columns;
  if (cells == NULL || runs == NULL || columns == NULL) return rv_fail_memory(err, num_columns * sizeof *cells);
  steps->column_room = num_columns;
  return RV_OK;
}

static rv_code append_step(rv_step_writer *steps, size_t num_columns, rv_error *err)
{
  rv_writer *writer = steps->writer;
  rv_step_change change;
  if (!rv_step_change_find(writer, steps->cells, num_columns, steps->num_columns, &change))
    return rv_writer_append(writer, steps->cells, num_columns, false, err);
  rv_code code = RV_OK;
  if (steps->chunk_steps > 0) {
    code = rv_writer_check(writer, err);
    if (code == RV_OK) code = rv_writer_failure(writer, false, err);
    if (code != RV_OK) return code;
    return rv_step_change_fail_within_chunk(&change, steps->chunk_steps, steps->chunk_length, &steps->names, err);
  }
  code = rv_writer_append_anew(writer, steps->cells, num_columns, err);
  if (code == RV_OK) steps->change = change;
  return code;
}

/* Makes room once, by waiting for everything that is under way. */
static rv_code append_cells(rv_step_writer *steps, size_t num_columns, const rv_patience *patience, rv_error *err)
{
  rv_code code = append_step(steps, num_columns, err);
  if (code == RV_RESOURCE_EXHAUSTED) {
    const rv_wait rest = rv_patience_rest(patience);
    code = rv_writer_flush(steps->writer, 0, &rest, err);
    if (code == RV_OK) code = append_step(steps, num_columns, err);
  }
  if (code != RV_OK) return code;
  steps->num_columns = num_columns;
  if (++steps->chunk_steps < steps->chunk_length) return RV_OK;
  steps->chunk_steps = 0;
  steps->pending = false;
  return RV_OK;
}

rv_code rv_step_writer_append(rv_step_writer *steps, const rv_tensor *columns, size_t num_columns, const rv_wait *wait,
                              rv_error *err)
{
  rv_code code = check_open(steps, "append", err);
  if (code == RV_OK) code = begin(steps, num_columns, err);
  if (code != RV_OK) return code;
  for (size_t i = 0; i < num_columns; i++) steps->cells[i] = (rv_cell){.column = (uint32_t)i, .value = columns[i]};
  rv_patience patience;
  rv_client_begin_patience(steps->writer->client, &patience, wait, NULL, NULL);
  return append_cells(steps, num_columns, &patience, err);
}

/* Row `row` of a tensor [T, ...]. */
static rv_code row_of(const rv_tensor *tensor, size_t row, rv_tensor *out, rv_error *err)
{
  size_t elements, bytes;
  rv_code code = rv_shape_elements(tensor->dtype, tensor->rank - 1, tensor->shape + 1, &elements, &bytes, err);
  if (code != RV_OK) return code;
  const void *data = bytes > 0 && tensor->data != NULL ? (const char *)tensor->data + row * bytes : NULL;
  *out = (rv_tensor){.dtype = tensor->dtype, .rank = tensor->rank - 1, .shape = tensor->shape + 1, .data = data};
  return RV_OK;
}

rv_code rv_step_writer_append_sequence(rv_step_writer *steps, const rv_tensor *columns, size_t num_columns, const rv_wait *wait,
                                       rv_error *err)
{
  rv_code code = check_open(steps, "append_sequence", err);
  if (code == RV_OK) code = begin(steps, num_columns, err);
  if (code != RV_OK) return code;
  for (size_t i = 0; i < num_columns; i++) {
    size_t elements, bytes;
    if (columns[i].rank > 0)
      code = rv_shape_elements(columns[i].dtype, columns[i].rank, columns[i].shape, &elements, &bytes, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "column %zu", i);
      return code;
    }
    if (columns[i].rank == 0 || columns[i].shape[0] < 1 || columns[i].shape[0] != columns[0].shape[0])
      return rv_fail(err, RV_INVALID_ARGUMENT,
                     "AppendSequence: all columns must have the same leading dimension of at least 1; column "
                     "%zu has another",
                     i);
  }
  rv_patience patience; /* of all steps together */
  rv_client_begin_patience(steps->writer->client, &patience, wait, NULL, NULL);
  for (size_t t = 0; t < (size_t)columns[0].shape[0]; t++) {
    for (size_t i = 0; i < num_columns; i++) {
      steps->cells[i].column = (uint32_t)i;
      code = row_of(&columns[i], t, &steps->cells[i].value, err);
      if (code != RV_OK) return code;
    }
    code = append_cells(steps, num_columns, &patience, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

/* ---- items ---- */

static rv_code check_length(const rv_step_writer *steps, uint32_t num_timesteps, rv_error *err)
{
  if (num_timesteps < 1) return rv_fail(err, RV_INVALID_ARGUMENT, "num_timesteps must be at least 1");
  if (num_timesteps > steps->max_sequence_length)
    return rv_fail(err, RV_INVALID_ARGUMENT, "num_timesteps %u is larger than max_sequence_length %u", (unsigned)num_timesteps,
                   (unsigned)steps->max_sequence_length);
  if (num_timesteps > rv_writer_num_rows(steps->writer))
    return rv_fail(err, RV_INVALID_ARGUMENT, "num_timesteps %u is larger than the %lld steps that were appended",
                   (unsigned)num_timesteps, (long long)rv_writer_num_rows(steps->writer));
  return RV_OK;
}

void rv_step_writer_name_columns(rv_step_writer *steps, const char *const *names, size_t num_names)
{
  steps->names = (rv_step_names){.name = names, .count = names == NULL ? 0 : num_names};
}

void rv_step_writer_set_naming(rv_step_writer *steps, uint64_t naming)
{
  rv_writer_set_naming(steps->writer, naming);
}

/* What earlier calls left queued when their time ran out. */
static rv_code wait_for_room(rv_step_writer *steps, const rv_wait *wait, rv_error *err)
{
  if (rv_writer_admits(steps->writer, 1, NULL) == RV_OK) return RV_OK;
  rv_code code = rv_writer_flush(steps->writer, 0, wait, err);
  if (code == RV_DEADLINE_EXCEEDED || code == RV_CANCELLED) rv_error_prefix(err, "the item was not made");
  if (code != RV_DEADLINE_EXCEEDED) return code;
  if (err != NULL) err->code = RV_RESOURCE_EXHAUSTED; /* the deadline's own code says that the item is queued */
  return RV_RESOURCE_EXHAUSTED;
}

/* There is no room for the item: it goes over the bound before it is waited for, so that whoever has no time for that knows where it is. */
static rv_code create_over_bound(rv_step_writer *steps, const char *table, double priority, const rv_wait *wait, uint64_t *key,
                                 bool *over, rv_error *err)
{
  rv_writer *writer = steps->writer;
  rv_code code = wait_for_room(steps, wait, err);
  if (code != RV_OK) return code;
  writer->admitted = *over = true;
  code = rv_writer_create_item(writer, table, priority, steps->columns, steps->num_columns, key, err);
  writer->admitted = false;
  return code;
}

rv_code rv_step_writer_create_item(rv_step_writer *steps, const char *table, uint32_t num_timesteps, double priority,
                                   const rv_wait *wait, uint64_t *key, rv_error *err)
{
  if (key != NULL) *key = 0;
  rv_code code = check_open(steps, "create_item", err);
  if (code == RV_OK) code = rv_writer_check(steps->writer, err);
  if (code == RV_OK) code = rv_writer_failure(steps->writer, false, err); /* here, or its code could be taken for the bound's */
  if (code == RV_OK) code = check_length(steps, num_timesteps, err);
  if (code != RV_OK) return code;
  int64_t first = rv_writer_num_rows(steps->writer) - num_timesteps;
  if (first < steps->change.first)
    return rv_step_change_fail_across(&steps->change, num_timesteps, rv_writer_num_rows(steps->writer), &steps->names, err);
  for (size_t i = 0; i < steps->num_columns; i++) {
    steps->runs[i] = (rv_run){.column = (uint32_t)i, .count = num_timesteps, .first = first, .stride = 1};
    steps->columns[i] =
        (rv_item_column){.runs = &steps->runs[i], .num_runs = 1, .name = i < steps->names.count ? steps->names.name[i] : NULL};
  }
  bool over = false;
  code = rv_writer_create_item(steps->writer, table, priority, steps->columns, steps->num_columns, key, err);
  rv_patience patience;
  if (code == RV_RESOURCE_EXHAUSTED) {
    rv_client_begin_patience(steps->writer->client, &patience, wait, NULL, NULL);
    code = create_over_bound(steps, table, priority, wait, key, &over, err);
  }
  if (code != RV_OK && key != NULL) *key = 0;
  if (code != RV_OK) return code;
  if (steps->writer->stream == NULL) steps->pending = steps->chunk_steps > 0;
  if (!over) return rv_writer_wait_for_sent(steps->writer, steps->max_in_flight_items, wait, err);
  const rv_wait rest = rv_patience_rest(&patience);
  return rv_writer_flush(steps->writer, 0, &rest, err);
}

rv_code rv_step_writer_flush(rv_step_writer *steps, const rv_wait *wait, rv_error *err)
{
  rv_code code = check_open(steps, "flush", err);
  if (code != RV_OK) return code;
  if (steps->writer->num_waiting == 0 && !steps->pending) return rv_writer_flush(steps->writer, 0, wait, err);
  steps->pending = false;
  steps->chunk_steps = 0; /* what items wait for is complete */
  rv_wait rest;
  bool remote = steps->writer->stream != NULL;
  if (remote) rv_writer_complete_for_items(steps->writer, 0, wait, &rest);
  return rv_writer_wait_for_sent(steps->writer, steps->max_in_flight_items, remote ? &rest : wait, err);
}

size_t rv_step_writer_discard_failed(rv_step_writer *steps)
{
  return rv_writer_discard_failed(steps->writer);
}

rv_code rv_step_writer_take_failure(rv_step_writer *steps, rv_error *err)
{
  return rv_writer_take_failure(steps->writer, err);
}

/* ---- close ---- */

/* As long as a slice, or what is left of the whole. */
static rv_wait slice_of(const rv_patience *whole)
{
  rv_wait slice = rv_patience_rest(whole);
  if (slice.timeout_ms < 0 || slice.timeout_ms > GIVE_UP_SLICE_MS) slice.timeout_ms = GIVE_UP_SLICE_MS;
  return slice;
}

static bool is_reachable(rv_client *client, const rv_patience *whole)
{
  const rv_wait wait = slice_of(whole);
  rv_patience patience;
  rv_client_begin_patience(client, &patience, &wait, NULL, NULL);
  rv_writer_buf request;
  rv_writer_buf_init(&request);
  rv_buf *owner = NULL;
  rv_span response;
  rv_code code = rv_client_unary(client, RV_PATH_SERVER_INFO, &request, RV_UNARY_FAIL_FAST, &patience, &owner, &response, NULL);
  rv_buf_unref(owner);
  return code != RV_UNAVAILABLE;
}

/* What the last slice said that it waited for, behind how long it was. */
static void describe_slice(void *context, char *out, size_t capacity)
{
  const rv_error *said = context;
  const char *what = strstr(said->message, ": ");
  snprintf(out, capacity, "%s", what == NULL ? said->message : what + 2);
}

typedef rv_code settling(rv_writer *writer, const rv_wait *wait, rv_error *err);

/* Waits in slices, and asks after each whether anybody is there. */
static rv_code settle_if_reachable(rv_writer *writer, settling *settle_once, const rv_wait *wait, rv_error *err)
{
  rv_client *client = writer->client;
  rv_error said;
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, describe_slice, &said);
  for (;;) {
    const rv_wait slice = slice_of(&patience);
    rv_code code = settle_once(writer, &slice, &said);
    if (code == RV_OK) return RV_OK;
    if (code != RV_DEADLINE_EXCEEDED) return rv_error_copy(err, &said);
    code = rv_patience_check(&patience, err);
    if (code != RV_OK) return code;
    if (writer->stream != NULL && !is_reachable(client, &patience)) return RV_OK;
  }
}

static rv_code settle(rv_step_writer *steps, settling *settle_once, bool retry_on_unavailable, const rv_wait *wait, rv_error *err)
{
  steps->pending = false;
  return retry_on_unavailable ? settle_once(steps->writer, wait, err)
                              : settle_if_reachable(steps->writer, settle_once, wait, err);
}

/* Beside one that was refused they may never be confirmed: where the caller gave no time, they have a second. */
static rv_code settle_others(rv_step_writer *steps, bool retry_on_unavailable, rv_wait rest, rv_error *err)
{
  bool forever = rest.timeout_ms < 0;
  if (forever) rest.timeout_ms = OTHERS_MS;
  rv_code code = settle(steps, rv_writer_settle, retry_on_unavailable, &rest, err);
  return forever && code == RV_DEADLINE_EXCEEDED ? RV_OK : code;
}

rv_code rv_step_writer_settle(rv_step_writer *steps, bool retry_on_unavailable, const rv_wait *wait, rv_error *err)
{
  rv_code code = check_open(steps, "settle", err);
  return code == RV_OK ? settle(steps, rv_writer_settle, retry_on_unavailable, wait, err) : code;
}

rv_code rv_step_writer_close(rv_step_writer *steps, bool retry_on_unavailable, const rv_wait *wait, rv_error *err)
{
  if (steps->closed) return rv_fail(err, RV_INVALID_ARGUMENT, "Close has already been called on this writer");
  steps->closed = true;
  rv_writer *writer = steps->writer;
  rv_patience patience;
  rv_client_begin_patience(writer->client, &patience, wait, NULL, NULL);
  rv_code code = settle(steps, rv_writer_settle_or_fail, retry_on_unavailable, wait, err);
  if (code == RV_OK && atomic_load_explicit(&writer->num_flights, memory_order_acquire) > 0)
    code = settle_others(steps, retry_on_unavailable, rv_patience_rest(&patience), err);
  if (code == RV_OK) code = rv_writer_take_failure(writer, err);
  return code == RV_OK ? rv_writer_failure(writer, false, err) : code; /* what a closed table dropped */
}

size_t rv_step_writer_abandon(rv_step_writer *steps)
{
  steps->closed = true;
  return rv_writer_abandon(steps->writer);
}

int64_t rv_step_writer_num_steps(const rv_step_writer *steps)
{
  return rv_writer_num_rows(steps->writer);
}
uint64_t rv_step_writer_episode_id(const rv_step_writer *steps)
{
  return rv_writer_episode_id(steps->writer);
}
bool rv_step_writer_begins_chunk(const rv_step_writer *steps)
{
  return steps->chunk_steps == 0;
}
bool rv_step_writer_is_closed(const rv_step_writer *steps)
{
  return steps->closed;
}
