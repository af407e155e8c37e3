#include "store/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "store/registry.h"
#include "store/signature.h"
#include "store/table_parts.h"

/* ---- configurations ---- */

rv_table_config rv_table_config_default(const char *name, int64_t max_size)
{
  return (rv_table_config){.size = sizeof(rv_table_config),
                           .name = name,
                           .sampler = {.kind = RV_SELECTOR_UNIFORM},
                           .remover = {.kind = RV_SELECTOR_FIFO},
                           .max_size = max_size,
                           .rate_limiter = rv_rate_limiter_min_size(1)};
}

static rv_code check_extensions(const rv_table_config *config, const rv_registry *registry, rv_error *err)
{
  for (size_t i = 0; i < config->num_extensions; i++) {
    const char *name = config->extensions[i].name;
    if (name == NULL) return rv_fail(err, RV_INVALID_ARGUMENT, "extension %zu has no name", i);
    if (rv_registry_extension(registry, name) == NULL)
      return rv_fail(err, RV_NOT_FOUND,
                     "extension %zu: none is registered as \"%s\"; \"statistics\" and \"diffusion\" are always there", i, name);
  }
  return RV_OK;
}

static rv_code prefixed(rv_code code, const char *field, rv_error *err)
{
  if (code != RV_OK) rv_error_prefix(err, "%s", field);
  return code;
}

static bool is_text(const char *text)
{
  return text == NULL || rv_utf8_is_text(text, strlen(text));
}

static rv_code fail_text(const char *what, const char *text, rv_error *err)
{
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "the %s \"%.200s\" is not valid UTF-8; clients could not read what they are told of the table", what, text);
}

static rv_code check_selector_texts(const rv_selector_config *config, const char *which, rv_error *err)
{
  if (!is_text(config->name)) return prefixed(fail_text("name", config->name, err), which, err);
  if (!is_text(config->options)) return prefixed(fail_text("options' text", config->options, err), which, err);
  return RV_OK;
}

/* What is said of the table to clients. */
static rv_code check_texts(const rv_table_config *config, rv_error *err)
{
  rv_code code = check_selector_texts(&config->sampler, "sampler", err);
  if (code == RV_OK) code = check_selector_texts(&config->remover, "remover", err);
  for (size_t i = 0; code == RV_OK && config->signature != NULL && i < config->signature->num_specs; i++)
    if (!is_text(config->signature->specs[i].name))
      code = fail_text("name of a column in the signature", config->signature->specs[i].name, err);
  return code;
}

enum { NAME_MAX_BYTES = 2048 }; /* calls that carry little more than it take messages of 4,096 bytes (server/service.c) */

rv_code rv_table_config_check(const rv_table_config *config, const rv_registry *registry, rv_error *err)
{
  if (config->name == NULL || config->name[0] == '\0') return rv_fail(err, RV_INVALID_ARGUMENT, "the name is empty; give one");
  if (strlen(config->name) > NAME_MAX_BYTES)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the name has %zu bytes; give one of %d at most", strlen(config->name),
                   NAME_MAX_BYTES);
  if (!is_text(config->name)) return fail_text("name", config->name, err);
  rv_code code = prefixed(rv_selector_check(&config->sampler, registry, err), "sampler", err);
  if (code == RV_OK) code = prefixed(rv_selector_check(&config->remover, registry, err), "remover", err);
  if (code == RV_OK && (config->max_size < 1 || config->max_size > INT32_MAX))
    return rv_fail(err, RV_INVALID_ARGUMENT, "max_size is %lld; give 1 to 2147483647", (long long)config->max_size);
  if (code == RV_OK && config->max_bytes < 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "max_bytes is %lld; give a number of bytes, or 0 for no bound",
                   (long long)config->max_bytes);
  if (code == RV_OK) code = prefixed(rv_rate_limiter_check_table(config, err), "rate_limiter", err);
  if (code == RV_OK && config->signature != NULL) code = rv_signature_check(config->signature, err);
  if (code == RV_OK) code = check_texts(config, err);
  if (code == RV_OK) code = check_extensions(config, registry, err);
  return code;
}

