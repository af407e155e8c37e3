/* What a writer refuses, when it says so, and what it does not change by refusing: in process and through a server. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "net/net.h"
#include "store/store.h"
#include "store/table.h"
#include "support/place.h"

static rv_cell int_cell(uint32_t column, const int32_t *value)
{
  return (rv_cell){.column = column, .value = {.dtype = RV_INT32, .data = value}};
}

static rv_cell float_cell(uint32_t column, const float *value)
{
  return (rv_cell){.column = column, .value = {.dtype = RV_FLOAT32, .data = value}};
}

static const int64_t two[1] = {2};
static const rv_spec number_spec = {.name = "number", .dtype = RV_INT32, .rank = 1, .shape = (const int64_t[]){-1}};

static void open_tables(test_place *place, bool remote)
{
  rv_signature signature = {.specs = &number_spec, .num_specs = 1};
  rv_table_config tables[3] = {place_queue_like("plain", 1000), place_queue_like("typed", 1000),
                               place_queue_like("weighted", 1000)};
  tables[1].signature = &signature;
  tables[2].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  place_open(place, remote, tables, 3);
}

static rv_writer *ready_writer(test_place *place, rv_writer_config config)
{
  rv_writer *writer = place_writer(place, config);
  OK(rv_writer_wait_ready(writer, NULL, error));
  return writer;
}

static int32_t row_value(rv_writer *writer, uint32_t column, int64_t row)
{
  rv_tensor value;
  OK(rv_writer_row(writer, column, row, &value, error));
  return *(const int32_t *)value.data;
}

/* ---- append ---- */

static void a_refused_append_changes_nothing(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){0});
  OK(rv_writer_name_column(writer, 1, "('b',)", error));
  int32_t one = 1, other = 2;
  float real = 0.5F;
  OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &one), int_cell(1, &one)}, 2, false, error));
  FAILS(RV_INVALID_ARGUMENT, "wrong dtype for column ('b',)",
        rv_writer_append(writer, (rv_cell[]){int_cell(0, &other), float_cell(1, &real)}, 2, false, error));
  rv_cell pair = {.column = 1, .value = {.dtype = RV_INT32, .rank = 1, .shape = two, .data = (int32_t[]){1, 2}}};
  FAILS(RV_INVALID_ARGUMENT, "incompatible shape for column ('b',)",
        rv_writer_append(writer, (rv_cell[]){int_cell(0, &other), pair}, 2, false, error));
  FAILS(RV_INVALID_ARGUMENT, "already been set",
        rv_writer_append(writer, (rv_cell[]){int_cell(0, &other), int_cell(0, &other)}, 2, false, error));
  FAILS(RV_INVALID_ARGUMENT, "at most",
        rv_writer_append(writer, (rv_cell[]){int_cell(0, &other), int_cell(70000, &one)}, 2, false, error));
  assert_int_equal(rv_writer_num_rows(writer), 1);
  assert_int_equal(rv_writer_episode_steps(writer), 1);
  OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &other), int_cell(1, &other)}, 2, false, error));
  assert_int_equal(row_value(writer, 0, 0), 1);
  assert_int_equal(row_value(writer, 0, 1), 2);
  assert_int_equal(row_value(writer, 1, 1), 2);
  rv_writer_free(writer);
  place_close(&place);
}

static void a_column_that_was_refused_has_not_begun(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){0});
  int32_t one = 1;
  float real = 0.5F;
  rv_cell bad = {.column = 2, .value = {.dtype = (rv_dtype)77, .data = &one}};
  FAILS(RV_INVALID_ARGUMENT, "77 is no dtype",
        rv_writer_append(writer, (rv_cell[]){int_cell(0, &one), int_cell(1, &one), bad}, 3, false, error));
  rv_spec spec;
  assert_int_equal(rv_writer_column_spec(writer, 0, &spec), RV_NOT_FOUND);
  assert_int_equal(rv_writer_num_rows(writer), 0);
  OK(rv_writer_append(writer, (rv_cell[]){float_cell(0, &real)}, 1, false, error));
  OK(rv_writer_column_spec(writer, 0, &spec));
  assert_int_equal(spec.dtype, RV_FLOAT32);
  rv_cell huge = {.column = 3, .value = {.dtype = RV_INT32, .rank = 2, .shape = (int64_t[]){INT64_MAX, 8}, .data = &one}};
  FAILS(RV_INVALID_ARGUMENT, "column 3", rv_writer_append(writer, &huge, 1, false, error));
  rv_cell negative = {.column = 3, .value = {.dtype = RV_INT32, .rank = 1, .shape = (int64_t[]){-1}, .data = &one}};
  FAILS(RV_INVALID_ARGUMENT, "column 3", rv_writer_append(writer, &negative, 1, false, error));
  rv_cell no_data = {.column = 3, .value = {.dtype = RV_INT32}};
  FAILS(RV_INVALID_ARGUMENT, "no data", rv_writer_append(writer, &no_data, 1, false, error));
  rv_writer_free(writer);
  place_close(&place);
}

