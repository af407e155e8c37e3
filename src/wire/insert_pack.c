#include "wire/insert_pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/cold.h"
#include "wire/parse.h"

enum { FETCHED_TOGETHER = 8 /* places: no cache has what is around their rows, nor where that is */ };

/* What the message has, before any of it is read. */
typedef struct parts {
  rv_span item, keys, priorities, rest, places;
  size_t num_chunks, num_sizes, num_starts;
  uint64_t placed[RV_PACK_CHUNKS_MAX],
      rows_at[RV_PACK_CHUNKS_MAX]; /* where there are as many as chunks; 0: the rows come with the chunk */
} parts;

/* Counts more than it has room for. */
static void take_numbers(rv_reader *reader, const rv_field *field, uint64_t numbers[RV_PACK_CHUNKS_MAX], size_t *count)
{
  size_t state = 0;
  uint64_t number;
  while (rv_field_next_value(reader, field, RV_WIRE_VARINT, &state, &number)) {
    if (*count < RV_PACK_CHUNKS_MAX) numbers[*count] = number;
    ++*count;
  }
}

static bool find_parts(rv_span message, parts *out)
{
  *out = (parts){0};
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, RV_PACK_ITEM, RV_WIRE_BYTES)) out->item = field.bytes;
    if (rv_field_is(&field, RV_PACK_CHUNKS, RV_WIRE_BYTES)) out->num_chunks++;
    if (rv_field_is(&field, RV_PACK_KEYS, RV_WIRE_BYTES)) out->keys = field.bytes;
    if (rv_field_is(&field, RV_PACK_PRIORITIES, RV_WIRE_BYTES)) out->priorities = field.bytes;
    if (rv_field_is(&field, RV_PACK_REST, RV_WIRE_BYTES)) out->rest = field.bytes;
    if (rv_field_is(&field, RV_PACK_PLACES, RV_WIRE_BYTES)) out->places = field.bytes;
    if (field.number == RV_PACK_PLACED) take_numbers(&reader, &field, out->placed, &out->num_sizes);
    if (field.number == RV_PACK_ROWS_AT) take_numbers(&reader, &field, out->rows_at, &out->num_starts);
  }
  return !reader.broken;
}

/* Of one that may have to move the form has a copy of its own: it is made of that, as its sender may change the message meanwhile. */
static rv_code read_whole(rv_insert_pack *pack, size_t i, rv_span message, rv_error *err)
{
  rv_chunk *chunk;
  rv_code code = rv_chunk_parse(NULL, message, true, &chunk, err);
  if (code != RV_OK) return code;
  pack->of_chunk[i].key = rv_chunk_get_meta(chunk)->key;
  code = rv_chunk_form_init(&pack->forms[i], chunk, err);
  if (code != RV_OK || !pack->apart || message.size < RV_COLD_LEAST) {
    pack->chunks[i] = chunk;
    return code;
  }
  rv_span own;
  (void)rv_chunk_wire(chunk, &own.data, &own.size);
  code = rv_chunk_parse_apart(own, &pack->chunks[i], err);
  rv_chunk_unref(chunk);
  return code;
}

static const uint8_t *take_place(rv_insert_pack *pack)
{
  const uint8_t *place = pack->places.data;
  pack->places = (rv_span){place + RV_ROWS_PLACE_BYTES, pack->places.size - RV_ROWS_PLACE_BYTES};
  return place;
}

/* Behind each so many items those of the next ones, number i being the one that was taken last. */
static void fetch_places(const rv_insert_pack *pack, size_t i)
{
  if (pack->num_placed == 0 || pack->rows->fetch == NULL) return;
  const size_t items = (FETCHED_TOGETHER + pack->num_placed - 1) / pack->num_placed;
  const uint8_t *place = pack->places.data, *end = place + pack->places.size;
  if (i % items != 0) return;
  for (size_t item = 0; item < items && place < end; item++)
    for (size_t c = 0; c < pack->num_chunks; c++) {
      if (pack->placed[c].row_bytes == 0) continue;
      pack->rows->fetch(pack->rows->context, place, pack->placed[c].row_bytes);
      place += RV_ROWS_PLACE_BYTES;
    }
}

static rv_code read_chunk(rv_insert_pack *pack, const parts *found, size_t i, rv_span message, rv_error *err)
{
  if (found->placed[i] == 0) return read_whole(pack, i, message, err);
  pack->num_placed++;
  rv_code code = rv_placed_form_begin(&pack->placed[i], message, found->rows_at[i], found->placed[i], pack->rows,
                                      take_place(pack), &pack->chunks[i], err);
  if (code == RV_OK) pack->of_chunk[i].key = rv_chunk_get_meta(pack->chunks[i])->key;
  return code;
}

