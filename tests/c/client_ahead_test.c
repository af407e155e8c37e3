/* Many batches in a row: from a server some are drawn before they are asked for. What a caller may rely on stays. */
#include <stdatomic.h>

#include "client_fixture.h"

enum { HABIT = 40, B = 4 };

static rv_batch *draw(rv_client *client, const char *table)
{
  rv_error err;
  rv_batch *batch;
  assert_ok(rv_client_sample_batch(client, table, B, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
  assert_int_equal(rv_batch_size(batch), B);
  return batch;
}

static void draw_many(rv_client *client, const char *table)
{
  for (int i = 0; i < HABIT; i++) rv_batch_free(draw(client, table));
}

static void read_values(rv_batch *batch, float values[B])
{
  rv_error err;
  float data[B][2];
  assert_ok(rv_batch_gather(batch, 0, data, sizeof data, &err));
  for (int i = 0; i < B; i++) {
    assert_true(data[i][1] == data[i][0] + 0.5f);
    values[i] = data[i][0];
  }
}

static void expect_only(rv_client *client, const char *table, float lowest, float highest)
{
  for (int n = 0; n < HABIT; n++) {
    float values[B];
    rv_batch *batch = draw(client, table);
    read_values(batch, values);
    for (int i = 0; i < B; i++) assert_true(values[i] >= lowest && values[i] <= highest);
    rv_batch_free(batch);
  }
}

TEST(batches_in_a_row_are_of_the_table_and_of_random_items)
{
  add_values(f->client, "replay", 8);
  int seen[8] = {0};
  for (int n = 0; n < 400; n++) {
    float values[B];
    rv_batch *batch = draw(f->client, "replay");
    read_values(batch, values);
    for (int i = 0; i < B; i++) seen[(int)values[i]]++;
    rv_batch_free(batch);
  }
  for (int i = 0; i < 8; i++) assert_in_range(seen[i], 100, 320); /* 200 expected, sigma 13 */
}

TEST(after_a_deletion_no_batch_has_what_was_deleted)
{
  rv_error err;
  uint64_t first;
  assert_ok(add_value(f->client, "replay", 0, 1.0, &first, &long_enough, &err));
  for (int i = 1; i < 4; i++) assert_ok(add_value(f->client, "replay", (float)i, 1.0, NULL, &long_enough, &err));
  draw_many(f->client, "replay");
  assert_ok(rv_client_mutate(f->client, "replay", NULL, 0, &first, 1, NULL, NULL, &long_enough, &err));
  expect_only(f->client, "replay", 1, 3);
}

TEST(after_a_priority_is_zero_no_batch_has_the_item)
{
  rv_error err;
  uint64_t first;
  assert_ok(add_value(f->client, "per", 0, 1.0, &first, &long_enough, &err));
  for (int i = 1; i < 4; i++) assert_ok(add_value(f->client, "per", (float)i, 1.0, NULL, &long_enough, &err));
  draw_many(f->client, "per");
  double zero = 0;
  assert_ok(rv_client_update_priorities(f->client, "per", &first, &zero, 1, NULL, NULL, &long_enough, &err));
  expect_only(f->client, "per", 1, 3);
}

TEST(after_a_reset_there_is_nothing_to_draw_until_something_is_added)
{
  rv_error err;
  rv_batch *batch;
  add_values(f->client, "replay", 4);
  draw_many(f->client, "replay");
  assert_ok(rv_client_reset(f->client, "replay", &long_enough, &err));
  assert_code(rv_client_sample_batch(f->client, "replay", B, RV_UNEQUAL_ERROR, &at_once, &batch, &err), RV_DEADLINE_EXCEEDED);
  assert_ok(add_value(f->client, "replay", 7, 1.0, NULL, &long_enough, &err));
  expect_only(f->client, "replay", 7, 7);
}

TEST(what_was_added_can_be_drawn_at_once)
{
  rv_error err;
  uint64_t key;
  assert_ok(add_value(f->client, "per", 0, 1.0, &key, &long_enough, &err));
  draw_many(f->client, "per");
  assert_ok(add_value(f->client, "per", 1, 1e9, NULL, &long_enough, &err));
  float values[B];
  rv_batch *batch = draw(f->client, "per");
  read_values(batch, values);
  for (int i = 0; i < B; i++) assert_true(values[i] == 1); /* the other has a billionth */
  rv_batch_free(batch);
}

TEST(where_items_go_after_one_sample_none_is_drawn_ahead)
{
  rv_error err;
  for (int i = 0; i < HABIT; i++) {
    rv_batch *batch;
    assert_ok(add_value(f->client, "queue", (float)i, 1.0, NULL, &long_enough, &err));
    assert_ok(add_value(f->client, "queue", (float)i, 1.0, NULL, &long_enough, &err));
    assert_ok(rv_client_sample_batch(f->client, "queue", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    rv_batch_free(batch);
    assert_int_equal(table_size(f, "queue"), 1);
    assert_ok(rv_client_sample_batch(f->client, "queue", 1, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    rv_batch_free(batch);
  }
}

TEST(items_of_another_length_are_noticed_in_the_middle_of_a_row)
{
  rv_error err;
  rv_batch *batch;
  put_sequence(f, "replay", 0, 3);
  draw_many(f->client, "replay");
  put_sequence(f, "replay", 100, 2);
  rv_code code = RV_OK;
  for (int i = 0; i < 100000 && code == RV_OK; i++) {
    code = rv_client_sample_batch(f->client, "replay", B, RV_UNEQUAL_ERROR, &long_enough, &batch, &err);
    if (code == RV_OK) rv_batch_free(batch);
  }
  assert_int_equal(code, RV_FAILED_PRECONDITION);
}

TEST(another_size_and_another_table_in_the_middle_of_a_row_get_what_they_ask_for)
{
  rv_error err;
  rv_batch *batch;
  add_values(f->client, "replay", 4);
  for (int i = 0; i < 4; i++) assert_ok(add_value(f->client, "per", (float)(100 + i), 1.0, NULL, &long_enough, &err));
  for (size_t n = 1; n < 30; n++) {
    draw_many(f->client, "replay");
    expect_only(f->client, "per", 100, 103);
    assert_ok(rv_client_sample_batch(f->client, "replay", n, RV_UNEQUAL_ERROR, &long_enough, &batch, &err));
    assert_int_equal(rv_batch_size(batch), n);
    rv_batch_free(batch);
  }
}

typedef struct drawer {
  pthread_t thread;
  rv_client *client;
  const char *table;
  float lowest;
} drawer;

static void *draw_and_check(void *argument)
{
  drawer *d = argument;
  for (int i = 0; i < 5; i++) expect_only(d->client, d->table, d->lowest, d->lowest + 3);
  return NULL;
}

TEST(threads_that_share_a_client_get_batches_of_their_own_tables)
{
  rv_error err;
  drawer drawers[6];
  add_values(f->client, "replay", 4);
  for (int i = 0; i < 4; i++) assert_ok(add_value(f->client, "per", (float)(100 + i), 1.0, NULL, &long_enough, &err));
  for (int i = 0; i < 6; i++) {
    drawers[i] = (drawer){.client = f->client, .table = i % 2 == 0 ? "replay" : "per", .lowest = i % 2 == 0 ? 0.0f : 100.0f};
    assert_int_equal(pthread_create(&drawers[i].thread, NULL, draw_and_check, &drawers[i]), 0);
  }
  for (int i = 0; i < 6; i++) pthread_join(drawers[i].thread, NULL);
}

TEST(a_server_that_comes_again_goes_on_with_the_row)
{
  add_values(f->client, "replay", 4);
  draw_many(f->client, "replay");
  if (f->way == IN_PROCESS) return;
  stop_server(f);
  start_server(f);
  expect_only(f->client, "replay", 0, 3);
}

typedef struct canceller {
  fixture *f;
  rv_cancel *cancel;
} canceller;

static void *cancel_when_it_waits(void *argument)
{
  canceller *c = argument;
  wait_for_waiting(c->f, "replay", 0, 1);
  rv_cancel_fire(c->cancel);
  return NULL;
}

TEST(a_row_that_comes_to_wait_can_be_cancelled)
{
  rv_error err;
  rv_batch *batch;
  rv_table *table;
  add_values(f->client, "replay", 4);
  draw_many(f->client, "replay");
  assert_ok(rv_store_find(f->store, "replay", strlen("replay"), &table, &err));
  assert_ok(rv_table_reset(table, &err)); /* not through the client: what was drawn ahead may still be given out */
  canceller c = {.f = f};
  assert_ok(rv_cancel_new(&c.cancel, &err));
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, cancel_when_it_waits, &c), 0);
  rv_wait wait = {.timeout_ms = RV_FOREVER, .cancel = c.cancel};
  rv_code code;
  while ((code = rv_client_sample_batch(f->client, "replay", B, RV_UNEQUAL_ERROR, &wait, &batch, &err)) == RV_OK)
    rv_batch_free(batch);
  assert_int_equal(code, RV_CANCELLED);
  pthread_join(thread, NULL);
  rv_cancel_free(c.cancel);
}

/* ---- what others change: A draws, and B changes the table ---- */

/* A clock that the test puts forward. */
typedef struct forward_world {
  rv_env real;
  atomic_llong by_ns;
} forward_world;

static int64_t forward_clock(void *context)
{
  forward_world *world = context;
  return world->real.monotonic_ns(world->real.context) + atomic_load(&world->by_ns);
}

static void forward(forward_world *world, int ms)
{
  atomic_fetch_add(&world->by_ns, (long long)ms * 1000000);
}

static rv_client *client_with(fixture *f, forward_world *world, int64_t (*clock)(void *context))
{
  rv_error err;
  rv_env_default(&world->real);
  atomic_init(&world->by_ns, 0);
  const rv_env env = {.size = sizeof env, .context = world, .monotonic_ns = clock};
  rv_client_config config = {.size = sizeof config, .env = &env, .peer_timeout_ms = -1};
  if (f->way == IN_PROCESS)
    config.store = f->store;
  else
    config.address = f->address;
  rv_client *client;
  assert_ok(rv_client_new(&config, &client, &err));
  return client;
}

static rv_client *client_with_clock(fixture *f, forward_world *world)
{
  return client_with(f, world, forward_clock);
}

static void let_items_go_after_one_sample(fixture *f)
{
  rv_error err;
  rv_table_bounds once = rv_table_bounds_unchanged();
  once.max_times_sampled = 1;
  assert_ok(rv_client_set_bounds(f->client, "replay", &once, &long_enough, &err));
}

/* What was drawn ahead of the batches in a row, if anything was, is dropped, and the server has heard of it. */
static void end_the_row(rv_client *client)
{
  rv_batch_free(draw(client, "per"));
}

TEST(a_row_that_begins_anew_begins_with_what_others_have_changed)
{
  static forward_world world; /* the client's thread may outlive a failed test */
  rv_client *a = client_with_clock(f, &world);
  add_values(f->client, "replay", 8);
  add_values(f->client, "per", B);
  draw_many(a, "replay");
  end_the_row(a);
  let_items_go_after_one_sample(f);
  add_values(f->client, "replay", 900);
  int64_t before = table_size(f, "replay");
  forward(&world, 2000);
  draw_many(a, "replay");
  end_the_row(a);
  assert_int_equal(table_size(f, "replay"), before - HABIT * B);
  rv_client_free(a);
}

TEST(after_a_pause_nothing_is_given_out_that_was_drawn_before_it)
{
  rv_error err;
  static forward_world world; /* the client's thread may outlive a failed test */
  rv_client *a = client_with_clock(f, &world);
  uint64_t deleted[4];
  for (int i = 0; i < 4; i++) assert_ok(add_value(f->client, "replay", (float)i, 1.0, &deleted[i], &long_enough, &err));
  for (int i = 4; i < 8; i++) assert_ok(add_value(f->client, "replay", (float)i, 1.0, NULL, &long_enough, &err));
  for (int pause = 0; pause < 4; pause++) {
    draw_many(a, "replay");
    assert_ok(rv_client_mutate(f->client, "replay", NULL, 0, &deleted[pause], 1, NULL, NULL, &long_enough, &err));
    forward(&world, 2000);
    expect_only(a, "replay", (float)(pause + 1), 7);
  }
  rv_client_free(a);
}

TEST(a_row_that_pauses_loses_nothing_of_what_became_a_queue)
{
  static forward_world world; /* the client's thread may outlive a failed test */
  rv_client *a = client_with_clock(f, &world);
  add_values(f->client, "replay", 8);
  draw_many(a, "replay");
  let_items_go_after_one_sample(f);
  add_values(f->client, "replay", 900);
  forward(&world, 2000);
  draw_many(a, "replay"); /* by then the server has done with what was asked for before the pause */
  int64_t before = table_size(f, "replay");
  draw_many(a, "replay");
  assert_int_equal(table_size(f, "replay"), before - HABIT * B);
  rv_client_free(a);
}

/* Of each value how often it was drawn. */
static void draw_slowly(rv_client *client, forward_world *world, int batches, int drawn[1000])
{
  for (int n = 0; n < batches; n++) {
    float values[B];
    rv_batch *batch = draw(client, "replay");
    read_values(batch, values);
    rv_batch_free(batch);
    for (int i = 0; i < B; i++) drawn[(int)values[i]]++;
    forward(world, 20);
  }
}

TEST(a_row_goes_over_to_what_others_have_changed_and_loses_nothing)
{
  enum { N = 900 };
  rv_error err;
  static forward_world world; /* the client's thread may outlive a failed test */
  rv_client *a = client_with_clock(f, &world);
  int drawn[1000] = {0};
  add_values(f->client, "replay", N);
  add_values(f->client, "per", B);
  draw_slowly(a, &world, HABIT, drawn);
  let_items_go_after_one_sample(f);
  draw_slowly(a, &world, 60, drawn);
  for (int i = 0; i < 3; i++) {
    draw_slowly(a, &world, 15, drawn);
    end_the_row(a);
  }
  uint64_t cursor = 0;
  bool is_there[N] = {false};
  for (;;) {
    rv_item_info page[100];
    size_t count;
    assert_ok(rv_client_items(f->client, "replay", &cursor, page, 100, &count, &long_enough, &err));
    for (size_t i = 0; i < count; i++) {
      rv_sample *sample;
      assert_ok(rv_client_get(f->client, "replay", page[i].key, &long_enough, &sample, &err));
      is_there[(int)sample_value(sample)] = true;
      rv_sample_unref(sample);
    }
    if (cursor == 0) break;
  }
  for (int i = 0; i < N; i++) assert_true(is_there[i] || drawn[i] > 0);
  rv_client_free(a);
}

/* A caller's wait in which nothing comes until half a second has passed by the client's clock, and then what the own request of the
 * waiting batch is there for. */
typedef struct dry_spell {
  fixture *f;
  forward_world *world;
  int asked;
} dry_spell;

static void let_half_a_second_pass(void *context)
{
  dry_spell *spell = context;
  forward(spell->world, 600);
}

static bool end_the_spell(void *context)
{
  dry_spell *spell = context;
  if (spell->asked++ == 0)
    forward(spell->world, 100); /* it is asked again, later than this wait lasts */
  else if (spell->asked == 2)
    add_values(spell->f->client, "replay", B);
  return false;
}

static int64_t standing_clock(void *context)
{
  forward_world *world = context;
  return 1000000000 + atomic_load(&world->by_ns);
}

TEST(a_row_goes_on_after_a_wait_in_which_nothing_came)
{
  static forward_world world; /* the client's thread may outlive a failed test */
  rv_error err;
  rv_table *table;
  rv_client *a = client_with(f, &world, standing_clock);
  assert_ok(rv_store_find(f->store, "replay", strlen("replay"), &table, &err));
  for (int round = 0; round < 3; round++) {
    add_values(f->client, "replay", 8);
    draw_many(a, "replay");
    usleep(20000); /* what is on its way comes, so that it ends with a whole batch */
    assert_ok(rv_table_reset(table, &err));
    dry_spell spell = {.f = f, .world = &world};
    rv_wait wait = {
        .timeout_ms = RV_FOREVER, .context = &spell, .blocking = let_half_a_second_pass, .interrupted = end_the_spell};
    while (spell.asked < 2) {
      rv_batch *batch;
      assert_ok(rv_client_sample_batch(a, "replay", B, RV_UNEQUAL_ERROR, &wait, &batch, &err));
      rv_batch_free(batch);
    }
    for (int n = 0; n < 300; n++) {
      rv_batch_free(draw(a, "replay"));
      atomic_fetch_add(&world.by_ns, 6); /* an average that lost half a second comes by -1 this way, and stays there */
    }
  }
  rv_client_free(a);
}

TEST(a_server_that_comes_again_with_a_queue_is_not_drawn_ahead_of)
{
  enum { N = 900 };
  rv_error err;
  add_values(f->client, "replay", 4);
  draw_many(f->client, "replay");
  if (f->way == IN_PROCESS) return;
  stop_server(f);
  rv_store_unref(f->store);
  rv_table_config queue = rv_table_config_default("replay", N);
  queue.sampler.kind = queue.remover.kind = RV_SELECTOR_FIFO;
  queue.max_times_sampled = 1;
  rv_store_config config = {.size = sizeof config, .tables = &queue, .num_tables = 1};
  assert_ok(rv_store_new(&config, &f->store, &err));
  start_server(f);
  rv_client *b = new_client(f);
  for (int i = 0; i < N; i++) assert_ok(add_value(b, "replay", (float)(1000 + i), 1.0, NULL, &long_enough, &err));
  for (int given = 0; given < HABIT * B;) {
    float values[B];
    rv_batch *batch = draw(f->client, "replay");
    read_values(batch, values);
    rv_batch_free(batch);
    for (int i = 0; i < B; i++)
      if (values[i] >= 1000) assert_true(values[i] == (float)(1000 + given++));
    assert_int_equal(table_size(f, "replay"), N - given);
  }
  rv_client_free(b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      EVERY_WAY(batches_in_a_row_are_of_the_table_and_of_random_items),
      EVERY_WAY(after_a_deletion_no_batch_has_what_was_deleted),
      EVERY_WAY(after_a_priority_is_zero_no_batch_has_the_item),
      EVERY_WAY(after_a_reset_there_is_nothing_to_draw_until_something_is_added),
      EVERY_WAY(what_was_added_can_be_drawn_at_once),
      EVERY_WAY(where_items_go_after_one_sample_none_is_drawn_ahead),
      EVERY_WAY(items_of_another_length_are_noticed_in_the_middle_of_a_row),
      EVERY_WAY(another_size_and_another_table_in_the_middle_of_a_row_get_what_they_ask_for),
      EVERY_WAY(threads_that_share_a_client_get_batches_of_their_own_tables),
      EVERY_WAY(a_server_that_comes_again_goes_on_with_the_row),
      EVERY_WAY(a_row_that_comes_to_wait_can_be_cancelled),
      EVERY_WAY(a_row_that_begins_anew_begins_with_what_others_have_changed),
      EVERY_WAY(after_a_pause_nothing_is_given_out_that_was_drawn_before_it),
      EVERY_WAY(a_row_that_pauses_loses_nothing_of_what_became_a_queue),
      EVERY_WAY(a_row_goes_over_to_what_others_have_changed_and_loses_nothing),
      EVERY_WAY(a_row_goes_on_after_a_wait_in_which_nothing_came),
      EVERY_WAY(a_server_that_comes_again_with_a_queue_is_not_drawn_ahead_of),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
