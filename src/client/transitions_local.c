/* Rows into segments of this process: each environment fills its own, so that a transition's rows stand side by side and every
 * item is a base row and one of two templates. A segment begins with a row that is stored whole; a step is copied before the
 * table is entered, by several threads where it is large. */
#include <stdlib.h>
#include <string.h>

#include "base/fetches.h"
#include "base/past_caches.h"
#include "base/small_copies.h"
#include "client/await.h"
#include "client/transitions.h"
#include "store/chunk_parts.h"
#include "store/placed.h"

#define TOGETHER_BYTES ((size_t)1 << 18) /* of a step: worth waking somebody for */
#define RECENT_BYTES ((size_t)1 << 22)   /* more than this leaves the caches between two steps */
enum { PIECES = 32, LINE = 64, BOOKS_BYTES = 4 * LINE };

/* Where an environment is. */
typedef struct rv_walk {
  rv_chunk *segment; /* NULL: none yet */
  int64_t fill;      /* slots written */
  int64_t newest;    /* the last transition's own slot; -1: none in this segment */
} rv_walk;

/* Where its present step is. */
typedef struct rv_stride {
  rv_kind kind;
  bool on;       /* goes on from the one before */
  bool waits;    /* for another segment */
  bool left_out; /* it is none: the step has no row of this environment that is taken */
} rv_stride;

struct rv_local_transitions {
  rv_table *table;
  rv_form *form[2]; /* by kind */
  rv_walk *walks;
  rv_stride *strides;
  rv_place *places;
  size_t step_bytes;
  size_t piece;             /* environments that one thread copies at a time */
  size_t streams;           /* the table knows of */
  size_t share;             /* of the table's bound, a segment's, when the next two were found */
  size_t segment_rows;      /* of most segments */
  int64_t most_rows;        /* larger ones are left */
  const rv_tensor *columns; /* while a step is copied */
  /* Copies of each environment's newest frames, as many as the next row must repeat, by kept column: there a row is compared with them,
   * so that what goes into the table is not read again, and may be written past the caches. NULL: it is compared with the table's. */
  uint8_t **recent;
  bool past_caches; /* the table is larger than the caches are */
};

/* ---- new and free ---- */

static rv_code new_form(rv_transitions *transitions, rv_kind kind, const rv_spec *specs, rv_error *err)
{
  rv_local_transitions *local = transitions->local;
  rv_placed_column *columns = malloc(transitions->num_columns * sizeof *columns);
  if (columns == NULL) return rv_fail_memory(err, transitions->num_columns * sizeof *columns);
  uint32_t reach = rv_kind_reach(transitions, kind);
  for (uint32_t i = 0; i < transitions->num_columns; i++) {
    uint32_t frames = rv_transitions_frames(transitions, i);
    columns[i] = (rv_placed_column){.tensor = transitions->given[i].kept,
                                    .first = reach - rv_transitions_back(transitions, kind, i),
                                    .length = frames,
                                    .squeeze = frames == 1};
  }
  rv_code code =
      rv_placed_form_new(local->table, specs, transitions->num_kept, columns, transitions->num_columns, &local->form[kind], err);
  free(columns);
  return code;
}

static rv_code check_names(const rv_transitions *transitions, rv_error *err)
{
  const char **names = malloc(transitions->num_columns * sizeof *names);
  if (names == NULL) return rv_fail_memory(err, transitions->num_columns * sizeof *names);
  for (uint32_t i = 0; i < transitions->num_columns; i++) names[i] = transitions->given[i].name;
  rv_code code = rv_signature_check_names(rv_table_signature(transitions->local->table), transitions->table, names,
                                          transitions->num_columns, err);
  free(names);
  return code;
}

