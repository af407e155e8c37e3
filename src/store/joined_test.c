#include "store/joined.h"

#include "store/chunk_parts.h"
#include "store/memory.h"
#include "store/table_parts.h"
#include "store/testing.h"

enum { WIDTH = 24 };

typedef struct world {
  rv_store *store;
  rv_joined joined;
  rv_chunk *like; /* the tests' own, where they have no other: one row came */
} world;

static void begin(world *w, int64_t max_size, int64_t max_bytes)
{
  rv_table_config config = rv_table_config_default("t", max_size);
  config.max_bytes = max_bytes;
  *w = (world){.store = store_of(&config)};
  rv_joined_init(&w->joined, rv_store_memory(w->store), 1);
  rv_error err;
  must(rv_store_find(w->store, "t", 1, &w->joined.table, &err), &err);
  w->joined.streams = 1;
}

/* A chunk that came over the wire, with rows of `width` bytes. */
static rv_chunk *came(size_t rows, int64_t width, bool compress)
{
  rv_error err;
  rv_pieces pieces;
  uint8_t *bytes = calloc(rows, (size_t)width);
  rv_pieces_init(&pieces);
  must(rv_encode(&pieces, RV_UINT8, 1, &width, bytes, (size_t)width, rows, false, compress, &err), &err);
  rv_buf *buf = rv_buf_new(pieces.bytes);
  for (size_t i = 0; i < pieces.count; buf->size += pieces.piece[i++].size)
    memcpy(buf->data + buf->size, pieces.piece[i].data, pieces.piece[i].size);
  const int64_t shape[] = {(int64_t)rows, width};
  const rv_encoded tensor = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .content = buf->data, .content_size = buf->size};
  rv_chunk *chunk = NULL;
  must(rv_chunk_new_encoded_copy(&(rv_chunk_meta){.key = 1}, &tensor, 1, buf->data, buf->size, &chunk, &err), &err);
  rv_pieces_fini(&pieces);
  rv_buf_unref(buf);
  free(bytes);
  return chunk;
}

/* Each byte of its rows is the lowest of the key. */
static bool put(world *w, rv_chunk *like, uint64_t key, uint64_t episode, int32_t first_step, rv_chunk_place *place)
{
  uint8_t bytes[RV_JOINED_CHUNK_BYTES];
  memset(bytes, (int)(key & 255), sizeof bytes);
  const rv_chunk_meta meta = {.key = key,
                              .episode_id = episode,
                              .first_step = first_step,
                              .last_step = first_step + (int32_t)rv_chunk_num_rows(like, 0) - 1};
  const uint8_t *columns[] = {bytes};
  return rv_joined_put(&w->joined, like, &meta, columns, place);
}

/* Of chunks like this one the first few stay by themselves: it is not known how long their run will be. */
static void make_known(world *w, rv_chunk *like)
{
  rv_chunk_place place;
  const int32_t rows = (int32_t)rv_chunk_num_rows(like, 0);
  for (int32_t i = 0; i < 16; i++) {
    bool joined = put(w, like, (uint64_t)i, 1234, i * rows, &place);
    assert_true(joined == (i >= 4));
    if (joined) rv_chunk_unref(place.chunk);
  }
}

static void end(world *w)
{
  rv_joined_fini(&w->joined);
  rv_store_unref(w->store);
}

/* The place has the chunk's rows and says its steps; the reference is dropped. */
static void check(const rv_chunk_place *owned, uint64_t key, uint64_t episode, int32_t first_step)
{
  const rv_chunk_column *column = rv_chunk_get_column(owned->chunk, 0);
  uint8_t bytes[RV_JOINED_CHUNK_BYTES];
  assert_true(owned->is_joined && owned->key == key);
  assert_int_equal(rv_chunk_copy_rows(owned->chunk, 0, owned->first, owned->rows, bytes, NULL), RV_OK);
  for (size_t i = 0; i < (size_t)owned->rows * column->row_bytes; i++) assert_int_equal(bytes[i], key & 255);
  rv_chunk_meta meta = rv_chunk_meta_of_rows(owned->chunk, owned->first, owned->rows);
  assert_int_equal(meta.episode_id, episode);
  assert_int_equal(meta.first_step, first_step);
  assert_int_equal(meta.last_step, first_step + owned->rows - 1);
  assert_false(meta.sparse);
  rv_chunk_unref(owned->chunk);
}

static int set_up(void **state)
{
  static world w;
  begin(&w, 1000000, 0);
  w.like = came(1, WIDTH, false);
  *state = &w;
  return 0;
}

