#include "wire/parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

rv_code rv_fail_parse(rv_error *err, const char *message)
{
  return rv_fail(err, RV_INVALID_ARGUMENT, "the bytes are no %s: a field is cut off or malformed", message);
}

rv_code rv_check_text(rv_span text, const char *what, rv_error *err)
{
  if (rv_utf8_valid(text)) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT, "%s is not valid UTF-8", what);
}

char *rv_span_text(rv_span text)
{
  char *copy = malloc(text.size + 1);
  if (copy == NULL) return NULL;
  if (text.size > 0) memcpy(copy, text.data, text.size);
  copy[text.size] = '\0';
  return copy;
}
