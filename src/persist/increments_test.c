/* Incremental checkpoints: what they write, what they need of older ones, and that whatever fails leaves the one before whole. */
#include <errno.h>
#include <sys/wait.h>

#include "persist/checkpoint_files.h"
#include "persist/stores_testing.h"

static rv_checkpointer *incremental_of(fixture *f, uint32_t keep, const rv_files *files)
{
  rv_error err;
  rv_checkpointer *checkpointer = NULL;
  rv_checkpointer_config config = {
      .size = sizeof config, .path = f->root, .level = -1, .keep = keep, .env = &f->env, .incremental = true};
  must(rv_checkpointer_new_with(&config, files, &checkpointer, &err), &err);
  return checkpointer;
}

static rv_store *restored(fixture *f, rv_checkpointer *by, const rv_table_config *tables, size_t n)
{
  rv_error err;
  rv_store *store = NULL;
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = n, .env = &f->env};
  must(rv_checkpointer_restore(by, &config, NULL, &store, NULL, &err), &err);
  return store;
}

/* By somebody who knows nothing of it but the directory. */
static void equals_what_is_restored(fixture *f, rv_store *store, const rv_table_config *tables, size_t n)
{
  rv_store *back = restored(f, f->checkpointer, tables, n);
  same_stores(store, back);
  rv_store_unref(back);
}

typedef struct sizes {
  size_t files;
  off_t fresh, shared; /* bytes of the files that no other checkpoint has, and of the others */
} sizes;

static sizes sizes_of(const char *path)
{
  sizes out = {0};
  DIR *dir = opendir(path);
  assert_non_null(dir);
  const struct dirent *entry;
  while ((entry = readdir(dir)) != NULL) {
    struct stat info;
    if (strncmp(entry->d_name, "chunks", 6) != 0) continue;
    assert_int_equal(fstatat(dirfd(dir), entry->d_name, &info, 0), 0);
    out.files++;
    *(info.st_nlink > 1 ? &out.shared : &out.fresh) += info.st_size;
  }
  closedir(dir);
  return out;
}

/* ---- what is written ---- */

static void only_what_is_new_is_written(void **state)
{
  fixture *f = *state;
  rv_checkpointer *checkpointer = incremental_of(f, 3, &rv_files_of_system);
  rv_table_config tables[TABLES];
  configure(tables);
  tables[1].max_size = 3000;
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  add_rows(rv_store_table(store, 1), 2000, 10000);
  char *first = save_with(checkpointer, store);
  off_t all = sizes_of(first).fresh;
  assert_true(all > 16000);
  draw_some(rv_store_table(store, 1), 50); /* no chunk is new */
  char *second = save_with(checkpointer, store);
  assert_int_equal(sizes_of(second).fresh, 0);
  assert_int_equal(sizes_of(second).shared, all);
  add_rows(rv_store_table(store, 1), 20, 50000);
  char *third = save_with(checkpointer, store);
  assert_in_range(sizes_of(third).fresh, 20 * 8, 2000);
  assert_int_equal(sizes_of(third).shared, all);
  assert_false(is_there(third, RV_CHUNKS_FILE));
  equals_what_is_restored(f, store, tables, TABLES);
  free(first);
  free(second);
  free(third);
  rv_store_unref(store);
  rv_checkpointer_unref(checkpointer);
}

static void one_that_is_kept_needs_none_that_is_not(void **state)
{
  fixture *f = *state;
  rv_checkpointer *checkpointer = incremental_of(f, 1, &rv_files_of_system);
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  for (int64_t round = 0; round < 50; round++) {
    free(save_with(checkpointer, store));
    assert_int_equal(count_entries(f->root), 1);
    equals_what_is_restored(f, store, tables, TABLES);
    add_rows(rv_store_table(store, 0), 11, 1000 * round); /* a table of 300: all is replaced in the end */
  }
  char *last = save_with(checkpointer, store);
  assert_in_range(sizes_of(last).files, 2, 32); /* old ones go, small ones are put together */
  free(last);
  rv_store_unref(store);
  rv_checkpointer_unref(checkpointer);
}

static void a_restarted_server_goes_on_from_the_last_one(void **state)
{
  fixture *f = *state;
  rv_table_config tables[TABLES];
  configure(tables);
  tables[1].max_size = 3000;
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  add_rows(rv_store_table(store, 1), 2000, 10000);
  for (int64_t round = 0; round < 3; round++) {
    rv_checkpointer *checkpointer = incremental_of(f, 2, &rv_files_of_system);
    rv_store *back = round == 0 ? rv_store_ref(store) : restored(f, checkpointer, tables, TABLES);
    same_stores(store, back);
    rv_store_unref(store);
    store = back;
    add_rows(rv_store_table(store, 1), 10, 70000 + round);
    char *path = save_with(checkpointer, store);
    if (round > 0) assert_in_range(sizes_of(path).fresh, 10 * 8, 2000);
    free(path);
    rv_checkpointer_unref(checkpointer);
  }
  equals_what_is_restored(f, store, tables, TABLES);
  rv_store_unref(store);
}

