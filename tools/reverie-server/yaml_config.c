#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "settings.h"
#include "yaml_identities.h"
#include "yaml_signature.h"
#include "yaml_tree.h"

/* ---- selectors and limiters, spelled out as mappings ---- */

static bool read_selector(arena *memory, const yaml_place *at, rv_selector_config *out, rv_error *err)
{
  const char *key, *text;
  yaml_place value;
  rv_selector_config config = {0};
  bool has_exponent = false;
  for (size_t i = 0; i < yaml_length(at); i++) {
    if (!yaml_entry(memory, at, i, &key, &value, err) || !yaml_scalar(memory, &value, "a value", &text, err)) return false;
    if (strcmp(key, "kind") == 0) {
      if (!selector_kind_from_name(text, &config.kind))
        return yaml_fail(&value, err, "\"%s\" is no selector; there are fifo, lifo, uniform, max_heap, min_heap, prioritized",
                         text);
    } else if (strcmp(key, "priority_exponent") == 0) {
      has_exponent = true;
      if (!parse_double(text, &config.priority_exponent, err)) return yaml_fail_here(&value, err);
    } else {
      return yaml_fail(&value, err, "a selector has no field \"%s\"; it has kind, and priority_exponent for kind: prioritized",
                       key);
    }
  }
  if (config.kind == 0) return yaml_fail(at, err, "the selector has no kind; add kind: uniform, or write sampler: uniform");
  if (config.kind == RV_SELECTOR_PRIORITIZED && !has_exponent)
    return yaml_fail(at, err, "a prioritized selector needs its exponent: add priority_exponent: 0.6");
  if (config.kind != RV_SELECTOR_PRIORITIZED && has_exponent)
    return yaml_fail(at, err, "only kind: prioritized has a priority_exponent; take it out");
  *out = config;
  return true;
}

/* Turns the mapping into the short form, which knows the rest: "sample_to_insert_ratio:4:1000:4000". */
static bool read_rate_limiter(arena *memory, const yaml_place *at, rv_rate_limiter_config *out, rv_error *err)
{
  const char *key, *text, *numbers[4] = {NULL};
  yaml_place value;
  const limiter_kind *kind = NULL;
  for (size_t i = 0; i < yaml_length(at); i++) {
    if (!yaml_entry(memory, at, i, &key, &value, err) || !yaml_scalar(memory, &value, "a value", &text, err)) return false;
    if (strcmp(key, "kind") != 0) continue;
    kind = limiter_kind_find(text);
    if (kind == NULL)
      return yaml_fail(&value, err,
                       "\"%s\" is no rate limiter; there are min_size, sample_to_insert_ratio, queue, stack, general", text);
  }
  if (kind == NULL) return yaml_fail(at, err, "the rate limiter has no kind; add kind: min_size");
  for (size_t i = 0; i < yaml_length(at); i++) {
    if (!yaml_entry(memory, at, i, &key, &value, err) || !yaml_scalar(memory, &value, "a number", &text, err)) return false;
    if (strcmp(key, "kind") == 0) continue;
    size_t n = 0;
    while (kind->numbers[n] != NULL && strcmp(kind->numbers[n], key) != 0) n++;
    if (kind->numbers[n] == NULL) return yaml_fail(&value, err, "rate limiter %s has no field \"%s\"", kind->name, key);
    numbers[n] = text;
  }
  char line[256];
  int length = snprintf(line, sizeof line, "%s", kind->name);
  for (size_t n = 0; kind->numbers[n] != NULL; n++) {
    if (numbers[n] == NULL) return yaml_fail(at, err, "rate limiter %s lacks its %s", kind->name, kind->numbers[n]);
    if (strchr(numbers[n], ':') != NULL || strlen(numbers[n]) > 40)
      return yaml_fail(at, err, "%s must be a number, got \"%.40s\"", kind->numbers[n], numbers[n]);
    length += snprintf(line + length, sizeof line - (size_t)length, ":%s", numbers[n]);
  }
  return parse_rate_limiter(line, out, err) || yaml_fail_here(at, err);
}

/* ---- extensions ---- */

