/* Saving and restoring whole stores, alone and while others work. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "persist/checkpoint_files.h"
#include "persist/record_file.h"
#include "persist/stores_testing.h"

/* ---- equal after saving and restoring ---- */

static void a_restored_store_equals_the_saved_one_in_everything(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  fill(store);
  char *path = save(f, store), *loaded = NULL;
  rv_error err;
  must(restore(f, tables, TABLES, &back, &loaded, &err), &err);
  assert_string_equal(path, loaded);
  assert_true(strncmp(path, f->root, strlen(f->root)) == 0);
  same_stores(store, back);
  /* and goes on as a store does */
  draw_some(rv_store_table(back, 0), 100);
  add_rows(rv_store_table(back, 0), 400, 5000);
  rv_store_unref(back);
  free(loaded);
  free(path);
  rv_store_unref(store);
}

static void a_store_can_be_saved_and_restored_again_and_again(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  for (int round = 0; round < 4; round++) {
    rv_store *back = NULL;
    rv_error err;
    free(save(f, store));
    must(restore(f, tables, TABLES, &back, NULL, &err), &err);
    same_stores(store, back);
    add_rows(rv_store_table(back, 0), 40, 9000 * round);
    draw_some(rv_store_table(back, 1), 30);
    rv_store_unref(store);
    store = back;
  }
  rv_store_unref(store);
}

static void every_level_of_compression_is_read(void **state)
{
  fixture *f = *state;
  const int32_t levels[] = {-1, 1, 6, 9};
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  for (size_t i = 0; i < 4; i++) {
    rv_checkpointer *checkpointer = NULL;
    rv_checkpointer_config config = {.size = sizeof config, .path = f->root, .level = levels[i], .env = &f->env};
    rv_error err;
    rv_store *back = NULL;
    must(rv_checkpointer_new(&config, &checkpointer, &err), &err);
    free(save_with(checkpointer, store));
    must(restore(f, tables, TABLES, &back, NULL, &err), &err);
    same_stores(store, back);
    rv_store_unref(back);
    rv_checkpointer_unref(checkpointer);
  }
  rv_store_unref(store);
}

/* A writer's segment of which some columns have a row more than others. */
static void rows_of_a_step_that_is_still_open_are_saved(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_spec specs[2] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_FLOAT32}};
  rv_chunk_meta meta = {.key = 12345, .episode_id = 3, .last_step = 2};
  rv_chunk *segment;
  must(rv_segment_new(specs, 2, 10, &meta, &segment, &err), &err);
  for (int64_t i = 0; i < 3; i++) {
    float half = (float)i / 2;
    rv_tensor number = {.dtype = RV_INT64, .data = &i}, real = {.dtype = RV_FLOAT32, .data = &half};
    must(rv_segment_put(segment, 0, i, &number, &err), &err);
    if (i < 2) must(rv_segment_put(segment, 1, i, &real, &err), &err);
  }
  rv_segment_publish(segment, 0, 3);
  rv_segment_publish(segment, 1, 2);
  rv_slice slices[] = {{segment, 0, 1, 2}, {segment, 1, 0, 2}};
  uint32_t num_slices[] = {1, 1};
  bool squeeze[] = {false, false};
  insert_trajectory(store, rv_store_table(store, 1), 1, 1, slices, num_slices, squeeze, 2);
  slices[0].offset = slices[1].offset = 0;
  insert_trajectory(store, rv_store_table(store, 1), 2, 1, slices, num_slices, squeeze, 2);
  free(save(f, store));
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  same_items(rv_store_table(store, 1), rv_store_table(back, 1));
  rv_store_unref(back);
  rv_chunk_unref(segment);
  rv_store_unref(store);
}

/* Just behind the last row that is there, of a segment with strings. */
static void slices_of_no_rows_are_saved(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_spec specs[2] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_STRING}};
  rv_chunk_meta meta = {.key = 54321, .episode_id = 3, .last_step = 2};
  rv_chunk *segment;
  must(rv_segment_new(specs, 2, 3, &meta, &segment, &err), &err);
  for (int64_t i = 0; i < 3; i++) {
    rv_bytes bytes = {"text", 4};
    rv_tensor number = {.dtype = RV_INT64, .data = &i}, text = {.dtype = RV_STRING, .data = &bytes};
    must(rv_segment_put(segment, 0, i, &number, &err), &err);
    must(rv_segment_put(segment, 1, i, &text, &err), &err);
  }
  rv_segment_publish(segment, 0, 3);
  rv_segment_publish(segment, 1, 3);
  uint32_t num_slices[] = {1, 1};
  bool squeeze[] = {false, false};
  for (int32_t length = 0; length < 3; length++) {
    rv_slice slices[] = {{segment, 0, 3 - length, length}, {segment, 1, 3, 0}};
    insert_trajectory(store, rv_store_table(store, 1), 1 + (uint64_t)length, 1, slices, num_slices, squeeze, 2);
  }
  free(save(f, store));
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  same_items(rv_store_table(store, 1), rv_store_table(back, 1));
  rv_store_unref(back);
  rv_chunk_unref(segment);
  rv_store_unref(store);
}

