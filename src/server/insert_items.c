#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "reverie/sampler.h"
#include "server/insert_stream.h"
#include "store/trajectory_parts.h"

enum { MANY_SLICES = 1024 }; /* room for so many is not kept for the next item */

/* ---- completion ---- */

/* On any thread. */
static void on_complete(rv_waiter *waiter)
{
  rv_insert_operation *operation = RV_CONTAINER(waiter, rv_insert_operation, insert.waiter);
  rv_insert_call *call = operation->call;
  rv_insert_operation *head = atomic_load_explicit(&call->completed, memory_order_relaxed);
  do operation->next_completed = head;
  while (!atomic_compare_exchange_weak_explicit(&call->completed, &head, operation, memory_order_acq_rel, memory_order_relaxed));
  /* Until the task runs, this operation's reference keeps the call. Whoever finds the list empty comes after the task that
   * emptied it (hence acquire above), so the task may be posted again. */
  if (head == NULL) rv_loop_post(call->stream.loop, &call->completed_task);
}

static void release_operation(rv_insert_call *call, rv_insert_operation *operation)
{
  rv_trajectory *trajectory = operation->insert.trajectory;
  if (call->num_spares == RV_INSERTS_AT_ONCE) {
    rv_trajectory_unref(trajectory);
    free(operation);
    return;
  }
  operation->spare = rv_trajectory_empty(trajectory);
  operation->next_completed = call->spares;
  call->spares = operation;
  call->num_spares++;
}

static rv_insert_operation *new_operation(rv_insert_call *call)
{
  rv_insert_operation *operation = call->spares;
  if (operation == NULL) return malloc(sizeof *operation);
  call->spares = operation->next_completed;
  call->num_spares--;
  rv_trajectory_unref(operation->spare);
  return operation;
}

/* Of the operation that is used next. NULL: none. */
static rv_trajectory *take_spare_trajectory(rv_insert_call *call)
{
  if (call->spares == NULL) return NULL;
  rv_trajectory *spare = call->spares->spare;
  call->spares->spare = NULL;
  return spare;
}

static void take_out(rv_insert_call *call, rv_insert_operation *operation)
{
  rv_list_remove(&operation->link);
  call->num_pending--;
  call->pending_bytes -= operation->bytes;
}

static void on_completed_task(rv_task *task)
{
  rv_insert_call *call = RV_CONTAINER(task, rv_insert_call, completed_task);
  rv_insert_operation *newest_first = atomic_exchange_explicit(&call->completed, NULL, memory_order_acq_rel);
  rv_insert_operation *list = NULL;
  unsigned references = 0;
  while (newest_first != NULL) {
    rv_insert_operation *next = newest_first->next_completed;
    newest_first->next_completed = list;
    list = newest_first;
    newest_first = next;
  }
  for (; list != NULL; references++) {
    rv_insert_operation *operation = list;
    list = operation->next_completed;
    take_out(call, operation);
    rv_waiter *waiter = &operation->insert.waiter;
    rv_insert_answer(call, operation->insert.key, operation->sequence, waiter->code, waiter->error.message);
    release_operation(call, operation);
  }
  rv_insert_items_advance(call);
  rv_insert_call_update(call);
  while (references-- > 0) rv_server_stream_unref(&call->stream);
}

bool rv_insert_items_cancel(rv_insert_call *call)
{
  bool all = true;
  /* The newest first: if a table lets one through meanwhile, it is the oldest, and the order stays what the client sent. */
  for (rv_link *link = call->pending.prev, *before; link != &call->pending; link = before) {
    before = link->prev;
    rv_insert_operation *operation = RV_CONTAINER(link, rv_insert_operation, link);
    if (!rv_waiter_cancel(&operation->insert.waiter)) {
      if (operation->is_tables) all = false;
      continue;
    }
    take_out(call, operation);
    release_operation(call, operation);
    rv_server_stream_unref(&call->stream); /* the caller holds another */
  }
  return all;
}

void rv_insert_items_count_chunks(rv_insert_call *call)
{
  rv_map seen;
  rv_map_init(&seen, rv_entropy64(&call->stream.server->env));
  /* The newest first: a chunk goes with the last that has it. */
  for (rv_link *link = call->pending.prev; link != &call->pending; link = link->prev) {
    rv_insert_operation *operation = RV_CONTAINER(link, rv_insert_operation, link);
    const rv_trajectory *trajectory = operation->insert.trajectory;
    size_t bytes = 0;
    for (uint32_t i = 0; i < trajectory->num_chunks; i++) {
      uint64_t address = (uint64_t)(uintptr_t)trajectory->chunks[i];
      if (rv_map_get(&seen, address) != NULL) continue;
      bytes += rv_chunk_memory(trajectory->chunks[i]);
      (void)rv_map_put(&seen, address, 0); /* without memory it counts again */
    }
    if (bytes <= operation->bytes) continue;
    call->pending_bytes += bytes - operation->bytes;
    operation->bytes = bytes;
  }
  rv_map_fini(&seen);
}

