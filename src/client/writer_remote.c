/* Items into the insert stream.
 *
 * An item passes up to three places: `waiting`, on the writer's thread, until its chunks are complete; `unchecked`, until the
 * server has told what its tables expect; the stream. Each is left in order, so items reach the server in the order in which they
 * were created. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/writer.h"
#include "store/signature.h"

enum { END_MS = 100 }; /* for the loop's thread */
/* Items up to this many chunks, and bytes of body, are used again; those whose chunks are not small, too, while as much is in flight. */
enum { FEW_CHUNKS = 8, SMALL_BODY = 1024, SMALL_CHUNKS = 8192, MAX_FREE_ITEMS = 256, MAX_DONE_ITEMS = 256 };

struct rv_remote_item {
  rv_stream_item stream; /* its link: in whichever of the three places; its arrays: below */
  rv_flight flight;
  double priority;
  uint32_t room;        /* for chunks */
  uint32_t num_ready;   /* of the chunks, how many are known to be complete */
  uint32_t num_columns; /* to be checked; 0: they have been */
  rv_trajectory_column *columns;
  const char **names; /* of the columns, NULL where one has none; behind them */
  rv_writer_buf body;
  void *chunks[]; /* room x rv_written, room x rv_stream_chunk */
};

static rv_remote_item *item_of(rv_link *link)
{
  return RV_CONTAINER(RV_CONTAINER(link, rv_stream_item, link), rv_remote_item, stream);
}

/* Drops what the item refers to, but for its form: the next that is made of it is mostly like it. */
static void clear_item(rv_remote_item *item)
{
  for (uint32_t i = 0; i < item->stream.num_chunks; i++) rv_stream_chunk_unref(item->stream.chunks[i]);
  item->stream.num_chunks = 0;
  rv_flight_fini(&item->flight);
  free(item->columns);
  item->columns = NULL;
  item->num_columns = 0;
}

static void free_item(rv_remote_item *item)
{
  clear_item(item);
  rv_item_form_unref(item->stream.like);
  rv_writer_buf_fini(&item->body);
  free(item);
}

static rv_remote_item *new_item(rv_writer *writer, rv_error *err)
{
  uint32_t n = writer->parts.num_chunks;
  rv_writer_reclaim(writer);
  rv_link *link = n <= FEW_CHUNKS ? rv_list_pop_front(&writer->free_items) : NULL;
  if (link != NULL) {
    writer->num_free_items--;
    return item_of(link);
  }
  uint32_t room = n <= FEW_CHUNKS ? FEW_CHUNKS : n;
  size_t size = sizeof(rv_remote_item) + 2 * room * sizeof(void *);
  rv_remote_item *item = calloc(1, size);
  if (item == NULL) {
    rv_fail_memory(err, size);
    return NULL;
  }
  item->room = room;
  item->flight.chunks = (rv_written **)item->chunks;
  item->stream.chunks = (rv_stream_chunk **)item->chunks + room;
  rv_writer_buf_init(&item->body);
  rv_list_init(&item->stream.link);
  rv_list_init(&item->flight.link);
  return item;
}

static bool is_simple(const rv_remote_item *item)
{
  return item->room <= FEW_CHUNKS && item->body.capacity <= SMALL_BODY;
}

/* Of its chunks, where they are not small; those of others count, too. */
static size_t large_bytes(const rv_remote_item *item)
{
  size_t bytes = 0;
  for (uint32_t i = 0; i < item->stream.num_chunks; i++) bytes += rv_stream_chunk_bytes(item->stream.chunks[i]);
  return bytes > SMALL_CHUNKS ? bytes : 0;
}

/* Under the mutex: leaves the item to the writer's thread, whose memory it mostly is, or takes it to those that are freed here. */
static void leave_or_take(rv_writer *writer, rv_remote_item *item, rv_link *taken)
{
  size_t count = atomic_load_explicit(&writer->num_done_items, memory_order_relaxed);
  bool leave = count < MAX_DONE_ITEMS && !writer->closing && is_simple(item);
  rv_list_push_back(leave ? &writer->done_items : taken, &item->stream.link);
  if (!leave) return;
  atomic_store_explicit(&writer->num_done_items, count + 1, memory_order_relaxed);
  writer->done_bytes += large_bytes(item);
}

/* Under the mutex: what the writer's thread has not come to holds no more in large chunks than what is in flight, and of a writer that rests
 * nothing. */
