/* The directory that checkpoints are in: names, which are kept, and what a server begins with. */
#include <pthread.h>
#include <sys/file.h>
#include <time.h>

#include "persist/checkpoint_files.h"
#include "persist/stores_testing.h"

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

/* A process that is killed between its last two steps leaves an empty directory, and each start would warn of it. */
static void one_that_was_removed_but_for_its_directory_goes_with_the_next_save(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  char left[200], newer[200], foreign[200];
  free(save(f, store));
  snprintf(left, sizeof left, "%s/2020-01-01T00:00:00+00:00", f->root);
  snprintf(foreign, sizeof foreign, "%s/2020-01-02T00:00:00+00:00", f->root);
  snprintf(newer, sizeof newer, "%s/2200-01-01T00:00:00+00:00", f->root);
  mkdir(left, 0777);
  mkdir(foreign, 0777);
  write_bytes(foreign, "tables.tfrecord", "theirs", 6); /* a Reverb's that was killed */
  free(save(f, store));
  assert_int_not_equal(access(left, F_OK), 0);
  assert_true(is_there(foreign, "tables.tfrecord"));
  mkdir(newer, 0777); /* somebody's who begins just now */
  rv_checkpoints_retain(f->root, 1, &f->env);
  assert_int_equal(access(newer, F_OK), 0);
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

/* West of Greenwich that is still 1969. */
static void a_clock_that_was_never_set_keeps_no_more_than_are_to_be_kept(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  char *loaded = NULL;
  setenv("TZ", "PST8", 1);
  tzset();
  rv_checkpointer *one = checkpointer_of(f, 1, NULL);
  f->now_ns = 0;
  for (int i = 0; i < 3; i++) free(save_with(one, store));
  char *path = save_with(one, store);
  unsetenv("TZ");
  tzset();
  assert_non_null(strstr(path, "/1969-12-31T16:00:"));
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
  must(rv_partial_begin(f->root, &f->env, &rv_files_of_system, &crashed, &err), &err);
  close(crashed.lock); /* as a process that died */
  char empty[256];     /* and one that died before it could put its mark there */
  snprintf(empty, sizeof empty, "%s/.reverie-0123456789abcdef", f->root);
  assert_int_equal(mkdir(empty, 0777), 0);
  must(rv_partial_begin(f->root, &f->env, &rv_files_of_system, &writing, &err), &err);
  assert_int_not_equal(access(crashed.path, F_OK), 0);
  logged(f, "whose writer had gone before it was whole");
  assert_int_not_equal(access(empty, F_OK), 0);
  logged(f, "whose writer had gone before it was begun");
  free(save(f, store));
  assert_int_equal(access(writing.path, F_OK), 0);
  rv_partial_drop(&writing, &f->env);
  assert_int_equal(count_entries(f->root), 1);
  free(crashed.path);
  rv_store_unref(store);
}

/* Another process that looks at what is being written just when it is begun, and has its lock for a moment; or takes it for something that
 * was left behind, and removes it. */
typedef struct intruder {
  bool removes, halfway; /* all of it, or as yet only the mark */
  int times;             /* so often */
  int lock;
  bool joins;
  pthread_t thread;
} intruder;

static void *let_go_soon(void *context)
{
  intruder *other = context;
  const struct timespec pause = {.tv_nsec = 20000000};
  nanosleep(&pause, NULL);
  close(other->lock);
  return NULL;
}

static int create_and_intrude(void *context, const char *path)
{
  intruder *other = context;
  int file = rv_files_of_system.create(NULL, path);
  char directory[300];
  const char *slash = strrchr(path, '/');
  if (strcmp(slash + 1, RV_OURS_FILE) != 0 || other->times-- <= 0) return file;
  if (other->removes) {
    snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
    assert_int_equal(unlink(path), 0);
    if (!other->halfway) assert_int_equal(rmdir(directory), 0);
    return file;
  }
  other->lock = open(path, O_RDWR | O_CLOEXEC);
  assert_true(other->lock >= 0 && flock(other->lock, LOCK_EX) == 0);
  assert_int_equal(pthread_create(&other->thread, NULL, let_go_soon, other), 0);
  other->joins = true;
  return file;
}

static void who_looks_at_one_that_is_begun_does_not_keep_it_from_being_saved(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  rv_error err;
  for (int removes = 0; removes < 2; removes++) {
    intruder other = {.removes = removes != 0, .times = 1};
    rv_files files = rv_files_of_system;
    files.create = create_and_intrude;
    files.context = &other;
    rv_checkpointer *checkpointer;
    const rv_checkpointer_config config = {.size = sizeof config, .path = f->root, .env = &f->env};
    must(rv_checkpointer_new_with(&config, &files, &checkpointer, &err), &err);
    free(save_with(checkpointer, store));
    if (other.joins) pthread_join(other.thread, NULL);
    assert_int_equal(count_entries(f->root), 1);
    rv_checkpointer_unref(checkpointer);
  }
  rv_store_unref(store);
}

/* Its mark is gone, the directory is not yet: what is written there would have none, and a save of the other's or of ours fail with it. */
static void one_whose_mark_is_just_taken_away_is_written_elsewhere(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_partial partial;
  intruder other = {.removes = true, .halfway = true, .times = 1};
  rv_files files = rv_files_of_system;
  files.create = create_and_intrude;
  files.context = &other;
  must(rv_partial_begin(f->root, &f->env, &files, &partial, &err), &err);
  assert_true(is_there(partial.path, RV_OURS_FILE));
  assert_int_equal(count_entries(f->root), 2); /* the other's to remove, and ours */
  rv_partial_drop(&partial, &f->env);
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
               {"NST3:30", INT64_C(1763718244000000001), "2025-11-21T06:14:04.000000001-03:30"},
               {"PST8", 0, "1969-12-31T16:00:00-08:00"},
               {"UTC", -1, "1969-12-31T23:59:59.999999999+00:00"}};
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
                                    "1677-11-21T09:44:04+00:00",
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

static void a_store_that_begins_empty_says_where_nothing_was(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  char there[200], line[300];
  rv_error err;
  snprintf(there, sizeof there, "%s/there", f->top);
  mkdir(there, 0777);
  const struct {
    const char *path, *lacks;
    bool prepared, fresh;
  } cases[] = {{f->root, "was not there", false, false},
               {f->root, "was not there", true, false},
               {there, "has no checkpoint", true, false},
               {there, NULL, false, true}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rv_store *store = NULL;
    rv_checkpointer *one = NULL;
    f->log[0] = '\0';
    const rv_checkpointer_config config = {.size = sizeof config, .path = cases[i].path, .fresh = cases[i].fresh, .env = &f->env};
    const rv_store_config empty = {.size = sizeof empty, .tables = tables, .num_tables = TABLES};
    must(rv_checkpointer_new(&config, &one, &err), &err);
    if (cases[i].prepared) must(rv_checkpointer_prepare(one, &err), &err);
    must(rv_checkpointer_restore(one, &empty, NULL, &store, NULL, &err), &err);
    snprintf(line, sizeof line, "begins empty: %s %s;", cases[i].path, cases[i].lacks != NULL ? cases[i].lacks : "");
    if (cases[i].fresh)
      assert_string_equal(f->log, "");
    else
      logged(f, line);
    rv_store_unref(store);
    rv_checkpointer_unref(one);
  }
}

static void what_is_required_must_be_there_and_nothing_is_made_in_its_place(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  char above[200];
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  const rv_store_config plain = {.size = sizeof plain, .tables = tables, .num_tables = TABLES};
  rv_checkpointer *one = NULL, *from = NULL;
  rv_error err;
  snprintf(above, sizeof above, "%s/a", f->top);
  const rv_checkpointer_config config = {.size = sizeof config, .path = f->root, .required = true, .env = &f->env};
  must(rv_checkpointer_new(&config, &one, &err), &err);
  assert_int_equal(rv_checkpointer_prepare(one, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, f->root));
  assert_non_null(strstr(err.message, "mount its volume"));
  assert_int_equal(rv_checkpointer_restore(one, &plain, NULL, &back, NULL, &err), RV_FAILED_PRECONDITION);
  assert_non_null(strstr(err.message, f->root));
  assert_int_not_equal(access(above, F_OK), 0);
  char *saved = save(f, store);
  must(rv_checkpointer_prepare(one, &err), &err);
  must(rv_checkpointer_restore(one, &plain, NULL, &back, NULL, &err), &err);
  rv_store_unref(back);
  const char *const fallbacks[] = {saved, "/nowhere/at/all"};
  for (size_t i = 0; i < 2; i++) {
    char other[220];
    snprintf(other, sizeof other, "%s/other", f->top);
    const rv_checkpointer_config seeded = {
        .size = sizeof seeded, .path = other, .fallback_path = fallbacks[i], .required = true, .env = &f->env};
    must(rv_checkpointer_new(&seeded, &from, &err), &err);
    back = NULL;
    assert_int_equal(rv_checkpointer_restore(from, &plain, NULL, &back, NULL, &err), i == 0 ? RV_OK : RV_FAILED_PRECONDITION);
    rv_store_unref(back);
    rv_checkpointer_unref(from);
  }
  rv_checkpointer_unref(one);
  rv_store_unref(store);
  free(saved);
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
  logged(f, "max_size 300 (configured: 20), min_size_to_sample 10 (configured: 3), samples_per_insert 4 (configured: 1), "
            "min_diff -999960 (configured: none), max_diff 1000040 (configured: none)");
  logged(f,
         "table \"mixed\": a restored table keeps the settings it was saved with; these differ from its configuration: sampler "
         "uniform (configured: fifo)");
  rv_store_unref(back);
  rv_store_unref(store);
}

static void a_selector_that_is_none_is_told_beside_the_saved_one(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  free(save(f, store));
  tables[0].sampler.kind = (rv_selector_kind)77;
  tables[1].remover.kind = (rv_selector_kind)0;
  must(restore(f, tables, TABLES, &back, NULL, &err), &err);
  logged(f, "sampler prioritized:0.6 (configured: kind 77)");
  logged(f, "remover min_heap (configured: kind 0)");
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

/* A store that began empty would be saved when its server ends, and from then on win over the fallback. */
static void giving_up_while_the_fallback_is_loaded_begins_nothing(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES), *back = NULL;
  rv_error err;
  fill(store);
  char *seed = save(f, store);
  rv_checkpointer_unref(f->checkpointer);
  snprintf(f->root, sizeof f->root, "%s/other", f->top);
  f->checkpointer = checkpointer_of(f, 1, seed);
  const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = give_up};
  assert_int_equal(rv_checkpointer_restore(f->checkpointer, &config, &watch, &back, NULL, &err), RV_CANCELLED);
  assert_non_null(strstr(err.message, seed));
  assert_null(back);
  free(seed);
  rv_store_unref(store);
}

