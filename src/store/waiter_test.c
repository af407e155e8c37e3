#include "store/testing.h"

/* ---- a world with one table ---- */

typedef struct world {
  rv_store *store;
  rv_table *table;
} world;

static world world_of(rv_rate_limiter_config limiter, int64_t max_size, int32_t max_times_sampled)
{
  rv_table_config config = rv_table_config_default("queue", max_size);
  config.sampler.kind = RV_SELECTOR_FIFO;
  config.rate_limiter = limiter;
  config.max_times_sampled = max_times_sampled;
  world w = {.store = store_of(&config)};
  w.table = rv_store_table(w.store, 0);
  return w;
}

/* Notes in which order operations complete. */
typedef struct noted {
  int order[64];
  int count;
} noted;

typedef struct ask {
  rv_sampling sampling;
  rv_draw draws[8];
  noted *notes;
  int number;
} ask;

typedef struct offer {
  rv_insert insert;
  noted *notes;
  int number;
} offer;

static void note_ask(rv_waiter *waiter)
{
  ask *a = waiter->context;
  a->notes->order[a->notes->count++] = a->number;
}

static void note_offer(rv_waiter *waiter)
{
  offer *o = waiter->context;
  o->notes->order[o->notes->count++] = o->number;
}

static rv_submitted submit_ask(world *w, ask *a, size_t want, noted *notes, int number)
{
  *a = (ask){.sampling = {.want = want, .draws = a->draws}, .notes = notes, .number = number};
  a->sampling.waiter.complete = note_ask;
  a->sampling.waiter.context = a;
  a->sampling.waiter.deadline_ns = INT64_MAX;
  return rv_table_sample(w->table, &a->sampling);
}

static rv_submitted submit_offer(world *w, offer *o, int64_t value, noted *notes, int number)
{
  *o = (offer){.insert = {.key = (uint64_t)value, .priority = 1}, .notes = notes, .number = number};
  o->insert.waiter.complete = note_offer;
  o->insert.waiter.context = o;
  o->insert.waiter.deadline_ns = INT64_MAX;
  o->insert.trajectory = single(w->store, value, 0);
  rv_submitted submitted = rv_table_insert(w->table, &o->insert);
  return submitted;
}

static void end_ask(ask *a)
{
  rv_draws_release(a->draws, a->sampling.count);
}
static void end_offer(offer *o)
{
  rv_trajectory_unref(o->insert.trajectory);
}

/* ---- one thread ---- */

static void a_waiting_sample_completes_when_an_item_comes(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_min_size(2), 10, 0);
  noted notes = {.count = 0};
  ask a;
  assert_int_equal(submit_ask(&w, &a, 3, &notes, 1), RV_SUBMIT_PENDING);
  assert_int_equal(insert_value(w.store, w.table, 1, 1, 11), RV_OK);
  assert_int_equal(notes.count, 0);
  assert_int_equal(insert_value(w.store, w.table, 2, 1, 12), RV_OK);
  assert_int_equal(notes.count, 1);
  assert_int_equal(a.sampling.waiter.code, RV_OK);
  assert_int_equal(a.sampling.count, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(value_of(&a.draws[i]), 11);
    assert_true(a.draws[i].rate_limited);
  }
  assert_false(rv_waiter_cancel(&a.sampling.waiter));
  end_ask(&a);
  rv_store_unref(w.store);
}

static void operations_of_a_kind_are_served_in_the_order_they_came(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_queue(3), 3, 1);
  noted notes = {.count = 0};
  ask asks[5];
  offer offers[8];
  for (int i = 0; i < 5; i++) assert_int_equal(submit_ask(&w, &asks[i], 1, &notes, i), RV_SUBMIT_PENDING);
  for (int i = 0; i < 8; i++) {
    rv_submitted submitted = submit_offer(&w, &offers[i], i, &notes, 100 + i);
    assert_int_equal(submitted, RV_SUBMIT_DONE);
  }
  assert_int_equal(notes.count, 5);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(notes.order[i], i);
    assert_int_equal(value_of(&asks[i].draws[0]), i);
    end_ask(&asks[i]);
  }
  offer more[4];
  for (int i = 0; i < 4; i++) assert_int_equal(submit_offer(&w, &more[i], 20 + i, &notes, 200 + i), RV_SUBMIT_PENDING);
  ask a;
  assert_int_equal(submit_ask(&w, &a, 7, &notes, 7), RV_SUBMIT_DONE);
  assert_int_equal(notes.count, 9);
  for (int i = 0; i < 4; i++) assert_int_equal(notes.order[5 + i], 200 + i);
  for (int i = 0; i < 7; i++) assert_int_equal(value_of(&a.draws[i]), i < 3 ? 5 + i : 17 + i);
  end_ask(&a);
  for (int i = 0; i < 8; i++) end_offer(&offers[i]);
  for (int i = 0; i < 4; i++) end_offer(&more[i]);
  rv_store_unref(w.store);
}

