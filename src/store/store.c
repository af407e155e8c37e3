#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "store/chunk_parts.h"
#include "store/memory.h"
#include "store/table_parts.h"

enum { DECODE_CACHE_BYTES = 1 << 26, LISTED_NAMES = 300 };

struct rv_store {
  atomic_size_t refs;
  atomic_bool closed;
  rv_env env;
  uint64_t state_id[2];
  bool seeds_keys;
  uint64_t key_seed;
  atomic_uint_least64_t key_seeds; /* given so far */
  rv_layouts *layouts;
  rv_decode_cache *cache;
  rv_crew *crew;
  rv_memory *memory;
  _Atomic(rv_store_attachment *) attachment; /* set once */
  rv_mutex log_lock;                         /* guards the log */
  rv_change_log *log;                        /* of all tables; NULL: none */
  atomic_uint_least64_t num_marks;
  size_t num_tables;
  rv_table *tables[];
};

/* ---- making ---- */

/* A configuration from a caller whose struct may be shorter than ours. */
static rv_table_config whole_config(const rv_table_config *config)
{
  rv_table_config whole = {.size = 0};
  size_t size = config->size < sizeof whole ? config->size : sizeof whole;
  memcpy(&whole, config, size);
  whole.size = sizeof whole;
  return whole;
}

static size_t table_stride(const rv_store_config *config)
{
  return config->tables[0].size;
}

static const rv_table_config *table_config(const rv_store_config *config, size_t index)
{
  return (const rv_table_config *)(const void *)((const char *)config->tables + index * table_stride(config));
}

enum { SIZE_OF_FIRST_CONFIG = offsetof(rv_table_config, num_extensions) + sizeof(size_t) };

static rv_code check_config(const rv_store_config *config, rv_error *err)
{
  if (config->num_tables == 0 || config->tables == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "a store needs at least one table");
  for (size_t i = 0; i < config->num_tables; i++) {
    const rv_table_config *one = table_config(config, i);
    if (one->size < SIZE_OF_FIRST_CONFIG || one->size != table_stride(config))
      return rv_fail(
          err, RV_INVALID_ARGUMENT,
          "table %zu: its config's size is %zu; set it to sizeof(rv_table_config), or begin with rv_table_config_default", i,
          one->size);
    rv_table_config whole = whole_config(one);
    rv_code code = rv_table_config_check(&whole, config->registry, err);
    if (code != RV_OK) {
      if (one->name == NULL || one->name[0] == '\0')
        rv_error_prefix(err, "table %zu", i);
      else
        rv_error_prefix(err, "table \"%.100s\"", one->name);
      return code;
    }
    for (size_t k = 0; k < i; k++)
      if (strcmp(table_config(config, k)->name, one->name) == 0)
        return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\": tables %zu and %zu have that name; names must differ", one->name,
                       k, i);
  }
  return RV_OK;
}

static void free_store(rv_store *store)
{
  rv_store_attachment *attachment = atomic_load_explicit(&store->attachment, memory_order_acquire);
  if (attachment != NULL) attachment->free(attachment);
  for (size_t i = 0; i < store->num_tables; i++) rv_table_free(store->tables[i]);
  rv_decode_cache_unref(store->cache);
  rv_layouts_unref(store->layouts);
  rv_crew_free(store->crew);
  rv_memory_release(store->memory);
  rv_mutex_fini(&store->log_lock);
  free(store);
}