static void take_what_is_too_much(rv_writer *writer, rv_link *taken)
{
  size_t most = atomic_load_explicit(&writer->bytes_in_flight, memory_order_relaxed);
  size_t count = atomic_load_explicit(&writer->num_done_items, memory_order_relaxed);
  for (; writer->done_bytes > most; count--) {
    rv_link *link = rv_list_pop_front(&writer->done_items);
    writer->done_bytes -= large_bytes(item_of(link));
    rv_list_push_back(taken, link);
  }
  atomic_store_explicit(&writer->num_done_items, count, memory_order_relaxed);
}

static void free_items(rv_link *items)
{
  for (rv_link *link; (link = rv_list_pop_front(items)) != NULL;) free_item(item_of(link));
}

/* Fewer are in flight. */
static void free_what_is_too_much(rv_writer *writer)
{
  rv_link taken;
  rv_list_init(&taken);
  rv_mutex_lock(&writer->mutex);
  take_what_is_too_much(writer, &taken);
  rv_mutex_unlock(&writer->mutex);
  free_items(&taken);
}

static void on_complete(rv_stream_item *stream_item, rv_code code, const char *message)
{
  rv_remote_item *item = RV_CONTAINER(stream_item, rv_remote_item, stream);
  rv_writer *writer = item->flight.writer;
  if (code == RV_OK) {
    rv_list_push_back(&writer->ended, &stream_item->link);
  } else if (rv_flight_end(&item->flight, code, message, NULL)) {
    free_item(item);
    free_what_is_too_much(writer);
  }
}

/* All that one answer confirms at once: the writer's thread is woken for many items, and meets the mutex once. */
void rv_writer_take_confirmed(void *context)
{
  rv_writer *writer = context;
  if (rv_list_empty(&writer->ended)) return;
  rv_client_note_change(writer->client);
  rv_link taken;
  rv_list_init(&taken);
  rv_mutex_lock(&writer->mutex);
  size_t left = 0;
  for (rv_link *link; (link = rv_list_pop_front(&writer->ended)) != NULL; writer->confirmed++) {
    left = rv_flight_take_off(&item_of(link)->flight);
    leave_or_take(writer, item_of(link), &taken);
  }
  take_what_is_too_much(writer, &taken);
  bool wake = rv_writer_is_to_wake(writer, left);
  rv_mutex_unlock(&writer->mutex);
  if (wake) rv_gate_open(&writer->gate); /* without the mutex, which the writer's thread takes at once */
  free_items(&taken);
}

void rv_writer_reclaim(rv_writer *writer)
{
  if (atomic_load_explicit(&writer->num_done_items, memory_order_relaxed) == 0) return;
  rv_link done;
  rv_list_init(&done);
  rv_mutex_lock(&writer->mutex);
  rv_list_splice(&done, &writer->done_items);
  atomic_store_explicit(&writer->num_done_items, 0, memory_order_relaxed);
  writer->done_bytes = 0;
  rv_mutex_unlock(&writer->mutex);
  rv_link *link;
  while ((link = rv_list_pop_front(&done)) != NULL) {
    rv_remote_item *item = item_of(link);
    if (writer->num_free_items == MAX_FREE_ITEMS) {
      free_item(item);
      continue;
    }
    /* these first, so that the last reference to a chunk is the one dropped below */
    for (uint32_t i = 0; i < item->flight.num_chunks; i++) rv_written_recycle(item->flight.chunks[i]);
    item->flight.num_chunks = 0;
    for (uint32_t i = 0; i < item->stream.num_chunks; i++)
      rv_stream_chunk_recycle(item->stream.chunks[i], &writer->encode_room.spares);
    item->stream.num_chunks = 0;
    clear_item(item);
    rv_list_push_front(&writer->free_items, &item->stream.link);
    writer->num_free_items++;
  }
}

/* ---- making one ---- */

/* Of which of its chunks each slice is: an item may be the item before with other chunks. False: there are too many. */
static bool find_chunks(const rv_parts *parts, uint8_t chunk_of[RV_FORM_SLICES])
{
  if (parts->num_slices > RV_FORM_SLICES || parts->num_columns > RV_FORM_SLICES) return false;
  for (size_t i = 0; i < parts->num_slices; i++) chunk_of[i] = (uint8_t)parts->owners[i]->place;
  return true;
}

