#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"
#include "persist/loaded_chunks.h"
#include "persist/old_item.h"
#include "persist/record_file.h"
#include "persist/table_merge.h"
#include "store/memory.h"
#include "store/store.h"
#include "wire/messages.h"
#include "wire/parse.h"

enum { ASK_EACH = 256, ASK_BYTES = 1 << 24, LISTED_NAMES = 300 };

typedef struct saved_table {
  rv_buf *message; /* what the record borrows from */
  rv_table_record record;
  rv_table *table; /* once the store is made */
} saved_table;

typedef struct loading {
  const rv_checkpoint_source *source;
  bool not_its_fault; /* the error at hand has nothing to do with the checkpoint */
  saved_table *tables;
  size_t num_tables;
  rv_table_config *configs; /* of the store: the saved ones merged in */
  size_t num_configs;
  rv_store *store;
  rv_loaded_chunks chunks;
  rv_chunk_files own_files;
  const rv_chunk_files *files; /* of an incremental one; NULL: all chunks are in one file */
  uint32_t file, record;       /* the one that is read, and which of its records comes next */
  rv_record_reader *reader;    /* of it; NULL: none is open */
  rv_code chunks_code;         /* why no more chunks could be read */
  rv_error chunks_error;
  bool has_items_file;
  rv_checkpoint_progress progress;
  size_t records, bytes; /* since it asked */
} loading;

/* ---- files ---- */

typedef rv_code (*use_record)(loading *work, rv_buf *owned_record, rv_error *err);

/* One record more was read. */
static rv_code tell(loading *work, size_t bytes, rv_error *err)
{
  work->bytes += bytes;
  if (++work->records < ASK_EACH && work->bytes < ASK_BYTES) return RV_OK;
  work->records = work->bytes = 0;
  return rv_checkpoint_ask(work->source->watch, &work->progress, err);
}

static rv_code open_file(const loading *work, const char *name, rv_record_reader **out, rv_error *err)
{
  char *path = rv_path_join(work->source->dir, name);
  if (path == NULL) return rv_fail_memory(err, strlen(name));
  rv_code code = rv_record_reader_new(path, out, err);
  free(path);
  return code;
}

/* Each record is the user's from here on; whatever it finds wrong gets file and record put before it. */
static rv_code read_file(loading *work, const char *name, use_record use, rv_error *err)
{
  rv_record_reader *reader = NULL;
  rv_code code = open_file(work, name, &reader, err);
  while (code == RV_OK) {
    rv_buf *record;
    code = rv_record_reader_next(reader, &record, err);
    if (code != RV_OK || record == NULL) break;
    size_t bytes = record->size;
    code = use(work, record, err);
    if (code != RV_OK && work->chunks_code == RV_OK) rv_record_reader_prefix(reader, err);
    if (code == RV_OK) code = tell(work, bytes, err);
  }
  rv_record_reader_free(reader);
  return code;
}

/* ---- tables ---- */

static const rv_table_config *configured(const rv_store_config *config, size_t index)
{
  return (const rv_table_config *)(const void *)((const char *)config->tables + index * config->tables[0].size);
}

static saved_table *find_saved(loading *work, rv_span name)
{
  for (size_t i = 0; i < work->num_tables; i++)
    if (strlen(work->tables[i].record.name) == name.size && memcmp(work->tables[i].record.name, name.data, name.size) == 0)
      return &work->tables[i];
  return NULL;
}

static rv_code use_table(loading *work, rv_buf *owned_record, rv_error *err)
{
  saved_table *grown = realloc(work->tables, (work->num_tables + 1) * sizeof *grown);
  if (grown == NULL) {
    rv_buf_unref(owned_record);
    return rv_fail_memory(err, sizeof *grown);
  }
  work->tables = grown;
  saved_table *added = &grown[work->num_tables];
  *added = (saved_table){.message = owned_record};
  rv_code code = rv_table_record_parse((rv_span){owned_record->data, owned_record->size}, &added->record, err);
  if (code == RV_OK) {
    const char *name = added->record.name;
    if (find_saved(work, (rv_span){(const uint8_t *)name, strlen(name)}) != NULL)
      code = rv_fail(err, RV_DATA_LOSS, "the second record of table \"%s\"", name);
  }
  work->num_tables++; /* also when it is no good: it is freed with the others */
  return code;
}

