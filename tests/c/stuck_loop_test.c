/* What a client's callers may rely on while the thread that does its I/O is kept from its work, as it is now and then on a machine that has more
 * to do than it can. That each call ends in time then is walked in waiting_calls_test.c. */
#include <pthread.h>
#include <unistd.h>

#include "support/place.h"
#include "support/stuck_loop.h"

enum { HANGS_S = 60 };

static float value[1];
static const int64_t one_row[] = {1};
static const rv_tensor row = {.dtype = RV_FLOAT32, .data = value};
static const rv_tensor batch_of_one = {.dtype = RV_FLOAT32, .rank = 1, .shape = one_row, .data = value};
static const rv_cell cell = {.column = 0, .value = {.dtype = RV_FLOAT32, .data = value}};
static const rv_wait at_once = {.timeout_ms = 0};

/* A queue of one item, which has it, and one that is empty. */
static void open_place(test_place *place)
{
  rv_table_config tables[] = {place_queue("full", 1), place_queue("empty", 10)};
  place_open(place, true, tables, 2);
  OK(rv_client_add(place->client, "full", &row, 1, 1, NULL, NULL, error));
}

/* As others see it, who need no loop. */
static rv_table_info info_of(test_place *place, const char *name)
{
  rv_table *table;
  rv_table_info info = {.size = sizeof info};
  OK(rv_store_find(place->store, name, strlen(name), &table, error));
  OK(rv_table_get_info(table, &info, error));
  rv_table_info seen = {.current_size = info.current_size, .num_waiting_samples = info.num_waiting_samples};
  rv_table_info_fini(&info);
  return seen;
}

static rv_structured_writer *open_structured(rv_client *client)
{
  const rv_pattern_node node = rv_pattern_row(0, -1);
  const rv_pattern_config pattern = {.size = sizeof pattern,
                                     .table = "full",
                                     .nodes = &node,
                                     .num_nodes = 1,
                                     .priority = {.kind = RV_PRIORITY_CONSTANT, .constant = 1}};
  const rv_structured_writer_config config = {.size = sizeof config, .patterns = &pattern, .num_patterns = 1};
  rv_structured_writer *structured;
  OK(rv_structured_writer_new(client, &config, &structured, error));
  OK(rv_structured_writer_append(structured, &cell, 1, false, error));
  return structured;
}

static rv_step_writer *open_steps(rv_client *client)
{
  const rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 1};
  rv_step_writer *steps;
  OK(rv_step_writer_new(client, &config, &steps, error));
  OK(rv_step_writer_append(steps, &row, 1, &at_once, error));
  OK(rv_step_writer_create_item(steps, "full", 1, 1, &at_once, NULL, error));
  return steps;
}

static rv_transitions *open_transitions(rv_client *client)
{
  const rv_transitions_column column = {.name = NULL};
  const rv_transitions_config config = {
      .size = sizeof config, .table = "full", .num_envs = 1, .columns = &column, .num_columns = 1};
  rv_transitions *transitions;
  OK(rv_transitions_new(client, &config, &transitions, error));
  OK(rv_transitions_add(transitions, &batch_of_one, 1, NULL, NULL, NULL, error));
  return transitions;
}

static rv_sampler *open_sampler(rv_client *client)
{
  const rv_sampler_config config = {
      .size = sizeof config, .table = "empty", .max_samples = RV_UNLIMITED, .rate_limiter_timeout_ms = RV_FOREVER};
  const rv_wait shortly = {.timeout_ms = 10};
  rv_sampler *sampler;
  rv_sample *sample;
  OK(rv_sampler_new(client, &config, &sampler, error));
  FAILS(RV_DEADLINE_EXCEEDED, "", rv_sampler_next(sampler, &shortly, &sample, error));
  return sampler;
}

static void closing_and_freeing_wait_for_no_stuck_loop(void **state)
{
  (void)state;
  for (int stuck_first = 0; stuck_first < 2; stuck_first++) {
    test_place place;
    stuck_loop loop;
    open_place(&place);
    alarm(HANGS_S);
    if (stuck_first) stuck_loop_begin(&loop, place.client);
    rv_sampler *sampler = open_sampler(place.client);
    rv_structured_writer *structured = open_structured(place.client);
    rv_step_writer *steps = open_steps(place.client);
    rv_transitions *transitions = open_transitions(place.client);
    rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = 2});
    OK(rv_writer_append(writer, &cell, 1, false, error));
    OK(item_of_rows(writer, "full", 0, 1, 1, 1, NULL, error));
    if (!stuck_first) stuck_loop_begin(&loop, place.client);
    rv_sampler_free(sampler);
    rv_structured_writer_close(structured);
    FAILS(RV_FAILED_PRECONDITION, "Close", rv_structured_writer_flush(structured, 0, &at_once, error));
    rv_structured_writer_free(structured);
    rv_step_writer_free(steps);
    assert_int_equal(rv_transitions_close(transitions), 1);
    rv_transitions_free(transitions);
    rv_writer_free(writer);
    alarm(0);
    stuck_loop_end(&loop);
    assert_int_equal(place_size(&place, "full"), 1);
    place_close(&place);
  }
}

