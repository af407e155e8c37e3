#include "yaml_tree.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/plain_file.h"
#include "ending.h"

/* Of what people write most often. */
static const char *remedy(const char *context, const char *problem)
{
  if (strstr(problem, "cannot start any token") != NULL)
    return "; indent by spaces, not by tabs, and put text that begins with @, ` or % in quotes";
  return strstr(context, "scanning an alias") != NULL ? "; put a * in quotes: \"*\"" : "";
}

static bool parser_fail(const yaml_parser_t *parser, const char *path, rv_error *err)
{
  if (parser->error == YAML_MEMORY_ERROR) {
    rv_fail(err, RV_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    return false;
  }
  size_t line = parser->problem_mark.line + 1;
  const char *context = parser->context != NULL ? parser->context : "";
  const char *problem = parser->problem != NULL ? parser->problem : "unreadable bytes";
  rv_fail(err, RV_INVALID_ARGUMENT, "%s:%zu: not YAML: %s%s%s%s", path, line, context, context[0] != '\0' ? ", " : "", problem,
          remedy(context, problem));
  return false;
}

/* Is there anything behind the document that was read? What stands in a second one would be passed over in silence. */
static bool ends_here(yaml_parser_t *parser, const char *path, rv_error *err)
{
  yaml_document_t second;
  if (!yaml_parser_load(parser, &second)) return parser_fail(parser, path, err);
  const yaml_node_t *root = yaml_document_get_root_node(&second);
  if (root != NULL)
    rv_fail(err, RV_INVALID_ARGUMENT, "%s:%zu: a second document begins here; a configuration is one: take out the line ---",
            path, root->start_mark.line + 1);
  yaml_document_delete(&second);
  return root == NULL;
}

/* ---- reading ---- */

typedef struct source {
  const yaml_parser_t *parser;
  int fd;
  int error; /* that ended it; 0: none has */
} source;

/* Far more than any configuration is, and libyaml comes to take minutes. */
static bool is_deep(const yaml_parser_t *parser)
{
  return parser->flow_level > YAML_DEPTH_MAX || parser->indents.top - parser->indents.start > YAML_DEPTH_MAX;
}

/* libyaml's. What a pipe or a terminal does not have yet is waited for, until a signal is to end the server. */
static int read_some(void *context, unsigned char *out, size_t size, size_t *have)
{
  enum { LOOKED_EVERY_MS = 100 };
  source *from = context;
  struct pollfd at = {.fd = from->fd, .events = POLLIN};
  ssize_t n = -1;
  if (is_deep(from->parser)) from->error = ELOOP;
  if (from->error != 0) return 0;
  do {
    if (poll(&at, 1, LOOKED_EVERY_MS) != 0)
      n = read(from->fd, out, size);
    else
      errno = ending_signal() != 0 ? ECANCELED : EAGAIN;
  } while (n < 0 && (errno == EAGAIN || errno == EINTR));
  from->error = n < 0 ? errno : 0;
  *have = n < 0 ? 0 : (size_t)n;
  return n >= 0;
}

/* -1: it cannot be. */
static int open_source(const char *path, bool again, rv_error *err)
{
  const char *instead;
  int fd = again ? rv_plain_file_open(path, &instead) : rv_plain_file_open_any(path, &instead);
  if (fd < 0 && instead == NULL) rv_fail(err, RV_NOT_FOUND, "%s: %s", path, strerror(errno));
  if (fd < 0 && instead != NULL)
    rv_fail(err, RV_INVALID_ARGUMENT, "%s: is %s, not a file%s", path, instead, again ? " that can be read again" : "");
  return fd;
}

bool yaml_tree_read(yaml_tree *tree, const char *path, bool again, rv_error *err)
{
  yaml_parser_t parser;
  source from = {.parser = &parser, .fd = open_source(path, again, err)};
  if (from.fd < 0) return false;
  bool ok = yaml_parser_initialize(&parser) != 0;
  if (!ok) {
    rv_fail(err, RV_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    close(from.fd);
    return false;
  }
  tree->path = path;
  yaml_parser_set_input(&parser, read_some, &from);
  const bool loaded = yaml_parser_load(&parser, &tree->document) != 0;
  ok = loaded;
  if (from.error == ECANCELED) {
    rv_fail(err, RV_CANCELLED, "%s: the configuration was waited for until a signal came to end the server", path);
  } else if (from.error == ELOOP) {
    rv_fail(err, RV_INVALID_ARGUMENT, "%s:%zu: nested more than %d deep", path, parser.mark.line + 1, YAML_DEPTH_MAX);
  } else if (from.error != 0) {
    rv_fail(err, RV_INVALID_ARGUMENT, "%s: cannot be read: %s", path, strerror(from.error));
  } else if (!ok) {
    parser_fail(&parser, path, err);
  } else if (yaml_document_get_root_node(&tree->document) == NULL) {
    rv_fail(err, RV_INVALID_ARGUMENT, "%s: the file is empty; it needs at least tables", path);
    ok = false;
  } else {
    ok = ends_here(&parser, path, err);
  }
  if (loaded && !ok) yaml_document_delete(&tree->document);
  yaml_parser_delete(&parser);
  close(from.fd);
  return ok;
}

void yaml_tree_free(yaml_tree *tree)
{
  yaml_document_delete(&tree->document);
}

yaml_place yaml_top(yaml_tree *tree)
{
  return (yaml_place){.tree = tree, .node = yaml_document_get_root_node(&tree->document), .where = ""};
}

bool yaml_fail_here(const yaml_place *at, rv_error *err)
{
  const char *colon = *at->where == '\0' ? "" : ": ";
  rv_error_prefix(err, "%s:%zu%s%s", at->tree->path, at->node->start_mark.line + 1, colon, at->where);
  return false;
}

bool yaml_fail(const yaml_place *at, rv_error *err, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  rv_vfail(err, RV_INVALID_ARGUMENT, format, args);
  va_end(args);
  return yaml_fail_here(at, err);
}

const char *yaml_place_text(arena *memory, const yaml_place *at)
{
  char text[1024];
  int length = snprintf(text, sizeof text, "%.700s:%zu: %s", at->tree->path, at->node->start_mark.line + 1, at->where);
  return arena_copy(memory, text, length > 0 ? strlen(text) : 0);
}

bool yaml_is_null(const yaml_place *at)
{
  static const char *const words[] = {"", "~", "null", "Null", "NULL"};
  bool is = false;
  if (!yaml_is_scalar(at) || at->node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    is = is ||
         (at->node->data.scalar.length == strlen(words[i]) && strcmp((const char *)at->node->data.scalar.value, words[i]) == 0);
  return is;
}

bool yaml_scalar(arena *memory, const yaml_place *at, const char *expected, const char **out, rv_error *err)
{
  if (!yaml_is_scalar(at))
    return yaml_fail(at, err, "expected %s, got a %s", expected, yaml_is_sequence(at) ? "list" : "mapping");
  const char *text = (const char *)at->node->data.scalar.value;
  if (yaml_is_null(at) && *text == '\0')
    return yaml_fail(at, err, "expected %s, got nothing; give one, or take it out", expected);
  if (yaml_is_null(at))
    return yaml_fail(at, err, "expected %s, got %s, which is nothing in YAML; give one, take it out, or put it in quotes",
                     expected, text);
  size_t length = at->node->data.scalar.length;
  if (memchr(text, '\0', length) != NULL) return yaml_fail(at, err, "expected %s, got text with a NUL character", expected);
  *out = arena_copy(memory, text, length);
  return true;
}

size_t yaml_length(const yaml_place *at)
{
  if (yaml_is_sequence(at)) return (size_t)(at->node->data.sequence.items.top - at->node->data.sequence.items.start);
  if (yaml_is_mapping(at)) return (size_t)(at->node->data.mapping.pairs.top - at->node->data.mapping.pairs.start);
  return 0;
}

static bool descend(const yaml_place *from, int node, const char *where, yaml_place *out, rv_error *err)
{
  *out = (yaml_place){
      .tree = from->tree, .node = yaml_document_get_node(&from->tree->document, node), .where = where, .depth = from->depth + 1};
  /* An alias may stand for a node that contains it. */
  if (out->depth > YAML_DEPTH_MAX) return yaml_fail(from, err, "nested more than %d deep", YAML_DEPTH_MAX);
  return true;
}

static char *extend(arena *memory, const char *where, const char *format, const char *name, size_t index)
{
  char text[256];
  int length =
      name != NULL ? snprintf(text, sizeof text, format, where, name) : snprintf(text, sizeof text, format, where, index);
  if (length < 0) length = 0;
  return arena_copy(memory, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

bool yaml_element(arena *memory, const yaml_place *sequence, size_t index, yaml_place *out, rv_error *err)
{
  int node = sequence->node->data.sequence.items.start[index];
  return descend(sequence, node, extend(memory, sequence->where, "%s[%zu]", NULL, index), out, err);
}

static bool same_scalar(const yaml_node_t *a, const yaml_node_t *b)
{
  return a->data.scalar.length == b->data.scalar.length &&
         memcmp(a->data.scalar.value, b->data.scalar.value, a->data.scalar.length) == 0;
}

bool yaml_entry(arena *memory, const yaml_place *mapping, size_t index, const char **key, yaml_place *value, rv_error *err)
{
  const yaml_node_pair_t *pairs = mapping->node->data.mapping.pairs.start;
  yaml_place name;
  if (!descend(mapping, pairs[index].key, mapping->where, &name, err)) return false;
  if (!yaml_scalar(memory, &name, "a name", key, err)) return false;
  for (size_t i = 0; i < index; i++) {
    yaml_node_t *other = yaml_document_get_node(&mapping->tree->document, pairs[i].key);
    if (same_scalar(other, name.node)) return yaml_fail(&name, err, "\"%s\" stands twice", *key);
  }
  const char *where = extend(memory, mapping->where, *mapping->where == '\0' ? "%s%s" : "%s.%s", *key, 0);
  return descend(mapping, pairs[index].value, where, value, err);
}
