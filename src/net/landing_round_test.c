/* Blocks of many connections of one loop: they come back and are given again though their connections are not read, rows that have landed
 * leave room for others, and no round holds its thread up for long. */
#include "net/landing_testing.h"

enum { LARGE = 400000, MANY = 200, MILLISECOND = 1000000 };

/* The connection wants blocks of that size, and has been given some. */
static void begin_to_write(const pair *p)
{
  rv_buf_unref(put_row(p, LARGE, 'a'));
}

static void what_a_writer_lets_go_of_comes_back_when_another_is_served(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s), q = connect_pair(s);
  static rv_buf *rows[MANY];
  begin_to_write(&p);
  begin_to_write(&q);
  size_t count = take_all(&p, LARGE, rows, MANY);
  drop_all(rows, count);
  assert_null(rv_landing_take(p.client, LARGE));
  assert_true(rv_landing_end_serve(q.end)); /* the last round has only just been */
  assert_null(rv_landing_take(p.client, LARGE));
  s->now_ns += MILLISECOND;
  assert_true(rv_landing_end_serve(q.end));
  rv_buf *row = rv_landing_take(p.client, LARGE);
  assert_non_null(row);
  rv_buf_unref(row);
  hang_up(&p);
  hang_up(&q);
  assert_int_equal(bytes_used(s), 0);
}

static void who_has_left_is_in_no_round(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s), q = connect_pair(s);
  begin_to_write(&p);
  begin_to_write(&q);
  rv_buf *held = put_row(&p, LARGE, 'p');
  hang_up(&p);
  s->now_ns += MILLISECOND;
  assert_true(rv_landing_end_serve(q.end));
  rv_landing_end_rest(q.end);
  s->now_ns += MILLISECOND;
  assert_true(rv_landing_end_serve(q.end));
  rv_buf_unref(held);
  hang_up(&q);
  rv_landing_host_look(&s->host);
  assert_int_equal(bytes_used(s), 0);
}

static void rows_that_have_landed_leave_room_for_as_many(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  static rv_buf *rows[MANY], *messages[MANY];
  size_t share = take_all(&p, LARGE, rows, MANY), count = share;
  assert_in_range(share * LARGE, MEMORY / 4 - 3 * LARGE, MEMORY / 4); /* and as much for one who comes next */
  for (size_t i = 0; i < share; i++) {
    rows[i]->size = LARGE;
    messages[i] = land(&p, rows[i]);
  }
  count += take_all(&p, LARGE, rows + share, MANY - share);
  assert_in_range(count, 2 * share - 1, 2 * share);
  assert_true(bytes_used(s) <= MEMORY);
  drop_all(messages, share);
  drop_all(rows, count);
  hang_up(&p);
  assert_int_equal(bytes_used(s), 0);
}

static void who_lets_go_of_nothing_gets_no_more_than_twice_his_share(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s);
  static rv_buf *rows[MANY];
  size_t share = 0, count = 0;
  for (size_t more = 1; more > 0; count += more) {
    more = take_all(&p, LARGE, rows + count, MANY - count);
    if (count == 0) share = more;
    for (size_t i = count; i < count + more; i++) {
      rows[i]->size = LARGE;
      rv_buf_unref(land(&p, rows[i]));
    }
  }
  assert_in_range(count, share, 2 * share + 1);
  drop_all(rows, count);
  hang_up(&p);
  assert_int_equal(bytes_used(s), 0);
}

static void who_come_one_after_another_have_no_more_than_all_may(void **state)
{
  enum { PAIRS = 8 };
  setting *s = *state;
  pair pairs[PAIRS];
  static rv_buf *rows[PAIRS][MANY];
  size_t count[PAIRS];
  for (int i = 0; i < PAIRS; i++) {
    pairs[i] = connect_pair(s);
    count[i] = take_all(&pairs[i], LARGE, rows[i], MANY);
    assert_true(bytes_used(s) <= MEMORY / 2);
  }
  for (int i = 0; i < PAIRS; i++) {
    drop_all(rows[i], count[i]);
    hang_up(&pairs[i]);
  }
  assert_int_equal(bytes_used(s), 0);
}

static void nonsense_that_a_round_finds_costs_its_connection_alone(void **state)
{
  setting *s = *state;
  pair p = connect_pair(s), q = connect_pair(s);
  int shared, sockets[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  rv_landing_end *liar = rv_landing_end_new(&s->host, &s->round, sockets[0], &shared);
  rv_landing_shared *said = map_shared(shared);
  atomic_store(&said->wanted[0], 11);
  atomic_store(&said->missed[0], 1);
  assert_true(rv_landing_end_serve(liar));
  begin_to_write(&p);
  begin_to_write(&q);
  atomic_store(&said->let_go[3], UINT64_MAX);
  s->now_ns += MILLISECOND;
  assert_true(rv_landing_end_serve(p.end));
  assert_true(rv_landing_end_serve(q.end));
  atomic_store(&said->let_go[3], 0);
  assert_true(rv_landing_end_is_due(liar));
  assert_false(rv_landing_end_serve(liar));
  munmap(said, RV_LANDING_SHARED);
  close(shared);
  close(sockets[0]);
  close(sockets[1]);
  rv_landing_end_leave(liar);
  hang_up(&p);
  hang_up(&q);
  assert_int_equal(bytes_used(s), 0);
}

/* Serving an end takes as long as a fifth of what a round may. */
static int64_t slow_clock(void *context)
{
  return *(int64_t *)context += MILLISECOND / 20;
}

static void a_round_that_takes_long_goes_on_the_next_time(void **state)
{
  enum { PAIRS = 12 };
  setting *s = *state;
  pair pairs[PAIRS];
  for (int i = 0; i < PAIRS; i++) pairs[i] = connect_pair(s);
  for (int i = 0; i < PAIRS; i++) begin_to_write(&pairs[i]);
  static rv_buf *rows[PAIRS][MANY];
  for (int i = 1; i < PAIRS; i++) drop_all(rows[i], take_all(&pairs[i], LARGE, rows[i], MANY));
  int served = 0, before = 0;
  s->env.monotonic_ns = slow_clock;
  for (int round = 0; round < 4; round++) {
    s->now_ns += MILLISECOND;
    assert_true(rv_landing_end_serve(pairs[0].end));
    served = 0;
    for (int i = 1; i < PAIRS; i++) {
      rv_buf *row = rv_landing_take(pairs[i].client, LARGE);
      served += row != NULL;
      rv_buf_unref(row);
    }
    if (round == 0) assert_in_range(served, 1, PAIRS - 2);
    assert_true(served >= before);
    before = served;
  }
  assert_int_equal(served, PAIRS - 1);
  s->env.monotonic_ns = standing_clock;
  for (int i = 0; i < PAIRS; i++) hang_up(&pairs[i]);
  assert_int_equal(bytes_used(s), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(what_a_writer_lets_go_of_comes_back_when_another_is_served, set_up, tear_down),
      cmocka_unit_test_setup_teardown(who_has_left_is_in_no_round, set_up, tear_down),
      cmocka_unit_test_setup_teardown(rows_that_have_landed_leave_room_for_as_many, set_up, tear_down),
      cmocka_unit_test_setup_teardown(who_lets_go_of_nothing_gets_no_more_than_twice_his_share, set_up, tear_down),
      cmocka_unit_test_setup_teardown(who_come_one_after_another_have_no_more_than_all_may, set_up, tear_down),
      cmocka_unit_test_setup_teardown(nonsense_that_a_round_finds_costs_its_connection_alone, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_round_that_takes_long_goes_on_the_next_time, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