static void a_cancelled_ask_consumes_nothing(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_queue(4), 4, 1);
  noted notes = {.count = 0};
  ask first, second;
  assert_int_equal(submit_ask(&w, &first, 2, &notes, 1), RV_SUBMIT_PENDING);
  assert_int_equal(submit_ask(&w, &second, 1, &notes, 2), RV_SUBMIT_PENDING);
  assert_true(rv_waiter_cancel(&first.sampling.waiter));
  assert_false(rv_waiter_cancel(&first.sampling.waiter));
  assert_int_equal(insert_value(w.store, w.table, 1, 1, 5), RV_OK);
  assert_int_equal(notes.count, 1);
  assert_int_equal(notes.order[0], 2);
  assert_int_equal(first.sampling.count, 0);
  assert_int_equal(value_of(&second.draws[0]), 5);
  end_ask(&second);
  rv_store_unref(w.store);
}

static void a_cancelled_head_lets_the_next_one_go_on(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_sample_to_insert_ratio(1, 1, 2), 100, 0);
  noted notes = {.count = 0};
  assert_int_equal(insert_value(w.store, w.table, 1, 1, 5), RV_OK);
  ask large, small;
  assert_int_equal(submit_ask(&w, &large, 8, &notes, 1), RV_SUBMIT_PENDING);
  size_t held = large.sampling.count;
  assert_true(held > 0 && held < 8);
  assert_int_equal(submit_ask(&w, &small, 1, &notes, 2), RV_SUBMIT_PENDING);
  assert_true(rv_waiter_cancel(&large.sampling.waiter));
  assert_int_equal(large.sampling.count, held);
  assert_int_equal(insert_value(w.store, w.table, 2, 1, 6), RV_OK);
  assert_int_equal(notes.count, 1);
  end_ask(&large);
  end_ask(&small);
  rv_store_unref(w.store);
}

static void a_partial_sample_takes_what_there_is(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_queue(10), 10, 1);
  for (int i = 0; i < 3; i++) assert_int_equal(insert_value(w.store, w.table, (uint64_t)i, 1, i), RV_OK);
  rv_draw draws[8];
  rv_sampling sampling = {.want = 8, .partial = true, .draws = draws};
  assert_int_equal(rv_table_sample(w.table, &sampling), RV_SUBMIT_DONE);
  assert_int_equal(sampling.waiter.code, RV_OK);
  assert_int_equal(sampling.count, 3);
  assert_false(draws[0].rate_limited);
  rv_draws_release(draws, 3);
  rv_store_unref(w.store);
}

static void a_sample_stops_when_its_chunks_reach_the_bytes(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_min_size(1), 10, 0);
  assert_int_equal(insert_value(w.store, w.table, 1, 1, 1), RV_OK);
  rv_draw draws[8];
  rv_sampling sampling = {.want = 8, .max_bytes = 20, .draws = draws};
  assert_int_equal(rv_table_sample(w.table, &sampling), RV_SUBMIT_DONE);
  assert_int_equal(sampling.count, 3); /* of 8 bytes each */
  rv_draws_release(draws, sampling.count);
  rv_store_unref(w.store);
}

static void closing_ends_every_wait_once(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_queue(1), 1, 1);
  noted notes = {.count = 0};
  assert_int_equal(insert_value(w.store, w.table, 1, 1, 1), RV_OK);
  offer offers[20];
  for (int i = 0; i < 20; i++) assert_int_equal(submit_offer(&w, &offers[i], 10 + i, &notes, i), RV_SUBMIT_PENDING);
  rv_store_close(w.store);
  rv_store_close(w.store);
  assert_int_equal(notes.count, 20);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(notes.order[i], i);
    assert_int_equal(offers[i].insert.waiter.code, RV_CANCELLED);
    assert_non_null(strstr(offers[i].insert.waiter.error.message, "table \"queue\" is closed"));
    assert_false(rv_waiter_cancel(&offers[i].insert.waiter));
    end_offer(&offers[i]);
  }
  ask a;
  assert_int_equal(submit_ask(&w, &a, 1, &notes, 0), RV_SUBMIT_DONE);
  assert_int_equal(a.sampling.waiter.code, RV_CANCELLED);
  rv_store_unref(w.store);
}

