/* Every message is written and read with every allocation failing in turn: RV_RESOURCE_EXHAUSTED or the whole message, never half of one,
 * and nothing leaks. */
#include "base/failing_testing.h"
#include "store/gather.h"
#include "store/spread.h"
#include "wire/column_names.h"
#include "wire/insert_pack.h"
#include "wire/messages.h"
#include "wire/sample_pack.h"
#include "wire/testing.h"
#include "wire/unary.h"

static rv_layouts *layouts;

/* ---- flat bytes ---- */

/* What was written; the writer is gone. */
static rv_code flat_of(rv_writer_buf *owned_writer, rv_buf **out)
{
  *out = owned_writer->failed ? NULL : rv_buf_copy(owned_writer->data, owned_writer->size);
  rv_writer_buf_fini(owned_writer);
  return *out != NULL ? RV_OK : RV_RESOURCE_EXHAUSTED;
}

/* The pieces one after another; they are gone. */
static rv_code flat_of_pieces(rv_pieces *owned_pieces, rv_code code, rv_buf **out)
{
  *out = code == RV_OK ? rv_buf_new(owned_pieces->bytes) : NULL;
  for (size_t i = 0; i < owned_pieces->count && *out != NULL; i++) {
    memcpy((*out)->data + (*out)->size, owned_pieces->piece[i].data, owned_pieces->piece[i].size);
    (*out)->size += owned_pieces->piece[i].size;
  }
  rv_pieces_fini(owned_pieces);
  if (code != RV_OK) return code;
  return *out != NULL ? RV_OK : RV_RESOURCE_EXHAUSTED;
}

/* ---- chunks ---- */

enum { ROWS = 40, WIDTH = 300 };

/* Bytes, and strings. */
static rv_chunk *make_segment(uint64_t key, bool strings)
{
  const int64_t width = WIDTH;
  const rv_spec specs[] = {{"", RV_UINT8, 1, &width}, {"", RV_STRING, 0, NULL}};
  const rv_chunk_meta meta = {.key = key, .episode_id = 3, .last_step = ROWS - 1};
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(specs, strings ? 2 : 1, ROWS, &meta, &segment, NULL), RV_OK);
  for (int64_t i = 0; i < ROWS; i++) {
    uint8_t bytes[WIDTH];
    memset(bytes, (int)i, sizeof bytes);
    const rv_bytes text = {"some text", (size_t)i % 10};
    const rv_tensor row = {.dtype = RV_UINT8, .rank = 1, .shape = &width, .data = bytes};
    const rv_tensor word = {.dtype = RV_STRING, .data = &text};
    assert_int_equal(rv_segment_put(segment, 0, i, &row, NULL), RV_OK);
    if (strings) assert_int_equal(rv_segment_put(segment, 1, i, &word, NULL), RV_OK);
  }
  for (size_t i = 0; i < (strings ? 2 : 1); i++) rv_segment_publish(segment, i, ROWS);
  return segment;
}

typedef struct coding {
  rv_chunk *segment;
  bool snappy, delta, copy;
} coding;

static rv_code write_chunk(const coding *how, rv_buf **out)
{
  const uint8_t snappy[] = {how->snappy, how->snappy};
  const rv_chunk_encoding encoding = {.key = rv_chunk_get_meta(how->segment)->key,
                                      .column = SIZE_MAX,
                                      .count = ROWS,
                                      .delta = how->delta,
                                      .snappy = {snappy, sizeof snappy}};
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  rv_code code = rv_chunk_serialize(&pieces, how->segment, &encoding, NULL);
  return flat_of_pieces(&pieces, code, out);
}

static rv_code check_rows(rv_chunk *chunk)
{
  static uint8_t rows[ROWS][WIDTH];
  rv_bytes words[ROWS];
  rv_code code = rv_chunk_copy_rows(chunk, 0, 0, ROWS, rows, NULL);
  for (int i = 0; code == RV_OK && i < ROWS; i++) assert_true(rows[i][0] == i && rows[i][WIDTH - 1] == i);
  if (code != RV_OK || rv_chunk_num_columns(chunk) == 1) return code;
  code = rv_chunk_copy_rows(chunk, 1, 0, ROWS, words, NULL);
  for (int i = 0; code == RV_OK && i < ROWS; i++) assert_int_equal(words[i].size, i % 10);
  return code;
}

