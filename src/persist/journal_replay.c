#include "persist/journal_replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "persist/joined_episodes.h"
#include "store/chunk_parts.h"
#include "store/cold.h"
#include "store/memory.h"
#include "store/replay.h"
#include "wire/chunk_forms.h"
#include "wire/messages.h"

enum { SMALL_BYTES = 2 * RV_JOINED_CHUNK_BYTES }; /* of a chunk, which may be joined; larger ones are only read */

typedef struct replayed_table {
  rv_table *table;
  bool begun;     /* its snapshot was seen, or there is none */
  int64_t before; /* changes until then */
} replayed_table;

struct rv_journal_replay {
  rv_store *store;
  uint64_t snapshot;
  rv_journal_writers *writers;
  replayed_table *tables; /* in the store's order */
  uint32_t *by_index;     /* of the segment's TABLE records: number in `tables` */
  size_t num_indices;
  rv_map by_key; /* chunk key to its number in `chunks` */
  rv_chunk_place *chunks;
  size_t num_chunks, chunks_capacity;
  rv_chunk_forms forms;
  rv_joined_episodes joined;
  rv_table *last_table; /* that an item was inserted into; NULL: none was yet */
  bool lossy;
  rv_replay_counts counts;
};

rv_code rv_journal_replay_new(rv_store *store, uint64_t snapshot, const bool *held, rv_journal_writers *writers,
                              rv_journal_replay **out, rv_error *err)
{
  size_t n = rv_store_num_tables(store);
  rv_journal_replay *replay = calloc(1, sizeof *replay);
  replayed_table *tables = calloc(n, sizeof *tables);
  if (replay == NULL || tables == NULL) {
    free(replay);
    free(tables);
    return rv_fail_memory(err, sizeof *replay);
  }
  replay->store = store;
  replay->snapshot = snapshot;
  replay->writers = writers;
  replay->tables = tables;
  for (size_t i = 0; i < n; i++)
    tables[i] = (replayed_table){.table = rv_store_table(store, i), .begun = held == NULL || !held[i]};
  rv_map_init(&replay->by_key, rv_entropy64(rv_store_env(store)));
  rv_joined_episodes_init(&replay->joined, rv_store_memory(store), rv_entropy64(rv_store_env(store)));
  *out = replay;
  return RV_OK;
}

static void forget_chunks(rv_journal_replay *replay)
{
  for (size_t i = 0; i < replay->num_chunks; i++) rv_chunk_end_keeping(replay->chunks[i].chunk);
  replay->num_chunks = 0;
  rv_map_clear(&replay->by_key);
}

void rv_journal_replay_free(rv_journal_replay *replay)
{
  if (replay == NULL) return;
  forget_chunks(replay);
  rv_map_fini(&replay->by_key);
  rv_chunk_forms_fini(&replay->forms);
  rv_joined_episodes_fini(&replay->joined);
  free(replay->chunks);
  free(replay->by_index);
  free(replay->tables);
  free(replay);
}

const rv_replay_counts *rv_journal_replay_get_counts(const rv_journal_replay *replay)
{
  return &replay->counts;
}

static rv_code no_record(rv_error *err, const char *what)
{
  return rv_fail(err, RV_DATA_LOSS, "%s", what);
}

/* ---- tables ---- */

static rv_code use_table(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  uint64_t index;
  rv_table *table;
  if (!rv_take_varint(&body, &index) || index >= RV_JOURNAL_TABLES_MAX) return no_record(err, "a table without its number");
  rv_error unknown;
  if (rv_store_find(replay->store, (const char *)body.data, body.size, &table, &unknown) != RV_OK)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the journal has a table that is not configured: %s; add such a table",
                   unknown.message);
  if (index >= replay->num_indices) {
    uint32_t *grown = realloc(replay->by_index, (index + 1) * sizeof *grown);
    if (grown == NULL) return rv_fail_memory(err, (index + 1) * sizeof *grown);
    for (size_t i = replay->num_indices; i <= index; i++) grown[i] = UINT32_MAX;
    replay->by_index = grown;
    replay->num_indices = index + 1;
  }
  for (uint32_t i = 0; i < rv_store_num_tables(replay->store); i++)
    if (replay->tables[i].table == table) replay->by_index[index] = i;
  return RV_OK;
}

void rv_journal_replay_gap(rv_journal_replay *replay)
{
  forget_chunks(replay);
}

void rv_journal_replay_begin_segment(rv_journal_replay *replay)
{
  replay->num_indices = 0;
}

