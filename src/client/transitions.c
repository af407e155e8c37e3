#include "client/transitions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "client/await.h"
#include "store/signature.h"
#include "tensor/codec.h"

enum { MAX_COLUMNS = 65535, MAX_STACK = 1024, LABEL_MAX = 160 };
#define MAX_ENVS ((size_t)1 << 16)

/* ---- new and free ---- */

static const char *label_of(const rv_given_column *given, uint32_t index, char out[LABEL_MAX])
{
  if (given->name == NULL)
    snprintf(out, LABEL_MAX, "column %u", (unsigned)index);
  else
    snprintf(out, LABEL_MAX, "column %u \"%.120s\"", (unsigned)index, given->name);
  return out;
}

static rv_code check_config(const rv_transitions_config *config, rv_error *err)
{
  if (config == NULL || config->size < offsetof(rv_transitions_config, naming))
    return rv_fail(err, RV_INVALID_ARGUMENT, "transitions config: size must be sizeof(rv_transitions_config)");
  if (config->num_envs < 1 || config->num_envs > MAX_ENVS)
    return rv_fail(err, RV_INVALID_ARGUMENT, "transitions config: num_envs is %zu; 1 to %zu are possible", config->num_envs,
                   MAX_ENVS);
  if (config->num_columns < 1 || config->num_columns > MAX_COLUMNS)
    return rv_fail(err, RV_INVALID_ARGUMENT, "transitions config: rows of %zu columns; 1 to %d are possible", config->num_columns,
                   MAX_COLUMNS);
  return RV_OK;
}

static rv_code copy_columns(rv_transitions *transitions, const rv_transitions_config *config, rv_error *err)
{
  for (uint32_t i = 0; i < transitions->num_columns; i++) {
    const rv_transitions_column *from = &config->columns[i];
    rv_given_column *to = &transitions->given[i];
    *to = (rv_given_column){.stack = from->stack, .of = from->of, .is_next = from->is_next};
    if (from->name != NULL && (to->name = strdup(from->name)) == NULL) return rv_fail_memory(err, strlen(from->name) + 1);
  }
  return RV_OK;
}

/* Which columns are kept, and which is whose next. */
static rv_code choose_kept(rv_transitions *transitions, rv_error *err)
{
  char label[LABEL_MAX], other[LABEL_MAX];
  for (uint32_t i = 0; i < transitions->num_columns; i++) {
    rv_given_column *given = &transitions->given[i];
    if (given->stack > MAX_STACK)
      return rv_fail(err, RV_INVALID_ARGUMENT, "%s: a stack of %u frames; at most %d are possible", label_of(given, i, label),
                     (unsigned)given->stack, MAX_STACK);
    if (given->is_next) continue;
    given->kept = transitions->num_kept;
    transitions->kept[transitions->num_kept++] =
        (rv_kept_column){.column = i, .next = RV_NO_COLUMN, .frames = given->stack > 1 ? given->stack : 1};
  }
  for (uint32_t i = 0; i < transitions->num_columns; i++) {
    rv_given_column *given = &transitions->given[i];
    if (!given->is_next) continue;
    label_of(given, i, label);
    if (given->of >= transitions->num_columns)
      return rv_fail(err, RV_INVALID_ARGUMENT, "%s is next of column %u; there are %u columns", label, (unsigned)given->of,
                     (unsigned)transitions->num_columns);
    const rv_given_column *of = &transitions->given[given->of];
    label_of(of, given->of, other);
    if (of->is_next)
      return rv_fail(err, RV_INVALID_ARGUMENT, "%s is next of %s, which is a next itself; name the column that is stored", label,
                     other);
    rv_kept_column *kept = &transitions->kept[of->kept];
    if (kept->next != RV_NO_COLUMN)
      return rv_fail(err, RV_INVALID_ARGUMENT, "%s is next of %s, which has another next; a column has one", label, other);
    if (given->stack > 1 && given->stack != kept->frames)
      return rv_fail(err, RV_INVALID_ARGUMENT, "%s is a stack of %u frames and next of %s, a stack of %u; both are of one number",
                     label, (unsigned)given->stack, other, (unsigned)kept->frames);
    kept->next = i;
    given->kept = of->kept;
  }
  return RV_OK;
}