static void where_the_last_one_is_gone_everything_is_written_again(void **state)
{
  fixture *f = *state;
  char command[300];
  rv_checkpointer *checkpointer = incremental_of(f, 1, &rv_files_of_system);
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  free(save_with(checkpointer, store));
  snprintf(command, sizeof command, "rm -rf %s", f->root);
  assert_int_equal(system(command), 0);
  char *path = save_with(checkpointer, store);
  logged(f, "all chunks are written again");
  assert_int_equal(sizes_of(path).shared, 0);
  equals_what_is_restored(f, store, tables, TABLES);
  free(path);
  rv_store_unref(store);
  rv_checkpointer_unref(checkpointer);
}

static void two_checkpointers_of_one_store_do_not_mistake_each_others_files(void **state)
{
  fixture *f = *state;
  fixture other = *f;
  snprintf(other.root, sizeof other.root, "%s/other", f->top);
  other.checkpointer = checkpointer_of(&other, 1, NULL);
  rv_checkpointer *one = incremental_of(f, 1, &rv_files_of_system), *two = incremental_of(&other, 1, &rv_files_of_system);
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  for (int64_t round = 0; round < 6; round++) {
    free(save_with(round % 2 == 0 ? one : two, store));
    equals_what_is_restored(round % 2 == 0 ? f : &other, store, tables, TABLES);
    add_rows(rv_store_table(store, 0), 20, 3000 + 20 * round);
  }
  rv_store_unref(store);
  rv_checkpointer_unref(one);
  rv_checkpointer_unref(two);
  rv_checkpointer_unref(other.checkpointer);
}

static void an_exported_one_is_of_reverbs_format(void **state)
{
  fixture *f = *state;
  fixture to = *f;
  rv_error err;
  snprintf(to.root, sizeof to.root, "%s/exported", f->top);
  to.checkpointer = checkpointer_of(&to, 1, NULL);
  rv_checkpointer *checkpointer = incremental_of(f, 1, &rv_files_of_system);
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  free(save_with(checkpointer, store));
  add_rows(rv_store_table(store, 0), 100, 3000);
  char *path = save_with(checkpointer, store), *made = NULL;
  assert_int_equal(sizes_of(path).files, 2);
  must(rv_checkpoint_export(path, to.checkpointer, NULL, &made, &err), &err);
  assert_true(is_there(made, RV_CHUNKS_FILE));
  assert_false(is_there(made, RV_INDEX_FILE));
  equals_what_is_restored(&to, store, tables, TABLES);
  assert_int_equal(rv_checkpoint_export(f->root, to.checkpointer, NULL, NULL, &err), RV_NOT_FOUND);
  assert_int_equal(rv_checkpoint_export("", to.checkpointer, NULL, NULL, &err), RV_INVALID_ARGUMENT);
  assert_int_equal(rv_checkpoint_export(NULL, to.checkpointer, NULL, NULL, &err), RV_INVALID_ARGUMENT);
  free(made);
  free(path);
  rv_store_unref(store);
  rv_checkpointer_unref(checkpointer);
  rv_checkpointer_unref(to.checkpointer);
}

/* ---- damage ---- */

static char *own_file(const char *path)
{
  DIR *dir = opendir(path);
  assert_non_null(dir);
  const struct dirent *entry;
  char *name = NULL;
  while (name == NULL && (entry = readdir(dir)) != NULL) {
    struct stat info;
    assert_int_equal(fstatat(dirfd(dir), entry->d_name, &info, 0), 0);
    if (rv_chunk_file_is_name(entry->d_name) && info.st_nlink == 1) name = strdup(entry->d_name);
  }
  closedir(dir);
  assert_non_null(name);
  return name;
}

