/* Packs: of items that look alike only what is their own is sent (wire/insert_pack.h). */
#include "client/insert_stream_parts.h"
#include "wire/insert_pack.h"

enum {
  ITEM_BYTES = 2 * sizeof(uint64_t), /* key and priority */
  CHUNK_BYTES = 64,                  /* of one of the first item: its header, size and start of rows, and their place */
  WORTH_A_REQUEST = 8
};

_Static_assert((int)RV_ROWS_PLACE_BYTES == (int)RV_PLACE_BYTES, "a pack brings what a call names");

/* Its rows are not in the pack: their place is. Such a chunk has one run. */
static bool is_placed(const rv_stream_chunk *chunk)
{
  return chunk->row_bytes >= RV_STREAM_PACKED_ROWS_BELOW;
}

/* Nobody else will ever refer to the chunk: its only pin is the item's that is being sent, and only who has one can give another. */
static bool is_own(const rv_stream_chunk *chunk)
{
  return chunk->form != 0 && atomic_load_explicit(&chunk->pins, memory_order_acquire) == 1;
}

/* Where those of its rows lie that are placed goes behind what was noted before. False: some lie elsewhere. */
static bool note_places(rv_insert_stream *stream, const rv_stream_item *item)
{
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    const rv_stream_chunk *chunk = item->chunks[i];
    uint8_t place[RV_PLACE_BYTES];
    if (!is_placed(chunk)) continue;
    if (chunk->rows.owner == NULL || !rv_call_name_place(stream->call, chunk->rows.data, chunk->rows.size, place)) return false;
    rv_put_raw(&stream->places, place, sizeof place);
  }
  return !stream->places.failed;
}

static bool can_pack(rv_insert_stream *stream, const rv_stream_item *item)
{
  uint32_t runs = 0;
  if (item->form == 0 || item->num_chunks == 0 || item->num_chunks > RV_PACK_CHUNKS_MAX) return false;
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    const rv_stream_chunk *chunk = item->chunks[i];
    if (!is_own(chunk) || chunk->sent_on == stream->connection) return false;
    if (chunk->num_runs > 1 && !stream->packs_columns) return false;
    runs += chunk->num_runs;
  }
  if (runs > RV_PACK_CHUNKS_MAX) return false;
  size_t noted = stream->places.size;
  if (note_places(stream, item)) return true;
  stream->places.size = noted;
  stream->places.failed = false;
  return false;
}

/* Its number, if it were the next to be sent. */
static uint64_t number_of(const rv_insert_stream *stream, const rv_stream_item *item, size_t before)
{
  return item->sequence != 0 ? item->sequence : stream->next_sequence + before;
}

static bool is_alike(const rv_stream_item *item, const rv_stream_item *first)
{
  if (item->form != first->form || item->num_chunks != first->num_chunks) return false;
  for (uint32_t i = 0; i < item->num_chunks; i++)
    if (item->chunks[i]->form != first->chunks[i]->form) return false;
  return true;
}

/* Of the fields key and range, and the rows, where they are in the pack. */
static size_t own_bytes(const rv_stream_item *item)
{
  size_t bytes = 0;
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    const rv_stream_chunk *chunk = item->chunks[i];
    bytes += chunk->own_size + (is_placed(chunk) ? 0 : chunk->row_bytes);
  }
  return bytes;
}

/* All that it has goes in at once. */
static size_t bytes_of_first(const rv_stream_item *item)
{
  size_t bytes = rv_stream_item_most_bytes(item);
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    const rv_stream_chunk *chunk = item->chunks[i];
    bytes += CHUNK_BYTES + rv_stream_chunk_bytes(chunk) - (is_placed(chunk) ? chunk->rows.size : 0);
  }
  return bytes;
}

/* Of a message with a pack the first item, those behind it but for the last, that last one, and what is beside a pack take a quarter of what the server
 * takes, each. 0: the first item does not. */