static void measure_reach(rv_transitions *transitions)
{
  for (uint32_t i = 0; i < transitions->num_kept; i++) {
    const rv_kept_column *kept = &transitions->kept[i];
    bool has_next = kept->next != RV_NO_COLUMN;
    uint32_t reach = kept->frames - 1 + (has_next ? 1 : 0);
    uint32_t whole_reach = has_next ? 2 * kept->frames - 1 : reach;
    if (reach > transitions->reach) transitions->reach = reach;
    if (whole_reach > transitions->whole_reach) transitions->whole_reach = whole_reach;
  }
}

rv_code rv_transitions_new(rv_client *client, const rv_transitions_config *config, rv_transitions **out, rv_error *err)
{
  rv_table *table;
  rv_code code = check_config(config, err);
  if (code == RV_OK) code = rv_client_check_table(client, config->table, err);
  if (code == RV_OK && client->store != NULL) code = rv_client_find_table(client, config->table, &table, err);
  if (code != RV_OK) return code;
  rv_transitions *transitions = calloc(1, sizeof *transitions);
  if (transitions == NULL) return rv_fail_memory(err, sizeof *transitions);
  transitions->client = client;
  transitions->num_envs = config->num_envs;
  transitions->num_columns = (uint32_t)config->num_columns;
  if (config->size >= offsetof(rv_transitions_config, naming) + sizeof config->naming) transitions->naming = config->naming;
  transitions->table = strdup(config->table);
  transitions->given = calloc(config->num_columns, sizeof *transitions->given);
  transitions->kept = calloc(config->num_columns, sizeof *transitions->kept);
  if (transitions->table == NULL || transitions->given == NULL || transitions->kept == NULL)
    code = rv_fail_memory(err, config->num_columns * sizeof *transitions->given);
  if (code == RV_OK) code = copy_columns(transitions, config, err);
  if (code == RV_OK) code = choose_kept(transitions, err);
  if (code == RV_OK) {
    measure_reach(transitions);
    *out = transitions;
  } else {
    rv_transitions_free(transitions);
  }
  return code;
}

static void end(rv_transitions *transitions)
{
  if (transitions->local != NULL) rv_local_transitions_free(transitions);
  if (transitions->remote != NULL) rv_remote_transitions_free(transitions);
}

size_t rv_transitions_close(rv_transitions *transitions)
{
  if (transitions->closed || !rv_client_is_here(transitions->client)) return 0;
  transitions->closed = true;
  size_t lost = transitions->remote != NULL ? rv_remote_transitions_abandon(transitions) : 0;
  if (transitions->remote != NULL) rv_remote_transitions_take_failure(transitions, &transitions->untold);
  end(transitions);
  return lost;
}

static void log_untold(rv_transitions *transitions)
{
  if (transitions->untold.code == RV_OK) return;
  rv_log(&transitions->client->env, RV_LOG_WARNING, "a transitions writer was closed before any call told of this: %s",
         transitions->untold.message);
}

void rv_transitions_free(rv_transitions *transitions)
{
  if (transitions == NULL) return;
  if (!rv_client_is_here(transitions->client)) return; /* a forked child: threads and locks behind it are not there */
  end(transitions);
  log_untold(transitions);
  for (uint32_t i = 0; transitions->given != NULL && i < transitions->num_columns; i++) free(transitions->given[i].name);
  free(transitions->given);
  free(transitions->kept);
  free(transitions->sizes);
  free(transitions->table);
  free(transitions);
}

/* ---- whether it is any use ---- */

enum { ROWS_JUDGED = 1024, STEPS_JUDGED = 8, MANY = 4 };

static bool has_next(const rv_transitions *transitions)
{
  for (uint32_t i = 0; i < transitions->num_kept; i++)
    if (transitions->kept[i].next != RV_NO_COLUMN) return true;
  return false;
}

void rv_transitions_note_step(rv_transitions *transitions, size_t rows, size_t went_on)
{
  if (transitions->rows_judged) return;
  transitions->rows_seen += rows;
  transitions->rows_on += went_on;
  if (transitions->rows_seen < ROWS_JUDGED || transitions->rows_seen / STEPS_JUDGED < transitions->num_envs) return;
  transitions->rows_judged = true;
  if (transitions->rows_on > transitions->rows_seen / MANY || !has_next(transitions)) return;
  rv_log(&transitions->client->env, RV_LOG_WARNING,
         "transitions for table \"%s\": of the first %zu rows only %zu go on from the one before them, and all others are stored "
         "whole, "
         "stacks included; where a next observation is that of several steps on, leave next out and give both columns a stack",
         transitions->table, transitions->rows_seen, transitions->rows_on);
}

/* ---- where things are ---- */