static void what_is_waited_for_is_said_in_numbers(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_min_size(10), 10, 0);
  noted notes = {.count = 0};
  for (int i = 0; i < 7; i++) assert_int_equal(insert_value(w.store, w.table, (uint64_t)i, 1, i), RV_OK);
  ask first, second;
  char sentence[400];
  submit_ask(&w, &first, 1, &notes, 1);
  submit_ask(&w, &second, 5, &notes, 2);
  assert_int_equal(rv_waiter_explain(&first.sampling.waiter, sentence, sizeof sentence), RV_WAIT_MIN_SIZE);
  assert_non_null(strstr(sentence, "table \"queue\": sampling waits for 10 items, has 7"));
  assert_int_equal(rv_waiter_explain(&second.sampling.waiter, sentence, sizeof sentence), RV_WAIT_TURN);
  assert_non_null(strstr(sentence, "table \"queue\": sampling waits for its turn, 1 came first"));
  rv_table_info info = info_of(w.table);
  assert_int_equal(info.num_waiting, 2);
  assert_int_equal(info.num_waiting_samples, 2);
  assert_int_equal(info.waiting[0].reason, RV_WAIT_MIN_SIZE);
  assert_int_equal(info.waiting[1].reason, RV_WAIT_TURN);
  assert_int_equal(info.waiting[1].wanted, 5);
  assert_int_equal(info.waiting[1].remaining_ns, INT64_MAX);
  assert_string_equal(info.waiting[0].peer, "in process");
  rv_table_info_fini(&info);
  assert_true(rv_waiter_cancel(&first.sampling.waiter));
  assert_int_equal(rv_waiter_explain(&first.sampling.waiter, sentence, sizeof sentence), RV_WAIT_MIN_SIZE);
  assert_true(rv_waiter_cancel(&second.sampling.waiter));
  rv_store_unref(w.store);
}

static void note_nothing(rv_waiter *waiter)
{
  (void)waiter;
}

static void submit_in(world *w, rv_waiting_group *group, const char *peer, offer *o, int64_t value)
{
  *o = (offer){.insert = {.key = (uint64_t)value, .priority = 1, .group = group}};
  o->insert.waiter.complete = note_nothing;
  o->insert.waiter.context = o;
  o->insert.waiter.deadline_ns = INT64_MAX;
  o->insert.waiter.peer = peer;
  o->insert.trajectory = single(w->store, value, 0);
  assert_int_equal(rv_table_insert(w->table, &o->insert), RV_SUBMIT_PENDING);
}

static void what_a_call_has_waiting_is_shown_as_one(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_queue(1), 1, 1);
  noted notes = {.count = 0};
  assert_int_equal(insert_value(w.store, w.table, 1, 1, 1), RV_OK);
  enum { EACH = 150 };
  rv_waiting_group groups[2] = {{.count = 0}};
  offer *offers = calloc(2 * EACH, sizeof *offers), alone;
  assert_non_null(offers);
  for (int i = 0; i < EACH; i++) {
    submit_in(&w, &groups[0], "a", &offers[2 * i], 10 + 2 * i);
    if (i == 0) submit_in(&w, NULL, "b", &alone, 5);
    submit_in(&w, &groups[1], "c", &offers[2 * i + 1], 11 + 2 * i);
  }
  rv_table_info info = info_of(w.table);
  assert_int_equal(info.num_waiting_inserts, 2 * EACH + 1);
  assert_int_equal(info.num_waiting, 3);
  const char *const peers[] = {"a", "b", "c"};
  const int64_t wanted[] = {EACH, 1, EACH};
  for (int i = 0; i < 3; i++) {
    assert_string_equal(info.waiting[i].peer, peers[i]);
    assert_int_equal(info.waiting[i].wanted, wanted[i]);
    assert_int_equal(info.waiting[i].reason, i == 0 ? RV_WAIT_TOO_MANY_INSERTS : RV_WAIT_TURN);
  }
  rv_table_info_fini(&info);

  ask a = {.number = 0}; /* lets the first of "a" in, and then "b" is next */
  assert_int_equal(submit_ask(&w, &a, 1, &notes, 0), RV_SUBMIT_DONE);
  assert_true(rv_waiter_cancel(&offers[2].insert.waiter));
  info = info_of(w.table);
  assert_int_equal(info.num_waiting, 3);
  assert_string_equal(info.waiting[0].peer, "b");
  assert_int_equal(info.waiting[0].reason, RV_WAIT_TOO_MANY_INSERTS);
  assert_string_equal(info.waiting[1].peer, "c");
  assert_string_equal(info.waiting[2].peer, "a");
  assert_int_equal(info.waiting[2].wanted, EACH - 2);
  rv_table_info_fini(&info);

  for (int i = 1; i < EACH; i++)
    if (i != 1) assert_true(rv_waiter_cancel(&offers[2 * i].insert.waiter));
  info = info_of(w.table);
  assert_int_equal(info.num_waiting, 2);
  rv_table_info_fini(&info);
  rv_store_close(w.store);
  info = info_of(w.table);
  assert_int_equal(info.num_waiting, 0);
  rv_table_info_fini(&info);
  for (int i = 0; i < 2 * EACH; i++) end_offer(&offers[i]);
  end_offer(&alone);
  end_ask(&a);
  free(offers);
  rv_store_unref(w.store);
}

