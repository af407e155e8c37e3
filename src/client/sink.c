#include "client/sink.h"

#include "client/client.h"
#include "reverie/sampler.h" /* rv_layout_num_columns */
#include "store/gather.h"
#include "store/run.h"

enum {
  FEW_COLUMNS = 32,
  PAST_CACHES_FROM = 16 << 20, /* bytes of a batch; the next one is on its way while this one is read */
  OUTGROW_CACHES = 32 << 20,   /* batches of several callers */
  COUNTED_FROM = 256 << 10     /* smaller ones are not worth it */
};

static void copy_infos(const rv_draw *draws, size_t n, size_t first, const rv_fill *fill)
{
  for (size_t i = 0; i < n; i++) {
    fill->keys[first + i] = draws[i].key;
    fill->probabilities[first + i] = draws[i].probability;
    fill->priorities[first + i] = draws[i].priority;
    fill->times_sampled[first + i] = draws[i].times_sampled;
  }
}

static size_t item_bytes(const rv_trajectory_column *column)
{
  return column->spec->row_bytes * (size_t)column->length;
}

rv_code rv_fill_copy(rv_crew *crew, const rv_fill *fill, const rv_draw *draws, size_t n, size_t first, rv_error *err)
{
  if (n == 0) return RV_OK;
  copy_infos(draws, n, first, fill);
  size_t num_columns = rv_layout_num_columns(fill->layout);
  int64_t few_lengths[FEW_COLUMNS];
  void *few_outs[FEW_COLUMNS];
  if (num_columns <= FEW_COLUMNS) {
    for (uint32_t c = 0; c < num_columns; c++) {
      rv_trajectory_column column = rv_layout_get(fill->layout, c);
      few_lengths[c] = column.length;
      few_outs[c] = fill->columns[c] == NULL ? NULL : (uint8_t *)fill->columns[c] + first * item_bytes(&column);
    }
    return rv_draws_gather_together(crew, draws, n, few_lengths, few_outs, num_columns, err);
  }
  rv_code code = RV_OK;
  for (uint32_t c = 0; c < num_columns && code == RV_OK; c++) {
    rv_trajectory_column column = rv_layout_get(fill->layout, c);
    if (fill->columns[c] == NULL) continue;
    code = rv_draws_gather(draws, n, c, column.length, (uint8_t *)fill->columns[c] + first * item_bytes(&column), err);
  }
  return code;
}

void rv_sink_expect(rv_sink *sink, rv_client *client, size_t n)
{
  size_t bytes = 0;
  for (uint32_t c = 0; c < rv_layout_num_columns(sink->fill.layout); c++) {
    rv_trajectory_column column = rv_layout_get(sink->fill.layout, c);
    if (sink->fill.columns[c] != NULL) bytes += item_bytes(&column);
  }
  sink->awaited = bytes >= COUNTED_FROM / n ? bytes * n : 0;
  bool outgrow = sink->awaited > 0 && rv_loop_count_awaited(client->loop, sink->awaited) > OUTGROW_CACHES;
  sink->past_caches = outgrow || sink->awaited >= PAST_CACHES_FROM;
}

void rv_sink_expect_no_more(rv_sink *sink, rv_client *client)
{
  if (sink->awaited > 0) rv_loop_count_awaited(client->loop, (size_t)0 - sink->awaited);
  sink->awaited = 0;
}

size_t rv_sink_count_fitting(const rv_sink *sink, const rv_draw *draws, size_t n)
{
  size_t fitting = 0;
  while (fitting < n && draws[fitting].trajectory->layout == sink->fill.layout) fitting++;
  return fitting;
}

void rv_sink_pass(rv_sink *sink, const rv_draw *draws, size_t n)
{
  rv_draw_sizes_note(&sink->fill.sizes, sink->taken, draws, n);
  uint64_t naming = rv_draws_naming(draws, n);
  sink->naming = sink->taken == 0 || sink->naming == naming ? naming : 0;
  sink->taken += n;
}

rv_code rv_sink_take(rv_sink *sink, const rv_draw *draws, size_t n, rv_error *err)
{
  if (n == 0) return RV_OK;
  rv_code code = rv_fill_copy(NULL, &sink->fill, draws, n, sink->taken, err);
  sink->failed = sink->failed || code != RV_OK;
  if (code == RV_OK) rv_sink_pass(sink, draws, n);
  return code;
}

void rv_sink_copy_run(const rv_sink *sink, rv_client *client, const rv_draw *draws, size_t n, const rv_gaps *gaps)
{
  const rv_fill *fill = &sink->fill;
  for (uint32_t c = 0; c < rv_layout_num_columns(fill->layout); c++) {
    rv_trajectory_column column = rv_layout_get(fill->layout, c);
    if (fill->columns[c] != NULL) {
      uint8_t *out = (uint8_t *)fill->columns[c] + sink->taken * item_bytes(&column);
      bool is_large = n >= RV_GAPS_WORTH_HELP / (item_bytes(&column) + 1);
      rv_crew *crew = is_large ? rv_client_loop_crew(client) : NULL;
      rv_run_copy(crew, draws, n, c, gaps, sink->past_caches, out);
    }
  }
}

void rv_sink_note_run(rv_sink *sink, const rv_draw *draws, size_t n)
{
  copy_infos(draws, n, sink->taken, &sink->fill);
  rv_sink_pass(sink, draws, n);
}