static rv_code a_chunk(void *context)
{
  const coding *how = context;
  rv_buf *buf;
  rv_chunk *chunk = NULL;
  rv_code code = write_chunk(how, &buf);
  if (code != RV_OK) return code;
  code = rv_chunk_parse(buf, span_of(buf), how->copy, &chunk, NULL);
  rv_buf_unref(buf);
  if (code == RV_OK) {
    ONCE_MORE(code, check_rows(chunk)); /* a chunk whose rows found no memory gives them when there is some */
    assert_int_equal(code, RV_OK);
    rv_chunk_unref(chunk);
  }
  return code;
}

static void chunks_are_written_and_read_whole_or_not_at_all(void **state)
{
  (void)state;
  for (int i = 0; i < 16; i++) {
    coding how = {make_segment(7, (i & 8) != 0), (i & 1) != 0, (i & 2) != 0, (i & 4) != 0};
    assert_true(with_each_failure(a_chunk, &how) > 3);
    rv_chunk_unref(how.segment);
  }
}

/* Strings where old writers put them. */
static rv_code an_old_chunk(void *context)
{
  (void)context;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_put_varint(&out, 1, 6);
  size_t tensor = rv_put_open(&out, 3);
  rv_put_varint(&out, 1, RV_STRING);
  size_t shape = rv_put_open(&out, 2), dim = rv_put_open(&out, 2);
  rv_put_varint(&out, 1, 3);
  rv_put_close(&out, dim);
  rv_put_close(&out, shape);
  rv_put_bytes_always(&out, 8, "abc", 3);
  rv_put_close(&out, tensor);
  rv_buf *buf;
  rv_chunk *chunk = NULL;
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_chunk_parse(buf, span_of(buf), false, &chunk, NULL);
  rv_buf_unref(buf);
  if (code == RV_OK) assert_int_equal(rv_chunk_num_rows(chunk, 0), 3);
  rv_chunk_unref(code == RV_OK ? chunk : NULL);
  return code;
}

static void chunks_of_old_writers_are_read_whole_or_not_at_all(void **state)
{
  (void)state;
  assert_true(with_each_failure(an_old_chunk, NULL) > 3);
}

/* ---- items ---- */

enum { COLUMNS = 20, CHUNKS = 24 };

static rv_chunk *chunks[CHUNKS];

static bool find(void *context, uint64_t key, rv_chunk_place *out)
{
  (void)context;
  if (key < 1 || key > CHUNKS) return false;
  *out = rv_chunk_place_whole(chunks[key - 1]);
  return true;
}

static rv_code an_item(void *context)
{
  (void)context;
  rv_wire_slice slices[2 * COLUMNS];
  uint32_t num_slices[COLUMNS];
  bool squeeze[COLUMNS] = {false};
  for (uint32_t i = 0; i < 2 * COLUMNS; i++)
    slices[i] = (rv_wire_slice){.chunk_key = 1 + i % CHUNKS, .offset = (int32_t)(i % 8), .length = 2};
  for (uint32_t i = 0; i < COLUMNS; i++) num_slices[i] = 2;
  const rv_wire_item item = {.key = 5,
                             .table = SPAN("t"),
                             .slices = slices,
                             .num_slices = num_slices,
                             .squeeze = squeeze,
                             .num_columns = COLUMNS,
                             .total_slices = 2 * COLUMNS};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_wire_item_serialize(&out, &item);
  rv_buf *buf;
  rv_wire_item back;
  rv_trajectory *trajectory = NULL;
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_wire_item_parse(span_of(buf), &back, NULL);
  if (code == RV_OK) {
    assert_true(back.num_columns == COLUMNS && back.total_slices == 2 * COLUMNS &&
                back.slices[39].chunk_key == slices[39].chunk_key);
    code = rv_wire_item_trajectory(&back, layouts, NULL, find, NULL, &trajectory, NULL);
    if (code == RV_OK) assert_int_equal(trajectory->num_chunks, CHUNKS);
    rv_trajectory_unref(code == RV_OK ? trajectory : NULL);
    rv_wire_item_fini(&back);
  }
  rv_buf_unref(buf);
  return code;
}

