/* More data than memory comes back from a checkpoint, or from a journal, without ever being all in memory. */
#include "client_fixture.h"
#include "reverie/checkpoint.h"
#include "reverie/journal.h"
#include "reverie/spill.h"
#include "reverie/writer.h"

enum { MIB = 1 << 20, LIMIT = 8 * MIB, ROW = 4096, ROWS = 4 * LIMIT / ROW, EVERY = 7, FIRST = ROWS / 4 };

typedef struct place {
  char disk[64], root[64], journal_root[64];
  rv_checkpointer *checkpointer;
  rv_store *store;
  rv_journal *journal;
  rv_spill *spill;
  int64_t asked;
} place;

static void make_directory(char *path, size_t size)
{
  snprintf(path, size, "/tmp/rv-spill-restore-XXXXXX");
  assert_non_null(mkdtemp(path));
}

static void begin(place *p)
{
  rv_error err;
  *p = (place){.asked = 0};
  make_directory(p->disk, sizeof p->disk);
  make_directory(p->root, sizeof p->root);
  make_directory(p->journal_root, sizeof p->journal_root);
  rv_checkpointer_config saving = {.size = sizeof saving, .path = p->root, .fresh = true};
  assert_ok(rv_checkpointer_new(&saving, &p->checkpointer, &err));
}

static void close_store(place *p)
{
  rv_spill_free(p->spill);
  if (p->journal != NULL) rv_journal_unref(p->journal);
  rv_store_unref(p->store);
  p->spill = NULL;
  p->journal = NULL;
  p->store = NULL;
}

static void end(place *p)
{
  char command[240];
  close_store(p);
  rv_checkpointer_unref(p->checkpointer);
  snprintf(command, sizeof command, "rm -rf %s %s %s", p->disk, p->root, p->journal_root);
  assert_int_equal(system(command), 0);
}

static bool look(void *context, const rv_checkpoint_progress *progress)
{
  place *p = context;
  (void)progress;
  p->asked += p->spill != NULL; /* the tables are read first */
  return true;
}

static rv_code open_store(place *p, bool journalled, const char *disk, rv_error *err)
{
  const rv_table_config tables[] = {rv_table_config_default("t", 1000000), rv_table_config_default("some", 1000000)};
  const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = 2, .memory_limit = LIMIT};
  const rv_spill_config spill = {.size = sizeof spill, .path = disk};
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = look, .context = p, .spill = &spill, .spilled = &p->spill};
  const rv_journal_config journal = {.size = sizeof journal, .path = p->journal_root, .mode = RV_JOURNAL_PERIODIC};
  return journalled ? rv_journal_recover(&journal, p->checkpointer, &config, &watch, &p->store, &p->journal, err)
                    : rv_checkpointer_restore(p->checkpointer, &config, &watch, &p->store, NULL, err);
}

static uint8_t byte_of(int64_t step)
{
  return (uint8_t)(step * 37 + 5);
}

/* Each step is an item, and some are one of the other table, too. */
static void write_steps(place *p, int64_t first, int64_t end_step)
{
  rv_error err;
  rv_client *client;
  rv_writer *writer;
  const rv_client_config here = {.size = sizeof here, .store = p->store};
  const rv_writer_config config = {
      .size = sizeof config, .num_keep_alive_refs = 1, .chunk_length = 1, .compression = RV_COMPRESSION_NONE};
  static uint8_t row[ROW];
  const int64_t shape = ROW;
  const rv_cell cell = {.value = {.dtype = RV_UINT8, .rank = 1, .shape = &shape, .data = row}};
  assert_ok(rv_client_new(&here, &client, &err));
  assert_ok(rv_writer_new(client, &config, &writer, &err));
  for (int64_t step = first; step < end_step; step++) {
    memset(row, byte_of(step), sizeof row);
    assert_ok(rv_writer_append(writer, &cell, 1, false, &err));
    const rv_run run = {.first = step - first, .stride = 1, .count = 1};
    const rv_item_column column = {.runs = &run, .num_runs = 1};
    assert_ok(rv_writer_create_item(writer, "t", 1.0 + (double)step, &column, 1, NULL, &err));
    if (step % EVERY == 0) assert_ok(rv_writer_create_item(writer, "some", 1.0 + (double)step, &column, 1, NULL, &err));
    if (step % 16 == 0) assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  }
  assert_ok(rv_writer_flush(writer, 0, &long_enough, &err));
  rv_writer_free(writer);
  rv_client_free(client);
}