static int tear_down(void **state)
{
  world *w = *state;
  rv_chunk_unref(w->like);
  end(w);
  return 0;
}

static void rows_of_an_episode_stand_one_behind_another(void **state)
{
  (void)state;
  for (int64_t rows = 1; rows <= 5; rows += 4) {
    world w;
    begin(&w, 1000000, 0);
    rv_chunk *like = came((size_t)rows, WIDTH, false), *last = NULL;
    make_known(&w, like);
    rv_chunk_place place[300];
    size_t segments = 0;
    int64_t next = 0;
    for (size_t i = 0; i < 300; i++) {
      assert_true(put(&w, like, i, 7, (int32_t)(i * (size_t)rows), &place[i]));
      if (place[i].chunk != last) next = 0;
      segments += place[i].chunk != last;
      assert_int_equal(place[i].first, next);
      next = place[i].first + rows;
      last = place[i].chunk;
    }
    assert_true(segments < 20);
    for (size_t i = 0; i < 300; i++) check(&place[i], i, 7, (int32_t)(i * (size_t)rows));
    rv_chunk_unref(like);
    end(&w);
  }
}

static void each_episode_has_segments_of_its_own(void **state)
{
  world *w = *state;
  rv_chunk *like = w->like, *before = NULL;
  make_known(w, like);
  rv_chunk_place place;
  for (uint64_t episode = 1; episode < 5; episode++)
    for (int32_t step = 0; step < 20; step++) {
      assert_true(put(w, like, 100 * episode + (uint64_t)step, episode, step, &place));
      if (step == 0) assert_ptr_not_equal(place.chunk, before);
      before = place.chunk;
      check(&place, 100 * episode + (uint64_t)step, episode, step);
    }
}

static void steps_that_are_left_out_or_come_again_are_as_they_were_said(void **state)
{
  world *w = *state;
  rv_chunk *like = came(2, WIDTH, false);
  rv_random random;
  rv_random_init(&random, 5);
  int32_t step = 0;
  size_t joined = 0;
  for (uint64_t key = 0; key < 1000; key++) {
    rv_chunk_place place;
    uint32_t how = rv_random_below(&random, 20);
    if (how < 4) step += 1 + (int32_t)rv_random_below(&random, 10);
    if (how == 4) step = (int32_t)rv_random_below(&random, 50);
    if (put(w, like, key, 3, step, &place)) {
      joined++;
      check(&place, key, 3, step);
    }
    step += 2;
  }
  assert_true(joined > 500);
  rv_chunk_unref(like);
}

static void chunks_of_short_runs_stay_by_themselves(void **state)
{
  world *w = *state;
  rv_chunk *like = w->like;
  rv_chunk_place place;
  uint64_t key = 0;
  for (uint64_t episode = 1; episode <= 20; episode++)
    for (int32_t step = 0; step < 3; step++) assert_false(put(w, like, ++key, episode, step, &place));
  for (int32_t step = 0; step < 50; step++) { /* one becomes long: it does not know that at first */
    bool joined = put(w, like, ++key, 21, step, &place);
    assert_true(joined == (step >= 4));
    if (joined) check(&place, key, 21, step);
  }
  for (int32_t step = 0; step < 50; step++) { /* and the next one does */
    assert_true(put(w, like, ++key, 22, step, &place));
    check(&place, key, 22, step);
  }
}

/* As a pack knows them. */
static void chunks_that_are_known_to_come_are_joined_from_the_second_on(void **state)
{
  enum { MANY = 30 };
  world *w = *state;
  rv_chunk *like = w->like;
  rv_chunk_place place;
  for (int32_t step = 0; step < MANY; step++) {
    w->joined.coming = (size_t)(MANY - 1 - step);
    bool joined = put(w, like, (uint64_t)step, 1, step, &place);
    assert_true(joined == (step > 0));
    if (!joined) continue;
    assert_true(place.first == step - 1 && rv_segment_capacity(place.chunk) == MANY - 1);
    check(&place, (uint64_t)step, 1, step);
  }
}

/* A pack may have any: what is said to come has to be of the run. */
static void chunks_to_come_of_other_runs_take_no_room(void **state)
{
  world *w = *state;
  rv_chunk *like[RV_JOINED_RUNS + 1];
  rv_chunk_place place;
  for (int64_t i = 0; i <= RV_JOINED_RUNS; i++) like[i] = came(1, 8 + i, false);
  w->joined.coming = 1000;
  for (uint64_t episode = 1; episode < 50; episode++) assert_false(put(w, like[0], episode, episode, 0, &place));
  for (int32_t step = 0; step < 50; step++)
    for (size_t i = 0; i <= RV_JOINED_RUNS; i++) assert_false(put(w, like[i], (uint64_t)step, 1, step, &place));
  for (size_t i = 0; i <= RV_JOINED_RUNS; i++) rv_chunk_unref(like[i]);
}

