/* Saving and restoring whole stores. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "persist/record_file.h"
#include "persist/testing.h"
#include "wire/messages.h"

/* ---- stores with something in them ---- */

enum { TABLES = 3 };

static void configure(rv_table_config tables[TABLES])
{
  tables[0] = rv_table_config_default("replay", 300);
  tables[0].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6};
  tables[0].rate_limiter = rv_rate_limiter_sample_to_insert_ratio(4, 10, 1e6);
  tables[1] = rv_table_config_default("mixed", 1000);
  tables[1].remover.kind = RV_SELECTOR_MIN_HEAP;
  tables[2] = rv_table_config_default("empty", 5);
  tables[2].sampler.kind = RV_SELECTOR_LIFO;
  tables[2].max_times_sampled = 2;
}

static rv_store *new_store(const rv_table_config *tables, size_t n)
{
  rv_error err;
  rv_store *store = NULL;
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = n};
  must(rv_store_new(&config, &store, &err), &err);
  return store;
}

/* A chunk as it comes over the wire. */
static rv_chunk *wire_chunk(uint64_t key, uint64_t episode, int64_t first, size_t n, bool snappy, bool delta)
{
  rv_error err;
  rv_chunk *segment, *chunk = NULL;
  rv_spec specs[2] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_STRING}};
  rv_chunk_meta meta = {.key = key, .episode_id = episode, .last_step = (int32_t)n - 1};
  must(rv_segment_new(specs, 2, n, &meta, &segment, &err), &err);
  for (size_t i = 0; i < n; i++) {
    int64_t value = first + (int64_t)i;
    char text[32];
    rv_bytes bytes = {text, (size_t)snprintf(text, sizeof text, "row %lld", (long long)value)};
    rv_tensor number = {.dtype = RV_INT64, .data = &value}, string = {.dtype = RV_STRING, .data = &bytes};
    must(rv_segment_put(segment, 0, (int64_t)i, &number, &err), &err);
    must(rv_segment_put(segment, 1, (int64_t)i, &string, &err), &err);
  }
  rv_segment_publish(segment, 0, (int64_t)n);
  rv_segment_publish(segment, 1, (int64_t)n);
  rv_pieces pieces;
  uint8_t flags[2] = {snappy, snappy};
  rv_chunk_encoding encoding = {.key = key, .column = SIZE_MAX, .count = (int64_t)n, .delta = delta, .snappy = {flags, 2}};
  rv_pieces_init(&pieces);
  must(rv_chunk_serialize(&pieces, segment, &encoding, &err), &err);
  rv_buf *buf = rv_buf_new(pieces.bytes);
  for (size_t i = 0; i < pieces.count; buf->size += pieces.piece[i++].size)
    memcpy(buf->data + buf->size, pieces.piece[i].data, pieces.piece[i].size);
  must(rv_chunk_parse(buf, (rv_span){buf->data, buf->size}, false, &chunk, &err), &err);
  rv_buf_unref(buf);
  rv_pieces_fini(&pieces);
  rv_chunk_unref(segment);
  return chunk;
}

static void insert_trajectory(rv_store *store, rv_table *table, uint64_t key, double priority, const rv_slice *slices,
                              const uint32_t *num_slices, const bool *squeeze, uint32_t columns)
{
  rv_error err;
  rv_insert insert = {.key = key, .priority = priority};
  rv_trajectory_desc desc = {.slices = slices, .num_slices = num_slices, .squeeze = squeeze, .num_columns = columns};
  must(rv_trajectory_new(rv_store_layouts(store), &desc, &insert.trajectory, &err), &err);
  insert.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_insert(table, &insert), RV_SUBMIT_DONE);
  must(insert.waiter.code, &insert.waiter.error);
  rv_trajectory_unref(insert.trajectory);
}

static void draw_some(rv_table *table, size_t n)
{
  rv_draw *draws = calloc(n, sizeof *draws);
  rv_sampling sampling = {.want = n, .partial = true, .draws = draws};
  sampling.waiter.deadline_ns = INT64_MAX;
  assert_int_equal(rv_table_sample(table, &sampling), RV_SUBMIT_DONE);
  for (size_t i = 0; i < sampling.count; i++) rv_draw_release(&draws[i]);
  free(draws);
}