static void a_damaged_one_is_passed_over_for_the_one_before(void **state)
{
  fixture *f = *state;
  rv_checkpointer *checkpointer = incremental_of(f, 3, &rv_files_of_system);
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  fill(store);
  free(save_with(checkpointer, store));
  rv_store *before = restored(f, f->checkpointer, tables, TABLES);
  add_rows(rv_store_table(store, 0), 200, 3000);
  char *path = save_with(checkpointer, store);
  char *own = own_file(path);
  const char *const names[] = {RV_INDEX_FILE, own};
  for (size_t i = 0; i < 2; i++) {
    uint8_t *bytes;
    size_t size = read_bytes(path, names[i], &bytes);
    for (size_t k = 0; k < 60; k++) {
      size_t at = size * k / 60;
      bytes[at] ^= 0x55;
      write_bytes(path, names[i], bytes, size);
      equals_what_is_restored(f, before, tables, TABLES);
      bytes[at] ^= 0x55;
      if (at > 0) {
        write_bytes(path, names[i], bytes, at);
        equals_what_is_restored(f, before, tables, TABLES);
      }
      f->log[0] = '\0';
    }
    write_bytes(path, names[i], bytes, size);
    free(bytes);
  }
  equals_what_is_restored(f, store, tables, TABLES);
  char from[400], to[400];
  snprintf(from, sizeof from, "%s/%s", path, own);
  snprintf(to, sizeof to, "%s/away", f->top);
  assert_int_equal(rename(from, to), 0);
  equals_what_is_restored(f, before, tables, TABLES);
  logged(f, "is missing");
  free(own);
  free(path);
  rv_store_unref(before);
  rv_store_unref(store);
  rv_checkpointer_unref(checkpointer);
}

/* ---- every call in turn ---- */

typedef struct faulty {
  long until; /* calls before the one that fails; negative: none does */
  bool kills; /* the process ends there */
  long calls;
  int number;
} faulty;

static bool fails(faulty *f)
{
  f->calls++;
  if (f->until < 0 || f->until-- > 0) return false;
  if (f->kills) _exit(9);
  errno = f->number;
  return true;
}

static int faulty_create(void *context, const char *path)
{
  return fails(context) ? -1 : rv_files_of_system.create(NULL, path);
}
static ssize_t faulty_write(void *context, int file, const struct iovec *pieces, int count)
{
  faulty *f = context;
  if (f->until == 0) { /* half of it is there */
    struct iovec half = {pieces[0].iov_base, pieces[0].iov_len / 2};
    rv_files_of_system.write(NULL, file, &half, 1);
  }
  return fails(f) ? -1 : rv_files_of_system.write(NULL, file, pieces, count);
}
static int faulty_sync(void *context, int file)
{
  return fails(context) ? -1 : rv_files_of_system.sync(NULL, file);
}
static int faulty_sync_directory(void *context, const char *path)
{
  return fails(context) ? -1 : rv_files_of_system.sync_directory(NULL, path);
}
static int faulty_remove(void *context, const char *path)
{
  return fails(context) ? -1 : rv_files_of_system.remove(NULL, path);
}
static int faulty_link(void *context, const char *from, const char *to)
{
  return fails(context) ? -1 : rv_files_of_system.link(NULL, from, to);
}
static int faulty_rename(void *context, const char *from, const char *to)
{
  return fails(context) ? -1 : rv_files_of_system.rename(NULL, from, to);
}

static rv_files files_of(faulty *f)
{
  return (rv_files){.create = faulty_create,
                    .file_system = rv_files_of_system.file_system,
                    .write = faulty_write,
                    .push = rv_files_of_system.push,
                    .sync = faulty_sync,
                    .sync_directory = faulty_sync_directory,
                    .truncate = NULL,
                    .remove = faulty_remove,
                    .link = faulty_link,
                    .rename = faulty_rename,
                    .context = f};
}

typedef struct scene {
  fixture *f;
  faulty faults;
  rv_files files;
  rv_checkpointer *checkpointer;
  rv_table_config tables[TABLES];
  rv_store *store, *before; /* as it is; as it was when it was saved last */
} scene;

/* One checkpoint is there, of which a part is not needed any more; what comes is under the faults. */
static void begin(scene *s, fixture *f, int number)
{
  char command[300];
  snprintf(command, sizeof command, "rm -rf %s", f->root);
  assert_int_equal(system(command), 0);
  *s = (scene){.f = f, .faults = {.until = -1, .number = number}};
  s->files = files_of(&s->faults);
  s->checkpointer = incremental_of(f, 1, &s->files);
  configure(s->tables);
  s->store = new_store(s->tables, TABLES);
  fill(s->store);
  free(save_with(s->checkpointer, s->store));
  add_rows(rv_store_table(s->store, 0), 120, 3000);
  free(save_with(s->checkpointer, s->store));
  s->before = restored(f, f->checkpointer, s->tables, TABLES);
  add_rows(rv_store_table(s->store, 0), 100, 6000);
}

static void end(scene *s)
{
  rv_store_unref(s->store);
  rv_store_unref(s->before);
  rv_checkpointer_unref(s->checkpointer);
}