static void an_open_step_takes_each_column_once(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){0});
  int32_t one = 1, other = 2;
  OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &one)}, 1, true, error));
  FAILS(RV_INVALID_ARGUMENT, "already been set",
        rv_writer_append(writer, (rv_cell[]){int_cell(1, &one), int_cell(0, &other)}, 2, true, error));
  assert_int_equal(rv_writer_row_state(writer, 1, 0), RV_ROW_MISSING);
  OK(rv_writer_append(writer, (rv_cell[]){int_cell(1, &other)}, 1, false, error));
  assert_int_equal(rv_writer_num_rows(writer), 1);
  /* an episode that ends within a step closes it */
  OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &one)}, 1, true, error));
  OK(rv_writer_end_episode(writer, false, NULL, error));
  assert_false(rv_writer_step_is_open(writer));
  OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &other)}, 1, false, error));
  assert_int_equal(rv_writer_num_rows(writer), 3);
  assert_int_equal(rv_writer_episode_steps(writer), 1);
  rv_writer_free(writer);
  place_close(&place);
}

/* ---- create_item ---- */

static void create_item_says_what_is_wrong(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.num_keep_alive_refs = 3});
  float real = 0.5F;
  for (int32_t i = 0; i < 5; i++) {
    rv_cell cells[2] = {int_cell(0, &i), float_cell(1, &real)};
    OK(rv_writer_append(writer, cells, i == 4 ? 1 : 2, false, error));
  }
  FAILS(RV_INVALID_ARGUMENT, "expired", item_of_rows(writer, "plain", 1, 2, 1, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "does not exist", item_of_rows(writer, "plain", 4, 2, 1, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "does not exist", item_of_rows(writer, "plain", -1, 1, 1, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "must not be empty", item_of_rows(writer, "plain", 4, 0, 1, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "must not be empty", rv_writer_create_item(writer, "plain", 1, NULL, 0, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "nan", item_of_rows(writer, "plain", 4, 1, 1, (double)NAN, NULL, error));
  FAILS(RV_NOT_FOUND, "nowhere", item_of_rows(writer, "nowhere", 4, 1, 1, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "no table was named", item_of_rows(writer, NULL, 4, 1, 1, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "", item_of_rows(writer, "weighted", 4, 1, 1, -1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "", item_of_rows(writer, "weighted", 4, 1, 1, (double)INFINITY, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "does not exist", item_of_rows(writer, "plain", 4, 2, INT64_MAX, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "separate places", item_of_rows(writer, "plain", 4, UINT32_MAX, 0, 1, NULL, error));
  rv_run missing = {.column = 1, .first = 4, .count = 1, .stride = 1}, unknown = {.column = 9, .count = 1};
  rv_run mixed[2] = {{.column = 0, .first = 3, .count = 1, .stride = 1}, {.column = 1, .first = 3, .count = 1, .stride = 1}};
  rv_item_column column = {.runs = &missing, .num_runs = 1};
  FAILS(RV_INVALID_ARGUMENT, "missing", rv_writer_create_item(writer, "plain", 1, &column, 1, NULL, error));
  column.runs = &unknown;
  FAILS(RV_INVALID_ARGUMENT, "no rows", rv_writer_create_item(writer, "plain", 1, &column, 1, NULL, error));
  column = (rv_item_column){.runs = mixed, .num_runs = 2};
  FAILS(RV_INVALID_ARGUMENT, "different dtypes", rv_writer_create_item(writer, "plain", 1, &column, 1, NULL, error));
  rv_run two_rows = {.column = 0, .first = 3, .count = 2, .stride = 1};
  column = (rv_item_column){.runs = &two_rows, .num_runs = 1, .squeeze = true};
  FAILS(RV_INVALID_ARGUMENT, "exactly one", rv_writer_create_item(writer, "plain", 1, &column, 1, NULL, error));
  column = (rv_item_column){.runs = &mixed[1], .num_runs = 1};
  FAILS(RV_INVALID_ARGUMENT, "typed", rv_writer_create_item(writer, "typed", 1, &column, 1, NULL, error));
  /* and none of that did harm */
  OK(item_of_rows(writer, "typed", 3, 2, 1, 1, NULL, error));
  OK(item_of_rows(writer, "weighted", 3, 2, 1, 0, NULL, error));
  OK(rv_writer_flush(writer, 0, NULL, error));
  assert_int_equal(place_size(&place, "typed"), 1);
  assert_int_equal(place_size(&place, "plain"), 0);
  rv_writer_free(writer);
  place_close(&place);
}

static void a_column_called_otherwise_than_in_the_signature_is_refused(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){0});
  append_number(writer, 0);
  rv_run run = {.column = 0, .count = 1, .stride = 1};
  rv_item_column column = {.runs = &run, .num_runs = 1, .name = "nummer"};
  FAILS(RV_INVALID_ARGUMENT, "column 0 of the item is called \"nummer\", the table's signature calls it \"number\"",
        rv_writer_create_item(writer, "typed", 1, &column, 1, NULL, error));
  OK(rv_writer_create_item(writer, "plain", 1, &column, 1, NULL, error));
  static const char *const fine[] = {"number", NULL, "0", "a/number"};
  for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
    column.name = fine[i];
    OK(rv_writer_create_item(writer, "typed", 1, &column, 1, NULL, error));
  }
  OK(rv_writer_flush(writer, 0, NULL, error));
  assert_int_equal(place_size(&place, "typed"), 4);
  rv_writer_free(writer);
  place_close(&place);
}

static void configs_that_make_no_sense_are_refused(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = NULL;
  rv_writer_config config = {.size = sizeof config};
  FAILS(RV_INVALID_ARGUMENT, "positive integer", rv_writer_new(place.client, &config, &writer, error));
  config.num_keep_alive_refs = 2;
  config.chunk_length = 3;
  FAILS(RV_INVALID_ARGUMENT, "chunk_length 3", rv_writer_new(place.client, &config, &writer, error));
  config.chunk_length = 0;
  config.compression = (rv_compression)9;
  FAILS(RV_INVALID_ARGUMENT, "9 is no compression", rv_writer_new(place.client, &config, &writer, error));
  FAILS(RV_INVALID_ARGUMENT, "size", rv_writer_new(place.client, &(rv_writer_config){0}, &writer, error));
  writer = place_writer(&place, (rv_writer_config){.columns_share_chunks = true});
  int32_t one = 1;
  FAILS(RV_INVALID_ARGUMENT, "whole steps", rv_writer_append(writer, (rv_cell[]){int_cell(0, &one)}, 1, true, error));
  OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &one)}, 1, false, error));
  FAILS(RV_INVALID_ARGUMENT, "inconsistent",
        rv_writer_append(writer, (rv_cell[]){int_cell(0, &one), int_cell(1, &one)}, 2, false, error));
  FAILS(RV_INVALID_ARGUMENT, "inconsistent", rv_writer_append(writer, (rv_cell[]){int_cell(1, &one)}, 1, false, error));
  rv_writer_free(writer);
  place_close(&place);
}

static void a_column_can_be_configured_before_it_comes(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.num_keep_alive_refs = 2, .chunk_length = 2});
  OK(rv_writer_configure_column(writer, 1, 6, 3, error));
  FAILS(RV_INVALID_ARGUMENT, "positive integer", rv_writer_configure_column(writer, 1, 0, 0, error));
  FAILS(RV_INVALID_ARGUMENT, "positive integer", rv_writer_configure_column(writer, 1, 2, 3, error));
  for (int32_t i = 0; i < 7; i++) OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &i), int_cell(1, &i)}, 2, false, error));
  assert_int_equal(rv_writer_row_state(writer, 0, 4), RV_ROW_EXPIRED);
  assert_int_equal(rv_writer_row_state(writer, 1, 1), RV_ROW_PRESENT);
  assert_int_equal(rv_writer_row_state(writer, 1, 0), RV_ROW_EXPIRED);
  if (remote) FAILS(RV_FAILED_PRECONDITION, "Flush must be called", rv_writer_configure_column(writer, 1, 6, 0, error));
  OK(rv_writer_end_episode(writer, true, NULL, error));
  OK(rv_writer_configure_column(writer, 1, 6, 0, error));
  rv_writer_free(writer);
  place_close(&place);
}