/* The form that the item has too, as far as it is known before: shared by items that follow it. NULL: another one. */
static rv_item_form *form_of(rv_writer *writer, const rv_wire_item *wire, const uint8_t *chunk_of)
{
  return writer->item_form != NULL && rv_item_form_fits(writer->item_form, wire, chunk_of) ? writer->item_form : NULL;
}

/* The writer's form says from now on what this item does. 0: none does, for it has none or memory is out. */
static uint64_t note_form(rv_writer *writer, const rv_wire_item *wire, const uint8_t *chunk_of)
{
  if (writer->item_form == NULL || rv_item_form_is_shared(writer->item_form)) {
    rv_item_form_unref(writer->item_form);
    writer->item_form = rv_item_form_new();
    if (writer->item_form == NULL) return 0;
  }
  rv_item_form_set(writer->item_form, ++writer->item_forms, wire, chunk_of);
  return writer->item_forms;
}

static rv_code serialize(rv_remote_item *item, const rv_wire_item *wire, rv_error *err)
{
  item->body.size = 0;
  rv_item_form_unref(item->stream.like);
  item->stream.like = NULL;
  rv_wire_item_serialize(&item->body, wire);
  if (item->body.failed) {
    item->body.failed = false;
    return rv_fail_memory(err, wire->total_slices * sizeof *wire->slices);
  }
  item->stream.body = item->body.data;
  item->stream.body_size = item->body.size;
  return RV_OK;
}

/* What the stream needs to know of the item over the present parts. One that follows its like is only made a message if it must go as
 * one. */
static rv_code describe(rv_writer *writer, rv_remote_item *item, rv_error *err)
{
  rv_parts *parts = &writer->parts;
  if (parts->wire_room < parts->num_slices) {
    rv_wire_slice *slices = realloc(parts->wire, parts->slice_room * sizeof *slices);
    if (slices == NULL) return rv_fail_memory(err, parts->slice_room * sizeof *slices);
    parts->wire = slices;
    parts->wire_room = parts->slice_room;
  }
  for (size_t i = 0; i < parts->num_slices; i++) {
    const rv_slice *slice = &parts->slices[i];
    parts->wire[i] = (rv_wire_slice){
        .chunk_key = parts->owners[i]->key, .offset = slice->offset, .length = slice->length, .index = (int32_t)slice->tensor};
  }
  const char *table = item->flight.table->name;
  rv_wire_item wire = {.key = item->flight.key,
                       .table = {(const uint8_t *)table, strlen(table)},
                       .priority = item->priority,
                       .naming = writer->naming,
                       .slices = parts->wire,
                       .num_slices = parts->column_slices,
                       .squeeze = parts->squeeze,
                       .num_columns = parts->num_columns,
                       .total_slices = (uint32_t)parts->num_slices};
  item->stream.key = wire.key;
  item->stream.priority = wire.priority;
  item->stream.form = 0;
  uint8_t chunk_of[RV_FORM_SLICES];
  if (!find_chunks(parts, chunk_of)) return serialize(item, &wire, err);
  rv_item_form *form = form_of(writer, &wire, chunk_of);
  if (form == NULL) {
    item->stream.form = note_form(writer, &wire, chunk_of);
    return serialize(item, &wire, err);
  }
  item->stream.form = form->number;
  if (!rv_item_form_is_shared(form)) item->flight.own_bytes += sizeof *form; /* of the first that has it */
  rv_item_form_share(&item->stream.like, form);
  item->stream.body = NULL;
  item->stream.body_size = 0;
  return RV_OK;
}

/* For a check that comes later, when the writer's columns may have begun anew: behind the columns their names, specs, shapes, and the
 * names' text. */
