#include "client/receive.h"

#include <stdlib.h>

#include "base/error.h"
#include "store/gather.h"
#include "store/run.h"
#include "store/spread.h"
#include "wire/sample_pack.h"

enum { SCAN_MAX = 16 }; /* more chunks than this are looked up in the map */
enum { SMALL_CHUNK_BYTES = 16384, FEW_COLUMNS = 16 };

void rv_receiver_init(rv_receiver *receiver, rv_client *client, bool copy_small)
{
  *receiver = (rv_receiver){.layouts = client->layouts,
                            .decode_cache = client->decode_cache,
                            .max_bytes = client->max_message_bytes > SIZE_MAX / 16 ? SIZE_MAX : client->max_message_bytes * 16,
                            .copy_small = copy_small};
  rv_map_init(&receiver->numbers, rv_entropy64(&client->env));
}

void rv_receiver_clear(rv_receiver *receiver)
{
  for (uint32_t i = 0; i < receiver->num_chunks; i++) rv_chunk_unref(receiver->chunks[i]);
  if (receiver->num_chunks > SCAN_MAX) rv_map_clear(&receiver->numbers);
  if (receiver->open) rv_wire_item_fini(&receiver->info.item);
  receiver->num_chunks = 0;
  receiver->last_found = 0;
  receiver->bytes = 0;
  receiver->open = false;
}

void rv_receiver_fini(rv_receiver *receiver)
{
  rv_receiver_clear(receiver);
  rv_map_fini(&receiver->numbers);
  free(receiver->chunks);
}

/* ---- chunks of the open sample ---- */

static rv_code note_number(rv_receiver *receiver, uint32_t number)
{
  if (number < SCAN_MAX) return RV_OK;
  uint32_t first = number == SCAN_MAX ? 0 : number; /* the first to pass the limit brings all before it */
  for (uint32_t i = first; i <= number; i++) {
    uint64_t key = rv_chunk_get_meta(receiver->chunks[i])->key;
    if (rv_map_get(&receiver->numbers, key) == NULL && rv_map_put(&receiver->numbers, key, i) != RV_OK)
      return RV_RESOURCE_EXHAUSTED;
  }
  return RV_OK;
}

static rv_code add_chunk(rv_receiver *receiver, rv_chunk *owned_chunk, rv_error *err)
{
  if (receiver->num_chunks == receiver->capacity) {
    uint32_t capacity = receiver->capacity == 0 ? 8 : receiver->capacity * 2;
    rv_chunk **grown = realloc(receiver->chunks, capacity * sizeof(rv_chunk *));
    if (grown == NULL) {
      rv_chunk_unref(owned_chunk);
      return rv_fail_memory(err, capacity * sizeof(rv_chunk *));
    }
    receiver->chunks = grown;
    receiver->capacity = capacity;
  }
  rv_chunk_attach_cache(owned_chunk, receiver->decode_cache);
  receiver->chunks[receiver->num_chunks++] = owned_chunk;
  return note_number(receiver, receiver->num_chunks - 1) == RV_OK ? RV_OK : rv_fail_memory(err, 64);
}

static rv_code take_chunk(rv_receiver *receiver, rv_buf *owner, rv_span bytes, rv_error *err)
{
  if (bytes.size > receiver->max_bytes - receiver->bytes)
    return rv_fail(err, RV_RESOURCE_EXHAUSTED, "the sample is larger than %zu bytes; raise the client's max_message_bytes",
                   receiver->max_bytes);
  receiver->bytes += bytes.size;
  bool copy = receiver->copy_small && bytes.size < SMALL_CHUNK_BYTES && owner->size / 4 > bytes.size;
  rv_chunk *chunk;
  rv_code code = rv_chunk_parse(owner, bytes, copy, &chunk, err);
  return code == RV_OK ? add_chunk(receiver, chunk, err) : code;
}

static bool has_key(const rv_receiver *receiver, uint32_t number, uint64_t key)
{
  return number < receiver->num_chunks && rv_chunk_get_meta(receiver->chunks[number])->key == key;
}