static void a_column_whose_chunks_are_chosen_can_be_configured_between_its_rows(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.num_keep_alive_refs = 8});
  for (int32_t i = 0; i < 9; i++) {
    if (i % 3 == 2) OK(rv_writer_configure_column(writer, 0, 8, 0, error));
    OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &i)}, 1, false, error));
  }
  OK(item_of_rows(writer, "plain", 1, 8, 1, 1, NULL, error));
  OK(rv_writer_flush(writer, 0, NULL, error));
  rv_batch *batch = NULL;
  int32_t found[8] = {0};
  OK(rv_client_sample_batch(place.client, "plain", 1, RV_UNEQUAL_ERROR, NULL, &batch, error));
  OK(rv_batch_gather(batch, 0, found, sizeof found, error));
  for (int32_t i = 0; i < 8; i++) assert_int_equal(found[i], i + 1);
  rv_batch_free(batch);
  rv_writer_free(writer);
  place_close(&place);
}

/* ---- failures that come later ---- */

static void sample_one(test_place *place, const char *table)
{
  rv_batch *batch = NULL;
  OK(rv_client_sample_batch(place->client, table, 1, RV_UNEQUAL_LIST, NULL, &batch, error));
  rv_batch_free(batch);
}

static void a_blocked_table_never_blocks_create_item(bool remote)
{
  test_place place;
  rv_table_config tables[1] = {place_queue("queue", 2)};
  place_open(&place, remote, tables, 1);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.max_in_flight_items = 5});
  for (int32_t i = 0; i < 7; i++) {
    append_number(writer, i);
    OK(item_of_rows(writer, "queue", i, 1, 1, 1, NULL, error));
    OK(rv_writer_flush(writer, i < 2 ? 0 : 5, NULL, error));
  }
  append_number(writer, 7);
  FAILS(RV_RESOURCE_EXHAUSTED, "flush, or slow down", item_of_rows(writer, "queue", 7, 1, 1, 1, NULL, error));
  rv_wait short_wait = {.timeout_ms = 150};
  rv_error err = {.message = ""};
  for (int i = 0; i < 100 && strstr(err.message, "queue") == NULL; i++) /* a busy server may not say it in time */
    assert_int_equal(rv_writer_flush(writer, 4, &short_wait, &err), RV_DEADLINE_EXCEEDED);
  assert_non_null(strstr(err.message, "queue"));
  err.message[0] = '\0';
  for (int i = 0; i < 100 && strstr(err.message, "samples") == NULL; i++)
    assert_int_equal(rv_writer_end_episode(writer, true, &short_wait, &err), RV_DEADLINE_EXCEEDED);
  assert_non_null(strstr(err.message, "samples"));
  assert_int_equal(rv_writer_num_rows(writer), 8); /* nothing was reset */
  rv_wait no_wait = {.timeout_ms = 0};
  FAILS(RV_DEADLINE_EXCEEDED, "5 items", rv_writer_flush(writer, 4, &no_wait, error));
  for (int i = 0; i < 5; i++) sample_one(&place, "queue");
  OK(rv_writer_flush(writer, 0, NULL, error));
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  assert_int_equal(status.items_created, 7);
  assert_int_equal(status.items_confirmed, 7);
  assert_int_equal(status.items_in_flight, 0);
  assert_int_equal(status.bytes_in_flight, 0);
  rv_writer_free(writer);
  place_close(&place);
}