static size_t most_behind_first(const rv_insert_stream *stream)
{
  const rv_stream_item *first = RV_CONTAINER(stream->queue.next, rv_stream_item, link);
  const size_t quarter = rv_insert_stream_message_bound(stream) / 4;
  if (rv_insert_stream_besides(stream) > quarter || bytes_of_first(first) > quarter) return 0;
  return stream->request_bytes < quarter ? stream->request_bytes : quarter;
}

/* How many from the head of the queue on go into one pack of at most about so many items and bytes, and what those behind the first
 * have of their own; the places of their rows are noted. */
static size_t count_alike(rv_insert_stream *stream, size_t max_items, size_t max_bytes, size_t *rest)
{
  const rv_stream_item *first = NULL;
  size_t count = 0, unnumbered = 0;
  uint64_t number = 0;
  *rest = 0;
  stream->places.size = 0;
  RV_LIST_EACH(link, &stream->queue)
  {
    const rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    uint64_t own = number_of(stream, item, unnumbered);
    if (first != NULL && (!is_alike(item, first) || own != number + 1)) break;
    if (!can_pack(stream, item)) break;
    if (first != NULL) *rest += own_bytes(item);
    if (first == NULL) first = item;
    number = own;
    unnumbered += item->sequence == 0;
    count++;
    if (count == max_items || *rest + count * ITEM_BYTES + stream->places.size >= max_bytes) break;
  }
  return count;
}

static void put_chunk(rv_writer_buf *out, const rv_stream_chunk *chunk)
{
  size_t before = rv_stream_chunk_before(chunk), rows = is_placed(chunk) ? 0 : chunk->rows.size;
  rv_put_header(out, RV_PACK_CHUNKS, chunk->flat_size + rows);
  rv_put_raw(out, chunk->flat, before);
  rv_put_raw(out, chunk->rows.data, rows);
  rv_put_raw(out, chunk->flat + before, chunk->flat_size - before);
}

/* Which chunks' rows are placed, and where; their places. */
static void put_placed(rv_writer_buf *out, const rv_insert_stream *stream, const rv_stream_item *item)
{
  uint64_t bytes[RV_PACK_CHUNKS_MAX], rows_at[RV_PACK_CHUNKS_MAX];
  if (stream->places.size == 0) return;
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    const rv_stream_chunk *chunk = item->chunks[i];
    bytes[i] = is_placed(chunk) ? chunk->row_bytes : 0;
    rows_at[i] = chunk->rows_at;
  }
  rv_put_packed(out, RV_PACK_PLACED, bytes, item->num_chunks);
  rv_put_packed(out, RV_PACK_ROWS_AT, rows_at, item->num_chunks);
  rv_put_bytes(out, RV_PACK_PLACES, stream->places.data, stream->places.size);
}

static void put_first(rv_writer_buf *out, const rv_insert_stream *stream, const rv_stream_item *item)
{
  rv_stream_item_put(out, RV_PACK_ITEM, item);
  for (uint32_t i = 0; i < item->num_chunks; i++) put_chunk(out, item->chunks[i]);
  put_placed(out, stream, item);
}

static rv_code put_rows(rv_pieces *message, const rv_stream_chunk *chunk)
{
  if (chunk->rows.owner != NULL) return rv_pieces_share(message, chunk->rows.owner, chunk->rows.data, chunk->rows.size);
  if (chunk->num_runs == 1) return rv_pieces_copy(message, chunk->flat + chunk->rows_at, chunk->row_bytes);
  const rv_chunk_run *run = rv_stream_chunk_runs(chunk);
  rv_code code = RV_OK;
  for (uint32_t i = 0; i < chunk->num_runs && code == RV_OK; i++)
    code = rv_pieces_copy(message, chunk->flat + chunk->own_size + run[i].at, run[i].size);
  return code;
}

static rv_code put_own(rv_pieces *message, const rv_stream_item *item)
{
  rv_code code = RV_OK;
  for (uint32_t i = 0; i < item->num_chunks && code == RV_OK; i++) {
    const rv_stream_chunk *chunk = item->chunks[i];
    code = rv_pieces_copy(message, chunk->flat, chunk->own_size);
    if (code == RV_OK && !is_placed(chunk)) code = put_rows(message, chunk);
  }
  return code;
}

