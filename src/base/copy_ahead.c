#include "base/copy_ahead.h"

#include <string.h>

enum {
  LINE = 64,
  FETCHED_WHOLE = 1 << 13,  /* smaller pieces are fetched while the one before is copied */
  FETCHED_OF_MORE = 1 << 11 /* of a piece that is not: so far ahead */
};

/* Line by line, since memcpy of such sizes is one instruction (rep movsb), which is slow where the two places lie badly to each other in
 * their pages. */
void rv_copy_ahead(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *next, size_t next_size)
{
  size_t i = 0, fetched = 0;
  if (size >= FETCHED_WHOLE) {
    for (; i + FETCHED_OF_MORE + LINE <= size; i += LINE) {
      __builtin_prefetch(from + i + FETCHED_OF_MORE, 0, 2);
      memcpy(to + i, from + i, LINE);
    }
    for (; next != NULL && fetched < next_size && i + LINE <= size; i += LINE, fetched += LINE) {
      __builtin_prefetch(next + fetched, 0, 2);
      memcpy(to + i, from + i, LINE);
    }
  } else if (next != NULL) {
    for (; fetched < next_size && i + LINE <= size; i += LINE, fetched += LINE) {
      __builtin_prefetch(next + fetched);
      memcpy(to + i, from + i, LINE);
    }
  }
  memcpy(to + i, from + i, size - i);
}