/* What is sent of the first item alone is kept of each: it is bounded by chunk and tensor. */
static rv_code count_tensors(rv_insert_pack *pack, const rv_chunk *chunk, rv_error *err)
{
  pack->num_tensors += rv_chunk_num_columns(chunk);
  if (pack->num_tensors <= RV_PACK_CHUNKS_MAX) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "a pack of items whose chunks have more than %d tensors together: send such items by themselves",
                 RV_PACK_CHUNKS_MAX);
}

static rv_code read_chunks(rv_insert_pack *pack, const parts *found, rv_span message, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  size_t i = 0; /* as many as were counted, whoever changes the message meanwhile */
  while (code == RV_OK && i < pack->num_chunks && rv_reader_next(&reader, &field)) {
    if (!rv_field_is(&field, RV_PACK_CHUNKS, RV_WIRE_BYTES)) continue;
    code = read_chunk(pack, found, i, field.bytes, err);
    if (code == RV_OK) code = count_tensors(pack, pack->chunks[i++], err);
  }
  return code == RV_OK && i < pack->num_chunks ? rv_fail_parse(err, "PackedItems") : code;
}

/* Which of the chunks each slice is of: in all items the same. */
static rv_code place_slices(rv_insert_pack *pack, rv_error *err)
{
  for (uint32_t i = 0; i < pack->item.total_slices; i++) {
    uint64_t key = pack->item.slices[i].chunk_key;
    rv_chunk_place place;
    if (!rv_insert_pack_find(pack, key, &place))
      return rv_fail(err, RV_INVALID_ARGUMENT, "the first item of a pack refers to chunk %llu, which is not in the pack",
                     (unsigned long long)key);
    pack->chunk_of[i] = (uint32_t)pack->found;
  }
  return RV_OK;
}

/* Of the first item all are taken before anybody looks at how much that is. */
static bool names_twice(rv_span places, size_t count)
{
  for (size_t i = 0; i < count; i++)
    for (size_t before = 0; before < i; before++)
      if (memcmp(places.data + i * RV_ROWS_PLACE_BYTES, places.data + before * RV_ROWS_PLACE_BYTES, RV_ROWS_PLACE_BYTES) == 0)
        return true;
  return false;
}

/* Of every item that is said to have such. */
static rv_code check_places(const parts *found, const rv_placed_rows *rows, rv_error *err)
{
  size_t placed = 0, items = 1 + found->keys.size / sizeof(uint64_t);
  bool one_each = found->num_sizes == found->num_starts && (found->num_sizes == 0 || found->num_sizes == found->num_chunks);
  for (size_t i = 0; i < found->num_chunks; i++) placed += found->placed[i] != 0;
  bool complete =
      one_each && found->places.size % RV_ROWS_PLACE_BYTES == 0 && found->places.size / RV_ROWS_PLACE_BYTES == placed * items;
  if (!complete)
    return rv_fail(
        err, RV_INVALID_ARGUMENT,
        "a pack of %zu items of %zu chunks each, with %zu sizes of rows, %zu starts and %zu bytes of places, which do not belong "
        "together",
        items, found->num_chunks, found->num_sizes, found->num_starts, found->places.size);
  if (names_twice(found->places, placed))
    return rv_fail(err, RV_INVALID_ARGUMENT, "the first item of a pack has the rows of one place twice");
  if (placed > 0 && rows == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a pack of items whose rows are named by their place, where none has a place");
  return RV_OK;
}

static rv_code make_room(rv_insert_pack *pack, size_t num_chunks, rv_error *err)
{
  size_t each = sizeof *pack->forms + sizeof *pack->placed + sizeof *pack->of_chunk + sizeof(rv_chunk *) + sizeof(int32_t);
  size_t bytes = num_chunks * each + pack->item.total_slices * sizeof(uint32_t);
  pack->forms = calloc(1, bytes > 0 ? bytes : 1);
  if (pack->forms == NULL) return rv_fail_memory(err, bytes);
  pack->placed = (rv_placed_form *)(void *)(pack->forms + num_chunks);
  pack->of_chunk = (struct rv_pack_chunk *)(void *)(pack->placed + num_chunks);
  pack->chunks = (rv_chunk **)(void *)(pack->of_chunk + num_chunks);
  pack->chunk_of = (uint32_t *)(void *)(pack->chunks + num_chunks);
  pack->rows_on = (int32_t *)(void *)(pack->chunk_of + pack->item.total_slices);
  pack->num_chunks = num_chunks;
  return RV_OK;
}

static rv_code begin(rv_insert_pack *pack, rv_span message, rv_error *err)
{
  parts found;
  if (!find_parts(message, &found)) return rv_fail_parse(err, "PackedItems");
  if (found.keys.size % sizeof(uint64_t) != 0 || found.keys.size != found.priorities.size)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a pack of items with %zu bytes of keys and %zu of priorities; each has 8 an item",
                   found.keys.size, found.priorities.size);
  if (found.num_chunks > RV_PACK_CHUNKS_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a pack of items with %zu chunks each; at most %d are possible", found.num_chunks,
                   RV_PACK_CHUNKS_MAX);
  rv_code code = check_places(&found, pack->rows, err);
  if (code != RV_OK) return code;
  code = rv_wire_item_parse_in(&pack->room, found.item, &pack->item, err);
  if (code != RV_OK) return code;
  if (pack->item.total_slices > RV_PACK_SLICES_MAX || pack->item.num_columns > RV_PACK_SLICES_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "a pack of items with %u columns and %u slices each; at most %d of either are possible: send such items by "
                   "themselves",
                   pack->item.num_columns, pack->item.total_slices, RV_PACK_SLICES_MAX);
  pack->first_sequence = pack->item.sequence;
  pack->keys = found.keys.data;
  pack->priorities = found.priorities.data;
  pack->rest = found.rest;
  pack->places = found.places;
  code = make_room(pack, found.num_chunks, err);
  if (code == RV_OK) code = read_chunks(pack, &found, message, err);
  if (code == RV_OK) code = place_slices(pack, err);
  pack->item_bytes = pack->item.total_slices * sizeof(rv_slice) + pack->item.num_columns * sizeof(rv_trajectory_column);
  for (size_t i = 0; i < pack->num_chunks && code == RV_OK; i++) pack->item_bytes += rv_chunk_memory(pack->chunks[i]);
  if (code == RV_OK) fetch_places(pack, 0);
  pack->count = 1 + found.keys.size / sizeof(uint64_t);
  return code;
}