static bool find(void *context, uint64_t key, rv_chunk_place *out)
{
  rv_receiver *receiver = context;
  uint32_t found = receiver->last_found;
  if (!has_key(receiver, found, key)) found++;
  if (!has_key(receiver, found, key)) {
    if (receiver->num_chunks > SCAN_MAX) {
      const uint32_t *number = rv_map_get(&receiver->numbers, key);
      if (number == NULL) return false;
      found = *number;
    } else {
      for (found = 0; found < receiver->num_chunks && !has_key(receiver, found, key); found++) continue;
      if (found == receiver->num_chunks) return false;
    }
  }
  receiver->last_found = found;
  *out = rv_chunk_place_whole(receiver->chunks[found]);
  return true;
}

/* ---- samples ---- */

static rv_code finish_sample(rv_receiver *receiver, rv_draw *out, rv_error *err)
{
  const rv_wire_sample_info *info = &receiver->info;
  rv_trajectory *trajectory;
  rv_code code = rv_wire_item_trajectory(&info->item, receiver->layouts, NULL, find, receiver, &trajectory, err);
  if (code != RV_OK) return code;
  *out = (rv_draw){.key = info->item.key,
                   .probability = info->probability,
                   .priority = info->item.priority,
                   .table_size = info->table_size,
                   .inserted_at_ns = info->item.inserted_at_ns,
                   .times_sampled = info->item.times_sampled,
                   .rate_limited = info->rate_limited,
                   .trajectory = trajectory};
  rv_receiver_clear(receiver);
  return RV_OK;
}

/* Moves the item's description over to the receiver. */
static void begin_sample(rv_receiver *receiver, rv_sample_entry *entry)
{
  receiver->info = entry->info;
  entry->info = (rv_wire_sample_info){0};
  receiver->open = true;
  entry->has_info = false;
}

static rv_code take_entry(rv_receiver *receiver, rv_buf *owner, rv_sample_entry *entry, rv_error *err)
{
  if (entry->has_info == receiver->open)
    return rv_fail(err, RV_DATA_LOSS, "the server's answer is not a sequence of whole samples: %s",
                   receiver->open ? "a sample begins within another" : "an entry belongs to no sample");
  if (entry->has_info) begin_sample(receiver, entry);
  for (size_t i = 0; i < entry->num_chunks; i++) {
    rv_code code = take_chunk(receiver, owner, entry->chunks[i], err);
    if (code != RV_OK) return code;
  }
  return RV_OK;
}

/* ---- packs of samples ---- */

static rv_code parse_chunks(rv_receiver *receiver, rv_buf *owner, const rv_sample_pack *pack, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = 0; i < pack->num_chunks && code == RV_OK; i++) {
    rv_chunk *chunk;
    code = rv_chunk_parse(owner, pack->chunks[i], false, &chunk, err);
    if (code == RV_OK) code = add_chunk(receiver, chunk, err);
  }
  return code;
}

static rv_code spread(rv_receiver *receiver, const rv_sample_pack *pack, rv_draw *draws, rv_error *err)
{
  struct {
    rv_slice slice;
    uint32_t one;
    bool squeeze;
  } *room = NULL;
  rv_slice few_slices[FEW_COLUMNS], *slices = few_slices;
  uint32_t few_ones[FEW_COLUMNS], *ones = few_ones;
  bool few_squeezes[FEW_COLUMNS], *squeezes = few_squeezes;
  size_t n = pack->num_columns;
  if (n > FEW_COLUMNS) {
    room = malloc(n * sizeof *room);
    if (room == NULL) return rv_fail_memory(err, n * sizeof *room);
    slices = (rv_slice *)(void *)room;
    ones = (uint32_t *)(void *)(slices + n);
    squeezes = (bool *)(void *)(ones + n);
  }
  for (size_t i = 0; i < n; i++) {
    const rv_sample_pack_column *column = &pack->columns[i];
    slices[i] = (rv_slice){.chunk = receiver->chunks[column->chunk], .tensor = column->tensor, .length = column->length};
    ones[i] = 1;
    squeezes[i] = column->squeeze;
  }
  const rv_trajectory_desc first = {.slices = slices, .num_slices = ones, .squeeze = squeezes, .num_columns = (uint32_t)n};
  rv_code code = rv_draws_spread(receiver->layouts, &first, draws, pack->count, err);
  free(room);
  return code;
}

