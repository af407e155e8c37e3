#include "tf_source.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "client/sample.h"
#include "client/sampler.h"
#include "interrupts.h"
#include "tf_rows.h"

enum { WAIT_MS = 100, BLOCK_MOST = 1024 };
#define BLOCK_BYTES ((size_t)4 << 20)

struct tf_source {
  atomic_size_t refs;
  atomic_bool closed;
  pthread_mutex_t mutex; /* of all below */
  rv_sampler *sampler;   /* NULL: closed */
  pool *buffers;
  tf_source_config config;
  char *table;
  rv_spec *specs;
  int64_t (*shapes)[RV_MAX_RANK + 1];
  bool one_kind; /* its samples must look alike and have no strings, and can be copied as they arrive */
  size_t most;   /* samples of a block */
  bool ended;
  int64_t starved_ns; /* since when a sample is waited for; 0: none is */
  int64_t turn_ns;    /* when this turn began */
  bool last_turn;     /* at its end all time is up */
  bool interrupted;
  tf_rows *rows; /* for samples like those of the last block, when none is held; NULL: they are held */
  rv_sample **held;
  size_t num_held, capacity;
  rv_sample_column *columns; /* one for each spec: of the samples that are held */
};

static rv_code fail(rv_error *err, rv_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static rv_code fail(rv_error *err, rv_code code, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  err->code = code;
  vsnprintf(err->message, sizeof err->message, format, args);
  va_end(args);
  return code;
}

static size_t least(const tf_source *source)
{
  return source->config.batch == 0 ? 1 : source->config.batch;
}

/* At most so many samples, in whole batches. */
static size_t whole(const tf_source *source, size_t samples)
{
  size_t each = least(source);
  return source->config.alone || samples < each ? each : samples / each * each;
}

static bool has_one_kind(const tf_source *source)
{
  bool one = rv_sampler_can_take_into(source->sampler) && !source->config.timesteps;
  for (size_t c = 0; c < source->config.num_specs; c++) {
    const rv_spec *spec = &source->specs[c];
    one = one && spec->dtype != RV_STRING && spec->rank >= 0;
    for (int32_t d = 0; d < spec->rank; d++) one = one && spec->shape[d] >= 0;
  }
  return one;
}

static void source_free(tf_source *source)
{
  if (!atomic_load(&source->closed)) interrupts_end();
  tf_rows_free(source->rows);
  pthread_mutex_destroy(&source->mutex);
  free(source->table);
  free(source->specs);
  free(source->shapes);
  free(source->columns);
  free((void *)source->held);
  free(source);
}

tf_source *tf_source_new(const tf_source_config *config, rv_sampler *sampler, pool *buffers)
{
  tf_source *source = calloc(1, sizeof *source);
  if (source == NULL) return NULL;
  atomic_init(&source->refs, 1);
  pthread_mutex_init(&source->mutex, NULL);
  interrupts_begin(); /* until it is closed */
  source->config = *config;
  source->sampler = sampler;
  source->buffers = buffers;
  source->most = whole(source, BLOCK_MOST);
  source->table = strdup(config->table);
  source->specs = calloc(config->num_specs + 1, sizeof *source->specs);
  source->shapes = calloc(config->num_specs + 1, sizeof *source->shapes);
  source->columns = calloc(config->num_specs + 1, sizeof *source->columns);
  if (source->table == NULL || source->specs == NULL || source->shapes == NULL || source->columns == NULL) {
    source_free(source);
    return NULL;
  }
  for (size_t i = 0; i < config->num_specs; i++) {
    source->specs[i] = config->specs[i];
    for (int32_t d = 0; d < config->specs[i].rank; d++) source->shapes[i][d] = config->specs[i].shape[d];
    source->specs[i].shape = source->shapes[i];
  }
  source->one_kind = has_one_kind(source);
  return source;
}

tf_source *tf_source_ref(tf_source *source)
{
  atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
  return source;
}

void tf_source_unref(tf_source *source)
{
  if (source != NULL && atomic_fetch_sub_explicit(&source->refs, 1, memory_order_acq_rel) == 1) source_free(source);
}

size_t tf_source_columns(const tf_source *source)
{
  return source->config.num_specs;
}

rv_dtype tf_source_dtype(const tf_source *source, size_t column)
{
  return source->specs[column].dtype;
}

static void drop(tf_source *source, size_t n)
{
  for (size_t i = 0; i < n; i++) rv_sample_unref(source->held[i]);
  source->num_held -= n;
  if (source->num_held > 0) memmove((void *)source->held, (void *)(source->held + n), source->num_held * sizeof *source->held);
}

void tf_source_close(tf_source *source)
{
  if (atomic_exchange(&source->closed, true)) return;
  if (!rv_client_is_here(source->sampler->client)) return; /* a forked child: its locks may be held for ever */
  interrupts_end();
  rv_sampler_cancel(source->sampler);
  pthread_mutex_lock(&source->mutex);
  drop(source, source->num_held);
  tf_rows_free(source->rows);
  source->rows = NULL;
  source->sampler = NULL;
  source->buffers = NULL;
  source->ended = true;
  pthread_mutex_unlock(&source->mutex);
}

/* ---- drawing ---- */

static bool grow(tf_source *source)
{
  size_t capacity = source->capacity == 0 ? 64 : 2 * source->capacity;
  rv_sample **more = realloc((void *)source->held, capacity * sizeof *more);
  if (more == NULL) return false;
  source->held = more;
  source->capacity = capacity;
  return true;
}

static int64_t now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void begin_to_wait(void *context)
{
  tf_source *source = context;
  if (source->starved_ns == 0) source->starved_ns = interrupts_await(); /* else it goes on waiting */
}

static bool is_interrupted(void *context)
{
  tf_source *source = context;
  source->interrupted = interrupts_stuck(source->starved_ns);
  return source->interrupted;
}

/* What is left of the time to wait for a sample. */
static int64_t left_ms(const tf_source *source)
{
  int64_t waited_ns = source->starved_ns == 0 ? 0 : now_ns() - source->starved_ns;
  return source->config.timeout_ms - waited_ns / 1000000;
}

/* No sample came in this turn. RV_OK: there may be others; else all time is up. `err` has what it waits for. */
static rv_code wait_on(tf_source *source, rv_error *err)
{
  int64_t timeout_ms = source->config.timeout_ms;
  if (!source->last_turn || left_ms(source) > 0) return RV_OK;
  source->starved_ns = 0;
  char said[RV_ERROR_MESSAGE_MAX];
  snprintf(said, sizeof said, "%s", err->message);
  const char *what = strstr(said, ": "); /* behind how long this turn was */
  return fail(err, RV_DEADLINE_EXCEEDED, "timed out after %g s: %s", (double)timeout_ms * 1e-3, what == NULL ? said : what + 2);
}

static int64_t turn_ms(const tf_source *source)
{
  int64_t timeout_ms = source->config.timeout_ms;
  return timeout_ms >= 0 && timeout_ms < WAIT_MS ? timeout_ms : WAIT_MS;
}

static rv_wait begin_turn(tf_source *source)
{
  source->interrupted = false;
  source->turn_ns = now_ns();
  source->last_turn = source->config.timeout_ms >= 0 && left_ms(source) <= WAIT_MS;
  source->sampler->goes_on_waiting = !source->last_turn;
  return (rv_wait){.timeout_ms = turn_ms(source), .interrupted = is_interrupted, .blocking = begin_to_wait, .context = source};
}

/* The turn's time passed without a sample. Where it did not, a deadline is the server's, and as final as any other error of its. */
static bool turn_is_over(tf_source *source, rv_code code)
{
  if (code != RV_DEADLINE_EXCEEDED || now_ns() - source->turn_ns < turn_ms(source) * 1000000) return false;
  if (source->starved_ns == 0) source->starved_ns = source->turn_ns;
  return true;
}

/* Waits a turn for a sample, which is held then. RV_OK without one: the caller may come again. */
static rv_code await(tf_source *source, rv_error *err)
{
  rv_wait wait = begin_turn(source);
  rv_code code = rv_sampler_next(source->sampler, &wait, &source->held[source->num_held], err);
  if (turn_is_over(source, code)) return wait_on(source, err);
  source->starved_ns = 0;
  if (code == RV_OK) source->num_held++;
  source->ended = code != RV_OK && !(code == RV_CANCELLED && source->interrupted);
  return code;
}

/* What is there already, or comes without waiting. */
static rv_code take(tf_source *source, rv_error *err)
{
  const rv_wait wait = {.timeout_ms = 0};
  rv_code code = rv_sampler_next(source->sampler, &wait, &source->held[source->num_held], err);
  if (code == RV_OK) source->num_held++;
  source->ended = code != RV_OK && code != RV_DEADLINE_EXCEEDED;
  return code;
}

/* Draws until a batch is held; and on as far as nobody has to wait, as many as may be fetched ahead, where that shows nothing of those that
 * follow. */
static rv_code draw(tf_source *source, rv_error *err)
{
  size_t wanted = least(source), most = source->one_kind ? wanted : source->most;
  int64_t window = rv_sampler_window(source->sampler);
  if ((int64_t)most > window) most = window > (int64_t)wanted ? (size_t)window : wanted;
  rv_code code = RV_OK;
  while (source->num_held < most && code == RV_OK) {
    if (source->num_held == source->capacity && !grow(source))
      return fail(err, RV_RESOURCE_EXHAUSTED, "%zu samples of table \"%s\" could not be held: no memory", source->num_held,
                  source->table);
    size_t held = source->num_held;
    if (held >= wanted) {
      code = take(source, err);
      if (code == RV_DEADLINE_EXCEEDED) return RV_OK;
    } else {
      code = await(source, err);
      if (code == RV_OK && source->num_held == held) return RV_OK;
    }
  }
  return source->ended && (code == RV_OUT_OF_RANGE || atomic_load(&source->closed)) ? RV_OK : code;
}

/* ---- what was drawn ---- */

static bool alike(const rv_sample_column *a, const rv_sample_column *b)
{
  if (a->dtype != b->dtype || a->rank != b->rank || a->length != b->length || a->squeezed != b->squeezed) return false;
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->shape[d] != b->shape[d]) return false;
  return true;
}