static bool read_options(arena *memory, const yaml_place *at, const char **out, rv_error *err)
{
  if (yaml_is_scalar(at)) return yaml_scalar(memory, at, "options", out, err);
  if (!yaml_is_mapping(at)) return yaml_fail(at, err, "expected a mapping of options");
  char line[512] = "";
  size_t length = 0;
  for (size_t i = 0; i < yaml_length(at); i++) {
    const char *key, *text;
    yaml_place value;
    if (!yaml_entry(memory, at, i, &key, &value, err) || !yaml_scalar(memory, &value, "a value", &text, err)) return false;
    int more = snprintf(line + length, sizeof line - length, "%s%s=%s", i == 0 ? "" : ",", key, text);
    if (more < 0 || (size_t)more >= sizeof line - length) return yaml_fail(at, err, "the options are too long");
    length += (size_t)more;
  }
  *out = arena_copy(memory, line, length);
  return true;
}

static bool read_extension(arena *memory, const yaml_place *at, rv_table_config *table, rv_error *err)
{
  const char *name = NULL, *options = NULL, *key;
  if (yaml_is_scalar(at)) {
    if (!yaml_scalar(memory, at, "an extension", &name, err)) return false;
    return table_set(memory, table, "extension", name, err) || yaml_fail_here(at, err);
  }
  if (!yaml_is_mapping(at)) return yaml_fail(at, err, "expected an extension's name, or {name: diffusion, options: {steps: 3}}");
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_place value;
    if (!yaml_entry(memory, at, i, &key, &value, err)) return false;
    if (strcmp(key, "name") == 0) {
      if (!yaml_scalar(memory, &value, "a name", &name, err)) return false;
    } else if (strcmp(key, "options") == 0) {
      if (!read_options(memory, &value, &options, err)) return false;
    } else {
      return yaml_fail(&value, err, "an extension has no field \"%s\"; it has name and options", key);
    }
  }
  if (name == NULL) return yaml_fail(at, err, "the extension has no name");
  table_add_extension(memory, table, name, options);
  return true;
}

static bool read_extensions(arena *memory, const yaml_place *at, rv_table_config *table, rv_error *err)
{
  if (!yaml_is_sequence(at)) return yaml_fail(at, err, "expected a list of extensions");
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_place element;
    if (!yaml_element(memory, at, i, &element, err) || !read_extension(memory, &element, table, err)) return false;
  }
  return true;
}

/* ---- tables ---- */

static bool read_table_field(arena *memory, const char *key, const yaml_place *value, rv_table_config *table, rv_error *err)
{
  bool nested = !yaml_is_scalar(value);
  if (strcmp(key, "signature") == 0) {
    rv_signature *signature;
    if (!yaml_signature(memory, value, &signature, err)) return false;
    table->signature = signature;
    return true;
  }
  if (strcmp(key, "extensions") == 0) return read_extensions(memory, value, table, err);
  if (nested && yaml_is_mapping(value)) {
    if (strcmp(key, "sampler") == 0) return read_selector(memory, value, &table->sampler, err);
    if (strcmp(key, "remover") == 0) return read_selector(memory, value, &table->remover, err);
    if (strcmp(key, "rate_limiter") == 0) return read_rate_limiter(memory, value, &table->rate_limiter, err);
  }
  const char *text;
  if (!yaml_scalar(memory, value, "a single value", &text, err)) return false;
  return table_set(memory, table, key, text, err) || yaml_fail_here(value, err);
}

static bool read_table(settings *all, const yaml_place *at, rv_error *err)
{
  if (!yaml_is_mapping(at)) return yaml_fail(at, err, "expected a table: a mapping with a name");
  rv_table_config *table = settings_add_table(all, yaml_place_text(&all->memory, at));
  /* A preset is a start that the other fields adjust, wherever it stands. */
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < yaml_length(at); i++) {
      const char *key;
      yaml_place value;
      if (!yaml_entry(&all->memory, at, i, &key, &value, err)) return false;
      if ((strcmp(key, "preset") == 0) != (pass == 0)) continue;
      if (!read_table_field(&all->memory, key, &value, table, err)) return false;
    }
  }
  return table->name != NULL || yaml_fail(at, err, "the table has no name");
}

static bool read_tables(settings *all, const yaml_place *at, rv_error *err)
{
  if (!yaml_is_sequence(at)) return yaml_fail(at, err, "expected a list of tables");
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_place element;
    if (!yaml_element(&all->memory, at, i, &element, err) || !read_table(all, &element, err)) return false;
  }
  return true;
}

/* ---- the whole ---- */