static rv_code new_forms(rv_transitions *transitions, rv_error *err)
{
  rv_spec *specs = malloc(transitions->num_kept * sizeof *specs);
  if (specs == NULL) return rv_fail_memory(err, transitions->num_kept * sizeof *specs);
  for (uint32_t i = 0; i < transitions->num_kept; i++) specs[i] = transitions->kept[i].frame;
  rv_code code = new_form(transitions, RV_KIND_SHARED, specs, err);
  if (code == RV_OK) code = new_form(transitions, RV_KIND_APART, specs, err);
  free(specs);
  return code;
}

/* Large frames have copies, as far as these stay in the caches. */
static rv_code new_recent(rv_transitions *transitions, rv_error *err)
{
  rv_local_transitions *local = transitions->local;
  local->recent = calloc(transitions->num_kept, sizeof *local->recent);
  if (local->recent == NULL) return rv_fail_memory(err, transitions->num_kept * sizeof *local->recent);
  size_t room = RECENT_BYTES;
  for (uint32_t i = 0; i < transitions->num_kept; i++) {
    const rv_kept_column *kept = &transitions->kept[i];
    size_t frames = transitions->num_envs * rv_kept_repeats(kept); /* at most 2^26 */
    if (frames == 0 || kept->frame_bytes < RV_PAST_CACHES_LEAST || kept->frame_bytes > room / frames) continue;
    room -= frames * kept->frame_bytes;
    local->recent[i] = malloc(frames * kept->frame_bytes);
    if (local->recent[i] == NULL) return rv_fail_memory(err, frames * kept->frame_bytes);
  }
  return RV_OK;
}

/* At least two transitions' that are stored whole. */
static size_t least_rows(const rv_transitions *transitions)
{
  return 2 * ((size_t)transitions->whole_reach + 1);
}

static void size_segments(const rv_transitions *transitions)
{
  rv_local_transitions *local = transitions->local;
  const rv_form *form = local->form[RV_KIND_SHARED];
  local->share = rv_placed_share(local->table);
  local->segment_rows = rv_placed_segment_rows(local->table, form, transitions->num_envs, transitions->reach);
  size_t most = rv_placed_most_rows(local->table, form), least = least_rows(transitions);
  local->most_rows = most > INT64_MAX ? INT64_MAX : (int64_t)(most > least ? most : least);
}

rv_code rv_local_transitions_new(rv_transitions *transitions, rv_error *err)
{
  size_t n = transitions->num_envs;
  rv_local_transitions *local = transitions->local = calloc(1, sizeof *local);
  if (local == NULL) return rv_fail_memory(err, sizeof *local);
  local->walks = calloc(n, sizeof *local->walks);
  local->strides = calloc(n, sizeof *local->strides);
  local->places = calloc(n, sizeof *local->places);
  rv_code code = RV_OK;
  if (local->walks == NULL || local->strides == NULL || local->places == NULL)
    code = rv_fail_memory(err, n * (sizeof *local->walks + sizeof *local->strides + sizeof *local->places));
  if (code == RV_OK) code = rv_client_find_table(transitions->client, transitions->table, &local->table, err);
  if (code == RV_OK) code = check_names(transitions, err);
  if (code == RV_OK) code = new_forms(transitions, err);
  if (code == RV_OK) code = new_recent(transitions, err);
  if (code != RV_OK) {
    rv_local_transitions_free(transitions);
    return code;
  }
  for (uint32_t i = 0; i < transitions->num_columns; i++) local->step_bytes += n * transitions->given[i].row_bytes;
  local->piece = local->step_bytes >= TOGETHER_BYTES ? n / PIECES + 1 : n;
  rv_placed_begin(local->table, n);
  local->streams = n;
  size_segments(transitions);
  return RV_OK;
}