uint32_t rv_transitions_back(const rv_transitions *transitions, rv_kind kind, uint32_t index)
{
  const rv_kept_column *kept = &transitions->kept[transitions->given[index].kept];
  uint32_t frames = kept->frames;
  if (transitions->given[index].is_next || kept->next == RV_NO_COLUMN) return frames - 1;
  return kind == RV_KIND_SHARED ? frames : 2 * frames - 1;
}

const uint8_t *rv_given_frame(const rv_transitions *transitions, const rv_tensor *columns, rv_kind kind, uint32_t kept_index,
                              size_t env, uint32_t back)
{
  const rv_kept_column *kept = &transitions->kept[kept_index];
  uint32_t first = rv_transitions_back(transitions, kind, kept->column);
  if (kept->next != RV_NO_COLUMN && back < (kind == RV_KIND_SHARED ? 1 : kept->frames))
    return rv_given_row(transitions, columns, kept->next, env) + (kept->frames - 1 - back) * kept->frame_bytes;
  if (back > first) return NULL;
  return rv_given_row(transitions, columns, kept->column, env) + (first - back) * kept->frame_bytes;
}

rv_kind rv_given_kind(const rv_transitions *transitions, const rv_tensor *columns, size_t env)
{
  for (uint32_t i = 0; i < transitions->num_kept; i++) {
    const rv_kept_column *kept = &transitions->kept[i];
    if (kept->next == RV_NO_COLUMN || kept->frames == 1 || kept->frame_bytes == 0) continue;
    const uint8_t *now = rv_given_row(transitions, columns, kept->column, env),
                  *next = rv_given_row(transitions, columns, kept->next, env);
    if (memcmp(now + kept->frame_bytes, next, (kept->frames - 1) * kept->frame_bytes) != 0) return RV_KIND_APART;
  }
  return RV_KIND_SHARED;
}

/* ---- what is given ---- */

static rv_code check_not_closed(const rv_transitions *transitions, rv_error *err)
{
  if (!transitions->closed) return RV_OK;
  return rv_fail(err, RV_FAILED_PRECONDITION, "close has been called on this transitions writer; make a new one");
}

static rv_code check_open(const rv_transitions *transitions, rv_error *err)
{
  rv_code code = check_not_closed(transitions, err);
  return code == RV_OK ? rv_client_check(transitions->client, err) : code;
}

/* [num_envs, ...row] of something that can be stored. */
static rv_code check_given(const rv_transitions *transitions, const rv_tensor *column, uint32_t index, size_t *row_bytes,
                           rv_error *err)
{
  char label[LABEL_MAX];
  const rv_given_column *given = &transitions->given[index];
  const rv_kept_column *kept = &transitions->kept[given->kept];
  label_of(given, index, label);
  if (column->dtype == RV_STRING)
    return rv_fail(err, RV_UNIMPLEMENTED, "%s holds strings, which a transitions writer does not take; add_batch does", label);
  if (column->rank == 0 || column->rank > RV_MAX_RANK + 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s has %u dimensions; a step is given as [%zu, ...row], one row an environment",
                   label, (unsigned)column->rank, transitions->num_envs);
  if (column->shape == NULL) {
    rv_code code = rv_fail_no_shape(err, column->rank);
    rv_error_prefix(err, "%s", label);
    return code;
  }
  if (column->shape[0] < 0 || (uint64_t)column->shape[0] != transitions->num_envs)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s has %lld rows; this writer has %zu environments, and each has one row a step",
                   label, (long long)column->shape[0], transitions->num_envs);
  size_t elements, bytes;
  rv_code code = rv_shape_elements(column->dtype, column->rank, column->shape, &elements, &bytes, err);
  if (code == RV_OK && bytes > 0 && column->data == NULL) code = rv_fail(err, RV_INVALID_ARGUMENT, "it has no data");
  if (code == RV_OK && kept->frames > 1 && (column->rank < 2 || column->shape[1] != (int64_t)kept->frames)) {
    char got[96];
    code = rv_fail(
        err, RV_INVALID_ARGUMENT,
        "it is a stack of %u frames, which are the first dimension of its rows, but they are %s; move the frames there, or "
        "say how many there are",
        (unsigned)kept->frames, rv_format_spec(got, sizeof got, column->dtype, (int32_t)column->rank - 1, column->shape + 1));
  }
  if (code != RV_OK) rv_error_prefix(err, "%s", label);
  *row_bytes = bytes / transitions->num_envs;
  return code;
}

