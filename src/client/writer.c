/* Life, waiting, and what the writer knows. */
#include "client/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "reverie/sampler.h"

#define DEFAULT_MAX_BYTES ((size_t)64 << 20)
enum { DEFAULT_MAX_ITEMS = 100000, MAX_KEEP = 1 << 30 };

/* ---- new and free ---- */

static rv_code read_config(const rv_writer_config *from, rv_writer_config *to, rv_error *err)
{
  if (from == NULL || from->size < offsetof(rv_writer_config, chunk_length))
    return rv_fail(err, RV_INVALID_ARGUMENT, "writer config: size must be sizeof(rv_writer_config)");
  memset(to, 0, sizeof *to);
  memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
  if (to->num_keep_alive_refs < 1 || to->num_keep_alive_refs > MAX_KEEP)
    return rv_fail(err, RV_INVALID_ARGUMENT, "writer config: num_keep_alive_refs must be a positive integer up to %d, it is %u",
                   MAX_KEEP, (unsigned)to->num_keep_alive_refs);
  if (to->chunk_length > to->num_keep_alive_refs)
    return rv_fail(err, RV_INVALID_ARGUMENT, "writer config: chunk_length %u is larger than num_keep_alive_refs %u",
                   (unsigned)to->chunk_length, (unsigned)to->num_keep_alive_refs);
  if (to->compression != RV_COMPRESSION_AUTO && to->compression != RV_COMPRESSION_NONE &&
      to->compression != RV_COMPRESSION_SNAPPY)
    return rv_fail(err, RV_INVALID_ARGUMENT, "writer config: %d is no compression", (int)to->compression);
  if (to->max_in_flight_bytes == 0) to->max_in_flight_bytes = DEFAULT_MAX_BYTES;
  if (to->max_in_flight_items == 0) to->max_in_flight_items = DEFAULT_MAX_ITEMS;
  return RV_OK;
}

static rv_code connect_remote(rv_writer *writer, rv_error *err)
{
  rv_client *client = writer->client;
  rv_code code = rv_client_connect(client, err);
  if (code != RV_OK) return code;
  rv_gate_init_at(&writer->gate, client->loop, client->channel);
  rv_insert_stream_config config = {.env = &client->env,
                                    .loop = client->loop,
                                    .channel = client->channel,
                                    .answered = rv_writer_take_confirmed,
                                    .context = writer};
  code = rv_insert_stream_new(&config, &writer->stream, err);
  if (code != RV_OK) return code;
  writer->sender = writer->stream;
  if (!writer->config.no_validation) writer->snapshot = rv_client_present_tables(client);
  bool known = writer->config.no_validation || writer->snapshot != NULL;
  atomic_init(&writer->tables_known, known);
  return known ? RV_OK : rv_writer_fetch_tables(writer, err);
}

rv_code rv_writer_new(rv_client *client, const rv_writer_config *config, rv_writer **out, rv_error *err)
{
  rv_code code = rv_client_check(client, err);
  rv_writer_config filled;
  if (code == RV_OK) code = read_config(config, &filled, err);
  if (code != RV_OK) return code;
  rv_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
  atomic_init(&writer->refs, 1);
  writer->client = client;
  writer->config = filled;
  writer->one_chunk = filled.columns_share_chunks || client->store != NULL;
  rv_list_init(&writer->groups);
  rv_random_init(&writer->random, rv_client_random(client));
  writer->episode_id = rv_writer_random_key(writer);
  uint64_t item_seed;
  if (client->store == NULL || !rv_store_key_seed(client->store, &item_seed)) item_seed = rv_random_next(&writer->random);
  rv_random_init(&writer->item_random, item_seed);
  rv_list_init(&writer->waiting);
  rv_list_init(&writer->flights);
  rv_list_init(&writer->unchecked);
  rv_list_init(&writer->free_items);
  rv_list_init(&writer->done_items);
  rv_list_init(&writer->ended);
  rv_encode_room_init(&writer->encode_room);
  writer->wake_at = -1;
  rv_mutex_init(&writer->mutex, RV_RANK_CLIENT, "writer");
  rv_mutex_init(&writer->status_mutex, RV_RANK_STATUS, "writer's status");
  rv_gate_init(&writer->gate);
  if (client->store == NULL)
    code = connect_remote(writer, err);
  else
    rv_memory_begin_writer(rv_store_memory(client->store));
  if (code == RV_OK) {
    *out = writer;
  } else {
    rv_writer_free(writer);
  }
  return code;
}

