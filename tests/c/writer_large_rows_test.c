/* Rows that are too large to be copied into a request: they arrive as they were written, and a writer that rests holds none of them. */
#include "client_fixture.h"

#include <sched.h>

#include "base/arena.h"
#include "base/spares.h"
#include "client/client.h"
#include "reverie/writer.h"

enum { MOST_ELEMENTS = 65536, ROUNDS = 40 };

static float row[MOST_ELEMENTS];

/* Row number `number` of so many elements. */
static rv_cell cell_of(int64_t number, const int64_t *elements)
{
  for (int64_t i = 0; i < *elements; i++) row[i] = (float)(number * 7 + i);
  return (rv_cell){.column = 0, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = elements, .data = row}};
}

static rv_writer *new_writer(fixture *f, uint32_t keep)
{
  rv_error err;
  rv_writer *writer;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = keep};
  assert_ok(rv_writer_new(f->client, &config, &writer, &err));
  return writer;
}

/* An item of the last `length` rows, of which the newest is number `number`. */
static void put_item(rv_writer *writer, int64_t number, int64_t length)
{
  rv_error err;
  rv_run run = {.column = 0, .count = (uint32_t)length, .first = number - length + 1, .stride = 1};
  rv_item_column column = {.runs = &run, .num_runs = 1};
  assert_ok(rv_writer_create_item(writer, "fifo", 1, &column, 1, NULL, &err));
}

static void expect_rows(rv_sample *sample, int64_t first, int64_t length, int64_t elements)
{
  rv_error err;
  static float got[3 * MOST_ELEMENTS];
  size_t bytes = (size_t)(length * elements) * sizeof(float);
  assert_ok(rv_sample_copy(sample, 0, got, bytes, &err));
  for (int64_t r = 0; r < length; r++)
    for (int64_t i = 0; i < elements; i++) assert_true(got[r * elements + i] == (float)((first + r) * 7 + i));
}

/* Every third item is of the last rows that are kept, whose chunks are then with the server already; those of writers that keep one row may go in
 * packs. */
static void write_and_read(fixture *f, int64_t elements, uint32_t keep)
{
  rv_error err;
  rv_writer *writer = new_writer(f, keep);
  for (int64_t number = 0; number < ROUNDS; number++) {
    rv_cell cell = cell_of(number, &elements);
    assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
    put_item(writer, number, number % 3 == 2 ? keep : 1);
  }
  assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  rv_writer_free(writer);
  uint64_t cursor = 0;
  rv_item_info items[ROUNDS];
  size_t count;
  assert_ok(rv_client_items(f->client, "fifo", &cursor, items, ROUNDS, &count, &long_enough, &err));
  assert_int_equal(count, ROUNDS);
  for (int64_t number = 0; number < ROUNDS; number++) {
    rv_sample *sample;
    int64_t length = number % 3 == 2 ? keep : 1;
    assert_ok(rv_client_get(f->client, "fifo", items[number].key, &long_enough, &sample, &err));
    expect_rows(sample, number - length + 1, length, elements);
    rv_sample_unref(sample);
  }
  assert_ok(rv_client_reset(f->client, "fifo", &long_enough, &err));
}

/* About where rows are copied into a request, lie behind its bytes, and lie in memory that is lent. */
TEST(rows_of_every_size_arrive_as_they_were_written)
{
  static const int64_t sizes[] = {1,    990,  1000, 1007, 1008, 1009, 1010,  1011,  1012,         1023,
                                  1024, 1025, 2000, 3839, 3840, 4000, 10000, 16384, MOST_ELEMENTS};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (uint32_t keep = 1; keep <= 3; keep += 2) write_and_read(f, sizes[i], keep);
}

/* As where many others' rows wait: those that are large are written past the caches. */
TEST(rows_that_wait_behind_many_arrive_as_they_were_written)
{
  if (f->way == IN_PROCESS) return;
  static const int64_t sizes[] = {3839, 3840, 10001, MOST_ELEMENTS};
  const size_t others = 64 << 20;
  write_and_read(f, 1, 1); /* the client has its loop since */
  rv_loop_count_unconfirmed(f->client->loop, others);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) write_and_read(f, sizes[i], 3);
  assert_int_equal(rv_loop_unconfirmed_bytes(f->client->loop), others);
  rv_loop_count_unconfirmed(f->client->loop, 0 - others);
}