static void add_rows(rv_table *table, size_t n, int64_t first)
{
  int64_t *values = calloc(n, sizeof *values);
  rv_rows rows;
  for (size_t i = 0; i < n; i++) values[i] = first + (int64_t)i;
  add_values(table, &rows, values, n, NULL);
  must(rows.waiter.code, &rows.waiter.error);
  free(values);
}

/* Rows of this process, chunks from elsewhere in every encoding, one in two tables, two with one key, items over several. */
static void fill(rv_store *store)
{
  rv_error err;
  rv_table *replay = rv_store_table(store, 0), *mixed = rv_store_table(store, 1);
  size_t unknown;
  add_rows(replay, 450, 0);
  add_rows(mixed, 30, 1000);
  rv_chunk *chunks[5];
  for (uint64_t i = 0; i < 5; i++)
    chunks[i] = wire_chunk(i == 4 ? 900 : 900 + i, 50 + i, 100 * (int64_t)i, 20, i % 2 == 1, i >= 2);
  for (uint64_t i = 0; i < 40; i++) {
    rv_chunk *a = chunks[i % 5], *b = chunks[(i + 1) % 5];
    rv_slice slices[] = {{a, 0, (int32_t)(i % 10), 5}, {b, 0, 0, 1}, {a, 1, (int32_t)(i % 20), 1}};
    uint32_t num_slices[] = {2, 1};
    bool squeeze[] = {false, true};
    insert_trajectory(store, i % 3 == 0 ? replay : mixed, i == 7 ? 0 : 70 + i, 0.5 + (double)i, slices, num_slices, squeeze, 2);
  }
  for (size_t i = 0; i < 5; i++) rv_chunk_unref(chunks[i]);
  draw_some(replay, 200);
  draw_some(mixed, 50);
  rv_item_info *items = calloc(LISTED_MAX, sizeof *items);
  size_t n = list_items(replay, items, LISTED_MAX);
  for (size_t i = 0; i < n; i += 7) {
    rv_key_priority update = {items[i].key, (double)i / 3};
    must(rv_table_mutate(replay, &update, 1, &items[i + 1].key, 1, NULL, &unknown, &err), &err);
  }
  free(items);
}

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
    must(rv_record_reader_next(reader, 0, &record, &err), &err);
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
    draw_some(rv_store_table(b->store, 0), 20);
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
  atomic_int first, second; /* times each was asked */
} turns;

/* Goes on only when the second has been seen to wait. */
static bool first_goes_on(void *context, const rv_checkpoint_progress *progress)
{
  turns *t = context;
  (void)progress;
  atomic_fetch_add(&t->first, 1);
  while (atomic_load(&t->second) == 0) sched_yield();
  return true;
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
  turns t = {.checkpointer = f->checkpointer, .store = new_store(tables, TABLES)};
  fill(t.store);
  pthread_t thread;
  pthread_create(&thread, NULL, save_first, &t);
  while (atomic_load(&t.first) == 0) sched_yield();
  assert_int_equal(rv_checkpointer_save(t.checkpointer, t.store, NULL, NULL, &err), RV_FAILED_PRECONDITION);
  rv_checkpoint_watch impatient = {.size = sizeof impatient, .go_on = never};
  assert_int_equal(rv_checkpointer_save(t.checkpointer, t.store, &impatient, NULL, &err), RV_CANCELLED);
  rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = second_goes_on, .context = &t};
  must(rv_checkpointer_save(t.checkpointer, t.store, &watch, NULL, &err), &err);
  pthread_join(thread, NULL);
  assert_int_equal(count_entries(f->root), 2);
  rv_store_unref(t.store);
}

/* ---- the root ---- */