static void make_chunks(void)
{
  for (uint64_t i = 0; i < CHUNKS; i++) chunks[i] = make_segment(i + 1, false);
}

static void drop_chunks(void)
{
  for (int i = 0; i < CHUNKS; i++) rv_chunk_unref(chunks[i]);
}

static void items_are_written_and_read_whole_or_not_at_all(void **state)
{
  (void)state;
  make_chunks();
  assert_true(with_each_failure(an_item, NULL) > 5);
  drop_chunks();
}

/* ---- samples ---- */

/* `num_slices` slices of one column, in the chunks in turns. */
static rv_draw draw_of(uint32_t slices_wanted, uint32_t num_chunks)
{
  rv_slice slices[2 * COLUMNS];
  for (uint32_t i = 0; i < slices_wanted; i++) slices[i] = (rv_slice){chunks[i % num_chunks], 0, (int32_t)(i % 8), 2};
  const bool squeeze = false;
  const rv_trajectory_desc desc = {.slices = slices, .num_slices = &slices_wanted, .squeeze = &squeeze, .num_columns = 1};
  rv_draw draw = {.key = 9, .probability = 0.5, .table_size = 3, .times_sampled = 1};
  rv_error err;
  if (rv_trajectory_new(layouts, &desc, &draw.trajectory, &err) != RV_OK) fail_msg("%s", err.message);
  return draw;
}

/* As a server sends it, in entries of a few chunks each, and as a client takes it. */
static rv_code entries_of(void *context)
{
  const rv_draw *draw = context;
  rv_code code = RV_OK;
  for (uint32_t next = 0, total = draw->trajectory->num_chunks; code == RV_OK && next < total;) {
    rv_pieces pieces;
    rv_buf *buf;
    uint32_t first = next;
    rv_sample_response response;
    rv_pieces_init(&pieces);
    code = rv_sample_entry_serialize(&pieces, draw, "t", first, 5000, &next, NULL);
    if (code == RV_OK) code = rv_sample_response_put_naming(&pieces, 77, NULL);
    code = flat_of_pieces(&pieces, code, &buf);
    if (code != RV_OK) break;
    code = rv_sample_response_parse(span_of(buf), &response, NULL);
    if (code == RV_OK) {
      assert_true(response.num_entries == 1 && response.naming == 77 && response.entries[0].num_chunks == next - first);
      assert_true(response.entries[0].has_info == (first == 0) && response.entries[0].end_of_sequence == (next == total));
      rv_sample_response_fini(&response);
    }
    rv_buf_unref(buf);
  }
  return code;
}

/* The chunks as they came over the wire. */
static void encode_chunks(bool snappy)
{
  for (int i = 0; i < CHUNKS; i++) {
    const coding how = {chunks[i], snappy, false, false};
    rv_buf *buf;
    rv_chunk *chunk = NULL;
    assert_int_equal(write_chunk(&how, &buf), RV_OK);
    assert_int_equal(rv_chunk_parse(buf, span_of(buf), false, &chunk, NULL), RV_OK);
    rv_buf_unref(buf);
    rv_chunk_unref(chunks[i]);
    chunks[i] = chunk;
  }
}

static void samples_are_sent_and_taken_whole_or_not_at_all(void **state)
{
  (void)state;
  for (int kind = 0; kind < 3; kind++) {
    make_chunks();
    if (kind > 0) encode_chunks(kind == 2);
    const uint32_t shapes[][2] = {{1, 1}, {2, 2}, {40, 24}};
    for (int i = 0; i < 3; i++) {
      rv_draw draw = draw_of(shapes[i][0], shapes[i][1]);
      assert_true(with_each_failure(entries_of, &draw) > 2);
      rv_draw_release(&draw);
    }
    drop_chunks();
  }
}

typedef struct packing {
  rv_draw draws[8];
} packing;

