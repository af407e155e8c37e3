#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "wire/parse.h"
#include "wire/table_info.h"

static rv_code parse_exponent(rv_span message, double *exponent, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1, RV_WIRE_FIXED64)) *exponent = rv_field_double(&field);
  return reader.broken ? rv_fail_parse(err, "KeyDistributionOptions") : RV_OK;
}

static rv_code parse_heap(rv_span message, rv_selector_kind *kind, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  *kind = RV_SELECTOR_MAX_HEAP;
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) *kind = field.value != 0 ? RV_SELECTOR_MIN_HEAP : RV_SELECTOR_MAX_HEAP;
  return reader.broken ? rv_fail_parse(err, "KeyDistributionOptions") : RV_OK;
}

static rv_code replace_text(const char **text, rv_span with, const char *what, rv_error *err)
{
  rv_code code = rv_check_text(with, what, err);
  if (code != RV_OK) return code;
  char *copy = rv_span_text(with);
  if (copy == NULL) return rv_fail_memory(err, with.size);
  free((void *)(uintptr_t)*text);
  *text = copy;
  return RV_OK;
}

/* Which member of the oneof is present counts, not its value: a max-heap is an empty message. */
rv_code rv_selector_parse(rv_span message, rv_selector_config *out, rv_error *err)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  rv_code code = RV_OK;
  while (code == RV_OK && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) out->kind = RV_SELECTOR_FIFO;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) out->kind = RV_SELECTOR_UNIFORM;
    if (rv_field_is(&field, 6, RV_WIRE_VARINT)) out->kind = RV_SELECTOR_LIFO;
    if (rv_field_is(&field, 3, RV_WIRE_BYTES)) {
      out->kind = RV_SELECTOR_PRIORITIZED;
      code = parse_exponent(field.bytes, &out->priority_exponent, err);
    }
    if (rv_field_is(&field, 4, RV_WIRE_BYTES)) code = parse_heap(field.bytes, &out->kind, err);
    if (rv_field_is(&field, 1000, RV_WIRE_BYTES)) code = replace_text(&out->name, field.bytes, "a selector's name", err);
    if (rv_field_is(&field, 1001, RV_WIRE_BYTES)) code = replace_text(&out->options, field.bytes, "a selector's options", err);
  }
  if (code == RV_OK && reader.broken) code = rv_fail_parse(err, "KeyDistributionOptions");
  if (out->name != NULL) out->kind = RV_SELECTOR_CUSTOM;
  if (out->kind != RV_SELECTOR_PRIORITIZED) out->priority_exponent = 0;
  return code;
}

void rv_selector_put(rv_writer_buf *out, uint32_t field, const rv_selector_config *selector)
{
  size_t mark = rv_put_open(out, field), inner;
  bool deterministic = true;
  switch (selector->kind) {
  case RV_SELECTOR_FIFO: rv_put_varint_always(out, 1, 1); break;
  case RV_SELECTOR_LIFO: rv_put_varint_always(out, 6, 1); break;
  case RV_SELECTOR_MAX_HEAP:
  case RV_SELECTOR_MIN_HEAP:
    inner = rv_put_open(out, 4);
    rv_put_varint(out, 1, selector->kind == RV_SELECTOR_MIN_HEAP);
    rv_put_close(out, inner);
    break;
  case RV_SELECTOR_UNIFORM:
    rv_put_varint_always(out, 2, 1);
    deterministic = false;
    break;
  case RV_SELECTOR_PRIORITIZED:
    inner = rv_put_open(out, 3);
    rv_put_double(out, 1, selector->priority_exponent);
    rv_put_close(out, inner);
    deterministic = false;
    break;
  default: deterministic = false; /* of a selector of the user's own it is not known */
  }
  rv_put_varint(out, 7, deterministic);
  if (selector->kind == RV_SELECTOR_CUSTOM) {
    const char *name = selector->name != NULL ? selector->name : "";
    rv_put_bytes_always(out, 1000, name, strlen(name));
    rv_put_string(out, 1001, selector->options);
  }
  rv_put_close(out, mark);
}