static void segments_are_small_beside_what_their_table_may_have(void **state)
{
  (void)state;
  rv_chunk *like = came(1, WIDTH, false);
  rv_chunk_place place;
  const struct {
    int64_t max_size, max_bytes;
    size_t streams;
    int64_t rows;
  } cases[] = {{80, 0, 2, 5},
               {8, 0, 1, 0},
               {1000000, 64 * WIDTH * 12, 3, 4},
               {1000000, 64 * WIDTH, 1, 0},
               {1000000, 0, 1, (1 << 14) / WIDTH}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    world w;
    begin(&w, cases[i].max_size, cases[i].max_bytes);
    w.joined.streams = cases[i].streams;
    for (int32_t step = 0; step < 5000; step++) {
      bool joined = put(&w, like, (uint64_t)step, 1, step, &place);
      assert_true(joined == (cases[i].rows > 0 && step >= 4));
      if (!joined) continue;
      assert_true(rv_segment_capacity(place.chunk) <= cases[i].rows &&
                  (step < 4000 || rv_segment_capacity(place.chunk) == cases[i].rows));
      check(&place, (uint64_t)step, 1, step);
    }
    end(&w);
  }
  rv_chunk_unref(like);
}

static void only_chunks_of_few_bytes_may_be_joined(void **state)
{
  (void)state;
  const struct {
    size_t rows;
    int64_t width;
    bool compress, takes;
  } cases[] = {{1, 512, false, true},   {16, 256, false, true}, {1, 513, false, false},
               {16, 257, false, false}, {16, 64, true, true},   {16, 65, true, false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rv_chunk *like = came(cases[i].rows, cases[i].width, cases[i].compress);
    assert_true(rv_joined_takes(like) == cases[i].takes);
    rv_chunk_unref(like);
  }
  rv_chunk *segment = chunk_of(1, 1);
  assert_false(rv_joined_takes(segment));
  rv_chunk_unref(segment);
}

/* Its stream keeps one of each kind. */
static void a_chunk_of_few_rows_and_many_other_bytes_is_not_joined(void **state)
{
  (void)state;
  const int64_t shape[] = {1, 1};
  const size_t other = 2 * RV_JOINED_BYTES;
  rv_error err;
  rv_chunk *chunk;
  uint8_t *message = calloc(1, other);
  const rv_encoded tensor = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .content = message, .content_size = 2};
  message[0] = 1; /* a literal of one byte */
  for (size_t size = 64; size <= other; size += other - 64) {
    must(rv_chunk_new_encoded_copy(&(rv_chunk_meta){.key = 1}, &tensor, 1, message, size, &chunk, &err), &err);
    assert_true(rv_joined_takes(chunk) == (size == 64));
    rv_chunk_unref(chunk);
  }
  free(message);
}

/* Segments of which chunks are kept count with these. */
static void what_a_stream_has_of_its_own_is_counted(void **state)
{
  world *w = *state;
  rv_chunk_place place;
  assert_int_equal(rv_joined_bytes(&w->joined), 0);
  make_known(w, w->like);
  const size_t all = rv_joined_bytes(&w->joined);
  assert_true(put(w, w->like, 1, 1, 0, &place));
  const size_t segment = rv_chunk_memory(place.chunk);
  assert_true(all > rv_chunk_memory(w->like) && rv_joined_bytes(&w->joined) > segment);
  assert_true(rv_joined_keep(place.chunk));
  assert_int_equal(rv_joined_bytes(&w->joined), rv_chunk_memory(w->like));
  assert_true(rv_joined_let_go(place.chunk));
  rv_chunk_unref(place.chunk);
  assert_int_equal(rv_joined_bytes(&w->joined), segment + rv_chunk_memory(w->like));
}

/* So that a stream that keeps a chunk of each kind keeps no more than it may (a quarter of the limit, among all streams). */
static void segments_of_many_kinds_are_smaller(void **state)
{
  (void)state;
  enum { BOUND = 64 * 8192 };
  world w;
  rv_chunk *likes[RV_JOINED_RUNS];
  rv_chunk_place place;
  begin(&w, 1000000, BOUND);
  for (int64_t i = 0; i < RV_JOINED_RUNS; i++) likes[i] = came(1, WIDTH + i, false);
  size_t bytes = 0;
  for (int32_t step = 0; step < 2000; step++) {
    bytes = 0;
    for (size_t i = 0; i < RV_JOINED_RUNS; i++) {
      if (!put(&w, likes[i], (uint64_t)step, 1, step, &place)) continue;
      bytes += (size_t)rv_segment_capacity(place.chunk) * (WIDTH + i);
      check(&place, (uint64_t)step, 1, step);
    }
  }
  assert_true(bytes > BOUND / 32 && bytes <= BOUND / 16);
  for (size_t i = 0; i < RV_JOINED_RUNS; i++) rv_chunk_unref(likes[i]);
  end(&w);
}