/* How many of the first `n` look like the first. */
static size_t count_alike(const tf_source *source, size_t n)
{
  for (size_t i = 1; i < n; i++) {
    if (rv_sample_num_columns(source->held[i]) != source->config.num_specs) return i;
    for (size_t c = 0; c < source->config.num_specs; c++) {
      rv_sample_column column;
      if (rv_sample_get_column(source->held[i], c, &column, NULL) != RV_OK || !alike(&column, &source->columns[c])) return i;
    }
  }
  return n;
}

/* Quantized integers are shown as the integers they are stored as. */
static rv_dtype shown(rv_dtype dtype)
{
  switch (dtype) {
  case RV_QINT8: return RV_INT8;
  case RV_QUINT8: return RV_UINT8;
  case RV_QINT16: return RV_INT16;
  case RV_QUINT16: return RV_UINT16;
  case RV_QINT32: return RV_INT32;
  default: return dtype;
  }
}

/* The sizes of one element of the dataset: a sample's, or a step's. */
static int element_shape(const tf_source *source, const rv_sample_column *column, int64_t *sizes)
{
  int rank = 0;
  if (!column->squeezed && !source->config.timesteps) sizes[rank++] = column->length;
  for (uint32_t d = 0; d < column->rank && rank < TF_MAX_RANK; d++) sizes[rank++] = column->shape[d];
  return rank;
}