static bool fits_frame(const rv_transitions *transitions, const rv_tensor *column, uint32_t index)
{
  const rv_kept_column *kept = &transitions->kept[transitions->given[index].kept];
  const rv_spec *frame = &kept->frame;
  uint32_t skipped = kept->frames > 1 ? 2 : 1;
  if (column->dtype != frame->dtype || column->rank != (uint32_t)frame->rank + skipped) return false;
  if (skipped == 2 && column->shape[1] != (int64_t)kept->frames) return false;
  for (int32_t d = 0; d < frame->rank; d++)
    if (column->shape[(uint32_t)d + skipped] != frame->shape[d]) return false;
  return true;
}

static rv_code fail_unlike(const rv_transitions *transitions, const rv_tensor *column, uint32_t index, const char *what,
                           rv_error *err)
{
  char label[LABEL_MAX], want[96], got[96];
  const rv_kept_column *kept = &transitions->kept[transitions->given[index].kept];
  int64_t shape[RV_MAX_RANK + 1];
  uint32_t rank = 0;
  if (kept->frames > 1) shape[rank++] = (int64_t)kept->frames;
  for (int32_t d = 0; d < kept->frame.rank; d++) shape[rank++] = kept->frame.shape[d];
  return rv_fail(err, RV_INVALID_ARGUMENT, "%s: got rows of %s, %s %s", label_of(&transitions->given[index], index, label),
                 rv_format_spec(got, sizeof got, column->dtype, (int32_t)column->rank - 1, column->shape + 1), what,
                 rv_format_spec(want, sizeof want, kept->frame.dtype, (int32_t)rank, shape));
}

/* The first step: its columns' dtypes and shapes become the writer's. */
static rv_code fix(rv_transitions *transitions, const rv_tensor *columns, rv_error *err)
{
  size_t num_sizes = 1;
  for (uint32_t i = 0; i < transitions->num_columns; i++) num_sizes += columns[i].rank;
  free(transitions->sizes);
  int64_t *sizes = transitions->sizes = malloc(num_sizes * sizeof *sizes);
  if (sizes == NULL) return rv_fail_memory(err, num_sizes * sizeof *sizes);
  for (uint32_t i = 0; i < transitions->num_columns; i++) {
    if (transitions->given[i].is_next) continue;
    rv_kept_column *kept = &transitions->kept[transitions->given[i].kept];
    uint32_t skipped = kept->frames > 1 ? 2 : 1;
    kept->frame = (rv_spec){.name = "", .dtype = columns[i].dtype, .rank = (int32_t)(columns[i].rank - skipped), .shape = sizes};
    kept->frame_bytes = transitions->given[i].row_bytes / kept->frames;
    for (uint32_t d = skipped; d < columns[i].rank; d++) *sizes++ = columns[i].shape[d];
  }
  for (uint32_t i = 0; i < transitions->num_columns; i++)
    if (!fits_frame(transitions, &columns[i], i))
      return fail_unlike(transitions, &columns[i], i, "and it is next of a column of", err);
  return RV_OK;
}

static rv_code check_known(const rv_transitions *transitions, const rv_tensor *columns, rv_error *err)
{
  char label[LABEL_MAX];
  for (uint32_t i = 0; i < transitions->num_columns; i++) {
    const rv_tensor *column = &columns[i];
    if (column->rank > 0 && column->shape != NULL && column->shape[0] == (int64_t)transitions->num_envs &&
        fits_frame(transitions, column, i)) {
      if (column->data == NULL && transitions->given[i].row_bytes > 0)
        return rv_fail(err, RV_INVALID_ARGUMENT, "%s: it has no data", label_of(&transitions->given[i], i, label));
      continue;
    }
    size_t unused;
    rv_code code = check_given(transitions, column, i, &unused, err);
    return code != RV_OK ? code : fail_unlike(transitions, column, i, "the first step's were", err);
  }
  return RV_OK;
}

static rv_code begin(rv_transitions *transitions, const rv_tensor *columns, rv_error *err)
{
  for (uint32_t i = 0; i < transitions->num_columns; i++) {
    rv_code code = check_given(transitions, &columns[i], i, &transitions->given[i].row_bytes, err);
    if (code != RV_OK) return code;
  }
  rv_code code = fix(transitions, columns, err);
  if (code == RV_OK)
    code = transitions->client->store != NULL ? rv_local_transitions_new(transitions, err)
                                              : rv_remote_transitions_new(transitions, err);
  transitions->known = code == RV_OK;
  return code;
}

