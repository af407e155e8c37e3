/* A table's signature in YAML: any nest of mappings and lists whose leaves are {dtype: float32, shape: [84, 84]}. */
#ifndef RV_TOOL_YAML_SIGNATURE_H
#define RV_TOOL_YAML_SIGNATURE_H

#include "yaml_tree.h"

/* The specs in the order of the trajectory's columns (mappings by sorted key), and the nest as a tensorflow.StructuredValue. */
bool yaml_signature(arena *memory, const yaml_place *at, rv_signature **out, rv_error *err);

#endif
