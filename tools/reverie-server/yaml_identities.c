#include "yaml_identities.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/plain_file.h"

enum { TOKEN_MAX = 4096 };

/* The file's first line. A token that ended where a NUL is, or a line that is cut, would be another, and perhaps one that is easily found. */
static bool read_token(arena *memory, const yaml_place *at, const char *given, const char **out, rv_error *err)
{
  char line[TOKEN_MAX];
  const char *path;
  if (!parse_path(memory, given, &path, err)) return yaml_fail_here(at, err);
  const char *instead;
  const int fd = rv_plain_file_open(path, &instead);
  if (instead != NULL) return yaml_fail(at, err, "\"%.200s\" is %s, not a file with a token in its first line", path, instead);
  FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
  if (file == NULL) {
    yaml_fail(at, err, "the file \"%.200s\" cannot be read: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return false;
  }
  errno = 0;
  const size_t read = fread(line, 1, sizeof line, file);
  const int failed = ferror(file) ? errno : 0;
  fclose(file);
  if (failed != 0) return yaml_fail(at, err, "the file \"%.200s\" cannot be read: %s", path, strerror(failed));
  size_t length = 0;
  while (length < read && line[length] != '\r' && line[length] != '\n') length++;
  if (length == sizeof line)
    return yaml_fail(at, err, "the first line of the file \"%.200s\" has more than %d bytes; a token is shorter", path,
                     TOKEN_MAX - 1);
  if (memchr(line, '\0', length) != NULL)
    return yaml_fail(at, err, "the first line of the file \"%.200s\" has a NUL character; a token is visible ASCII", path);
  if (length == 0) return yaml_fail(at, err, "the file \"%.200s\" has no token in its first line", path);
  *out = arena_copy(memory, line, length);
  return true;
}

/* The rights that identity number `index` has to one table. */
static bool read_grant(settings *all, size_t index, const char *table, const yaml_place *at, rv_error *err)
{
  arena *memory = &all->memory;
  rv_identity *identity = &all->identities[index];
  places_add(&all->places, memory, PLACE_GRANT, index, identity->num_grants, yaml_place_text(memory, at));
  rv_grant *grant = identity_add_grant(memory, identity);
  grant->table = strcmp(table, "*") == 0 ? NULL : table;
  grant->rights = 0;
  const char *text;
  if (yaml_is_scalar(at))
    return yaml_scalar(memory, at, "a right", &text, err) && (parse_right(text, &grant->rights, err) || yaml_fail_here(at, err));
  if (!yaml_is_sequence(at) || yaml_length(at) == 0) return yaml_fail(at, err, "expected a list of rights: [read, insert]");
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_place element;
    if (!yaml_element(memory, at, i, &element, err) || !yaml_scalar(memory, &element, "a right", &text, err)) return false;
    if (!parse_right(text, &grant->rights, err)) return yaml_fail_here(&element, err);
  }
  return true;
}

static bool read_rights(settings *all, size_t index, const yaml_place *at, rv_error *err)
{
  if (!yaml_is_mapping(at)) return yaml_fail(at, err, "expected a mapping of tables, or \"*\", to rights");
  for (size_t i = 0; i < yaml_length(at); i++) {
    const char *table;
    yaml_place value;
    if (!yaml_entry(&all->memory, at, i, &table, &value, err) || !read_grant(all, index, table, &value, err)) return false;
  }
  return true;
}

static bool read_identity(settings *all, const yaml_place *at, rv_error *err)
{
  const char *token_by = NULL; /* the key that gave it */
  if (!yaml_is_mapping(at)) return yaml_fail(at, err, "expected an identity: a mapping with a name");
  rv_identity *identity = settings_add_identity(all, yaml_place_text(&all->memory, at));
  *identity = (rv_identity){0};
  size_t index = all->num_identities - 1;
  for (size_t i = 0; i < yaml_length(at); i++) {
    const char *key, *text = NULL;
    yaml_place value;
    if (!yaml_entry(&all->memory, at, i, &key, &value, err)) return false;
    if (strcmp(key, "rights") == 0) {
      if (!read_rights(all, index, &value, err)) return false;
      continue;
    }
    if (!yaml_scalar(&all->memory, &value, "a text", &text, err)) return false;
    if (strcmp(key, "token") == 0 || strcmp(key, "token_file") == 0) {
      if (token_by != NULL)
        return yaml_fail(&value, err, "the identity has %s and %s, and only one of them can give its token; take the other out",
                         token_by, key);
      token_by = key;
    }
    if (strcmp(key, "name") == 0)
      identity->name = text;
    else if (strcmp(key, "token") == 0)
      identity->token = text;
    else if (strcmp(key, "certificate_name") == 0)
      identity->certificate_name = text;
    else if (strcmp(key, "token_file") != 0)
      return yaml_fail(&value, err, "an identity has no field \"%s\"; it has name, token, token_file, certificate_name, rights",
                       key);
    else if (!read_token(&all->memory, &value, text, &identity->token, err))
      return false;
  }
  return true;
}

bool yaml_identities(settings *all, const yaml_place *at, rv_error *err)
{
  if (!yaml_is_sequence(at)) return yaml_fail(at, err, "expected a list of identities");
  all->asks = true;
  places_add(&all->places, &all->memory, PLACE_IDENTITIES, 0, 0, yaml_place_text(&all->memory, at));
  for (size_t i = 0; i < yaml_length(at); i++) {
    yaml_place element;
    if (!yaml_element(&all->memory, at, i, &element, err) || !read_identity(all, &element, err)) return false;
  }
  return true;
}
