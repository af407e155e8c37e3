/* Items that come in packs: what they are once they are in, and how they are answered. */
#include "support/packs.h"

/* ---- what is in ---- */

static void check_same_rows(const rv_slice *x, const rv_slice *y)
{
  const rv_chunk_column *p = rv_chunk_get_column(x->chunk, x->tensor), *q = rv_chunk_get_column(y->chunk, y->tensor);
  const size_t bytes = (size_t)x->length * p->row_bytes;
  assert_true(p->dtype == q->dtype && p->rank == 1 && q->rank == 1 && p->shape[0] == q->shape[0]);
  uint8_t *a = malloc(bytes + 1), *b = malloc(bytes + 1);
  assert_int_equal(rv_chunk_copy_rows(x->chunk, x->tensor, x->offset, x->length, a, NULL), RV_OK);
  assert_int_equal(rv_chunk_copy_rows(y->chunk, y->tensor, y->offset, y->length, b, NULL), RV_OK);
  assert_memory_equal(a, b, bytes);
  free(a);
  free(b);
}

/* What is sent, saved and journaled of chunks that are by themselves. */
static void check_same_message(const rv_chunk *x, const rv_chunk *y)
{
  const uint8_t *wire_x, *wire_y;
  size_t size_x, size_y;
  assert_true(rv_chunk_get_meta(x)->key == rv_chunk_get_meta(y)->key);
  assert_true(rv_chunk_wire(x, &wire_x, &size_x) != NULL && rv_chunk_wire(y, &wire_y, &size_y) != NULL);
  assert_int_equal(size_x, size_y);
  assert_memory_equal(wire_x, wire_y, size_x);
  size_t memory_x = rv_chunk_memory(x), memory_y = rv_chunk_memory(y); /* what several have in common is counted once */
  assert_true(memory_x > size_x && memory_y > size_y && memory_x <= 2 * memory_y && memory_y <= 2 * memory_x);
}

static void check_same_item(uint64_t key, const like *as)
{
  rv_draw a, b;
  assert_int_equal(rv_table_get(rig_find(&rig, "alone"), key, &a, NULL), RV_OK);
  assert_int_equal(rv_table_get(rig_find(&rig, "packed"), key, &b, NULL), RV_OK);
  assert_true(a.priority == b.priority && a.times_sampled == b.times_sampled && a.naming == b.naming);
  assert_ptr_equal(a.trajectory->layout, b.trajectory->layout);
  size_t num_slices = 0;
  for (size_t i = 0; i < as->num_chunks; i++) num_slices += 1 + as->more_tensors[i];
  assert_int_equal(a.trajectory->num_slices, num_slices);
  assert_int_equal(b.trajectory->num_slices, num_slices);
  for (uint32_t i = 0; i < a.trajectory->num_slices; i++) {
    rv_slice x = rv_draw_slice(&a, i), y = rv_draw_slice(&b, i);
    assert_true(x.tensor == y.tensor && x.length == y.length);
    assert_true(x.chunk != y.chunk || x.offset != y.offset);
    rv_chunk_meta p = rv_chunk_meta_of_rows(x.chunk, x.offset, x.length), q = rv_chunk_meta_of_rows(y.chunk, y.offset, y.length);
    assert_true(p.episode_id == q.episode_id && p.first_step == q.first_step && p.last_step == q.last_step &&
                p.sparse == q.sparse);
    check_same_rows(&x, &y);
    if (!x.chunk->is_segment && !y.chunk->is_segment) check_same_message(x.chunk, y.chunk);
  }
  rv_draw_release(&a);
  rv_draw_release(&b);
}

/* Of one episode, step by step, but that some are left out, and that it begins anew now and then. */
static void follow_each_other(rv_random *random, one *items, size_t n, int64_t rows)
{
  for (size_t i = 1; i < n; i++) {
    uint32_t how = rv_random_below(random, 16);
    items[i].episode = items[i - 1].episode;
    items[i].first_step = how == 0 ? 0 : items[i - 1].first_step + (int32_t)rows + (how == 1 ? 3 : 0);
  }
}

