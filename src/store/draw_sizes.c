#include "store/draw_sizes.h"

static void begin_at(rv_draw_sizes *sizes, int64_t size)
{
  sizes->differ = false;
  sizes->last = size;
}

void rv_draw_sizes_begin(rv_draw_sizes *sizes)
{
  begin_at(sizes, 0);
}

static void fill(int64_t *each, size_t n, int64_t size)
{
  for (size_t i = 0; i < n; i++) each[i] = size;
}

/* From now on they differ: those so far did not. */
static void differ(rv_draw_sizes *sizes, size_t first)
{
  if (sizes->differ) return;
  sizes->differ = true;
  if (sizes->each != NULL && !sizes->always) fill(sizes->each, first, sizes->last);
}

static bool is_written(const rv_draw_sizes *sizes)
{
  return sizes->each != NULL && (sizes->differ || sizes->always);
}

static bool all_are(const rv_draw *draws, size_t n, int64_t size)
{
  int64_t others = 0;
  for (size_t i = 0; i < n; i++) others |= draws[i].table_size ^ size;
  return others == 0;
}

void rv_draw_sizes_note(rv_draw_sizes *sizes, size_t first, const rv_draw *draws, size_t n)
{
  if (n == 0) return;
  if (first == 0) begin_at(sizes, draws[0].table_size);
  if (!all_are(draws, n, sizes->last)) differ(sizes, first);
  for (size_t i = 0; is_written(sizes) && i < n; i++) sizes->each[first + i] = draws[i].table_size;
  sizes->last = draws[n - 1].table_size;
}

void rv_draw_sizes_note_one(rv_draw_sizes *sizes, size_t first, size_t n, int64_t size)
{
  if (n == 0) return;
  if (first == 0) begin_at(sizes, size);
  if (size != sizes->last) differ(sizes, first);
  if (is_written(sizes)) fill(sizes->each + first, n, size);
  sizes->last = size;
}