static void free_columns(rv_writer *writer)
{
  rv_writer_complete_all(writer);
  for (uint32_t i = 0; i < writer->num_columns; i++) /* what several share goes back to one of them */
    if (writer->columns[i] != NULL) rv_column_expire(writer->columns[i], INT64_MAX);
  for (uint32_t i = 0; i < writer->num_columns; i++) rv_column_free(writer->columns[i]);
  free(writer->columns);
  rv_writer_free_groups(writer);
}

/* A forked child has not the threads and locks behind it. */
static bool can_be_closed(const rv_writer *writer)
{
  return !atomic_load_explicit(&writer->closed, memory_order_relaxed) && rv_client_is_here(writer->client);
}

rv_code rv_writer_check(const rv_writer *writer, rv_error *err)
{
  if (atomic_load_explicit(&writer->closed, memory_order_relaxed))
    return rv_fail(err, RV_FAILED_PRECONDITION, "Close has been called on this writer; make a new one");
  return rv_client_check(writer->client, err);
}

size_t rv_writer_abandon(rv_writer *writer)
{
  if (!can_be_closed(writer)) return 0;
  if (writer->stream != NULL) {
    rv_writer_close_remote(writer);
  } else if (writer->client->store != NULL) {
    rv_writer_close_local(writer);
    rv_memory_end_writer(rv_store_memory(writer->client->store));
  }
  atomic_store_explicit(&writer->closed, true, memory_order_relaxed);
  rv_mutex_lock(&writer->mutex);
  int64_t given_up = writer->created - writer->confirmed - writer->failed;
  rv_mutex_unlock(&writer->mutex);
  return given_up > 0 ? (size_t)given_up : 0;
}

static void log_untold(rv_writer *writer)
{
  rv_error untold;
  if (rv_writer_take_failure(writer, &untold) == RV_OK) return;
  rv_log(&writer->client->env, RV_LOG_WARNING, "a writer was closed or dropped before any call told of this: %s", untold.message);
}

void rv_writer_close(rv_writer *writer)
{
  if (!can_be_closed(writer)) return;
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  size_t given_up = rv_writer_abandon(writer);
  if (given_up > 0)
    rv_log(&writer->client->env, RV_LOG_WARNING,
           "a writer was closed or dropped with %zu of its items unconfirmed, which are given up (%s): call flush first",
           given_up, status.state);
  log_untold(writer);
}

void rv_writer_free(rv_writer *writer)
{
  if (writer == NULL || !rv_client_is_here(writer->client)) return;
  rv_writer_close(writer);
  log_untold(writer); /* of one that was abandoned, which left it to whoever did that */
  rv_writer_unref(writer);
}

void rv_writer_unref(rv_writer *writer)
{
  if (atomic_fetch_sub_explicit(&writer->refs, 1, memory_order_acq_rel) != 1) return;
  free_columns(writer);
  for (size_t i = 0; i < writer->num_tables; i++) {
    rv_column_names_free(writer->tables[i]->names);
    free(writer->tables[i]->name);
    free(writer->tables[i]);
  }
  free(writer->tables);
  rv_tables_unref(writer->snapshot);
  rv_parts_fini(&writer->parts);
  rv_encode_room_fini(&writer->encode_room);
  rv_item_form_unref(writer->item_form);
  free(writer->string_row);
  rv_mutex_fini(&writer->mutex);
  rv_mutex_fini(&writer->status_mutex);
  free(writer);
}

/* ---- columns ---- */

rv_code rv_writer_name_column(rv_writer *writer, uint32_t number, const char *name, rv_error *err)
{
  rv_column *column;
  rv_code code = rv_writer_check(writer, err);
  if (code == RV_OK) code = rv_writer_make_column(writer, number, &column, err);
  if (code != RV_OK) return code;
  char *copy = strdup(name);
  if (copy == NULL) return rv_fail_memory(err, strlen(name) + 1);
  free(column->name);
  column->name = copy;
  return RV_OK;
}