/* ---- one item ---- */

static bool find_chunk(void *context, uint64_t key, rv_chunk_place *out)
{
  return rv_chunk_map_get(context, key, out);
}

static rv_code find_table(rv_insert_call *call, rv_span name, rv_error *err)
{
  if (call->last_table != NULL) {
    const char *last = rv_table_name(call->last_table);
    if (strlen(last) == name.size && memcmp(last, name.data, name.size) == 0) return RV_OK;
  }
  call->last_table = NULL;
  rv_code code = rv_caller_check(call->stream.caller, RV_RIGHT_INSERT, name, err);
  call->may_not_update = rv_caller_check(call->stream.caller, RV_RIGHT_UPDATE, name, NULL) != RV_OK;
  return code == RV_OK ? rv_server_find_table(call->stream.server, name, &call->last_table, err) : code;
}

void rv_insert_items_meet_table(rv_insert_call *call)
{
  rv_wire_item item;
  rv_error err;
  if (call->pack.count > 0)
    (void)find_table(call, call->pack.item.table, &err);
  else if (call->request.num_items > 0 && rv_wire_item_parse_in(&call->item_room, call->request.items[0], &item, &err) == RV_OK)
    (void)find_table(call, item.table, &err);
}

/* Where an item's chunks are to be looked for. */
typedef struct chunk_source {
  rv_find_chunk find;
  void *context;
} chunk_source;

/* A trajectory that could not be made is the least of an item's faults: an unknown chunk comes first, then an unknown table. */
static rv_code worst_fault(rv_insert_call *call, const rv_wire_item *item, const chunk_source *from, rv_error *err)
{
  rv_chunk_place place;
  for (uint32_t i = 0; i < item->total_slices; i++)
    if (!from->find(from->context, item->slices[i].chunk_key, &place)) return err->code;
  rv_error table;
  return find_table(call, item->table, &table) == RV_OK ? err->code : rv_error_copy(err, &table);
}

static void drop_prepared(rv_insert_call *call, rv_insert_operation *operation)
{
  take_out(call, operation);
  release_operation(call, operation);
  rv_server_stream_unref(&call->stream); /* the caller holds another */
}

/* Submits the group and answers what is complete. Of a call that has ended meanwhile no more are submitted. */
static void submit(rv_insert_call *call)
{
  rv_insert_operation *group[RV_INSERTS_AT_ONCE];
  rv_insert *inserts[RV_INSERTS_AT_ONCE];
  rv_submitted submitted[RV_INSERTS_AT_ONCE];
  size_t n = call->group_size, next = 0;
  call->group_size = 0;
  for (size_t i = 0; i < n; i++) {
    group[i] = call->group[i];
    inserts[i] = &group[i]->insert;
  }
  while (next < n && call->in_request) {
    size_t taken = rv_table_insert_many(call->group_table, inserts + next, n - next, submitted);
    for (size_t i = 0; i < taken; i++) group[next + i]->is_tables = submitted[i] == RV_SUBMIT_PENDING;
    for (size_t i = 0; i < taken; i++) {
      if (submitted[i] == RV_SUBMIT_PENDING) continue;
      rv_insert_operation *operation = group[next + i];
      rv_insert_answer(call, operation->insert.key, operation->sequence, operation->insert.waiter.code,
                       operation->insert.waiter.error.message);
      drop_prepared(call, operation);
    }
    next += taken;
  }
  for (; next < n; next++) drop_prepared(call, group[next]);
}

/* NULL: memory is out, and the item is shown by itself. */
static rv_waiting_group *place_in(rv_insert_call *call, const rv_table *table)
{
  rv_insert_place *place = call->places;
  while (place != NULL && place->table != table) place = place->next;
  if (place == NULL) {
    place = calloc(1, sizeof *place);
    if (place == NULL) return NULL;
    *place = (rv_insert_place){.next = call->places, .table = table};
    call->places = place;
  }
  return &place->group;
}