rv_code rv_store_new(const rv_store_config *given, rv_store **out, rv_error *err)
{
  if (given->size < offsetof(rv_store_config, max_decode_cache_bytes))
    return rv_fail(err, RV_INVALID_ARGUMENT, "the store config's size is %zu; set it to sizeof(rv_store_config)", given->size);
  rv_store_config config = {.size = 0};
  memcpy(&config, given, given->size < sizeof config ? given->size : sizeof config);
  rv_code code = check_config(&config, err);
  if (code != RV_OK) return code;
  if (config.num_tables > (SIZE_MAX - sizeof(rv_store)) / sizeof(rv_table *)) return rv_fail_memory(err, SIZE_MAX);
  size_t bytes = sizeof(rv_store) + config.num_tables * sizeof(rv_table *);
  rv_store *store = calloc(1, bytes);
  if (store == NULL) return rv_fail_memory(err, bytes);
  atomic_init(&store->refs, 1);
  atomic_init(&store->closed, false);
  atomic_init(&store->num_marks, 0);
  atomic_init(&store->key_seeds, 0);
  atomic_init(&store->attachment, NULL);
  rv_mutex_init(&store->log_lock, RV_RANK_WAIT, "store's log");
  rv_env_fill(&store->env, config.env);
  store->state_id[0] = rv_entropy64(&store->env);
  store->state_id[1] = rv_entropy64(&store->env);
  size_t cache_bytes = config.max_decode_cache_bytes == 0 ? DECODE_CACHE_BYTES : config.max_decode_cache_bytes;
  code = rv_crew_new(config.gather_threads, &store->crew, err);
  if (code == RV_OK) code = rv_memory_new(config.memory_limit, &store->memory, err);
  if (code == RV_OK) code = rv_layouts_new(&store->layouts, err);
  if (code == RV_OK) code = rv_decode_cache_new(cache_bytes, &store->cache, err);
  if (code == RV_OK) store->memory->tables = store->tables;
  rv_random seeds;
  rv_random_init(&seeds, config.seed != NULL ? *config.seed : rv_entropy64(&store->env));
  store->seeds_keys = config.seed != NULL;
  store->key_seed = rv_random_next(&seeds);
  for (size_t i = 0; i < config.num_tables && code == RV_OK; i++) {
    rv_table_config whole = whole_config(table_config(&config, i));
    code = rv_table_new(&whole, rv_random_next(&seeds), &store->env, config.registry, store->layouts, store->cache, store->crew,
                        store->memory, &store->tables[i], err);
    if (code == RV_OK)
      store->memory->num_tables = ++store->num_tables;
    else
      rv_error_prefix(err, "table \"%s\"", whole.name);
  }
  if (code != RV_OK) {
    free_store(store);
    return code;
  }
  *out = store;
  return RV_OK;
}

rv_store *rv_store_ref(rv_store *store)
{
  atomic_fetch_add_explicit(&store->refs, 1, memory_order_relaxed);
  return store;
}

void rv_store_unref(rv_store *store)
{
  if (store == NULL || atomic_fetch_sub_explicit(&store->refs, 1, memory_order_acq_rel) != 1) return;
  rv_store_close(store);
  free_store(store);
}

void rv_store_close(rv_store *store)
{
  atomic_store_explicit(&store->closed, true, memory_order_release);
  for (size_t i = 0; i < store->num_tables; i++) rv_table_close(store->tables[i]);
}

/* ---- looking in ---- */

static rv_code not_found(const rv_store *store, const char *name, size_t length, rv_error *err)
{
  char names[LISTED_NAMES];
  size_t at = 0;
  for (size_t i = 0; i < store->num_tables && at < sizeof names; i++) {
    int wrote = snprintf(names + at, sizeof names - at, "%s\"%s\"", i == 0 ? "" : ", ", rv_table_name(store->tables[i]));
    at += wrote < 0 ? 0 : (size_t)wrote;
  }
  return rv_fail(err, RV_NOT_FOUND, "table \"%.*s\" was not found; the store has %s%s", length > 100 ? 100 : (int)length, name,
                 names, at < sizeof names ? "" : " ...");
}

rv_code rv_store_find(rv_store *store, const char *name, size_t name_length, rv_table **out, rv_error *err)
{
  for (size_t i = 0; i < store->num_tables; i++) {
    const char *have = rv_table_name(store->tables[i]);
    if (strlen(have) != name_length || memcmp(have, name, name_length) != 0) continue;
    *out = store->tables[i];
    return RV_OK;
  }
  return not_found(store, name, name_length, err);
}

rv_code rv_store_find_named(rv_store *store, const char *name, rv_table **out, rv_error *err)
{
  for (size_t i = 0; i < store->num_tables; i++) {
    if (strcmp(rv_table_name(store->tables[i]), name) != 0) continue;
    *out = store->tables[i];
    return RV_OK;
  }
  return not_found(store, name, strlen(name), err);
}

