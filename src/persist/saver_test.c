/* Saving by itself, for a store that no server serves. The savers' checkpointers have no part in the fixture: its time and its log are
 * for one thread. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/linux.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"
#include "persist/saver.h"
#include "persist/stores_testing.h"

static rv_saver *saver_of(fixture *f, rv_store *store, int64_t every_ms, int64_t every_inserts)
{
  rv_error err;
  rv_saver *saver = NULL;
  rv_checkpointer *own = NULL;
  const rv_checkpointer_config root = {.size = sizeof root, .path = f->root, .keep = 3};
  must(rv_checkpointer_new(&root, &own, &err), &err);
  const rv_saver_config config = {
      .size = sizeof config, .store = store, .checkpointer = own, .every_ms = every_ms, .every_inserts = every_inserts};
  must(rv_saver_new(&config, &saver, &err), &err);
  rv_checkpointer_unref(own);
  return saver;
}

/* Until the newest checkpoint has so many in its second table. */
static void wait_for_items(fixture *f, int64_t items)
{
  const int64_t give_up = rv_monotonic_ns(&f->env) + INT64_C(60000000000);
  for (int64_t found = -1; found != items; sched_yield()) {
    if (rv_monotonic_ns(&f->env) > give_up) fail_msg("the newest checkpoint has %lld items", (long long)found);
    rv_table_config tables[TABLES];
    configure(tables);
    rv_store *back = NULL;
    rv_error err;
    rv_table_info info;
    must(restore(f, tables, TABLES, &back, NULL, &err), &err);
    must(rv_table_get_info(rv_store_table(back, 1), &info, &err), &err);
    found = info.current_size;
    rv_table_info_fini(&info);
    rv_store_unref(back);
  }
}

static rv_store *two_rows(void)
{
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = new_store(tables, TABLES);
  add_rows(rv_store_table(store, 1), 2, 0);
  return store;
}

static void a_store_is_saved_by_time(void **state)
{
  fixture *f = *state;
  rv_store *store = two_rows();
  rv_saver *saver = saver_of(f, store, 5, 0);
  wait_for_items(f, 2);
  add_rows(rv_store_table(store, 1), 3, 0);
  wait_for_items(f, 5);
  rv_saver_free(saver);
  rv_store_unref(store);
}

static void a_store_is_saved_after_so_many_inserts(void **state)
{
  fixture *f = *state;
  rv_store *store = two_rows();
  rv_saver *saver = saver_of(f, store, 0, 3);
  add_rows(rv_store_table(store, 1), 2, 0);
  add_rows(rv_store_table(store, 0), 1, 0);
  wait_for_items(f, 4);
  rv_saver_free(saver);
  rv_store_unref(store);
}

/* ---- a disk that fails once ---- */

static int fail_once(void *context, const char *from, const char *to)
{
  atomic_bool *failed = context;
  if (atomic_exchange(failed, true)) return rv_files_of_system.rename(NULL, from, to);
  errno = ENOSPC;
  return -1;
}

/* Each look at the clock is a minute and more after the one before. */
static int64_t minutes_pass(void *context)
{
  return atomic_fetch_add((_Atomic(int64_t) *)context, INT64_C(61000000000));
}

static void say_nothing(void *context, rv_log_level level, const char *line)
{
  (void)context;
  (void)level;
  (void)line;
}

static void a_save_that_failed_is_tried_again_also_if_nothing_more_is_inserted(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_saver *saver = NULL;
  rv_checkpointer *own = NULL;
  rv_store *store = two_rows();
  atomic_bool failed = false;
  _Atomic(int64_t) now_ns = 0;
  rv_files files = rv_files_of_system;
  files.rename = fail_once;
  files.context = &failed;
  const rv_env env = {.size = sizeof env, .context = &now_ns, .monotonic_ns = minutes_pass, .log = say_nothing};
  const rv_checkpointer_config root = {.size = sizeof root, .path = f->root};
  must(rv_checkpointer_new_with(&root, &files, &own, &err), &err);
  const rv_saver_config config = {.size = sizeof config, .store = store, .checkpointer = own, .env = &env, .every_inserts = 3};
  must(rv_saver_new(&config, &saver, &err), &err);
  rv_checkpointer_unref(own);
  add_rows(rv_store_table(store, 1), 3, 0);
  wait_for_items(f, 5);
  assert_true(atomic_load(&failed));
  rv_saver_free(saver);
  rv_store_unref(store);
}

static void one_that_is_freed_leaves_nothing_half_written(void **state)
{
  fixture *f = *state;
  rv_store *store = two_rows();
  for (int i = 0; i < 20; i++) {
    rv_saver *saver = saver_of(f, store, 1, 0);
    for (int j = 0; j < 100 * i; j++) sched_yield();
    rv_saver_free(saver);
    rv_error err;
    rv_store *back = NULL;
    rv_table_config tables[TABLES];
    configure(tables);
    must(restore(f, tables, TABLES, &back, NULL, &err), &err);
    rv_store_unref(back);
  }
  assert_null(strstr(f->log, "cannot be used"));
  rv_saver_free(NULL);
  rv_store_unref(store);
}