/* A slice of no rows may stand there. */
static void behind_the_last_row_no_step_is_known(void **state)
{
  world *w = *state;
  rv_chunk_place place;
  make_known(w, w->like);
  int with_steps = 0;
  for (int32_t i = 0; i < 40; i++) { /* every second step is left out: their rows' steps are kept */
    if (!put(w, w->like, (uint64_t)i, 1, 2 * i, &place)) continue;
    assert_int_equal(rv_chunk_row_step(place.chunk, place.first), 2 * i);
    const bool kept = place.chunk->steps != NULL;
    if (kept) assert_int_equal(rv_chunk_row_step(place.chunk, rv_segment_capacity(place.chunk)), -1);
    with_steps += kept;
    rv_chunk_unref(place.chunk);
  }
  assert_true(with_steps > 20);
}

static void what_is_no_run_of_steps_or_has_no_table_yet_stays_by_itself(void **state)
{
  world *w = *state;
  rv_chunk *like = came(3, WIDTH, false);
  const rv_chunk_meta others[] = {{.key = 1, .episode_id = 1, .first_step = 0, .last_step = 3},
                                  {.key = 1, .episode_id = 1, .first_step = 5, .last_step = 3},
                                  {.key = 1, .episode_id = 1, .first_step = -1, .last_step = 1},
                                  {.key = 1, .episode_id = 1, .first_step = 0, .last_step = 2, .sparse = true}};
  static const uint8_t bytes[3 * WIDTH];
  const uint8_t *columns[] = {bytes};
  rv_chunk_place place;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    assert_false(rv_joined_put(&w->joined, like, &others[i], columns, &place));
  w->joined.table = NULL;
  assert_false(put(w, like, 1, 1, 0, &place));
  rv_chunk_unref(like);
}

static void rows_of_no_episode_are_joined_whatever_their_steps(void **state)
{
  world *w = *state;
  rv_chunk *like = w->like;
  make_known(w, like);
  rv_chunk_place place;
  size_t segments = 0;
  for (uint64_t key = 0; key < 40; key++) {
    const int32_t step = (int32_t)(7 * key % 11);
    assert_true(put(w, like, key, RV_NO_EPISODE, step, &place));
    segments += place.first == 0;
    check(&place, key, RV_NO_EPISODE, step);
  }
  assert_true(segments < 4);
}

static void kinds_of_chunks_are_joined_side_by_side(void **state)
{
  world *w = *state;
  rv_chunk *like[RV_JOINED_RUNS], *last[RV_JOINED_RUNS] = {NULL};
  rv_chunk_place place;
  size_t segments = 0;
  for (int64_t i = 0; i < RV_JOINED_RUNS; i++) like[i] = came(1, 8 + i, false);
  for (int32_t step = 0; step < 200; step++)
    for (size_t i = 0; i < RV_JOINED_RUNS; i++) {
      bool joined = put(w, like[i], (uint64_t)step, 1, step, &place);
      assert_true(joined == (step >= 4));
      if (!joined) continue;
      segments += place.chunk != last[i];
      last[i] = place.chunk;
      check(&place, (uint64_t)step, 1, step);
    }
  assert_true(segments < 7 * RV_JOINED_RUNS);
  for (size_t i = 0; i < RV_JOINED_RUNS; i++) rv_chunk_unref(like[i]);
}

/* As plain Reverb sends them, a chunk for each column. Where one of those that look alike leaves steps out they may take each other's place. */
static void columns_that_look_alike_have_a_run_each(void **state)
{
  enum { ALIKE = 3 };
  world *w = *state;
  rv_chunk *like = came(1, 4, false), *last[ALIKE] = {NULL};
  rv_chunk_place place;
  size_t segments = 0;
  for (uint64_t episode = 1; episode <= 3; episode++)
    for (int32_t step = 0; step < 100; step++)
      for (size_t i = 0; i < ALIKE; i++) {
        if (episode == 3 && i == 1 && step % 3 == 0) continue;
        if (!put(w, like, 10 * (uint64_t)step + i, episode, step, &place)) continue;
        segments += episode < 3 && place.chunk != last[i];
        last[i] = place.chunk;
        check(&place, 10 * (uint64_t)step + i, episode, step);
      }
  assert_true(segments < 2 * 6 * ALIKE);
  rv_chunk_unref(like);
}

