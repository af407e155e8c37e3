#include "differences.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "store/same_config.h"

/* Those that fit, in one line. */
typedef struct names {
  char *text;
  size_t size, length, left_out;
  bool any;
} names;

static void add(names *all, const char *format, ...) RV_PRINTF(2, 3);
static void add(names *all, const char *format, ...)
{
  enum { ROOM_FOR_MORE = 40 };
  char name[128];
  va_list args;
  va_start(args, format);
  vsnprintf(name, sizeof name, format, args);
  va_end(args);
  if (all->left_out > 0 || all->length + strlen(name) + ROOM_FOR_MORE > all->size)
    all->left_out++;
  else
    all->length += (size_t)snprintf(all->text + all->length, all->size - all->length, "%s%s", all->any ? ", " : "", name);
  all->any = true;
}

static bool same_extensions(const rv_table_config *a, const rv_table_config *b)
{
  if (a->num_extensions != b->num_extensions) return false;
  for (size_t i = 0; i < a->num_extensions; i++)
    if (!rv_same_text(a->extensions[i].name, b->extensions[i].name) ||
        !rv_same_text(a->extensions[i].options, b->extensions[i].options))
      return false;
  return true;
}

static bool same_table(const rv_table_config *a, const rv_table_config *b)
{
  return rv_same_selector(&a->sampler, &b->sampler) && rv_same_selector(&a->remover, &b->remover) && a->max_size == b->max_size &&
         a->max_bytes == b->max_bytes && a->max_times_sampled == b->max_times_sampled &&
         rv_same_limiter(&a->rate_limiter, &b->rate_limiter) && rv_same_signature(a->signature, b->signature) &&
         same_extensions(a, b);
}

static const rv_table_config *find(const settings *all, const char *name)
{
  for (size_t i = 0; i < all->num_tables; i++)
    if (strcmp(all->tables[i].name, name) == 0) return &all->tables[i];
  return NULL;
}

static void add_tables(names *all, const settings *served, const settings *again)
{
  for (size_t i = 0; i < again->num_tables; i++) {
    const rv_table_config *table = &again->tables[i], *before = find(served, table->name);
    if (before == NULL || !same_table(before, table)) add(all, "table \"%.64s\"", table->name);
  }
  for (size_t i = 0; i < served->num_tables; i++)
    if (find(again, served->tables[i].name) == NULL) add(all, "table \"%.64s\"", served->tables[i].name);
}

bool differences_name(const settings *served, const settings *again, char *out, size_t size)
{
  names all = {.text = out, .size = size};
  const char *name;
  for (size_t at = 0; (name = settings_next_difference(served, again, &at)) != NULL;) add(&all, "%s", name);
  add_tables(&all, served, again);
  if (all.left_out > 0) snprintf(out + all.length, size - all.length, " and %zu more", all.left_out);
  return all.any;
}
