#include "client/add_remote.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/add_chunk.h"
#include "client/explain.h"
#include "client/insert_stream.h"
#include "store/signature.h"

enum { IDLE_STREAMS_MAX = 8, PARTS_IN_FLIGHT_MAX = 16, TAKE_BACK_MS = 100 };

/* ---- streams that nobody uses ---- */

typedef struct add_stream {
  rv_link link;
  rv_insert_stream *stream;
} add_stream;

static void stream_free(add_stream *stream)
{
  rv_insert_stream_free(stream->stream);
  free(stream);
}

static rv_code take_stream(rv_client *client, add_stream **out, rv_error *err)
{
  rv_code code = rv_client_connect(client, err);
  if (code != RV_OK) return code;
  rv_mutex_lock(&client->mutex);
  rv_link *link = rv_list_pop_front(&client->add_streams);
  if (link != NULL) client->num_add_streams--;
  rv_mutex_unlock(&client->mutex);
  if (link != NULL) {
    *out = RV_CONTAINER(link, add_stream, link);
    return RV_OK;
  }
  add_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return rv_fail_memory(err, sizeof *stream);
  rv_insert_stream_config config = {.env = &client->env, .loop = client->loop, .channel = client->channel};
  code = rv_insert_stream_new(&config, &stream->stream, err);
  if (code != RV_OK) {
    free(stream);
    return code;
  }
  *out = stream;
  return RV_OK;
}

static void give_back(rv_client *client, add_stream *stream)
{
  rv_mutex_lock(&client->mutex);
  bool keep = client->num_add_streams < IDLE_STREAMS_MAX;
  if (keep) {
    rv_list_push_front(&client->add_streams, &stream->link);
    client->num_add_streams++;
  }
  rv_mutex_unlock(&client->mutex);
  if (!keep) stream_free(stream);
}

void rv_add_streams_free(rv_client *client)
{
  for (;;) {
    rv_mutex_lock(&client->mutex);
    rv_link *link = rv_list_pop_front(&client->add_streams);
    rv_mutex_unlock(&client->mutex);
    if (link == NULL) return;
    stream_free(RV_CONTAINER(link, add_stream, link));
  }
}

/* ---- what is checked before anything is sent ---- */

static rv_code check_priorities(const rv_add *add, const rv_table_info *info, rv_error *err)
{
  bool weights = info->sampler.kind == RV_SELECTOR_PRIORITIZED || info->remover.kind == RV_SELECTOR_PRIORITIZED;
  for (size_t i = 0; add->priorities != NULL && i < add->n; i++) {
    double priority = add->priorities[i];
    if (isnan(priority) || (weights && (priority < 0 || isinf(priority))))
      return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\": priority %g of row %zu: must be %s", add->table, priority, i,
                     weights ? "finite and not negative, as the table is prioritized" : "a number");
  }
  return RV_OK;
}

static rv_code check_against(const rv_tables *tables, const rv_add *add, rv_error *err)
{
  const rv_table_info *info;
  rv_code code = rv_tables_find(tables, add->table, &info, err);
  if (code == RV_OK) code = check_priorities(add, info, err);
  if (code != RV_OK || info->signature.num_specs == 0) return code;
  rv_add_layout layout;
  code = rv_add_layout_init(&layout, add, err);
  if (code != RV_OK) return code;
  code = rv_signature_fits(&info->signature, add->table, layout.columns, (uint32_t)add->num_columns, err);
  rv_add_layout_fini(&layout);
  return code;
}

/* What is known of the tables may be old: before it says no, it is fetched anew. */
static rv_code check(rv_client *client, const rv_add *add, rv_patience *patience, rv_error *err)
{
  rv_tables *tables = rv_client_known_tables(client);
  bool fits = tables != NULL && check_against(tables, add, NULL) == RV_OK;
  rv_tables_unref(tables);
  if (fits) return RV_OK;
  rv_code code = rv_client_tables(client, patience, &tables, err);
  if (code != RV_OK) return code;
  code = check_against(tables, add, err);
  rv_tables_unref(tables);
  return code;
}

/* ---- parts in flight ---- */

/* An add as it goes; its caller's and its parts'. */
typedef struct running_add {
  rv_client *client;
  atomic_uint refs;
  const rv_add *add; /* the caller's */
  bool ask_server;   /* there is time for it */
  /* Each opened once, when its part is over: who has waited for all of them has nothing in flight. */
  rv_gate gates[PARTS_IN_FLIGHT_MAX];
  uint32_t sent, over; /* the caller's: parts; over: and waited for, in order */
  rv_mutex mutex;      /* guards what follows; the loop's thread writes it */
  size_t unconfirmed, confirmed;
  rv_code code; /* the first refusal */
  rv_error error;
} running_add;