static void put_shape(char *out, size_t size, int rank, const int64_t *sizes)
{
  size_t at = (size_t)snprintf(out, size, rank < 0 ? "of any shape" : "[");
  for (int d = 0; d < rank && at < size; d++) {
    const char *comma = d == 0 ? "" : ", ";
    at += (size_t)(sizes[d] < 0 ? snprintf(out + at, size - at, "%sNone", comma)
                                : snprintf(out + at, size - at, "%s%lld", comma, (long long)sizes[d]));
  }
  if (rank >= 0 && at < size) snprintf(out + at, size - at, "]");
}

static rv_code check_column(const tf_source *source, size_t c, rv_error *err)
{
  const rv_sample_column *column = &source->columns[c];
  const rv_spec *spec = &source->specs[c];
  int64_t sizes[TF_MAX_RANK];
  int rank = element_shape(source, column, sizes);
  bool fits = shown(column->dtype) == spec->dtype && (spec->rank < 0 || spec->rank == rank);
  for (int d = 0; fits && spec->rank >= 0 && d < rank; d++) fits = spec->shape[d] < 0 || spec->shape[d] == sizes[d];
  if (fits) return RV_OK;
  char is[256], wanted[256];
  put_shape(is, sizeof is, rank, sizes);
  put_shape(wanted, sizeof wanted, spec->rank, spec->shape);
  return fail(err, RV_INVALID_ARGUMENT,
              "Received incompatible tensor from table \"%s\": tensor %zu is %s %s, the dataset was made for %s %s%s",
              source->table, c, rv_dtype_name(shown(column->dtype)), is, rv_dtype_name(spec->dtype), wanted,
              source->config.timesteps && spec->rank == rank + 1 ? "; steps have no time dimension: give their shapes without it"
                                                                 : "");
}