#ifdef RV_LINUX

typedef struct noted {
  rv_saver_request request;
  int priority;
} noted;

static void note_priority(rv_saver_request *request, rv_code code, const char *path)
{
  assert_int_equal(code, RV_OK);
  assert_non_null(path);
  RV_CONTAINER(request, noted, request)->priority = getpriority(PRIO_PROCESS, 0);
}

static void saving_leaves_the_cores_to_those_who_answer(void **state)
{
  fixture *f = *state;
  rv_store *store = two_rows();
  rv_saver *saver = saver_of(f, store, 0, 0);
  int own = getpriority(PRIO_PROCESS, 0);
  noted asked = {.request.done = note_priority, .priority = -100};
  rv_saver_ask(saver, &asked.request);
  wait_for_items(f, 2);
  rv_saver_free(saver);
  assert_int_equal(asked.priority, own + 10 < 19 ? own + 10 : 19);
  assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
  rv_store_unref(store);
}

#else

static void saving_leaves_the_cores_to_those_who_answer(void **state)
{
  (void)state;
  skip();
}

#endif

/* ---- when who asked is answered ---- */

typedef struct looking {
  rv_saver_request request;
  rv_checkpointer *checkpointer;
  rv_store *store;
  const char *older;
  atomic_int answers;
  bool new_is_whole, older_is_whole, older_has_files;
  rv_code saved_once_more;
  rv_code refused; /* where it failed */
} looking;

/* And frees it: nobody is answered twice. */
static void ask_once(fixture *f, rv_saver *owned_saver, looking *asked)
{
  rv_saver_ask(owned_saver, &asked->request);
  const int64_t give_up = rv_monotonic_ns(&f->env) + INT64_C(60000000000);
  while (atomic_load(&asked->answers) == 0 && rv_monotonic_ns(&f->env) < give_up) sched_yield();
  rv_saver_free(owned_saver);
  assert_int_equal(atomic_load(&asked->answers), 1);
}

static bool has_chunks(const char *checkpoint)
{
  char *path = rv_path_join(checkpoint, RV_CHUNKS_FILE);
  bool has = path != NULL && access(path, F_OK) == 0;
  free(path);
  return has;
}

static void look(rv_saver_request *request, rv_code code, const char *path)
{
  rv_error err;
  looking *one = RV_CONTAINER(request, looking, request);
  one->new_is_whole = code == RV_OK && rv_checkpoint_is_done(path) && has_chunks(path);
  one->older_is_whole = rv_checkpoint_is_done(one->older);
  one->older_has_files = has_chunks(one->older);
  one->saved_once_more = rv_checkpointer_save(one->checkpointer, one->store, NULL, NULL, &err);
  atomic_fetch_add(&one->answers, 1);
}

/* However long a file system takes to remove files, who asked does not wait for it, and others may save. */
static void who_asked_is_answered_before_older_ones_are_removed(void **state)
{
  fixture *f = *state;
  rv_error err;
  char *older = NULL;
  rv_saver *saver = NULL;
  rv_checkpointer *own = NULL;
  rv_store *store = two_rows();
  const rv_checkpointer_config root = {.size = sizeof root, .path = f->root};
  must(rv_checkpointer_new(&root, &own, &err), &err);
  must(rv_checkpointer_save(own, store, NULL, &older, &err), &err);
  assert_true(has_chunks(older));
  const rv_saver_config config = {.size = sizeof config, .store = store, .checkpointer = own};
  must(rv_saver_new(&config, &saver, &err), &err);
  looking asked = {.request.done = look, .checkpointer = own, .store = store, .older = older};
  ask_once(f, saver, &asked);
  assert_true(asked.new_is_whole);
  assert_false(asked.older_is_whole);
  assert_true(asked.older_has_files);
  assert_int_equal(asked.saved_once_more, RV_OK);
  rv_checkpoint_list left;
  must(rv_checkpoint_list_read(f->root, &left, &err), &err);
  assert_int_equal(left.count, 1);
  assert_true(left.entries[0].done);
  rv_checkpoint_list_fini(&left);
  rv_checkpointer_unref(own);
  rv_store_unref(store);
  free(older);
}

static void note_refusal(rv_saver_request *request, rv_code code, const char *message)
{
  looking *one = RV_CONTAINER(request, looking, request);
  one->refused = strstr(message, "No space left") != NULL ? code : RV_OK;
  atomic_fetch_add(&one->answers, 1);
}