rv_code rv_writer_configure_column(rv_writer *writer, uint32_t number, uint32_t num_keep_alive_refs, uint32_t chunk_length,
                                   rv_error *err)
{
  rv_column *column;
  rv_code code = rv_writer_check(writer, err);
  if (code == RV_OK && (num_keep_alive_refs < 1 || num_keep_alive_refs > MAX_KEEP || chunk_length > num_keep_alive_refs))
    code =
        rv_fail(err, RV_INVALID_ARGUMENT,
                "column %u: num_keep_alive_refs must be a positive integer and chunk_length at most as much; they are %u and %u",
                (unsigned)number, (unsigned)num_keep_alive_refs, (unsigned)chunk_length);
  if (code == RV_OK) code = rv_writer_make_column(writer, number, &column, err);
  if (code != RV_OK) return code;
  char label[RV_LABEL_MAX];
  if (column->open != NULL && column->open_rows > 0 && !writer->one_chunk) {
    if (column->rule.fixed > 0)
      return rv_fail(err, RV_FAILED_PRECONDITION, "%s has unfinished rows. Flush must be called before it is configured",
                     rv_column_label(column, label));
    rv_writer_complete_chunk(column->open); /* how long it is was for us to choose */
    if (writer->num_waiting > 0) rv_writer_dispatch(writer);
  }
  rv_writer_set_apart(writer, column); /* what is its own is not for others */
  column->keep = num_keep_alive_refs;
  rv_chunk_rule_init(&column->rule, chunk_length, num_keep_alive_refs);
  return RV_OK;
}

/* ---- waiting ---- */

static void describe(void *context, char *out, size_t capacity)
{
  rv_writer *writer = context;
  if (writer->stream == NULL) {
    rv_writer_describe_local(writer, out, capacity);
  } else {
    rv_writer_describe_remote(writer, out, capacity);
  }
}

/* Whether a failure that nobody was told of ends the wait, too. */
typedef enum waits_until { UNTIL_FAILURE, UNTIL_LANDED } waits_until;

static bool has_landed(const rv_writer *writer, size_t keep_in_flight, waits_until until)
{
  return atomic_load_explicit(&writer->num_flights, memory_order_acquire) <= keep_in_flight ||
         (until == UNTIL_FAILURE && atomic_load_explicit(&writer->failure_untold, memory_order_relaxed));
}

/* Who lets some be in flight does something else meanwhile: two threads are better at that than one. */
static void ask_for_flights(rv_writer *writer, size_t keep_in_flight, rv_patience *patience)
{
  if (keep_in_flight == 0)
    rv_insert_stream_ask(writer->stream, &writer->gate, patience);
  else
    rv_insert_stream_hurry(writer->stream, keep_in_flight);
}

static rv_code wait_for_flights(rv_writer *writer, size_t keep_in_flight, waits_until until, const rv_wait *wait, rv_error *err)
{
  if (has_landed(writer, keep_in_flight, until) && (wait == NULL || !rv_cancel_fired(wait->cancel))) return RV_OK;
  rv_patience patience;
  rv_client_begin_patience(writer->client, &patience, wait, describe, writer);
  if (writer->client->store != NULL) patience.memory = rv_store_memory(writer->client->store);
  writer->ask_server = rv_patience_is_long(&patience);
  rv_code code = rv_cancel_fired(patience.wait.cancel) ? rv_patience_check(&patience, err) : RV_OK;
  while (code == RV_OK) {
    rv_mutex_lock(&writer->mutex);
    bool over = has_landed(writer, keep_in_flight, until);
    writer->wake_at = over ? -1 : (int64_t)keep_in_flight;
    writer->wakes_at_failure = until == UNTIL_FAILURE;
    rv_mutex_unlock(&writer->mutex);
    if (over) break;
    if (writer->stream != NULL) ask_for_flights(writer, keep_in_flight, &patience);
    code = rv_gate_wait(&writer->gate, &patience, err);
  }
  rv_mutex_lock(&writer->mutex);
  writer->wake_at = -1;
  rv_mutex_unlock(&writer->mutex);
  return code;
}

