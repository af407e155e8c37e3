#include "persist/follower.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/error.h"

enum { PIECES = 1000, ROOM = 4 };

typedef struct world {
  rv_follower follower;
  pthread_t maker;
  uint64_t done;       /* pieces */
  uint64_t fails;      /* this piece does */
  bool waits_for_stop; /* a piece is over when no other is wanted */
  bool elsewhere;      /* some were done by another thread than their maker's */
  bool wrong;          /* a piece came out of order, or its place was not as its maker left it */
  uint64_t slots[ROOM];
} world;

static bool is_to_stop(world *w)
{
  rv_mutex_lock(&w->follower.lock);
  bool stop = w->follower.stop;
  rv_mutex_unlock(&w->follower.lock);
  return stop;
}

static rv_code work(void *context, uint64_t piece, rv_error *err)
{
  world *w = context;
  while (w->waits_for_stop && !is_to_stop(w)) sched_yield();
  w->wrong = w->wrong || piece != w->done || w->slots[piece % ROOM] != piece;
  w->elsewhere = w->elsewhere || !pthread_equal(pthread_self(), w->maker);
  w->done++;
  return piece == w->fails ? rv_fail(err, RV_UNKNOWN, "piece %d is broken", (int)piece) : RV_OK;
}

static void begin(world *w)
{
  *w = (world){.follower = {.work = work, .context = w, .name = "test"}, .maker = pthread_self(), .fails = UINT64_MAX};
  rv_follower_init(&w->follower);
}

static rv_code hand_over(world *w, uint64_t piece, rv_error *err)
{
  w->slots[piece % ROOM] = piece;
  return rv_follower_hand_over(&w->follower, ROOM - 1, err);
}

static void pieces_are_done_in_order_and_a_place_is_free_before_it_is_used_again(void **state)
{
  (void)state;
  world w;
  rv_error err;
  begin(&w);
  for (uint64_t i = 0; i < PIECES; i++) assert_int_equal(hand_over(&w, i, &err), RV_OK);
  assert_int_equal(rv_follower_settle(&w.follower, &err), RV_OK);
  assert_int_equal(w.done, PIECES);
  assert_false(w.wrong);
  assert_true(w.elsewhere);
  rv_follower_fini(&w.follower);
}

static void the_first_fault_is_told_and_what_follows_it_is_passed_over(void **state)
{
  (void)state;
  world w;
  rv_error err;
  begin(&w);
  w.fails = 3;
  rv_code code = RV_OK;
  uint64_t handed = 0;
  while (code == RV_OK && handed < PIECES) code = hand_over(&w, handed++, &err);
  assert_int_equal(code, RV_UNKNOWN);
  assert_string_equal(err.message, "piece 3 is broken");
  assert_true(handed <= 3 + 1 + ROOM);
  assert_int_equal(rv_follower_settle(&w.follower, &err), RV_UNKNOWN);
  assert_string_equal(err.message, "piece 3 is broken");
  assert_int_equal(w.done, 4);
  rv_follower_fini(&w.follower);
}

static void what_was_not_begun_stays_undone_when_it_is_given_up(void **state)
{
  (void)state;
  world w;
  rv_error err;
  begin(&w);
  w.waits_for_stop = true;
  for (uint64_t i = 0; i < ROOM - 1; i++) assert_int_equal(hand_over(&w, i, &err), RV_OK);
  rv_follower_fini(&w.follower);
  assert_true(w.done <= 1);
}

static void nothing_handed_over_needs_no_thread(void **state)
{
  (void)state;
  world w;
  rv_error err;
  begin(&w);
  assert_int_equal(rv_follower_settle(&w.follower, &err), RV_OK);
  assert_false(w.follower.threaded);
  rv_follower_fini(&w.follower);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_are_done_in_order_and_a_place_is_free_before_it_is_used_again),
      cmocka_unit_test(the_first_fault_is_told_and_what_follows_it_is_passed_over),
      cmocka_unit_test(what_was_not_begun_stays_undone_when_it_is_given_up),
      cmocka_unit_test(nothing_handed_over_needs_no_thread),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