static void who_asked_for_one_that_fails_is_answered_once(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_saver *saver = NULL;
  rv_checkpointer *own = NULL;
  rv_store *store = two_rows();
  atomic_bool failed = false;
  rv_files files = rv_files_of_system;
  files.rename = fail_once;
  files.context = &failed;
  const rv_env env = {.size = sizeof env, .log = say_nothing};
  const rv_checkpointer_config root = {.size = sizeof root, .path = f->root};
  must(rv_checkpointer_new_with(&root, &files, &own, &err), &err);
  const rv_saver_config config = {.size = sizeof config, .store = store, .checkpointer = own, .env = &env};
  must(rv_saver_new(&config, &saver, &err), &err);
  looking asked = {.request.done = note_refusal};
  ask_once(f, saver, &asked);
  assert_int_equal(asked.refused, RV_RESOURCE_EXHAUSTED);
  rv_checkpointer_unref(own);
  rv_store_unref(store);
}

/* ---- two servers, one directory ---- */

typedef struct waited {
  rv_saver_request request;
  atomic_bool over;
  char path[256];
} waited;

static void note_path(rv_saver_request *request, rv_code code, const char *path)
{
  waited *w = RV_CONTAINER(request, waited, request);
  if (code != RV_OK) fail_msg("%s", path);
  snprintf(w->path, sizeof w->path, "%s", path);
  atomic_store(&w->over, true);
}

static void save_now(rv_saver *saver, waited *out)
{
  *out = (waited){.request.done = note_path};
  rv_saver_ask(saver, &out->request);
  for (int64_t tries = 0; !atomic_load(&out->over); tries++) {
    if (tries > 60000) fail_msg("a save does not end");
    usleep(1000);
  }
}

static rv_saver *saver_with(rv_checkpointer *checkpointer, rv_store *store)
{
  rv_error err;
  rv_saver *saver = NULL;
  const rv_saver_config config = {.size = sizeof config, .store = store, .checkpointer = checkpointer};
  must(rv_saver_new(&config, &saver, &err), &err);
  return saver;
}

static rv_checkpointer *own_checkpointer(const fixture *f)
{
  rv_error err;
  rv_checkpointer *own = NULL;
  const rv_checkpointer_config root = {.size = sizeof root, .path = f->root, .keep = 1};
  must(rv_checkpointer_new(&root, &own, &err), &err);
  return own;
}

/* What one has restored or saved last is all that it would have after a kill. */
static void the_last_of_a_living_server_is_not_removed_by_another(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = two_rows(), *back = NULL;
  rv_checkpointer *of_a = own_checkpointer(f), *of_b = own_checkpointer(f);
  rv_saver *a = saver_with(of_a, store);
  waited first, second, other;
  save_now(a, &first);

  const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  must(rv_checkpointer_restore(of_b, &config, NULL, &back, NULL, &err), &err);
  rv_saver *b = saver_with(of_b, back);
  save_now(a, &second);
  assert_true(rv_checkpoint_is_done(first.path)); /* which b goes on from */

  save_now(b, &other);
  assert_false(rv_checkpoint_is_done(first.path));
  assert_true(rv_checkpoint_is_done(second.path)); /* a's last */
  save_now(a, &first);
  assert_false(rv_checkpoint_is_done(second.path));
  assert_true(rv_checkpoint_is_done(other.path));

  rv_saver_free(b);
  save_now(a, &second); /* alone again */
  assert_false(rv_checkpoint_is_done(other.path));
  assert_true(rv_checkpoint_is_done(second.path));
  rv_saver_free(a);
  rv_checkpointer_unref(of_a);
  rv_checkpointer_unref(of_b);
  rv_store_unref(back);
  rv_store_unref(store);
}

static size_t count_lines_with(const fixture *f, const char *text)
{
  size_t n = 0;
  for (const char *at = f->log; (at = strstr(at, text)) != NULL; at++) n++;
  return n;
}

/* Two that save to one directory: who begins there later is told when it begins, the other when it saves, and neither again. */
static void another_server_on_the_same_directory_is_told_of_once_by_each(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = two_rows(), *back = NULL;
  rv_checkpointer *of_a = checkpointer_of(f, 2, NULL), *of_b = checkpointer_of(f, 2, NULL);
  rv_saver *a = saver_with(of_a, store);
  waited saved;
  save_now(a, &saved);
  save_now(a, &saved);
  assert_int_equal(count_lines_with(f, " uses "), 0);

  const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  must(rv_checkpointer_restore(of_b, &config, NULL, &back, NULL, &err), &err);
  assert_int_equal(count_lines_with(f, " uses "), 1);
  logged(f, "give each server a directory of its own");
  rv_saver *b = saver_with(of_b, back);
  save_now(a, &saved);
  assert_int_equal(count_lines_with(f, " uses "), 2);
  save_now(b, &saved);
  save_now(a, &saved);
  assert_int_equal(count_lines_with(f, " uses "), 2);
  rv_saver_free(b);
  rv_saver_free(a);
  rv_checkpointer_unref(of_a);
  rv_checkpointer_unref(of_b);
  rv_store_unref(back);
  rv_store_unref(store);
}