/* ---- making and freeing ---- */

static char *copy_text(const char *text)
{
  if (text == NULL) return NULL;
  size_t size = strlen(text) + 1;
  char *copy = malloc(size);
  if (copy != NULL) memcpy(copy, text, size);
  return copy;
}

static rv_code copy_selector(const rv_selector_config *from, rv_selector_config *to)
{
  *to = *from;
  to->name = copy_text(from->name);
  to->options = copy_text(from->options);
  bool all = (from->name == NULL || to->name != NULL) && (from->options == NULL || to->options != NULL);
  return all ? RV_OK : RV_RESOURCE_EXHAUSTED;
}

static rv_code copy_config(rv_table *table, const rv_table_config *config, rv_error *err)
{
  table->config = *config;
  table->config.signature = NULL;
  table->config.extensions = NULL;
  table->config.num_extensions = 0;
  table->name = copy_text(config->name);
  table->config.name = table->name;
  rv_code sampler = copy_selector(&config->sampler, &table->config.sampler);
  rv_code remover = copy_selector(&config->remover, &table->config.remover);
  table->signature = rv_signature_copy(config->signature);
  bool all = table->name != NULL && sampler == RV_OK && remover == RV_OK && table->signature != NULL;
  return all ? RV_OK : rv_fail_memory(err, strlen(config->name) + 1);
}

static rv_code make_selectors(rv_table *table, const rv_registry *registry, rv_error *err)
{
  const rv_table_config *config = &table->config;
  rv_code code = prefixed(rv_pick_init(&table->sampler, &config->sampler, registry, config->max_size, err), "sampler", err);
  if (code == RV_OK)
    code = prefixed(rv_pick_init(&table->remover, &config->remover, registry, config->max_size, err), "remover", err);
  if (code != RV_OK) return code;
  table->replaces = config->remover.kind == RV_SELECTOR_FIFO && config->sampler.kind != RV_SELECTOR_CUSTOM;
  table->weighs = rv_pick_accepts(&table->sampler, -1, NULL) != RV_OK || rv_pick_accepts(&table->remover, -1, NULL) != RV_OK;
  return RV_OK;
}

static rv_code make_extensions(rv_table *table, const rv_table_config *config, const rv_registry *registry, rv_error *err)
{
  if (config->num_extensions == 0) return RV_OK;
  table->extensions = calloc(config->num_extensions, sizeof *table->extensions);
  if (table->extensions == NULL) return rv_fail_memory(err, config->num_extensions * sizeof *table->extensions);
  for (size_t i = 0; i < config->num_extensions; i++) {
    rv_code code = rv_extension_init(&table->extensions[i], &config->extensions[i], registry, table->name, err);
    if (code != RV_OK) return code;
    table->num_extensions++;
  }
  table->replaces = false; /* extensions hear of an insert and a delete */
  return RV_OK;
}

void rv_table_new_books(rv_table *table, uint64_t epoch, uint64_t key_count, uint64_t sequence)
{
  uint64_t seeds[6];
  for (size_t i = 0; i < 6; i++) seeds[i] = rv_random_next(&table->unseeded);
  seeds[0] = rv_random_next(&table->random);
  seeds[1] = key_count;
  rv_books_init(&table->books, table->memory, epoch, table->config.max_size, seeds);
  table->books.oldest_first = table->config.remover.kind == RV_SELECTOR_FIFO;
  table->books.slab.sequence = sequence;
  table->books.keeps_cold = table->keeps_cold;
  rv_extremes_clear(&table->extremes);
}

void rv_table_drop_key_seed(rv_table *table)
{
  table->books.key_count = rv_random_next(&table->unseeded);
}

