/* What the parse functions share: how a field is recognised, and the sentences for bytes that are not the message. */
#ifndef RV_WIRE_PARSE_H
#define RV_WIRE_PARSE_H

#include "wire/proto.h"

/* A field whose wire type is not the expected one is skipped like an unknown one, as protobuf does. */
static inline bool rv_field_is(const rv_field *field, uint32_t number, rv_wire_type type)
{
  return field->number == number && field->type == type;
}

static inline int32_t rv_field_int32(const rv_field *field)
{
  return (int32_t)(uint32_t)field->value;
}

/* RV_INVALID_ARGUMENT: "the bytes are no PrioritizedItem ...". */
rv_code rv_fail_parse(rv_error *err, const char *message);
/* `what` completes "... is not valid UTF-8". */
rv_code rv_check_text(rv_span text, const char *what, rv_error *err);
/* A copy with a NUL at its end, free(); NULL when memory is out. */
char *rv_span_text(rv_span text);

#endif