void rv_local_transitions_free(rv_transitions *transitions)
{
  rv_local_transitions *local = transitions->local;
  transitions->local = NULL;
  if (local->streams > 0) rv_placed_end(local->table, local->streams);
  for (size_t i = 0; local->walks != NULL && i < transitions->num_envs; i++)
    rv_placed_segment_close(local->table, local->walks[i].segment);
  for (int kind = 0; kind < 2; kind++) rv_placed_form_free(local->table, local->form[kind]);
  for (uint32_t i = 0; local->recent != NULL && i < transitions->num_kept; i++) free(local->recent[i]);
  free(local->recent);
  free(local->walks);
  free(local->strides);
  free(local->places);
  free(local);
}

/* ---- slots ---- */

static uint8_t *slot_at(const rv_walk *walk, uint32_t tensor, int64_t slot)
{
  const rv_lane *lane = &walk->segment->lanes[tensor];
  return (uint8_t *)(uintptr_t)lane->base + (size_t)slot * lane->stride;
}

/* The copy of a slot's frame; NULL: there are none. */
static uint8_t *recent_at(const rv_transitions *transitions, uint32_t index, size_t env, int64_t slot)
{
  uint8_t *recent = transitions->local->recent[index];
  const rv_kept_column *kept = &transitions->kept[index];
  size_t repeats = rv_kept_repeats(kept);
  return recent == NULL ? NULL : recent + (env * repeats + (size_t)slot % repeats) * kept->frame_bytes;
}

/* Writes a frame into its slot and, where it is one of those that the next row must repeat, its copy; past the caches perhaps: see publish. */
static void put_frame(const rv_transitions *transitions, uint8_t *to, uint8_t *copy, const uint8_t *frame, size_t bytes)
{
  if (frame == NULL) { /* nobody reads it, but it may be sent along */
    memset(to, 0, bytes);
    if (copy != NULL) memset(copy, 0, bytes);
  } else if (copy == NULL) {
    rv_copy_small(to, frame, bytes);
  } else if (transitions->local->past_caches) {
    rv_stream_past_caches_and_to(to, copy, frame, bytes);
  } else {
    memcpy(to, frame, bytes);
    memcpy(copy, frame, bytes);
  }
}

/* Writes what a transition has in the slot `back` before its own. */
static void put_slot(const rv_transitions *transitions, rv_kind kind, size_t env, int64_t slot, uint32_t back)
{
  const rv_local_transitions *local = transitions->local;
  for (uint32_t i = 0; i < transitions->num_kept; i++) {
    const rv_kept_column *kept = &transitions->kept[i];
    const uint8_t *frame = rv_given_frame(transitions, local->columns, kind, i, env, back);
    uint8_t *copy = back < rv_kept_repeats(kept) ? recent_at(transitions, i, env, slot) : NULL;
    put_frame(transitions, slot_at(&local->walks[env], i, slot), copy, frame, kept->frame_bytes);
  }
}

/* Before others may read it. Its own slot is `reach` behind the first free one: 0 where it goes on from the last transition. */
static void put_transition(const rv_transitions *transitions, rv_kind kind, size_t env, uint32_t reach)
{
  rv_local_transitions *local = transitions->local;
  rv_walk *walk = &local->walks[env];
  int64_t own = walk->fill + reach;
  for (uint32_t back = 0; back <= reach; back++) put_slot(transitions, kind, env, own - back, back);
  walk->fill = own + 1;
  local->places[env] = (rv_place){.segment = walk->segment, .base = own - rv_kind_reach(transitions, kind)};
}

/* What several environments' segments have got. */
static void publish(const rv_transitions *transitions, size_t first, size_t end)
{
  const rv_local_transitions *local = transitions->local;
  if (local->past_caches) rv_past_caches_settle();
  for (size_t env = first; env < end; env++) {
    const rv_walk *walk = &local->walks[env];
    if (walk->segment == NULL) continue;
    for (uint32_t i = 0; i < transitions->num_kept; i++) rv_segment_publish(walk->segment, i, walk->fill);
  }
}