static void changing_the_limiter_looks_at_those_who_wait(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_min_size(5), 10, 0);
  noted notes = {.count = 0};
  ask a;
  rv_error err;
  assert_int_equal(insert_value(w.store, w.table, 1, 1, 1), RV_OK);
  submit_ask(&w, &a, 1, &notes, 1);
  rv_rate_limiter_config limiter = rv_rate_limiter_min_size(1);
  must(rv_table_set_rate_limiter(w.table, &limiter, &err), &err);
  assert_int_equal(notes.count, 1);
  end_ask(&a);
  limiter.min_size_to_sample = 0;
  assert_int_equal(rv_table_set_rate_limiter(w.table, &limiter, &err), RV_INVALID_ARGUMENT);
  limiter.min_size_to_sample = 11; /* the table holds 10 */
  assert_int_equal(rv_table_set_rate_limiter(w.table, &limiter, &err), RV_INVALID_ARGUMENT);
  rv_store_unref(w.store);
}

static void a_reset_leaves_those_who_wait_and_makes_room_for_them(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_queue(1), 1, 1);
  noted notes = {.count = 0};
  rv_error err;
  assert_int_equal(insert_value(w.store, w.table, 1, 1, 1), RV_OK);
  offer o;
  assert_int_equal(submit_offer(&w, &o, 2, &notes, 9), RV_SUBMIT_PENDING);
  must(rv_table_reset(w.table, &err), &err);
  assert_int_equal(notes.count, 1);
  assert_int_equal(o.insert.waiter.code, RV_OK);
  rv_table_info info = info_of(w.table);
  assert_int_equal(info.current_size, 1);
  assert_int_equal(info.inserts, 1);
  rv_table_info_fini(&info);
  end_offer(&o);
  rv_store_unref(w.store);
}

/* ---- completions that go on ---- */

typedef struct chain {
  rv_sampling sampling;
  rv_draw draw;
  world *w;
  int left, deepest, depth;
  int64_t value;
} chain;

/* Each completion inserts what completes the next: as deep as the chain is long, were they called inside one another. */
static void ask_again(rv_waiter *waiter)
{
  chain *c = waiter->context;
  if (++c->depth > c->deepest) c->deepest = c->depth;
  rv_draw_release(&c->draw);
  if (--c->left > 0) {
    assert_int_equal(rv_table_sample(c->w->table, &c->sampling), RV_SUBMIT_PENDING);
    c->value++;
    assert_int_equal(insert_value(c->w->store, c->w->table, (uint64_t)c->value, 1, c->value), RV_OK);
  }
  c->depth--;
}

static void completions_are_not_called_inside_one_another(void **state)
{
  (void)state;
  world w = world_of(rv_rate_limiter_queue(1), 1, 1);
  chain c = {.w = &w, .left = 5000};
  c.sampling = (rv_sampling){.want = 1, .draws = &c.draw};
  c.sampling.waiter.complete = ask_again;
  c.sampling.waiter.context = &c;
  assert_int_equal(rv_table_sample(w.table, &c.sampling), RV_SUBMIT_PENDING);
  assert_int_equal(insert_value(w.store, w.table, 0, 1, 0), RV_OK);
  assert_int_equal(c.left, 0);
  assert_int_equal(c.deepest, 1);
  rv_store_unref(w.store);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_waiting_sample_completes_when_an_item_comes),
      cmocka_unit_test(operations_of_a_kind_are_served_in_the_order_they_came),
      cmocka_unit_test(a_cancelled_ask_consumes_nothing),
      cmocka_unit_test(a_cancelled_head_lets_the_next_one_go_on),
      cmocka_unit_test(a_partial_sample_takes_what_there_is),
      cmocka_unit_test(a_sample_stops_when_its_chunks_reach_the_bytes),
      cmocka_unit_test(closing_ends_every_wait_once),
      cmocka_unit_test(what_is_waited_for_is_said_in_numbers),
      cmocka_unit_test(what_a_call_has_waiting_is_shown_as_one),
      cmocka_unit_test(changing_the_limiter_looks_at_those_who_wait),
      cmocka_unit_test(a_reset_leaves_those_who_wait_and_makes_room_for_them),
      cmocka_unit_test(completions_are_not_called_inside_one_another),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
