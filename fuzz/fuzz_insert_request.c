/* InsertStreamRequest as a server reads it: its chunks, its items, and the items' trajectories over those chunks. */
#include "base/error.h"
#include "fuzz.h"
#include "reverie/store.h"
#include "store/store.h"
#include "wire/insert_pack.h"

enum { MAX_CHUNKS = 64 };

/* One for all inputs: what it is asked for is how large its segments may be. */
static rv_table *table_of_all(void)
{
  static rv_table *table;
  if (table != NULL) return table;
  rv_store *store;
  const rv_table_config config = rv_table_config_default("t", 1000000);
  RV_FUZZ_CHECK(rv_store_new(&(rv_store_config){.size = sizeof(rv_store_config), .tables = &config, .num_tables = 1}, &store,
                             NULL) == RV_OK);
  RV_FUZZ_CHECK(rv_store_find(store, "t", 1, &table, NULL) == RV_OK);
  return table;
}

static rv_joined new_joined(void)
{
  rv_joined joined;
  rv_table *table = table_of_all();
  rv_joined_init(&joined, rv_table_memory(table), 1);
  joined.table = table;
  return joined;
}

typedef struct stream {
  rv_chunk *chunks[MAX_CHUNKS];
  size_t num_chunks;
} stream;

static bool find(void *context, uint64_t key, rv_chunk_place *out)
{
  stream *s = context;
  for (size_t i = 0; i < s->num_chunks; i++) {
    *out = rv_chunk_place_whole(s->chunks[i]);
    if (rv_chunk_get_meta(s->chunks[i])->key == key) return true;
  }
  return false;
}

/* A small chunk is compared with those before it, and joined to them or not: its rows are the same in the end. */
static void read_alike(rv_chunk_forms *forms, rv_joined *joined, rv_span bytes, rv_code expected, rv_chunk *parsed)
{
  rv_chunk_place place;
  rv_error err;
  rv_code code = rv_chunk_parse_alike(forms, joined, bytes, &place, &err);
  rv_fuzz_check_failure(code, &err);
  RV_FUZZ_CHECK(code == expected);
  if (code != RV_OK) return;
  RV_FUZZ_CHECK(place.key == rv_chunk_get_meta(parsed)->key && place.rows == rv_chunk_num_rows(parsed, 0));
  if (!place.is_joined) rv_fuzz_read_chunk(place.chunk);
  for (size_t i = 0; place.is_joined && i < rv_chunk_num_columns(parsed); i++) {
    uint8_t a[RV_JOINED_CHUNK_BYTES], b[RV_JOINED_CHUNK_BYTES];
    RV_FUZZ_CHECK(rv_chunk_copy_rows(parsed, i, 0, place.rows, a, &err) == RV_OK);
    RV_FUZZ_CHECK(rv_chunk_copy_rows(place.chunk, i, place.first, place.rows, b, &err) == RV_OK);
    RV_FUZZ_CHECK(memcmp(a, b, (size_t)place.rows * rv_chunk_get_column(parsed, i)->row_bytes) == 0);
  }
  rv_chunk_unref(place.chunk);
}

static void read_item(rv_span bytes, stream *s, rv_layouts *layouts)
{
  rv_wire_item item;
  rv_error err;
  rv_code code = rv_wire_item_parse(bytes, &item, &err);
  rv_fuzz_check_failure(code, &err);
  if (code != RV_OK) return;
  rv_trajectory *trajectory = NULL;
  code = rv_wire_item_trajectory(&item, layouts, NULL, find, s, &trajectory, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) rv_trajectory_unref(trajectory);
  rv_wire_item_fini(&item);
}

/* However little is sent of an item, it takes no more than this besides. */
static void check_memory(const rv_insert_pack *pack, size_t came)
{
  enum { BOOKS = 1024 };
  size_t takes = 0;
  for (size_t i = 0; i < pack->num_chunks; i++) takes += rv_chunk_memory(pack->chunks[i]);
  RV_FUZZ_CHECK(takes <= came + pack->num_chunks * (BOOKS + RV_CHUNK_FORM_BESIDES));
  RV_FUZZ_CHECK(pack->item.total_slices <= RV_PACK_SLICES_MAX && pack->item.num_columns <= RV_PACK_SLICES_MAX);
}

/* Rows that lie where the pack says: any place has some. */
static rv_code take_rows(void *context, const uint8_t *place, size_t before, size_t rows, size_t behind, rv_buf **out,
                         rv_error *err)
{
  enum { MOST_ROWS = 1 << 16 };
  size_t *taken = context;
  if (rows > MOST_ROWS) return rv_fail(err, RV_INVALID_ARGUMENT, "no place has %zu bytes of rows", rows);
  *out = rv_buf_new(before + rows + behind);
  RV_FUZZ_CHECK(*out != NULL);
  memset((*out)->data, place[0], (*out)->capacity);
  (*out)->size = (*out)->capacity;
  *taken += rows;
  return RV_OK;
}

static void fetch_rows(void *context, const uint8_t *place, size_t rows)
{
  (void)context;
  for (int i = 0; i < RV_ROWS_PLACE_BYTES; i++) rows += place[i]; /* they can be read */
  volatile size_t seen = rows;
  (void)seen;
}

