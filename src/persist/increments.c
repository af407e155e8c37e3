#include "persist/increments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "persist/checkpoint_dir.h"

/* With more files the smallest are put together. */
enum { MAX_FILES = 32 };

struct rv_increments {
  const rv_env *env;
  const rv_files *system;
  rv_chunk_files files;
  rv_chunk_log *log;
  char *last; /* the checkpoint that has all files; NULL: there are none */
  /* of the one in the making */
  char *dir;
  rv_record_writer *writer;
  uint32_t current; /* number of its own file */
  bool has_current;
};

rv_code rv_increments_new(const rv_env *env, const rv_files *files, rv_increments **out, rv_error *err)
{
  rv_increments *increments = calloc(1, sizeof *increments);
  if (increments == NULL) return rv_fail_memory(err, sizeof *increments);
  increments->env = env;
  increments->system = files;
  rv_code code = rv_chunk_log_new_lasting(&increments->files, env, &increments->log, err);
  if (code == RV_OK)
    *out = increments;
  else
    free(increments);
  return code;
}

void rv_increments_free(rv_increments *increments)
{
  if (increments == NULL) return;
  rv_record_writer_free(increments->writer);
  rv_chunk_log_free(increments->log);
  rv_chunk_files_fini(&increments->files);
  free(increments->last);
  free(increments->dir);
  free(increments);
}

void rv_increments_forget(rv_increments *increments)
{
  rv_chunk_log_clear(increments->log);
  rv_chunk_files_fini(&increments->files);
  free(increments->last);
  increments->last = NULL;
}

rv_chunk_log *rv_increments_log(rv_increments *increments)
{
  return increments->log;
}

uint64_t rv_increments_bytes(const rv_increments *increments)
{
  return increments->writer == NULL ? 0 : rv_record_writer_bytes(increments->writer);
}

const rv_chunk_files *rv_increments_files(const rv_increments *increments)
{
  return &increments->files;
}

/* ---- which files stay ---- */

static uint64_t needed_bytes(const rv_chunk_file *file)
{
  return (uint64_t)((double)file->bytes / file->records * file->num_needed);
}

static rv_chunk_file *smallest_that_stays(rv_chunk_files *all)
{
  rv_chunk_file *smallest = NULL;
  for (uint32_t i = 0; i < all->count; i++) {
    rv_chunk_file *file = &all->files[i];
    if (file->name[0] == '\0' || file->retired) continue;
    if (smallest == NULL || needed_bytes(file) < needed_bytes(smallest)) smallest = file;
  }
  return smallest;
}

/* What is mostly dead is not worth its place, and many small files are not worth theirs: half of them at once, so that what is written
 * again for it is little. */
static void retire(rv_chunk_files *all)
{
  uint32_t stay = 0;
  for (uint32_t i = 0; i < all->count; i++) {
    rv_chunk_file *file = &all->files[i];
    if (file->name[0] == '\0') continue;
    file->retired = file->num_needed < file->records - file->records / 2;
    memset(file->needed, 0, (file->records + 7U) / 8);
    stay += !file->retired;
  }
  for (bool many = stay >= MAX_FILES; many && stay > MAX_FILES / 2; stay--) smallest_that_stays(all)->retired = true;
}

/* ---- beginning ---- */

static rv_code link_file(const rv_increments *increments, const rv_chunk_file *file, rv_error *err)
{
  char *from = rv_path_join(increments->last, file->name), *to = rv_path_join(increments->dir, file->name);
  struct stat info;
  rv_code code = RV_OK;
  if (from == NULL || to == NULL)
    code = rv_fail_memory(err, strlen(increments->last));
  else if (increments->system->link(increments->system->context, from, to) != 0)
    code = rv_fail_system(err, errno, "link", from);
  else if (stat(to, &info) != 0 || (uint64_t)info.st_size != file->bytes)
    code = rv_fail(err, RV_DATA_LOSS, "%s has not the size that it was written with", from);
  free(from);
  free(to);
  return code;
}

static void remove_file(const rv_increments *increments, const rv_chunk_file *file)
{
  char *path = rv_path_join(increments->dir, file->name);
  if (path != NULL) increments->system->remove(increments->system->context, path);
  free(path);
}

