/* InsertStreamRequest as a server reads it: its chunks, its items, and the items' trajectories over those chunks. */
#include "fuzz.h"

enum { MAX_CHUNKS = 64 };

typedef struct stream {
  rv_chunk *chunks[MAX_CHUNKS];
  size_t num_chunks;
} stream;

static rv_chunk *find(void *context, uint64_t key)
{
  stream *s = context;
  for (size_t i = 0; i < s->num_chunks; i++)
    if (rv_chunk_get_meta(s->chunks[i])->key == key) return s->chunks[i];
  return NULL;
}

static void read_item(rv_span bytes, stream *s, rv_layouts *layouts)
{
  rv_wire_item item;
  rv_error err;
  rv_code code = rv_wire_item_parse(bytes, &item, &err);
  rv_fuzz_check_failure(code, &err);
  if (code != RV_OK) return;
  rv_trajectory *trajectory = NULL;
  code = rv_wire_item_trajectory(&item, layouts, find, s, &trajectory, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) rv_trajectory_unref(trajectory);
  rv_wire_item_fini(&item);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_error err;
  rv_buf *owner = rv_buf_copy(data, size);
  rv_layouts *layouts = NULL;
  if (owner == NULL || rv_layouts_new(&layouts, NULL) != RV_OK) {
    rv_buf_unref(owner);
    return 0;
  }
  rv_insert_request request;
  rv_code code = rv_insert_request_parse((rv_span){owner->data, size}, &request, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) {
    stream s = {0};
    for (size_t i = 0; i < request.num_chunks && s.num_chunks < MAX_CHUNKS; i++) {
      code = rv_chunk_parse(owner, request.chunks[i], i % 2 == 0, &s.chunks[s.num_chunks], &err);
      rv_fuzz_check_failure(code, &err);
      if (code == RV_OK) rv_fuzz_read_chunk(s.chunks[s.num_chunks++]);
    }
    for (size_t i = 0; i < request.num_items; i++) read_item(request.items[i], &s, layouts);
    for (size_t i = 0; i < s.num_chunks; i++) rv_chunk_unref(s.chunks[i]);
    rv_insert_request_fini(&request);
  }
  rv_layouts_unref(layouts);
  rv_buf_unref(owner);
  return 0;
}
