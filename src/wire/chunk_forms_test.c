#include "store/chunk_parts.h"
#include "wire/chunk_forms.h"
#include "wire/chunk_stamp.h"
#include "wire/messages.h"
#include "wire/testing.h"

enum { MAX_COLUMNS = 3 };

/* What a writer sends again and again. */
typedef struct kind {
  rv_spec specs[MAX_COLUMNS];
  int64_t shapes[MAX_COLUMNS][2];
  size_t num_columns;
  int64_t rows;
  bool delta, snappy;
} kind;

static kind some_kind(rv_random *random)
{
  static const rv_dtype dtypes[] = {RV_UINT8, RV_INT16, RV_FLOAT32, RV_FLOAT64, RV_BOOL, RV_STRING};
  kind k = {.num_columns = 1 + rv_random_below(random, MAX_COLUMNS),
            .rows = rv_random_below(random, 4) == 0 ? (int64_t)rv_random_below(random, 5) : 1,
            .delta = rv_random_below(random, 3) == 0,
            .snappy = rv_random_below(random, 4) == 0};
  for (size_t i = 0; i < k.num_columns; i++) {
    k.shapes[i][0] = rv_random_below(random, 12);
    k.shapes[i][1] = rv_random_below(random, 5);
    k.specs[i] = (rv_spec){"", dtypes[rv_random_below(random, 6)], (int32_t)rv_random_below(random, 3), NULL};
  }
  return k;
}

/* A chunk of that kind, with rows and steps of its own. */
static rv_chunk *some_chunk(rv_random *random, kind *k)
{
  rv_chunk_meta meta = {.key = some_number(random),
                        .episode_id = some_number(random),
                        .first_step = (int32_t)rv_random_below(random, 100),
                        .sparse = rv_random_below(random, 5) == 0};
  meta.last_step = meta.first_step + (int32_t)k->rows;
  for (size_t i = 0; i < k->num_columns; i++) k->specs[i].shape = k->shapes[i];
  rv_chunk *segment = NULL;
  assert_int_equal(rv_segment_new(k->specs, k->num_columns, (size_t)k->rows + 1, &meta, &segment, NULL), RV_OK);
  for (size_t i = 0; i < k->num_columns; i++) {
    size_t bytes = rv_chunk_get_column(segment, i)->row_bytes;
    for (int64_t row = 0; row < k->rows; row++) {
      uint8_t *data = malloc(bytes + 1);
      for (size_t j = 0; j < bytes; j++) data[j] = (uint8_t)rv_random_next(random);
      if (k->specs[i].dtype == RV_STRING)
        for (size_t j = 0; j + sizeof(rv_bytes) <= bytes; j += sizeof(rv_bytes))
          memcpy(data + j, &(rv_bytes){"some text", rv_random_below(random, 9)}, sizeof(rv_bytes));
      rv_tensor value = {.dtype = k->specs[i].dtype, .rank = (uint32_t)k->specs[i].rank, .shape = k->shapes[i], .data = data};
      assert_int_equal(rv_segment_put(segment, i, row, &value, NULL), RV_OK);
      free(data);
    }
    rv_segment_publish(segment, i, k->rows);
  }
  return segment;
}

static rv_buf *serialize(rv_chunk *segment, const kind *k)
{
  static const uint8_t all[MAX_COLUMNS] = {1, 1, 1};
  const rv_chunk_encoding encoding = {.key = rv_chunk_get_meta(segment)->key,
                                      .column = SIZE_MAX,
                                      .count = k->rows,
                                      .delta = k->delta,
                                      .snappy = {all, k->snappy ? k->num_columns : 0}};
  rv_pieces out;
  rv_pieces_init(&out);
  assert_int_equal(rv_chunk_serialize(&out, segment, &encoding, NULL), RV_OK);
  return flatten(&out);
}