static void the_newest_are_kept_and_nothing_of_others_is_removed(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  char *paths[6], foreign[200];
  paths[0] = save(f, store);
  snprintf(foreign, sizeof foreign, "%s/2020-01-01T00:00:00+00:00", f->root);
  mkdir(foreign, 0777); /* a Reverb's */
  write_bytes(foreign, "DONE", "", 0);
  write_bytes(f->root, "notes.txt", "mine", 4);
  write_bytes(paths[0], "extra", "mine too", 8);
  for (int i = 1; i < 6; i++) paths[i] = save(f, store);
  assert_true(is_there(foreign, "DONE"));
  assert_true(is_there(f->root, "notes.txt"));
  assert_true(is_there(paths[0], "extra")); /* its own files went, somebody else's did not */
  assert_false(is_there(paths[0], "DONE"));
  for (int i = 1; i < 6; i++) assert_int_equal(is_there(paths[i], "DONE"), i >= 3);
  for (int i = 0; i < 6; i++) free(paths[i]);
  rv_store_unref(store);
}

static void a_clock_that_goes_back_does_not_make_the_new_one_old(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  free(save_with(one, store));
  f->now_ns -= INT64_C(7200000000000);
  add_rows(rv_store_table(store, 1), 1, 0);
  char *path = save_with(one, store), *loaded = NULL;
  assert_int_equal(count_entries(f->root), 1);
  must(restore(f, tables, TABLES, &back, &loaded, &err), &err);
  assert_string_equal(path, loaded);
  rv_checkpointer_unref(one);
  rv_store_unref(back);
  rv_store_unref(store);
  free(loaded);
  free(path);
}

static void what_a_crash_left_behind_goes_and_what_is_being_written_stays(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  rv_partial crashed, writing;
  rv_error err;
  must(rv_partial_begin(f->root, &f->env, &crashed, &err), &err);
  close(crashed.lock); /* as a process that died */
  must(rv_partial_begin(f->root, &f->env, &writing, &err), &err);
  assert_int_not_equal(access(crashed.path, F_OK), 0);
  logged(f, "whose writer had gone");
  free(save(f, store));
  assert_int_equal(access(writing.path, F_OK), 0);
  rv_partial_drop(&writing, &f->env);
  assert_int_equal(count_entries(f->root), 1);
  free(crashed.path);
  rv_store_unref(store);
}

static void names_are_times_where_the_process_lives(void **state)
{
  (void)state;
  static const struct {
    const char *zone;
    int64_t ns;
    const char *name;
  } cases[] = {{"UTC", INT64_C(1763718244112011003), "2025-11-21T09:44:04.112011003+00:00"},
               {"UTC", INT64_C(1763718244100000000), "2025-11-21T09:44:04.1+00:00"},
               {"UTC", INT64_C(1763718244000000000), "2025-11-21T09:44:04+00:00"},
               {"IST-5:30", INT64_C(1763718244000000000), "2025-11-21T15:14:04+05:30"},
               {"NST3:30", INT64_C(1763718244000000001), "2025-11-21T06:14:04.000000001-03:30"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char name[RV_CHECKPOINT_NAME_MAX];
    int64_t back;
    setenv("TZ", cases[i].zone, 1);
    tzset();
    rv_checkpoint_name(cases[i].ns, name);
    assert_string_equal(name, cases[i].name);
    assert_true(rv_checkpoint_name_parse(name, &back));
    assert_int_equal(back, cases[i].ns);
  }
  unsetenv("TZ");
  tzset();
  static const char *const bad[] = {"",
                                    "best",
                                    "2025-11-21",
                                    "2025-11-21T09:44:04",
                                    "2025-13-21T09:44:04+00:00",
                                    "2025-11-21T09:44:04.+00:00",
                                    "2025-11-21T09:44:04+00:00x",
                                    "2025-11-21T09:44:04+0000",
                                    "9999-11-21T09:44:04+00:00"};
  int64_t unused;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(rv_checkpoint_name_parse(bad[i], &unused));
}

/* ---- what comes from where ---- */

static void a_store_begins_empty_where_nothing_was_saved(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = NULL;
  rv_error err;
  char *loaded = NULL;
  must(restore(f, tables, TABLES, &store, &loaded, &err), &err);
  assert_null(loaded);
  assert_int_equal(rv_store_num_tables(store), TABLES);
  assert_int_not_equal(access(f->root, F_OK), 0); /* nothing was made */
  rv_store_unref(store);
}

static void the_checkpoint_wins_over_the_configuration_and_says_so(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES], other[TABLES];
  configure(tables);
  configure(other);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  fill(store);
  free(save(f, store));
  other[0].max_size = 20; /* fewer than there are */
  other[0].rate_limiter = rv_rate_limiter_min_size(3);
  other[1].sampler.kind = RV_SELECTOR_FIFO;
  must(restore(f, other, TABLES, &back, NULL, &err), &err);
  same_stores(store, back);
  logged(f, "table \"replay\": a restored table keeps the settings");
  logged(f, "max_size 300 (configured: 20), rate_limiter");
  logged(f,
         "table \"mixed\": a restored table keeps the settings it was saved with; these differ from its configuration: sampler");
  rv_store_unref(back);
  rv_store_unref(store);
}

