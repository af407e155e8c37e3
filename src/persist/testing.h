/* What the tests of checkpoints share: a root of their own, stores to save, and comparing two stores in everything. */
#ifndef RV_PERSIST_TESTING_H
#define RV_PERSIST_TESTING_H

#include "store/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "persist/checkpoint_dir.h"
#include "reverie/checkpoint.h"

/* ---- a root, and what was logged about it ---- */

typedef struct fixture {
  char top[64], root[96];
  char log[16384]; /* lines */
  int64_t now_ns;
  rv_env env;
  rv_checkpointer *checkpointer;
} fixture;

static inline void keep_line(void *context, rv_log_level level, const char *line)
{
  fixture *f = context;
  (void)level;
  size_t size = strlen(f->log);
  snprintf(f->log + size, sizeof f->log - size, "%s\n", line);
}

static inline int64_t later(void *context)
{
  fixture *f = context;
  return __atomic_add_fetch(&f->now_ns, 1000000001, __ATOMIC_RELAXED);
}

/* Of a watch whose caller waits no longer. */
static inline bool give_up(void *context, const rv_checkpoint_progress *progress)
{
  (void)context;
  (void)progress;
  return false;
}

static inline rv_checkpointer *checkpointer_of(fixture *f, uint32_t keep, const char *fallback)
{
  rv_error err;
  rv_checkpointer *checkpointer = NULL;
  rv_checkpointer_config config = {
      .size = sizeof config, .path = f->root, .fallback_path = fallback, .keep = keep, .env = &f->env};
  must(rv_checkpointer_new(&config, &checkpointer, &err), &err);
  return checkpointer;
}

static inline int set_up(void **state)
{
  fixture *f = calloc(1, sizeof *f);
  strcpy(f->top, "/tmp/rv_checkpoints.XXXXXX");
  assert_non_null(mkdtemp(f->top));
  snprintf(f->root, sizeof f->root, "%s/a/b", f->top);
  f->now_ns = INT64_C(1790000000000000000);
  const rv_env own = {.size = sizeof own, .context = f, .wall_ns = later, .log = keep_line, .log_level = RV_LOG_INFO};
  rv_env_fill(&f->env, &own);
  f->checkpointer = checkpointer_of(f, 3, NULL);
  *state = f;
  return 0;
}

static inline int tear_down(void **state)
{
  fixture *f = *state;
  char command[128];
  rv_checkpointer_unref(f->checkpointer);
  snprintf(command, sizeof command, "rm -rf %s", f->top);
  assert_int_equal(system(command), 0);
  free(f);
  return 0;
}

static inline void logged(fixture *f, const char *sentence)
{
  if (strstr(f->log, sentence) == NULL) fail_msg("nothing logged says \"%s\":\n%s", sentence, f->log);
}

static inline char *save_with(rv_checkpointer *checkpointer, rv_store *store)
{
  rv_error err;
  char *path = NULL;
  must(rv_checkpointer_save(checkpointer, store, NULL, &path, &err), &err);
  return path;
}

static inline char *save(fixture *f, rv_store *store)
{
  return save_with(f->checkpointer, store);
}

static inline rv_code restore(fixture *f, const rv_table_config *tables, size_t n, rv_store **out, char **loaded, rv_error *err)
{
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = n};
  return rv_checkpointer_restore(f->checkpointer, &config, NULL, out, loaded, err);
}

/* ---- comparing ---- */

static inline void same_column(const rv_draw *a, const rv_draw *b, uint32_t column)
{
  rv_error err;
  rv_trajectory_column x = a->trajectory->columns[column], y = b->trajectory->columns[column];
  assert_int_equal(x.spec->dtype, y.spec->dtype);
  assert_int_equal(x.length, y.length);
  assert_int_equal(x.squeeze, y.squeeze);
  assert_int_equal(x.spec->rank, y.spec->rank);
  assert_int_equal(x.spec->row_bytes, y.spec->row_bytes);
  size_t size = (size_t)x.length * x.spec->row_bytes;
  void *p = calloc(1, size + 1), *q = calloc(1, size + 1);
  must(rv_draw_copy_column(a, column, p, &err), &err);
  must(rv_draw_copy_column(b, column, q, &err), &err);
  if (x.spec->dtype != RV_STRING) {
    assert_memory_equal(p, q, size);
  } else {
    const rv_bytes *s = p, *t = q;
    for (size_t i = 0; i < size / sizeof *s; i++) {
      assert_int_equal(s[i].size, t[i].size);
      assert_memory_equal(s[i].data, t[i].data, s[i].size);
    }
  }
  free(p);
  free(q);
}

