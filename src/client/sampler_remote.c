#include "client/sampler_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/explain.h"
#include "client/sample.h"
#include "store/gather.h"

/* ---- references ---- */

void rv_remote_sampler_ref(rv_remote_sampler *sampler)
{
  atomic_fetch_add_explicit(&sampler->refs, 1, memory_order_relaxed);
}

void rv_remote_sampler_unref(rv_remote_sampler *sampler)
{
  if (atomic_fetch_sub_explicit(&sampler->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < sampler->count; i++) rv_draw_release(&sampler->ready[(sampler->head + i) & (sampler->capacity - 1)]);
  for (uint32_t i = 0; i < sampler->common.num_streams; i++) rv_receiver_fini(&sampler->streams[i].receiver);
  if (sampler->has_unchecked) rv_draw_release(&sampler->unchecked);
  rv_received_check_fini(&sampler->check);
  rv_mutex_fini(&sampler->mutex);
  free(sampler->ready);
  free(sampler->common.table);
  free(sampler);
}

/* ---- from the loop to the consumer ---- */

/* Under the mutex: half a window was taken since the loop saw it last. */
static bool is_due(const rv_remote_sampler *sampler)
{
  return sampler->consumed * 2 >= sampler->window;
}

static rv_code reserve_ready(rv_remote_sampler *sampler, size_t more)
{
  if (sampler->capacity - sampler->count >= more) return RV_OK;
  size_t capacity = sampler->capacity == 0 ? 4 : sampler->capacity;
  while (capacity - sampler->count < more) capacity *= 2;
  rv_draw *grown = malloc(capacity * sizeof *grown);
  if (grown == NULL) return RV_RESOURCE_EXHAUSTED;
  for (size_t i = 0; i < sampler->count; i++) grown[i] = sampler->ready[(sampler->head + i) & (sampler->capacity - 1)];
  free(sampler->ready);
  sampler->ready = grown;
  sampler->capacity = capacity;
  sampler->head = 0;
  return RV_OK;
}

/* The consumer sleeps only while nothing is ready: it is woken then and not otherwise. Under the mutex. */
static void wake(rv_remote_sampler *sampler)
{
  if (!sampler->waiting) return;
  rv_remote_sampler_end_waiting(sampler);
  rv_gate_open(&sampler->gate);
}

static void note_connection(rv_remote_sampler *sampler)
{
  uint64_t losses = rv_client_losses(sampler->common.client);
  if (losses == sampler->losses.now) return;
  sampler->losses.before = sampler->losses.now;
  sampler->losses.now = losses;
  sampler->losses.since = sampler->handed_out + (int64_t)sampler->count;
}

bool rv_remote_sampler_pours(rv_remote_sampler *sampler)
{
  rv_mutex_lock(&sampler->mutex);
  bool pours = sampler->pour != NULL;
  rv_mutex_unlock(&sampler->mutex);
  return pours;
}

/* Under the mutex: into the arrays of who waits. False: what was to be copied is not lent any more. */
static bool pour(rv_remote_sampler *sampler, const rv_draw *draws, size_t n, rv_call *gapped, size_t *poured)
{
  *poured = 0;
  if (sampler->pour == NULL) return gapped == NULL || rv_call_fill_gaps(gapped);
  if (gapped != NULL) return rv_remote_sampler_pour_run(sampler, draws, n, gapped, poured);
  *poured = rv_remote_sampler_pour(sampler, draws, n);
  return true;
}

rv_code rv_remote_sampler_deliver(rv_remote_sampler *sampler, rv_draw *draws, size_t n, rv_call *gapped, bool *due)
{
  size_t poured;
  rv_mutex_lock(&sampler->mutex);
  note_connection(sampler);
  if (!pour(sampler, draws, n, gapped, &poured)) {
    rv_mutex_unlock(&sampler->mutex);
    rv_draws_release(draws, n);
    return RV_UNAVAILABLE;
  }
  rv_code code = reserve_ready(sampler, n - poured);
  for (size_t i = poured; i < n && code == RV_OK; i++)
    sampler->ready[(sampler->head + sampler->count++) & (sampler->capacity - 1)] = draws[i];
  bool asleep = code == RV_OK && sampler->waiting && (poured < n || rv_is_poured(sampler));
  if (asleep) rv_remote_sampler_end_waiting(sampler);
  bool failed = sampler->pour != NULL && sampler->pour->code != RV_OK;
  if (poured < n || failed) sampler->pour = NULL; /* what comes now comes after those, and after he was told */
  *due = poured > 0 && is_due(sampler);
  rv_mutex_unlock(&sampler->mutex);
  if (asleep) rv_gate_open(&sampler->gate); /* without the mutex, which it takes at once */
  rv_draws_release(draws, code == RV_OK ? poured : n);
  return code;
}

void rv_remote_sampler_end(rv_remote_sampler *sampler, const rv_error *error)
{
  rv_mutex_lock(&sampler->mutex);
  if (!sampler->ended) {
    sampler->ended = true;
    sampler->end_error = *error;
  }
  wake(sampler);
  rv_mutex_unlock(&sampler->mutex);
}

static bool is_exhausted(const rv_remote_sampler *sampler)
{
  return sampler->handed_out >= sampler->common.max_samples && !sampler->resumes;
}

static bool is_resting(const rv_remote_sampler *sampler)
{
  return is_exhausted(sampler) && !sampler->ended;
}

void rv_remote_sampler_ask_on(rv_remote_sampler *sampler, bool on)
{
  rv_mutex_lock(&sampler->mutex);
  sampler->common.max_samples = on ? INT64_MAX : sampler->asked;
  if (is_exhausted(sampler)) wake(sampler);
  rv_mutex_unlock(&sampler->mutex);
}

void rv_remote_sampler_note_ask(rv_remote_sampler *sampler, int64_t now_ns)
{
  rv_mutex_lock(&sampler->mutex);
  rv_ask_log_from(&sampler->asks, sampler->handed_out);
  rv_ask_log_add(&sampler->asks, sampler->asked, now_ns);
  rv_mutex_unlock(&sampler->mutex);
}

/* ---- the consumer ---- */

static void pump(rv_task *task)
{
  rv_remote_sampler *sampler = RV_CONTAINER(task, rv_remote_sampler, pump);
  rv_mutex_lock(&sampler->mutex);
  sampler->told = false; /* from here on the task may be posted again */
  rv_mutex_unlock(&sampler->mutex);
  rv_sample_streams_pump(sampler);
}

bool rv_remote_sampler_must_tell(rv_remote_sampler *sampler)
{
  if (sampler->told || is_exhausted(sampler)) return false;
  bool due = sampler->waiting || sampler->wanted || is_due(sampler);
  if (due) sampler->told = true;
  return due;
}

void rv_remote_sampler_tell(rv_remote_sampler *sampler, bool must)
{
  if (must) rv_loop_post(sampler->common.client->loop, &sampler->pump);
}

void rv_remote_sampler_begin_waiting(rv_remote_sampler *sampler, const rv_patience *patience, rv_pour *pour)
{
  sampler->waiting = patience->wait.timeout_ms != 0;
  sampler->wanted = true;
  sampler->pour = pour;
  if (sampler->starved_ns == 0) sampler->starved_ns = rv_monotonic_ns(&sampler->common.client->env);
}

void rv_remote_sampler_end_waiting(rv_remote_sampler *sampler)
{
  sampler->waiting = false;
  sampler->pour = NULL;
}

static const rv_draw *ready_at(const rv_remote_sampler *sampler, size_t i)
{
  return &sampler->ready[(sampler->head + i) & (sampler->capacity - 1)];
}

size_t rv_remote_sampler_count_ready(const rv_remote_sampler *sampler, const rv_sink *sink, size_t want)
{
  size_t n = sampler->count < want ? sampler->count : want, fitting = 0;
  while (fitting < n && (sink == NULL || rv_sink_count_fitting(sink, ready_at(sampler, fitting), 1) == 1)) fitting++;
  return fitting;
}

void rv_remote_sampler_look_at_ready(const rv_remote_sampler *sampler, size_t first, rv_draw *out, size_t n)
{
  for (size_t i = 0; i < n; i++) out[i] = *ready_at(sampler, first + i);
}

size_t rv_remote_sampler_take_ready(rv_remote_sampler *sampler, const rv_sink *sink, rv_draw *out, size_t want)
{
  size_t n = rv_remote_sampler_count_ready(sampler, sink, want);
  if (n == 0) return 0;
  rv_remote_sampler_look_at_ready(sampler, 0, out, n);
  sampler->count -= n;
  sampler->head = sampler->count == 0 ? 0 : (sampler->head + n) & (sampler->capacity - 1); /* 0: whose memory was used last */
  sampler->handed_out += (int64_t)n;
  sampler->consumed += (int64_t)n;
  sampler->starved_ns = 0;
  return n;
}

rv_code rv_remote_sampler_check_over(const rv_remote_sampler *sampler, rv_error *err)
{
  if (is_exhausted(sampler)) return rv_sampler_end_by_count(&sampler->common, err);
  return sampler->ended ? rv_error_copy(err, &sampler->end_error) : RV_OK;
}

/* Under the mutex. RV_OK: a sample was taken, or nothing speaks against waiting for one (*taken says which). */
static rv_code look(rv_remote_sampler *sampler, rv_draw *out, bool *taken, rv_error *err)
{
  *taken = false;
  if (sampler->cancelled) return rv_sampler_end_by_cancel(&sampler->common, err);
  *taken = sampler->has_unchecked || rv_remote_sampler_take_ready(sampler, NULL, out, 1) == 1;
  if (sampler->has_unchecked) *out = sampler->unchecked;
  sampler->has_unchecked = false;
  return *taken ? RV_OK : rv_remote_sampler_check_over(sampler, err);
}

static rv_code take(rv_remote_sampler *sampler, rv_patience *patience, rv_draw *out, rv_error *err)
{
  rv_error gave_up;
  rv_code code = RV_OK;
  for (;;) {
    bool taken;
    rv_mutex_lock(&sampler->mutex);
    rv_remote_sampler_end_waiting(sampler);
    rv_code seen = look(sampler, out, &taken, err);
    bool waits = seen == RV_OK && !taken && code == RV_OK;
    if (waits) rv_remote_sampler_begin_waiting(sampler, patience, NULL);
    bool must = seen == RV_OK && rv_remote_sampler_must_tell(sampler);
    rv_mutex_unlock(&sampler->mutex);
    if (waits && must)
      rv_gate_ask(&sampler->gate, &sampler->pump, patience);
    else
      rv_remote_sampler_tell(sampler, must);
    if (seen != RV_OK || taken) return seen;
    if (code != RV_OK) return rv_error_copy(err, &gave_up);
    code = rv_gate_wait(&sampler->gate, patience, &gave_up); /* then one more look */
  }
}

size_t rv_remote_sampler_take_many(rv_sampler *common, int64_t window, size_t want, rv_draw *draws, rv_patience *patience,
                                   int64_t until_ns, bool *rests)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  size_t count = 0;
  for (bool last = false;;) {
    rv_mutex_lock(&sampler->mutex);
    sampler->batches = window;
    count += rv_remote_sampler_take_ready(sampler, NULL, draws + count, want - count);
    bool over = last || count == want || is_exhausted(sampler) || sampler->cancelled || sampler->ended;
    sampler->waiting = !over;
    *rests = is_resting(sampler);
    bool must = rv_remote_sampler_must_tell(sampler);
    rv_mutex_unlock(&sampler->mutex);
    rv_remote_sampler_tell(sampler, must);
    if (over) return count;
    bool opened;
    last = rv_gate_wait_until(&sampler->gate, patience, until_ns, &opened, NULL) != RV_OK || !opened;
  }
}