static rv_code keep_columns(rv_writer *writer, rv_remote_item *item, rv_error *err)
{
  if (item->flight.table->info != NULL || writer->config.no_validation) return RV_OK;
  const rv_parts *parts = &writer->parts;
  size_t n = parts->num_columns, bytes = n * (sizeof *item->columns + sizeof *item->names + sizeof(rv_chunk_column));
  size_t dimensions = 0;
  for (size_t i = 0; i < n; i++) {
    dimensions += parts->columns[i].spec->rank;
    if (parts->given[i].name != NULL) bytes += strlen(parts->given[i].name) + 1;
  }
  bytes += dimensions * sizeof(int64_t);
  item->columns = malloc(bytes);
  if (item->columns == NULL) return rv_fail_memory(err, bytes);
  memcpy(item->columns, parts->columns, n * sizeof *item->columns);
  item->names = (const char **)(void *)(item->columns + n);
  rv_chunk_column *spec = (rv_chunk_column *)(void *)(item->names + n);
  int64_t *shape = (int64_t *)(void *)(spec + n);
  char *text = (char *)(shape + dimensions);
  for (size_t i = 0; i < n; i++, spec++) {
    *spec = *parts->columns[i].spec;
    if (spec->rank > 0) memcpy(shape, spec->shape, spec->rank * sizeof *shape);
    spec->shape = shape;
    shape += spec->rank;
    item->columns[i].spec = spec;
    const char *name = parts->given[i].name;
    item->names[i] = name == NULL ? NULL : text;
    if (name != NULL) text = stpcpy(text, name) + 1;
  }
  item->num_columns = parts->num_columns;
  return RV_OK;
}

static void cut_for_item(rv_writer *writer)
{
  for (uint32_t i = 0; i < writer->parts.num_chunks; i++) {
    rv_written *chunk = writer->parts.chunks[i];
    const bool full = chunk->complete && chunk->last_step + 1 == writer->episode_steps; /* and the newest */
    if (!full && (chunk->complete || !rv_chunk_rule_cuts(chunk->rule, chunk->rows))) continue;
    if (!full) rv_writer_complete_chunk(chunk);
    rv_chunk_rule_saw_cut(chunk->rule, chunk->rows);
  }
}

rv_code rv_writer_insert_remote(rv_writer *writer, rv_writer_table *table, double priority, uint64_t *key, rv_error *err)
{
  rv_remote_item *item = new_item(writer, err);
  if (item == NULL) return RV_RESOURCE_EXHAUSTED;
  item->flight.table = table;
  item->flight.key = rv_writer_random_key(writer);
  item->priority = priority;
  item->num_ready = 0;
  item->flight.own_bytes = sizeof *item + 2 * item->room * sizeof(void *);
  rv_code code = describe(writer, item, err);
  item->flight.own_bytes += item->body.capacity;
  if (code == RV_OK) code = keep_columns(writer, item, err);
  if (code == RV_OK) code = rv_flight_begin(writer, &item->flight, err);
  if (code != RV_OK) {
    free_item(item);
    return code;
  }
  item->stream.complete = on_complete;
  if (key != NULL) *key = item->flight.key;
  for (uint32_t i = 0; i < item->flight.num_chunks; i++) rv_written_pin(item->flight.chunks[i]);
  rv_list_push_back(&writer->waiting, &item->stream.link);
  writer->num_waiting++;
  cut_for_item(writer);
  rv_writer_dispatch(writer);
  rv_writer_notice_silence(writer);
  return RV_OK;
}

/* ---- from waiting on ---- */

static bool is_ready(rv_remote_item *item)
{
  while (item->num_ready < item->flight.num_chunks && item->flight.chunks[item->num_ready]->complete) item->num_ready++;
  return item->num_ready == item->flight.num_chunks;
}

/* The rows of an item that are not on their way yet. */
typedef enum new_rows {
  SMALL_ROWS,
  ROWS_IN_BLOCKS, /* of the server's; and the item may go in a pack */
  LARGE_ROWS      /* that go by themselves */
} new_rows;

static new_rows kind_of(const rv_written *chunk)
{
  if (rv_stream_chunk_bytes(chunk->encoded) < RV_STREAM_PACKED_ROWS_BELOW) return SMALL_ROWS;
  return rv_segment_is_for_once(chunk->segment) ? ROWS_IN_BLOCKS : LARGE_ROWS;
}

/* *rows: the largest of the kinds. */
static rv_code encode(rv_writer *writer, rv_remote_item *item, new_rows *rows, rv_error *err)
{
  uint32_t n = item->flight.num_chunks, can_pack = 0;
  for (uint32_t i = 0; i < n; i++) {
    rv_written *chunk = item->flight.chunks[i];
    bool is_new = chunk->encoded == NULL;
    rv_code code =
        rv_written_encode(chunk, writer->config.delta_encoded, (int)writer->config.compression, &writer->encode_room, err);
    if (code != RV_OK) return code;
    item->stream.chunks[i] = rv_stream_chunk_ref(chunk->encoded);
    can_pack += is_new && chunk->encoded->form != 0;
    if (is_new && kind_of(chunk) > *rows) *rows = kind_of(chunk);
    item->stream.num_chunks = i + 1;
  }
  if (*rows == ROWS_IN_BLOCKS && (can_pack < n || item->stream.form == 0)) *rows = LARGE_ROWS;
  return RV_OK;
}