static rv_code a_pack(void *context)
{
  const packing *p = context;
  rv_pieces pieces;
  rv_buf *buf;
  rv_sample_response response;
  rv_sample_pack pack;
  rv_pieces_init(&pieces);
  rv_code code = rv_sample_pack_serialize(&pieces, p->draws, 8, NULL);
  code = flat_of_pieces(&pieces, code, &buf);
  if (code != RV_OK) return code;
  code = rv_sample_response_parse(span_of(buf), &response, NULL);
  if (code == RV_OK) {
    assert_int_equal(response.num_entries, 1);
    code = rv_sample_pack_parse(response.entries[0].pack, &pack, NULL);
    rv_sample_response_fini(&response);
  }
  rv_chunk *chunk = NULL;
  if (code == RV_OK) {
    assert_true(pack.count == 8 && pack.num_columns == 1 && pack.num_chunks == 1);
    code = rv_chunk_parse(buf, pack.chunks[0], false, &chunk, NULL);
    if (code == RV_OK) {
      const rv_slice slice = {chunk, 0, 0, pack.columns[0].length};
      const uint32_t one = 1;
      const rv_trajectory_desc desc = {
          .slices = &slice, .num_slices = &one, .squeeze = &pack.columns[0].squeeze, .num_columns = 1};
      rv_draw out[8];
      code = rv_draws_spread(layouts, &desc, out, 8, NULL);
      for (size_t i = 0; code == RV_OK && i < 8; i++) {
        rv_sample_pack_describe(&pack, i, &out[i]);
        assert_true(out[i].key == 9 && out[i].probability == 0.5);
      }
      if (code == RV_OK) rv_draws_release(out, 8);
    }
    rv_chunk_unref(code == RV_OK || chunk != NULL ? chunk : NULL);
    rv_sample_pack_fini(&pack);
  }
  rv_buf_unref(buf);
  return code;
}

static void packs_of_samples_are_sent_and_taken_whole_or_not_at_all(void **state)
{
  (void)state;
  make_chunks();
  packing p;
  for (int i = 0; i < 8; i++) p.draws[i] = draw_of(2, 1);
  assert_int_equal(rv_sample_pack_count(p.draws, 8, 1 << 20), 8);
  assert_true(with_each_failure(a_pack, &p) > 4);
  rv_draws_release(p.draws, 8);
  drop_chunks();
}

/* ---- packs of items ---- */

typedef struct unpacking {
  rv_buf *message; /* PackedItems: two items with a chunk each */
  bool apart;
} unpacking;

/* The second is the first, with a key of its own. */
static rv_buf *make_pack_of_items(void)
{
  const coding how = {make_segment(7, false), false, false, false};
  rv_buf *chunk, *pack;
  rv_encoded tensor;
  rv_chunk *parsed = NULL;
  assert_int_equal(write_chunk(&how, &chunk), RV_OK);
  assert_int_equal(rv_chunk_parse(chunk, span_of(chunk), false, &parsed, NULL), RV_OK);
  assert_true(rv_chunk_encoded(parsed, 0, &tensor));
  rv_wire_slice slice = {.chunk_key = 7, .length = ROWS};
  const uint32_t one = 1;
  const bool squeeze = false;
  rv_wire_item item = {.key = 1,
                       .table = SPAN("t"),
                       .slices = &slice,
                       .num_slices = (uint32_t *)(uintptr_t)&one,
                       .squeeze = (bool *)(uintptr_t)&squeeze,
                       .num_columns = 1,
                       .total_slices = 1};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  size_t mark = rv_put_open(&out, RV_PACK_ITEM);
  rv_wire_item_serialize(&out, &item);
  rv_put_close(&out, mark);
  rv_put_bytes_always(&out, RV_PACK_CHUNKS, chunk->data, chunk->size);
  rv_put_bytes_always(&out, RV_PACK_KEYS, &(uint64_t){2}, sizeof(uint64_t));
  rv_put_bytes_always(&out, RV_PACK_PRIORITIES, &(double){1}, sizeof(double));
  mark = rv_put_open(&out, RV_PACK_REST);
  rv_put_varint(&out, 1, 8);
  rv_put_bytes_always(&out, 2, "\x08\x03", 2);
  rv_put_raw(&out, rv_encoded_raw(&tensor), ROWS * WIDTH);
  rv_put_close(&out, mark);
  assert_int_equal(flat_of(&out, &pack), RV_OK);
  rv_chunk_unref(parsed);
  rv_chunk_unref(how.segment);
  rv_buf_unref(chunk);
  return pack;
}

