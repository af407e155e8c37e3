/* Who waits for what he has just added sends it and reads the answer as a guest of the loop (net/guest.h), where it is little; what nobody
 * waits for goes as ever. */
#include <unistd.h>

#include "client/insert_stream_testing.h"

enum { ROUNDS = 200, MANY = 100, STORM_THREADS = 4, STORM_ITEMS = 300 };

typedef struct asked_item {
  test_item item;
  rv_gate gate;
  pthread_t read_by;
} asked_item;

static void complete_and_open(rv_stream_item *stream_item, rv_code code, const char *message)
{
  asked_item *self = RV_CONTAINER(RV_CONTAINER(stream_item, test_item, item), asked_item, item);
  self->read_by = pthread_self();
  on_complete(stream_item, code, message);
  rv_gate_open(&self->gate);
}

static void init_asked(test_bench *bench, asked_item *self, uint64_t key)
{
  rv_stream_chunk *chunk = make_chunk(1000000 + key, 10);
  make_item(bench, &self->item, key, &chunk, 1);
  self->item.item.complete = complete_and_open;
  rv_gate_init_at(&self->gate, bench->loop, bench->channel);
  rv_stream_chunk_unref(chunk);
}

/* `asked`: whoever adds it says that he will ask for it. The chunk's pin is given back, as a writer does that makes no more items of it. */
static void hand_over(rv_insert_stream *stream, asked_item *self, bool asked)
{
  rv_link items;
  rv_list_init(&items);
  rv_list_push_back(&items, &self->item.item.link);
  rv_stream_chunk *chunk = rv_stream_chunk_ref(self->item.item.chunks[0]);
  if (asked)
    rv_insert_stream_add_asked(stream, &items);
  else
    rv_insert_stream_add(stream, &items);
  drop_chunk(chunk);
}

static rv_code ask(test_bench *bench, rv_insert_stream *stream, asked_item *self, const rv_wait *wait)
{
  rv_error err;
  rv_patience patience;
  rv_patience_begin(&patience, &bench->env, wait, NULL, NULL);
  rv_insert_stream_ask(stream, &self->gate, &patience);
  return rv_gate_wait(&self->gate, &patience, &err);
}

static void insert_and_ask(test_bench *bench, asked_item *self, uint64_t key, bool asked)
{
  init_asked(bench, self, key);
  hand_over(bench->stream, self, asked);
  assert_int_equal(ask(bench, bench->stream, self, NULL), RV_OK);
  assert_true(self->item.done);
  assert_int_equal(self->item.code, RV_OK);
  rv_stream_item_fini(&self->item.item);
}

static void who_waits_for_an_item_reads_the_answer_by_himself(void **state)
{
  (void)state;
  for (int asked = 0; asked < 2; asked++) {
    test_bench bench;
    asked_item self;
    set_up(&bench, "s1");
    uint64_t key = 1;
    do { /* now and then the loop's thread is the first */
      insert_and_ask(&bench, &self, key++, asked != 0);
      usleep(100);
    } while (pthread_equal(self.read_by, pthread_self()) == 0);
    tear_down(&bench);
  }
}

/* He who waited for each item so far does not say when he will not. */
static void an_item_that_nobody_asks_for_arrives_all_the_same(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  static asked_item items[ROUNDS];
  for (uint64_t i = 0; i < ROUNDS; i++) {
    if (i % 4 < 2) {
      insert_and_ask(&bench, &items[i], 1 + i, i % 8 < 4);
      continue;
    }
    init_asked(&bench, &items[i], 1 + i);
    hand_over(bench.stream, &items[i], false);
    if (i % 4 == 3) wait_seen(&bench, i + 1);
  }
  for (uint64_t i = 0; i < ROUNDS; i++) {
    if (i % 4 < 2) continue;
    wait_done(&items[i].item);
    assert_int_equal(items[i].item.code, RV_OK);
    rv_stream_item_fini(&items[i].item.item);
  }
  for (size_t i = 0; i < ROUNDS; i++) assert_int_equal(bench.server.items[i].sequence, i + 1);
  tear_down(&bench);
}

static void many_items_that_are_asked_for_at_once_all_arrive(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  static asked_item items[MANY];
  for (uint64_t i = 0; i < MANY; i++) {
    init_asked(&bench, &items[i], 1 + i);
    hand_over(bench.stream, &items[i], true);
  }
  for (size_t i = 0; i < MANY; i++) {
    assert_int_equal(ask(&bench, bench.stream, &items[i], NULL), RV_OK);
    assert_int_equal(items[i].item.code, RV_OK);
    rv_stream_item_fini(&items[i].item.item);
  }
  tear_down(&bench);
}

static void *fire(void *context)
{
  rv_cancel_fire(context);
  return NULL;
}