static void the_items_of_a_pack_are_what_each_would_be_alone(void **state)
{
  (void)state;
  rv_random random;
  uint64_t seed = (uint64_t)time(NULL), next_key = 1;
  const char *given = getenv("RV_TEST_SEED");
  if (given != NULL) seed = strtoull(given, NULL, 0);
  print_message("seed %" PRIu64 " (RV_TEST_SEED repeats it)\n", seed);
  rv_random_init(&random, seed);
  test_stream *call = open_writer();
  assert_string_equal(stream_header(call, "reverie-packs"), "2");
  uint64_t sequence = 1, confirmed[2 * MANY];
  for (int round = 0; round < 12; round++) {
    like as = {.num_chunks = 1 + rv_random_below(&random, MAX_OWN), .squeeze = rv_random_below(&random, 2) == 0};
    for (size_t i = 0; i < as.num_chunks; i++) {
      as.rows[i] = as.squeeze ? 1 : 1 + rv_random_below(&random, 4);
      as.width[i] = rv_random_below(&random, 33);
      as.more_tensors[i] = rv_random_below(&random, 3) == 0 ? rv_random_below(&random, MAX_TENSORS) : 0;
    }
    one items[MANY];
    size_t n = 1 + rv_random_below(&random, MANY);
    for (size_t i = 0; i < n; i++) items[i] = some_item(&random, next_key++);
    if (round % 2 == 0) follow_each_other(&random, items, n, as.rows[0]);
    as.table = "alone";
    for (size_t i = 0; i < n; i++) insert_alone(call, &items[i], &as, sequence++);
    as.table = "packed";
    insert_packed(call, items, n, &as, sequence);
    sequence += n;
    expect_keys(call, confirmed, 2 * n);
    for (size_t i = 0; i < n; i++) {
      assert_int_equal(confirmed[2 * i], items[i].key);
      check_same_item(items[i].key, &as);
    }
  }
  rv_table_info alone = info_of("alone"), packed = info_of("packed");
  assert_true(alone.inserts == packed.inserts && alone.updates == packed.updates && alone.current_size == packed.current_size &&
              alone.num_episodes == packed.num_episodes && alone.num_unique_samples == packed.num_unique_samples);
  uint64_t cursors[2] = {0, 0};
  do { /* and in the same order */
    rv_item_info a[7], b[7];
    size_t counts[2];
    assert_int_equal(rv_table_items(rig_find(&rig, "alone"), &cursors[0], a, 7, &counts[0], NULL), RV_OK);
    assert_int_equal(rv_table_items(rig_find(&rig, "packed"), &cursors[1], b, 7, &counts[1], NULL), RV_OK);
    assert_int_equal(counts[0], counts[1]);
    for (size_t i = 0; i < counts[0]; i++) assert_true(a[i].key == b[i].key && a[i].length == b[i].length);
  } while (cursors[0] != 0);
  assert_int_equal(cursors[1], 0);
  stream_free(call);
}

/* ---- answers ---- */

static void items_of_a_pack_that_were_in_are_confirmed_and_not_inserted_again(void **state)
{
  (void)state;
  one items[6];
  uint64_t keys[6];
  make_items(items, 6, 1);
  test_stream *call = open_writer();
  insert_packed(call, items, 3, &plain, 1);
  expect_keys(call, keys, 3);
  size_t unknown;
  assert_int_equal(rv_table_mutate(rig_find(&rig, "packed"), NULL, 0, &items[1].key, 1, NULL, &unknown, NULL), RV_OK);
  insert_packed(call, items, 6, &plain, 1);
  expect_keys(call, keys, 6);
  for (size_t i = 0; i < 6; i++) assert_int_equal(keys[i], i + 1);
  rv_table_info info = info_of("packed");
  assert_true(info.inserts == 6 && info.updates == 0 && info.current_size == 5);
  stream_free(call);
}

static void an_item_of_a_pack_that_is_refused_leaves_the_others(void **state)
{
  (void)state;
  one items[5];
  uint64_t keys[5], key;
  char message[RV_ERROR_MESSAGE_MAX];
  make_items(items, 5, 1);
  items[2].priority = (double)NAN;
  test_stream *call = open_writer();
  insert_packed(call, items, 5, &plain, 1);
  assert_int_equal(expect_failure(call, &key, message), RV_INVALID_ARGUMENT);
  assert_int_equal(key, 3);
  assert_int_equal(info_of("packed").inserts, 4);
  like nowhere = plain;
  nowhere.table = "nowhere";
  make_items(items, 1, 20);
  insert_packed(call, items, 1, &nowhere, 6);
  assert_int_equal(expect_failure(call, &key, message), RV_NOT_FOUND);
  assert_int_equal(key, 20);
  make_items(items, 2, 30);
  insert_packed(call, items, 2, &plain, 7); /* and the stream goes on */
  expect_keys(call, keys, 2);
  stream_free(call);
}

static void items_of_a_pack_wait_for_the_limiter_one_by_one(void **state)
{
  (void)state;
  one items[6];
  uint64_t keys[6];
  make_items(items, 6, 1);
  like queued = plain;
  queued.table = "q";
  test_stream *call = open_writer();
  insert_packed(call, items, 6, &queued, 1);
  rig_wait_for_waiting(&rig, "q", 4, 0);
  test_stream *sampler = stream_open(&peer, SAMPLE, NULL, 0);
  ask_samples(sampler, "q", 6, -1);
  assert_int_equal(read_samples(sampler, keys, 6), 6);
  for (size_t i = 0; i < 6; i++) assert_int_equal(keys[i], i + 1);
  expect_keys(call, keys, 6);
  stream_free(sampler);
  stream_free(call);
}