/* An item of one step of three columns, two of them large. */
static void put_step(rv_writer *writer, int64_t number)
{
  static const int64_t large = 10000, small = 3, larger = 16384;
  static float rows[3][16384];
  const int64_t *elements[] = {&large, &small, &larger};
  rv_error err;
  rv_cell cells[3];
  rv_run runs[3];
  rv_item_column columns[3];
  for (uint32_t c = 0; c < 3; c++) {
    for (int64_t i = 0; i < *elements[c]; i++) rows[c][i] = (float)(number * 7 + i + c);
    cells[c] = (rv_cell){.column = c, .value = {.dtype = RV_FLOAT32, .rank = 1, .shape = elements[c], .data = rows[c]}};
    runs[c] = (rv_run){.column = c, .count = 1, .first = number, .stride = 1};
    columns[c] = (rv_item_column){.runs = &runs[c], .num_runs = 1};
  }
  assert_ok(rv_writer_append(writer, cells, 3, false, &err));
  assert_ok(rv_writer_create_item(writer, "fifo", 1, columns, 3, NULL, &err));
}

static void expect_step(rv_sample *sample, int64_t number)
{
  static const int64_t elements[] = {10000, 3, 16384};
  static float got[16384];
  rv_error err;
  for (uint32_t c = 0; c < 3; c++) {
    assert_ok(rv_sample_copy(sample, c, got, (size_t)elements[c] * sizeof(float), &err));
    for (int64_t i = 0; i < elements[c]; i++) assert_true(got[i] == (float)(number * 7 + i + c));
  }
}

/* Many more than wait for their confirmation at a time, so that most are sent while others are on their way. */
TEST(steps_of_small_and_large_rows_arrive_as_they_were_written)
{
  enum { STEPS = 600, ON_THEIR_WAY = 50 };
  rv_error err;
  for (uint32_t keep = 1; keep <= 4; keep += 3) {
    rv_writer *writer = new_writer(f, keep);
    for (int64_t number = 0; number < STEPS; number++) {
      put_step(writer, number);
      assert_ok(rv_writer_flush(writer, ON_THEIR_WAY, &long_enough, &err));
    }
    assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
    rv_writer_free(writer);
    uint64_t cursor = 0;
    static rv_item_info items[STEPS];
    size_t count;
    assert_ok(rv_client_items(f->client, "fifo", &cursor, items, STEPS, &count, &long_enough, &err));
    assert_int_equal(count, STEPS);
    for (int64_t number = 0; number < STEPS; number++) {
      rv_sample *sample;
      assert_ok(rv_client_get(f->client, "fifo", items[number].key, &long_enough, &sample, &err));
      expect_step(sample, number);
      rv_sample_unref(sample);
    }
    assert_ok(rv_client_reset(f->client, "fifo", &long_enough, &err));
  }
}

/* Where a server goes on for one that was stopped, over the same store, what was not confirmed is sent again, from memory that was the first one's. */
TEST(rows_arrive_once_though_their_server_is_stopped_between)
{
  enum { ROWS = 450, ON_THEIR_WAY = 60, STOPPED_EVERY = 75 };
  static const int64_t elements = 10000;
  if (f->way == IN_PROCESS) return;
  rv_error err;
  rv_writer *writer = new_writer(f, 1);
  for (int64_t number = 0; number < ROWS; number++) {
    rv_cell cell = cell_of(number, &elements);
    assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
    put_item(writer, number, 1);
    assert_ok(rv_writer_flush(writer, ON_THEIR_WAY, &long_enough, &err));
    if (number % STOPPED_EVERY != STOPPED_EVERY - 1) continue;
    stop_server(f);
    start_server(f);
  }
  assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  rv_writer_free(writer);
  uint64_t cursor = 0;
  static rv_item_info items[ROWS + 1];
  size_t count;
  assert_ok(rv_client_items(f->client, "fifo", &cursor, items, ROWS + 1, &count, &long_enough, &err));
  assert_int_equal(count, ROWS);
  for (int64_t number = 0; number < ROWS; number++) {
    rv_sample *sample;
    assert_ok(rv_client_get(f->client, "fifo", items[number].key, &long_enough, &sample, &err));
    expect_rows(sample, number, 1, elements);
    rv_sample_unref(sample);
  }
}

