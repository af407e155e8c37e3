#include "net/percent.h"

#include <stdbool.h>
#include <string.h>

static bool stays(unsigned char c)
{
  return c >= 0x20 && c <= 0x7e && c != '%';
}

size_t rv_percent_encode(const char *text, char *out, size_t capacity)
{
  static const char digits[] = "0123456789ABCDEF";
  size_t length = 0, border = 0; /* border: where the last whole character ended */
  for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
    if ((*at & 0xC0U) != 0x80U) border = length;
    if (length + (stays(*at) ? 1 : 3) >= capacity) {
      length = border;
      break;
    }
    if (stays(*at)) {
      out[length++] = (char)*at;
    } else {
      out[length++] = '%';
      out[length++] = digits[*at >> 4];
      out[length++] = digits[*at & 15];
    }
  }
  out[length] = '\0';
  return length;
}

static int digit(char c)
{
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/* The length of the UTF-8 character at `at`, 0 when there is none. */
static size_t character(const unsigned char *at, size_t left)
{
  if (at[0] < 0x80) return at[0] >= 0x20 && at[0] != 0x7f ? 1 : 0;
  size_t n = at[0] >= 0xF0 ? 4 : at[0] >= 0xE0 ? 3 : 2;
  if (at[0] < 0xC2 || at[0] > 0xF4 || n > left) return 0;
  for (size_t i = 1; i < n; i++)
    if ((at[i] & 0xC0U) != 0x80U) return 0;
  if (at[0] == 0xE0 && at[1] < 0xA0) return 0; /* longer than needed */
  if (at[0] == 0xED && at[1] > 0x9F) return 0; /* a surrogate */
  if (at[0] == 0xF0 && at[1] < 0x90) return 0;
  if (at[0] == 0xF4 && at[1] > 0x8F) return 0; /* above U+10FFFF */
  return n;
}

static size_t make_readable(char *text, size_t length, bool cut)
{
  size_t to = 0;
  for (size_t from = 0; from < length;) {
    size_t n = character((const unsigned char *)text + from, length - from);
    if (n > 0) {
      memmove(text + to, text + from, n);
      to += n;
      from += n;
    } else if (cut && length - from < 4 && (unsigned char)text[from] >= 0xC2) {
      break; /* the cut went through this character */
    } else {
      text[to++] = '?';
      from++;
    }
  }
  text[to] = '\0';
  return to;
}

size_t rv_percent_decode(const char *text, char *out, size_t capacity)
{
  size_t length = 0;
  const char *at = text;
  while (*at != '\0' && length + 1 < capacity) {
    int high = at[0] == '%' ? digit(at[1]) : -1;
    int low = high >= 0 ? digit(at[2]) : -1;
    if (low >= 0) {
      out[length++] = (char)(high * 16 + low);
      at += 3;
    } else {
      out[length++] = *at++;
    }
  }
  return make_readable(out, length, *at != '\0');
}

void rv_make_readable(char *text)
{
  make_readable(text, strlen(text), true);
}