static void check_same(rv_chunk *a, rv_chunk *b)
{
  const rv_chunk_meta *x = rv_chunk_get_meta(a), *y = rv_chunk_get_meta(b);
  assert_true(x->key == y->key && x->episode_id == y->episode_id && x->first_step == y->first_step &&
              x->last_step == y->last_step && x->sparse == y->sparse);
  const uint8_t *wire_a, *wire_b;
  size_t size_a, size_b;
  assert_true(rv_chunk_wire(a, &wire_a, &size_a) != NULL && rv_chunk_wire(b, &wire_b, &size_b) != NULL);
  assert_int_equal(size_a, size_b);
  assert_memory_equal(wire_a, wire_b, size_a);
  assert_true(rv_chunk_same_columns(a, b));
  assert_in_range(rv_chunk_memory(a), size_a + 1, 2 * rv_chunk_memory(b)); /* what several have in common is counted once */
  for (size_t i = 0; i < rv_chunk_num_columns(a); i++) {
    rv_encoded p, q;
    assert_true(rv_chunk_encoded(a, i, &p) && rv_chunk_encoded(b, i, &q));
    assert_true(p.rank == q.rank && p.delta == q.delta && p.content_size == q.content_size);
    assert_int_equal(p.shape[0], q.shape[0]);
    if (p.content_size > 0) {
      assert_ptr_equal(p.content - wire_a, q.content - wire_b);
    }
    assert_int_equal(rv_chunk_num_rows(a, i), rv_chunk_num_rows(b, i));
    size_t bytes = (size_t)rv_chunk_num_rows(a, i) * rv_chunk_get_column(a, i)->row_bytes;
    uint8_t *from_a = calloc(1, bytes + 1), *from_b = calloc(1, bytes + 1);
    rv_code code = rv_chunk_copy_rows(a, i, 0, rv_chunk_num_rows(a, i), from_a, NULL); /* of a broken one that may fail */
    assert_int_equal(rv_chunk_copy_rows(b, i, 0, rv_chunk_num_rows(b, i), from_b, NULL), code);
    if (code == RV_OK && rv_chunk_get_column(a, i)->dtype != RV_STRING) assert_memory_equal(from_a, from_b, bytes);
    free(from_a);
    free(from_b);
  }
}

/* Both ways of reading it give the same chunk, or the same error. Returns whether there was one. */
static bool check_both(rv_chunk_forms *forms, rv_span bytes)
{
  rv_buf *message = buf_of(bytes);
  rv_chunk *plain = NULL;
  rv_chunk_place alike;
  rv_error plain_error, error;
  rv_code code = rv_chunk_parse(NULL, span_of(message), true, &plain, &plain_error);
  assert_int_equal(rv_chunk_parse_alike(forms, NULL, span_of(message), &alike, &error), code);
  rv_buf_unref(message); /* neither needs it any more */
  if (code != RV_OK) {
    assert_string_equal(plain_error.message, error.message);
    return false;
  }
  check_same(alike.chunk, plain);
  rv_chunk_unref(plain);
  rv_chunk_unref(alike.chunk);
  return true;
}

static void chunks_that_look_alike_are_read_as_if_each_were_the_first(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  for (int round = 0; round < 60; round++) {
    kind kinds[12];
    uint32_t num_kinds = 1 + rv_random_below(&random, 12);
    for (uint32_t i = 0; i < num_kinds; i++) kinds[i] = some_kind(&random);
    rv_chunk_forms forms = {0};
    for (int turn = 0; turn < 60; turn++) {
      kind *k = &kinds[round % 2 == 0 ? (uint32_t)turn % num_kinds : rv_random_below(&random, num_kinds)];
      rv_chunk *segment = some_chunk(&random, k);
      rv_buf *message = serialize(segment, k);
      assert_true(check_both(&forms, span_of(message)));
      if (turn % 3 == 0 && message->size > 0) { /* and broken, with one that is known */
        message->data[rv_random_below(&random, (uint32_t)message->size)] ^= (uint8_t)(1 + rv_random_below(&random, 255));
        (void)check_both(&forms, (rv_span){message->data, rv_random_below(&random, 3) == 0
                                                              ? rv_random_below(&random, (uint32_t)message->size + 1)
                                                              : message->size});
      }
      rv_buf_unref(message);
      rv_chunk_unref(segment);
    }
    rv_chunk_forms_fini(&forms);
  }
}

