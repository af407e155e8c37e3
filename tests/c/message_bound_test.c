/* Writers of a server that takes small messages, or keeps few chunks for a stream: what fits is in, whatever is written beside it. */
#include <time.h>

#include "support/place.h"
#include "support/rig.h"

enum { N = 300 };

static test_rig rig;
static test_place place;

static void connect_client(bool shares)
{
  rv_client_config config = {.size = sizeof config, .address = rig.address, .no_shared_memory = !shares};
  place = (test_place){.client = NULL};
  OK(rv_client_new(&config, &place.client, error));
}

static void open_with(size_t max_message_bytes, bool shares)
{
  rv_table_config table = rig_table("t");
  rig_start_with(&rig, &table, 1, (rv_server_config){.max_message_bytes = max_message_bytes});
  connect_client(shares);
}

static void close_all(void)
{
  rv_client_free(place.client);
  rig_stop(&rig);
}

static const char too_large[] = "which is larger than this server takes (65536); raise the server's max_message_bytes, "
                                "or, where its chunks have several rows, make them of fewer";

/* Of an item that was refused the first call after it says so, and does nothing else. */
static bool has_told(rv_code code, const rv_error *err)
{
  if (code == RV_OK) return false;
  assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
  if (strstr(err->message, too_large) == NULL) fail_msg("%s", err->message);
  return true;
}

/* A step and an item of it; its bytes cannot be compressed. */
static void put_row(rv_writer *writer, rv_random *random, uint32_t column, int64_t bytes)
{
  uint8_t *row = malloc((size_t)bytes);
  for (int64_t i = 0; i < bytes; i++) row[i] = (uint8_t)rv_random_below(random, 256);
  rv_cell cell = {.column = column, .value = {.dtype = RV_UINT8, .rank = 1, .shape = &bytes, .data = row}};
  rv_error err;
  if (has_told(rv_writer_append(writer, &cell, 1, false, &err), &err)) OK(rv_writer_append(writer, &cell, 1, false, error));
  rv_run run = {.column = column, .count = 1, .first = rv_writer_num_rows(writer) - 1, .stride = 1};
  rv_item_column of = {.runs = &run, .num_runs = 1};
  if (has_told(rv_writer_create_item(writer, "t", 1, &of, 1, NULL, &err), &err))
    OK(rv_writer_create_item(writer, "t", 1, &of, 1, NULL, error));
  free(row);
}

static void write_rows(size_t max_message_bytes, int64_t row, bool shares)
{
  rv_random random;
  rv_random_init(&random, 1);
  open_with(max_message_bytes, shares);
  rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = 1});
  for (int i = 0; i < N; i++) put_row(writer, &random, 0, row);
  OK(rv_writer_flush(writer, 0, NULL, error));
  assert_int_equal(place_size(&place, "t"), N);
  rv_writer_free(writer);
  close_all();
}

static void small_rows_are_in_however_little_a_server_takes(void **state)
{
  (void)state;
  write_rows(RV_LEAST_MAX_MESSAGE, 500, false);
  write_rows(RV_LEAST_MAX_MESSAGE, 500, true);
  write_rows(RV_LEAST_MAX_MESSAGE, 15000, false);
}

static void large_rows_are_in_where_they_fit(void **state)
{
  (void)state;
  write_rows(64 << 10, 40000, false);
  write_rows(64 << 10, 40000, true);
}

static void a_row_that_is_too_large_costs_no_other(void **state)
{
  (void)state;
  for (int shares = 0; shares < 2; shares++) {
    rv_random random;
    rv_random_init(&random, 1);
    open_with(64 << 10, shares == 1);
    rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = 1});
    for (int i = 0; i < N; i++) put_row(writer, &random, i == N / 2, i == N / 2 ? 100000 : 500);
    OK(rv_writer_settle(writer, NULL, error));
    rv_writer_status status = {.size = sizeof status};
    rv_writer_get_status(writer, &status);
    assert_int_equal(status.items_failed, 1);
    FAILS(RV_RESOURCE_EXHAUSTED, too_large, rv_writer_flush(writer, 0, NULL, error));
    assert_int_equal(rv_writer_discard_failed(writer), 1);
    assert_int_equal(place_size(&place, "t"), N - 1);
    rv_writer_free(writer);
    close_all();
  }
}