static void where_nothing_can_be_saved_is_told_before_anything_is(void **state)
{
  fixture *f = *state;
  rv_error err;
  char file[200], below[240], fresh[200];
  snprintf(file, sizeof file, "%s/file", f->top);
  snprintf(below, sizeof below, "%s/a/b", file);
  snprintf(fresh, sizeof fresh, "%s/fresh/a/b", f->top);
  write_bytes(f->top, "file", "in the way", 10);
  const char *const wrong[] = {file, below};
  for (size_t i = 0; i < 2; i++) {
    rv_checkpointer *bad = NULL;
    const rv_checkpointer_config config = {.size = sizeof config, .path = wrong[i], .env = &f->env};
    must(rv_checkpointer_new(&config, &bad, &err), &err);
    assert_int_not_equal(rv_checkpointer_check(bad, &err), RV_OK);
    assert_non_null(strstr(err.message, file));
    assert_int_not_equal(rv_checkpointer_prepare(bad, &err), RV_OK);
    assert_non_null(strstr(err.message, file));
    rv_checkpointer_unref(bad);
  }
  rv_checkpointer *good = NULL;
  const rv_checkpointer_config config = {.size = sizeof config, .path = fresh, .env = &f->env};
  must(rv_checkpointer_new(&config, &good, &err), &err);
  must(rv_checkpointer_check(good, &err), &err);
  assert_int_not_equal(access(fresh, F_OK), 0); /* looking makes nothing */
  must(rv_checkpointer_prepare(good, &err), &err);
  assert_int_equal(count_entries(fresh), 0);
  rv_checkpointer_unref(good);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(the_newest_are_kept_and_nothing_of_others_is_removed),
      TEST(one_that_was_removed_but_for_its_directory_goes_with_the_next_save),
      TEST(a_clock_that_goes_back_does_not_make_the_new_one_old),
      TEST(a_clock_that_was_never_set_keeps_no_more_than_are_to_be_kept),
      TEST(what_a_crash_left_behind_goes_and_what_is_being_written_stays),
      TEST(who_looks_at_one_that_is_begun_does_not_keep_it_from_being_saved),
      TEST(one_whose_mark_is_just_taken_away_is_written_elsewhere),
      TEST(names_are_times_where_the_process_lives),
      TEST(a_store_begins_empty_where_nothing_was_saved),
      TEST(a_store_that_begins_empty_says_where_nothing_was),
      TEST(what_is_required_must_be_there_and_nothing_is_made_in_its_place),
      TEST(the_checkpoint_wins_over_the_configuration_and_says_so),
      TEST(a_selector_that_is_none_is_told_beside_the_saved_one),
      TEST(a_table_that_was_not_saved_is_as_configured),
      TEST(a_saved_table_that_nobody_wants_stops_the_start),
      TEST(the_fallback_is_for_a_root_without_checkpoints),
      TEST(a_bad_fallback_is_passed_over_with_a_warning),
      TEST(giving_up_while_the_fallback_is_loaded_begins_nothing),
      TEST(where_nothing_can_be_saved_is_told_before_anything_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
