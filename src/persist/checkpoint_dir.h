/* The root directory: checkpoints by name, which are whose, and which stay.
 *
 * A checkpoint is a directory with DONE in it, named by its time as Reverb names it. Ours also has a file called REVERIE: only what
 * has that is ever removed, and of it only the files that we write. While one is being written its directory is called
 * ".reverie-...", which neither Reverb nor we take for a checkpoint (it sorts before every time), and its REVERIE file is locked, so
 * that one that was left behind by a crash can be told from one in the making. */
#ifndef RV_PERSIST_CHECKPOINT_DIR_H
#define RV_PERSIST_CHECKPOINT_DIR_H

#include "base/env.h"
#include "persist/files.h"

#define RV_TABLES_FILE "tables.tfrecord"
#define RV_ITEMS_FILE "items.tfrecord"
#define RV_CHUNKS_FILE "chunks.tfrecord"
#define RV_DONE_FILE "DONE"
#define RV_OURS_FILE "REVERIE"
#define RV_PARTIAL_PREFIX ".reverie-" /* of the directory of one that is being written */
#define RV_LINK_FILE "JOURNAL"        /* which journal goes on from it (journal.h); not always there */

enum { RV_CHECKPOINT_NAME_MAX = 64 };

/* ---- names ---- */

/* "2026-11-21T09:44:04.112011003+00:00": the time where this process lives; trailing zeros of the fraction are left out. */
void rv_checkpoint_name(int64_t wall_ns, char out[RV_CHECKPOINT_NAME_MAX]);
/* false: no such name. */
bool rv_checkpoint_name_parse(const char *name, int64_t *wall_ns);

/* dir/name; NULL when memory is out. free(). */
char *rv_path_join(const char *dir, const char *name);

/* The directory and those above it that are not there. */
rv_code rv_make_directories(const char *path, rv_error *err);
/* By their text, or, where both are there, whatever links led to them. */
bool rv_is_same_directory(const char *a, const char *b);
/* Whether that could be done, and the directory written to, by what is there of the way to it. */
rv_code rv_check_directories(const char *path, rv_error *err);

/* ---- listing ---- */

typedef struct rv_checkpoint_entry {
  char *name;
  int64_t wall_ns; /* by its name; INT64_MIN: the name is no time */
  bool done, ours;
  int unknown; /* errno of who tried to look into it; 0: `done` and `ours` are so */
} rv_checkpoint_entry;

typedef struct rv_checkpoint_list {
  rv_checkpoint_entry *entries; /* newest first; those whose names are no times come last, by name, descending */
  size_t count;
  int64_t newest_gone; /* of those that are no checkpoint, or not any more, the newest, by its name; INT64_MIN: there is none */
} rv_checkpoint_list;

/* All directories of the root but those whose names begin with a dot. A root that is not there has none. */
rv_code rv_checkpoint_list_read(const char *root, rv_checkpoint_list *out, rv_error *err);
/* The same for who begins with what is there. A saver takes an older one away as soon as a newer has its name, and while names are read that may
 * be missed, and the other be gone by when it is looked at: then it is listed again. */
rv_code rv_checkpoint_list_read_whole(const char *root, rv_checkpoint_list *out, rv_error *err);
void rv_checkpoint_list_fini(rv_checkpoint_list *list);
bool rv_checkpoint_is_done(const char *path); /* it is there, with DONE in it, or nobody can say: reading it will */

/* ---- writing and removing ---- */

typedef struct rv_partial {
  char *path; /* of the directory */
  int lock;   /* its REVERIE file */
  const rv_files *files;
} rv_partial;

/* Removes what crashes left behind: directories that were written to, and whose writers have gone. */
void rv_partials_remove(const char *root, const rv_env *env);
/* Makes root, and a directory in it to write to, when what crashes left behind is removed. */
rv_code rv_partial_begin(const char *root, const rv_env *env, const rv_files *files, rv_partial *out, rv_error *err);
/* A small file beside the others. */
rv_code rv_partial_put(const rv_partial *partial, const char *name, const char *text, rv_error *err);
/* Writes DONE and gives the directory its name: a time later than any other's in the root. *path is the caller's to free(). Where the
 * name cannot be forced to the disk it stays, but that is an error: nothing may be removed that it would take the place of. From the moment on
 * in which it has its name `lock` is one of those that keep it from being removed by another server, and can be read beside others. */
rv_code rv_partial_finish(rv_partial *partial, const char *root, const rv_env *env, char **path, rv_error *err);
/* Removes it, unless it was finished, and lets its lock go. */
void rv_partial_drop(rv_partial *partial, const rv_env *env);

/* Our checkpoints but the `keep` newest are none from here on, at once: how long their files take to be removed is a matter of the file
 * system. What is being read (checkpoint_mark.h) stays one. rv_checkpoints_retain is to follow, and tells what could not be done. */
void rv_checkpoints_retire(const char *root, uint32_t keep, const rv_env *env);
/* Removes our checkpoints but the `keep` newest. What is being read stays this time; so does what cannot be removed. Both are logged. Any
 * number of threads and processes may be at it. */
void rv_checkpoints_retain(const char *root, uint32_t keep, const rv_env *env);

#endif
