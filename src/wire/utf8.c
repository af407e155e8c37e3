#include <string.h>

#include "wire/proto.h"

/* Length of the well-formed sequence at p (Unicode 15, table 3-7); 0 if there is none. */
static size_t sequence(const uint8_t *p, size_t left)
{
  uint8_t first = p[0];
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (left < length) return 0;
  uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (p[1] < low || p[1] > high) return 0;
  for (size_t i = 2; i < length; i++)
    if ((p[i] & 0xC0) != 0x80) return 0;
  return length;
}

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
    size_t n = sequence(p, left);
    if (n == 0) return false;
    p += n;
    left -= n;
  }
  return true;
}