/* Do the environment's newest slots have these frames? */
static bool same_frames(const rv_transitions *transitions, uint32_t index, size_t env, const uint8_t *frames, uint32_t n)
{
  const rv_walk *walk = &transitions->local->walks[env];
  size_t bytes = transitions->kept[index].frame_bytes;
  int64_t first = walk->newest - n + 1;
  if (transitions->local->recent[index] == NULL) {
    const rv_lane *lane = &walk->segment->lanes[index];
    if (lane->stride == bytes) return memcmp(slot_at(walk, index, first), frames, n * bytes) == 0;
  }
  for (uint32_t i = 0; i < n; i++) {
    const uint8_t *copy = recent_at(transitions, index, env, first + i);
    if (memcmp(copy != NULL ? copy : slot_at(walk, index, first + i), frames + i * bytes, bytes) != 0) return false;
  }
  return true;
}

static bool goes_on(const rv_transitions *transitions, size_t env)
{
  const rv_local_transitions *local = transitions->local;
  const rv_walk *walk = &local->walks[env];
  if (walk->segment == NULL || walk->newest < 0 || walk->newest != walk->fill - 1) return false;
  for (uint32_t i = 0; i < transitions->num_kept; i++) {
    uint32_t repeats = rv_kept_repeats(&transitions->kept[i]);
    const uint8_t *frames = rv_given_row(transitions, local->columns, transitions->kept[i].column, env);
    if (repeats > 0 && !same_frames(transitions, i, env, frames, repeats)) return false;
  }
  return true;
}

/* ---- a step ---- */

static void place(const rv_transitions *transitions, size_t env)
{
  rv_local_transitions *local = transitions->local;
  rv_walk *walk = &local->walks[env];
  rv_stride *stride = &local->strides[env];
  stride->kind = rv_given_kind(transitions, local->columns, env);
  bool on = stride->kind == RV_KIND_SHARED && goes_on(transitions, env);
  uint32_t reach = on ? 0 : rv_kind_reach(transitions, stride->kind);
  stride->on = on;
  stride->left_out = false;
  int64_t capacity = walk->segment == NULL ? 0 : rv_segment_capacity(walk->segment);
  stride->waits = walk->fill + reach >= capacity || capacity > local->most_rows;
  if (!stride->waits) put_transition(transitions, stride->kind, env, reach);
}

/* The books of an environment's segment: what lies between two visits has put them out of the caches. */
RV_FETCHES void fetch(const rv_walk *walk)
{
  for (int at = 0; at < BOOKS_BYTES && walk->segment != NULL; at += LINE)
    __builtin_prefetch((const uint8_t *)walk->segment + at, 1);
}

static void place_piece(void *context, size_t piece)
{
  const rv_transitions *transitions = context;
  const rv_local_transitions *local = transitions->local;
  size_t first = piece * local->piece, end = first + local->piece;
  if (end > transitions->num_envs) end = transitions->num_envs;
  for (size_t env = first; env < end; env++) {
    if (env + 1 < end) fetch(&local->walks[env + 1]);
    if (rv_row_is_taken(transitions, env))
      place(transitions, env);
    else
      local->strides[env] = (rv_stride){.left_out = true};
  }
  publish(transitions, first, end);
}

/* The first segments are of different lengths, so that environments which step together need their next ones at different
 * times. */
static size_t rows_of_next(const rv_transitions *transitions, size_t env)
{
  const rv_local_transitions *local = transitions->local;
  size_t rows = local->segment_rows, least = least_rows(transitions);
  if (local->walks[env].segment == NULL) rows -= rows * env / transitions->num_envs;
  return rows > least ? rows : least;
}

