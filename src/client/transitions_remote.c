/* Rows to a server: a trajectory writer's steps are the slots of all environments, in the order in which they are written, and
 * items name the slots of their own. What a step adds is one chunk, which leaves at once.
 *
 * A row that goes on from its environment's last one finds that as long as the writer keeps it; when many resets have pushed
 * it out, the row is stored whole again. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/transitions.h"
#include "client/writer.h"

#define MAX_BYTES ((size_t)64 << 20)
enum { MAX_ITEMS = 1000000, STEPS_IN_FLIGHT = 4 };

struct rv_remote_transitions {
  rv_writer *writer;
  bool ready;
  int64_t *slots; /* of each environment the newest whole_reach + 1, oldest first; -1: none */
  rv_kind *kinds; /* of this step's rows */
  rv_cell *cells; /* of the kept columns */
  uint8_t *zeros; /* for slots that a column has no frame in */
  rv_run *runs;   /* of one item */
  rv_item_column *columns;
  size_t step_bytes; /* at most, all of it stored whole */
};

static size_t slots_each(const rv_transitions *transitions)
{
  return (size_t)transitions->whole_reach + 1;
}

static int64_t *slots_of(const rv_transitions *transitions, size_t env)
{
  return transitions->remote->slots + env * slots_each(transitions);
}

/* ---- new and free ---- */

static size_t most_frames(const rv_transitions *transitions)
{
  size_t frames = 0;
  for (uint32_t i = 0; i < transitions->num_columns; i++) frames += rv_transitions_frames(transitions, i);
  return frames;
}

static rv_code allocate(rv_transitions *transitions, rv_error *err)
{
  rv_remote_transitions *remote = transitions->remote;
  size_t n = transitions->num_envs, largest = 1, slot_bytes = 0;
  for (uint32_t i = 0; i < transitions->num_kept; i++) {
    size_t bytes = transitions->kept[i].frame_bytes;
    if (bytes > largest) largest = bytes;
    slot_bytes += bytes;
  }
  remote->step_bytes = n * slots_each(transitions) * slot_bytes;
  remote->slots = malloc(n * slots_each(transitions) * sizeof *remote->slots);
  remote->kinds = malloc(n * sizeof *remote->kinds);
  remote->cells = malloc(transitions->num_kept * sizeof *remote->cells);
  remote->zeros = calloc(1, largest);
  remote->runs = malloc(most_frames(transitions) * sizeof *remote->runs);
  remote->columns = malloc(transitions->num_columns * sizeof *remote->columns);
  if (remote->slots == NULL || remote->kinds == NULL || remote->cells == NULL || remote->zeros == NULL || remote->runs == NULL ||
      remote->columns == NULL)
    return rv_fail_memory(err, n * slots_each(transitions) * sizeof *remote->slots);
  for (size_t i = 0; i < n * slots_each(transitions); i++) remote->slots[i] = -1;
  return RV_OK;
}

rv_code rv_remote_transitions_new(rv_transitions *transitions, rv_error *err)
{
  rv_remote_transitions *remote = transitions->remote = calloc(1, sizeof *remote);
  if (remote == NULL) return rv_fail_memory(err, sizeof *remote);
  rv_code code = allocate(transitions, err);
  /* twice what a step without resets needs, and at least what one with nothing but resets does */
  size_t keep = 2 * transitions->num_envs * slots_each(transitions);
  rv_writer_config config = {.size = sizeof config,
                             .num_keep_alive_refs = (uint32_t)keep,
                             .columns_share_chunks = true,
                             .max_in_flight_bytes = MAX_BYTES,
                             .max_in_flight_items = MAX_ITEMS};
  if (STEPS_IN_FLIGHT * remote->step_bytes > MAX_BYTES) config.max_in_flight_bytes = STEPS_IN_FLIGHT * remote->step_bytes;
  if (code == RV_OK) code = rv_writer_new(transitions->client, &config, &remote->writer, err);
  for (uint32_t i = 0; i < transitions->num_kept && code == RV_OK; i++) {
    const char *name = transitions->given[transitions->kept[i].column].name;
    if (name != NULL) code = rv_writer_name_column(remote->writer, i, name, err);
  }
  if (code == RV_OK) {
    remote->writer->rows_at_once = (uint32_t)transitions->num_envs;
    rv_writer_set_naming(remote->writer, transitions->naming);
  } else
    rv_remote_transitions_free(transitions);
  return code;
}