static void bytes_in_flight_are_bounded(bool remote)
{
  test_place place;
  rv_table_config tables[1] = {place_queue("queue", 1)};
  place_open(&place, remote, tables, 1);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.max_in_flight_bytes = 1 << 20});
  static float big[1 << 16];
  int64_t shape[1] = {1 << 16};
  rv_cell cell = {.column = 0, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = shape, .data = big}};
  int64_t rows = 0;
  rv_code code = RV_OK;
  while (code == RV_OK && rows < 100) {
    code = rv_writer_append(writer, &cell, 1, false, NULL);
    if (code == RV_OK) code = item_of_rows(writer, "queue", rows++, 1, 1, 1, NULL, NULL);
  }
  assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
  assert_true(rows <= 6);
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  assert_true(status.bytes_in_flight <= 1 << 20);
  rv_writer_free(writer); /* does not wait for what is blocked */
  place_close(&place);
}

enum { ROUNDS = 4000, MANY = 32 };

static void *sample_rounds(void *place)
{
  for (int i = 0; i < ROUNDS; i++) sample_one(place, "queue");
  return NULL;
}

/* Rows come into the chunk of an item that waits, while whoever samples lets it in. */
static void nothing_is_in_flight_once_another_thread_has_let_all_in(void **state)
{
  (void)state;
  test_place place;
  rv_table_config tables[1] = {place_queue("queue", 1)};
  place_open(&place, false, tables, 1);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){0});
  pthread_t sampler;
  assert_int_equal(pthread_create(&sampler, NULL, sample_rounds, &place), 0);
  rv_cell cells[MANY];
  for (int32_t i = 0; i < ROUNDS; i++) {
    for (uint32_t c = 0; c < MANY; c++) cells[c] = int_cell(c, &i);
    OK(rv_writer_append(writer, cells, MANY, false, error));
    OK(item_of_rows(writer, "queue", i, 1, 1, 1, NULL, error));
    OK(rv_writer_flush(writer, 1, NULL, error));
  }
  OK(rv_writer_flush(writer, 0, NULL, error));
  pthread_join(sampler, NULL);
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  assert_int_equal(status.items_confirmed, ROUNDS);
  assert_int_equal(status.bytes_in_flight, 0);
  rv_writer_free(writer);
  place_close(&place);
}

static void a_freed_writer_takes_back_what_waits(bool remote)
{
  test_place place;
  rv_table_config tables[1] = {place_queue("queue", 1)};
  place_open(&place, remote, tables, 1);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){0});
  for (int32_t i = 0; i < 20; i++) {
    append_number(writer, i);
    OK(item_of_rows(writer, "queue", i, 1, 1, 1, NULL, error));
  }
  rv_writer_free(writer);
  if (!remote) {
    sample_one(&place, "queue");
    assert_int_equal(place_size(&place, "queue"), 0);
  }
  place_close(&place);
}

/* ---- when items leave ---- */

static rv_writer_status status_of(rv_writer *writer)
{
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  return status;
}

static void short_items_leave_without_a_flush(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.num_keep_alive_refs = 100});
  for (int32_t i = 0; i < 60; i++) {
    append_number(writer, i);
    uint32_t length = i < 14 ? (uint32_t)i + 1 : 15;
    OK(item_of_rows(writer, "plain", i + 1 - (int32_t)length, length, 1, 1, NULL, error));
    while (status_of(writer).items_in_flight > 0) sched_yield();
  }
  assert_int_equal(place_size(&place, "plain"), 60);
  rv_writer_free(writer);
  place_close(&place);
}