static rv_table_config *find_config(loading *work, const char *name)
{
  for (size_t i = 0; i < work->num_configs; i++)
    if (work->configs[i].name != NULL && strcmp(work->configs[i].name, name) == 0) return &work->configs[i];
  return NULL;
}

static rv_code fail_unknown_table(loading *work, const char *name, rv_error *err)
{
  char names[LISTED_NAMES] = "";
  size_t at = 0;
  for (size_t i = 0; i < work->num_configs && at < sizeof names; i++) {
    int wrote = snprintf(names + at, sizeof names - at, "%s\"%s\"", i == 0 ? "" : ", ",
                         work->configs[i].name != NULL ? work->configs[i].name : "");
    at += wrote < 0 ? 0 : (size_t)wrote;
  }
  work->not_its_fault = true;
  return rv_fail(
      err, RV_INVALID_ARGUMENT,
      "the checkpoint's table \"%s\" was not found in provided list of tables: %s; add such a table, or give another path", name,
      names);
}

static rv_code copy_configs(loading *work, rv_error *err)
{
  const rv_store_config *config = work->source->config;
  if (config->num_tables == 0 || config->tables == NULL) return RV_OK; /* rv_store_new says it */
  work->configs = calloc(config->num_tables, sizeof *work->configs);
  if (work->configs == NULL) return rv_fail_memory(err, config->num_tables * sizeof *work->configs);
  for (; work->num_configs < config->num_tables; work->num_configs++) {
    rv_table_config *to = &work->configs[work->num_configs];
    size_t stride = config->tables[0].size;
    memcpy(to, configured(config, work->num_configs), stride < sizeof *to ? stride : sizeof *to);
    if (to->size == stride) to->size = sizeof *to; /* else as it is: rv_store_new refuses it */
  }
  return RV_OK;
}

/* Is what was configured possible at all? Then what is wrong with the merged one came out of the checkpoint. */
static void blame_configuration(loading *work, rv_code code, rv_error *err)
{
  rv_store *store;
  rv_error own;
  rv_code configured_code = rv_store_new(work->source->config, &store, &own);
  if (configured_code == RV_OK) {
    rv_store_unref(store);
    work->not_its_fault = code == RV_NOT_FOUND; /* a selector that is not registered */
  } else {
    work->not_its_fault = true;
    rv_error_copy(err, &own);
  }
}

static rv_code make_store(loading *work, rv_error *err)
{
  rv_code code = copy_configs(work, err);
  for (size_t i = 0; i < work->num_tables && code == RV_OK; i++) {
    rv_table_config *table = find_config(work, work->tables[i].record.name);
    code = table == NULL ? fail_unknown_table(work, work->tables[i].record.name, err)
                         : rv_table_merge(&work->tables[i].record, table, work->source->env, err);
  }
  if (code != RV_OK) return code;
  rv_store_config config = {.size = 0};
  const rv_store_config *given = work->source->config;
  memcpy(&config, given, given->size < sizeof config ? given->size : sizeof config);
  config.tables = work->configs;
  code = rv_store_new(&config, &work->store, err);
  if (code != RV_OK) {
    blame_configuration(work, code, err);
    return err != NULL ? err->code : code;
  }
  rv_store_drop_key_seed(work->store);
  code = rv_checkpoint_begin_spill(work->source->watch, work->store, err);
  work->not_its_fault = code != RV_OK;
  for (size_t i = 0; i < work->num_tables && code == RV_OK; i++) {
    const char *name = work->tables[i].record.name;
    code = rv_store_find_named(work->store, name, &work->tables[i].table, err);
  }
  return code;
}

/* ---- chunks ---- */

/* They are read as items ask for them, which is mostly the order in which they were written: the disk and the thread that inflates go on
 * while items are made, and a chunk is in the processor's caches when its item is. */