/* Of the first sample, which is what the dataset was made for if all is well. */
static rv_code look_at_columns(tf_source *source, rv_error *err)
{
  size_t num_columns = rv_sample_num_columns(source->held[0]);
  if (num_columns != source->config.num_specs) {
    return fail(err, RV_INVALID_ARGUMENT,
                "Inconsistent number of tensors: items of table \"%s\" have %zu, the dataset was made for %zu", source->table,
                num_columns, source->config.num_specs);
  }
  rv_code code = RV_OK;
  for (size_t c = 0; c < num_columns && code == RV_OK; c++)
    code = rv_sample_get_column(source->held[0], c, &source->columns[c], err);
  for (size_t c = 0; c < num_columns && code == RV_OK; c++) code = check_column(source, c, err);
  return code;
}

/* A squeezed column has one step. */
static rv_code count_steps(const tf_source *source, size_t *steps, rv_error *err)
{
  *steps = 1;
  if (!source->config.timesteps) return RV_OK;
  for (size_t c = 0; c < source->config.num_specs; c++) {
    const rv_sample_column *column = &source->columns[c];
    size_t length = column->squeezed ? 1 : (size_t)column->length;
    if (c == 0) *steps = length;
    if (length != *steps) {
      return fail(err, RV_INVALID_ARGUMENT,
                  "items of table \"%s\" cannot be decomposed into steps where their columns are of %zu and %zu steps; read "
                  "trajectories instead",
                  source->table, *steps, length);
    }
  }
  return RV_OK;
}

static void fit_most(tf_source *source)
{
  size_t bytes = 1;
  for (size_t c = 0; c < source->config.num_specs; c++) bytes += source->columns[c].bytes;
  size_t fitting = BLOCK_BYTES / bytes;
  source->most = whole(source, fitting < source->most ? fitting : source->most);
}

static rv_code fail_unlike(const tf_source *source, rv_error *err)
{
  return fail(err, RV_INVALID_ARGUMENT,
              "items of table \"%s\" that look different cannot be put into one batch: their columns have other shapes or dtypes",
              source->table);
}

