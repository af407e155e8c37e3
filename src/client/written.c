#include "client/written.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/refs.h"
#include "client/column.h"
#include "store/chunk_parts.h"

/* Leaves the segment to the next chunk of these columns, if nobody else can see it. */
static void retire_segment(rv_written *written)
{
  rv_column *column = written->columns[0];
  rv_chunk *segment = written->segment;
  written->segment = NULL;
  bool fits =
      rv_written_has_likes(written) && !segment->has_strings && !rv_segment_is_for_once(segment) && rv_chunk_refs(segment) == 1;
  if (fits && column->spare != NULL && column->spare_group != written->group) {
    rv_chunk_unref(column->spare);
    column->spare = NULL;
  }
  if (fits && column->spare == NULL) {
    column->spare = segment;
    column->spare_group = written->group;
  } else {
    rv_chunk_unref(segment);
  }
}

/* The one that they used last; NULL: there is none that fits. */
static rv_chunk *use_again(const rv_written *written, uint32_t rows, const rv_chunk_meta *meta)
{
  rv_column *column = written->columns[0];
  rv_chunk *spare = rv_written_has_likes(written) && column->spare_group == written->group ? column->spare : NULL;
  if (spare == NULL || rv_segment_capacity(spare) != rows || !rv_segment_reuse(spare, meta)) return NULL;
  column->spare = NULL;
  return spare;
}

static rv_code make_segment(const rv_spec *specs, const rv_written *written, uint32_t rows, const rv_chunk_meta *meta,
                            const rv_segment_source *source, rv_chunk **out, rv_error *err)
{
  *out = NULL;
  if (source->once != NULL) {
    const rv_segment_source once = {.once = source->once, .context = source->context};
    if (rv_segment_new_from(specs, written->num_columns, rows, meta, &once, out, NULL) != RV_OK) *out = NULL;
    if (*out == NULL) *out = use_again(written, rows, meta);
  }
  if (*out != NULL) return RV_OK;
  return rv_segment_new_from(specs, written->num_columns, rows, meta, &(rv_segment_source){.spares = source->spares}, out, err);
}

static rv_code new_segment(const rv_written *written, uint32_t rows, const rv_chunk_meta *meta, const rv_segment_source *source,
                           rv_chunk **out, rv_error *err)
{
  const uint32_t num_columns = written->num_columns;
  *out = source->once == NULL ? use_again(written, rows, meta) : NULL;
  if (*out != NULL) return RV_OK;
  rv_spec few[16] = {0}, *specs = few;
  if (num_columns > 16) {
    specs = malloc(num_columns * sizeof *specs);
    if (specs == NULL) return rv_fail_memory(err, num_columns * sizeof *specs);
  }
  for (uint32_t i = 0; i < num_columns; i++) specs[i] = rv_column_spec(written->columns[i]);
  rv_code code = make_segment(specs, written, rows, meta, source, out, err);
  if (specs != few) free(specs);
  return code;
}

static int32_t clamp_step(int64_t step)
{
  return step < INT32_MAX ? (int32_t)step : INT32_MAX;
}

enum { MAX_SPARE_WRITTEN = 256 };

/* NULL: out of memory. */
static rv_written *take_memory(rv_column *const *columns, uint32_t num_columns)
{
  rv_column *column = columns[0];
  rv_written *spare = column->spare_written;
  if (spare != NULL && spare->num_columns != num_columns) rv_written_free_spares(column);
  spare = column->spare_written;
  if (spare == NULL) return malloc(sizeof(rv_written) + num_columns * sizeof(rv_column *));
  column->spare_written = spare->next_spare;
  column->num_spare_written--;
  return spare;
}

rv_code rv_written_new(rv_column *const *columns, uint32_t num_columns, uint64_t group, uint32_t rows, uint64_t key,
                       uint64_t episode_id, int64_t step, const rv_segment_source *source, rv_written **out, rv_error *err)
{
  rv_written *written = take_memory(columns, num_columns);
  if (written == NULL) return rv_fail_memory(err, sizeof *written + num_columns * sizeof(rv_column *));
  memset(written, 0, sizeof *written);
  atomic_init(&written->refs, 1);
  atomic_init(&written->in_flight, 0);
  written->pins = 1;
  written->key = key;
  written->first_step = written->last_step = step;
  written->num_columns = num_columns;
  written->group = group;
  memcpy(written->columns, columns, num_columns * sizeof(rv_column *));
  rv_chunk_meta meta = {.key = key, .episode_id = episode_id, .first_step = clamp_step(step), .last_step = clamp_step(step)};
  rv_code code = new_segment(written, rows, &meta, source, &written->segment, err);
  if (code != RV_OK) {
    free(written);
    return code;
  }
  *out = written;
  return RV_OK;
}

void rv_written_free_spares(rv_column *column)
{
  for (rv_written *spare; (spare = column->spare_written) != NULL; free(spare)) column->spare_written = spare->next_spare;
  column->num_spare_written = 0;
}

rv_written *rv_written_ref(rv_written *written)
{
  rv_refs_add_to_own(&written->refs);
  return written;
}

/* True: it was the last reference, and the memory is left. */
static bool drop(rv_written *written)
{
  if (!rv_refs_drop(&written->refs, 1)) return false;
  if (written->segment != NULL) rv_chunk_unref(written->segment);
  if (written->encoded != NULL) rv_stream_chunk_unref(written->encoded);
  return true;
}

void rv_written_unref(rv_written *written)
{
  if (drop(written)) free(written);
}

void rv_written_recycle(rv_written *written)
{
  rv_column *column = written->columns[0];
  if (!drop(written)) return;
  bool others = column->spare_written != NULL && column->spare_written->num_columns != written->num_columns;
  if (!rv_written_has_likes(written) || others || column->num_spare_written == MAX_SPARE_WRITTEN) {
    free(written);
    return;
  }
  written->next_spare = column->spare_written;
  column->spare_written = written;
  column->num_spare_written++;
}

void rv_written_pin(rv_written *written)
{
  written->pins++;
}

void rv_written_unpin(rv_written *written)
{
  if (--written->pins > 0) return;
  if (written->encoded != NULL) rv_stream_chunk_unpin(written->encoded);
  retire_segment(written);
  rv_written_recycle(written);
}

void rv_written_set_steps(rv_written *written)
{
  bool sparse = false;
  for (uint32_t i = 0; i < written->num_columns && !sparse; i++) {
    sparse = rv_chunk_num_rows(written->segment, i) != written->last_step - written->first_step + 1;
  }
  rv_chunk_set_last_step(written->segment, clamp_step(written->last_step), sparse);
}