/* How many calls a save makes. */
static long calls_of_a_save(fixture *f)
{
  scene s;
  begin(&s, f, EIO);
  s.faults.calls = 0;
  free(save_with(s.checkpointer, s.store));
  long calls = s.faults.calls;
  end(&s);
  return calls;
}

static void whichever_call_fails_the_one_before_stays_and_the_next_is_whole(fixture *f, int number)
{
  rv_error err;
  long calls = calls_of_a_save(f);
  assert_true(calls > 20);
  for (long first = 0; first < calls; first++) {
    scene s;
    begin(&s, f, number);
    s.faults.until = first;
    rv_code code = rv_checkpointer_save(s.checkpointer, s.store, NULL, NULL, &err);
    s.faults.until = -1;
    /* where the name is there, and only not known to be on the disk, it is the new one */
    bool is_new = code == RV_OK || strstr(err.message, "a power cut may take it away") != NULL;
    equals_what_is_restored(f, is_new ? s.store : s.before, s.tables, TABLES);
    free(save_with(s.checkpointer, s.store));
    equals_what_is_restored(f, s.store, s.tables, TABLES);
    end(&s);
    f->log[0] = '\0';
  }
}

static void an_io_error_at_any_call_leaves_the_one_before(void **state)
{
  whichever_call_fails_the_one_before_stays_and_the_next_is_whole(*state, EIO);
}

static void a_full_disk_at_any_call_leaves_the_one_before(void **state)
{
  whichever_call_fails_the_one_before_stays_and_the_next_is_whole(*state, ENOSPC);
}

static int create_no_file_of_chunks(void *context, const char *path)
{
  const bool *fails = context;
  if (!*fails || strstr(path, "/chunks-") == NULL) return rv_files_of_system.create(NULL, path);
  errno = ENOSPC;
  return -1;
}

static void what_was_written_is_not_written_again_after_one_that_could_not_be_begun(void **state)
{
  fixture *f = *state;
  bool fails = false;
  rv_files files = rv_files_of_system;
  files.create = create_no_file_of_chunks;
  files.context = &fails;
  rv_checkpointer *checkpointer = incremental_of(f, 3, &files);
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  rv_error err;
  fill(store);
  free(save_with(checkpointer, store));
  fails = true;
  assert_int_equal(rv_checkpointer_save(checkpointer, store, NULL, NULL, &err), RV_RESOURCE_EXHAUSTED);
  fails = false;
  char *path = save_with(checkpointer, store);
  assert_int_equal(sizes_of(path).fresh, 0);
  equals_what_is_restored(f, store, tables, TABLES);
  free(path);
  rv_store_unref(store);
  rv_checkpointer_unref(checkpointer);
}

static void a_process_that_is_killed_at_any_call_leaves_the_one_before(void **state)
{
  fixture *f = *state;
  long calls = calls_of_a_save(f);
  for (long first = 0; first < calls; first++) {
    scene s;
    begin(&s, f, EIO);
    pid_t child = fork();
    if (child == 0) {
      s.faults.until = first;
      s.faults.kills = true;
      rv_error err;
      rv_checkpointer_save(s.checkpointer, s.store, NULL, NULL, &err);
      _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    rv_store *back = restored(f, f->checkpointer, s.tables, TABLES);
    rv_table_info info = info_of(rv_store_table(back, 0)), now = info_of(rv_store_table(s.store, 0));
    same_stores(info.inserts == now.inserts ? s.store : s.before, back);
    rv_table_info_fini(&info);
    rv_table_info_fini(&now);
    rv_store_unref(back);
    rv_checkpointer *next = incremental_of(f, 1, &rv_files_of_system); /* a new process */
    free(save_with(next, s.store));
    /* what the killed one left is gone, but for a directory that it had not yet marked as its own */
    assert_in_range(count_entries(f->root), 1, first == 0 ? 2 : 1);
    equals_what_is_restored(f, s.store, s.tables, TABLES);
    rv_checkpointer_unref(next);
    end(&s);
    f->log[0] = '\0';
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(only_what_is_new_is_written),
      TEST(one_that_is_kept_needs_none_that_is_not),
      TEST(a_restarted_server_goes_on_from_the_last_one),
      TEST(where_the_last_one_is_gone_everything_is_written_again),
      TEST(two_checkpointers_of_one_store_do_not_mistake_each_others_files),
      TEST(an_exported_one_is_of_reverbs_format),
      TEST(a_damaged_one_is_passed_over_for_the_one_before),
      TEST(an_io_error_at_any_call_leaves_the_one_before),
      TEST(a_full_disk_at_any_call_leaves_the_one_before),
      TEST(what_was_written_is_not_written_again_after_one_that_could_not_be_begun),
      TEST(a_process_that_is_killed_at_any_call_leaves_the_one_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