static rv_code running_new(rv_client *client, const rv_add *add, running_add **out, rv_error *err)
{
  running_add *running = calloc(1, sizeof *running);
  if (running == NULL) return rv_fail_memory(err, sizeof *running);
  running->client = client;
  running->add = add;
  atomic_init(&running->refs, 1);
  for (uint32_t i = 0; i < PARTS_IN_FLIGHT_MAX; i++) rv_gate_init_at(&running->gates[i], client->loop, client->channel);
  rv_mutex_init(&running->mutex, RV_RANK_CLIENT, "add");
  *out = running;
  return RV_OK;
}

static void running_unref(running_add *running)
{
  if (atomic_fetch_sub_explicit(&running->refs, 1, memory_order_acq_rel) != 1) return;
  rv_mutex_fini(&running->mutex);
  free(running);
}

/* Rows that share a chunk. */
typedef struct add_part {
  running_add *running;
  rv_gate *gate;
  size_t left; /* items that are not complete; the loop's */
  struct add_item {
    rv_stream_item item;
    struct add_part *part;
  } items[];
} add_part;

static rv_gate *gate_of(running_add *running, uint32_t part)
{
  return &running->gates[part % PARTS_IN_FLIGHT_MAX];
}

static void on_item(rv_stream_item *item, rv_code code, const char *message)
{
  add_part *part = ((struct add_item *)(void *)item)->part;
  running_add *running = part->running;
  rv_gate *gate = part->gate;
  rv_stream_item_fini(item);
  bool last = --part->left == 0;
  if (last) free(part);
  rv_mutex_lock(&running->mutex);
  running->unconfirmed--;
  if (code == RV_OK)
    running->confirmed++;
  else if (running->code == RV_OK)
    running->code = rv_fail(&running->error, code, "%s", message != NULL ? message : rv_code_name(code));
  rv_mutex_unlock(&running->mutex);
  if (!last) return;
  rv_client_note_change(running->client); /* the caller may be gone */
  rv_gate_open(gate);
  running_unref(running);
}

static rv_code init_items(add_part *part, size_t first, size_t count, rv_stream_chunk *chunk, rv_random *random, rv_link *items,
                          rv_error *err)
{
  const rv_add *add = part->running->add;
  rv_add_item_maker maker;
  rv_code code = rv_add_item_maker_init(&maker, add, chunk->key, err);
  for (size_t i = 0; i < count && code == RV_OK; i++) {
    struct add_item *item = &part->items[i];
    uint64_t key = rv_random_next(random);
    const rv_wire_item *wire = rv_add_item_make(&maker, key, add->priorities != NULL ? add->priorities[first + i] : 1.0, i);
    code = rv_stream_item_init(&item->item, wire, &chunk, 1, err);
    if (code != RV_OK) break;
    if (add->keys != NULL) add->keys[first + i] = key;
    item->item.complete = on_item;
    item->part = part;
    rv_list_push_back(items, &item->item.link);
    part->left++;
  }
  rv_add_item_maker_fini(&maker);
  return code;
}

static void drop_part(add_part *part)
{
  for (size_t i = 0; i < part->left; i++) rv_stream_item_fini(&part->items[i].item);
  free(part);
}

static rv_code send_part(running_add *running, add_stream *stream, size_t first, size_t count, rv_random *random, rv_error *err)
{
  bool last = first + count == running->add->n;
  rv_stream_chunk *chunk;
  rv_code code = rv_add_chunk_new(running->add, first, count, random, rv_loop_spares(running->client->loop), &chunk, err);
  if (code != RV_OK) return code;
  add_part *part = calloc(1, sizeof *part + count * sizeof part->items[0]);
  rv_link items;
  rv_list_init(&items);
  if (part == NULL) {
    code = rv_fail_memory(err, count * sizeof part->items[0]);
  } else {
    part->running = running;
    part->gate = gate_of(running, running->sent);
    code = init_items(part, first, count, chunk, random, &items, err);
  }
  if (code == RV_OK) {
    running->sent++;
    atomic_fetch_add_explicit(&running->refs, 1, memory_order_relaxed); /* until its last item is complete */
    rv_mutex_lock(&running->mutex);
    running->unconfirmed += count;
    rv_mutex_unlock(&running->mutex);
    if (last)
      rv_insert_stream_add_asked(stream->stream, &items);
    else
      rv_insert_stream_add(stream->stream, &items);
  } else if (part != NULL) {
    drop_part(part);
  }
  rv_stream_chunk_unpin(chunk);
  rv_stream_chunk_unref(chunk);
  return code;
}

