#include "wire/insert_pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/cold.h"
#include "wire/parse.h"

/* What the message has, before any of it is read. */
typedef struct parts {
  rv_span item, keys, priorities, rest;
  size_t num_chunks;
} parts;

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
  }
  return !reader.broken;
}

/* Of one that may have to move the form has a copy of its own. */
static rv_code read_chunk(rv_insert_pack *pack, size_t i, rv_span message, rv_error *err)
{
  rv_chunk *chunk;
  rv_code code = rv_chunk_parse(NULL, message, true, &chunk, err);
  if (code != RV_OK) return code;
  code = rv_chunk_form_init(&pack->forms[i], chunk, err);
  if (code != RV_OK || !pack->apart || message.size < RV_COLD_LEAST) {
    pack->chunks[i] = chunk;
    return code;
  }
  rv_chunk_unref(chunk);
  return rv_chunk_parse_apart(message, &pack->chunks[i], err);
}

static rv_code read_chunks(rv_insert_pack *pack, rv_span message, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  for (size_t i = 0; code == RV_OK && rv_reader_next(&reader, &field);) {
    if (!rv_field_is(&field, RV_PACK_CHUNKS, RV_WIRE_BYTES)) continue;
    code = read_chunk(pack, i++, field.bytes, err);
  }
  return code;
}

/* Which of the chunks each slice is of: in all items the same. */
static rv_code place_slices(rv_insert_pack *pack, rv_error *err)
{
  for (uint32_t i = 0; i < pack->item.total_slices; i++) {
    uint64_t key = pack->item.slices[i].chunk_key;
    if (rv_insert_pack_find(pack, key) == NULL)
      return rv_fail(err, RV_INVALID_ARGUMENT, "the first item of a pack refers to chunk %llu, which is not in the pack",
                     (unsigned long long)key);
    pack->chunk_of[i] = (uint32_t)pack->found;
  }
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
  rv_code code = rv_wire_item_parse_in(&pack->room, found.item, &pack->item, err);
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
  size_t bytes = found.num_chunks * (sizeof *pack->forms + sizeof(rv_chunk *)) + pack->item.total_slices * sizeof(uint32_t);
  pack->forms = calloc(1, bytes > 0 ? bytes : 1);
  if (pack->forms == NULL) return rv_fail_memory(err, bytes);
  pack->chunks = (rv_chunk **)(void *)(pack->forms + found.num_chunks);
  pack->chunk_of = (uint32_t *)(void *)(pack->chunks + found.num_chunks);
  pack->num_chunks = found.num_chunks;
  code = read_chunks(pack, message, err);
  if (code == RV_OK) code = place_slices(pack, err);
  pack->item_bytes = pack->item.total_slices * sizeof(rv_slice) + pack->item.num_columns * sizeof(rv_trajectory_column);
  for (size_t i = 0; i < pack->num_chunks && code == RV_OK; i++) pack->item_bytes += rv_chunk_memory(pack->chunks[i]);
  pack->count = 1 + found.keys.size / sizeof(uint64_t);
  return code;
}

rv_code rv_insert_pack_begin(rv_insert_pack *pack, rv_span message, bool apart, rv_error *err)
{
  *pack = (rv_insert_pack){.apart = apart};
  rv_code code = begin(pack, message, err);
  if (code != RV_OK) rv_insert_pack_fini(pack);
  return code;
}

void rv_insert_pack_fini(rv_insert_pack *pack)
{
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

rv_code rv_insert_pack_next(rv_insert_pack *pack, rv_error *err)
{
  size_t i = pack->next++;
  rv_wire_item *item = &pack->item;
  if (i == 0) return check_end(pack, err); /* it is there since the beginning */
  for (size_t c = 0; c < pack->num_chunks; c++) {
    rv_chunk *chunk;
    rv_code code = rv_chunk_form_next(&pack->forms[c], &pack->rest, pack->apart, &chunk, err);
    if (code != RV_OK) {
      rv_error_prefix(err, "item %zu of a pack of %zu", i, pack->count);
      return code;
    }
    rv_chunk_unref(pack->chunks[c]);
    pack->chunks[c] = chunk;
  }
  item->key = word_at(pack->keys, i - 1);
  uint64_t priority = word_at(pack->priorities, i - 1);
  memcpy(&item->priority, &priority, sizeof priority);
  if (pack->first_sequence != 0) item->sequence = pack->first_sequence + i;
  for (uint32_t s = 0; s < item->total_slices; s++)
    item->slices[s].chunk_key = rv_chunk_get_meta(pack->chunks[pack->chunk_of[s]])->key;
  return check_end(pack, err);
}

rv_chunk *rv_insert_pack_find(void *context, uint64_t key)
{
  rv_insert_pack *pack = context;
  for (size_t tried = 0; tried < pack->num_chunks; tried++) { /* slices mostly name them in their order */
    size_t at = pack->found + tried;
    if (at >= pack->num_chunks) at -= pack->num_chunks;
    if (rv_chunk_get_meta(pack->chunks[at])->key != key) continue;
    pack->found = at;
    return pack->chunks[at];
  }
  return NULL;
}

/* Where an item has two chunks of one key they are not. */
static bool is_as_placed(const rv_insert_pack *pack, const rv_trajectory *trajectory)
{
  for (uint32_t i = 0; i < trajectory->num_slices; i++)
    if (trajectory->slices[i].chunk != pack->chunks[pack->chunk_of[i]]) return false;
  return true;
}

rv_code rv_insert_pack_trajectory(rv_insert_pack *pack, rv_layouts *layouts, rv_layout *like, rv_trajectory *owned_spare,
                                  rv_trajectory **out, rv_error *err)
{
  if (pack->model != NULL) /* what was checked of it holds for all: their chunks have one form */
    return rv_trajectory_renew(pack->model, pack->chunk_of, pack->chunks, owned_spare, out, err);
  rv_trajectory_unref(owned_spare);
  rv_code code = rv_wire_item_trajectory(&pack->item, layouts, like, rv_insert_pack_find, pack, out, err);
  if (code == RV_OK && is_as_placed(pack, *out)) pack->model = rv_trajectory_ref(*out);
  return code;
}
