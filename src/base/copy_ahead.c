#include "base/copy_ahead.h"

#include "base/lines.h"

enum {
  FETCHED_WHOLE = 1 << 13,  /* smaller pieces are fetched while the one before is copied */
  FETCHED_OF_MORE = 1 << 11 /* of a piece that is not: so far ahead */
};

/* Line by line, since memcpy of such sizes is one instruction (rep movsb), which is slow where the two places lie badly to each other in
 * their pages. */
RV_LINES_LOOP void copy_lines(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *next, size_t next_size,
                              void (*copy)(uint8_t *to, const uint8_t *from))
{
  size_t i = 0, fetched = 0;
  if (size >= FETCHED_WHOLE) {
    for (; i + FETCHED_OF_MORE + RV_LINE <= size; i += RV_LINE) {
      __builtin_prefetch(from + i + FETCHED_OF_MORE, 0, 2);
      copy(to + i, from + i);
    }
    for (; next != NULL && fetched < next_size && i + RV_LINE <= size; i += RV_LINE, fetched += RV_LINE) {
      __builtin_prefetch(next + fetched, 0, 2);
      copy(to + i, from + i);
    }
  } else if (next != NULL) {
    for (; fetched < next_size && i + RV_LINE <= size; i += RV_LINE, fetched += RV_LINE) {
      __builtin_prefetch(next + fetched);
      copy(to + i, from + i);
    }
  }
  memcpy(to + i, from + i, size - i);
}

void rv_copy_ahead_narrow(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *next, size_t next_size)
{
  copy_lines(to, from, size, next, next_size, rv_copy_line);
}

#ifdef RV_LINES_X86
RV_LINES_WIDE static void copy_wide(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *next, size_t next_size)
{
  copy_lines(to, from, size, next, next_size, rv_copy_line_wide);
}
#endif

void rv_copy_ahead(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *next, size_t next_size)
{
#ifdef RV_LINES_X86
  if (rv_lines_are_wide()) {
    copy_wide(to, from, size, next, next_size);
    return;
  }
#endif
  rv_copy_ahead_narrow(to, from, size, next, next_size);
}