bool rv_remote_sampler_rests(rv_sampler *common, int64_t *next_asked_ns)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  rv_mutex_lock(&sampler->mutex);
  bool rests = is_resting(sampler);
  *next_asked_ns = rv_ask_log_from(&sampler->asks, sampler->handed_out);
  rv_mutex_unlock(&sampler->mutex);
  return rests;
}

void rv_remote_sampler_resume(rv_sampler *common)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  rv_mutex_lock(&sampler->mutex);
  sampler->resumes = true;
  rv_mutex_unlock(&sampler->mutex);
}

static void describe(void *context, char *out, size_t capacity)
{
  rv_remote_sampler *sampler = context;
  rv_client *client = sampler->common.client;
  char state[64];
  rv_client_state(client, state, sizeof state);
  if (strncmp(state, "connected", 9) != 0)
    rv_describe_server(client, "SampleStream", out, capacity);
  else if (!sampler->ask_server || !rv_explain_table(client, sampler->common.table, false, out, capacity))
    snprintf(out, capacity, "waits for a sample of table \"%s\" from %s", sampler->common.table, client->address);
}

/* What is there already needs no clock. */
static rv_code take_at_once(rv_remote_sampler *sampler, rv_draw *out, bool *taken, rv_error *err)
{
  rv_mutex_lock(&sampler->mutex);
  rv_code code = look(sampler, out, taken, err);
  bool must = *taken && rv_remote_sampler_must_tell(sampler);
  rv_mutex_unlock(&sampler->mutex);
  rv_remote_sampler_tell(sampler, must);
  return code;
}