static void append_row(rv_writer *writer, rv_random *random)
{
  enum { BYTES = 10000 };
  const int64_t bytes = BYTES;
  uint8_t row[BYTES];
  for (int i = 0; i < BYTES; i++) row[i] = (uint8_t)rv_random_below(random, 256);
  rv_cell cell = {.value = {.dtype = RV_UINT8, .rank = 1, .shape = &bytes, .data = row}};
  OK(rv_writer_append(writer, &cell, 1, false, error));
}

static void create_item(rv_writer *writer, const char *table, uint32_t rows)
{
  rv_run run = {.count = rows, .first = rv_writer_num_rows(writer) - rows, .stride = 1};
  rv_item_column of = {.runs = &run, .num_runs = 1};
  OK(rv_writer_create_item(writer, table, 1, &of, 1, NULL, error));
}

static int64_t count_failed(rv_writer *writer)
{
  rv_writer_status status = {.size = sizeof status};
  const struct timespec pause = {.tv_nsec = 10000000};
  for (int i = 0; i < 3000 && status.items_failed == 0; i++) {
    nanosleep(&pause, NULL);
    rv_writer_get_status(writer, &status);
  }
  return (int64_t)status.items_failed;
}

/* Those before it wait for their limiter, so they are not confirmed when the server has no room for it. */
static void an_item_whose_chunks_a_stream_may_not_keep_costs_no_other(void **state)
{
  (void)state;
  enum { BEFORE = 5, BEHIND = 5, ROWS = 80 };
  const rv_rate_limiter_config open = rv_rate_limiter_min_size(1);
  for (int shares = 0; shares < 2; shares++) {
    rv_table_config tables[2] = {place_queue("queue", 1), rig_table("t")};
    rv_random random;
    rv_random_init(&random, 1);
    tables[0].max_size = 100;
    rig_start_with(&rig, tables, 2, (rv_server_config){.max_stream_chunk_bytes = 512 << 10});
    connect_client(shares == 1);
    rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = ROWS});
    for (int i = 0; i < BEFORE; i++) {
      append_row(writer, &random);
      create_item(writer, "queue", 1);
    }
    rig_wait_for_waiting(&rig, "queue", BEFORE - 1, 0);
    for (int i = 0; i < ROWS; i++) append_row(writer, &random);
    create_item(writer, "t", ROWS);
    assert_int_equal(count_failed(writer), 1);
    FAILS(RV_RESOURCE_EXHAUSTED, "raise the server's max_stream_chunk_bytes", rv_writer_flush(writer, 0, NULL, error));
    assert_int_equal(rv_writer_discard_failed(writer), 1);
    for (int i = 0; i < BEHIND; i++) {
      append_row(writer, &random);
      create_item(writer, "t", 1);
    }
    OK(rv_client_set_rate_limiter(place.client, "queue", &open, NULL, error));
    OK(rv_writer_flush(writer, 0, NULL, error));
    assert_int_equal(place_size(&place, "queue"), BEFORE);
    assert_int_equal(place_size(&place, "t"), BEHIND);
    rv_writer_free(writer);
    close_all();
  }
}

/* Beside what is kept for those before it, which are not confirmed and may be referred to again, there is never room for the last ones. */
static void an_item_that_a_stream_may_keep_alone_is_in_whatever_is_kept_for_others(void **state)
{
  (void)state;
  enum { ITEMS = 120 };
  const rv_rate_limiter_config open = rv_rate_limiter_min_size(1);
  for (int shares = 0; shares < 2; shares++) {
    rv_table_config tables[1] = {place_queue("queue", 1)};
    rv_random random;
    rv_random_init(&random, 1);
    tables[0].max_size = ITEMS;
    rig_start_with(&rig, tables, 1, (rv_server_config){.max_stream_chunk_bytes = 512 << 10});
    connect_client(shares == 1);
    rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = ITEMS});
    for (int i = 0; i < ITEMS; i++) {
      append_row(writer, &random);
      create_item(writer, "queue", 1);
    }
    rig_wait_for_waiting(&rig, "queue", ITEMS - 1, 0);
    OK(rv_client_set_rate_limiter(place.client, "queue", &open, NULL, error));
    OK(rv_writer_flush(writer, 0, NULL, error));
    assert_int_equal(place_size(&place, "queue"), ITEMS);
    rv_writer_free(writer);
    close_all();
  }
}