/* Waits until at most so many parts are in flight. */
static rv_code wait_for_parts(running_add *running, uint32_t most, rv_patience *patience, rv_error *err)
{
  for (; running->sent - running->over > most; running->over++) {
    rv_code code = rv_gate_wait(gate_of(running, running->over), patience, err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

static bool refused(running_add *running)
{
  rv_mutex_lock(&running->mutex);
  bool yes = running->code != RV_OK;
  rv_mutex_unlock(&running->mutex);
  return yes;
}

static rv_code send_all(running_add *running, add_stream *stream, rv_patience *patience, rv_error *err)
{
  rv_code code = RV_OK;
  rv_random random;
  rv_random_init(&random, rv_client_random(running->client));
  for (size_t first = 0, rows; first < running->add->n && code == RV_OK && !refused(running); first += rows) {
    code = rv_add_rows_of_chunk(running->add, first, &rows, err);
    if (code == RV_OK) code = wait_for_parts(running, PARTS_IN_FLIGHT_MAX - 1, patience, err);
    if (code == RV_OK) code = send_part(running, stream, first, rows, &random, err);
  }
  if (code == RV_OK && running->over < running->sent)
    rv_insert_stream_ask(stream->stream, gate_of(running, running->over), patience);
  return code == RV_OK ? wait_for_parts(running, 0, patience, err) : code;
}

static void describe(void *context, char *out, size_t capacity)
{
  running_add *running = context;
  char state[64];
  rv_client_state(running->client, state, sizeof state);
  if (strncmp(state, "connected", 9) != 0) {
    rv_describe_server(running->client, "InsertStream", out, capacity);
    return;
  }
  rv_mutex_lock(&running->mutex);
  size_t unconfirmed = running->unconfirmed;
  rv_mutex_unlock(&running->mutex);
  char reason[400];
  if (running->ask_server && rv_explain_table(running->client, running->add->table, true, reason, sizeof reason))
    snprintf(out, capacity, "%s; %zu %s not confirmed by %s", reason, unconfirmed, unconfirmed == 1 ? "row is" : "rows are",
             running->client->address);
  else
    snprintf(out, capacity, "waits for %s to confirm %zu row%s of table \"%s\"", running->client->address, unconfirmed,
             unconfirmed == 1 ? "" : "s", running->add->table);
}

/* The rest completes, as cancelled: before this returns, unless the loop's thread is kept from it. */
static void take_back(running_add *running, add_stream *stream)
{
  const rv_wait wait = {.timeout_ms = TAKE_BACK_MS};
  rv_patience patience;
  rv_patience_begin(&patience, &running->client->env, &wait, NULL, NULL); /* also of a client that is closed */
  stream_free(stream);
  wait_for_parts(running, 0, &patience, NULL);
}

/* What became of it, for its caller. `was_refused`: some row was, before others were taken back because the time ran out. */
static rv_code outcome(running_add *running, rv_code code, bool was_refused, size_t *added, rv_error *err)
{
  rv_mutex_lock(&running->mutex);
  *added = running->confirmed;
  bool is_told = code == RV_OK || (code == RV_DEADLINE_EXCEEDED && was_refused);
  if (is_told && running->code != RV_OK) code = rv_error_copy(err, &running->error);
  if (code == RV_DEADLINE_EXCEEDED && *added == running->add->n) code = RV_OK;
  rv_mutex_unlock(&running->mutex);
  return code;
}

rv_code rv_add_remote(rv_client *client, const rv_add *add, size_t *added, const rv_wait *wait, rv_error *err)
{
  *added = 0;
  rv_patience patience;
  rv_client_begin_patience(client, &patience, wait, NULL, NULL);
  if (patience.wait.timeout_ms == 0) patience.deadline_ns = patience.begun_ns + RV_ROUND_TRIP_NS;
  rv_code code = check(client, add, &patience, err);
  if (code != RV_OK) return code;
  add_stream *stream = NULL;
  code = take_stream(client, &stream, err);
  if (code != RV_OK) return code;
  running_add *running = NULL;
  code = running_new(client, add, &running, err);
  if (code != RV_OK) {
    give_back(client, stream);
    return code;
  }
  running->ask_server = rv_patience_is_long(&patience);
  patience.describe = describe;
  patience.context = running;
  code = send_all(running, stream, &patience, err);
  bool was_refused = refused(running);
  if (running->over == running->sent)
    give_back(client, stream);
  else
    take_back(running, stream);
  rv_client_note_change(client);
  code = outcome(running, code, was_refused, added, err);
  running_unref(running);
  return code;
}
