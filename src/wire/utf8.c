#include "base/utf8.h"

#include "wire/proto.h"

bool rv_utf8_valid(rv_span text)
{
  return rv_utf8_is_text(text.data, text.size);
}