void rv_remote_transitions_free(rv_transitions *transitions)
{
  rv_remote_transitions *remote = transitions->remote;
  transitions->remote = NULL;
  rv_writer_free(remote->writer);
  free(remote->slots);
  free(remote->kinds);
  free(remote->cells);
  free(remote->zeros);
  free(remote->runs);
  free(remote->columns);
  free(remote);
}

/* ---- slots ---- */

static rv_code put_slot(const rv_transitions *transitions, const rv_tensor *columns, rv_kind kind, size_t env, uint32_t back,
                        rv_error *err)
{
  rv_remote_transitions *remote = transitions->remote;
  for (uint32_t i = 0; i < transitions->num_kept; i++) {
    const rv_kept_column *kept = &transitions->kept[i];
    const uint8_t *frame = rv_given_frame(transitions, columns, kind, i, env, back);
    remote->cells[i] = (rv_cell){.column = i,
                                 .value = {.dtype = kept->frame.dtype,
                                           .rank = (uint32_t)kept->frame.rank,
                                           .shape = kept->frame.shape,
                                           .data = frame == NULL ? remote->zeros : frame}};
  }
  rv_code code = rv_writer_append(remote->writer, remote->cells, transitions->num_kept, false, err);
  if (code != RV_OK) return code;
  int64_t *slots = slots_of(transitions, env);
  size_t each = slots_each(transitions);
  memmove(slots, slots + 1, (each - 1) * sizeof *slots);
  slots[each - 1] = rv_writer_num_rows(remote->writer) - 1;
  return RV_OK;
}

static bool goes_on(const rv_transitions *transitions, const rv_tensor *columns, size_t env)
{
  const int64_t *end = slots_of(transitions, env) + slots_each(transitions);
  for (uint32_t i = 0; i < transitions->num_kept; i++) {
    const rv_kept_column *kept = &transitions->kept[i];
    const uint8_t *frames = rv_given_row(transitions, columns, kept->column, env);
    uint32_t repeats = rv_kept_repeats(kept);
    for (uint32_t f = 0; f < repeats; f++) {
      rv_tensor there;
      int64_t slot = end[(int64_t)f - repeats];
      if (slot < 0 || rv_writer_row_state(transitions->remote->writer, i, slot) != RV_ROW_PRESENT ||
          rv_writer_row(transitions->remote->writer, i, slot, &there, NULL) != RV_OK)
        return false;
      if (kept->frame_bytes > 0 && memcmp(there.data, frames + f * kept->frame_bytes, kept->frame_bytes) != 0) return false;
    }
  }
  return true;
}

/* The rows that other environments' resets may push out before the items of this step are made must not be among those it
 * needs. */
static bool will_stay(const rv_transitions *transitions, size_t env)
{
  const rv_remote_transitions *remote = transitions->remote;
  int64_t oldest =
      slots_of(transitions, env)[slots_each(transitions) - transitions->reach - 1 + (transitions->reach > 0 ? 1 : 0)];
  size_t coming = transitions->num_envs * slots_each(transitions);
  return rv_writer_num_rows(remote->writer) - oldest <= (int64_t)coming;
}

static rv_code put_transition(const rv_transitions *transitions, const rv_tensor *columns, size_t env, size_t *went_on,
                              rv_error *err)
{
  rv_kind kind = rv_given_kind(transitions, columns, env);
  bool on = kind == RV_KIND_SHARED && goes_on(transitions, columns, env) && will_stay(transitions, env);
  transitions->remote->kinds[env] = kind;
  *went_on += on;
  rv_code code = RV_OK;
  for (uint32_t back = (on ? 0 : rv_kind_reach(transitions, kind)) + 1; back > 0 && code == RV_OK; back--)
    code = put_slot(transitions, columns, kind, env, back - 1, err);
  /* half of it stands there: the next one must not go on from that */
  for (size_t i = 0; code != RV_OK && i < slots_each(transitions); i++) slots_of(transitions, env)[i] = -1;
  return code;
}

/* ---- items ---- */

/* Slots that follow each other are one run. */
static size_t runs_of(const int64_t *slots, uint32_t n, uint32_t column, rv_run *runs)
{
  size_t count = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (count > 0 && runs[count - 1].first + runs[count - 1].count == slots[i])
      runs[count - 1].count++;
    else
      runs[count++] = (rv_run){.column = column, .count = 1, .first = slots[i], .stride = 1};
  }
  return count;
}

