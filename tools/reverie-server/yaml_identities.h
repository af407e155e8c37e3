/* Who may call, in YAML: a list of {name, token or token_file or certificate_name, rights: {TABLE or "*": [read, insert, ...]}}. */
#ifndef RV_TOOL_YAML_IDENTITIES_H
#define RV_TOOL_YAML_IDENTITIES_H

#include "yaml_tree.h"

bool yaml_identities(settings *all, const yaml_place *at, rv_error *err);

#endif
