#include "persist/loaded_chunks.h"

#include <stdlib.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "store/cold.h"
#include "wire/messages.h"
#include "wire/parse.h"

enum {
  COPY_BYTES = 16 << 10, /* at most so large a chunk is one block of memory: its record lies in a block of the file's */
  KEY_BYTES = 11         /* of a message, in which its key stands first */
};

void rv_loaded_chunks_init(rv_loaded_chunks *all, uint64_t seed)
{
  *all = (rv_loaded_chunks){.count = 0};
  rv_map_init(&all->by_key, seed);
  rv_warm_memory_init(&all->memory);
}

void rv_loaded_chunks_fini(rv_loaded_chunks *all)
{
  for (size_t i = 0; i < all->count; i++) rv_chunk_end_keeping(all->chunks[i]);
  free(all->chunks);
  rv_map_fini(&all->by_key);
  rv_warm_memory_fini(&all->memory);
}

/* Tensors in both places of a chunk: nobody knows which are meant. */
static bool has_tensors_twice(rv_span message)
{
  bool now = false, before = false;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 3, RV_WIRE_BYTES)) before = true;
    if (rv_field_is(&field, 5, RV_WIRE_BYTES) && field.bytes.size > 0) now = true;
  }
  return now && before;
}

static rv_code keep(rv_loaded_chunks *all, rv_chunk *owned_chunk, rv_chunk **added, rv_error *err)
{
  uint64_t key = rv_chunk_get_meta(owned_chunk)->key;
  rv_chunk_attach_cache(owned_chunk, all->cache);
  rv_code code = RV_OK;
  if (rv_map_get(&all->by_key, key) != NULL) {
    rv_chunk_unref(owned_chunk);
    return RV_OK;
  }
  if (all->count == all->capacity) {
    size_t capacity = all->capacity * 2 + 1024;
    rv_chunk **grown = realloc(all->chunks, capacity * sizeof *grown);
    if (grown == NULL) code = rv_fail_memory(err, capacity * sizeof *grown);
    if (grown != NULL) all->chunks = grown;
    if (grown != NULL) all->capacity = capacity;
  }
  if (code == RV_OK && all->count >= UINT32_MAX) code = rv_fail(err, RV_DATA_LOSS, "more than 2^32 chunks");
  if (code == RV_OK && rv_map_put(&all->by_key, key, (uint32_t)all->count) != RV_OK)
    code = rv_fail_memory(err, sizeof(rv_map_entry));
  if (code == RV_OK) {
    rv_chunk_keep(owned_chunk);
    *added = all->chunks[all->count++] = owned_chunk;
  }
  rv_chunk_unref(owned_chunk);
  return code;
}

static rv_code parse(const rv_loaded_chunks *all, rv_buf *record, rv_span message, rv_chunk **out, rv_error *err)
{
  bool small = message.size <= COPY_BYTES;
  if (small && all->apart && message.size >= RV_COLD_LEAST) return rv_chunk_parse_apart(message, out, err);
  return rv_chunk_parse(record, message, small, out, err);
}

rv_code rv_loaded_chunks_add(rv_loaded_chunks *all, rv_buf *owned_record, rv_chunk **added, rv_error *err)
{
  rv_span message = {owned_record->data, owned_record->size};
  rv_chunk *chunk = NULL;
  *added = NULL;
  if (message.size <= COPY_BYTES) rv_warm_memory_need(&all->memory, message.size);
  rv_code code = has_tensors_twice(message)
                     ? rv_fail(err, RV_DATA_LOSS, "a chunk with tensors both in data and in deprecated_data")
                     : parse(all, owned_record, message, &chunk, err);
  rv_buf_unref(owned_record);
  return code == RV_OK ? keep(all, chunk, added, err) : code;
}

void rv_loaded_chunks_prefetch(const rv_loaded_chunks *all, rv_span message)
{
  rv_reader reader;
  rv_field first;
  if (message.size > KEY_BYTES) message.size = KEY_BYTES; /* whatever follows, it costs nothing */
  rv_reader_init(&reader, message);
  if (rv_reader_next(&reader, &first) && rv_field_is(&first, 1, RV_WIRE_VARINT)) rv_map_prefetch(&all->by_key, first.value);
}

rv_chunk *rv_loaded_chunks_find(void *context, uint64_t key)
{
  const rv_loaded_chunks *all = context;
  const uint32_t *number = rv_map_get(&all->by_key, key);
  return number == NULL ? NULL : all->chunks[*number];
}

rv_chunk *rv_loaded_chunks_last(const rv_loaded_chunks *all, uint64_t key)
{
  rv_chunk *last = all->count > 0 ? all->chunks[all->count - 1] : NULL;
  return last != NULL && rv_chunk_get_meta(last)->key == key ? last : NULL;
}