static void a_table_that_was_not_saved_is_as_configured(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, 2), *back = NULL;
  rv_error err;
  fill(store);
  free(save(f, store));
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  same_tables(rv_store_table(store, 0), rv_store_table(back, 0));
  rv_table_info info = info_of(rv_store_table(back, 2));
  assert_int_equal(info.max_size, 5);
  assert_int_equal(info.current_size, 0);
  rv_table_info_fini(&info);
  rv_store_unref(back);
  rv_store_unref(store);
}

static void a_saved_table_that_nobody_wants_stops_the_start(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  free(save(f, store));
  assert_int_equal(restore(f, tables, 2, &back, NULL, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "table \"empty\" was not found in provided list of tables: \"replay\", \"mixed\""));
  assert_null(back);
  rv_store_unref(store);
}

static void the_fallback_is_for_a_root_without_checkpoints(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  fill(store);
  char *seed = save(f, store), *loaded = NULL;
  rv_checkpointer_unref(f->checkpointer);
  snprintf(f->root, sizeof f->root, "%s/other", f->top);
  f->checkpointer = checkpointer_of(f, 1, seed);
  must(restore(f, tables, TABLES, &back, &loaded, &err), &err);
  assert_string_equal(loaded, seed);
  same_stores(store, back);
  free(loaded);
  add_rows(rv_store_table(back, 1), 5, 0);
  char *own = save(f, back);
  rv_store_unref(back);
  must(restore(f, tables, TABLES, &back, &loaded, &err), &err);
  assert_string_equal(loaded, own);
  rv_store_unref(back);
  free(loaded);
  free(own);
  free(seed);
  rv_store_unref(store);
}

static void a_bad_fallback_is_passed_over_with_a_warning(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = NULL;
  rv_error err;
  rv_checkpointer_unref(f->checkpointer);
  f->checkpointer = checkpointer_of(f, 1, "/nowhere/at/all");
  must(restore(f, tables, TABLES, &store, NULL, &err), &err);
  logged(f, "the fallback checkpoint /nowhere/at/all cannot be used");
  rv_store_unref(store);
}

/* ---- bad input ---- */

/* Two checkpoints, of which the newer has 5 rows more in its table "mixed". */
typedef struct two {
  rv_table_config tables[TABLES];
  char *older, *newer;
  int64_t older_size;
} two;

static void save_two(fixture *f, two *t)
{
  configure(t->tables);
  rv_store *store = new_store(t->tables, TABLES);
  fill(store);
  t->older = save(f, store);
  rv_table_info info = info_of(rv_store_table(store, 1));
  t->older_size = info.current_size;
  rv_table_info_fini(&info);
  add_rows(rv_store_table(store, 1), 5, 77);
  t->newer = save(f, store);
  rv_store_unref(store);
}

static void free_two(two *t)
{
  free(t->older);
  free(t->newer);
}