rv_code rv_insert_pack_begin(rv_insert_pack *pack, rv_span message, bool apart, const rv_placed_rows *rows, rv_error *err)
{
  *pack = (rv_insert_pack){.apart = apart, .rows = rows};
  rv_code code = begin(pack, message, err);
  if (code != RV_OK) rv_insert_pack_fini(pack);
  return code;
}

void rv_insert_pack_fini(rv_insert_pack *pack)
{
  if (pack->joined != NULL) pack->joined->coming = 0;
  for (size_t i = 0; i < pack->num_chunks; i++) {
    rv_chunk_form_fini(&pack->forms[i]);
    rv_chunk_unref(pack->chunks[i]);
  }
  free(pack->forms);
  rv_trajectory_unref(pack->model);
  rv_item_room_fini(&pack->room);
  *pack = (rv_insert_pack){0};
}

static uint64_t word_at(const uint8_t *words, size_t i)
{
  uint64_t word;
  memcpy(&word, words + i * sizeof word, sizeof word);
  return word;
}

static rv_code check_end(const rv_insert_pack *pack, rv_error *err)
{
  if (pack->next < pack->count || pack->rest.size == 0) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT, "a pack of %zu items with %zu bytes behind the last", pack->count, pack->rest.size);
}

void rv_insert_pack_join(rv_insert_pack *pack, rv_joined *joined)
{
  pack->joined = joined;
}

/* In place of the one that the item before had. */
static void set_chunk(rv_insert_pack *pack, size_t c, const rv_chunk_place *owned_place)
{
  rv_chunk_unref(pack->chunks[c]);
  pack->chunks[c] = owned_place->chunk;
  pack->of_chunk[c].key = owned_place->key;
  pack->of_chunk[c].first_row = (int32_t)owned_place->first;
  pack->of_chunk[c].is_joined = owned_place->is_joined;
}

/* The first item's chunks are there since the beginning, by themselves. */
static void join_first(rv_insert_pack *pack)
{
  rv_chunk_place place;
  for (size_t c = 0; pack->joined != NULL && c < pack->num_chunks; c++)
    if (pack->placed[c].row_bytes == 0 && rv_chunk_form_join(&pack->forms[c], pack->joined, NULL, &place))
      set_chunk(pack, c, &place);
}