/* The item before it, which waits for its limiter, has some of the chunks that are too many for the second; those the second brings last. */
static void an_item_that_has_chunks_of_one_that_a_stream_may_not_keep_is_not_taken_for_it(void **state)
{
  (void)state;
  enum { ROWS = 30 };
  const rv_rate_limiter_config open = rv_rate_limiter_min_size(1);
  rv_table_config tables[2] = {place_queue("queue", 1), rig_table("t")};
  rv_random random;
  rv_random_init(&random, 1);
  tables[0].max_size = 100;
  rig_start_with(&rig, tables, 2, (rv_server_config){.max_stream_chunk_bytes = 512 << 10});
  connect_client(false);
  rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = 2 * ROWS});
  append_row(writer, &random);
  create_item(writer, "queue", 1);
  for (int i = 1; i < ROWS; i++) append_row(writer, &random);
  create_item(writer, "queue", ROWS);
  rig_wait_for_waiting(&rig, "queue", 1, 0);
  for (int i = 0; i < ROWS; i++) append_row(writer, &random);
  const rv_run newest_first[] = {{.count = ROWS, .first = ROWS, .stride = 1}, {.count = ROWS, .stride = 1}};
  const rv_item_column of = {.runs = newest_first, .num_runs = 2};
  OK(rv_writer_create_item(writer, "t", 1, &of, 1, NULL, error));
  assert_int_equal(count_failed(writer), 1);
  OK(rv_client_set_rate_limiter(place.client, "queue", &open, NULL, error));
  OK(rv_writer_settle(writer, NULL, error));
  assert_int_equal(rv_writer_discard_failed(writer), 1);
  assert_int_equal(place_size(&place, "queue"), 2);
  assert_int_equal(place_size(&place, "t"), 0);
  rv_writer_free(writer);
  close_all();
}

/* They are refused one after the other, each on two calls: that does not take the longer the more there are. */
static void many_items_that_a_stream_may_not_keep_are_told_within_one_settling(void **state)
{
  (void)state;
  enum { ROWS = 120 };
  rv_table_config table = rig_table("t");
  rv_random random;
  rv_random_init(&random, 1);
  rig_start_with(&rig, &table, 1, (rv_server_config){.max_stream_chunk_bytes = 8 << 10});
  connect_client(false);
  rv_writer *writer = place_writer(&place, (rv_writer_config){.num_keep_alive_refs = ROWS});
  for (int i = 0; i < ROWS; i++) append_row(writer, &random);
  rv_run run = {.count = 1, .stride = 1};
  rv_item_column of = {.runs = &run, .num_runs = 1};
  size_t made = 0;
  for (; run.first < ROWS; run.first++) {
    rv_error err;
    made += rv_writer_create_item(writer, "t", 1, &of, 1, NULL, &err) == RV_OK; /* some say that one before was refused */
  }
  OK(rv_writer_settle(writer, NULL, error));
  assert_int_equal(rv_writer_discard_failed(writer), made);
  rv_writer_free(writer);
  close_all();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_rows_are_in_however_little_a_server_takes),
      cmocka_unit_test(large_rows_are_in_where_they_fit),
      cmocka_unit_test(a_row_that_is_too_large_costs_no_other),
      cmocka_unit_test(an_item_whose_chunks_a_stream_may_not_keep_costs_no_other),
      cmocka_unit_test(an_item_that_a_stream_may_keep_alone_is_in_whatever_is_kept_for_others),
      cmocka_unit_test(an_item_that_has_chunks_of_one_that_a_stream_may_not_keep_is_not_taken_for_it),
      cmocka_unit_test(many_items_that_a_stream_may_not_keep_are_told_within_one_settling),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