static size_t bytes_lent(const fixture *f)
{
  size_t used = 0, idle = 0;
  rv_arena *arena = rv_spares_arena(rv_loop_spares(f->client->loop));
  if (arena != NULL) rv_arena_usage(arena, &used, &idle);
  return used;
}

/* Its rows lie in memory that is lent from the first on. */
static rv_writer *new_connected_writer(fixture *f)
{
  rv_error err;
  rv_writer *writer = new_writer(f, 3);
  assert_ok(rv_writer_wait_ready(writer, &long_enough, &err));
  return writer;
}

/* Faster than they are confirmed. */
static void put_large_rows(rv_writer *writer, int64_t count)
{
  rv_error err;
  static const int64_t elements = MOST_ELEMENTS;
  rv_cell cell = cell_of(0, &elements);
  for (int64_t number = 0; number < count; number++) {
    assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
    put_item(writer, number, 1);
  }
}

/* Also where its thread does something else, and does not ask what has become of them. Three are kept; one more may lie ready for the next, and
 * the loop's spares go within seconds. */
TEST(a_writer_that_rests_holds_no_rows_but_those_it_keeps)
{
  if (f->way == IN_PROCESS) return;
  const size_t most = 5 * MOST_ELEMENTS * sizeof(float);
  rv_writer *writer = new_connected_writer(f);
  put_large_rows(writer, 200);
  for (int waits = 0; bytes_lent(f) > most; waits++) {
    if (waits == 3000) fail_msg("%zu bytes of rows are still held half a minute after the last was written", bytes_lent(f));
    usleep(10000);
  }
  rv_writer_free(writer);
}

/* Whatever the server answers meanwhile. */
TEST(a_writer_is_freed_while_its_rows_are_being_confirmed)
{
  rv_error err;
  for (int round = 0; round < 40; round++) {
    rv_writer *writer = new_connected_writer(f);
    put_large_rows(writer, 20);
    for (int looks = 0; table_size(f, "fifo") < round % 20; looks++) {
      if (looks == 1000000) fail_msg("the rows do not arrive");
      sched_yield();
    }
    rv_writer_free(writer);
    assert_ok(rv_client_reset(f->client, "fifo", &long_enough, &err));
  }
}

static void nothing(void *argument)
{
  (void)argument;
}

/* Confirmed, or given up. */
TEST(rows_count_as_unconfirmed_until_they_are_over)
{
  if (f->way == IN_PROCESS) return;
  rv_error err;
  rv_writer *writer = new_connected_writer(f);
  rv_loop *loop = f->client->loop;
  put_large_rows(writer, 20);
  assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  assert_int_equal(rv_loop_unconfirmed_bytes(loop), 0);
  rv_writer_free(writer);
  writer = new_connected_writer(f);
  stop_server(f);
  put_large_rows(writer, 20);
  assert_true(rv_loop_unconfirmed_bytes(loop) >= 19 * MOST_ELEMENTS * sizeof(float)); /* it is told now and then */
  rv_writer_free(writer);
  rv_loop_call(loop, nothing, NULL); /* the writer's end was posted before this */
  assert_int_equal(rv_loop_unconfirmed_bytes(loop), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      EVERY_WAY(rows_of_every_size_arrive_as_they_were_written),
      EVERY_WAY(rows_that_wait_behind_many_arrive_as_they_were_written),
      EVERY_WAY(steps_of_small_and_large_rows_arrive_as_they_were_written),
      EVERY_WAY(rows_arrive_once_though_their_server_is_stopped_between),
      EVERY_WAY(rows_count_as_unconfirmed_until_they_are_over),
      EVERY_WAY(a_writer_that_rests_holds_no_rows_but_those_it_keeps),
      EVERY_WAY(a_writer_is_freed_while_its_rows_are_being_confirmed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
