/* A YAML document as a tree whose every node knows where it stands, so that an error can say "FILE:LINE: tables[0].sampler: ...".
 */
#ifndef RV_TOOL_YAML_TREE_H
#define RV_TOOL_YAML_TREE_H

#include <yaml.h>

#include "settings.h"

typedef struct yaml_tree {
  const char *path; /* the file's */
  yaml_document_t document;
} yaml_tree;

/* Reads the file's one document. `again`: by a server that runs, which nothing but a file may keep waiting; else it waits for what comes by a pipe, or
 * from a terminal, until a signal is to end it. */
bool yaml_tree_read(yaml_tree *tree, const char *path, bool again, rv_error *err);
void yaml_tree_free(yaml_tree *tree);

/* A node, and how it is reached: "tables[0].sampler". */
typedef struct yaml_place {
  yaml_tree *tree;
  yaml_node_t *node;
  const char *where; /* the arena's; "" at the top */
  int depth;
} yaml_place;

enum { YAML_DEPTH_MAX = 64 };

yaml_place yaml_top(yaml_tree *tree);
/* "replay.yaml:4: tables[0].sampler" */
const char *yaml_place_text(arena *memory, const yaml_place *at);
/* Always false, so that a function can end with it. */
bool yaml_fail(const yaml_place *at, rv_error *err, const char *format, ...) RV_PRINTF(3, 4);
/* Puts the place before a sentence that is there already. Always false. */
bool yaml_fail_here(const yaml_place *at, rv_error *err);

/* Nothing, null or ~ stands there, not in quotes. */
bool yaml_is_null(const yaml_place *at);
/* The text of a scalar; false, with an error that says what was expected, for anything else, null too. */
bool yaml_scalar(arena *memory, const yaml_place *at, const char *expected, const char **out, rv_error *err);
static inline bool yaml_is_scalar(const yaml_place *at)
{
  return at->node->type == YAML_SCALAR_NODE;
}
static inline bool yaml_is_sequence(const yaml_place *at)
{
  return at->node->type == YAML_SEQUENCE_NODE;
}
static inline bool yaml_is_mapping(const yaml_place *at)
{
  return at->node->type == YAML_MAPPING_NODE;
}

size_t yaml_length(const yaml_place *at); /* of a sequence or mapping */
bool yaml_element(arena *memory, const yaml_place *sequence, size_t index, yaml_place *out, rv_error *err);
/* Entry number `index`: keys are scalars, and none may stand twice. */
bool yaml_entry(arena *memory, const yaml_place *mapping, size_t index, const char **key, yaml_place *value, rv_error *err);

#endif