static void a_fixed_chunk_length_keeps_items_until_the_chunk_is_full_or_a_flush(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.num_keep_alive_refs = 8, .chunk_length = 4});
  for (int32_t i = 0; i < 6; i++) {
    append_number(writer, i);
    OK(item_of_rows(writer, "plain", i, 1, 1, 1, NULL, error));
  }
  while (status_of(writer).items_in_flight > (remote ? 2 : 0)) sched_yield();
  assert_int_equal(place_size(&place, "plain"), remote ? 4 : 6);
  OK(rv_writer_flush(writer, 0, NULL, error));
  assert_int_equal(place_size(&place, "plain"), 6);
  rv_writer_free(writer);
  place_close(&place);
}

static void two_tables_are_served_though_one_is_blocked(bool remote)
{
  test_place place;
  rv_table_config tables[2] = {place_queue("queue", 1), place_queue_like("plain", 100)};
  place_open(&place, remote, tables, 2);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){0});
  for (int32_t i = 0; i < 50; i++) {
    append_number(writer, i);
    OK(item_of_rows(writer, "queue", i, 1, 1, 1, NULL, error));
    OK(item_of_rows(writer, "plain", i, 1, 1, 1, NULL, error));
  }
  OK(rv_writer_flush(writer, 49, NULL, error));
  assert_int_equal(place_size(&place, "plain"), 50);
  for (int32_t i = 0; i < 49; i++) sample_one(&place, "queue");
  OK(rv_writer_flush(writer, 0, NULL, error));
  rv_writer_free(writer);
  place_close(&place);
}

/* ---- what others see ---- */

typedef struct watched {
  _Atomic(rv_writer *) writer;
  atomic_bool looking, over;
} watched;

static void *watch(void *context)
{
  watched *seen = context;
  while (!atomic_load(&seen->over)) {
    atomic_store(&seen->looking, true);
    rv_writer *writer = atomic_load(&seen->writer);
    if (writer != NULL) {
      rv_writer_status status = {.size = sizeof status};
      rv_writer_get_status(writer, &status);
      assert_true(status.items_failed == 0 && status.state[0] != '\0');
    }
    atomic_store(&seen->looking, false);
  }
  return NULL;
}

static void the_status_may_be_asked_while_the_writer_is_closed(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  watched seen = {.writer = NULL};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, watch, &seen), 0);
  for (int i = 0; i < 1000; i++) {
    rv_writer *writer = place_writer(&place, (rv_writer_config){0});
    atomic_store(&seen.writer, writer);
    append_number(writer, i);
    OK(item_of_rows(writer, "plain", 0, 1, 1, 1, NULL, error));
    rv_writer_close(writer);
    atomic_store(&seen.writer, NULL);
    while (atomic_load(&seen.looking)) sched_yield();
    rv_writer_free(writer);
  }
  atomic_store(&seen.over, true);
  pthread_join(thread, NULL);
  place_close(&place);
}

/* ---- the step writer ---- */

static void an_abandoned_step_writer_says_what_it_gave_up_without_waiting(bool remote)
{
  test_place place;
  rv_table_config tables[1] = {place_queue("queue", 1)};
  place_open(&place, remote, tables, 1);
  rv_step_writer *writer = NULL;
  rv_step_writer_config config = {.size = sizeof config, .max_sequence_length = 1};
  OK(rv_step_writer_new(place.client, &config, &writer, error));
  int32_t value = 7;
  rv_tensor one = {.dtype = RV_INT32, .data = &value};
  OK(rv_step_writer_append(writer, &one, 1, NULL, error));
  /* chunks of one step: items leave at once */
  for (int i = 0; i < 5; i++) OK(rv_step_writer_create_item(writer, "queue", 1, 1, NULL, NULL, error));
  while (place_size(&place, "queue") == 0) {
  }
  assert_in_range(rv_step_writer_abandon(writer), 4, 5); /* the first may be in the table before this side knows it */
  assert_true(rv_step_writer_is_closed(writer));
  assert_int_equal(rv_step_writer_abandon(writer), 0);
  FAILS(RV_FAILED_PRECONDITION, "after Close", rv_step_writer_append(writer, &one, 1, NULL, error));
  rv_step_writer_free(writer);
  place_close(&place);
}

