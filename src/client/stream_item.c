/* Chunks and items as the insert stream takes them. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/refs.h"
#include "client/insert_stream_parts.h"

static void flatten(rv_stream_chunk *chunk, const rv_pieces *pieces)
{
  for (size_t i = 0; i < pieces->count; i++) {
    memcpy(chunk->flat + chunk->flat_size, pieces->piece[i].data, pieces->piece[i].size);
    chunk->flat_size += pieces->piece[i].size;
  }
}

enum { MAX_SPARES = 128 };

void rv_stream_spares_init(rv_stream_spares *spares)
{
  rv_list_init(&spares->chunks);
  spares->count = 0;
}

void rv_stream_spares_fini(rv_stream_spares *spares)
{
  for (rv_link *link; (link = rv_list_pop_front(&spares->chunks)) != NULL;) free(RV_CONTAINER(link, rv_stream_chunk, link));
  spares->count = 0;
}

/* NULL: out of memory. */
static rv_stream_chunk *take_memory(size_t flat, rv_stream_spares *spares)
{
  rv_link *link = flat > 0 && spares != NULL ? rv_list_pop_front(&spares->chunks) : NULL;
  if (link != NULL) {
    spares->count--;
    rv_stream_chunk *spare = RV_CONTAINER(link, rv_stream_chunk, link);
    if (spare->flat_room >= flat) return spare;
    free(spare);
  }
  rv_stream_chunk *chunk = malloc(sizeof *chunk + flat);
  if (chunk != NULL) chunk->flat_room = flat;
  return chunk;
}

/* The places of several runs stand behind what is flat. */
static size_t runs_at(size_t flat_size)
{
  return (flat_size + _Alignof(rv_chunk_run) - 1) / _Alignof(rv_chunk_run) * _Alignof(rv_chunk_run);
}

_Static_assert(offsetof(rv_stream_chunk, flat) % _Alignof(rv_chunk_run) == 0, "places of runs are aligned");

static rv_code make_chunk(uint64_t key, size_t flat, uint32_t num_runs, rv_stream_spares *spares, rv_stream_chunk **out,
                          rv_error *err)
{
  size_t room = flat > 0 && num_runs > 1 ? runs_at(flat) + num_runs * sizeof(rv_chunk_run) : flat;
  rv_stream_chunk *chunk = take_memory(room, spares);
  if (chunk == NULL) return rv_fail_memory(err, sizeof *chunk + room);
  atomic_init(&chunk->refs, 1);
  atomic_init(&chunk->pins, 1);
  chunk->key = key;
  chunk->sent_on = 0;
  chunk->flat_size = 0;
  chunk->form = 0;
  chunk->num_runs = num_runs;
  rv_list_init(&chunk->link);
  rv_pieces_init(&chunk->data);
  chunk->rows = (rv_piece){0};
  *out = chunk;
  return RV_OK;
}

rv_code rv_stream_chunk_new_flat(uint64_t key, size_t size, uint32_t num_runs, rv_stream_spares *spares, rv_stream_chunk **out,
                                 rv_error *err)
{
  rv_code code = make_chunk(key, size, num_runs, spares, out, err);
  if (code == RV_OK) (*out)->flat_size = size;
  return code;
}

void rv_stream_chunk_set_form(rv_stream_chunk *chunk, uint64_t form, size_t own_size, const rv_chunk_stamp *stamp)
{
  chunk->form = form;
  chunk->own_size = (uint32_t)own_size;
  chunk->rows_at = chunk->own_size + stamp->runs[0].at;
  chunk->row_bytes = (uint32_t)stamp->row_bytes;
  if (chunk->num_runs > 1) memcpy(chunk->flat + runs_at(chunk->flat_size), stamp->runs, stamp->num_runs * sizeof *stamp->runs);
}

const rv_chunk_run *rv_stream_chunk_runs(const rv_stream_chunk *chunk)
{
  return (const rv_chunk_run *)(const void *)(chunk->flat + runs_at(chunk->flat_size));
}

rv_code rv_stream_chunk_new(uint64_t key, rv_pieces *owned_data, uint32_t num_runs, rv_stream_spares *spares,
                            rv_stream_chunk **out, rv_error *err)
{
  size_t flat = owned_data->bytes <= RV_STREAM_COPY_BYTES ? owned_data->bytes
                                                          : 0; /* small ones must not hold a buffer with room for more */
  rv_code code = make_chunk(key, flat, num_runs, spares, out, err);
  if (code == RV_OK && flat > 0) {
    flatten(*out, owned_data);
  } else if (code == RV_OK) {
    (*out)->data = *owned_data;
    rv_pieces_init(owned_data);
  }
  rv_pieces_clear(owned_data);
  return code;
}