static rv_code create_item(const rv_transitions *transitions, size_t env, double priority, rv_error *err)
{
  rv_remote_transitions *remote = transitions->remote;
  rv_run *runs = remote->runs;
  const int64_t *own = slots_of(transitions, env) + slots_each(transitions) - 1;
  for (uint32_t i = 0; i < transitions->num_columns; i++) {
    uint32_t frames = rv_transitions_frames(transitions, i);
    const int64_t *first = own - rv_transitions_back(transitions, remote->kinds[env], i);
    size_t n = runs_of(first, frames, transitions->given[i].kept, runs);
    remote->columns[i] =
        (rv_item_column){.runs = runs, .num_runs = n, .squeeze = frames == 1, .name = transitions->given[i].name};
    runs += n;
  }
  return rv_writer_put_item(remote->writer, transitions->table, priority, remote->columns, transitions->num_columns, err);
}

/* ---- the verbs ---- */

static rv_code check_priorities(const rv_transitions *transitions, const double *priorities, rv_error *err)
{
  rv_writer_table *table;
  rv_writer *writer = transitions->remote->writer;
  rv_code code = rv_writer_find_table(writer, transitions->table, &table, err);
  for (size_t i = 0; code == RV_OK && table->info != NULL && priorities != NULL && i < transitions->num_envs; i++) {
    if (!rv_row_is_taken(transitions, i)) continue;
    code = rv_writer_priority_fits(table->info, priorities[i], err);
    if (code != RV_OK) rv_error_prefix(err, "environment %zu", i);
  }
  return code != RV_OK && rv_writer_renew_tables(writer) ? check_priorities(transitions, priorities, err) : code;
}

/* For the rows; their items may go over the bounds, so that a step goes in whole. */
static rv_code make_room(const rv_transitions *transitions, const rv_wait *wait, rv_error *err)
{
  rv_writer *writer = transitions->remote->writer;
  size_t n = transitions->num_envs, items = atomic_load_explicit(&writer->num_flights, memory_order_relaxed);
  if (items + n <= MAX_ITEMS && rv_writer_room(writer, transitions->remote->step_bytes, NULL) == RV_OK) return RV_OK;
  return rv_writer_flush(writer, 0, wait, err);
}

/* *rest: what it leaves of the caller's time. */
static rv_code wait_ready(const rv_remote_transitions *remote, const rv_wait *wait, rv_wait *rest, rv_error *err)
{
  rv_patience patience;
  rv_client_begin_patience(remote->writer->client, &patience, wait, NULL, NULL);
  rv_code code = rv_writer_wait_ready(remote->writer, wait, err);
  *rest = rv_patience_rest(&patience);
  return code;
}

rv_code rv_remote_transitions_add(rv_transitions *transitions, const rv_tensor *columns, const double *priorities, size_t *added,
                                  const rv_wait *wait, rv_error *err)
{
  rv_remote_transitions *remote = transitions->remote;
  rv_wait rest;
  rv_code code = remote->ready ? RV_OK : wait_ready(remote, wait, &rest, err);
  if (!remote->ready) wait = &rest;
  remote->ready = code == RV_OK;
  if (code == RV_OK) code = rv_writer_failure(remote->writer, false, err);
  if (code == RV_OK) code = check_priorities(transitions, priorities, err);
  if (code == RV_OK) code = make_room(transitions, wait, err);
  size_t rows = 0, went_on = 0;
  for (size_t env = 0; env < transitions->num_envs && code == RV_OK; env++) {
    if (!rv_row_is_taken(transitions, env)) continue;
    code = put_transition(transitions, columns, env, &went_on, err);
    rows++;
  }
  if (code == RV_OK) rv_transitions_note_step(transitions, rows, went_on);
  for (size_t env = 0; env < transitions->num_envs && code == RV_OK; env++) {
    if (!rv_row_is_taken(transitions, env)) continue;
    code = create_item(transitions, env, priorities == NULL ? 1.0 : priorities[env], err);
    if (code == RV_OK) ++*added;
  }
  return code;
}

rv_code rv_remote_transitions_flush(rv_transitions *transitions, const rv_wait *wait, rv_error *err)
{
  return rv_writer_flush(transitions->remote->writer, 0, wait, err);
}

rv_code rv_remote_transitions_settle(rv_transitions *transitions, const rv_wait *wait, rv_error *err)
{
  return rv_writer_settle(transitions->remote->writer, wait, err);
}

rv_code rv_remote_transitions_take_failure(rv_transitions *transitions, rv_error *err)
{
  return rv_writer_take_failure(transitions->remote->writer, err);
}

size_t rv_remote_transitions_discard_failed(rv_transitions *transitions)
{
  return rv_writer_discard_failed(transitions->remote->writer);
}

size_t rv_remote_transitions_abandon(rv_transitions *transitions)
{
  return rv_writer_abandon(transitions->remote->writer);
}