static rv_code check(const rv_remote_item *item, const rv_tables *tables, rv_error *err)
{
  if (item->num_columns == 0 || tables == NULL) return RV_OK;
  const rv_table_info *info;
  rv_code code = rv_tables_find(tables, item->flight.table->name, &info, err);
  if (code != RV_OK) return code;
  code = rv_writer_priority_fits(info, item->priority, err);
  if (code != RV_OK) return code;
  code = item->flight.writer->config.signatures_of_steps
             ? rv_signature_fits(&info->signature, info->name, item->columns, item->num_columns, err)
             : rv_signature_fits_exactly(&info->signature, info->name, item->columns, item->num_columns, err);
  if (code != RV_OK) return code;
  return rv_signature_check_names(&info->signature, info->name, item->names, item->num_columns, err);
}

/* The tables became known after the item was made: where nobody had them it kept its columns for this. Where they are lost again meanwhile, or
 * the server does not say, it goes as it is. */
static rv_code check_late(rv_writer *writer, const rv_remote_item *item, rv_error *err)
{
  if (item->num_columns == 0) return RV_OK;
  rv_tables *tables = rv_client_present_tables(writer->client);
  rv_code code = check(item, tables, err);
  rv_tables_unref(tables);
  return code;
}

/* From the writer's thread, with the item's pins on `written` still held. */
static void hand_over(rv_writer *writer, rv_remote_item *item, new_rows rows)
{
  bool known = atomic_load_explicit(&writer->tables_known, memory_order_acquire);
  if (!known) {
    rv_mutex_lock(&writer->mutex);
    known = atomic_load_explicit(&writer->tables_known, memory_order_relaxed); /* meanwhile */
    if (!known) {
      rv_stream_item_pin(&item->stream);
      rv_list_push_back(&writer->unchecked, &item->stream.link);
    }
    rv_mutex_unlock(&writer->mutex);
    if (!known) return;
  }
  rv_error err;
  rv_code code = check_late(writer, item, &err);
  if (code != RV_OK) {
    on_complete(&item->stream, code, err.message);
    return;
  }
  rv_link items;
  rv_list_init(&items);
  rv_list_push_back(&items, &item->stream.link);
  switch (rows) {
  case SMALL_ROWS: rv_insert_stream_add(writer->stream, &items); break;
  case ROWS_IN_BLOCKS: rv_insert_stream_add_gathered(writer->stream, &items); break;
  case LARGE_ROWS: rv_insert_stream_add_at_once(writer->stream, &items); break;
  }
}

void rv_writer_dispatch(rv_writer *writer)
{
  while (!rv_list_empty(&writer->waiting)) {
    rv_remote_item *item = item_of(writer->waiting.next);
    if (!is_ready(item)) break;
    rv_list_remove(&item->stream.link);
    writer->num_waiting--;
    /* The item may be gone once it is handed over: what it pins must be known by then. */
    uint32_t n = item->flight.num_chunks;
    rv_written *few[32], **chunks = n <= 32 ? few : malloc(n * sizeof(rv_written *));
    rv_error err;
    new_rows rows = SMALL_ROWS;
    rv_code code = chunks == NULL ? rv_fail_memory(&err, n * sizeof(rv_written *)) : encode(writer, item, &rows, &err);
    if (code != RV_OK) {
      for (uint32_t i = 0; i < n; i++) rv_written_unpin(item->flight.chunks[i]);
      on_complete(&item->stream, code, err.message);
    } else {
      memcpy(chunks, item->flight.chunks, n * sizeof(rv_written *));
      hand_over(writer, item, rows);
      for (uint32_t i = 0; i < n; i++) rv_written_unpin(chunks[i]);
    }
    if (chunks != few) free(chunks);
  }
}

static void complete_for_items(rv_writer *writer, size_t keep)
{
  size_t n = writer->num_waiting > keep ? writer->num_waiting - keep : 0;
  for (rv_link *link = writer->waiting.next; n > 0; link = link->next, n--) {
    rv_remote_item *item = item_of(link);
    for (uint32_t i = 0; i < item->flight.num_chunks; i++) {
      if (!item->flight.chunks[i]->complete) rv_writer_complete_chunk(item->flight.chunks[i]);
    }
  }
  rv_writer_dispatch(writer);
}