static rv_code begin_chunks(loading *work, rv_error *err)
{
  bool incremental;
  rv_increments *increments = work->source->increments;
  work->chunks.cache = rv_store_decode_cache(work->store);
  work->chunks.apart = rv_memory_limit(rv_store_memory(work->store)) < SIZE_MAX; /* else there is no spill */
  rv_code code = rv_chunk_files_read(work->source->dir, &work->own_files, &incremental, err);
  if (code != RV_OK || !incremental) return code;
  if (increments != NULL) code = rv_increments_restore(increments, work->source->dir, &work->own_files, err);
  work->files = increments != NULL ? rv_increments_files(increments) : &work->own_files;
  return code;
}

static rv_code use_chunk(loading *work, rv_buf *owned_record, rv_error *err)
{
  rv_chunk *added = NULL;
  uint32_t record = work->record++;
  rv_increments *increments = work->source->increments;
  if (work->files != NULL) {
    const rv_chunk_file *file = &work->files->files[work->file];
    bool known = record < file->records;
    if (!known || !rv_chunk_file_needs(file, record)) {
      rv_buf_unref(owned_record);
      return known ? RV_OK : rv_fail(err, RV_DATA_LOSS, "only %u were written", file->records);
    }
  }
  rv_code code = rv_loaded_chunks_add(&work->chunks, owned_record, &added, err);
  if (code != RV_OK || work->files == NULL || increments == NULL || added == NULL) return code;
  return rv_chunk_log_adopt(rv_increments_log(increments), added, work->file, record, err);
}

/* The file at hand is read to its end: the next one is. */
static rv_code end_file(loading *work, rv_error *err)
{
  rv_record_reader_free(work->reader);
  work->reader = NULL;
  const rv_chunk_file *file = work->files != NULL ? &work->files->files[work->file] : NULL;
  if (file != NULL && work->record != file->records)
    return rv_fail(err, RV_DATA_LOSS, "%s/%s: it ends after %u records; %u were written", work->source->dir, file->name,
                   work->record, file->records);
  work->file++;
  work->record = 0;
  return RV_OK;
}

/* One record more; *more is false where there is none. */
static rv_code read_chunk(loading *work, bool *more, rv_error *err)
{
  rv_buf *record = NULL;
  rv_code code = RV_OK;
  *more = work->file < (work->files != NULL ? work->files->count : 1);
  if (!*more) return RV_OK;
  if (work->reader == NULL)
    code = open_file(work, work->files != NULL ? work->files->files[work->file].name : RV_CHUNKS_FILE, &work->reader, err);
  if (code == RV_OK) code = rv_record_reader_next(work->reader, &record, err);
  if (code != RV_OK) return code;
  if (record == NULL) return end_file(work, err);
  size_t bytes = record->size;
  rv_loaded_chunks_prefetch(&work->chunks, rv_record_reader_peek(work->reader));
  code = use_chunk(work, record, err);
  if (code != RV_OK) rv_record_reader_prefix(work->reader, err);
  return code == RV_OK ? tell(work, bytes, err) : code;
}

/* Reads on until it is there. NULL: it is not, or chunks_code says why. */
static rv_chunk *find_chunk(void *context, uint64_t key)
{
  loading *work = context;
  bool more = true;
  rv_chunk *found = rv_loaded_chunks_find(&work->chunks, key);
  while (found == NULL && more && work->chunks_code == RV_OK) {
    size_t before = work->chunks.count;
    work->chunks_code = read_chunk(work, &more, &work->chunks_error);
    if (work->chunks.count > before && work->chunks_code == RV_OK) found = rv_loaded_chunks_last(&work->chunks, key);
  }
  return found;
}

static bool find_place(void *context, uint64_t key, rv_chunk_place *out)
{
  rv_chunk *chunk = find_chunk(context, key);
  if (chunk != NULL) *out = rv_chunk_place_whole(chunk);
  return chunk != NULL;
}