static void a_call_that_was_given_up_before_it_was_sent_is_not_carried_out(void **state)
{
  (void)state;
  const rv_wait shortly = {.timeout_ms = 10};
  const uint64_t none[1] = {0};
  test_place place;
  stuck_loop loop;
  open_place(&place);
  stuck_loop_begin(&loop, place.client);
  alarm(HANGS_S);
  FAILS(RV_DEADLINE_EXCEEDED, "Reset", rv_client_reset(place.client, "full", &shortly, error));
  FAILS(RV_DEADLINE_EXCEEDED, "", rv_client_add(place.client, "empty", &row, 1, 1, NULL, &shortly, error));
  alarm(0);
  stuck_loop_end(&loop);
  OK(rv_client_mutate(place.client, "full", NULL, 0, none, 1, NULL, NULL, NULL, error)); /* behind them */
  assert_int_equal(info_of(&place, "full").current_size, 1);
  assert_int_equal(info_of(&place, "empty").current_size, 0);
  place_close(&place);
}

/* ---- what comes for somebody who has left ---- */

typedef struct left_batch {
  test_place *place;
  rv_layout *layout;
  rv_cancel *cancel;
  rv_code code;
  size_t count;
} left_batch;

static void *sample_into(void *context)
{
  left_batch *left = context;
  rv_error err;
  float *values = malloc(sizeof *values); /* the caller's, who frees it as soon as he has left */
  void *columns[1] = {values};
  rv_batch_arrays arrays = {.size = sizeof arrays, .layout = left->layout, .columns = columns};
  const rv_wait wait = {.timeout_ms = RV_FOREVER, .cancel = left->cancel};
  left->code = rv_client_sample_into(left->place->client, "empty", 1, &arrays, &wait, &err);
  left->count = arrays.count;
  free(values);
  return NULL;
}

static rv_layout *layout_of_rows(test_place *place)
{
  rv_batch_arrays arrays = {.size = sizeof arrays};
  OK(rv_client_add(place->client, "empty", &row, 1, 1, NULL, NULL, error));
  FAILS(RV_FAILED_PRECONDITION, "layout", rv_client_sample_into(place->client, "empty", 1, &arrays, NULL, error));
  rv_batch_free(arrays.drawn);
  return arrays.found;
}

static void a_batch_that_comes_when_its_caller_has_left_is_not_written_to_his_arrays(void **state)
{
  (void)state;
  test_place place;
  stuck_loop loop;
  pthread_t thread;
  rv_client *local;
  open_place(&place);
  left_batch left = {.place = &place, .layout = layout_of_rows(&place)};
  OK(rv_cancel_new(&left.cancel, error));
  OK(rv_client_new(&(rv_client_config){.size = sizeof(rv_client_config), .store = place.store}, &local, error));
  alarm(HANGS_S);
  pthread_create(&thread, NULL, sample_into, &left);
  while (info_of(&place, "empty").num_waiting_samples == 0) usleep(1000);
  stuck_loop_begin(&loop, place.client);
  OK(rv_client_add(local, "empty", &row, 1, 1, NULL, NULL, error));
  rv_cancel_fire(left.cancel);
  pthread_join(thread, NULL);
  alarm(0);
  assert_int_equal(left.code, RV_CANCELLED);
  assert_int_equal(left.count, 0);
  stuck_loop_end(&loop);
  OK(rv_client_add(place.client, "empty", &row, 1, 1, NULL, NULL, error)); /* the client is as good as before */
  rv_client_free(local);
  rv_layout_unref(left.layout);
  rv_cancel_free(left.cancel);
  place_close(&place);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(closing_and_freeing_wait_for_no_stuck_loop),
      cmocka_unit_test(a_call_that_was_given_up_before_it_was_sent_is_not_carried_out),
      cmocka_unit_test(a_batch_that_comes_when_its_caller_has_left_is_not_written_to_his_arrays),
  };
  return cmocka_run_group_tests_name("stuck loop", tests, NULL, NULL);
}