static size_t count_records(const char *dir, const char *name)
{
  char path[400];
  rv_record_reader *reader;
  rv_buf *record;
  rv_error err;
  size_t n = 0;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  must(rv_record_reader_new(path, &reader, &err), &err);
  for (;; n++) {
    must(rv_record_reader_next(reader, &record, &err), &err);
    if (record == NULL) break;
    rv_buf_unref(record);
  }
  rv_record_reader_free(reader);
  return n;
}

/* A writer of which one column has far fewer rows than the other: overlapping items do not write rows again and again. */
static void rows_of_columns_of_different_lengths_are_written_once(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_spec specs[2] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_FLOAT32}};
  rv_chunk_meta meta = {.key = 777, .episode_id = 3, .last_step = 99};
  rv_chunk *segment;
  must(rv_segment_new(specs, 2, 100, &meta, &segment, &err), &err);
  for (int64_t i = 0; i < 100; i++) {
    float half = (float)i / 2;
    rv_tensor number = {.dtype = RV_INT64, .data = &i}, real = {.dtype = RV_FLOAT32, .data = &half};
    must(rv_segment_put(segment, 0, i, &number, &err), &err);
    if (i < 10) must(rv_segment_put(segment, 1, i, &real, &err), &err);
  }
  rv_segment_publish(segment, 0, 100);
  rv_segment_publish(segment, 1, 10);
  for (uint64_t i = 0; i < 90; i++) { /* every seventh out of order: rows before those that are written */
    uint64_t at = i % 7 == 0 ? 90 - i : i;
    rv_slice slices[] = {{segment, 0, (int32_t)at, 10}, {segment, 1, (int32_t)(i % 5), 5}};
    uint32_t num_slices[] = {1, 1};
    bool squeeze[] = {false, false};
    insert_trajectory(store, rv_store_table(store, 1), 1000 + i, 1, slices, num_slices, squeeze, 2);
  }
  char *path = save(f, store);
  assert_in_range(count_records(path, RV_CHUNKS_FILE), 1, 20);
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  same_items(rv_store_table(store, 1), rv_store_table(back, 1));
  free(path);
  rv_store_unref(back);
  rv_chunk_unref(segment);
  rv_store_unref(store);
}

static void a_naming_comes_back(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  int64_t value = 1, shape = 1;
  uint64_t key;
  rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .data = &value};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = 1, .keys = &key, .naming = 0xABCDEF};
  rows.waiter.deadline_ns = INT64_MAX;
  rv_table_insert_rows(rv_store_table(store, 1), &rows);
  free(save(f, store));
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  rv_draw draw;
  must(rv_table_get(rv_store_table(back, 1), key, &draw, &err), &err);
  assert_int_equal(draw.naming, 0xABCDEF);
  rv_draw_release(&draw);
  rv_store_unref(back);
  rv_store_unref(store);
}

static uint64_t add_named(rv_table *table, uint64_t naming)
{
  int64_t value = 1, shape = 1;
  uint64_t key;
  rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .data = &value};
  rv_rows rows = {.columns = &column, .num_columns = 1, .n = 1, .keys = &key, .naming = naming};
  rows.waiter.deadline_ns = INT64_MAX;
  rv_table_insert_rows(table, &rows);
  return key;
}

static uint64_t naming_of(rv_table *table, uint64_t key)
{
  rv_error err;
  rv_draw draw;
  must(rv_table_get(table, key, &draw, &err), &err);
  rv_draw_release(&draw);
  return draw.naming;
}

static void items_of_several_namings_have_the_newest_ones_when_the_others_go(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  size_t unknown;
  const uint64_t old[2] = {add_named(rv_store_table(store, 1), 0), add_named(rv_store_table(store, 1), 0x123)};
  const uint64_t key = add_named(rv_store_table(store, 1), 0xABCDEF);
  free(save(f, store));
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  rv_table *table = rv_store_table(back, 1);
  assert_int_equal(naming_of(table, key), 0);
  must(rv_table_mutate(table, NULL, 0, old, 2, NULL, &unknown, &err), &err);
  assert_int_equal(naming_of(table, key), 0xABCDEF);
  rv_store_unref(back);
  rv_store_unref(store);
}

/* ---- while others work ---- */

typedef struct busy {
  rv_store *store;
  atomic_bool stop;
} busy;