static rv_trajectory *trajectory_of(rv_insert_pack *pack, rv_layouts *layouts)
{
  rv_trajectory *trajectory = NULL;
  rv_error err;
  rv_code code = rv_insert_pack_trajectory(pack, layouts, NULL, NULL, &trajectory, &err);
  rv_fuzz_check_failure(code, &err);
  return code == RV_OK ? trajectory : NULL;
}

static void check_same_column(const rv_trajectory *a, const rv_trajectory *b, uint32_t column)
{
  enum { MOST = 1 << 16 };
  static uint8_t rows[2][MOST];
  const rv_trajectory_column *shown = &a->columns[column];
  RV_FUZZ_CHECK(shown->spec == b->columns[column].spec && shown->length == b->columns[column].length);
  if (shown->spec->dtype == RV_STRING || shown->length > MOST || shown->spec->row_bytes > MOST ||
      (size_t)shown->length * shown->spec->row_bytes > MOST)
    return;
  const rv_draw draws[] = {{.trajectory = (rv_trajectory *)(uintptr_t)a}, {.trajectory = (rv_trajectory *)(uintptr_t)b}};
  for (int i = 0; i < 2; i++) RV_FUZZ_CHECK(rv_draw_copy_column(&draws[i], column, rows[i], NULL) == RV_OK);
  RV_FUZZ_CHECK(memcmp(rows[0], rows[1], (size_t)shown->length * shown->spec->row_bytes) == 0);
}

/* A pack whose rows are joined has the items that it has without. */
static void read_joined_pack(rv_span message, rv_layouts *layouts)
{
  rv_insert_pack packs[2];
  rv_error err;
  rv_joined joined = new_joined();
  rv_code code = rv_insert_pack_begin(&packs[0], message, false, NULL, &err);
  RV_FUZZ_CHECK(rv_insert_pack_begin(&packs[1], message, false, NULL, &err) == code);
  if (code == RV_OK) rv_insert_pack_join(&packs[1], &joined);
  while (code == RV_OK && packs[0].next < packs[0].count) {
    code = rv_insert_pack_next(&packs[0], &err);
    RV_FUZZ_CHECK(rv_insert_pack_next(&packs[1], &err) == code && packs[0].item.key == packs[1].item.key);
    if (code != RV_OK) break;
    rv_trajectory *a = trajectory_of(&packs[0], layouts), *b = trajectory_of(&packs[1], layouts);
    RV_FUZZ_CHECK((a == NULL) == (b == NULL) && (a == NULL || a->layout == b->layout));
    for (uint32_t i = 0; a != NULL && i < a->num_columns; i++) check_same_column(a, b, i);
    rv_trajectory_unref(a);
    rv_trajectory_unref(b);
  }
  for (int i = 0; i < 2; i++) rv_insert_pack_fini(&packs[i]);
  rv_joined_fini(&joined);
}

static void read_pack(rv_span message, rv_layouts *layouts)
{
  rv_insert_pack pack;
  rv_error err;
  size_t taken = 0;
  const rv_placed_rows rows = {.take = take_rows, .fetch = fetch_rows, .context = &taken};
  rv_code code = rv_insert_pack_begin(&pack, message, message.size % 2 == 0, &rows, &err);
  rv_fuzz_check_failure(code, &err);
  while (code == RV_OK && pack.next < pack.count) {
    size_t first = pack.next == 0 ? message.size : 0, before = pack.rest.size;
    code = rv_insert_pack_next(&pack, &err);
    rv_fuzz_check_failure(code, &err);
    if (code != RV_OK) break;
    check_memory(&pack, first + before - pack.rest.size + taken);
    taken = 0;
    for (size_t i = 0; i < pack.num_chunks; i++) rv_fuzz_read_chunk(pack.chunks[i]);
    rv_trajectory *trajectory = NULL;
    rv_code made = rv_wire_item_trajectory(&pack.item, layouts, NULL, rv_insert_pack_find, &pack, &trajectory, &err);
    rv_fuzz_check_failure(made, &err);
    if (made == RV_OK) rv_trajectory_unref(trajectory);
  }
  rv_insert_pack_fini(&pack);
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
    rv_chunk_forms forms = {0}, joined_forms = {0};
    rv_joined joined = new_joined();
    for (size_t i = 0; i < request.num_chunks && s.num_chunks < MAX_CHUNKS; i++) {
      code = rv_chunk_parse(owner, request.chunks[i], i % 2 == 0, &s.chunks[s.num_chunks], &err);
      rv_fuzz_check_failure(code, &err);
      read_alike(&forms, NULL, request.chunks[i], code, s.chunks[s.num_chunks]);
      read_alike(&joined_forms, &joined, request.chunks[i], code, s.chunks[s.num_chunks]);
      if (code == RV_OK) rv_fuzz_read_chunk(s.chunks[s.num_chunks++]);
    }
    rv_chunk_forms_fini(&forms);
    rv_chunk_forms_fini(&joined_forms);
    rv_joined_fini(&joined);
    if (request.pack.data != NULL) {
      read_pack(request.pack, layouts);
      read_joined_pack(request.pack, layouts);
    }
    for (size_t i = 0; i < request.num_items; i++) read_item(request.items[i], &s, layouts);
    for (size_t i = 0; i < s.num_chunks; i++) rv_chunk_unref(s.chunks[i]);
    rv_insert_request_fini(&request);
  }
  rv_layouts_unref(layouts);
  rv_buf_unref(owner);
  return 0;
}
