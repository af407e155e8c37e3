#include "base/past_caches.h"

#include "base/lines.h"

#ifdef RV_LINES_X86

enum { AHEAD = 2048 /* bytes: what is read comes from memory too, and is fetched meanwhile */ };

/* Up to the first whole line of `out`. */
static size_t head_of(const uint8_t *out, size_t size)
{
  return size < RV_PAST_CACHES_LEAST ? size : (size_t)(-(uintptr_t)out) % RV_LINE;
}

RV_LINES_LOOP void stream_lines(uint8_t *out, const uint8_t *in, size_t size, void (*stream)(uint8_t *to, const uint8_t *from))
{
  size_t i = head_of(out, size);
  memcpy(out, in, i);
  for (; size - i >= AHEAD + RV_LINE; i += RV_LINE) {
    __builtin_prefetch(in + i + AHEAD, 0, 2);
    stream(out + i, in + i);
  }
  for (; size - i >= RV_LINE; i += RV_LINE) stream(out + i, in + i);
  memcpy(out + i, in + i, size - i);
}

RV_LINES_LOOP void stream_lines_and_copy(uint8_t *out, uint8_t *near, const uint8_t *in, size_t size,
                                         void (*stream)(uint8_t *to, const uint8_t *from),
                                         void (*copy)(uint8_t *to, const uint8_t *from))
{
  size_t i = head_of(out, size);
  memcpy(out, in, i);
  memcpy(near, in, i);
  for (; size - i >= RV_LINE; i += RV_LINE) {
    stream(out + i, in + i);
    copy(near + i, in + i);
  }
  memcpy(out + i, in + i, size - i);
  memcpy(near + i, in + i, size - i);
}

void rv_stream_past_caches_narrow(void *to, const void *from, size_t size)
{
  stream_lines(to, from, size, rv_stream_line);
}

void rv_stream_past_caches_and_to_narrow(void *to, void *near, const void *from, size_t size)
{
  stream_lines_and_copy(to, near, from, size, rv_stream_line, rv_copy_line);
}

RV_LINES_WIDE static void stream_wide(uint8_t *out, const uint8_t *in, size_t size)
{
  stream_lines(out, in, size, rv_stream_line_wide);
}

RV_LINES_WIDE static void stream_wide_and_copy(uint8_t *out, uint8_t *near, const uint8_t *in, size_t size)
{
  stream_lines_and_copy(out, near, in, size, rv_stream_line_wide, rv_copy_line_wide);
}

void rv_past_caches_settle(void)
{
  _mm_sfence();
}

#else

void rv_stream_past_caches_narrow(void *to, const void *from, size_t size)
{
  memcpy(to, from, size);
}

void rv_stream_past_caches_and_to_narrow(void *to, void *near, const void *from, size_t size)
{
  memcpy(to, from, size);
  memcpy(near, from, size);
}

void rv_past_caches_settle(void) {}

#endif

void rv_stream_past_caches(void *to, const void *from, size_t size)
{
#ifdef RV_LINES_X86
  if (rv_lines_are_wide()) {
    stream_wide(to, from, size);
    return;
  }
#endif
  rv_stream_past_caches_narrow(to, from, size);
}

void rv_stream_past_caches_and_to(void *to, void *near, const void *from, size_t size)
{
#ifdef RV_LINES_X86
  if (rv_lines_are_wide()) {
    stream_wide_and_copy(to, near, from, size);
    return;
  }
#endif
  rv_stream_past_caches_and_to_narrow(to, near, from, size);
}

void rv_copy_past_caches(void *to, const void *from, size_t size)
{
  rv_stream_past_caches(to, from, size);
  if (size >= RV_PAST_CACHES_LEAST) rv_past_caches_settle();
}