size_t rv_store_num_tables(const rv_store *store)
{
  return store->num_tables;
}
rv_table *rv_store_table(rv_store *store, size_t index)
{
  return store->tables[index];
}
const rv_env *rv_store_env(const rv_store *store)
{
  return &store->env;
}
rv_layouts *rv_store_layouts(rv_store *store)
{
  return store->layouts;
}
rv_decode_cache *rv_store_decode_cache(rv_store *store)
{
  return store->cache;
}

uint64_t rv_store_new_mark(rv_store *store)
{
  return atomic_fetch_add_explicit(&store->num_marks, 1, memory_order_relaxed) + 1;
}
rv_crew *rv_store_crew(rv_store *store)
{
  return store->crew;
}
rv_memory *rv_store_memory(rv_store *store)
{
  return store->memory;
}
void rv_store_memory_info(rv_store *store, rv_memory_info *out)
{
  const rv_memory *memory = store->memory;
  size_t limit = rv_memory_limit(memory);
  *out = (rv_memory_info){.used_bytes = (int64_t)rv_memory_used(memory),
                          .limit_bytes = limit == SIZE_MAX ? 0 : (int64_t)limit,
                          .stream_bytes = (int64_t)rv_memory_on_the_way(memory),
                          .spilled_bytes = (int64_t)atomic_load_explicit(&memory->spilled, memory_order_relaxed)};
  rv_memory_spill_fault(memory, out->spill_fault, sizeof out->spill_fault);
}
bool rv_store_is_closed(const rv_store *store)
{
  return atomic_load_explicit(&store->closed, memory_order_acquire);
}

void rv_store_state_id(const rv_store *store, uint64_t out[2])
{
  out[0] = store->state_id[0];
  out[1] = store->state_id[1];
}

bool rv_store_key_seed(rv_store *store, uint64_t *out)
{
  if (!store->seeds_keys) return false;
  rv_random random;
  rv_random_init(&random, store->key_seed ^ atomic_fetch_add_explicit(&store->key_seeds, 1, memory_order_relaxed));
  *out = rv_random_next(&random);
  return true;
}

void rv_store_drop_key_seed(rv_store *store)
{
  store->seeds_keys = false;
  for (size_t i = 0; i < store->num_tables; i++) rv_table_drop_key_seed(store->tables[i]);
}

rv_store_attachment *rv_store_attach(rv_store *store, rv_store_attachment *candidate)
{
  rv_store_attachment *there = NULL;
  bool first =
      atomic_compare_exchange_strong_explicit(&store->attachment, &there, candidate, memory_order_acq_rel, memory_order_acquire);
  return first ? candidate : there;
}

rv_store_attachment *rv_store_attached(const rv_store *store)
{
  return atomic_load_explicit(&store->attachment, memory_order_acquire);
}

void rv_store_set_state_id(rv_store *store, const uint64_t id[2])
{
  store->state_id[0] = id[0];
  store->state_id[1] = id[1];
}

/* ---- changes ---- */

static void set_log(rv_store *store, rv_change_log *log)
{
  rv_mutex_lock(&store->log_lock);
  store->log = log;
  rv_mutex_unlock(&store->log_lock);
}

rv_code rv_store_keep_changes(rv_store *store, rv_change_log *log, rv_error *err)
{
  for (size_t i = 0; i < store->num_tables; i++) {
    rv_code code = rv_table_keep_changes(store->tables[i], log, err);
    if (code == RV_OK) continue;
    while (i-- > 0) rv_table_drop_changes(store->tables[i]);
    return code;
  }
  set_log(store, log);
  return RV_OK;
}

void rv_store_drop_changes(rv_store *store)
{
  set_log(store, NULL);
  for (size_t i = 0; i < store->num_tables; i++) rv_table_drop_changes(store->tables[i]);
}

rv_change_log *rv_store_change_log(rv_store *store, bool (*keep)(rv_change_log *log))
{
  rv_mutex_lock(&store->log_lock);
  rv_change_log *log = store->log != NULL && keep(store->log) ? store->log : NULL;
  rv_mutex_unlock(&store->log_lock);
  return log;
}