static int64_t check_table(place *p, size_t table)
{
  static uint8_t row[ROW];
  rv_error err;
  rv_item_info items[64];
  uint64_t cursor = 0;
  size_t count;
  int64_t seen = 0;
  do {
    assert_ok(rv_table_items(rv_store_table(p->store, table), &cursor, items, 64, &count, &err));
    for (size_t i = 0; i < count; i++, seen++) {
      rv_draw draw;
      assert_ok(rv_table_get(rv_store_table(p->store, table), items[i].key, &draw, &err));
      assert_ok(rv_draw_copy_column(&draw, 0, row, &err));
      for (size_t k = 0; k < ROW; k += 511) assert_int_equal(row[k], byte_of((int64_t)items[i].priority - 1));
      rv_draw_release(&draw);
    }
  } while (cursor != 0 && count > 0);
  return seen;
}

/* Looked at as soon as it has been loaded: whatever came then has found its room. */
static void expect_all(place *p, int64_t steps)
{
  rv_memory_info memory;
  rv_store_memory_info(p->store, &memory);
  assert_true(memory.used_bytes <= LIMIT);
  assert_true(memory.spilled_bytes > LIMIT);
  assert_int_equal(check_table(p, 0), steps);
  assert_int_equal(check_table(p, 1), (steps + EVERY - 1) / EVERY);
}

static void what_was_saved_with_a_spill_is_restored_with_one(void **state)
{
  (void)state;
  place p;
  rv_error err;
  begin(&p);
  assert_ok(open_store(&p, false, p.disk, &err));
  write_steps(&p, 0, ROWS);
  expect_all(&p, ROWS);
  assert_ok(rv_checkpointer_save(p.checkpointer, p.store, NULL, NULL, &err));
  close_store(&p);
  assert_ok(open_store(&p, false, p.disk, &err));
  assert_true(p.asked > 0);
  expect_all(&p, ROWS);
  end(&p);
}

static void what_a_journal_has_of_it_is_made_again_with_one(void **state)
{
  (void)state;
  place p;
  rv_error err;
  begin(&p);
  assert_ok(open_store(&p, true, p.disk, &err));
  write_steps(&p, 0, FIRST);
  assert_ok(rv_checkpointer_save(p.checkpointer, p.store, NULL, NULL, &err));
  write_steps(&p, FIRST, ROWS);
  close_store(&p);
  assert_ok(open_store(&p, true, p.disk, &err));
  expect_all(&p, ROWS);
  end(&p);
}

static void a_spill_that_cannot_be_is_the_starts_error_and_no_checkpoints_fault(void **state)
{
  (void)state;
  place p;
  rv_error err;
  begin(&p);
  assert_code(open_store(&p, false, "/nowhere", &err), RV_NOT_FOUND);
  assert_null(p.spill);
  assert_null(p.store);
  assert_ok(open_store(&p, false, p.disk, &err));
  write_steps(&p, 0, 100);
  assert_ok(rv_checkpointer_save(p.checkpointer, p.store, NULL, NULL, &err));
  close_store(&p);
  for (int journalled = 0; journalled < 2; journalled++) {
    assert_code(open_store(&p, journalled, "/nowhere", &err), RV_NOT_FOUND);
    assert_says("spill \"/nowhere\"");
    assert_null(p.spill);
    assert_null(p.store);
  }
  end(&p);
}

static void a_spill_without_a_place_for_it_is_refused(void **state)
{
  (void)state;
  place p;
  rv_error err;
  begin(&p);
  const rv_table_config table = rv_table_config_default("t", 10);
  const rv_store_config config = {.size = sizeof config, .tables = &table, .num_tables = 1, .memory_limit = LIMIT};
  const rv_spill_config spill = {.size = sizeof spill, .path = p.disk};
  const rv_checkpoint_watch watch = {.size = sizeof watch, .spill = &spill};
  assert_code(rv_checkpointer_restore(p.checkpointer, &config, &watch, &p.store, NULL, &err), RV_INVALID_ARGUMENT);
  assert_says("rv_checkpoint_watch.spilled");
  end(&p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_saved_with_a_spill_is_restored_with_one),
      cmocka_unit_test(what_a_journal_has_of_it_is_made_again_with_one),
      cmocka_unit_test(a_spill_that_cannot_be_is_the_starts_error_and_no_checkpoints_fault),
      cmocka_unit_test(a_spill_without_a_place_for_it_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