/* In protobuf the last one counts. */
static void a_key_or_range_that_comes_again_behind_the_tensors_counts(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, 7);
  kind k = {.specs = {{"", RV_UINT8, 1, NULL}}, .shapes = {{5}}, .num_columns = 1, .rows = 1};
  rv_chunk_forms forms = {0};
  for (int i = 0; i < 3; i++) {
    rv_chunk *segment = some_chunk(&random, &k);
    rv_buf *message = serialize(segment, &k);
    rv_buf *longer = rv_buf_new(message->size + 6);
    memcpy(longer->data, message->data, message->size);
    memcpy(longer->data + message->size, "\x08\x05\x12\x02\x10\x09", 6);
    longer->size = message->size + 6;
    rv_chunk_place place;
    assert_int_equal(rv_chunk_parse_alike(&forms, NULL, span_of(longer), &place, NULL), RV_OK);
    assert_true(place.key == 5 && rv_chunk_get_meta(place.chunk)->first_step == 9);
    rv_chunk_unref(place.chunk);
    rv_buf_unref(longer);
    rv_buf_unref(message);
    rv_chunk_unref(segment);
  }
  rv_chunk_forms_fini(&forms);
}

/* What stands around the rows of a message's columns, found by reading it. */
static void cut(rv_chunk *chunk, rv_span *fixed, size_t *sizes)
{
  const uint8_t *wire = NULL, *at;
  size_t size = 0;
  uint32_t n = chunk->num_columns;
  rv_chunk_wire(chunk, &wire, &size);
  at = wire;
  for (uint32_t c = 0; c < n; c++) {
    sizes[c] = chunk->lanes[c].row_bytes * (size_t)rv_chunk_num_rows(chunk, c);
    fixed[c] = (rv_span){at, (size_t)(chunk->lanes[c].base - at)};
    at = chunk->lanes[c].base + sizes[c];
  }
  fixed[n] = (rv_span){at, (size_t)(wire + size - at)};
}

static bool can_be_stamped(kind *k)
{
  for (size_t c = 0; c < k->num_columns; c++) {
    size_t elements, bytes;
    if (k->specs[c].dtype == RV_STRING) return false;
    rv_shape_elements(k->specs[c].dtype, (uint32_t)k->specs[c].rank, k->shapes[c], &elements, &bytes, NULL);
    if (bytes == 0) return false;
  }
  return k->rows > 0;
}