static void *work(void *context)
{
  busy *b = context;
  for (int64_t i = 0; !atomic_load(&b->stop); i++) {
    add_rows(rv_store_table(b->store, 0), 20, i);
    draw_some(rv_store_table(b->store, 0), 80); /* the limiter's ratio, so that it goes on for as long as saving takes */
    add_rows(rv_store_table(b->store, 1), 3, -i);
  }
  return NULL;
}

static void what_is_saved_while_others_work_is_whole(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  busy b = {.store = new_store(tables, TABLES)};
  fill(b.store);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &b);
  for (int round = 0; round < 5; round++) {
    rv_error err;
    rv_store *back = NULL;
    free(save(f, b.store));
    must(restore(f, tables, TABLES, &back, NULL, &err), &err);
    rv_table_info info = info_of(rv_store_table(back, 0));
    assert_int_equal(info.inserts - info.deletes, info.current_size);
    assert_in_range(info.current_size, 200, 300);
    rv_table_info_fini(&info);
    rv_store_unref(back);
  }
  atomic_store(&b.stop, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  assert_null(strstr(f->log, "corrected"));
  rv_store_unref(b.store);
}

/* Two tables from which anything may go, full of rows of this process and of chunks from elsewhere. */
static rv_store *new_full_store(rv_table_config tables[2])
{
  tables[0] = rv_table_config_default("first", 1500);
  tables[1] = rv_table_config_default("second", 1500);
  tables[0].remover.kind = tables[1].remover.kind = RV_SELECTOR_UNIFORM;
  rv_store *store = new_store(tables, 2);
  for (size_t t = 0; t < 2; t++) {
    rv_table *table = rv_store_table(store, t);
    add_rows(table, 700, 0);
    for (uint64_t c = 0; c < 40; c++) {
      rv_chunk *chunk = wire_chunk(1000 * (t + 1) + c, c, 100 * (int64_t)c, 20, false, false);
      for (uint64_t i = 0; i < 20; i++) {
        rv_slice slice = {chunk, 0, (int32_t)i, 1};
        insert_trajectory(store, table, 100000 * (t + 1) + 20 * c + i, 1, &slice, (uint32_t[]){1}, (bool[]){true}, 1);
      }
      rv_chunk_unref(chunk);
    }
  }
  return store;
}

static bool replace_some(void *context, const rv_checkpoint_progress *progress)
{
  rv_store *store = context;
  for (size_t t = 0; t < 2; t++) add_rows(rv_store_table(store, t), 20, -progress->items);
  return true;
}

static void what_goes_while_it_is_saved_is_saved_as_it_was(void **state)
{
  fixture *f = *state;
  rv_table_config tables[2];
  rv_store *store = new_full_store(tables), *before = NULL, *back = NULL;
  rv_error err;
  free(save(f, store));
  must(restore(f, tables, 2, &before, NULL, &err), &err);
  rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = replace_some, .context = store};
  must(rv_checkpointer_save(f->checkpointer, store, &watch, NULL, &err), &err);
  must(restore(f, tables, 2, &back, NULL, &err), &err);
  same_stores(before, back);
  rv_table_info info = info_of(rv_store_table(store, 1));
  assert_true(info.deletes > 500);
  rv_table_info_fini(&info);
  rv_store_unref(back);
  rv_store_unref(before);
  rv_store_unref(store);
}

static bool stop_at(void *context, const rv_checkpoint_progress *progress)
{
  int64_t *left = context;
  assert_true(progress->items <= progress->total_items);
  return --*left > 0;
}

static void one_that_is_given_up_leaves_nothing(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  char *path = save(f, store);
  for (int64_t calls = 1; calls < 3; calls++) {
    int64_t left = calls;
    rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = stop_at, .context = &left};
    char *none;
    rv_error err;
    assert_int_equal(rv_checkpointer_save(f->checkpointer, store, &watch, &none, &err), RV_CANCELLED);
    assert_null(none);
    assert_int_equal(count_entries(f->root), 1);
  }
  free(path);
  rv_store_unref(store);
}

typedef struct turns {
  rv_checkpointer *checkpointer;
  rv_store *store;
  const rv_env *env;
  atomic_int first, second; /* times each was asked */
} turns;

/* Within a minute, instead of a test that hangs. */
static bool is_asked(const turns *t, const atomic_int *times)
{
  const int64_t give_up = rv_monotonic_ns(t->env) + INT64_C(60000000000);
  while (atomic_load(times) == 0 && rv_monotonic_ns(t->env) < give_up) sched_yield();
  return atomic_load(times) > 0;
}

/* Goes on only when the second has been seen to wait. */
static bool first_goes_on(void *context, const rv_checkpoint_progress *progress)
{
  turns *t = context;
  (void)progress;
  atomic_fetch_add(&t->first, 1);
  return is_asked(t, &t->second);
}

static bool second_goes_on(void *context, const rv_checkpoint_progress *progress)
{
  turns *t = context;
  (void)progress;
  atomic_fetch_add(&t->second, 1);
  return true;
}