static rv_code send_and_wait(rv_writer *writer, uint32_t keep_in_flight, waits_until until, const rv_wait *wait, rv_error *err)
{
  rv_wait rest;
  bool waiting = writer->stream != NULL && writer->num_waiting > keep_in_flight;
  if (waiting) rv_writer_complete_for_items(writer, keep_in_flight, wait, &rest);
  if (writer->stream != NULL && !waiting) rv_writer_dispatch(writer);
  rv_code code = wait_for_flights(writer, keep_in_flight, until, waiting ? &rest : wait, err);
  if (writer->stream != NULL) rv_writer_reclaim(writer);
  return code;
}

/* Who has nothing to wait for does not need the client, which may have been closed before the writer was. */
static rv_code check_to_wait(const rv_writer *writer, rv_error *err)
{
  const bool all_landed = atomic_load_explicit(&writer->num_flights, memory_order_acquire) == 0;
  return all_landed && can_be_closed(writer) ? RV_OK : rv_writer_check(writer, err);
}

rv_code rv_writer_flush(rv_writer *writer, uint32_t keep_in_flight, const rv_wait *wait, rv_error *err)
{
  rv_code code = check_to_wait(writer, err);
  if (code == RV_OK) code = rv_writer_failure(writer, true, err);
  if (code == RV_OK) code = send_and_wait(writer, keep_in_flight, UNTIL_FAILURE, wait, err);
  return code == RV_OK ? rv_writer_failure(writer, true, err) : code;
}

rv_code rv_writer_settle(rv_writer *writer, const rv_wait *wait, rv_error *err)
{
  rv_code code = check_to_wait(writer, err);
  return code == RV_OK ? send_and_wait(writer, 0, UNTIL_LANDED, wait, err) : code;
}

rv_code rv_writer_settle_or_fail(rv_writer *writer, const rv_wait *wait, rv_error *err)
{
  rv_code code = check_to_wait(writer, err);
  return code == RV_OK ? send_and_wait(writer, 0, UNTIL_FAILURE, wait, err) : code;
}

rv_code rv_writer_wait_for_sent(rv_writer *writer, size_t max_sent, const rv_wait *wait, rv_error *err)
{
  rv_code code = wait_for_flights(writer, writer->num_waiting + max_sent, UNTIL_FAILURE, wait, err);
  return code == RV_OK ? rv_writer_failure(writer, false, err) : code;
}

rv_code rv_writer_wait_ready(rv_writer *writer, const rv_wait *wait, rv_error *err)
{
  rv_code code = rv_writer_check(writer, err);
  if (code != RV_OK || writer->stream == NULL) return code;
  rv_patience patience;
  rv_client_begin_patience(writer->client, &patience, wait, describe, writer);
  if (writer->client->store != NULL) patience.memory = rv_store_memory(writer->client->store);
  for (;;) {
    rv_mutex_lock(&writer->mutex);
    bool known = writer->tables_known;
    if (known && writer->tables_error.code != RV_OK) code = rv_error_copy(err, &writer->tables_error);
    rv_mutex_unlock(&writer->mutex);
    if (known) return code;
    code = rv_gate_wait(&writer->gate, &patience, err);
    if (code != RV_OK) return code;
  }
}

rv_code rv_writer_end_episode(rv_writer *writer, bool clear_buffers, const rv_wait *wait, rv_error *err)
{
  rv_code code = rv_writer_check(writer, err);
  if (code == RV_OK) code = rv_writer_flush(writer, 0, wait, err);
  if (code != RV_OK) return code;
  rv_writer_complete_all(writer); /* a chunk belongs to one episode */
  writer->step_open = false;
  writer->episode_steps = 0;
  writer->episode_id = rv_writer_random_key(writer);
  if (!clear_buffers) return RV_OK;
  for (uint32_t i = 0; i < writer->num_columns; i++) {
    rv_column *column = writer->columns[i];
    if (column == NULL) continue;
    if (column->num_spans > 0) rv_column_expire(column, INT64_MAX);
    column->last_row = -1;
    column->first_row = 0;
  }
  writer->num_rows = 0;
  return RV_OK;
}

/* ---- what the writer knows ---- */

