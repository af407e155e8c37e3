#include "store/extensions/extension.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/registry.h"

static rv_code create(rv_extension *extension, const char *table, const char *options, rv_error *err)
{
  rv_error theirs = {0};
  rv_code code = extension->ops->create(table, options, &extension->state, &theirs);
  if (code == RV_OK) return RV_OK;
  theirs.message[RV_ERROR_MESSAGE_MAX - 1] = '\0';
  return rv_fail(err, code, "extension \"%s\": %s", extension->name,
                 theirs.message[0] != '\0' ? theirs.message : "it could not be made, and does not say why");
}

rv_code rv_extension_init(rv_extension *extension, const rv_extension_config *config, const rv_registry *registry,
                          const char *table, rv_error *err)
{
  if (config->name == NULL || config->name[0] == '\0') return rv_fail(err, RV_INVALID_ARGUMENT, "an extension needs its name");
  *extension = (rv_extension){.ops = rv_registry_extension(registry, config->name)};
  if (extension->ops == NULL) {
    char names[256];
    rv_registry_list_extensions(registry, names, sizeof names);
    return rv_fail(err, RV_NOT_FOUND, "there is no extension \"%s\"; there are %s", config->name, names);
  }
  extension->name = strdup(config->name);
  if (extension->name == NULL) return rv_fail_memory(err, strlen(config->name) + 1);
  rv_code code = create(extension, table, config->options, err);
  if (code == RV_OK) return RV_OK;
  free(extension->name);
  *extension = (rv_extension){0};
  return code;
}

void rv_extension_fini(rv_extension *extension)
{
  if (extension->ops != NULL) extension->ops->destroy(extension->state);
  free(extension->name);
  *extension = (rv_extension){0};
}

void rv_extension_tell(rv_extension *extension, const rv_event *events, size_t n, rv_edit *edit)
{
  extension->ops->on_events(extension->state, events, n, edit);
}

bool rv_extension_go_on(rv_extension *extension, rv_edit *edit)
{
  return extension->ops->go_on != NULL && extension->ops->go_on(extension->state, edit);
}

size_t rv_extension_describe(rv_extension *extension, char *out, size_t capacity)
{
  bool silent = extension->ops->describe == NULL;
  int written = snprintf(out, capacity, silent ? "%s" : "%s: ", extension->name);
  size_t length = written > 0 ? (size_t)written : 0;
  if (silent) return length;
  bool fits = length < capacity;
  return length + extension->ops->describe(extension->state, fits ? out + length : NULL, fits ? capacity - length : 0);
}