void rv_remote_sampler_begin_patience(rv_remote_sampler *sampler, const rv_wait *wait, rv_patience *patience)
{
  rv_client_begin_patience(sampler->common.client, patience, wait, describe, sampler);
  rv_sampler_wait_on(&sampler->common, patience);
  bool is_read = !sampler->common.goes_on_waiting || patience->log_ns <= patience->deadline_ns;
  sampler->ask_server = is_read && rv_patience_is_long(patience);
}

static rv_code take_and_check(rv_remote_sampler *sampler, const rv_wait *wait, bool taken, rv_draw *draw, rv_error *err)
{
  rv_client *client = sampler->common.client;
  rv_patience patience;
  rv_remote_sampler_begin_patience(sampler, wait, &patience);
  rv_code code = taken ? RV_OK : take(sampler, &patience, draw, err);
  if (code != RV_OK) {
    rv_sampler_has_waited(&sampler->common, &patience);
    return code;
  }
  code = rv_check_received(&sampler->check, client, sampler->common.table, draw, &patience, err);
  sampler->has_unchecked = code == RV_DEADLINE_EXCEEDED || code == RV_CANCELLED;
  if (sampler->has_unchecked)
    sampler->unchecked = *draw;
  else if (code != RV_OK)
    rv_draw_release(draw);
  return code;
}

