/* A writer that watches its own steps: patterns over an rv_writer. Every row that a pattern may refer to is in the writer's
 * history, which both number alike. */
#include "client/structured_writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "client/patterns.h"
#include "client/writer.h"

struct rv_structured_writer {
  rv_patterns *patterns;
  rv_writer *writer;
  rv_cell *cells; /* of a step, those that patterns refer to: room for all */
};

/* ---- life ---- */

static rv_code read_config(const rv_structured_writer_config *from, rv_structured_writer_config *to, rv_error *err)
{
  if (from == NULL || from->size < offsetof(rv_structured_writer_config, delta_encoded))
    return rv_fail(err, RV_INVALID_ARGUMENT, "structured writer config: size must be sizeof(rv_structured_writer_config)");
  memset(to, 0, sizeof *to);
  memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
  return RV_OK;
}

static rv_code make_writer(rv_structured_writer *structured, rv_client *client, const rv_structured_writer_config *config,
                           rv_error *err)
{
  const rv_patterns *patterns = structured->patterns;
  rv_writer_config inner = {.size = sizeof inner,
                            .num_keep_alive_refs = patterns->window,
                            .delta_encoded = config->delta_encoded,
                            .compression = config->compression,
                            .max_in_flight_bytes = config->max_in_flight_bytes,
                            .max_in_flight_items = config->max_in_flight_items};
  rv_code code = rv_writer_new(client, &inner, &structured->writer, err);
  for (uint32_t i = 0; i < patterns->num_sources && code == RV_OK; i++) {
    const rv_pattern_source *source = &patterns->sources[i];
    if (source->window > 0) code = rv_writer_configure_column(structured->writer, source->column, source->window, 0, err);
  }
  return code;
}

rv_code rv_structured_writer_new(rv_client *client, const rv_structured_writer_config *config, rv_structured_writer **out,
                                 rv_error *err)
{
  rv_structured_writer_config filled;
  rv_code code = read_config(config, &filled, err);
  if (code != RV_OK) return code;
  rv_structured_writer *structured = calloc(1, sizeof *structured);
  if (structured == NULL) return rv_fail_memory(err, sizeof *structured);
  code = rv_patterns_new(filled.patterns, filled.num_patterns, &structured->patterns, err);
  if (code == RV_OK) {
    size_t size = structured->patterns->num_sources * sizeof *structured->cells;
    structured->cells = malloc(size);
    code = structured->cells == NULL ? rv_fail_memory(err, size) : make_writer(structured, client, &filled, err);
  }
  if (code == RV_OK) {
    *out = structured;
  } else {
    rv_structured_writer_free(structured);
  }
  return code;
}

void rv_structured_writer_close(rv_structured_writer *structured)
{
  rv_writer_close(structured->writer);
}

void rv_structured_writer_free(rv_structured_writer *structured)
{
  if (structured == NULL) return;
  if (structured->writer != NULL) rv_writer_free(structured->writer);
  rv_patterns_free(structured->patterns);
  free(structured->cells);
  free(structured);
}

rv_writer *rv_structured_writer_inner(const rv_structured_writer *structured)
{
  return structured->writer;
}

rv_code rv_structured_writer_set_num_columns(rv_structured_writer *structured, size_t num_columns, rv_error *err)
{
  return rv_patterns_check_columns(structured->patterns, num_columns, err);
}

rv_code rv_structured_writer_name_column(rv_structured_writer *structured, uint32_t column, const char *name, rv_error *err)
{
  rv_code code = rv_writer_check(structured->writer, err);
  if (code == RV_OK && rv_patterns_column_window(structured->patterns, column) > 0)
    code = rv_writer_name_column(structured->writer, column, name, err);
  return code == RV_OK ? rv_patterns_name_column(structured->patterns, column, name, err) : code;
}

/* ---- steps ---- */

static rv_code make_item(void *context, const rv_pattern_item *item, rv_error *err)
{
  rv_structured_writer *structured = context;
  rv_writer_set_naming(structured->writer, item->naming);
  rv_code code = rv_writer_put_item(structured->writer, item->table, item->priority, item->columns, item->num_columns, err);
  if (code != RV_OK)
    rv_error_prefix(err, "the configuration at position %zu (table \"%.80s\") made no item", item->config, item->table);
  return code;
}

/* The patterns have seen these cells and found them good; of those that no pattern refers to they keep nothing. */
static rv_code append_kept(rv_structured_writer *structured, const rv_cell *cells, size_t num_cells, bool partial_step,
                           rv_error *err)
{
  size_t kept = 0;
  for (size_t i = 0; i < num_cells; i++) {
    if (rv_patterns_column_window(structured->patterns, cells[i].column) > 0) structured->cells[kept++] = cells[i];
  }
  return rv_writer_append(structured->writer, structured->cells, kept, partial_step, err);
}

static void say_complaint(rv_structured_writer *structured)
{
  char *complaint = structured->patterns->complaint;
  if (complaint[0] == '\0') return;
  rv_log(&structured->writer->client->env, RV_LOG_WARNING, "structured writer: %s", complaint);
  complaint[0] = '\0';
}

rv_code rv_structured_writer_append(rv_structured_writer *structured, const rv_cell *cells, size_t num_cells, bool partial_step,
                                    rv_error *err)
{
  rv_patterns *patterns = structured->patterns;
  rv_code code = rv_writer_check(structured->writer, err);
  if (code == RV_OK) code = rv_patterns_check(patterns, cells, num_cells, err);
  if (code == RV_OK) code = rv_writer_admits(structured->writer, patterns->num_patterns, err);
  if (code == RV_OK) code = append_kept(structured, cells, num_cells, partial_step, err);
  if (code != RV_OK) return code;
  rv_patterns_take(patterns, cells, num_cells, partial_step);
  say_complaint(structured);
  return rv_patterns_match(patterns, false, make_item, structured, err);
}

rv_code rv_structured_writer_flush(rv_structured_writer *structured, uint32_t keep_in_flight, const rv_wait *wait, rv_error *err)
{
  return rv_writer_flush(structured->writer, keep_in_flight, wait, err);
}

rv_code rv_structured_writer_settle(rv_structured_writer *structured, const rv_wait *wait, rv_error *err)
{
  return rv_writer_settle(structured->writer, wait, err);
}

rv_code rv_structured_writer_end_episode(rv_structured_writer *structured, bool clear_buffers, const rv_wait *wait, rv_error *err)
{
  rv_code code = rv_writer_check(structured->writer, err);
  if (code == RV_OK) code = rv_patterns_match(structured->patterns, true, make_item, structured, err);
  if (code == RV_OK) code = rv_writer_end_episode(structured->writer, clear_buffers, wait, err);
  if (code == RV_OK) rv_patterns_begin_episode(structured->patterns, clear_buffers);
  return code;
}

/* ---- what it knows ---- */

rv_code rv_structured_writer_take_failure(rv_structured_writer *structured, rv_error *err)
{
  return rv_writer_take_failure(structured->writer, err);
}
size_t rv_structured_writer_discard_failed(rv_structured_writer *structured)
{
  return rv_writer_discard_failed(structured->writer);
}
bool rv_structured_writer_step_is_open(const rv_structured_writer *structured)
{
  return structured->patterns->step_open;
}
int64_t rv_structured_writer_episode_steps(const rv_structured_writer *structured)
{
  return rv_writer_episode_steps(structured->writer);
}
void rv_structured_writer_get_status(rv_structured_writer *structured, rv_writer_status *out)
{
  rv_writer_get_status(structured->writer, out);
}