static rv_code next_chunk(rv_insert_pack *pack, size_t c, rv_error *err)
{
  const rv_chunk_form *form = &pack->forms[c];
  rv_chunk_place place = {.chunk = NULL};
  rv_chunk_own own;
  rv_chunk *chunk;
  rv_code code;
  if (pack->placed[c].row_bytes > 0) {
    code = rv_placed_form_next(&pack->placed[c], &pack->rest, pack->rows, take_place(pack), &chunk, err);
  } else {
    code = rv_chunk_form_take(form, &pack->rest, &own, err);
    if (code == RV_OK && (pack->joined == NULL || !rv_chunk_form_join(form, pack->joined, &own, &place)))
      code = rv_chunk_form_make(form, &own, pack->apart, &chunk, err);
  }
  if (code != RV_OK) return code;
  if (place.chunk == NULL) place = rv_chunk_place_whole(chunk);
  set_chunk(pack, c, &place);
  return RV_OK;
}

rv_code rv_insert_pack_next(rv_insert_pack *pack, rv_error *err)
{
  size_t i = pack->next++;
  rv_wire_item *item = &pack->item;
  if (pack->joined != NULL) pack->joined->coming = pack->count - pack->next;
  if (i == 0) {
    join_first(pack);
    return check_end(pack, err);
  }
  for (size_t c = 0; c < pack->num_chunks; c++) {
    rv_code code = next_chunk(pack, c, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "item %zu of a pack of %zu", i, pack->count);
      return code;
    }
  }
  fetch_places(pack, i);
  item->key = word_at(pack->keys, i - 1);
  uint64_t priority = word_at(pack->priorities, i - 1);
  memcpy(&item->priority, &priority, sizeof priority);
  if (pack->first_sequence != 0) item->sequence = pack->first_sequence + i;
  for (uint32_t s = 0; s < item->total_slices; s++) item->slices[s].chunk_key = pack->of_chunk[pack->chunk_of[s]].key;
  return check_end(pack, err);
}

bool rv_insert_pack_find(void *context, uint64_t key, rv_chunk_place *out)
{
  rv_insert_pack *pack = context;
  for (size_t tried = 0; tried < pack->num_chunks; tried++) { /* slices mostly name them in their order */
    size_t at = pack->found + tried;
    if (at >= pack->num_chunks) at -= pack->num_chunks;
    const struct rv_pack_chunk *of = &pack->of_chunk[at];
    if (of->key != key) continue;
    pack->found = at;
    *out = (rv_chunk_place){.key = key, .chunk = pack->chunks[at], .first = of->first_row, .is_joined = of->is_joined};
    out->rows = rv_chunk_num_rows(of->is_joined ? pack->forms[at].model : out->chunk, 0);
    return true;
  }
  return false;
}

/* Where an item has two chunks of one key they are not, nor where rows of two have become one slice. Of a model nothing is checked again: each of its
 * slices must have the very rows that its own chunk's place says. */
static bool is_as_placed(const rv_insert_pack *pack, const rv_trajectory *trajectory)
{
  if (trajectory->num_slices != pack->item.total_slices) return false;
  for (uint32_t i = 0; i < trajectory->num_slices; i++) {
    const rv_slice *slice = &trajectory->slices[i];
    const rv_wire_slice *sent = &pack->item.slices[i];
    const uint32_t c = pack->chunk_of[i];
    if (slice->chunk != pack->chunks[c] || slice->tensor != (uint32_t)sent->index || slice->length != sent->length ||
        slice->offset != sent->offset + pack->of_chunk[c].first_row)
      return false;
  }
  return true;
}

static void keep_model(rv_insert_pack *pack, rv_trajectory *trajectory)
{
  pack->model = rv_trajectory_ref(trajectory);
  for (size_t c = 0; c < pack->num_chunks; c++) pack->of_chunk[c].model_first = pack->of_chunk[c].first_row;
}

rv_code rv_insert_pack_trajectory(rv_insert_pack *pack, rv_layouts *layouts, rv_layout *like, rv_trajectory *owned_spare,
                                  rv_trajectory **out, rv_error *err)
{
  if (pack->model != NULL) { /* what was checked of it holds for all: their chunks have one form */
    for (size_t c = 0; c < pack->num_chunks; c++) pack->rows_on[c] = pack->of_chunk[c].first_row - pack->of_chunk[c].model_first;
    return rv_trajectory_renew(pack->model, pack->chunk_of, pack->chunks, pack->rows_on, owned_spare, out, err);
  }
  rv_trajectory_unref(owned_spare);
  rv_code code = rv_wire_item_trajectory(&pack->item, layouts, like, rv_insert_pack_find, pack, out, err);
  if (code == RV_OK && is_as_placed(pack, *out)) keep_model(pack, *out);
  return code;
}