int64_t rv_writer_num_rows(const rv_writer *writer)
{
  return writer->num_rows;
}
int64_t rv_writer_episode_steps(const rv_writer *writer)
{
  return writer->episode_steps;
}
uint64_t rv_writer_episode_id(const rv_writer *writer)
{
  return writer->episode_id;
}
bool rv_writer_step_is_open(const rv_writer *writer)
{
  return writer->step_open;
}

rv_row_state rv_writer_row_state(const rv_writer *writer, uint32_t number, int64_t row)
{
  const rv_column *column = rv_writer_column(writer, number);
  if (row < 0 || row >= writer->num_rows || column == NULL) return RV_ROW_MISSING;
  if (row < rv_writer_first_row(writer, column)) return RV_ROW_EXPIRED;
  return rv_column_find(column, row) != NULL ? RV_ROW_PRESENT : RV_ROW_MISSING;
}

rv_code rv_writer_column_spec(const rv_writer *writer, uint32_t number, rv_spec *out)
{
  const rv_column *column = rv_writer_column(writer, number);
  if (column == NULL || !column->known) return RV_NOT_FOUND;
  *out = rv_column_spec(column);
  return RV_OK;
}

static rv_code string_row(rv_writer *writer, const rv_row_span *span, size_t bytes, int64_t offset, const void **out,
                          rv_error *err)
{
  void *room = realloc(writer->string_row, bytes);
  if (room == NULL) return rv_fail_memory(err, bytes);
  *out = writer->string_row = room;
  return rv_chunk_copy_rows(span->chunk->segment, span->tensor, offset, 1, room, err);
}

rv_code rv_writer_row(rv_writer *writer, uint32_t number, int64_t row, rv_tensor *out, rv_error *err)
{
  rv_code code = rv_client_check(writer->client, err); /* a forked child does not have what was to be lent (base/arena.h) */
  if (code != RV_OK) return code;
  rv_column *column = rv_writer_column(writer, number);
  rv_row_state state = rv_writer_row_state(writer, number, row);
  const rv_row_span *span = state == RV_ROW_PRESENT ? rv_column_find(column, row) : NULL;
  if (span == NULL) {
    char label[RV_LABEL_MAX] = "";
    if (column != NULL) rv_column_label(column, label);
    return rv_fail(err, RV_INVALID_ARGUMENT, "row %lld of %s %s", (long long)row,
                   column != NULL ? label : "a column that has no rows", state == RV_ROW_EXPIRED ? "has expired" : "is missing");
  }
  const rv_chunk_column *spec = &column->spec;
  int64_t offset = span->offset + (row - span->first);
  size_t stride;
  const void *data = NULL;
  if (spec->dtype == RV_STRING && spec->row_bytes > 0) {
    code = string_row(writer, span, spec->row_bytes, offset, &data, err);
  } else if (spec->row_bytes > 0) {
    data = rv_chunk_rows_in_place(span->chunk->segment, span->tensor, offset, 1, &stride);
  }
  if (code == RV_OK) *out = (rv_tensor){.dtype = spec->dtype, .rank = spec->rank, .shape = spec->shape, .data = data};
  return code;
}

void rv_writer_get_status(rv_writer *writer, rv_writer_status *out)
{
  rv_insert_stream_status stream = {0};
  snprintf(stream.state, sizeof stream.state,
           writer->client->store != NULL && !atomic_load(&writer->closed) ? "in process" : "closed");
  rv_mutex_lock(&writer->status_mutex);
  if (writer->stream != NULL) rv_insert_stream_get_status(writer->stream, &stream);
  rv_mutex_unlock(&writer->status_mutex);
  rv_writer_status status = {
      .size = out->size, .bytes_sent = (int64_t)stream.bytes_sent, .reconnects = (int64_t)stream.reconnects};
  snprintf(status.state, sizeof status.state, "%s", stream.state);
  rv_mutex_lock(&writer->mutex);
  status.items_created = writer->created;
  status.items_confirmed = writer->confirmed;
  status.items_failed = writer->failed;
  status.items_in_flight = (int64_t)atomic_load_explicit(&writer->num_flights, memory_order_relaxed);
  status.bytes_in_flight = (int64_t)atomic_load_explicit(&writer->bytes_in_flight, memory_order_relaxed);
  rv_mutex_unlock(&writer->mutex);
  memcpy(out, &status, out->size < sizeof status ? out->size : sizeof status);
}