static rv_code check_priorities(const rv_transitions *transitions, const double *priorities, rv_error *err)
{
  for (size_t i = 0; priorities != NULL && i < transitions->num_envs; i++)
    if (priorities[i] != priorities[i] && rv_row_is_taken(transitions, i))
      return rv_fail(err, RV_INVALID_ARGUMENT, "the priority of environment %zu is nan (not a number)", i);
  return RV_OK;
}

/* ---- the verbs ---- */

/* A first step that was refused fixes nothing. One that ran out of time may come again, to a server that was asked already. */
static void take_back_first(rv_transitions *transitions, rv_code code)
{
  if (transitions->begun || code == RV_OK || code == RV_DEADLINE_EXCEEDED || code == RV_CANCELLED) return;
  end(transitions);
  transitions->known = false;
}

static size_t count_taken(const rv_transitions *transitions)
{
  size_t n = 0;
  for (size_t env = 0; env < transitions->num_envs; env++) n += rv_row_is_taken(transitions, env);
  return n;
}

static rv_code add_step(rv_transitions *transitions, const rv_tensor *columns, size_t num_columns, const double *priorities,
                        size_t *added, const rv_wait *wait, rv_error *err)
{
  rv_code code = check_open(transitions, err);
  if (code == RV_OK && num_columns != transitions->num_columns)
    code = rv_fail(err, RV_INVALID_ARGUMENT, "the step has %zu columns; this writer's rows have %u", num_columns,
                   (unsigned)transitions->num_columns);
  if (code == RV_OK) code = check_priorities(transitions, priorities, err);
  if (code == RV_OK) code = transitions->known ? check_known(transitions, columns, err) : begin(transitions, columns, err);
  if (code != RV_OK) return code;
  code = transitions->local != NULL ? rv_local_transitions_add(transitions, columns, priorities, added, wait, err)
                                    : rv_remote_transitions_add(transitions, columns, priorities, added, wait, err);
  transitions->begun |= *added > 0;
  take_back_first(transitions, code);
  if (code != RV_OK && *added > 0)
    rv_error_prefix(err, "%zu of the step's %zu rows were added, in the environments' order", *added, count_taken(transitions));
  return code;
}

rv_code rv_transitions_add_where(rv_transitions *transitions, const rv_tensor *columns, size_t num_columns,
                                 const double *priorities, const bool *where, size_t *added, const rv_wait *wait, rv_error *err)
{
  size_t ignored;
  if (added == NULL) added = &ignored;
  *added = 0;
  transitions->where = where;
  rv_code code = add_step(transitions, columns, num_columns, priorities, added, wait, err);
  transitions->where = NULL;
  return code;
}

rv_code rv_transitions_add(rv_transitions *transitions, const rv_tensor *columns, size_t num_columns, const double *priorities,
                           size_t *added, const rv_wait *wait, rv_error *err)
{
  return rv_transitions_add_where(transitions, columns, num_columns, priorities, NULL, added, wait, err);
}

/* In process there is nothing to wait for, for which the client would be needed. */
static rv_code check_to_wait(const rv_transitions *transitions, rv_error *err)
{
  rv_code code = check_not_closed(transitions, err);
  return code == RV_OK && !rv_client_is_here(transitions->client) ? rv_client_fail_gone(transitions->client, err) : code;
}

rv_code rv_transitions_flush(rv_transitions *transitions, const rv_wait *wait, rv_error *err)
{
  rv_code code = check_to_wait(transitions, err);
  return code == RV_OK && transitions->remote != NULL ? rv_remote_transitions_flush(transitions, wait, err) : code;
}

rv_code rv_transitions_settle(rv_transitions *transitions, const rv_wait *wait, rv_error *err)
{
  rv_code code = check_to_wait(transitions, err);
  return code == RV_OK && transitions->remote != NULL ? rv_remote_transitions_settle(transitions, wait, err) : code;
}

rv_code rv_transitions_take_failure(rv_transitions *transitions, rv_error *err)
{
  if (transitions->remote != NULL) return rv_remote_transitions_take_failure(transitions, err);
  rv_code code = transitions->untold.code;
  if (code != RV_OK) rv_error_copy(err, &transitions->untold);
  transitions->untold.code = RV_OK;
  return code;
}

size_t rv_transitions_discard_failed(rv_transitions *transitions)
{
  return transitions->remote != NULL ? rv_remote_transitions_discard_failed(transitions) : 0;
}