/* What all have, with the header of the pack before it: the message follows, and then keys and priorities. */
static rv_code put_beginning(rv_insert_stream *stream, rv_pieces *message, size_t count, size_t rest)
{
  rv_writer_buf *scratch = &stream->scratch;
  size_t words = (count - 1) * sizeof(uint64_t);
  scratch->size = 0;
  put_first(scratch, stream, RV_CONTAINER(stream->queue.next, rv_stream_item, link));
  rv_put_header(scratch, RV_PACK_REST, rest);
  size_t first = scratch->size, size = first + rest + 2 * (1 + rv_varint_size(words) + words);
  rv_put_header(scratch, RV_INSERT_PACK, size);
  if (scratch->failed) return RV_RESOURCE_EXHAUSTED;
  rv_code code = rv_pieces_copy(message, scratch->data + first, scratch->size - first);
  return code == RV_OK ? rv_pieces_copy(message, scratch->data, first) : code;
}

/* Takes the items in order: their numbers, and their chunks; keys and priorities gather in the scratch. */
static rv_code put_rest(rv_insert_stream *stream, rv_pieces *message, size_t count)
{
  rv_writer_buf *scratch = &stream->scratch;
  size_t words = (count - 1) * sizeof(uint64_t);
  const rv_link *link = stream->queue.next;
  rv_code code = RV_OK;
  scratch->size = 0;
  rv_put_header(scratch, RV_PACK_KEYS, words);
  for (size_t i = 1; i < count; i++) {
    link = link->next;
    rv_put_raw(scratch, &RV_CONTAINER(link, rv_stream_item, link)->key, sizeof(uint64_t));
  }
  rv_put_header(scratch, RV_PACK_PRIORITIES, words);
  link = stream->queue.next;
  for (size_t i = 1; i < count && code == RV_OK; i++) {
    link = link->next;
    const rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    rv_put_raw(scratch, &item->priority, sizeof item->priority);
    code = put_own(message, item);
  }
  if (scratch->failed) return RV_RESOURCE_EXHAUSTED;
  return code == RV_OK ? rv_pieces_copy(message, scratch->data, scratch->size) : code;
}

/* Fewer than two are no pack, but where their rows' places make it one. */
static size_t least_items(const rv_insert_stream *stream, size_t otherwise)
{
  return stream->places.size > 0 ? 1 : otherwise;
}

bool rv_insert_stream_has_pack(rv_insert_stream *stream)
{
  size_t rest, count = stream->packs ? count_alike(stream, WORTH_A_REQUEST, SIZE_MAX, &rest) : 0;
  return count > 0 && count >= least_items(stream, WORTH_A_REQUEST);
}

rv_code rv_insert_stream_put_pack(rv_insert_stream *stream, rv_pieces *message, size_t *count)
{
  const size_t most = most_behind_first(stream);
  size_t rest = 0, n = most > 0 ? count_alike(stream, SIZE_MAX, most, &rest) : 0;
  *count = 0;
  if (n == 0 || n < least_items(stream, 2)) return RV_OK;
  const rv_link *link = stream->queue.next;
  for (size_t i = 0; i < n; i++, link = link->next) {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    if (item->sequence == 0) item->sequence = stream->next_sequence++;
  }
  const rv_stream_item *first = RV_CONTAINER(stream->queue.next, rv_stream_item, link);
  rv_code code = put_beginning(stream, message, n, rest);
  if (code == RV_OK) code = put_rest(stream, message, n);
  if (code != RV_OK) return code;
  for (uint32_t i = 0; i < first->num_chunks; i++)
    if (is_placed(first->chunks[i]))
      stream->bytes_sent += n * first->chunks[i]->row_bytes; /* though the message has but their places */
  *count = n;
  return RV_OK;
}