static void older_is_restored(fixture *f, const two *t, const char *why)
{
  rv_store *back = NULL;
  rv_error err;
  char *loaded = NULL;
  f->log[0] = '\0';
  must(restore(f, t->tables, TABLES, &back, &loaded, &err), &err);
  if (strcmp(loaded, t->older) != 0) fail_msg("%s: the damaged one was restored", why);
  rv_table_info info = info_of(rv_store_table(back, 1));
  assert_int_equal(info.current_size, t->older_size);
  rv_table_info_fini(&info);
  rv_store_unref(back);
  free(loaded);
}

static void a_damaged_checkpoint_is_passed_over_for_the_one_before(void **state)
{
  fixture *f = *state;
  two t;
  save_two(f, &t);
  static const char *const names[] = {RV_TABLES_FILE, RV_ITEMS_FILE, RV_CHUNKS_FILE};
  for (size_t i = 0; i < 3; i++) {
    uint8_t *bytes;
    size_t size = read_bytes(t.newer, names[i], &bytes);
    for (size_t k = 0; k < 40; k++) { /* cut, and one byte changed, at many places */
      size_t at = size * k / 40;
      char why[100];
      snprintf(why, sizeof why, "%s, byte %zu", names[i], at);
      if (at > 0) {
        write_bytes(t.newer, names[i], bytes, at);
        older_is_restored(f, &t, why);
        logged(f, names[i]);
        logged(f, "passed over");
      }
      bytes[at] ^= 0x55;
      write_bytes(t.newer, names[i], bytes, size);
      older_is_restored(f, &t, why);
      logged(f, names[i]);
      bytes[at] ^= 0x55;
    }
    write_bytes(t.newer, names[i], bytes, size);
    free(bytes);
  }
  free_two(&t);
}

static void one_without_done_is_passed_over(void **state)
{
  fixture *f = *state;
  two t;
  save_two(f, &t);
  char path[400];
  snprintf(path, sizeof path, "%s/DONE", t.newer);
  unlink(path);
  older_is_restored(f, &t, "no DONE");
  logged(f, "has no DONE");
  free_two(&t);
}

static void a_missing_file_is_damage(void **state)
{
  fixture *f = *state;
  two t;
  save_two(f, &t);
  char path[400];
  snprintf(path, sizeof path, "%s/" RV_CHUNKS_FILE, t.newer);
  unlink(path);
  older_is_restored(f, &t, "no chunks");
  snprintf(path, sizeof path, "%s/" RV_TABLES_FILE, t.newer);
  unlink(path);
  older_is_restored(f, &t, "no tables");
  free_two(&t);
}

static void chunks_of_another_checkpoint_are_damage(void **state)
{
  fixture *f = *state;
  two t;
  save_two(f, &t);
  write_bytes(t.newer, RV_CHUNKS_FILE, "", 0);
  older_is_restored(f, &t, "no chunk is there");
  logged(f, "refers to chunk");
  free_two(&t);
}

static void nothing_is_started_where_every_checkpoint_is_damaged(void **state)
{
  fixture *f = *state;
  two t;
  save_two(f, &t);
  write_bytes(t.older, RV_TABLES_FILE, "x", 1);
  write_bytes(t.newer, RV_ITEMS_FILE, "y", 1);
  rv_store *back = NULL;
  rv_error err;
  assert_int_equal(restore(f, t.tables, TABLES, &back, NULL, &err), RV_DATA_LOSS);
  assert_non_null(strstr(err.message, t.newer));
  assert_null(back);
  free_two(&t);
}

static void a_full_disk_keeps_the_checkpoint_before(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  add_rows(rv_store_table(store, 1), 900, 0);
  char *path = save_with(one, store), *none, *loaded = NULL;
  struct rlimit old, small;
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  rv_code code = rv_checkpointer_save(one, store, NULL, &none, &err);
  setrlimit(RLIMIT_FSIZE, &old);
  assert_int_equal(code, RV_RESOURCE_EXHAUSTED);
  assert_non_null(strstr(err.message, "no checkpoint was saved: cannot write"));
  assert_int_equal(count_entries(f->root), 1);
  must(restore(f, tables, TABLES, &back, &loaded, &err), &err);
  assert_string_equal(loaded, path);
  rv_store_unref(back);
  rv_store_unref(store);
  rv_checkpointer_unref(one);
  free(loaded);
  free(path);
}

