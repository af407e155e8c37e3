/* What of some bytes is text. */
#ifndef RV_BASE_UTF8_H
#define RV_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at `at`, of which `left` (at least 1) may be read; 0: there is none. No surrogates, nothing overlong; NUL is a character
 * like others. */
size_t rv_utf8_character(const uint8_t *at, size_t left);
/* All of them are characters. */
bool rv_utf8_is_text(const void *bytes, size_t size);
/* Leaves out of a text that ends with NUL what is left of characters that were cut, and puts a ? in place of other bytes that are none. */
void rv_utf8_repair(char *text);

#endif