/* Each takes the place of another, again and again: none takes room for rows that never come. */
static void of_too_many_kinds_chunks_stay_by_themselves(void **state)
{
  world *w = *state;
  rv_chunk *like[RV_JOINED_RUNS + 1];
  rv_chunk_place place;
  for (int64_t i = 0; i <= RV_JOINED_RUNS; i++) like[i] = came(1, 8 + i, false);
  for (int32_t step = 0; step < 50; step++)
    for (size_t i = 0; i <= RV_JOINED_RUNS; i++) assert_false(put(w, like[i], (uint64_t)step, 1, step, &place));
  for (size_t i = 0; i <= RV_JOINED_RUNS; i++) rv_chunk_unref(like[i]);
}

static void segments_are_in_the_account_until_nobody_has_them(void **state)
{
  world *w = *state;
  rv_memory *memory = rv_store_memory(w->store);
  rv_chunk *like = came(1, WIDTH, false);
  const size_t before = rv_memory_used(memory), kind = rv_chunk_memory(like); /* which the run keeps */
  rv_chunk_place place;
  w->joined.coming = 20;
  assert_false(put(w, like, 1, 1, 0, &place));
  assert_true(put(w, like, 2, 1, 1, &place));
  assert_int_equal(rv_memory_used(memory) - before, rv_chunk_memory(place.chunk) + kind);
  rv_joined_fini(&w->joined);
  assert_int_equal(rv_memory_used(memory) - before, rv_chunk_memory(place.chunk) + kind);
  rv_chunk_unref(place.chunk);
  assert_int_equal(rv_memory_used(memory) - before, kind);
  rv_chunk_unref(like);
  assert_int_equal(rv_memory_used(memory), before);
}

static void of_chunks_in_one_segment_the_first_and_the_last_that_is_kept_count(void **state)
{
  world *w = *state;
  rv_chunk *like = w->like;
  make_known(w, like);
  rv_chunk_place place;
  assert_true(put(w, like, 1, 1, 0, &place));
  assert_true(rv_joined_keep(place.chunk));
  assert_false(rv_joined_keep(place.chunk));
  assert_false(rv_joined_let_go(place.chunk));
  assert_true(rv_joined_let_go(place.chunk));
  assert_true(rv_joined_keep(place.chunk));
  rv_chunk_unref(place.chunk);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_an_episode_stand_one_behind_another),
      cmocka_unit_test_setup_teardown(each_episode_has_segments_of_its_own, set_up, tear_down),
      cmocka_unit_test_setup_teardown(steps_that_are_left_out_or_come_again_are_as_they_were_said, set_up, tear_down),
      cmocka_unit_test_setup_teardown(chunks_of_short_runs_stay_by_themselves, set_up, tear_down),
      cmocka_unit_test_setup_teardown(chunks_that_are_known_to_come_are_joined_from_the_second_on, set_up, tear_down),
      cmocka_unit_test_setup_teardown(chunks_to_come_of_other_runs_take_no_room, set_up, tear_down),
      cmocka_unit_test(segments_are_small_beside_what_their_table_may_have),
      cmocka_unit_test(only_chunks_of_few_bytes_may_be_joined),
      cmocka_unit_test(a_chunk_of_few_rows_and_many_other_bytes_is_not_joined),
      cmocka_unit_test_setup_teardown(what_a_stream_has_of_its_own_is_counted, set_up, tear_down),
      cmocka_unit_test(segments_of_many_kinds_are_smaller),
      cmocka_unit_test_setup_teardown(behind_the_last_row_no_step_is_known, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_no_run_of_steps_or_has_no_table_yet_stays_by_itself, set_up, tear_down),
      cmocka_unit_test_setup_teardown(rows_of_no_episode_are_joined_whatever_their_steps, set_up, tear_down),
      cmocka_unit_test_setup_teardown(kinds_of_chunks_are_joined_side_by_side, set_up, tear_down),
      cmocka_unit_test_setup_teardown(columns_that_look_alike_have_a_run_each, set_up, tear_down),
      cmocka_unit_test_setup_teardown(of_too_many_kinds_chunks_stay_by_themselves, set_up, tear_down),
      cmocka_unit_test_setup_teardown(segments_are_in_the_account_until_nobody_has_them, set_up, tear_down),
      cmocka_unit_test_setup_teardown(of_chunks_in_one_segment_the_first_and_the_last_that_is_kept_count, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