static rv_code a_pack_of_items(void *context)
{
  const unpacking *u = context;
  rv_insert_pack pack;
  rv_code code = rv_insert_pack_begin(&pack, span_of(u->message), u->apart, NULL, NULL);
  for (size_t i = 0; code == RV_OK && i < 2; i++) {
    code = rv_insert_pack_next(&pack, NULL);
    if (code != RV_OK) break;
    assert_true(pack.item.key == i + 1 && rv_chunk_get_meta(pack.chunks[0])->key == i + 7);
    code = check_rows(pack.chunks[0]);
    if (code != RV_OK) break;
    rv_trajectory *trajectory;
    code = rv_insert_pack_trajectory(&pack, layouts, NULL, NULL, &trajectory, NULL);
    if (code != RV_OK) break;
    assert_true(trajectory->num_chunks == 1 && trajectory->chunks[0] == pack.chunks[0]);
    rv_trajectory_unref(trajectory);
  }
  rv_insert_pack_fini(&pack);
  return code;
}

static void packs_of_items_are_taken_whole_or_not_at_all(void **state)
{
  (void)state;
  for (int apart = 0; apart < 2; apart++) {
    unpacking u = {make_pack_of_items(), apart == 1};
    assert_true(with_each_failure(a_pack_of_items, &u) > 3);
    rv_buf_unref(u.message);
  }
}

/* ---- what writers send and are answered ---- */

static rv_code an_insert_request(void *context)
{
  (void)context;
  rv_insert_request request;
  static const uint8_t message[] = "\x0A\x02"
                                   "ab\x1A\x03\x01\xAC\x02\x12\x01"
                                   "c\x0A\x00\x18\x05";
  rv_code code = rv_insert_request_parse((rv_span){message, sizeof message - 1}, &request, NULL);
  if (code != RV_OK) return code;
  assert_true(request.num_chunks == 2 && request.num_items == 1 && request.num_keep_chunk_keys == 3);
  rv_insert_request_fini(&request);
  return RV_OK;
}

static rv_code an_insert_response(void *context)
{
  (void)context;
  static uint64_t keys[300];
  rv_insert_failure failures[] = {{7, RV_NOT_FOUND, SPAN("no table \"x\"")}};
  const rv_insert_response response = {.keys = keys, .num_keys = 300, .failures = failures, .num_failures = 1};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_insert_response_serialize(&out, &response);
  rv_buf *buf;
  rv_insert_response back;
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_insert_response_parse(span_of(buf), &back, NULL);
  if (code == RV_OK) {
    assert_true(back.num_keys == 300 && back.num_failures == 1 && span_is(back.failures[0].message, "no table \"x\""));
    rv_insert_response_fini(&back);
  }
  rv_buf_unref(buf);
  return code;
}

static rv_code a_sample_request(void *context)
{
  (void)context;
  const rv_sample_request request = {.table = SPAN("t"), .num_samples = 5, .timeout_ms = 7, .packed = true};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_sample_request_serialize(&out, &request);
  rv_buf *buf;
  rv_sample_request back;
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_sample_request_parse(span_of(buf), &back, NULL);
  if (code == RV_OK) assert_true(back.num_samples == 5 && back.packed);
  rv_buf_unref(buf);
  return code;
}

static void requests_and_answers_are_written_and_read_whole_or_not_at_all(void **state)
{
  (void)state;
  assert_true(with_each_failure(an_insert_request, NULL) > 0);
  assert_true(with_each_failure(an_insert_response, NULL) > 2);
  assert_true(with_each_failure(a_sample_request, NULL) > 1);
}

/* ---- unary calls ---- */

