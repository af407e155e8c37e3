#include "persist/table_merge.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/same_config.h"
#include "store/table.h"

/* The names of fields that differ, one after another. */
typedef struct differences {
  char text[900];
  size_t size;
} differences;

static void note(differences *all, const char *what)
{
  int wrote = snprintf(all->text + all->size, sizeof all->text - all->size, "%s%s", all->size == 0 ? "" : ", ", what);
  if (wrote > 0) all->size += (size_t)wrote;
  if (all->size >= sizeof all->text) all->size = sizeof all->text - 1;
}

static void note_number(differences *all, const char *name, long long saved, long long configured)
{
  char what[96];
  snprintf(what, sizeof what, "%s %lld (configured: %lld)", name, saved, configured);
  if (saved != configured) note(all, what);
}

/* As a server's configuration has it. */
static void describe_selector(const rv_selector_config *selector, char *out, size_t capacity)
{
  static const char *const kinds[] = {[RV_SELECTOR_FIFO] = "fifo",
                                      [RV_SELECTOR_LIFO] = "lifo",
                                      [RV_SELECTOR_UNIFORM] = "uniform",
                                      [RV_SELECTOR_MAX_HEAP] = "max_heap",
                                      [RV_SELECTOR_MIN_HEAP] = "min_heap"};
  if (selector->kind == RV_SELECTOR_PRIORITIZED)
    snprintf(out, capacity, "prioritized:%g", selector->priority_exponent);
  else if (selector->kind == RV_SELECTOR_CUSTOM)
    snprintf(out, capacity, "%.40s(%.40s)", selector->name != NULL ? selector->name : "",
             selector->options != NULL ? selector->options : "");
  else if (selector->kind > 0 && (size_t)selector->kind < sizeof kinds / sizeof kinds[0])
    snprintf(out, capacity, "%s", kinds[selector->kind]);
  else /* a configuration that is none */
    snprintf(out, capacity, "kind %d", (int)selector->kind);
}

static void note_selector(differences *all, const char *name, const rv_selector_config *saved,
                          const rv_selector_config *configured)
{
  char one[96], other[96], what[256];
  if (rv_same_selector(saved, configured)) return;
  describe_selector(saved, one, sizeof one);
  describe_selector(configured, other, sizeof other);
  snprintf(what, sizeof what, "%s %s (configured: %s)", name, one, other);
  note(all, what);
}

static void describe_bound(double bound, char *out, size_t capacity)
{
  if (bound <= -DBL_MAX || bound >= DBL_MAX)
    snprintf(out, capacity, "none");
  else
    snprintf(out, capacity, "%.10g", bound);
}

static void note_bound(differences *all, const char *name, double saved, double configured)
{
  char one[32], other[32], what[128];
  describe_bound(saved, one, sizeof one);
  describe_bound(configured, other, sizeof other);
  snprintf(what, sizeof what, "%s %s (configured: %s)", name, one, other);
  if (saved != configured) note(all, what);
}

/* Only what differs of it. */
static void note_limiter(differences *all, const rv_rate_limiter_config *saved, const rv_rate_limiter_config *configured)
{
  note_number(all, "min_size_to_sample", saved->min_size_to_sample, configured->min_size_to_sample);
  note_bound(all, "samples_per_insert", saved->samples_per_insert, configured->samples_per_insert);
  note_bound(all, "min_diff", saved->min_diff, configured->min_diff);
  note_bound(all, "max_diff", saved->max_diff, configured->max_diff);
}

static bool same_spec(const rv_spec *a, const rv_spec *b)
{
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (int32_t i = 0; i < a->rank; i++)
    if (a->shape[i] != b->shape[i]) return false;
  return true;
}

static bool same_signature(const rv_signature *a, const rv_signature *b)
{
  size_t n = b == NULL ? 0 : b->num_specs;
  if (a->num_specs != n) return false;
  for (size_t i = 0; i < n; i++)
    if (!same_spec(&a->specs[i], &b->specs[i])) return false;
  return true;
}

static void choose_limiter(const rv_table_record *record, rv_table_config *table, const rv_env *env, differences *all)
{
  rv_table_config saved = *table;
  saved.rate_limiter = record->rate_limiter;
  rv_error err;
  rv_code code = rv_rate_limiter_check_table(&saved, &err);
  if (code != RV_OK) {
    rv_log(env, RV_LOG_WARNING, "table \"%s\": the configured rate limiter is used, for the saved one is impossible: %s",
           table->name, err.message);
    return;
  }
  note_limiter(all, &saved.rate_limiter, &table->rate_limiter);
  table->rate_limiter = saved.rate_limiter;
}

