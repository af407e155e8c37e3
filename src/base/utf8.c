#include "base/utf8.h"

#include <string.h>

/* Unicode 15, table 3-7. */
size_t rv_utf8_character(const uint8_t *at, size_t left)
{
  uint8_t first = at[0];
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (left < length) return 0;
  uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (at[1] < low || at[1] > high) return 0;
  for (size_t i = 2; i < length; i++)
    if ((at[i] & 0xC0) != 0x80) return 0;
  return length;
}

bool rv_utf8_is_text(const void *bytes, size_t size)
{
  const uint8_t *p = bytes;
  size_t left = size;
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

void rv_utf8_repair(char *text)
{
  const uint8_t *from = (const uint8_t *)text;
  while (*from != 0 && *from < 0x80) from++;
  size_t left = strlen((const char *)from);
  char *to = text + (from - (const uint8_t *)text);
  bool in_cut = false; /* behind the first byte of a character that was cut */
  while (left > 0) {
    size_t n = rv_utf8_character(from, left);
    bool begins = *from >= 0xC2 && *from <= 0xF4, goes_on = (*from & 0xC0) == 0x80;
    if (n > 0) {
      memmove(to, from, n);
      to += n;
    } else if (!begins && !(in_cut && goes_on)) {
      *to++ = '?';
    }
    in_cut = n == 0 && (begins || (in_cut && goes_on));
    from += n > 0 ? n : 1;
    left -= n > 0 ? n : 1;
  }
  *to = '\0';
}