static rv_code a_mutation(void *context)
{
  (void)context;
  rv_key_priority updates[50] = {{1, 2}};
  uint64_t deletes[50] = {3};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_mutate_request_serialize(&out, "t", updates, 50, deletes, 50);
  rv_buf *buf;
  rv_mutate_request back;
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_mutate_request_parse(span_of(buf), &back, NULL);
  if (code == RV_OK) {
    assert_true(back.num_updates == 50 && back.num_deletes == 50 && back.updates[0].priority == 2);
    rv_mutate_request_fini(&back);
  }
  rv_buf_unref(buf);
  if (code != RV_OK) return code;
  rv_writer_buf_init(&out);
  rv_mutate_response_serialize(&out, deletes, 50);
  uint64_t unknown[50];
  size_t n = 0;
  code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_mutate_response_parse(span_of(buf), unknown, 50, &n, NULL);
  assert_true(code == RV_OK && n == 50);
  rv_buf_unref(buf);
  return code;
}

static rv_code the_server_info(void *context)
{
  (void)context;
  rv_waiting_caller waiting[2] = {{.id = 4, .peer = "ipv4:127.0.0.1:4711"}, {.id = 5}};
  const int64_t shape[] = {-1, 4};
  const rv_spec specs[] = {{"obs", RV_FLOAT32, 2, shape}, {"action", RV_INT64, 0, NULL}};
  rv_table_info tables[2] = {{.name = (char *)(uintptr_t) "replay",
                              .sampler = {.kind = RV_SELECTOR_CUSTOM, .name = "mine", .options = "a=b"},
                              .remover = {.kind = RV_SELECTOR_FIFO},
                              .signature = {.specs = specs, .num_specs = 2},
                              .waiting = waiting,
                              .num_waiting = 2,
                              .extensions = (char *)(uintptr_t) "statistics: inserts=18\n"},
                             {.name = (char *)(uintptr_t) "other"}};
  const rv_server_info info = {.tables = tables, .num_tables = 2};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_server_info_serialize(&out, &info);
  rv_buf *buf;
  rv_server_info *back = NULL;
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_server_info_parse(span_of(buf), &back, NULL);
  rv_buf_unref(buf);
  if (code != RV_OK) return code;
  assert_true(back->num_tables == 2 && back->tables[0].num_waiting == 2 && back->tables[0].signature.num_specs == 2);
  assert_string_equal(back->tables[0].sampler.options, "a=b");
  assert_string_equal(back->tables[1].name, "other");
  rv_server_info_free(back);
  return RV_OK;
}

static rv_code a_signature(void *context)
{
  (void)context;
  const int64_t shape[] = {-1, 4};
  const rv_spec specs[] = {{"obs/pixels", RV_FLOAT32, 2, shape}, {"action", RV_INT64, 0, NULL}};
  const rv_signature signature = {.specs = specs, .num_specs = 2};
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_signature_serialize(&out, &signature);
  rv_buf *buf;
  rv_signature back, places;
  rv_column_names *names = NULL;
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_signature_parse(span_of(buf), &back, NULL);
  if (code == RV_OK) {
    code = rv_signature_parse_places(span_of(buf), &places, NULL);
    if (code == RV_OK) rv_signature_fini(&places);
    if (code == RV_OK) code = rv_column_names_new(&back, &names, NULL);
    if (code == RV_OK) {
      assert_int_equal(rv_column_name_fits(names, "t", 1, "action", NULL), RV_OK);
      rv_column_names_free(names);
      const char *const called[] = {"obs/pixels", "action"};
      code = rv_signature_check_names(&back, "t", called, 2, NULL);
    }
    rv_signature_fini(&back);
  }
  rv_buf_unref(buf);
  return code;
}

/* More keys than there is room for at first. */
static rv_code a_signature_of_a_dict(void *context)
{
  enum { KEYS = 40 };
  (void)context;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  size_t dict = rv_put_open(&out, 53);
  for (int i = 0; i < KEYS; i++) {
    size_t entry = rv_put_open(&out, 1);
    rv_put_string(&out, 1, (const char[]){(char)('0' + i), '\0'});
    size_t value = rv_put_open(&out, 2), spec = rv_put_open(&out, 33);
    rv_put_varint(&out, 3, RV_FLOAT32);
    rv_put_close(&out, spec);
    rv_put_close(&out, value);
    rv_put_close(&out, entry);
  }
  rv_put_close(&out, dict);
  rv_buf *buf;
  rv_signature back;
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_signature_parse(span_of(buf), &back, NULL);
  rv_buf_unref(buf);
  if (code != RV_OK) return code;
  assert_int_equal(back.num_specs, KEYS);
  assert_string_equal(back.specs[KEYS - 1].name, "W");
  rv_signature_fini(&back);
  return RV_OK;
}