/* Where one cannot be had, all are left: what of it was needed is not known before the items were seen. */
static void link_files(rv_increments *increments)
{
  rv_error err;
  rv_code code = RV_OK;
  rv_chunk_files *all = &increments->files;
  for (uint32_t i = 0; i < all->count && code == RV_OK; i++)
    if (all->files[i].name[0] != '\0' && !all->files[i].retired) code = link_file(increments, &all->files[i], &err);
  if (code == RV_OK) return;
  rv_log(increments->env, RV_LOG_WARNING,
         "checkpoint: all chunks are written again, since an earlier checkpoint's cannot be had: %s", err.message);
  for (uint32_t i = 0; i < all->count; i++)
    if (all->files[i].name[0] != '\0') remove_file(increments, &all->files[i]);
  rv_increments_forget(increments);
}

static rv_code put_chunk(void *context, rv_pieces *chunk, rv_error *err)
{
  return rv_record_writer_put_pieces(context, chunk, err);
}

static rv_code open_file(rv_increments *increments, int level, rv_error *err)
{
  char name[RV_CHUNK_FILE_NAME];
  rv_chunk_file_name(increments->env, name);
  rv_code code = rv_chunk_files_add(&increments->files, name, &increments->current, err);
  if (code != RV_OK) return code;
  increments->has_current = true;
  char *path = rv_path_join(increments->dir, name);
  code = path == NULL ? rv_fail_memory(err, strlen(increments->dir))
                      : rv_record_writer_new(path, level, increments->system, &increments->writer, err);
  free(path);
  return code;
}

rv_code rv_increments_begin(rv_increments *increments, const char *dir, int level, rv_error *err)
{
  increments->dir = strdup(dir);
  if (increments->dir == NULL) return rv_fail_memory(err, strlen(dir));
  retire(&increments->files);
  link_files(increments);
  rv_code code = open_file(increments, level, err);
  if (code == RV_OK) rv_chunk_log_begin(increments->log, (rv_chunk_sink){put_chunk, increments->writer}, increments->current);
  return code;
}

/* ---- ending ---- */

rv_code rv_increments_finish(rv_increments *increments, rv_error *err)
{
  rv_code code = rv_record_writer_finish(increments->writer, err);
  if (code != RV_OK) return code;
  increments->files.files[increments->current].bytes = rv_record_writer_bytes(increments->writer);
  for (uint32_t i = 0; i < increments->files.count; i++) {
    const rv_chunk_file *file = &increments->files.files[i];
    if (file->name[0] != '\0' && !file->retired && rv_chunk_file_count(file) == 0) remove_file(increments, file);
  }
  return rv_chunk_files_write(&increments->files, increments->dir, increments->system, err);
}

static void drop_unneeded(rv_chunk_files *all)
{
  for (uint32_t i = 0; i < all->count; i++) {
    rv_chunk_file *file = &all->files[i];
    if (file->name[0] == '\0') continue;
    file->num_needed = rv_chunk_file_count(file);
    if (file->num_needed == 0) rv_chunk_file_fini(file);
  }
}

void rv_increments_end(rv_increments *increments, const char *path)
{
  char *last = path == NULL ? NULL : strdup(path);
  if (path != NULL && last == NULL) {
    rv_increments_forget(increments);
  } else if (path != NULL) {
    rv_chunk_log_end(increments->log, true);
    drop_unneeded(&increments->files);
    free(increments->last);
    increments->last = last;
  } else if (increments->has_current) {
    if (increments->writer != NULL) rv_chunk_log_end(increments->log, false); /* else its round never began */
    rv_chunk_file_fini(&increments->files.files[increments->current]);
  }
  rv_record_writer_free(increments->writer);
  free(increments->dir);
  increments->writer = NULL;
  increments->dir = NULL;
  increments->has_current = false;
}

/* ---- after a restart ---- */

rv_code rv_increments_restore(rv_increments *increments, const char *path, rv_chunk_files *owned_files, rv_error *err)
{
  rv_increments_forget(increments);
  increments->files = *owned_files;
  *owned_files = (rv_chunk_files){0};
  increments->last = strdup(path);
  if (increments->last != NULL) return RV_OK;
  rv_increments_forget(increments);
  return rv_fail_memory(err, strlen(path));
}