static rv_code choose(tf_source *source, tf_block *out, rv_error *err)
{
  size_t each = least(source), n = source->num_held < source->most ? source->num_held : source->most;
  *out = (tf_block){.going = n > 0 || !source->ended, .steps = 1};
  if (n == 0 || (n < each && !source->ended)) return RV_OK;
  rv_code code = look_at_columns(source, err);
  if (code == RV_OK) code = count_steps(source, &out->steps, err);
  if (code != RV_OK) {
    drop(source, 1); /* else the next call would find it again */
    return code;
  }
  size_t same = count_alike(source, n), wanted = n < each ? n : each;
  if (each > 1 && same < wanted) {
    drop(source, wanted);
    return fail_unlike(source, err);
  }
  if (same < each && source->config.drop_remainder) {
    drop(source, source->num_held);
    out->going = false;
    return RV_OK;
  }
  out->n = same < each ? same : same / each * each;
  fit_most(source);
  return RV_OK;
}

static rv_code draw_and_choose(tf_source *source, tf_block *out, rv_error *err)
{
  rv_code code = source->ended ? RV_OK : draw(source, err);
  return code == RV_OK ? choose(source, out, err) : code;
}

/* ---- copied as they arrive ---- */

/* All that is held goes into this block: what follows may be expected to look the same, and need not be held. Without memory it is. */
static void expect_alike(tf_source *source, const tf_block *block)
{
  if (block->n == 0 || block->n < source->num_held || !source->one_kind) return;
  rv_layout *layout = rv_sample_layout(source->held[0]);
  if (source->rows != NULL && source->rows->layout == layout) return;
  tf_rows_free(source->rows);
  source->rows = tf_rows_new(layout, source->most, source->buffers);
}

static rv_code draw_rows(tf_source *source, bool *unlike, rv_error *err)
{
  tf_rows *rows = source->rows;
  if (!tf_rows_prepare(rows))
    return fail(err, RV_RESOURCE_EXHAUSTED, "no memory for %zu samples of table \"%s\"; lower the batch size, or add memory",
                rows->capacity, source->table);
  rv_wait wait = begin_turn(source);
  size_t before = rows->sink.taken;
  rows->sink.failed = false;
  rv_code code = rv_sampler_take_into(source->sampler, &rows->sink, least(source), rows->capacity, &wait, unlike, err);
  if (turn_is_over(source, code)) {
    if (rows->sink.taken == before) return wait_on(source, err);
    source->starved_ns = now_ns(); /* for the next sample */
    return RV_OK;
  }
  if (*unlike && rows->sink.taken == before) return code; /* the next one must be held: it is waited for as before */
  source->starved_ns = 0;
  if (rows->sink.failed) return code; /* after what cannot be read come others */
  source->ended = code != RV_OK && !(code == RV_CANCELLED && source->interrupted);
  return source->ended && (code == RV_OUT_OF_RANGE || atomic_load(&source->closed)) ? RV_OK : code;
}

/* The next block of samples like those before. false in *made: the next one is not like them, and must be held. */
static rv_code next_in_rows(tf_source *source, tf_block *out, bool *made, rv_error *err)
{
  bool unlike = false;
  rv_code code = source->ended ? RV_OK : draw_rows(source, &unlike, err);
  if (code != RV_OK) return code;
  size_t n = source->rows->sink.taken;
  *made = n > 0 || !unlike;
  if (unlike && n > 0) {
    source->rows->sink.taken = 0;
    return fail_unlike(source, err);
  }
  *out = (tf_block){.going = n > 0 || !source->ended, .steps = 1};
  if (n < least(source) && source->ended && source->config.drop_remainder) {
    source->rows->sink.taken = 0;
    out->going = false;
  } else if (n >= least(source) || source->ended) {
    out->n = n;
    out->in_rows = n > 0;
  }
  return RV_OK;
}

/* ---- the next block ---- */