static rv_code a_page_of_items(void *context)
{
  (void)context;
  rv_item_info items[40] = {{.key = 8}}, back[40];
  const rv_items_request request = {.table = SPAN("replay"), .cursor = 7, .capacity = 100};
  rv_items_request asked;
  rv_writer_buf out;
  rv_buf *buf;
  uint64_t cursor = 0;
  size_t count = 0;
  rv_writer_buf_init(&out);
  rv_items_request_serialize(&out, &request);
  rv_code code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_items_request_parse(span_of(buf), &asked, NULL);
  assert_true(code == RV_OK && asked.cursor == 7);
  rv_buf_unref(buf);
  rv_writer_buf_init(&out);
  rv_items_response_serialize(&out, 99, items, 40);
  code = flat_of(&out, &buf);
  if (code != RV_OK) return code;
  code = rv_items_response_parse(span_of(buf), &cursor, back, 40, &count, NULL);
  assert_true(code == RV_OK && cursor == 99 && count == 40 && back[0].key == 8);
  rv_buf_unref(buf);
  return code;
}

static rv_code small_requests(void *context)
{
  (void)context;
  const rv_rate_limiter_config limiter = rv_rate_limiter_min_size(3);
  for (int kind = 0; kind < 4; kind++) {
    rv_writer_buf out;
    rv_buf *buf;
    rv_span text;
    uint64_t key;
    rv_rate_limiter_config back;
    rv_writer_buf_init(&out);
    if (kind == 0) rv_reset_request_serialize(&out, "replay");
    if (kind == 1) rv_get_request_serialize(&out, "replay", 5);
    if (kind == 2) rv_set_rate_limiter_serialize(&out, "replay", &limiter);
    if (kind == 3) rv_checkpoint_response_serialize(&out, "replay");
    rv_code code = flat_of(&out, &buf);
    if (code != RV_OK) return code;
    if (kind == 0) code = rv_reset_request_parse(span_of(buf), &text, NULL);
    if (kind == 1) code = rv_get_request_parse(span_of(buf), &text, &key, NULL);
    if (kind == 2) code = rv_set_rate_limiter_parse(span_of(buf), &text, &back, NULL);
    if (kind == 3) code = rv_checkpoint_response_parse(span_of(buf), &text, NULL);
    assert_true(code == RV_OK && span_is(text, "replay"));
    rv_buf_unref(buf);
  }
  return RV_OK;
}

static void unary_messages_are_written_and_read_whole_or_not_at_all(void **state)
{
  (void)state;
  assert_true(with_each_failure(a_mutation, NULL) > 4);
  assert_true(with_each_failure(the_server_info, NULL) > 8);
  assert_true(with_each_failure(a_signature, NULL) > 4);
  assert_true(with_each_failure(a_signature_of_a_dict, NULL) > 8);
  assert_true(with_each_failure(a_page_of_items, NULL) > 3);
  assert_true(with_each_failure(small_requests, NULL) > 6);
}

static int set_up(void **state)
{
  (void)state;
  return rv_layouts_new(&layouts, NULL) == RV_OK ? 0 : -1;
}

static int tear_down(void **state)
{
  (void)state;
  rv_layouts_unref(layouts);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_are_written_and_read_whole_or_not_at_all),
      cmocka_unit_test(chunks_of_old_writers_are_read_whole_or_not_at_all),
      cmocka_unit_test(items_are_written_and_read_whole_or_not_at_all),
      cmocka_unit_test(samples_are_sent_and_taken_whole_or_not_at_all),
      cmocka_unit_test(packs_of_samples_are_sent_and_taken_whole_or_not_at_all),
      cmocka_unit_test(packs_of_items_are_taken_whole_or_not_at_all),
      cmocka_unit_test(requests_and_answers_are_written_and_read_whole_or_not_at_all),
      cmocka_unit_test(unary_messages_are_written_and_read_whole_or_not_at_all),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