/* Makes the item an operation that joins the group. */
static rv_code prepare(rv_insert_call *call, const rv_wire_item *item, rv_trajectory *owned_trajectory, rv_error *err)
{
  if (call->group_size > 0 && call->group_table != call->last_table) submit(call);
  if (!call->in_request) { /* what was submitted has ended the call */
    rv_trajectory_unref(owned_trajectory);
    return RV_OK;
  }
  call->group_table = call->last_table;
  rv_insert_operation *operation = new_operation(call);
  if (operation == NULL) {
    rv_trajectory_unref(owned_trajectory);
    return rv_fail_memory(err, sizeof *operation);
  }
  rv_insert *insert = &operation->insert; /* but for the error's room, which only an error fills */
  insert->key = item->key;
  insert->choose_key = false;
  insert->may_not_update = call->may_not_update;
  insert->priority = item->priority;
  insert->times_sampled = item->times_sampled;
  insert->naming = item->naming;
  insert->group = place_in(call, call->last_table);
  insert->number = call->session == NULL ? 0 : item->sequence;
  if (insert->number != 0) rv_writer_session_id(call->session, insert->writer);
  insert->trajectory = owned_trajectory;
  insert->waiter.complete = on_complete;
  insert->waiter.context = NULL;
  insert->waiter.deadline_ns = INT64_MAX;
  insert->waiter.peer = call->peer;
  insert->waiter.table = NULL;
  insert->waiter.error.message[0] = '\0';
  operation->call = call;
  operation->is_tables = false;
  operation->sequence = item->sequence;
  operation->bytes = call->bytes_per_item;
  const size_t described = rv_trajectory_box_of_const(owned_trajectory)->memory; /* however little it came in */
  if (described > operation->bytes) operation->bytes = described;
  if (item == &call->pack.item && call->pack.item_bytes > operation->bytes) operation->bytes = call->pack.item_bytes;
  /* Counted before it is submitted: it may complete on another thread while the table still returns here. Until all of a group are
   * answered they stay counted, so that a call which ends among them keeps its session. */
  rv_list_push_back(&call->pending, &operation->link);
  call->num_pending++;
  call->pending_bytes += operation->bytes;
  rv_server_stream_ref(&call->stream);
  call->group[call->group_size++] = operation;
  return RV_OK;
}

/* Items of a stream mostly look alike. */
static void note_layout(rv_insert_call *call, rv_layout *layout)
{
  if (layout == call->last_layout) return;
  rv_layout_unref(call->last_layout);
  call->last_layout = rv_layout_ref(layout);
}

static rv_code make_trajectory(rv_insert_call *call, const rv_wire_item *item, const chunk_source *from, rv_trajectory **out,
                               rv_error *err)
{
  rv_layouts *layouts = rv_store_layouts(call->stream.server->store);
  if (item == &call->pack.item)
    return rv_insert_pack_trajectory(&call->pack, layouts, call->last_layout, take_spare_trajectory(call), out, err);
  return rv_wire_item_trajectory(item, layouts, call->last_layout, from->find, from->context, out, err);
}

/* RV_OK: it was prepared, or has been answered already. */
static rv_code insert_item(rv_insert_call *call, const rv_wire_item *item, const chunk_source *from, rv_error *err)
{
  rv_code code;
  const char *message;
  call->last_sequence = item->sequence;
  if (call->session != NULL && item->sequence != 0 && rv_writer_session_find(call->session, item->sequence, &code, &message)) {
    rv_insert_answer_again(call, item->key, code, message);
    return RV_OK;
  }
  rv_trajectory *trajectory;
  code = make_trajectory(call, item, from, &trajectory, err);
  if (code == RV_RESOURCE_EXHAUSTED) return code;
  if (code != RV_OK) return worst_fault(call, item, from, err);
  note_layout(call, trajectory->layout);
  code = find_table(call, item->table, err);
  if (code != RV_OK) {
    rv_trajectory_unref(trajectory);
    return code;
  }
  return prepare(call, item, trajectory, err);
}

/* ---- one message ---- */