static void a_chunk_after_the_pattern_of_another_is_what_serializing_it_gives(void **state)
{
  (void)state;
  rv_random random;
  rv_random_init(&random, seed_of_the_run());
  int stamped = 0, of_several = 0;
  for (int round = 0; round < 400; round++) {
    kind k = some_kind(&random);
    k.snappy = false;
    if (k.rows > 1) k.delta = false;
    if (!can_be_stamped(&k)) continue;
    rv_chunk_stamp stamp = {0};
    for (int turn = 0; turn < 5; turn++) {
      rv_chunk *segment = some_chunk(&random, &k);
      rv_buf *message = serialize(segment, &k);
      rv_chunk_meta meta = rv_chunk_meta_of_rows(segment, 0, k.rows);
      if (stamp.num_rows > 0) {
        rv_run_rows rows[8];
        for (size_t c = 0; c < k.num_columns; c++) {
          rows[c].row_bytes = rv_chunk_get_column(segment, c)->row_bytes;
          rows[c].data = rv_chunk_rows_in_place(segment, c, 0, k.rows, &rows[c].stride);
        }
        size_t size = rv_chunk_stamp_size(&stamp, &meta);
        uint8_t *out = malloc(size);
        size_t own = rv_chunk_stamp_write(&stamp, &meta, rows, out);
        assert_int_equal(own, rv_chunk_stamp_own_size(&meta));
        assert_bytes(message, out, size);
        for (uint32_t c = 0; c < stamp.num_runs; c++)
          assert_memory_equal(out + own + stamp.runs[c].at, rows[c].data, rows[c].row_bytes); /* the first row */
        if (k.num_columns == 1) {
          size_t at = rv_chunk_stamp_write_around(&stamp, &meta, out);
          assert_memory_equal(message->data, out, at);
          assert_memory_equal(message->data + at + stamp.row_bytes, out + at, size - at - stamp.row_bytes);
        }
        free(out);
        stamped++;
        of_several += k.num_columns > 1;
      } else {
        rv_chunk *read;
        rv_span fixed[9];
        size_t sizes[8];
        assert_int_equal(rv_chunk_parse(NULL, (rv_span){message->data, message->size}, true, &read, NULL), RV_OK);
        cut(read, fixed, sizes);
        if (k.num_columns == 1) assert_int_equal(fixed[1].size, rv_chunk_stamp_tail_size(sizes[0]));
        rv_chunk_stamp_learn(&stamp, fixed, sizes, (uint32_t)k.num_columns, &meta, k.rows);
        rv_chunk_unref(read);
      }
      rv_buf_unref(message);
      rv_chunk_unref(segment);
    }
    rv_chunk_stamp_fini(&stamp);
  }
  assert_true(stamped > 100 && of_several > 50);
}

/* However a head is put: fields in another order, twice, unknown, with numbers of any length, or cut off. */
static void heads_that_no_writer_of_ours_puts_are_read_as_in_a_whole_message(void **state)
{
  (void)state;
  static const struct {
    const char *bytes;
    size_t size;
  } heads[] = {
#define HEAD(text) {text, sizeof text - 1}
      HEAD("\x08\x05\x12\x06\x18\x04\x10\x03\x08\x02"),
      HEAD("\x08\x05\x12\x08\x08\x01\x08\x07\x10\x01\x20\x02"),
      HEAD("\x12\x02\x08\x07"),
      HEAD("\x08\x85\x80\x00\x12\x00"),
      HEAD("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x12\x0B\x10\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"),
      HEAD("\x08\x05\x12\x06\x28\x04\x32\x00\x08\x02"),
      HEAD("\x08\x05\x12\x09\x09\x01\x02\x03\x04\x05\x06\x07\x08"),
      HEAD("\x08\x05\x12\x82\x00\x08\x07"),
      HEAD("\x08\x05\x12\x03\x08\x07\x10"),
      HEAD("\x08\x05\x12\x01\x88"),
      HEAD("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x12\x00"),
#undef HEAD
  };
  static const uint8_t rest[] = {0x2A, 0x0F, 0x0A, 0x0D, 0x08, 0x04, 0x12, 0x04, 0x12,
                                 0x02, 0x08, 0x01, 0x22, 0x03, 0x01, 0x00, 0x61};
  rv_chunk_forms forms = {0};
  for (size_t round = 0; round < 2; round++) {
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
      uint8_t message[64];
      memcpy(message, heads[i].bytes, heads[i].size);
      memcpy(message + heads[i].size, rest, sizeof rest);
      assert_int_equal(check_both(&forms, (rv_span){message, heads[i].size + sizeof rest}), i < 8);
      for (size_t cut = 0; cut < heads[i].size; cut++) (void)check_both(&forms, (rv_span){message, cut});
    }
  }
  assert_true(forms.count > 0);
  rv_chunk_forms_fini(&forms);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_that_look_alike_are_read_as_if_each_were_the_first),
      cmocka_unit_test(heads_that_no_writer_of_ours_puts_are_read_as_in_a_whole_message),
      cmocka_unit_test(a_key_or_range_that_comes_again_behind_the_tensors_counts),
      cmocka_unit_test(a_chunk_after_the_pattern_of_another_is_what_serializing_it_gives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