/* One after another, as always. */
static void a_server_that_has_ended_is_not_told_of(void **state)
{
  fixture *f = *state;
  rv_error err;
  rv_table_config tables[TABLES];
  configure(tables);
  rv_store *store = two_rows();
  const rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = TABLES};
  for (int i = 0; i < 3; i++) {
    rv_checkpointer *own = checkpointer_of(f, 2, NULL);
    rv_saver *saver = saver_with(own, store);
    waited saved;
    save_now(saver, &saved);
    save_now(saver, &saved);
    rv_saver_free(saver);
    rv_store_unref(store);
    store = NULL;
    must(rv_checkpointer_restore(own, &config, NULL, &store, NULL, &err), &err);
    rv_checkpointer_unref(own);
  }
  assert_int_equal(count_lines_with(f, " uses "), 0);
  rv_store_unref(store);
}

/* Another server, which saves as soon as one of the first has its name: before that is on the disk, and known to be there. */
typedef struct at_once {
  rv_saver *other;
  bool saved;
  waited its;
} at_once;

static int rename_and_save(void *context, const char *from, const char *to)
{
  at_once *its = context;
  int result = rv_files_of_system.rename(NULL, from, to);
  if (result == 0 && !its->saved) {
    its->saved = true;
    save_now(its->other, &its->its);
  }
  return result;
}

static int sync_directory_and_save(void *context, const char *path)
{
  at_once *its = context;
  if (its->other != NULL && strstr(path, RV_PARTIAL_PREFIX) == NULL && !its->saved) {
    its->saved = true;
    save_now(its->other, &its->its);
  }
  return rv_files_of_system.sync_directory(NULL, path);
}

static void one_that_has_just_got_its_name_is_not_removed_by_another_server(void **state)
{
  fixture *f = *state;
  rv_error err;
  for (int late = 0; late < 2; late++) {
    rv_store *store = two_rows();
    at_once its = {.saved = true};
    rv_files files = rv_files_of_system;
    files.context = &its;
    if (late)
      files.sync_directory = sync_directory_and_save;
    else
      files.rename = rename_and_save;
    rv_checkpointer *of_a, *of_b = own_checkpointer(f);
    const rv_checkpointer_config root = {.size = sizeof root, .path = f->root, .keep = 1};
    must(rv_checkpointer_new_with(&root, &files, &of_a, &err), &err);
    rv_saver *a = saver_with(of_a, store);
    its.other = saver_with(of_b, store);
    its.saved = false;
    waited first;
    save_now(a, &first);
    assert_true(its.saved);
    assert_true(rv_checkpoint_is_done(its.its.path));
    assert_true(rv_checkpoint_is_done(first.path));
    rv_saver_free(its.other);
    rv_saver_free(a);
    rv_checkpointer_unref(of_a);
    rv_checkpointer_unref(of_b);
    rv_store_unref(store);
  }
}

static void what_is_missing_or_negative_is_refused(void **state)
{
  fixture *f = *state;
  rv_store *store = two_rows();
  rv_saver *saver;
  rv_error err;
  const rv_saver_config good = {.size = sizeof good, .store = store, .checkpointer = f->checkpointer},
                        none = {.size = sizeof none};
  rv_saver_config config = none;
  assert_int_equal(rv_saver_new(&config, &saver, &err), RV_INVALID_ARGUMENT);
  config = good;
  config.every_ms = -1;
  assert_int_equal(rv_saver_new(&config, &saver, &err), RV_INVALID_ARGUMENT);
  config = good;
  config.every_inserts = -1;
  assert_int_equal(rv_saver_new(&config, &saver, &err), RV_INVALID_ARGUMENT);
  assert_non_null(strstr(err.message, "every_inserts -1"));
  rv_store_unref(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_store_is_saved_by_time),
      TEST(a_store_is_saved_after_so_many_inserts),
      TEST(a_save_that_failed_is_tried_again_also_if_nothing_more_is_inserted),
      TEST(one_that_is_freed_leaves_nothing_half_written),
      TEST(saving_leaves_the_cores_to_those_who_answer),
      TEST(who_asked_is_answered_before_older_ones_are_removed),
      TEST(who_asked_for_one_that_fails_is_answered_once),
      TEST(the_last_of_a_living_server_is_not_removed_by_another),
      TEST(another_server_on_the_same_directory_is_told_of_once_by_each),
      TEST(a_server_that_has_ended_is_not_told_of),
      TEST(one_that_has_just_got_its_name_is_not_removed_by_another_server),
      TEST(what_is_missing_or_negative_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
