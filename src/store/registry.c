#include "store/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/extensions/extension.h"

enum { NAME_MAX_BYTES = 127 };

typedef struct entry {
  char name[NAME_MAX_BYTES + 1];
  union {
    rv_selector_ops selector;
    rv_extension_ops extension;
  } ops;
} entry;

/* Each entry stands alone in memory, since selectors and extensions keep pointers into it. */
typedef struct names {
  entry **entry;
  size_t count;
} names;

struct rv_registry {
  names selectors, extensions;
};

static const struct {
  const char *name;
  const rv_extension_ops *ops;
} built_in[] = {{"statistics", &rv_extension_statistics}, {"diffusion", &rv_extension_diffusion}};
enum { NUM_BUILT_IN = sizeof built_in / sizeof built_in[0] };

rv_code rv_registry_new(rv_registry **out, rv_error *err)
{
  rv_registry *registry = calloc(1, sizeof *registry);
  if (registry == NULL) return rv_fail_memory(err, sizeof *registry);
  *out = registry;
  return RV_OK;
}

static void free_names(names *of)
{
  for (size_t i = 0; i < of->count; i++) free(of->entry[i]);
  free(of->entry);
}

void rv_registry_free(rv_registry *registry)
{
  if (registry == NULL) return;
  free_names(&registry->selectors);
  free_names(&registry->extensions);
  free(registry);
}

static entry *find(const names *in, const char *name)
{
  for (size_t i = 0; i < in->count; i++)
    if (strcmp(in->entry[i]->name, name) == 0) return in->entry[i];
  return NULL;
}

static rv_code add(names *to, const char *what, const char *name, const void *ops, size_t size, rv_error *err)
{
  if (name == NULL || name[0] == '\0') return rv_fail(err, RV_INVALID_ARGUMENT, "a registered %s needs a name", what);
  size_t length = strlen(name);
  if (length > NAME_MAX_BYTES)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the name of a registered %s has %zu bytes; %d are allowed", what, length,
                   NAME_MAX_BYTES);
  if (find(to, name) != NULL)
    return rv_fail(err, RV_ALREADY_EXISTS, "%s \"%s\" is registered already; choose another name", what, name);
  entry **grown = realloc(to->entry, (to->count + 1) * sizeof(entry *));
  if (grown == NULL) return rv_fail_memory(err, (to->count + 1) * sizeof(entry *));
  to->entry = grown;
  entry *added = calloc(1, sizeof *added);
  if (added == NULL) return rv_fail_memory(err, sizeof *added);
  memcpy(added->name, name, length);
  memcpy(&added->ops, ops, size);
  to->entry[to->count++] = added;
  return RV_OK;
}

static rv_code missing(const char *what, const char *name, const char *functions, rv_error *err)
{
  return rv_fail(err, RV_INVALID_ARGUMENT, "%s \"%s\": set size to sizeof(rv_%s_ops) and fill in %s", what,
                 name != NULL ? name : "", what, functions);
}

rv_code rv_registry_add_selector(rv_registry *registry, const char *name, const rv_selector_ops *ops, rv_error *err)
{
  if (ops->size < sizeof *ops || ops->create == NULL || ops->destroy == NULL || ops->insert == NULL || ops->remove == NULL ||
      ops->update == NULL || ops->clear == NULL || ops->select == NULL)
    return missing("selector", name, "create, destroy, insert, remove, update, clear and select", err);
  return add(&registry->selectors, "selector", name, ops, sizeof *ops, err);
}

rv_code rv_registry_add_extension(rv_registry *registry, const char *name, const rv_extension_ops *ops, rv_error *err)
{
  size_t least = offsetof(rv_extension_ops, describe);
  if (ops->size < least || ops->create == NULL || ops->destroy == NULL || ops->on_events == NULL)
    return missing("extension", name, "create, destroy and on_events", err);
  for (size_t i = 0; name != NULL && i < NUM_BUILT_IN; i++)
    if (strcmp(built_in[i].name, name) == 0)
      return rv_fail(err, RV_ALREADY_EXISTS, "extension \"%s\" is built in; choose another name", name);
  return add(&registry->extensions, "extension", name, ops, ops->size < sizeof *ops ? ops->size : sizeof *ops, err);
}

const rv_selector_ops *rv_registry_selector(const rv_registry *registry, const char *name)
{
  entry *found = registry != NULL ? find(&registry->selectors, name) : NULL;
  return found != NULL ? &found->ops.selector : NULL;
}

const rv_extension_ops *rv_registry_extension(const rv_registry *registry, const char *name)
{
  for (size_t i = 0; i < NUM_BUILT_IN; i++)
    if (strcmp(built_in[i].name, name) == 0) return built_in[i].ops;
  entry *found = registry != NULL ? find(&registry->extensions, name) : NULL;
  return found != NULL ? &found->ops.extension : NULL;
}

typedef struct list {
  char *out;
  size_t capacity, length;
} list;

/* A name that does not fit is left out, and all after it. */
static void append(list *to, const char *name)
{
  if (to->length >= to->capacity) return;
  size_t room = to->capacity - to->length;
  int written = snprintf(to->out + to->length, room, "%s\"%s\"", to->length > 0 ? ", " : "", name);
  if (written >= 0 && (size_t)written < room) {
    to->length += (size_t)written;
    return;
  }
  to->out[to->length] = '\0';
  to->length = to->capacity;
}

static void append_all(list *to, const names *from)
{
  for (size_t i = 0; i < from->count; i++) append(to, from->entry[i]->name);
}

void rv_registry_list_selectors(const rv_registry *registry, char *out, size_t capacity)
{
  if (capacity > 0) out[0] = '\0';
  list to = {.out = out, .capacity = capacity};
  if (registry != NULL) append_all(&to, &registry->selectors);
}

void rv_registry_list_extensions(const rv_registry *registry, char *out, size_t capacity)
{
  if (capacity > 0) out[0] = '\0';
  list to = {.out = out, .capacity = capacity};
  for (size_t i = 0; i < NUM_BUILT_IN; i++) append(&to, built_in[i].name);
  if (registry != NULL) append_all(&to, &registry->extensions);
}