static rv_code take_pack(rv_receiver *receiver, rv_buf *owner, rv_span message, rv_draw *out, size_t capacity, size_t *count,
                         rv_error *err)
{
  if (receiver->open)
    return rv_fail(err, RV_DATA_LOSS, "the server's answer is not a sequence of whole samples: a pack comes within one");
  rv_sample_pack pack;
  rv_code code = rv_sample_pack_parse(message, &pack, err);
  if (code != RV_OK) return code;
  if (pack.count > capacity - *count) code = rv_fail(err, RV_DATA_LOSS, "the server sent more samples than it was asked for");
  if (code == RV_OK) code = parse_chunks(receiver, owner, &pack, err);
  if (code == RV_OK) code = spread(receiver, &pack, out + *count, err);
  for (size_t i = 0; i < pack.count && code == RV_OK; i++) rv_sample_pack_describe(&pack, i, &out[*count + i]);
  if (code == RV_OK) *count += pack.count;
  rv_receiver_clear(receiver);
  rv_sample_pack_fini(&pack);
  return code;
}

static rv_code name_item(const rv_receiver *receiver, rv_code code, rv_error *err)
{
  if (receiver->open) rv_error_prefix(err, "item %llu, as the server sent it", (unsigned long long)receiver->info.item.key);
  if (code == RV_RESOURCE_EXHAUSTED) return code;
  if (err != NULL) err->code = RV_DATA_LOSS;
  return RV_DATA_LOSS;
}

rv_code rv_receiver_take(rv_receiver *receiver, rv_buf *owner, rv_span message, rv_draw *out, size_t capacity, size_t *count,
                         rv_error *err)
{
  rv_sample_response response;
  rv_code code = rv_sample_response_parse(message, &response, err);
  if (code != RV_OK) return name_item(receiver, code, err);
  size_t first = *count;
  for (size_t i = 0; i < response.num_entries && code == RV_OK; i++) {
    rv_sample_entry *entry = &response.entries[i];
    if (entry->pack.size > 0) {
      code = take_pack(receiver, owner, entry->pack, out, capacity, count, err);
      continue;
    }
    code = take_entry(receiver, owner, entry, err);
    if (code != RV_OK || !entry->end_of_sequence) continue;
    if (*count == capacity) code = rv_fail(err, RV_DATA_LOSS, "the server sent more samples than it was asked for");
    if (code == RV_OK) code = finish_sample(receiver, &out[*count], err);
    if (code == RV_OK) ++*count;
  }
  for (size_t i = first; i < *count; i++) out[i].naming = response.naming;
  if (code != RV_OK) {
    code = name_item(receiver, code, err);
    rv_receiver_clear(receiver);
  }
  rv_sample_response_fini(&response);
  return code;
}

/* What is parsed while the message has gaps may be nonsense, if it lies in one. */
static bool take_gapped(rv_receiver *receiver, const rv_gaps *gaps, rv_buf *owner, rv_span message, rv_draw *out, size_t capacity,
                        size_t *count)
{
  size_t before = *count;
  rv_code code = rv_receiver_take(receiver, owner, message, out, capacity, count, NULL);
  if (code == RV_OK && rv_draws_are_run(out + before, *count - before, gaps)) return true;
  rv_draws_release(out + before, *count - before);
  rv_receiver_clear(receiver);
  *count = before;
  return false;
}

rv_code rv_receiver_take_lent(rv_receiver *receiver, rv_call *call, bool pours, rv_buf *owner, rv_span message, rv_draw *out,
                              size_t capacity, size_t *count, bool *gapped, rv_error *err)
{
  const rv_gaps *gaps = rv_call_gaps(call);
  *gapped = gaps != NULL && pours && !receiver->open && take_gapped(receiver, gaps, owner, message, out, capacity, count);
  if (*gapped) return RV_OK;
  if (gaps != NULL && !rv_call_fill_gaps(call)) return RV_UNAVAILABLE;
  return rv_receiver_take(receiver, owner, message, out, capacity, count, err);
}

rv_code rv_receive_one(rv_client *client, rv_buf *owner, rv_span message, rv_draw *out, rv_error *err)
{
  rv_receiver receiver;
  rv_receiver_init(&receiver, client, false);
  size_t count = 0;
  rv_code code = rv_receiver_take(&receiver, owner, message, out, 1, &count, err);
  if (code == RV_OK && count == 0) code = rv_fail(err, RV_DATA_LOSS, "the server's answer holds no whole item");
  if (code != RV_OK && count == 1) rv_draw_release(out);
  rv_receiver_fini(&receiver);
  return code;
}
