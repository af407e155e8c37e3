/* The structured writer: items are made by patterns that are said once, not by calls.
 *
 * A trajectory writer (reverie/writer.h) that watches its own steps: after each append every config of reverie/patterns.h
 * whose conditions hold makes its item. It keeps exactly as many rows of each column as the oldest reference to it needs,
 * columns that no config refers to are not kept at all, and what several items share is stored and sent once. Nothing waits
 * but flush and end_episode. A writer belongs to one thread at a time; rv_structured_writer_get_status may be called from any,
 * also while the writer is being closed. */
#ifndef REVERIE_STRUCTURED_WRITER_H
#define REVERIE_STRUCTURED_WRITER_H

#include "reverie/patterns.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_structured_writer rv_structured_writer;

typedef struct rv_structured_writer_config {
  size_t size; /* sizeof(rv_structured_writer_config) */
  const rv_pattern_config *patterns;
  size_t num_patterns; /* >= 1 */
  /* As in rv_writer_config. */
  bool delta_encoded;
  rv_compression compression;
  size_t max_in_flight_bytes;
  uint32_t max_in_flight_items;
} rv_structured_writer_config;

/* Copies the configs and waits for nothing. RV_INVALID_ARGUMENT: as for rv_patterns_new. What the server's tables expect is asked meanwhile, as by
 * rv_writer_new: an item that does not fit, or whose table is not there, is told as for rv_writer. */
RV_API rv_code rv_structured_writer_new(rv_client *client, const rv_structured_writer_config *config, rv_structured_writer **out,
                                        rv_error *err);
/* As rv_writer_close and rv_writer_free: what was not sent or confirmed is dropped, without waiting, and what nobody was told is logged. */
RV_API void rv_structured_writer_close(rv_structured_writer *writer);
RV_API void rv_structured_writer_free(rv_structured_writer *writer);

/* Steps have so many columns. RV_INVALID_ARGUMENT: a config refers to one that they do not have. Without this call such a
 * config is never applied. */
RV_API rv_code rv_structured_writer_set_num_columns(rv_structured_writer *writer, size_t num_columns, rv_error *err);
/* The column's name in error messages. */
RV_API rv_code rv_structured_writer_name_column(rv_structured_writer *writer, uint32_t column, const char *name, rv_error *err);

/* Adds the cells to the open step and, unless `partial_step`, closes it; then makes the items that are due. Data is copied.
 * Nothing was added: RV_INVALID_ARGUMENT (another dtype or shape than the column's first cell), RV_FAILED_PRECONDITION (a
 * column's second cell in one step), RV_RESOURCE_EXHAUSTED (max_in_flight_*: flush, or slow down), what the server found later
 * (told once, see rv_writer_create_item). Any error that begins with the position of a config: the step is in and the
 * items of the other configs were made, this one was not. */
RV_API rv_code rv_structured_writer_append(rv_structured_writer *writer, const rv_cell *cells, size_t num_cells,
                                           bool partial_step, rv_error *err);
/* As rv_writer_flush. */
RV_API rv_code rv_structured_writer_flush(rv_structured_writer *writer, uint32_t keep_in_flight, const rv_wait *wait,
                                          rv_error *err);
/* Makes the items that are due at the end of the episode, flushes everything, then begins a new episode; with clear_buffers no
 * pattern reaches back across it. An open step is closed. On failure nothing is reset: call again, no item is made twice. */
RV_API rv_code rv_structured_writer_end_episode(rv_structured_writer *writer, bool clear_buffers, const rv_wait *wait,
                                                rv_error *err);
/* As rv_writer_discard_failed, rv_writer_settle and rv_writer_take_failure. */
RV_API size_t rv_structured_writer_discard_failed(rv_structured_writer *writer);
RV_API rv_code rv_structured_writer_settle(rv_structured_writer *writer, const rv_wait *wait, rv_error *err);
RV_API rv_code rv_structured_writer_take_failure(rv_structured_writer *writer, rv_error *err);

RV_API bool rv_structured_writer_step_is_open(const rv_structured_writer *writer);
RV_API int64_t rv_structured_writer_episode_steps(const rv_structured_writer *writer); /* completed steps of this episode */
RV_API void rv_structured_writer_get_status(rv_structured_writer *writer, rv_writer_status *out);

#ifdef __cplusplus
}
#endif
#endif