static void cancelling_and_a_deadline_end_the_wait_for_a_confirmation(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.confirm_until = 1;
  asked_item first;
  static asked_item items[ROUNDS];
  insert_and_ask(&bench, &first, ROUNDS + 1, false);
  for (uint64_t i = 0; i < ROUNDS; i++) {
    rv_cancel *cancel;
    rv_error err;
    pthread_t thread;
    init_asked(&bench, &items[i], 1 + i);
    hand_over(bench.stream, &items[i], i % 2 == 0);
    if (i % 8 == 0) {
      assert_int_equal(ask(&bench, bench.stream, &items[i], &(rv_wait){.timeout_ms = 2}), RV_DEADLINE_EXCEEDED);
      continue;
    }
    assert_int_equal(rv_cancel_new(&cancel, &err), RV_OK);
    pthread_create(&thread, NULL, fire, cancel);
    assert_int_equal(ask(&bench, bench.stream, &items[i], &(rv_wait){.timeout_ms = RV_FOREVER, .cancel = cancel}), RV_CANCELLED);
    pthread_join(thread, NULL);
    rv_cancel_free(cancel);
  }
  wait_seen(&bench, ROUNDS + 1);
  close_stream(&bench);
  bench.stream = NULL;
  for (uint64_t i = 0; i < ROUNDS; i++) {
    assert_true(items[i].item.done);
    assert_int_equal(items[i].item.code, RV_CANCELLED);
    rv_stream_item_fini(&items[i].item.item);
  }
  tear_down(&bench);
}

/* The call is opened again by whoever has something to send. */
static void a_call_that_ends_meanwhile_is_opened_again_and_each_item_is_in_once(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  bench.server.end_after = 3;
  bench.server.end_code = RV_UNAVAILABLE;
  bench.server.confirm_until = 2; /* the third of each call is sent again */
  for (uint64_t i = 0; i < 20; i++) {
    asked_item self;
    insert_and_ask(&bench, &self, 1 + i, i % 2 == 0);
  }
  rv_mutex_lock(&bench.server.mutex);
  unsigned calls = bench.server.calls;
  rv_mutex_unlock(&bench.server.mutex);
  assert_true(calls > 3);
  tear_down(&bench);
}

typedef struct storm_thread {
  pthread_t thread;
  test_bench *bench;
  uint64_t number;
  asked_item items[STORM_ITEMS];
} storm_thread;

/* Those whose wait was given up complete, too, at the latest with the stream. */
static bool insert_this_or_that_way(storm_thread *storm, rv_insert_stream *stream)
{
  test_bench *bench = storm->bench;
  for (uint64_t i = 0; i < STORM_ITEMS; i++) {
    asked_item *self = &storm->items[i];
    init_asked(bench, self, 1 + i + storm->number * STORM_ITEMS);
    uint64_t way = (i + storm->number) % 5;
    hand_over(stream, self, way < 3);
    if (way == 4) continue;
    rv_code code = ask(bench, stream, self, &(rv_wait){.timeout_ms = way == 0 ? (int64_t)(i % 2) : RV_FOREVER});
    if (way != 0 && (code != RV_OK || self->item.code != RV_OK)) return false;
  }
  return true;
}

static void *insert_much(void *context)
{
  storm_thread *storm = context;
  rv_insert_stream *stream;
  rv_insert_stream_config config = {.env = &storm->bench->env, .loop = storm->bench->loop, .channel = storm->bench->channel};
  if (rv_insert_stream_new(&config, &stream, NULL) != RV_OK) return storm;
  bool fine = insert_this_or_that_way(storm, stream);
  rv_loop_call(storm->bench->loop, shut_stream, stream);
  for (size_t i = 0; i < STORM_ITEMS; i++) {
    fine = fine && storm->items[i].item.done;
    rv_stream_item_fini(&storm->items[i].item.item);
  }
  return fine ? NULL : storm;
}

static void many_writers_of_one_loop_each_get_their_confirmations(void **state)
{
  (void)state;
  test_bench bench;
  set_up(&bench, "s1");
  static storm_thread storm[STORM_THREADS];
  for (unsigned i = 0; i < STORM_THREADS; i++) {
    storm[i].bench = &bench;
    storm[i].number = i;
    pthread_create(&storm[i].thread, NULL, insert_much, &storm[i]);
  }
  for (unsigned i = 0; i < STORM_THREADS; i++) {
    void *failed;
    pthread_join(storm[i].thread, &failed);
    assert_null(failed);
  }
  tear_down(&bench);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_waits_for_an_item_reads_the_answer_by_himself),
      cmocka_unit_test(an_item_that_nobody_asks_for_arrives_all_the_same),
      cmocka_unit_test(many_items_that_are_asked_for_at_once_all_arrive),
      cmocka_unit_test(cancelling_and_a_deadline_end_the_wait_for_a_confirmation),
      cmocka_unit_test(a_call_that_ends_meanwhile_is_opened_again_and_each_item_is_in_once),
      cmocka_unit_test(many_writers_of_one_loop_each_get_their_confirmations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