static rv_code next(rv_sampler *common, const rv_wait *wait, rv_sample **out, rv_error *err)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  rv_draw draw;
  bool taken;
  rv_code code = take_at_once(sampler, &draw, &taken, err);
  if (code == RV_OK && (!taken || !rv_is_checked(&sampler->check, &draw)))
    code = take_and_check(sampler, wait, taken, &draw, err);
  return code == RV_OK ? rv_sample_new_received(&draw, out, err) : code;
}

static uint64_t losses(rv_sampler *common)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  rv_mutex_lock(&sampler->mutex);
  uint64_t of_last = sampler->handed_out > sampler->losses.since ? sampler->losses.now : sampler->losses.before;
  rv_mutex_unlock(&sampler->mutex);
  return of_last;
}

static void cancel(rv_sampler *common)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  rv_mutex_lock(&sampler->mutex);
  sampler->cancelled = true;
  wake(sampler);
  bool must = !sampler->told;
  sampler->told = true;
  rv_mutex_unlock(&sampler->mutex);
  rv_remote_sampler_tell(sampler, must);
}

static void close_streams(rv_task *task)
{
  rv_remote_sampler *sampler = RV_CONTAINER(task, rv_remote_sampler, close);
  rv_sample_streams_close(sampler);
  rv_remote_sampler_unref(sampler);
}

/* Its owner's reference is the task's from here on. */
static void free_sampler(rv_sampler *common)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  rv_loop_hand(common->client->loop, &sampler->close); /* behind a pump that is posted */
}

static int64_t window(rv_sampler *common)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  rv_mutex_lock(&sampler->mutex);
  int64_t each = sampler->window;
  rv_mutex_unlock(&sampler->mutex);
  if (each < common->max_in_flight_samples) each = common->max_in_flight_samples;
  return each * common->num_streams;
}

static const rv_sampler_ops ops = {.next = next,
                                   .take_into = rv_remote_sampler_take_into,
                                   .window = window,
                                   .losses = losses,
                                   .cancel = cancel,
                                   .free = free_sampler};

rv_code rv_sampler_new_remote(const rv_sampler *owned_common, rv_sampler **out, rv_error *err)
{
  size_t size = sizeof(rv_remote_sampler) + owned_common->num_streams * sizeof(rv_sample_stream);
  rv_remote_sampler *sampler = calloc(1, size);
  rv_code code = sampler == NULL ? rv_fail_memory(err, size) : rv_client_connect(owned_common->client, err);
  if (code != RV_OK) {
    free(sampler);
    free(owned_common->table);
    return code;
  }
  sampler->common = *owned_common;
  sampler->common.ops = &ops;
  atomic_init(&sampler->refs, 1);
  rv_mutex_init(&sampler->mutex, RV_RANK_CLIENT, "sampler");
  rv_gate_init_at(&sampler->gate, sampler->common.client->loop, sampler->common.client->channel);
  sampler->pump.run = pump;
  sampler->close.run = close_streams;
  sampler->window = 1;
  sampler->losses.before = sampler->losses.now = rv_client_losses(sampler->common.client);
  rv_sample_streams_init(sampler);
  *out = &sampler->common;
  return RV_OK;
}
