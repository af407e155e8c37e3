/* Checkpoints that are damaged, disks that are full, directories that are not ours. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "persist/stores_testing.h"

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
      write_bytes(t.newer, names[i], bytes, at);
      older_is_restored(f, &t, why);
      logged(f, at > 0 ? names[i] : t.newer);
      logged(f, "passed over");
      size_t end = at + 8 < size ? at + 8 : size; /* one byte of deflate may hold bits that mean nothing */
      for (size_t b = at; b < end; b++) bytes[b] ^= 0x55;
      write_bytes(t.newer, names[i], bytes, size);
      older_is_restored(f, &t, why);
      logged(f, names[i]);
      for (size_t b = at; b < end; b++) bytes[b] ^= 0x55;
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
  uint8_t *bytes;
  size_t size = read_bytes(t.newer, RV_ITEMS_FILE, &bytes);
  snprintf(path, sizeof path, "%s/" RV_ITEMS_FILE, t.newer);
  unlink(path);
  older_is_restored(f, &t, "no items");
  logged(f, "no item is there");
  write_bytes(t.newer, RV_ITEMS_FILE, bytes, size);
  free(bytes);
  snprintf(path, sizeof path, "%s/" RV_CHUNKS_FILE, t.newer);
  unlink(path);
  older_is_restored(f, &t, "no chunks");
  snprintf(path, sizeof path, "%s/" RV_TABLES_FILE, t.newer);
  unlink(path);
  older_is_restored(f, &t, "no tables");
  free_two(&t);
}

/* A directory in its place is what read() fails for as it does on a disk that fails. */
static void a_start_that_cannot_read_the_newest_says_how_to_begin_with_the_one_before(void **state)
{
  fixture *f = *state;
  two t;
  save_two(f, &t);
  char path[400], away[420];
  snprintf(path, sizeof path, "%s/" RV_ITEMS_FILE, t.newer);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0700), 0);
  rv_store *back = NULL;
  rv_error err;
  assert_int_equal(restore(f, t.tables, TABLES, &back, NULL, &err), RV_UNKNOWN);
  assert_null(back);
  assert_non_null(strstr(err.message, t.newer));
  if (strstr(err.message, "to begin with the one before") == NULL) fail_msg("no remedy: %s", err.message);
  assert_int_equal(rmdir(path), 0);
  snprintf(away, sizeof away, "%s/../away", t.newer);
  assert_int_equal(rename(t.newer, away), 0);
  older_is_restored(f, &t, "moved away");
  free_two(&t);
}

static void an_export_of_an_older_checkpoint_does_not_become_its_own_directorys_newest(void **state)
{
  fixture *f = *state;
  two t;
  save_two(f, &t);
  rv_error err;
  char *loaded = NULL;
  rv_store *back = NULL;
  rv_code code = rv_checkpoint_export(t.older, f->checkpointer, NULL, NULL, &err);
  must(restore(f, t.tables, TABLES, &back, &loaded, &(rv_error){.code = RV_OK}), NULL);
  assert_string_equal(loaded, t.newer);
  assert_int_equal(code, RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "another directory"));
  rv_store_unref(back);
  free(loaded);
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

/* As the one above refuses it, and not as if that were missing. */
static void a_directory_that_may_not_be_made_says_so(void **state)
{
  fixture *f = *state;
  char path[300];
  snprintf(path, sizeof path, "%s/refused/below", f->top);
  chmod(f->top, 0555);
  pid_t child = fork();
  if (child == 0) {
    rv_error err;
    bool fine = geteuid() != 0 || seteuid(65534) == 0;
    fine = fine && rv_make_directories(path, &err) == RV_PERMISSION_DENIED;
    fine = fine && strstr(err.message, "/refused: ") != NULL && strstr(err.message, strerror(EACCES)) != NULL;
    _exit(fine ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  chmod(f->top, 0755);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Not as if it were half written, which an older one takes the place of and the next one removes. */
static void a_checkpoint_that_nobody_may_look_into_stops_the_start(void **state)
{
  fixture *f = *state;
  two t;
  save_two(f, &t);
  chmod(f->top, 0755);
  chmod(f->root, 0755);
  chmod(t.newer, 0);
  pid_t child = fork();
  if (child == 0) {
    rv_error err;
    rv_store *back;
    bool fine = geteuid() != 0 || seteuid(65534) == 0;
    fine =
        fine && restore(f, t.tables, TABLES, &back, NULL, &err) == RV_PERMISSION_DENIED && strstr(err.message, t.newer) != NULL;
    rv_checkpoints_retain(f->root, 1, &f->env);
    fine = fine && access(t.newer, F_OK) == 0;
    _exit(fine ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  chmod(t.newer, 0755);
  assert_true(is_there(t.newer, "DONE"));
  free_two(&t);
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
      TEST(a_damaged_checkpoint_is_passed_over_for_the_one_before),
      TEST(one_without_done_is_passed_over),
      TEST(a_missing_file_is_damage),
      TEST(a_start_that_cannot_read_the_newest_says_how_to_begin_with_the_one_before),
      TEST(an_export_of_an_older_checkpoint_does_not_become_its_own_directorys_newest),
      TEST(chunks_of_another_checkpoint_are_damage),
      TEST(nothing_is_started_where_every_checkpoint_is_damaged),
      TEST(a_full_disk_keeps_the_checkpoint_before),
      TEST(a_directory_without_permission_is_named),
      TEST(a_directory_that_may_not_be_made_says_so),
      TEST(a_checkpoint_that_nobody_may_look_into_stops_the_start),
      TEST(a_root_that_is_a_file_is_named),
      TEST(a_wrong_configuration_is_blamed_and_not_the_checkpoint),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