static void an_item_is_made_whose_step_writer_had_no_time_to_wait_for_room(bool remote)
{
  enum { ELEMENTS = 3 << 20, ITEMS = 3 };
  test_place place;
  rv_table_config tables[1] = {place_queue("queue", 1)};
  place_open(&place, remote, tables, 1);
  rv_step_writer *writer = NULL;
  rv_step_writer_config config = {
      .size = sizeof config, .max_sequence_length = 2, .chunk_length = 2, .compression = RV_COMPRESSION_NONE};
  OK(rv_step_writer_new(place.client, &config, &writer, error));
  static int32_t values[ELEMENTS];
  const int64_t shape[1] = {ELEMENTS};
  const rv_tensor step = {.dtype = RV_INT32, .rank = 1, .shape = shape, .data = values};
  const rv_wait none = {.timeout_ms = 0};
  /* an item has 24 MiB: the third is over the 64 that may be in flight */
  OK(rv_client_add(place.client, "queue", &step, 1, 1, NULL, NULL, error)); /* it takes the queue's place */
  uint64_t key = 0;
  for (int i = 0; i < ITEMS; i++) {
    for (int k = 0; k < 2; k++) OK(rv_step_writer_append(writer, &step, 1, NULL, error));
    if (i < ITEMS - 1)
      OK(rv_step_writer_create_item(writer, "queue", 2, 1, &none, &key, error));
    else
      FAILS(RV_DEADLINE_EXCEEDED, "timed out", rv_step_writer_create_item(writer, "queue", 2, 1, &none, &key, error));
    assert_true(key != 0);
  }
  FAILS(RV_RESOURCE_EXHAUSTED, "the item was not made", rv_step_writer_create_item(writer, "queue", 2, 1, &none, &key, error));
  assert_true(key == 0);
  for (int i = 0; i < 1 + ITEMS; i++) sample_one(&place, "queue");
  OK(rv_step_writer_create_item(writer, "queue", 2, 1, NULL, &key, error));
  OK(rv_step_writer_close(writer, true, NULL, error));
  sample_one(&place, "queue");
  assert_int_equal(place_size(&place, "queue"), 0);
  rv_step_writer_free(writer);
  place_close(&place);
}