rv_code rv_table_merge(const rv_table_record *record, rv_table_config *table, const rv_env *env, rv_error *err)
{
  if (record->sampler.kind == 0 || record->remover.kind == 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\" was saved without a %s, or with one of a kind that is not known",
                   record->name, record->sampler.kind == 0 ? "sampler" : "remover");
  if (record->max_bytes < RV_UNCHANGED)
    return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\" was saved with max_bytes %lld", record->name,
                   (long long)record->max_bytes);
  if (record->max_size < 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\" was saved with max_size %lld", record->name,
                   (long long)record->max_size);
  differences all = {.size = 0};
  int64_t max_size = record->max_size < INT32_MAX ? record->max_size : INT32_MAX;
  note_number(&all, "max_size", max_size, table->max_size);
  note_number(&all, "max_times_sampled", record->max_times_sampled, table->max_times_sampled);
  if (record->max_bytes != RV_UNCHANGED) {
    note_number(&all, "max_bytes", record->max_bytes, table->max_bytes);
    table->max_bytes = record->max_bytes;
  }
  note_selector(&all, "sampler", &record->sampler, &table->sampler);
  note_selector(&all, "remover", &record->remover, &table->remover);
  if (!same_signature(&record->signature, table->signature)) note(&all, "signature");
  table->max_size = max_size;
  table->max_times_sampled = record->max_times_sampled;
  table->sampler = record->sampler;
  table->remover = record->remover;
  table->signature = record->signature.num_specs > 0 || record->signature.structure.size > 0 ? &record->signature : NULL;
  choose_limiter(record, table, env, &all);
  if (all.size > 0)
    rv_log(env, RV_LOG_WARNING,
           "table \"%s\": a restored table keeps the settings it was saved with; these differ from its configuration: %s",
           table->name, all.text);
  return RV_OK;
}

/* ---- what the journal changed ---- */

static rv_code read_settings(rv_table *table, rv_table_settings *out, rv_error *err)
{
  rv_table_info info = {.size = sizeof info};
  rv_code code = rv_table_get_info(table, &info, err);
  if (code != RV_OK) return code;
  *out = (rv_table_settings){.max_size = info.max_size,
                             .max_bytes = info.max_bytes,
                             .max_times_sampled = info.max_times_sampled > 0 ? info.max_times_sampled : 0,
                             .rate_limiter = info.rate_limiter};
  rv_table_info_fini(&info);
  return RV_OK;
}

rv_code rv_table_settings_read(rv_store *store, rv_table_settings **out, rv_error *err)
{
  size_t n = rv_store_num_tables(store);
  rv_code code = RV_OK;
  *out = calloc(n, sizeof **out);
  if (*out == NULL) return rv_fail_memory(err, n * sizeof **out);
  for (size_t i = 0; i < n && code == RV_OK; i++) code = read_settings(rv_store_table(store, i), &(*out)[i], err);
  return code;
}

static bool same_settings(const rv_table_settings *a, const rv_table_settings *b)
{
  return a->max_size == b->max_size && a->max_bytes == b->max_bytes && a->max_times_sampled == b->max_times_sampled &&
         rv_same_limiter(&a->rate_limiter, &b->rate_limiter);
}

/* The tables of a store are in its configuration's order. */
static rv_table_settings configured_settings(const rv_store_config *config, size_t index)
{
  rv_table_config table = {.size = 0};
  size_t stride = config->tables[0].size;
  memcpy(&table, (const char *)config->tables + index * stride, stride < sizeof table ? stride : sizeof table);
  return (rv_table_settings){.max_size = table.max_size,
                             .max_bytes = table.max_bytes,
                             .max_times_sampled = table.max_times_sampled > 0 ? table.max_times_sampled : 0,
                             .rate_limiter = table.rate_limiter};
}

void rv_table_settings_compare(rv_store *store, const rv_table_settings *before, const rv_store_config *configured,
                               const rv_env *env)
{
  for (size_t i = 0; i < rv_store_num_tables(store); i++) {
    rv_table *table = rv_store_table(store, i);
    rv_table_settings now, given = configured_settings(configured, i);
    differences all = {.size = 0};
    if (read_settings(table, &now, NULL) != RV_OK || same_settings(&now, &before[i])) continue;
    note_number(&all, "max_size", now.max_size, given.max_size);
    note_number(&all, "max_times_sampled", now.max_times_sampled, given.max_times_sampled);
    note_number(&all, "max_bytes", now.max_bytes, given.max_bytes);
    note_limiter(&all, &now.rate_limiter, &given.rate_limiter);
    rv_log(env, all.size > 0 ? RV_LOG_WARNING : RV_LOG_INFO, "table \"%s\": what was changed while it was in use lasts, and %s%s",
           rv_table_name(table), all.size > 0 ? "differs from its configuration: " : "is as configured", all.text);
  }
}