rv_stream_chunk *rv_stream_chunk_ref(rv_stream_chunk *chunk)
{
  rv_refs_add_to_own(&chunk->refs);
  return chunk;
}

/* True: it was the last reference, and the memory is left. */
static bool drop(rv_stream_chunk *chunk)
{
  if (!rv_refs_drop(&chunk->refs, 1)) return false;
  rv_pieces_fini(&chunk->data);
  rv_buf_unref(chunk->rows.owner);
  return true;
}

void rv_stream_chunk_unref(rv_stream_chunk *chunk)
{
  if (drop(chunk)) free(chunk);
}

void rv_stream_chunk_recycle(rv_stream_chunk *chunk, rv_stream_spares *spares)
{
  if (!drop(chunk)) return;
  if (chunk->flat_room == 0 || spares->count == MAX_SPARES) {
    free(chunk);
    return;
  }
  rv_list_push_front(&spares->chunks, &chunk->link);
  spares->count++;
}

void rv_stream_chunk_unpin(rv_stream_chunk *chunk)
{
  atomic_fetch_sub_explicit(&chunk->pins, 1, memory_order_release);
}

rv_code rv_stream_item_init(rv_stream_item *item, const rv_wire_item *wire, rv_stream_chunk *const *chunks, uint32_t num_chunks,
                            rv_error *err)
{
  memset(item, 0, sizeof *item);
  rv_list_init(&item->link);
  rv_wire_item plain = *wire;
  plain.sequence = 0;
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  rv_wire_item_serialize(&body, &plain);
  size_t bytes = sizeof(rv_stream_chunk *) * num_chunks;
  item->chunks = num_chunks > 0 ? malloc(bytes) : NULL;
  if (body.failed || (num_chunks > 0 && item->chunks == NULL)) {
    rv_writer_buf_fini(&body);
    free(item->chunks);
    item->chunks = NULL;
    return rv_fail_memory(err, bytes + sizeof(rv_wire_slice) * wire->total_slices);
  }
  item->key = wire->key;
  item->body = body.data;
  item->body_size = body.size;
  item->num_chunks = num_chunks;
  for (uint32_t i = 0; i < num_chunks; i++) item->chunks[i] = rv_stream_chunk_ref(chunks[i]);
  return RV_OK;
}

void rv_stream_item_fini(rv_stream_item *item)
{
  for (uint32_t i = 0; i < item->num_chunks; i++) rv_stream_chunk_unref(item->chunks[i]);
  free(item->chunks);
  free(item->body);
  item->chunks = NULL;
  item->body = NULL;
  item->num_chunks = 0;
}

void rv_stream_item_pin(const rv_stream_item *item)
{
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    atomic_fetch_add_explicit(&item->chunks[i]->pins, 1, memory_order_relaxed);
  }
}

void rv_stream_item_unpin(const rv_stream_item *item)
{
  for (uint32_t i = 0; i < item->num_chunks; i++) rv_stream_chunk_unpin(item->chunks[i]);
}

/* The message that its form leaves to be made. */
static void put_like(rv_writer_buf *out, const rv_stream_item *item)
{
  rv_wire_item wire = item->like->item;
  rv_wire_slice slices[RV_FORM_SLICES];
  for (uint32_t i = 0; i < wire.total_slices; i++) {
    slices[i] = item->like->slices[i];
    slices[i].chunk_key = item->chunks[item->like->chunk_of[i]]->key;
  }
  wire.key = item->key;
  wire.priority = item->priority;
  wire.slices = slices;
  rv_wire_item_serialize(out, &wire);
}

size_t rv_stream_item_most_bytes(const rv_stream_item *item)
{
  enum { OWN = 96, COLUMN = 16, SLICE = 48 }; /* key, priority, number and headers; besides the slices; with its header */
  if (item->body != NULL) return item->body_size + OWN;
  const rv_wire_item *like = &item->like->item;
  return OWN + like->table.size + like->num_columns * (size_t)COLUMN + like->total_slices * (size_t)SLICE;
}

void rv_stream_item_put(rv_writer_buf *out, uint32_t field, const rv_stream_item *item)
{
  size_t mark = rv_put_open(out, field);
  rv_put_varint(out, 1000, item->sequence);
  if (item->body == NULL)
    put_like(out, item);
  else
    rv_put_raw(out, item->body, item->body_size);
  rv_put_close(out, mark);
}