static inline size_t list_items(rv_table *table, rv_item_info *out, size_t capacity)
{
  rv_error err;
  uint64_t cursor = 0;
  size_t n = 0, count;
  do {
    must(rv_table_items(table, &cursor, out + n, capacity - n, &count, &err), &err);
    n += count;
  } while (cursor != 0);
  return n;
}

enum { LISTED_MAX = 5000 };

static inline void same_items(rv_table *a, rv_table *b)
{
  rv_item_info *x = calloc(LISTED_MAX, sizeof *x), *y = calloc(LISTED_MAX, sizeof *y);
  size_t n = list_items(a, x, LISTED_MAX);
  rv_error err;
  assert_int_equal(n, list_items(b, y, LISTED_MAX));
  for (size_t i = 0; i < n; i++) {
    rv_draw p, q;
    assert_int_equal(x[i].key, y[i].key);
    assert_true(x[i].priority == y[i].priority);
    assert_int_equal(x[i].times_sampled, y[i].times_sampled);
    assert_int_equal(x[i].inserted_at_ns, y[i].inserted_at_ns);
    must(rv_table_get(a, x[i].key, &p, &err), &err);
    must(rv_table_get(b, y[i].key, &q, &err), &err);
    assert_int_equal(p.trajectory->num_columns, q.trajectory->num_columns);
    for (uint32_t c = 0; c < p.trajectory->num_columns; c++) same_column(&p, &q, c);
    rv_draw_release(&p);
    rv_draw_release(&q);
  }
  free(x);
  free(y);
}

static inline void same_tables(rv_table *a, rv_table *b)
{
  rv_table_info x = info_of(a), y = info_of(b);
  assert_string_equal(x.name, y.name);
  assert_int_equal(x.sampler.kind, y.sampler.kind);
  assert_true(x.sampler.priority_exponent == y.sampler.priority_exponent);
  assert_int_equal(x.remover.kind, y.remover.kind);
  assert_int_equal(x.max_size, y.max_size);
  assert_int_equal(x.max_times_sampled, y.max_times_sampled);
  assert_int_equal(x.max_bytes, y.max_bytes);
  assert_memory_equal(&x.rate_limiter, &y.rate_limiter, sizeof x.rate_limiter);
  assert_int_equal(x.current_size, y.current_size);
  assert_int_equal(x.inserts, y.inserts);
  assert_int_equal(x.samples, y.samples);
  assert_int_equal(x.deletes, y.deletes);
  assert_int_equal(x.num_episodes, y.num_episodes);
  assert_int_equal(x.num_deleted_episodes, y.num_deleted_episodes);
  assert_int_equal(x.num_unique_samples, y.num_unique_samples);
  assert_int_equal(x.signature.num_specs, y.signature.num_specs);
  rv_table_info_fini(&x);
  rv_table_info_fini(&y);
  same_items(a, b);
}

static inline void same_stores(rv_store *a, rv_store *b)
{
  assert_int_equal(rv_store_num_tables(a), rv_store_num_tables(b));
  for (size_t i = 0; i < rv_store_num_tables(a); i++) same_tables(rv_store_table(a, i), rv_store_table(b, i));
}

/* ---- files ---- */

static inline size_t read_bytes(const char *dir, const char *name, uint8_t **out)
{
  char path[400];
  struct stat info;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  int file = open(path, O_RDONLY);
  assert_true(file >= 0 && fstat(file, &info) == 0);
  *out = malloc((size_t)info.st_size + 1);
  assert_int_equal(read(file, *out, (size_t)info.st_size), info.st_size);
  close(file);
  return (size_t)info.st_size;
}

static inline void write_bytes(const char *dir, const char *name, const void *data, size_t size)
{
  char path[400];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  assert_true(file >= 0);
  assert_int_equal(write(file, data, size), (ssize_t)size);
  close(file);
}

static inline bool is_there(const char *dir, const char *name)
{
  char path[400];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return access(path, F_OK) == 0;
}

/* Entries of a directory, dot-names too. */
static inline size_t count_entries(const char *path)
{
  DIR *dir = opendir(path);
  assert_non_null(dir);
  size_t n = 0;
  const struct dirent *entry;
  while ((entry = readdir(dir)) != NULL) n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
  closedir(dir);
  return n;
}

#endif
