/* Rows of many episodes that come in turns are joined, each to those of its own. */
#include "persist/joined_episodes.h"

#include "persist/stores_testing.h"
#include "store/chunk_parts.h"
#include "store/memory.h"

enum { STEPS = 60 };

typedef struct world {
  rv_store *store;
  rv_joined_episodes all;
  rv_chunk *like;
} world;

/* A chunk of one row of one number, as it comes. */
static rv_chunk *one_number(void)
{
  rv_error err;
  rv_pieces pieces;
  rv_chunk *chunk;
  const int64_t number = 0, rows = 1;
  rv_pieces_init(&pieces);
  must(rv_encode(&pieces, RV_INT64, 0, NULL, &number, sizeof number, 1, false, false, &err), &err);
  rv_buf *buf = rv_buf_new(pieces.bytes);
  for (size_t i = 0; i < pieces.count; buf->size += pieces.piece[i++].size)
    memcpy(buf->data + buf->size, pieces.piece[i].data, pieces.piece[i].size);
  const rv_encoded tensor = {.dtype = RV_INT64, .rank = 1, .shape = &rows, .content = buf->data, .content_size = buf->size};
  must(rv_chunk_new_encoded_copy(&(rv_chunk_meta){.key = 1}, &tensor, 1, buf->data, buf->size, &chunk, &err), &err);
  rv_pieces_fini(&pieces);
  rv_buf_unref(buf);
  return chunk;
}

static world begin(void)
{
  const rv_table_config config = rv_table_config_default("t", 100000);
  world w = {.store = new_store(&config, 1), .like = one_number()};
  rv_joined_episodes_init(&w.all, rv_store_memory(w.store), 1);
  return w;
}

/* Everything is counted as gone. */
static void end(world *w)
{
  rv_joined_episodes_fini(&w->all);
  rv_chunk_unref(w->like);
  assert_int_equal(rv_memory_used(rv_store_memory(w->store)), 0);
  rv_store_unref(w->store);
}

static bool put(world *w, uint64_t episode, int32_t step, rv_chunk_place *out)
{
  const int64_t number = (int64_t)episode * 1000 + step;
  const uint8_t *columns[] = {(const uint8_t *)&number};
  const rv_chunk_meta meta = {.key = (uint64_t)number, .episode_id = episode, .first_step = step, .last_step = step};
  rv_joined *joined = rv_joined_episodes_get(&w->all, episode, rv_store_table(w->store, 0));
  assert_non_null(joined);
  return rv_joined_put(joined, w->like, &meta, columns, out);
}

static void check(rv_chunk_place *owned, uint64_t episode, int32_t step)
{
  int64_t number;
  const rv_chunk_meta meta = rv_chunk_meta_of_rows(owned->chunk, owned->first, 1);
  assert_int_equal(rv_chunk_copy_rows(owned->chunk, 0, owned->first, 1, &number, NULL), RV_OK);
  assert_int_equal(number, (int64_t)episode * 1000 + step);
  assert_true(meta.episode_id == episode && meta.first_step == step);
  rv_chunk_unref(owned->chunk);
}

/* From their second row on; a few segments of each. */
static void episodes_in_turns_have_segments_of_their_own(void **state)
{
  (void)state;
  enum { EPISODES = 300 };
  world w = begin();
  rv_chunk_place *places = calloc((size_t)EPISODES * STEPS, sizeof *places);
  for (int32_t step = 0; step < STEPS; step++)
    for (uint64_t episode = 0; episode < EPISODES; episode++)
      assert_true(put(&w, episode, step, &places[episode * STEPS + (uint64_t)step]) == (step > 0));
  for (uint64_t episode = 0; episode < EPISODES; episode++) {
    const rv_chunk_place *own = &places[episode * STEPS];
    int segments = 0;
    for (int32_t step = 1; step < STEPS; step++) segments += step == 1 || own[step].chunk != own[step - 1].chunk;
    assert_true(segments <= 5);
    for (int32_t step = 1; step < STEPS; step++) check(&places[episode * STEPS + (uint64_t)step], episode, step);
  }
  free(places);
  end(&w);
}

/* Which may be any number in the end. */
static void those_that_nothing_came_of_make_room_for_others(void **state)
{
  (void)state;
  enum { EPISODES = 20000, LASTS = 7 };
  world w = begin();
  rv_chunk_place place;
  int32_t joined = 0;
  for (int32_t i = 0; i < EPISODES; i++) {
    for (int32_t step = 0; step < 2; step++)
      if (put(&w, 1000 + (uint64_t)i, step, &place)) check(&place, 1000 + (uint64_t)i, step);
    if (i % 100 != 0) continue;
    if (!put(&w, LASTS, i / 100, &place)) continue;
    joined++;
    check(&place, LASTS, i / 100);
  }
  assert_true(joined > EPISODES / 100 - 10); /* it is forgotten a few times at most */
  assert_true(w.all.count < 5000);
  end(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(episodes_in_turns_have_segments_of_their_own),
                                     cmocka_unit_test(those_that_nothing_came_of_make_room_for_others)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