static void the_step_writer_makes_items_of_the_last_steps(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_step_writer *writer = NULL;
  rv_step_writer_config config = {.size = sizeof config};
  FAILS(RV_INVALID_ARGUMENT, "positive integer", rv_step_writer_new(place.client, &config, &writer, error));
  config.max_sequence_length = 4;
  config.chunk_length = 5;
  FAILS(RV_INVALID_ARGUMENT, "chunk_length", rv_step_writer_new(place.client, &config, &writer, error));
  config.chunk_length = 3;
  config.delta_encoded = true;
  OK(rv_step_writer_new(place.client, &config, &writer, error));
  OK(rv_step_writer_wait_ready(writer, NULL, error));
  int32_t values[5] = {10, 11, 12, 13, 14};
  int64_t shape[1] = {5};
  rv_tensor sequence = {.dtype = RV_INT32, .rank = 1, .shape = shape, .data = values}, one = {.dtype = RV_INT32, .data = values};
  FAILS(RV_INVALID_ARGUMENT, "AppendSequence", rv_step_writer_append_sequence(writer, &one, 1, NULL, error));
  rv_tensor bad = {.dtype = RV_INT32, .rank = 1, .data = values};
  FAILS(RV_INVALID_ARGUMENT, "shape", rv_step_writer_append(writer, &bad, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "column 0: its rank is 1 and its shape NULL",
        rv_step_writer_append_sequence(writer, &bad, 1, NULL, error));
  bad.rank = 2;
  bad.shape = (const int64_t[]){5, -3};
  FAILS(RV_INVALID_ARGUMENT, "column 0: dimension 1 has the negative size -3",
        rv_step_writer_append_sequence(writer, &bad, 1, NULL, error));
  OK(rv_step_writer_append_sequence(writer, &sequence, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "inconsistent", rv_step_writer_append(writer, (rv_tensor[]){one, one}, 2, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "num_timesteps", rv_step_writer_create_item(writer, "plain", 0, 1, NULL, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "larger than", rv_step_writer_create_item(writer, "plain", 5, 1, NULL, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "no table was named", rv_step_writer_create_item(writer, NULL, 2, 1, NULL, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "nan", rv_step_writer_create_item(writer, "plain", 2, (double)NAN, NULL, NULL, error));
  uint64_t key;
  OK(rv_step_writer_create_item(writer, "typed", 4, 1, NULL, &key, error));
  OK(rv_step_writer_flush(writer, NULL, error)); /* sends it */
  OK(rv_step_writer_flush(writer, NULL, error)); /* waits for it */
  rv_sample *sample = NULL;
  OK(rv_client_get(place.client, "typed", key, NULL, &sample, error));
  int32_t out[4];
  OK(rv_sample_copy(sample, 0, out, sizeof out, error));
  assert_memory_equal(out, values + 1, sizeof out);
  rv_sample_unref(sample);
  OK(rv_step_writer_append(writer, &one, 1, NULL, error));
  OK(rv_step_writer_create_item(writer, "plain", 1, 1, NULL, &key, error));
  OK(rv_step_writer_close(writer, true, NULL, error));
  assert_int_equal(place_size(&place, "plain"), 1);
  FAILS(RV_FAILED_PRECONDITION, "after Close", rv_step_writer_append(writer, &one, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "already been called", rv_step_writer_close(writer, true, NULL, error));
  rv_step_writer_free(writer);
  place_close(&place);
}

/* Strings are longer than their room in a row tells. */
static void a_chunk_of_strings_whose_length_is_chosen_has_about_a_megabyte(void **state)
{
  (void)state;
  enum { ROWS = 40 };
  test_place place;
  open_tables(&place, true);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.num_keep_alive_refs = ROWS});
  static const char text[300000];
  rv_bytes string = {text, sizeof text};
  rv_cell cell = {.column = 0, .value = {.dtype = RV_STRING, .data = &string}};
  for (int i = 0; i < ROWS; i++) OK(rv_writer_append(writer, &cell, 1, false, error));
  uint64_t key;
  OK(item_of_rows(writer, "plain", 0, ROWS, 1, 1, &key, error));
  OK(rv_writer_flush(writer, 0, NULL, error));
  rv_table *table;
  rv_draw draw;
  OK(rv_store_find_named(place.store, "plain", &table, error));
  OK(rv_table_get(table, key, &draw, error));
  for (uint32_t i = 0; i < draw.trajectory->num_slices; i++)
    assert_true(rv_chunk_memory(rv_draw_slice(&draw, i).chunk) < (1 << 20) + 2 * sizeof text);
  rv_draw_release(&draw);
  rv_writer_free(writer);
  place_close(&place);
}

BOTH(a_refused_append_changes_nothing)
BOTH(a_column_that_was_refused_has_not_begun)
BOTH(an_open_step_takes_each_column_once)
BOTH(create_item_says_what_is_wrong)
BOTH(a_column_called_otherwise_than_in_the_signature_is_refused)
BOTH(configs_that_make_no_sense_are_refused)
BOTH(a_column_can_be_configured_before_it_comes)
BOTH(a_column_whose_chunks_are_chosen_can_be_configured_between_its_rows)
BOTH(a_blocked_table_never_blocks_create_item)
BOTH(bytes_in_flight_are_bounded)
BOTH(a_freed_writer_takes_back_what_waits)
BOTH(short_items_leave_without_a_flush)
BOTH(a_fixed_chunk_length_keeps_items_until_the_chunk_is_full_or_a_flush)
BOTH(two_tables_are_served_though_one_is_blocked)
BOTH(the_status_may_be_asked_while_the_writer_is_closed)
BOTH(the_step_writer_makes_items_of_the_last_steps)
BOTH(an_item_is_made_whose_step_writer_had_no_time_to_wait_for_room)
BOTH(an_abandoned_step_writer_says_what_it_gave_up_without_waiting)

/* Whoever has given up hears so from every call, also from one that finds nothing left to wait for. */
static void a_flush_that_was_cancelled_says_so_though_all_has_landed(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  rv_writer *writer = ready_writer(&place, (rv_writer_config){0});
  int32_t one = 1;
  OK(rv_writer_append(writer, (rv_cell[]){int_cell(0, &one)}, 1, false, error));
  OK(rv_writer_flush(writer, 0, NULL, error));
  rv_cancel *cancel;
  OK(rv_cancel_new(&cancel, error));
  rv_cancel_fire(cancel);
  const rv_wait given_up = {.timeout_ms = RV_FOREVER, .cancel = cancel};
  FAILS(RV_CANCELLED, "cancelled by the caller", rv_writer_flush(writer, 0, &given_up, error));
  OK(rv_writer_flush(writer, 0, NULL, error));
  rv_cancel_free(cancel);
  rv_writer_free(writer);
  place_close(&place);
}
BOTH(a_flush_that_was_cancelled_says_so_though_all_has_landed)

/* What an item is refused for names it as far as there is room, which may end within a character: that is no reason to lose others. */
static void an_item_for_an_unknown_table_with_a_long_name_costs_no_other(bool remote)
{
  test_place place;
  open_tables(&place, remote);
  char unknown[128] = "x";
  while (strlen(unknown) < 121) strcat(unknown, "\xC3\xA9");
  rv_writer *writer = ready_writer(&place, (rv_writer_config){.no_validation = true});
  append_number(writer, 7);
  uint64_t good[2], bad;
  OK(item_of_rows(writer, "plain", 0, 1, 1, 1, &good[0], error));
  if (remote) OK(item_of_rows(writer, unknown, 0, 1, 1, 1, &bad, error));
  if (!remote) FAILS(RV_NOT_FOUND, "was not found", item_of_rows(writer, unknown, 0, 1, 1, 1, &bad, error));
  OK(item_of_rows(writer, "plain", 0, 1, 1, 1, &good[1], error));
  OK(rv_writer_settle(writer, NULL, error));
  if (remote) FAILS(RV_NOT_FOUND, "\xC3\xA9\" was not found", rv_writer_take_failure(writer, error));
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  assert_int_equal(status.items_confirmed, 2);
  assert_int_equal(status.items_failed, remote ? 1 : 0);
  assert_int_equal(place_size(&place, "plain"), 2);
  rv_writer_free(writer);
  place_close(&place);
}
BOTH(an_item_for_an_unknown_table_with_a_long_name_costs_no_other)

/* With a client that takes as little as one may. */
static void use_small_client(test_place *place)
{
  rv_client_free(place->client);
  rv_client_config small = {.size = sizeof small, .address = place->held.address, .max_message_bytes = RV_LEAST_MAX_MESSAGE};
  OK(rv_client_new(&small, &place->client, error));
}

static void a_client_that_takes_little_hears_of_all_items_that_were_refused(void **state)
{
  (void)state;
  enum { N = 300 };
  char unknown[200];
  memset(unknown, 'x', sizeof unknown - 1);
  unknown[sizeof unknown - 1] = '\0';
  test_place place;
  open_tables(&place, true);
  use_small_client(&place);
  rv_writer *writer = place_writer(&place, (rv_writer_config){.no_validation = true});
  append_number(writer, 7);
  for (int made = 0; made < N;) { /* a call may return that one before it was refused */
    rv_code code = item_of_rows(writer, unknown, 0, 1, 1, 1, NULL, NULL);
    assert_true(code == RV_OK || code == RV_NOT_FOUND);
    made += code == RV_OK;
  }
  OK(rv_writer_settle(writer, NULL, error));
  rv_writer_status status = {.size = sizeof status};
  rv_writer_get_status(writer, &status);
  assert_int_equal(status.items_failed, N);
  assert_int_equal(status.reconnects, 0);
  FAILS(RV_NOT_FOUND, "was not inserted", rv_writer_flush(writer, 0, NULL, error));
  assert_int_equal(rv_writer_discard_failed(writer), N);
  OK(item_of_rows(writer, "plain", 0, 1, 1, 1, NULL, error));
  OK(rv_writer_flush(writer, 0, NULL, error));
  rv_writer_free(writer);
  place_close(&place);
}

/* It would wait for ever for an answer that never fits; the server checks what comes. */
static void items_go_unchecked_where_what_the_server_says_of_its_tables_is_too_large(void **state)
{
  (void)state;
  enum { NAME = 2000, TABLES = 10 };
  test_place place;
  rv_signature signature = {.specs = &number_spec, .num_specs = 1};
  rv_table_config tables[1 + TABLES] = {place_queue_like("typed", 1000)};
  tables[0].signature = &signature;
  static char names[TABLES][NAME + 1];
  for (int i = 0; i < TABLES; i++) {
    memset(names[i], 'a' + i, NAME);
    tables[1 + i] = place_queue_like(names[i], 1000);
  }
  place_open(&place, true, tables, 1 + TABLES);
  use_small_client(&place);
  rv_writer *writer = place_writer(&place, (rv_writer_config){0});
  append_number(writer, 7);
  OK(item_of_rows(writer, "typed", 0, 1, 1, 1, NULL, error));
  OK(rv_writer_flush(writer, 0, NULL, error));
  FAILS(RV_RESOURCE_EXHAUSTED, "larger than this client takes (16384)", rv_writer_wait_ready(writer, NULL, error));
  float real = 0.5F;
  OK(rv_writer_append(writer, (rv_cell[]){float_cell(1, &real)}, 1, false, error));
  rv_run run = {.column = 1, .count = 1, .first = 1, .stride = 1};
  rv_item_column column = {.runs = &run, .num_runs = 1};
  OK(rv_writer_create_item(writer, "typed", 1, &column, 1, NULL, error));
  FAILS(RV_INVALID_ARGUMENT, "int32", rv_writer_flush(writer, 0, NULL, error));
  rv_writer_free(writer);
  place_close(&place);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      BOTH_TESTS(a_refused_append_changes_nothing),
      BOTH_TESTS(a_column_that_was_refused_has_not_begun),
      BOTH_TESTS(an_open_step_takes_each_column_once),
      BOTH_TESTS(create_item_says_what_is_wrong),
      BOTH_TESTS(a_column_called_otherwise_than_in_the_signature_is_refused),
      BOTH_TESTS(configs_that_make_no_sense_are_refused),
      BOTH_TESTS(a_column_can_be_configured_before_it_comes),
      BOTH_TESTS(a_column_whose_chunks_are_chosen_can_be_configured_between_its_rows),
      BOTH_TESTS(a_blocked_table_never_blocks_create_item),
      BOTH_TESTS(bytes_in_flight_are_bounded),
      cmocka_unit_test(nothing_is_in_flight_once_another_thread_has_let_all_in),
      BOTH_TESTS(a_freed_writer_takes_back_what_waits),
      BOTH_TESTS(the_status_may_be_asked_while_the_writer_is_closed),
      BOTH_TESTS(the_step_writer_makes_items_of_the_last_steps),
      BOTH_TESTS(an_item_is_made_whose_step_writer_had_no_time_to_wait_for_room),
      BOTH_TESTS(an_abandoned_step_writer_says_what_it_gave_up_without_waiting),
      BOTH_TESTS(a_flush_that_was_cancelled_says_so_though_all_has_landed),
      BOTH_TESTS(short_items_leave_without_a_flush),
      BOTH_TESTS(a_fixed_chunk_length_keeps_items_until_the_chunk_is_full_or_a_flush),
      BOTH_TESTS(two_tables_are_served_though_one_is_blocked),
      BOTH_TESTS(an_item_for_an_unknown_table_with_a_long_name_costs_no_other),
      cmocka_unit_test(a_client_that_takes_little_hears_of_all_items_that_were_refused),
      cmocka_unit_test(items_go_unchecked_where_what_the_server_says_of_its_tables_is_too_large),
      cmocka_unit_test(a_chunk_of_strings_whose_length_is_chosen_has_about_a_megabyte),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