static void *save_first(void *context)
{
  turns *t = context;
  rv_error err;
  rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = first_goes_on, .context = t};
  must(rv_checkpointer_save(t->checkpointer, t->store, &watch, NULL, &err), &err);
  return NULL;
}

static bool never(void *context, const rv_checkpoint_progress *progress)
{
  (void)context, (void)progress;
  return false;
}

static void who_comes_while_one_is_saved_waits_its_turn(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_error err;
  turns t = {.checkpointer = f->checkpointer, .store = new_store(tables, TABLES), .env = &f->env};
  fill(t.store);
  pthread_t thread;
  pthread_create(&thread, NULL, save_first, &t);
  assert_true(is_asked(&t, &t.first));
  assert_int_equal(rv_checkpointer_save(t.checkpointer, t.store, NULL, NULL, &err), RV_FAILED_PRECONDITION);
  rv_checkpoint_watch impatient = {.size = sizeof impatient, .go_on = never};
  assert_int_equal(rv_checkpointer_save(t.checkpointer, t.store, &impatient, NULL, &err), RV_CANCELLED);
  rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = second_goes_on, .context = &t};
  must(rv_checkpointer_save(t.checkpointer, t.store, &watch, NULL, &err), &err);
  pthread_join(thread, NULL);
  assert_int_equal(count_entries(f->root), 2);
  rv_store_unref(t.store);
}

typedef struct nested {
  rv_checkpointer *checkpointer;
  rv_store *store;
  int refused;
} nested;

static bool save_another(void *context, const rv_checkpoint_progress *progress)
{
  nested *n = context;
  (void)progress;
  rv_error err;
  rv_checkpoint_watch watch = {.size = sizeof watch};
  assert_int_equal(rv_checkpointer_save(n->checkpointer, n->store, &watch, NULL, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, "this thread is saving one"));
  n->refused++;
  return true;
}

static void saving_another_from_its_own_watch_is_refused_and_the_first_is_saved(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_error err;
  nested n = {.checkpointer = f->checkpointer, .store = new_store(tables, TABLES)};
  fill(n.store);
  rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = save_another, .context = &n};
  must(rv_checkpointer_save(n.checkpointer, n.store, &watch, NULL, &err), &err);
  assert_true(n.refused > 0);
  assert_int_equal(count_entries(f->root), 1);
  free(save(f, n.store)); /* and the next */
  rv_store_unref(n.store);
}

/* Every other one is interrupted, and the rest take a byte: of what is small, which the journal's link and the mark are. */
static ssize_t write_a_byte(void *context, int file, const struct iovec *pieces, int count)
{
  atomic_int *calls = context;
  struct iovec part = {pieces->iov_base, 1};
  if (pieces->iov_len > 256) return rv_files_of_system.write(NULL, file, pieces, count);
  if (atomic_fetch_add(calls, 1) % 2 == 1) return rv_files_of_system.write(NULL, file, &part, 1);
  errno = EINTR;
  return -1;
}

static void a_write_that_is_interrupted_or_takes_a_part_is_gone_on_with(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  atomic_int calls;
  atomic_init(&calls, 0);
  rv_files files = rv_files_of_system;
  files.write = write_a_byte;
  files.context = &calls;
  rv_checkpointer *checkpointer;
  const rv_checkpointer_config config = {.size = sizeof config, .path = f->root, .env = &f->env};
  must(rv_checkpointer_new_with(&config, &files, &checkpointer, &err), &err);
  fill(store);
  char *path = save_with(checkpointer, store);
  uint8_t *mark;
  size_t size = read_bytes(path, RV_OURS_FILE, &mark);
  assert_true(size > 1 && mark[size - 1] == '\n');
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  same_stores(store, back);
  free(mark);
  free(path);
  rv_checkpointer_unref(checkpointer);
  rv_store_unref(back);
  rv_store_unref(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_restored_store_equals_the_saved_one_in_everything),
      TEST(a_store_can_be_saved_and_restored_again_and_again),
      TEST(every_level_of_compression_is_read),
      TEST(rows_of_a_step_that_is_still_open_are_saved),
      TEST(slices_of_no_rows_are_saved),
      TEST(rows_of_columns_of_different_lengths_are_written_once),
      TEST(a_naming_comes_back),
      TEST(items_of_several_namings_have_the_newest_ones_when_the_others_go),
      TEST(what_is_saved_while_others_work_is_whole),
      TEST(what_goes_while_it_is_saved_is_saved_as_it_was),
      TEST(one_that_is_given_up_leaves_nothing),
      TEST(who_comes_while_one_is_saved_waits_its_turn),
      TEST(saving_another_from_its_own_watch_is_refused_and_the_first_is_saved),
      TEST(a_write_that_is_interrupted_or_takes_a_part_is_gone_on_with),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