static void items_of_a_pack_that_wait_are_in_the_account_of_memory(void **state)
{
  (void)state;
  one items[MANY];
  uint64_t keys[2];
  like queued = plain;
  queued.table = "q";
  queued.width[0] = 64;
  const rv_memory *memory = rv_store_memory(rig.store);
  test_stream *call = open_writer();
  make_items(items, 2, 1);
  insert_packed(call, items, 2, &queued, 1);
  expect_keys(call, keys, 2);
  size_t before = rv_memory_used(memory);
  make_items(items, MANY, 3);
  insert_packed(call, items, MANY, &queued, 3);
  rig_wait_for_waiting(&rig, "q", MANY, 0);
  assert_true(rv_memory_used(memory) >= before + MANY * 64 * sizeof(int32_t));
  stream_free(call);
}

/* As those of single items do in a store that keeps cold chunks elsewhere. */
static void chunks_of_a_pack_can_move_where_a_store_moves_them(void **state)
{
  (void)state;
  one items[MANY];
  like large = plain;
  large.squeeze = false;
  large.rows[0] = 5;
  large.width[0] = 64;
  make_items(items, MANY, 1);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_pack(&body, items, MANY, &large, 1);
  rv_insert_request request;
  rv_insert_pack pack;
  assert_int_equal(rv_insert_request_parse((rv_span){body.data, body.size}, &request, NULL), RV_OK);
  assert_int_equal(rv_insert_pack_begin(&pack, request.pack, true, NULL, NULL), RV_OK);
  for (size_t i = 0; i < MANY; i++) {
    const uint8_t *bytes;
    size_t size;
    assert_int_equal(rv_insert_pack_next(&pack, NULL), RV_OK);
    assert_true(rv_chunk_movable(pack.chunks[0], &bytes, &size));
    rv_buf *expected = chunk_of(&items[i], &large, 0);
    assert_int_equal(size, expected->size);
    assert_memory_equal(bytes, expected->data, size);
    rv_buf_unref(expected);
  }
  rv_insert_pack_fini(&pack);
  rv_insert_request_fini(&request);
  rv_writer_buf_fini(&body);
}

/* A pack's chunks are its items' own. */
static void no_other_item_can_have_the_chunks_of_a_pack(void **state)
{
  (void)state;
  one items[2];
  uint64_t keys[2], key;
  char message[RV_ERROR_MESSAGE_MAX];
  make_items(items, 2, 1);
  test_stream *call = open_writer();
  insert_packed(call, items, 2, &plain, 1);
  expect_keys(call, keys, 2);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  put_item(&body, 9, (item_options){.table = "packed", .priority = 1, .chunk = 1000, .sequence = 3});
  stream_send(call, &body);
  assert_int_equal(expect_failure(call, &key, message), RV_INTERNAL);
  stream_free(call);
}

/* Found by key, the first item's first slice lies in the last chunk, which has the rows; its place is that of the first, which has not. */
static void chunks_of_one_key_in_a_pack_give_no_rows_that_are_not_there(void **state)
{
  (void)state;
  one items[2];
  uint64_t key;
  char message[RV_ERROR_MESSAGE_MAX];
  like as = {.table = "packed", .num_chunks = 3, .rows = {1, 1, 4}, .width = {2, 2, 2}}, said = as;
  said.rows[0] = 4;
  make_items(items, 2, 1);
  memcpy(items[0].chunks, (const uint64_t[]){5, 7, 5}, sizeof items[0].chunks);
  memcpy(items[1].chunks, (const uint64_t[]){15, 17, 18}, sizeof items[1].chunks);
  rv_writer_buf body;
  rv_writer_buf_init(&body);
  size_t mark = put_open_pack(&body, items, 2, &as);
  put_own_item(&body, RV_PACK_ITEM, &items[0], &said, 1);
  rv_put_close(&body, mark);
  test_stream *call = open_writer();
  stream_send(call, &body);
  assert_int_equal(expect_failure(call, &key, message), RV_INVALID_ARGUMENT);
  assert_int_equal(key, 2);
  assert_int_equal(info_of("packed").inserts, 1);
  stream_free(call);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_items_of_a_pack_are_what_each_would_be_alone, set_up, tear_down),
      cmocka_unit_test_setup_teardown(items_of_a_pack_that_were_in_are_confirmed_and_not_inserted_again, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_item_of_a_pack_that_is_refused_leaves_the_others, set_up, tear_down),
      cmocka_unit_test_setup_teardown(items_of_a_pack_wait_for_the_limiter_one_by_one, set_up, tear_down),
      cmocka_unit_test_setup_teardown(items_of_a_pack_that_wait_are_in_the_account_of_memory, set_up, tear_down),
      cmocka_unit_test_setup_teardown(chunks_of_a_pack_can_move_where_a_store_moves_them, set_up, tear_down),
      cmocka_unit_test_setup_teardown(no_other_item_can_have_the_chunks_of_a_pack, set_up, tear_down),
      cmocka_unit_test_setup_teardown(chunks_of_one_key_in_a_pack_give_no_rows_that_are_not_there, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