static bool read_setting(settings *all, const char *key, const yaml_place *at, rv_error *err)
{
  const char *text;
  if (!yaml_scalar(&all->memory, at, "a single value", &text, err)) return false;
  return settings_set(all, key, text, yaml_place_text(&all->memory, at), err) || yaml_fail_here(at, err);
}

static bool read_limits(settings *all, const yaml_place *at, rv_error *err)
{
  if (!yaml_is_mapping(at)) return yaml_fail(at, err, "expected a mapping of limits");
  for (size_t i = 0; i < yaml_length(at); i++) {
    const char *key;
    yaml_place value;
    if (!yaml_entry(&all->memory, at, i, &key, &value, err)) return false;
    const char *near = settings_near_limit(key);
    if (!settings_is_limit(key))
      return yaml_fail(&value, err, "no limit \"%s\"%s%s; docs/server.md lists them", key, near == NULL ? "" : "; did you mean ",
                       near == NULL ? "" : near);
    if (!read_setting(all, key, &value, err)) return false;
  }
  return true;
}

/* A mapping whose fields are settings "NAME_field". */
static bool read_group(settings *all, const char *name, const yaml_place *at, rv_error *err)
{
  if (!yaml_is_mapping(at)) return yaml_fail(at, err, "expected a mapping");
  for (size_t i = 0; i < yaml_length(at); i++) {
    const char *key;
    char setting[64];
    yaml_place value;
    if (!yaml_entry(&all->memory, at, i, &key, &value, err)) return false;
    const char *near = settings_near_of(name, key);
    if (!settings_is_of(name, key))
      return yaml_fail(&value, err, "no field \"%s\" here%s%s; docs/server.md lists them", key,
                       near == NULL ? "" : "; did you mean ", near == NULL ? "" : near);
    snprintf(setting, sizeof setting, "%s_%s", name, key);
    if (!read_setting(all, setting, &value, err)) return false;
  }
  return true;
}

static bool read_addresses(settings *all, const yaml_place *at, rv_error *err)
{
  if (yaml_length(at) == 0)
    return yaml_fail(at, err, "the list of addresses is empty; give one, as 127.0.0.1:8000, or leave listen out for that");
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_place element;
    if (!yaml_element(&all->memory, at, i, &element, err) || !read_setting(all, "listen", &element, err)) return false;
  }
  return true;
}

static bool read_top(settings *all, const yaml_place *at, rv_error *err)
{
  if (!yaml_is_mapping(at)) return yaml_fail(at, err, "expected a mapping with tables");
  for (size_t i = 0; i < yaml_length(at); i++) {
    const char *key;
    yaml_place value;
    if (!yaml_entry(&all->memory, at, i, &key, &value, err)) return false;
    bool ok = false;
    if (strcmp(key, "tables") == 0) {
      ok = read_tables(all, &value, err);
    } else if (strcmp(key, "limits") == 0) {
      ok = read_limits(all, &value, err);
    } else if (strcmp(key, "checkpoints") == 0) {
      ok = read_group(all, "checkpoint", &value, err);
    } else if (strcmp(key, "journal") == 0) {
      ok = read_group(all, "journal", &value, err);
    } else if (strcmp(key, "spill") == 0) {
      ok = read_group(all, "spill", &value, err);
    } else if (strcmp(key, "tls") == 0) {
      ok = read_group(all, "tls", &value, err);
    } else if (strcmp(key, "identities") == 0) {
      ok = yaml_identities(all, &value, err);
    } else if (strcmp(key, "listen") == 0 && yaml_is_sequence(&value)) {
      ok = read_addresses(all, &value, err);
    } else {
      ok = settings_has(key) ? read_setting(all, key, &value, err)
                             : settings_unknown(key, true, err) || yaml_fail_here(&value, err);
    }
    if (!ok) return false;
  }
  return true;
}

typedef struct reading {
  settings *all;
  yaml_place top;
  rv_error *err;
} reading;

static bool read_all(void *context)
{
  reading *one = context;
  return read_top(one->all, &one->top, one->err);
}

bool read_config_file(settings *all, const char *path, rv_error *err)
{
  yaml_tree tree;
  if (!yaml_tree_read(&tree, path, all->again, err)) return false;
  reading one = {.all = all, .top = yaml_top(&tree), .err = err};
  bool no_memory, ok = arena_try(&all->memory, read_all, &one, &no_memory);
  if (no_memory) rv_fail(err, RV_RESOURCE_EXHAUSTED, "%s: out of memory", path);
  yaml_tree_free(&tree);
  return ok;
}