static rv_code place_in_next(const rv_transitions *transitions, size_t env, rv_error *err)
{
  rv_local_transitions *local = transitions->local;
  rv_walk *walk = &local->walks[env];
  rv_kind kind = local->strides[env].kind;
  rv_chunk *segment;
  rv_code code = rv_placed_segment_new(local->table, local->form[RV_KIND_SHARED], rows_of_next(transitions, env), &segment, err);
  if (code != RV_OK) return code;
  rv_placed_segment_close(local->table, walk->segment);
  local->past_caches = rv_placed_outgrows_caches(local->table);
  *walk = (rv_walk){.segment = segment, .newest = -1};
  put_transition(transitions, kind, env, rv_kind_reach(transitions, kind));
  publish(transitions, env, env + 1);
  return RV_OK;
}

static void note_step(rv_transitions *transitions)
{
  const rv_stride *strides = transitions->local->strides;
  size_t rows = 0, went_on = 0;
  for (size_t env = 0; env < transitions->num_envs; env++) {
    rows += !strides[env].left_out;
    went_on += strides[env].on;
  }
  rv_transitions_note_step(transitions, rows, went_on);
}

static rv_code insert_run(const rv_transitions *transitions, rv_kind kind, size_t first, size_t n, const double *priorities,
                          size_t *added, const rv_wait *wait, rv_error *err)
{
  rv_local_transitions *local = transitions->local;
  rv_gate gate;
  rv_gate_init(&gate);
  rv_rows rows; /* not cleared: its error is large, and set only when there is one */
  rv_await_prepare(&rows.waiter, &gate, INT64_MAX);
  rows.columns = NULL;
  rows.num_columns = 0;
  rows.n = n;
  rows.placed = local->places + first;
  rows.priorities = priorities == NULL ? NULL : priorities + first;
  rows.keys = NULL;
  rows.naming = transitions->naming;
  rv_code code = RV_OK;
  if (rv_table_insert_placed(local->table, local->form[kind], &rows) == RV_SUBMIT_PENDING) {
    rv_patience patience;
    rv_client_begin_patience(transitions->client, &patience, wait, NULL, NULL);
    code = rv_await(&rows.waiter, &gate, &patience, err);
  }
  for (size_t env = first; env < first + rows.done; env++) local->walks[env].newest = local->walks[env].fill - 1;
  *added += rows.done;
  if (code != RV_OK) return code;
  return rows.waiter.code == RV_OK ? RV_OK : rv_error_copy(err, &rows.waiter.error);
}

/* Environments with the same kind of transition together. */
static rv_code insert(const rv_transitions *transitions, const double *priorities, size_t *added, const rv_wait *wait,
                      rv_error *err)
{
  const rv_stride *strides = transitions->local->strides;
  rv_code code = RV_OK;
  for (size_t first = 0, end; first < transitions->num_envs && code == RV_OK; first = end) {
    end = first + 1;
    if (strides[first].left_out) continue;
    while (end < transitions->num_envs && strides[end].kind == strides[first].kind && !strides[end].left_out) end++;
    code = insert_run(transitions, strides[first].kind, first, end - first, priorities, added, wait, err);
  }
  return code;
}

rv_code rv_local_transitions_add(rv_transitions *transitions, const rv_tensor *columns, const double *priorities, size_t *added,
                                 const rv_wait *wait, rv_error *err)
{
  rv_local_transitions *local = transitions->local;
  size_t n = transitions->num_envs;
  rv_code code = rv_placed_check_priorities(local->table, priorities, transitions->where, n, err);
  if (code != RV_OK) return code;
  local->columns = columns;
  if (rv_placed_share(local->table) != local->share) size_segments(transitions);
  if (local->piece < n)
    rv_crew_run(rv_client_crew(transitions->client), (n + local->piece - 1) / local->piece, local->step_bytes, place_piece,
                transitions);
  else
    place_piece(transitions, 0);
  for (size_t env = 0; env < n && code == RV_OK; env++)
    if (local->strides[env].waits) code = place_in_next(transitions, env, err);
  local->columns = NULL;
  if (code == RV_OK && !transitions->rows_judged) note_step(transitions);
  return code == RV_OK ? insert(transitions, priorities, added, wait, err) : code;
}