void rv_writer_complete_for_items(rv_writer *writer, size_t keep, const rv_wait *wait, rv_wait *rest)
{
  rv_patience patience;
  rv_client_begin_patience(writer->client, &patience, wait, NULL, NULL);
  complete_for_items(writer, keep);
  *rest = rv_patience_rest(&patience);
}

/* ---- once the tables are known ---- */

void rv_writer_release_unchecked(rv_writer *writer, const rv_tables *tables)
{
  rv_link items;
  rv_list_init(&items);
  for (;;) {
    rv_mutex_lock(&writer->mutex);
    rv_list_splice(&items, &writer->unchecked);
    if (rv_list_empty(&items)) /* only now may later items go straight to the stream */
      atomic_store_explicit(&writer->tables_known, true, memory_order_release);
    rv_mutex_unlock(&writer->mutex);
    rv_link *link = rv_list_pop_front(&items);
    if (link == NULL) return;
    for (; link != NULL; link = rv_list_pop_front(&items)) {
      rv_remote_item *item = item_of(link);
      rv_error err;
      rv_code code = check(item, tables, &err);
      if (code == RV_OK) {
        rv_insert_stream_add_one(writer->sender, &item->stream); /* the loop's thread is this one: it cannot complete meanwhile */
        rv_stream_item_unpin(&item->stream);
      } else {
        rv_stream_item_unpin(&item->stream);
        on_complete(&item->stream, code, err.message);
      }
    }
  }
}

/* ---- the end ---- */

static void drop(rv_link *items, bool waiting)
{
  rv_link *link;
  while ((link = rv_list_pop_front(items)) != NULL) {
    rv_remote_item *item = item_of(link);
    if (waiting) {
      for (uint32_t i = 0; i < item->flight.num_chunks; i++) rv_written_unpin(item->flight.chunks[i]);
    } else {
      rv_stream_item_unpin(&item->stream);
    }
    on_complete(&item->stream, RV_CANCELLED, "the writer was freed");
  }
}

/* What the loop's thread has of the writer. */
static void on_end(rv_task *task)
{
  rv_writer *writer = RV_CONTAINER(task, rv_writer, end);
  rv_writer_stop_fetching(writer);
  rv_insert_stream_shut(writer->sender);
  drop(&writer->unchecked, false);
  rv_mutex_lock(&writer->mutex);
  writer->at_end = true;
  rv_mutex_unlock(&writer->mutex);
  rv_gate_open(&writer->gate);
  rv_writer_unref(writer);
}

static bool is_at_end(rv_writer *writer)
{
  rv_mutex_lock(&writer->mutex);
  bool at_end = writer->at_end;
  rv_mutex_unlock(&writer->mutex);
  return at_end;
}

/* Mostly it comes at once, and then every item is known to be confirmed or given up. Nobody waits longer for a thread that is kept from it. */
static void end(rv_writer *writer)
{
  const rv_wait wait = {.timeout_ms = END_MS};
  rv_patience patience;
  rv_patience_begin(&patience, &writer->client->env, &wait, NULL, NULL); /* also of a client that is closed */
  writer->end.run = on_end;
  atomic_fetch_add_explicit(&writer->refs, 1, memory_order_relaxed);
  bool settled = atomic_load_explicit(&writer->num_flights, memory_order_acquire) == 0;
  rv_loop_post(writer->client->loop, &writer->end);
  while (!settled && !is_at_end(writer) && rv_gate_wait(&writer->gate, &patience, NULL) == RV_OK) continue;
}

void rv_writer_close_remote(rv_writer *writer)
{
  rv_link done;
  rv_list_init(&done);
  rv_mutex_lock(&writer->mutex);
  writer->closing = true; /* from here on none is done to be used again */
  rv_list_splice(&done, &writer->done_items);
  atomic_store_explicit(&writer->num_done_items, 0, memory_order_relaxed);
  writer->done_bytes = 0;
  rv_mutex_unlock(&writer->mutex);
  rv_mutex_lock(&writer->status_mutex);
  writer->stream = NULL;
  rv_mutex_unlock(&writer->status_mutex);
  drop(&writer->waiting, true);
  free_items(&done);
  free_items(&writer->free_items);
  end(writer);
}
