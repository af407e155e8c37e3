#include "base/utf8.h"

#include <string.h>

#include "wire/proto.h"

bool rv_utf8_valid(rv_span text)
{
  const uint8_t *p = text.data;
  size_t left = text.size;
  while (left > 0) {
    uint64_t word;
    if (left >= sizeof word) {
      memcpy(&word, p, sizeof word);
      if ((word & UINT64_C(0x8080808080808080)) == 0) {
        p += sizeof word;
        left -= sizeof word;
        continue;
      }
    }
    size_t n = rv_utf8_character(p, left);
    if (n == 0) return false;
    p += n;
    left -= n;
  }
  return true;
}
