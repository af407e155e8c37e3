#include "base/gaps.h"

#include <string.h>

#include "base/past_caches.h"

/* What is copied together goes in about eight pieces, of at least and at most so many bytes. */
enum { PIECES = 8, LEAST_PIECE = 16 << 10, MOST_PIECE = 64 << 10 };

static void copy(bool past_caches, uint8_t *out, const uint8_t *in, size_t size)
{
  if (past_caches)
    rv_stream_past_caches(out, in, size);
  else
    memcpy(out, in, size);
}

void rv_gaps_copy(const rv_gaps *gaps, bool past_caches, uint8_t *out, const uint8_t *in, size_t size)
{
  const uint8_t *end = in + size;
  for (size_t i = 0; i < gaps->count && gaps->gap[i].to < end; i++) {
    const rv_gap *gap = &gaps->gap[i];
    const uint8_t *gap_end = gap->to + gap->size;
    if (gap_end <= in) continue;
    if (in < gap->to) {
      size_t before = (size_t)(gap->to - in);
      copy(past_caches, out, in, before);
      out += before;
      in += before;
    }
    size_t n = (size_t)((gap_end < end ? gap_end : end) - in);
    copy(past_caches, out, gap->from + (in - gap->to), n);
    out += n;
    in += n;
  }
  copy(past_caches, out, in, (size_t)(end - in));
  if (past_caches) rv_past_caches_settle();
}

typedef struct gaps_copy {
  const rv_gaps *gaps;
  bool past_caches;
  uint8_t *out;
  const uint8_t *in;
  size_t size, piece;
} gaps_copy;

static void copy_piece(void *context, size_t i)
{
  const gaps_copy *copy = context;
  size_t first = i * copy->piece, left = copy->size - first;
  rv_gaps_copy(copy->gaps, copy->past_caches, copy->out + first, copy->in + first, left < copy->piece ? left : copy->piece);
}

void rv_gaps_copy_together(rv_crew *crew, const rv_gaps *gaps, bool past_caches, uint8_t *out, const uint8_t *in, size_t size)
{
  size_t piece = size / PIECES;
  if (piece < LEAST_PIECE) piece = LEAST_PIECE;
  if (piece > MOST_PIECE) piece = MOST_PIECE;
  gaps_copy copy = {gaps, past_caches, out, in, size, piece};
  rv_crew_run(crew, (size + piece - 1) / piece, size, copy_piece, &copy);
}

void rv_gaps_fill(const rv_gaps *gaps)
{
  for (size_t i = 0; i < gaps->count; i++) memcpy(gaps->gap[i].to, gaps->gap[i].from, gaps->gap[i].size);
}