/* Those that no item needs are looked at all the same: what is damaged is not used. */
static rv_code read_other_chunks(loading *work, rv_error *err)
{
  rv_code code = RV_OK;
  for (bool more = true; more && code == RV_OK;) code = read_chunk(work, &more, err);
  return code;
}

/* ---- items ---- */

static rv_code trajectory_of(loading *work, const rv_wire_item *item, const rv_old_item *old, rv_trajectory **out, rv_error *err)
{
  rv_layouts *layouts = rv_store_layouts(work->store);
  if (old->num_chunks == 0) return rv_wire_item_trajectory(item, layouts, NULL, find_place, work, out, err);
  if (item->num_columns > 0)
    return rv_fail(err, RV_DATA_LOSS, "item %llu has a trajectory both of today's and of the old form",
                   (unsigned long long)item->key);
  return rv_old_item_trajectory(old, item->key, layouts, find_chunk, work, out, err);
}

static rv_code restore_item(loading *work, rv_table *table, const rv_wire_item *item, const rv_old_item *old, rv_error *err)
{
  rv_restored_item restored = {
      .key = item->key, .priority = item->priority, .times_sampled = item->times_sampled, .inserted_at_ns = item->inserted_at_ns};
  rv_memory_begin_claiming(rv_store_memory(work->store));
  rv_code code = trajectory_of(work, item, old, &restored.trajectory, err);
  rv_memory_end_claiming(rv_store_memory(work->store));
  if (work->chunks_code != RV_OK) return rv_error_copy(err, &work->chunks_error); /* rather than that it is not there */
  if (code != RV_OK) return code;
  code = rv_table_restore_item(table, &restored, item->naming, err);
  rv_trajectory_unref(restored.trajectory);
  work->progress.items++;
  return code == RV_OK ? rv_checkpoint_await_spill(work->source->watch, &work->progress, work->store, err) : code;
}

/* `table` NULL: the one that the item names. */
static rv_code read_item(loading *work, rv_span message, rv_table *table, rv_error *err)
{
  rv_wire_item item;
  rv_old_item old = {0};
  rv_code code = rv_wire_item_parse(message, &item, err);
  if (code != RV_OK) return code;
  code = rv_old_item_parse(message, &old, err);
  if (code == RV_OK && table == NULL) {
    const saved_table *saved = find_saved(work, item.table);
    if (saved != NULL) table = saved->table;
    if (saved == NULL)
      code = rv_fail(err, RV_DATA_LOSS, "item %llu is of table \"%.*s\", which has no record", (unsigned long long)item.key,
                     item.table.size > 100 ? 100 : (int)item.table.size, (const char *)item.table.data);
  }
  if (code == RV_OK) code = restore_item(work, table, &item, &old, err);
  rv_old_item_fini(&old);
  rv_wire_item_fini(&item);
  return code;
}

static rv_code use_item(loading *work, rv_buf *owned_record, rv_error *err)
{
  work->has_items_file = true;
  rv_code code = read_item(work, (rv_span){owned_record->data, owned_record->size}, NULL, err);
  rv_buf_unref(owned_record);
  return code;
}

/* Before version 0.8 items stood in their tables' records. */
static rv_code read_items_of_records(loading *work, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = 0; i < work->num_tables && code == RV_OK; i++) {
    saved_table *saved = &work->tables[i];
    if (saved->record.num_items > 0 && work->has_items_file)
      return rv_fail(err, RV_DATA_LOSS,
                     "%s/" RV_TABLES_FILE ": table \"%s\" has items in its record, beside those of " RV_ITEMS_FILE,
                     work->source->dir, saved->record.name);
    for (size_t k = 0; k < saved->record.num_items && code == RV_OK; k++) {
      code = read_item(work, saved->record.items[k], saved->table, err);
      if (code != RV_OK && work->chunks_code == RV_OK) rv_error_prefix(err, "%s/" RV_TABLES_FILE, work->source->dir);
      if (code == RV_OK) code = tell(work, saved->record.items[k].size, err);
    }
  }
  return code;
}

