/* The step writer: items that are simply the last steps.
 *
 * What Reverb calls Writer, kept for those who know it; rv_writer can do more. All steps of a chunk have the same columns; an item covers
 * the most recent `num_timesteps` steps in all of them, unsqueezed. Steps are sent in chunks of a fixed number of steps, each
 * with all columns, and an item leaves when the chunk with its newest step is full, or at flush and close. A step writer writes
 * one episode and belongs to one thread at a time. */
#ifndef REVERIE_STEP_WRITER_H
#define REVERIE_STEP_WRITER_H

#include "reverie/writer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_step_writer rv_step_writer;

typedef struct rv_step_writer_config {
  size_t size;                  /* sizeof(rv_step_writer_config) */
  uint32_t max_sequence_length; /* steps that an item may cover, >= 1 */
  uint32_t chunk_length;        /* 1..max_sequence_length; 0: the smaller of 10 and that */
  uint32_t max_in_flight_items; /* sent and not confirmed; 0: 25 */
  bool delta_encoded;
  rv_compression compression;
} rv_step_writer_config;

/* Connects to nothing; rv_step_writer_wait_ready waits until what the tables expect is known. */
RV_API rv_code rv_step_writer_new(rv_client *client, const rv_step_writer_config *config, rv_step_writer **out, rv_error *err);
RV_API rv_code rv_step_writer_wait_ready(rv_step_writer *writer, const rv_wait *wait, rv_error *err);
/* Drops what was not sent or confirmed, without waiting; logs what rv_step_writer_take_failure has. */
RV_API void rv_step_writer_free(rv_step_writer *writer);

/* One step: column i is columns[i]. The steps of a chunk have the number, dtypes and shapes of its first; that one may have others than
 * the steps before it, as Reverb's have, but no item may then reach back over it. A chunk begins behind chunk_length steps, and behind a flush that
 * found items waiting. Waits only while 64 MiB are in flight. */
RV_API rv_code rv_step_writer_append(rv_step_writer *writer, const rv_tensor *columns, size_t num_columns, const rv_wait *wait,
                                     rv_error *err);
/* As many steps as the columns' common leading dimension says, >= 1. Steps before one that failed stay. */
RV_API rv_code rv_step_writer_append_sequence(rv_step_writer *writer, const rv_tensor *columns, size_t num_columns,
                                              const rv_wait *wait, rv_error *err);

/* What the columns are called (rv_item_column.name, and in errors), for the items created and the steps appended from now on; the strings must stay until other names are
 * given. NULL: nothing, which is how a step writer begins. */
RV_API void rv_step_writer_name_columns(rv_step_writer *writer, const char *const *names, size_t num_names);

/* The naming (reverie/client.h) of the items created from now on; 0, with which a step writer begins, says nothing. */
RV_API void rv_step_writer_set_naming(rv_step_writer *writer, uint64_t naming);

/* An item of the last num_timesteps steps, which must have the same columns, dtypes and shapes. Waits while more than max_in_flight_items are sent and not confirmed, and where 64 MiB are
 * in flight until all are; when the time runs out (RV_DEADLINE_EXCEEDED) the item is made all the same and stays queued. Where what such
 * calls left queued is over 64 MiB, the next one first waits for that: RV_RESOURCE_EXHAUSTED, and the item is not made, when its time runs
 * out. *key is 0 where the item was not made, whatever the error; it may be NULL. Other errors are those of rv_writer_create_item. */
RV_API rv_code rv_step_writer_create_item(rv_step_writer *writer, const char *table, uint32_t num_timesteps, double priority,
                                          const rv_wait *wait, uint64_t *key, rv_error *err);

/* Items that wait for their chunk are sent now; if there are none, waits until all that were sent are confirmed. */
RV_API rv_code rv_step_writer_flush(rv_step_writer *writer, const rv_wait *wait, rv_error *err);
/* As rv_writer_discard_failed: flush waits for the other items again. */
RV_API size_t rv_step_writer_discard_failed(rv_step_writer *writer);
/* As rv_writer_settle; without `retry_on_unavailable` it gives up, with RV_OK, when the server is not there. */
RV_API rv_code rv_step_writer_settle(rv_step_writer *writer, bool retry_on_unavailable, const rv_wait *wait, rv_error *err);
/* As rv_writer_take_failure. What nobody takes is logged as a warning by free. */
RV_API rv_code rv_step_writer_take_failure(rv_step_writer *writer, rv_error *err);
/* Sends what waits, waits until every item is confirmed, and returns a refusal that no call has returned (rv_writer_take_failure): beside such
 * a one the others have a second to be confirmed if `wait` is without an end. Without `retry_on_unavailable` it gives up, with RV_OK, when the server is not there. The writer is closed
 * whatever is returned: from then on every call but take_failure, discard_failed and free is RV_FAILED_PRECONDITION, and a second close
 * RV_INVALID_ARGUMENT. */
RV_API rv_code rv_step_writer_close(rv_step_writer *writer, bool retry_on_unavailable, const rv_wait *wait, rv_error *err);

/* Closes it without waiting, if it is open, and drops what was not sent or confirmed. Returns how many items that were; what was refused is
 * not among them (rv_step_writer_take_failure). */
RV_API size_t rv_step_writer_abandon(rv_step_writer *writer);

RV_API int64_t rv_step_writer_num_steps(const rv_step_writer *writer);
/* The next step begins a chunk, so that it may have other columns, dtypes and shapes than those before it. */
RV_API bool rv_step_writer_begins_chunk(const rv_step_writer *writer);
RV_API uint64_t rv_step_writer_episode_id(const rv_step_writer *writer);
RV_API bool rv_step_writer_is_closed(const rv_step_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