static rv_code find_table(rv_journal_replay *replay, rv_span *body, replayed_table **out, rv_error *err)
{
  *out = NULL;
  uint64_t index;
  if (!rv_take_varint(body, &index) || index >= replay->num_indices || replay->by_index[index] == UINT32_MAX)
    return no_record(err, "a change of a table that was not named");
  *out = &replay->tables[replay->by_index[index]];
  return RV_OK;
}

/* As the header of its group counts them; `body` is behind its table. */
static int64_t changes_in(uint8_t kind, rv_span body)
{
  switch (kind) {
  case RV_RECORD_DELETE: return (int64_t)(body.size / 8);
  case RV_RECORD_UPDATE: return (int64_t)(body.size / 16);
  case RV_RECORD_SAMPLE: return (int64_t)(body.size / 12);
  default: return 1;
  }
}

/* *out NULL: what changed is not to be made again, because the checkpoint has it, or because nobody knows whether it does, or of which table
 * it is. */
static rv_code take_table(rv_journal_replay *replay, uint8_t kind, rv_span *body, replayed_table **out, rv_error *err)
{
  rv_code code = find_table(replay, body, out, err);
  if (code == RV_OK && (*out)->begun) return RV_OK;
  int64_t changes = changes_in(kind, *body);
  if (code == RV_OK) {
    (*out)->before += changes;
  } else if (replay->lossy) {
    replay->counts.unnamed += changes;
    code = RV_OK;
  }
  *out = NULL;
  return code;
}

/* ---- writers ---- */

static bool take_id(rv_span *body, uint64_t id[2])
{
  return rv_take_fixed64(body, &id[0]) && rv_take_fixed64(body, &id[1]);
}

/* One that so much cannot be remembered of is lost, and will be told. */
static rv_code lose_if_full(rv_journal_writer *writer)
{
  if (!rv_done_set_is_full(&writer->done)) return RV_RESOURCE_EXHAUSTED;
  rv_journal_writer_lose(writer, true);
  return RV_OK;
}

static rv_code note_done(rv_journal_replay *replay, const uint64_t id[2], uint64_t number, rv_error *err)
{
  rv_journal_writer *writer = rv_journal_writers_get(replay->writers, id);
  if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
  if (writer->lost || rv_done_set_add(&writer->done, number, err) == RV_OK) return RV_OK;
  return lose_if_full(writer);
}