/* As somebody whom the directory does not belong to: root may everything. */
static void a_directory_without_permission_is_named(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  free(save(f, store));
  chmod(f->root, 0700);
  chmod(f->top, 0755);
  pid_t child = fork();
  if (child == 0) {
    rv_error err;
    rv_store *back;
    bool fine = geteuid() != 0 || seteuid(65534) == 0;
    if (geteuid() != 65534) chmod(f->root, 0);
    rv_code saved = rv_checkpointer_save(f->checkpointer, store, NULL, NULL, &err);
    fine = fine && saved == RV_PERMISSION_DENIED && strstr(err.message, f->root) != NULL;
    rv_code restored = restore(f, tables, TABLES, &back, NULL, &err);
    fine = fine && restored == RV_PERMISSION_DENIED && strstr(err.message, f->root) != NULL;
    _exit(fine ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  rv_store_unref(store);
}

static void a_root_that_is_a_file_is_named(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back;
  rv_error err;
  write_bytes(f->top, "a", "", 0);
  assert_int_not_equal(rv_checkpointer_save(f->checkpointer, store, NULL, NULL, &err), RV_OK);
  assert_non_null(strstr(err.message, f->top));
  assert_int_not_equal(restore(f, tables, TABLES, &back, NULL, &err), RV_OK);
  rv_store_unref(store);
}

static void a_wrong_configuration_is_blamed_and_not_the_checkpoint(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, 1), *back = NULL;
  rv_error err;
  free(save(f, store));
  tables[1].max_size = 0;
  assert_int_equal(restore(f, tables, TABLES, &back, NULL, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "table \"mixed\": max_size is 0"));
  rv_store_unref(store);
  rv_checkpointer *none;
  rv_checkpointer_config config = {.size = sizeof config, .path = ""};
  assert_int_equal(rv_checkpointer_new(&config, &none, &err), RV_INVALID_ARGUMENT);
  config.path = "x";
  config.level = 10;
  assert_int_equal(rv_checkpointer_new(&config, &none, &err), RV_INVALID_ARGUMENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_restored_store_equals_the_saved_one_in_everything),
      TEST(a_store_can_be_saved_and_restored_again_and_again),
      TEST(every_level_of_compression_is_read),
      TEST(rows_of_a_step_that_is_still_open_are_saved),
      TEST(rows_of_columns_of_different_lengths_are_written_once),
      TEST(a_naming_comes_back),
      TEST(what_is_saved_while_others_work_is_whole),
      TEST(one_that_is_given_up_leaves_nothing),
      TEST(who_comes_while_one_is_saved_waits_its_turn),
      TEST(the_newest_are_kept_and_nothing_of_others_is_removed),
      TEST(a_clock_that_goes_back_does_not_make_the_new_one_old),
      TEST(what_a_crash_left_behind_goes_and_what_is_being_written_stays),
      TEST(names_are_times_where_the_process_lives),
      TEST(a_store_begins_empty_where_nothing_was_saved),
      TEST(the_checkpoint_wins_over_the_configuration_and_says_so),
      TEST(a_table_that_was_not_saved_is_as_configured),
      TEST(a_saved_table_that_nobody_wants_stops_the_start),
      TEST(the_fallback_is_for_a_root_without_checkpoints),
      TEST(a_bad_fallback_is_passed_over_with_a_warning),
      TEST(a_damaged_checkpoint_is_passed_over_for_the_one_before),
      TEST(one_without_done_is_passed_over),
      TEST(a_missing_file_is_damage),
      TEST(chunks_of_another_checkpoint_are_damage),
      TEST(nothing_is_started_where_every_checkpoint_is_damaged),
      TEST(a_full_disk_keeps_the_checkpoint_before),
      TEST(a_directory_without_permission_is_named),
      TEST(a_root_that_is_a_file_is_named),
      TEST(a_wrong_configuration_is_blamed_and_not_the_checkpoint),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