rv_code tf_source_next(tf_source *source, tf_block *out, rv_error *err)
{
  pthread_mutex_lock(&source->mutex);
  rv_code code = RV_OK;
  bool made = false;
  if (source->rows != NULL && source->num_held == 0) code = next_in_rows(source, out, &made, err);
  if (code == RV_OK && !made) {
    code = draw_and_choose(source, out, err);
    if (code == RV_OK) expect_alike(source, out);
  }
  if (code != RV_OK) pthread_mutex_unlock(&source->mutex);
  return code;
}

void tf_source_done(tf_source *source, const tf_block *block)
{
  if (block->in_rows)
    source->rows->sink.taken = 0;
  else
    drop(source, block->n);
  pthread_mutex_unlock(&source->mutex);
}

pool *tf_source_buffers(tf_source *source)
{
  return source->buffers;
}

/* ---- writing ---- */

int tf_source_leading(const tf_source *source, const tf_block *block, int64_t *sizes)
{
  const tf_source_config *config = &source->config;
  size_t rows = block->n * block->steps;
  if (config->batch == 0 || config->alone) {
    sizes[0] = (int64_t)rows;
    return 1;
  }
  size_t each = rows > 0 && rows < config->batch ? rows : config->batch; /* what is too little for a batch is one, shorter */
  sizes[0] = (int64_t)(rows / each);
  sizes[1] = (int64_t)each;
  return 2;
}

int tf_source_shape(const tf_source *source, const tf_block *block, size_t column, int64_t *sizes)
{
  int rank = tf_source_leading(source, block, sizes);
  const rv_sample_column *shown = block->in_rows ? &source->rows->columns[column].shown : &source->columns[column];
  if (block->n > 0) return rank + element_shape(source, shown, sizes + rank);
  const rv_spec *spec = &source->specs[column];
  for (int32_t d = 0; d < spec->rank; d++) sizes[rank++] = spec->shape[d] < 0 ? 0 : spec->shape[d];
  return rank;
}

static void infos_in_rows(const rv_sink *sink, size_t n, void *const out[TF_INFOS])
{
  memcpy(out[0], sink->fill.keys, n * sizeof *sink->fill.keys);
  memcpy(out[1], sink->fill.probabilities, n * sizeof *sink->fill.probabilities);
  memcpy(out[2], sink->fill.sizes.each, n * sizeof *sink->fill.sizes.each);
  memcpy(out[3], sink->fill.priorities, n * sizeof *sink->fill.priorities);
  memcpy(out[4], sink->fill.times_sampled, n * sizeof *sink->fill.times_sampled);
}

void tf_source_infos(const tf_source *source, const tf_block *block, void *const out[TF_INFOS])
{
  if (block->in_rows) {
    infos_in_rows(&source->rows->sink, block->n, out);
    return;
  }
  uint64_t *keys = out[0];
  double *probabilities = out[1], *priorities = out[3];
  int64_t *table_sizes = out[2];
  int32_t *times_sampled = out[4];
  for (size_t i = 0, row = 0; i < block->n; i++) {
    const rv_sample_info *info = rv_sample_get_info(source->held[i]);
    for (size_t step = 0; step < block->steps; step++, row++) {
      keys[row] = info->key;
      probabilities[row] = info->probability;
      table_sizes[row] = info->table_size;
      priorities[row] = info->priority;
      times_sampled[row] = info->times_sampled;
    }
  }
}

void *tf_source_hand_out(tf_source *source, size_t column, size_t *size)
{
  return tf_rows_hand_out(source->rows, column, size);
}

rv_code tf_source_gather(tf_source *source, const tf_block *block, size_t column, void *out, size_t size, rv_error *err)
{
  if (block->in_rows) {
    if (size > 0) memcpy(out, source->rows->data[column], size);
    return RV_OK;
  }
  size_t each = block->n == 0 ? 0 : size / block->n;
  rv_code code = RV_OK;
  for (size_t i = 0; i < block->n && code == RV_OK; i++)
    code = rv_sample_copy(source->held[i], column, (char *)out + i * each, each, err);
  return code;
}