rv_code rv_table_new(const rv_table_config *config, uint64_t seed, const rv_env *env, const rv_registry *registry,
                     rv_layouts *layouts, rv_decode_cache *cache, rv_crew *crew, rv_memory *memory, rv_table **out, rv_error *err)
{
  rv_table *table = calloc(1, sizeof *table);
  if (table == NULL) return rv_fail_memory(err, sizeof *table);
  table->env = env;
  table->layouts = rv_layouts_ref(layouts);
  table->cache = rv_decode_cache_ref(cache);
  table->crew = crew;
  table->memory = memory;
  rv_mutex_init(&table->mutex, RV_RANK_TABLE, "table");
  atomic_init(&table->contenders, 0);
  rv_list_init(&table->inserts);
  rv_list_init(&table->samples);
  rv_list_init(&table->inserters);
  rv_list_init(&table->samplers);
  rv_list_init(&table->completed);
  rv_random_init(&table->random, seed);
  rv_random_init(&table->unseeded, rv_entropy64(env));
  rv_random_lanes_init(&table->lanes, rv_random_next(&table->random));
  table->listing_life = rv_listing_new_life(env);
  rv_rates_init(&table->rates, rv_monotonic_ns(env));
  rv_stamp_init(&table->stamp, env);
  rv_code code = copy_config(table, config, err);
  atomic_init(&table->max_bytes, SIZE_MAX);
  atomic_init(&table->bounded, false);
  atomic_init(&table->share, SIZE_MAX);
  rv_table_set_max_bytes(table, config->max_bytes);
  rv_table_new_books(table, 1, rv_random_next(&table->random), 0);
  if (code == RV_OK) code = rv_rate_limiter_init(&table->limiter, &config->rate_limiter, err);
  if (code == RV_OK) code = make_selectors(table, registry, err);
  if (code == RV_OK) code = make_extensions(table, config, registry, err);
  if (code != RV_OK) {
    rv_table_free(table);
    return code;
  }
  *out = table;
  return RV_OK;
}

static void free_text(const char *text)
{
  free((char *)(uintptr_t)text);
}

void rv_table_free(rv_table *table)
{
  if (table == NULL) return;
  rv_forms_free(table);
  rv_books_fini(&table->books);
  rv_spares_free(table);
  rv_holds_free(atomic_load(&table->left_holds));
  rv_memory_take_away(table->memory, table->counted_books);
  rv_pick_fini(&table->sampler);
  rv_pick_fini(&table->remover);
  for (size_t i = 0; i < table->num_extensions; i++) rv_extension_fini(&table->extensions[i]);
  free(table->extensions);
  free_text(table->config.sampler.name);
  free_text(table->config.sampler.options);
  free_text(table->config.remover.name);
  free_text(table->config.remover.options);
  free(table->signature);
  free(table->name);
  rv_decode_cache_unref(table->cache);
  rv_layouts_unref(table->layouts);
  rv_mutex_fini(&table->mutex);
  free(table);
}

/* ---- closing ---- */

rv_code rv_table_is_closed(const rv_table *table, rv_error *err)
{
  return table->closed ? rv_fail(err, RV_CANCELLED,
                                 "table \"%s\" is closed: its store was shut down, as by a server that is stopped or that nobody "
                                 "holds any more",
                                 table->name)
                       : RV_OK;
}

void rv_table_close(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  table->closed = true;
  for (rv_link *queue = &table->inserts;; queue = &table->samples) {
    while (!rv_list_empty(queue)) {
      rv_waiter *waiter = RV_CONTAINER(queue->next, rv_waiter, link);
      rv_turn_complete(&turn, waiter, rv_table_is_closed(table, &waiter->error));
      if (--turn.budget <= 0) rv_turn_pause(&turn);
    }
    if (queue == &table->samples) break;
  }
  rv_turn_end(&turn);
}

/* ---- what never changes ---- */

const char *rv_table_name(const rv_table *table)
{
  return table->name;
}
const rv_signature *rv_table_signature(const rv_table *table)
{
  return table->signature;
}

rv_code rv_table_check_layout(const rv_table *table, const rv_trajectory *trajectory, rv_error *err)
{
  return rv_signature_fits(table->signature, table->name, trajectory->columns, trajectory->num_columns, err);
}