/* All that is done of it so far: in the place of what was known. */
static rv_code use_writer(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  uint64_t id[2], first, last;
  if (!take_id(&body, id)) return no_record(err, "a writer without its id");
  rv_journal_writer *writer = rv_journal_writers_get(replay->writers, id);
  if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
  rv_done_set_fini(&writer->done);
  writer->lost = writer->over = false;
  while (body.size > 0) {
    if (!rv_take_varint(&body, &first) || !rv_take_varint(&body, &last)) return no_record(err, "a writer's numbers that are cut");
    rv_code code = rv_done_set_append(&writer->done, first, last, err);
    if (code == RV_RESOURCE_EXHAUSTED) return lose_if_full(writer);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

static rv_code use_done(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  uint64_t id[2], number;
  if (!take_id(&body, id) || !rv_take_varint(&body, &number)) return no_record(err, "a writer's number that is none");
  return note_done(replay, id, number, err);
}

/* ---- chunks ---- */

static rv_code keep_chunk(rv_journal_replay *replay, const rv_chunk_place *place, rv_error *err)
{
  const uint32_t *number = rv_map_get(&replay->by_key, place->key);
  if (number != NULL) {
    rv_chunk_end_keeping(replay->chunks[*number].chunk);
    rv_chunk_keep(place->chunk);
    replay->chunks[*number] = *place;
    return RV_OK;
  }
  if (replay->num_chunks == replay->chunks_capacity) {
    size_t capacity = 2 * replay->chunks_capacity + 256;
    rv_chunk_place *grown = realloc(replay->chunks, capacity * sizeof *grown);
    if (grown != NULL) {
      replay->chunks = grown;
      replay->chunks_capacity = capacity;
    }
  }
  if (replay->num_chunks == replay->chunks_capacity ||
      rv_map_put(&replay->by_key, place->key, (uint32_t)replay->num_chunks) != RV_OK)
    return rv_fail_memory(err, sizeof *place);
  rv_chunk_keep(place->chunk);
  replay->chunks[replay->num_chunks++] = *place;
  return RV_OK;
}

static rv_code read_small(rv_journal_replay *replay, rv_span body, rv_chunk_place *out, rv_error *err)
{
  rv_chunk_meta meta;
  rv_span rest;
  const bool may_join = replay->last_table != NULL && rv_chunk_head_read(body, &meta, &rest);
  rv_joined *joined = may_join ? rv_joined_episodes_get(&replay->joined, meta.episode_id, replay->last_table) : NULL;
  return rv_chunk_parse_alike(&replay->forms, joined, body, out, err);
}

/* Small ones are joined, where they can be; others may have to move to a spill's file. */
static rv_code read_chunk(rv_journal_replay *replay, rv_span body, rv_chunk_place *out, rv_error *err)
{
  rv_chunk *chunk = NULL;
  if (body.size <= SMALL_BYTES) {
    rv_code code = read_small(replay, body, out, err);
    if (code != RV_OK || out->is_joined || body.size < RV_COLD_LEAST) return code;
    rv_chunk_unref(out->chunk);
  }
  rv_code code = rv_chunk_parse_apart(body, &chunk, err);
  if (code == RV_OK) *out = rv_chunk_place_whole(chunk);
  return code;
}

static rv_code use_chunk(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  rv_chunk_place place;
  rv_code code = read_chunk(replay, body, &place, err);
  if (code != RV_OK) return code;
  if (!place.is_joined) rv_chunk_attach_cache(place.chunk, rv_store_decode_cache(replay->store));
  code = keep_chunk(replay, &place, err);
  rv_chunk_unref(place.chunk);
  return code;
}

static bool find_chunk(void *context, uint64_t key, rv_chunk_place *out)
{
  const rv_journal_replay *replay = context;
  const uint32_t *number = rv_map_get(&replay->by_key, key);
  if (number != NULL) *out = replay->chunks[*number];
  return number != NULL;
}

/* ---- changes ---- */

static rv_code insert(rv_journal_replay *replay, rv_table *table, const rv_wire_item *item, rv_error *err)
{
  rv_restored_item restored = {
      .key = item->key, .priority = item->priority, .times_sampled = item->times_sampled, .inserted_at_ns = item->inserted_at_ns};
  if (replay->lossy) rv_table_replay_delete(table, item->key); /* that one with its key went is lost: its rows are others */
  rv_memory_begin_claiming(rv_store_memory(replay->store));
  rv_code code =
      rv_wire_item_trajectory(item, rv_store_layouts(replay->store), NULL, find_chunk, replay, &restored.trajectory, err);
  rv_memory_end_claiming(rv_store_memory(replay->store));
  if (code != RV_OK && code != RV_RESOURCE_EXHAUSTED && replay->lossy) {
    replay->counts.lost_items++;
    return RV_OK;
  }
  if (code != RV_OK) return code;
  replay->last_table = table;
  code = rv_table_replay_insert(table, &restored, item->naming, err);
  rv_trajectory_unref(restored.trajectory);
  replay->counts.changes++;
  replay->counts.inserts++;
  return code;
}

static rv_code use_insert(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  replayed_table *table;
  uint64_t id[2], number;
  rv_code code = take_table(replay, RV_RECORD_INSERT, &body, &table, err);
  if (code != RV_OK) return code;
  if (!take_id(&body, id) || !rv_take_varint(&body, &number)) return no_record(err, "an insert without its writer");
  if (number != 0) code = note_done(replay, id, number, err);
  if (code != RV_OK || table == NULL) return code;
  rv_wire_item item;
  code = rv_wire_item_parse(body, &item, err);
  if (code != RV_OK && code != RV_RESOURCE_EXHAUSTED && replay->lossy) {
    replay->counts.lost_items++;
    return RV_OK;
  }
  if (code != RV_OK) return code;
  code = insert(replay, table->table, &item, err);
  if (code != RV_OK) rv_error_prefix(err, "item %" PRIu64, item.key);
  rv_wire_item_fini(&item);
  return code;
}

static rv_code use_keys(rv_journal_replay *replay, uint8_t kind, rv_span body, rv_error *err)
{
  replayed_table *table;
  rv_code code = take_table(replay, kind, &body, &table, err);
  while (code == RV_OK && table != NULL && body.size > 0) {
    uint64_t key, bits = 0;
    uint32_t times = 0;
    double priority;
    bool fine = rv_take_fixed64(&body, &key);
    if (kind == RV_RECORD_UPDATE) fine = fine && rv_take_fixed64(&body, &bits);
    if (kind == RV_RECORD_SAMPLE) fine = fine && rv_take_fixed32(&body, &times);
    if (!fine || times > INT32_MAX) return no_record(err, "keys that are cut");
    memcpy(&priority, &bits, sizeof priority);
    if (kind == RV_RECORD_DELETE) code = rv_table_replay_delete(table->table, key);
    if (kind == RV_RECORD_UPDATE) code = rv_table_replay_update(table->table, key, priority, err);
    if (kind == RV_RECORD_SAMPLE) code = rv_table_replay_sample(table->table, key, (int32_t)times);
    *(code == RV_NOT_FOUND ? &replay->counts.unknown : &replay->counts.changes) += 1;
    if (code == RV_NOT_FOUND) code = RV_OK;
  }
  return code;
}

/* One for bounds that are lost, perhaps. */
static rv_code leave_out_limiter(rv_journal_replay *replay, rv_table *table, const rv_error *err)
{
  replay->counts.unfit++;
  rv_log(rv_store_env(replay->store), RV_LOG_ERROR,
         "journal: table \"%s\": a rate limiter that was set does not fit without what is missing: %s", rv_table_name(table),
         err->message);
  return RV_OK;
}

/* Such as a version before this one took. */
static rv_code keep_limiter(const rv_journal_replay *replay, rv_table *table, const rv_error *err)
{
  rv_log(rv_store_env(replay->store), RV_LOG_WARNING,
         "journal: table \"%s\": a rate limiter that was set is impossible, and the one before it stays: %s",
         rv_table_name(table), err->message);
  return RV_OK;
}

static rv_code use_limiter(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  replayed_table *table;
  uint64_t bits[4];
  double numbers[3];
  rv_code code = take_table(replay, RV_RECORD_LIMITER, &body, &table, err);
  if (code != RV_OK || table == NULL) return code;
  for (size_t i = 0; i < 4; i++)
    if (!rv_take_fixed64(&body, &bits[i])) return no_record(err, "a limiter that is cut");
  memcpy(numbers, bits, sizeof numbers);
  const rv_rate_limiter_config limiter = {
      .samples_per_insert = numbers[0], .min_diff = numbers[1], .max_diff = numbers[2], .min_size_to_sample = (int64_t)bits[3]};
  rv_error refused;
  code = rv_table_set_rate_limiter(table->table, &limiter, &refused);
  if (code == RV_INVALID_ARGUMENT)
    return replay->lossy ? leave_out_limiter(replay, table->table, &refused) : keep_limiter(replay, table->table, &refused);
  if (code != RV_OK) return rv_error_copy(err, &refused);
  replay->counts.changes++;
  return RV_OK;
}

static rv_code use_bounds(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  replayed_table *table;
  uint64_t max_size;
  uint32_t times;
  rv_code code = take_table(replay, RV_RECORD_BOUNDS, &body, &table, err);
  if (code != RV_OK || table == NULL) return code;
  if (!rv_take_fixed64(&body, &max_size) || !rv_take_fixed32(&body, &times) || max_size < 1 || max_size > INT32_MAX)
    return no_record(err, "bounds that are none");
  replay->counts.changes++;
  rv_table_replay_bounds(table->table, (int64_t)max_size, (int32_t)times);
  return RV_OK;
}

static rv_code use_max_bytes(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  replayed_table *table;
  uint64_t max_bytes;
  rv_code code = take_table(replay, RV_RECORD_TABLE_BYTES, &body, &table, err);
  if (code != RV_OK || table == NULL) return code;
  if (!rv_take_fixed64(&body, &max_bytes) || max_bytes > INT64_MAX) return no_record(err, "a bound in bytes that is none");
  replay->counts.changes++;
  rv_table_replay_max_bytes(table->table, (int64_t)max_bytes);
  return RV_OK;
}

static rv_code use_reset(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  replayed_table *table;
  rv_code code = take_table(replay, RV_RECORD_RESET, &body, &table, err);
  if (code != RV_OK || table == NULL) return code;
  replay->counts.changes++;
  return rv_table_reset(table->table, err);
}

static rv_code use_snapshot(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  replayed_table *table;
  uint64_t number;
  rv_code code = find_table(replay, &body, &table, err);
  if (code == RV_DATA_LOSS && replay->lossy) return RV_OK;
  if (code != RV_OK) return code;
  if (!rv_take_fixed64(&body, &number)) return no_record(err, "a snapshot without its number");
  if (number == replay->snapshot) table->begun = true;
  return RV_OK;
}

/* Whether its session is over or too much was done in it: numbers without a session that began say nothing. */
static rv_code forget_writer(rv_journal_replay *replay, rv_span body, rv_error *err)
{
  uint64_t id[2];
  if (!take_id(&body, id)) return no_record(err, "a writer without its id");
  rv_journal_writer *writer = rv_journal_writers_get(replay->writers, id);
  if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
  rv_journal_writer_lose(writer, true);
  return RV_OK;
}

static rv_code use_record(rv_journal_replay *replay, uint8_t kind, rv_span body, rv_error *err)
{
  switch (kind) {
  case RV_RECORD_TABLE: return use_table(replay, body, err);
  case RV_RECORD_WRITER: return use_writer(replay, body, err);
  case RV_RECORD_CHUNK: return use_chunk(replay, body, err);
  case RV_RECORD_INSERT: return use_insert(replay, body, err);
  case RV_RECORD_DELETE:
  case RV_RECORD_UPDATE:
  case RV_RECORD_SAMPLE: return use_keys(replay, kind, body, err);
  case RV_RECORD_RESET: return use_reset(replay, body, err);
  case RV_RECORD_LIMITER: return use_limiter(replay, body, err);
  case RV_RECORD_BOUNDS: return use_bounds(replay, body, err);
  case RV_RECORD_TABLE_BYTES: return use_max_bytes(replay, body, err);
  case RV_RECORD_DONE: return use_done(replay, body, err);
  case RV_RECORD_SNAPSHOT: return use_snapshot(replay, body, err);
  case RV_RECORD_FORGET_CHUNKS: forget_chunks(replay); return RV_OK;
  case RV_RECORD_FORGET_WRITER: return forget_writer(replay, body, err);
  default: return rv_fail(err, RV_DATA_LOSS, "a record of kind %d, which this version does not know", (int)kind);
  }
}

rv_code rv_journal_replay_group(rv_journal_replay *replay, rv_span records, bool lossy, rv_error *err)
{
  uint8_t kind;
  rv_span body;
  bool broken = false;
  replay->lossy = lossy;
  replay->counts.groups++;
  while (rv_journal_record_next(&records, &kind, &body, &broken)) {
    rv_code code = use_record(replay, kind, body, err);
    if (code == RV_DATA_LOSS && lossy) { /* it needs something that is missing */
      replay->counts.unknown++;
      code = RV_OK;
    }
    if (code != RV_OK) return code;
  }
  return broken ? no_record(err, "a record that is longer than its group") : RV_OK;
}

int64_t rv_journal_replay_lost(const rv_journal_replay *replay, bool *at_most)
{
  int64_t lost = replay->counts.lost_items + replay->counts.unknown + replay->counts.unnamed + replay->counts.unfit;
  *at_most = false;
  for (size_t i = 0; i < rv_store_num_tables(replay->store); i++) {
    if (replay->tables[i].begun) continue;
    *at_most |= replay->tables[i].before > 0;
    lost += replay->tables[i].before;
  }
  return lost;
}

/* Where its snapshot was, and so which of its changes the checkpoint has, is not known. */
static rv_code miss_snapshot(rv_journal_replay *replay, const replayed_table *table, bool salvage, rv_error *err)
{
  const char *name = rv_table_name(table->table);
  replay->counts.not_begun++;
  if (!salvage)
    return rv_fail(
        err, RV_DATA_LOSS,
        "where the changes of table \"%s\" go on from the checkpoint was not found, so that they would be lost; put the "
        "files back as they were, or start once with salvage (journal_salvage=1) to go on without them",
        name);
  rv_log(
      rv_store_env(replay->store), RV_LOG_ERROR,
      "journal: where the changes of table \"%s\" go on from the checkpoint was not found: it is as the checkpoint has it, and "
      "what happened in it afterwards is lost",
      name);
  return RV_OK;
}

rv_code rv_journal_replay_end(rv_journal_replay *replay, bool salvage, rv_error *err)
{
  rv_journal_writers_drop_over(replay->writers); /* whoever comes back begins a session */
  for (size_t i = 0; i < rv_store_num_tables(replay->store); i++) {
    char corrected[256];
    if (!replay->tables[i].begun) {
      rv_code code = miss_snapshot(replay, &replay->tables[i], salvage, err);
      if (code != RV_OK) return code;
    }
    rv_table_replay_end(replay->tables[i].table, corrected, sizeof corrected);
    if (corrected[0] != '\0')
      rv_log(rv_store_env(replay->store), RV_LOG_WARNING, "journal: table \"%s\": %s; the counters were corrected",
             rv_table_name(replay->tables[i].table), corrected);
  }
  return RV_OK;
}