/* Where the file of items has none they stand in the records; where there are none either, but the counters know of some, they are gone. */
static rv_code expect_items_in_records(const loading *work, rv_error *err)
{
  for (size_t i = 0; i < work->num_tables; i++) {
    const rv_table_record *record = &work->tables[i].record;
    int64_t size = record->counters.inserts - record->counters.deletes;
    if (record->num_items == 0 && size > 0)
      return rv_fail(err, RV_DATA_LOSS, "%s/" RV_ITEMS_FILE ": no item is there, and table \"%s\" had %lld", work->source->dir,
                     record->name, (long long)size);
  }
  return RV_OK;
}

static rv_code read_items(loading *work, rv_error *err)
{
  rv_code code = read_file(work, RV_ITEMS_FILE, use_item, err);
  if ((code == RV_OK || code == RV_NOT_FOUND) && !work->has_items_file) code = expect_items_in_records(work, err);
  return code == RV_OK ? read_items_of_records(work, err) : code;
}

/* ---- the whole ---- */

static void restore_counters(loading *work)
{
  for (size_t i = 0; i < work->num_tables; i++) {
    char corrected[256];
    rv_table_restore_counters(work->tables[i].table, &work->tables[i].record.counters, corrected, sizeof corrected);
    if (corrected[0] != '\0')
      rv_log(work->source->env, RV_LOG_WARNING, "%s: table \"%s\": %s; the counters were corrected", work->source->dir,
             work->tables[i].record.name, corrected);
  }
}

static void fini(loading *work)
{
  for (size_t i = 0; i < work->num_tables; i++) {
    rv_table_record_fini(&work->tables[i].record);
    rv_buf_unref(work->tables[i].message);
  }
  rv_record_reader_free(work->reader);
  rv_chunk_files_fini(&work->own_files);
  rv_loaded_chunks_fini(&work->chunks);
  if (work->store != NULL) rv_checkpoint_drop_spill(work->source->watch);
  rv_store_unref(work->store);
  free(work->tables);
  free(work->configs);
}

/* Errors of the machine and of the caller would be the same with any other checkpoint. */
static bool is_damage(const loading *work, rv_code code)
{
  return !work->not_its_fault && code != RV_RESOURCE_EXHAUSTED && code != RV_PERMISSION_DENIED && code != RV_CANCELLED &&
         code != RV_UNKNOWN;
}

rv_code rv_checkpoint_tables(const char *dir, rv_store *store, bool *held, rv_error *err)
{
  const rv_checkpoint_source source = {.dir = dir};
  loading work = {.source = &source, .progress = {.size = sizeof work.progress, .total_items = -1}};
  rv_loaded_chunks_init(&work.chunks, 0);
  rv_code code = read_file(&work, RV_TABLES_FILE, use_table, err);
  for (size_t i = 0; i < rv_store_num_tables(store) && code == RV_OK; i++) {
    const char *name = rv_table_name(rv_store_table(store, i));
    held[i] = find_saved(&work, (rv_span){(const uint8_t *)name, strlen(name)}) != NULL;
  }
  fini(&work);
  return code;
}

rv_code rv_checkpoint_read(const rv_checkpoint_source *source, rv_store **out, bool *damaged, rv_error *err)
{
  rv_error own; /* codes are read from it */
  loading work = {.source = source, .progress = {.size = sizeof work.progress, .total_items = -1}};
  rv_loaded_chunks_init(&work.chunks, rv_entropy64(source->env));
  rv_code code = read_file(&work, RV_TABLES_FILE, use_table, &own);
  if (code == RV_OK) code = make_store(&work, &own);
  if (code == RV_OK) code = begin_chunks(&work, &own);
  if (code == RV_OK) code = read_items(&work, &own);
  if (code == RV_OK) code = read_other_chunks(&work, &own);
  *damaged = code != RV_OK && is_damage(&work, code);
  if (code == RV_OK) {
    restore_counters(&work);
    *out = work.store;
    work.store = NULL;
  } else {
    rv_error_copy(err, &own);
    if (source->increments != NULL) rv_increments_forget(source->increments);
  }
  fini(&work);
  return code;
}