static void on_turn_task(rv_task *task)
{
  rv_insert_call *call = RV_CONTAINER(task, rv_insert_call, turn_task);
  call->turn_posted = false;
  rv_insert_items_advance(call);
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

static void post_turn(rv_insert_call *call)
{
  if (call->turn_posted) return;
  call->turn_posted = true;
  rv_server_stream_ref(&call->stream);
  rv_loop_turn(call->stream.loop, &call->turn_task);
}

void rv_insert_items_init(rv_insert_call *call)
{
  rv_task_init(&call->turn_task, on_turn_task);
  rv_list_init(&call->pending);
  atomic_init(&call->completed, NULL);
  call->completed_task.run = on_completed_task;
}

void rv_insert_items_fini(rv_insert_call *call)
{
  rv_insert_items_drop_request(call);
  while (call->num_spares > 0) free(new_operation(call));
  while (call->places != NULL) {
    rv_insert_place *place = call->places;
    call->places = place->next;
    free(place);
  }
  rv_item_room_fini(&call->item_room);
  rv_layout_unref(call->last_layout);
}

void rv_insert_items_drop_request(rv_insert_call *call)
{
  if (!call->in_request) return;
  call->in_request = false;
  rv_insert_pack_fini(&call->pack);
  rv_insert_request_fini(&call->request);
  rv_buf_unref(call->message);
  call->message = NULL;
}

static bool is_packed(const rv_insert_call *call)
{
  return call->pack.next < call->pack.count;
}

static bool has_items(const rv_insert_call *call)
{
  return call->in_request && (is_packed(call) || call->next_item < call->request.num_items);
}

static bool too_much_waits(const rv_insert_call *call)
{
  return call->num_pending >= RV_INSERTS_PENDING_MAX ||
         (call->num_pending > 0 && call->pending_bytes >= RV_INSERT_BYTES_PENDING_MAX) || rv_insert_call_is_held(call) ||
         rv_insert_answers_unsent(call) >= RV_ANSWERS_UNSENT_MAX;
}

/* Items of a pack may take more than the message that they came in, which alone was counted before it was read. */
static bool has_its_share(const rv_insert_call *call)
{
  return is_packed(call) && call->num_pending > 0 && rv_insert_call_brings_too_much(call);
}

static bool may_go_on(const rv_insert_call *call)
{
  return has_items(call) && !too_much_waits(call) && !has_its_share(call);
}

static void take_or_refuse(rv_insert_call *call, const rv_wire_item *item, const chunk_source *from)
{
  rv_error err;
  if (insert_item(call, item, from, &err) == RV_OK) return;
  uint64_t key = item->key, sequence = item->sequence; /* a pack goes with its message when the call ends */
  submit(call);                                        /* what came before it goes in, also where this ends the call */
  rv_insert_answer(call, key, sequence, err.code, err.message);
}

/* Those of the item that was taken from the pack, from now on, in the store's account; segments of joined rows are there. */
static void count_chunks(rv_insert_call *call)
{
  rv_memory *memory = rv_store_memory(call->stream.server->store);
  for (size_t i = 0; i < call->pack.num_chunks; i++)
    if (!call->pack.of_chunk[i].is_joined) rv_chunk_count_new(call->pack.chunks[i], memory);
}

static void end_with(rv_insert_call *call, const rv_error *err)
{
  submit(call);
  rv_insert_call_end(call, err->code, err->message);
}

/* The pack's last item was taken: the rest of the message follows. */
static void finish_pack(rv_insert_call *call)
{
  rv_error err;
  rv_insert_pack_fini(&call->pack);
  if (call->in_request && rv_insert_call_take_chunks(call, &err) != RV_OK) end_with(call, &err);
}

/* The next item of the message joins the group, or is answered. */
static void take_item(rv_insert_call *call)
{
  rv_wire_item item;
  rv_error err;
  bool packed = is_packed(call);
  rv_code code = packed ? rv_insert_pack_next(&call->pack, &err)
                        : rv_wire_item_parse_in(&call->item_room, call->request.items[call->next_item++], &item, &err);
  if (code != RV_OK) {
    end_with(call, &err);
    return;
  }
  if (packed) {
    count_chunks(call);
    take_or_refuse(call, &call->pack.item, &(chunk_source){rv_insert_pack_find, &call->pack});
    if (!is_packed(call)) finish_pack(call);
    return;
  }
  take_or_refuse(call, &item, &(chunk_source){find_chunk, &call->chunks});
  if (call->item_room.num_slices > MANY_SLICES || call->item_room.num_columns > MANY_SLICES) rv_item_room_fini(&call->item_room);
}

static void finish_request(rv_insert_call *call)
{
  rv_error err;
  rv_code code = rv_chunk_map_keep(&call->chunks, call->request.keep_chunk_keys, call->request.num_keep_chunk_keys, &err);
  rv_insert_items_drop_request(call);
  if (code == RV_OK) code = rv_insert_call_count(call, &err);
  if (code != RV_OK) rv_insert_call_end(call, err.code, err.message);
}

static void count_packed(rv_insert_call *call)
{
  if (is_packed(call) && call->num_pending > 0) rv_insert_call_count(call, NULL);
}

void rv_insert_items_advance(rv_insert_call *call)
{
  if (call->turn_posted) return; /* it goes on then: others come first */
  rv_server_stream_ref(&call->stream);
  int turn = RV_INSERTS_TURN;
  count_packed(call);
  while (turn > 0 && may_go_on(call)) {
    while (turn-- > 0 && has_items(call) && call->group_size < RV_INSERTS_AT_ONCE && !too_much_waits(call)) take_item(call);
    submit(call); /* what it waited for may be done now */
    count_packed(call);
  }
  if (turn <= 0 && may_go_on(call))
    post_turn(call);
  else if (call->in_request && !has_items(call))
    finish_request(call);
  rv_server_stream_unref(&call->stream);
}
