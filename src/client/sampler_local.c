/* A sampler over a store in process: each sample is drawn when it is asked for, so nothing is fetched ahead. */
#include <stdlib.h>

#include "client/await.h"
#include "client/sample.h"
#include "client/sampler.h"

typedef struct local_sampler {
  rv_sampler common;
  rv_gate gate;
  int64_t left;     /* of max_samples */
  int64_t asked_ns; /* when the sample that is awaited was first asked for; 0: none is */
  bool ended;       /* by the limiter's timeout */
  rv_draw draw;
  rv_sampling sampling;
  rv_mutex mutex; /* guards what follows; the gate is opened under it, so that who sees `complete` may free the gate */
  bool complete;
  bool cancelled;
} local_sampler;

static void complete(rv_waiter *waiter)
{
  local_sampler *sampler = waiter->context;
  rv_mutex_lock(&sampler->mutex);
  sampler->complete = true;
  rv_gate_open(&sampler->gate);
  rv_mutex_unlock(&sampler->mutex);
}

static void describe(void *context, char *out, size_t capacity)
{
  rv_waiter_explain(context, out, capacity);
}

static bool is_complete(local_sampler *sampler, bool *cancelled)
{
  rv_mutex_lock(&sampler->mutex);
  bool yes = sampler->complete;
  *cancelled = sampler->cancelled;
  rv_mutex_unlock(&sampler->mutex);
  return yes;
}

static void wait_for_completion(local_sampler *sampler)
{
  bool cancelled;
  while (!is_complete(sampler, &cancelled)) rv_gate_wait_forever(&sampler->gate);
}

/* The pending draw is complete (RV_OK), or is taken back for the reason that is returned. */
static rv_code await_draw(local_sampler *sampler, int64_t limiter_ns, rv_patience *patience, rv_error *err)
{
  rv_waiter *waiter = &sampler->sampling.waiter;
  rv_code code = RV_OK;
  char reason[256] = "";
  patience->describe = describe;
  patience->context = waiter;
  patience->memory = rv_table_memory(waiter->table); /* what it waits for may wait for that */
  for (;;) {
    bool cancelled, opened;
    if (is_complete(sampler, &cancelled)) return RV_OK;
    if (cancelled) {
      code = RV_CANCELLED;
      break;
    }
    code = rv_gate_wait_until(&sampler->gate, patience, limiter_ns, &opened, err);
    if (code != RV_OK) break;
    if (!opened) {
      code = RV_OUT_OF_RANGE;
      rv_waiter_explain(waiter, reason, sizeof reason);
      break;
    }
  }
  if (!rv_waiter_cancel(waiter)) {
    wait_for_completion(sampler);
    return RV_OK;
  }
  bool cancelled;
  is_complete(sampler, &cancelled);
  if (cancelled) return rv_sampler_end_by_cancel(&sampler->common, err);
  if (code != RV_OUT_OF_RANGE) return code;
  sampler->ended = true;
  return rv_sampler_end_by_limiter(&sampler->common, reason, err);
}

static rv_code draw(local_sampler *sampler, rv_table *table, rv_patience *patience, rv_error *err)
{
  rv_sampling *sampling = &sampler->sampling;
  if (sampler->asked_ns == 0) sampler->asked_ns = patience->begun_ns;
  int64_t timeout = sampler->common.rate_limiter_timeout_ns;
  int64_t limiter_ns = timeout > INT64_MAX - sampler->asked_ns ? INT64_MAX : sampler->asked_ns + timeout;
  sampling->waiter.complete = complete;
  sampling->waiter.context = sampler;
  sampling->waiter.deadline_ns = limiter_ns < patience->deadline_ns ? limiter_ns : patience->deadline_ns;
  sampling->waiter.peer = "in process";
  sampling->want = 1;
  sampling->draws = &sampler->draw;
  sampling->count = 0;
  sampler->complete = false;
  rv_code code = RV_OK;
  if (rv_table_sample(table, sampling) == RV_SUBMIT_PENDING) {
    rv_sampler_wait_on(&sampler->common, patience);
    code = await_draw(sampler, limiter_ns, patience, err);
    if (code != RV_OK) rv_sampler_has_waited(&sampler->common, patience);
  }
  if (code == RV_OK && sampling->waiter.code != RV_OK) code = rv_error_copy(err, &sampling->waiter.error);
  return code;
}

static rv_code next(rv_sampler *common, const rv_wait *wait, rv_sample **out, rv_error *err)
{
  local_sampler *sampler = RV_CONTAINER(common, local_sampler, common);
  rv_patience patience;
  rv_client_begin_patience(common->client, &patience, wait, NULL, NULL);
  bool cancelled;
  is_complete(sampler, &cancelled);
  if (cancelled) return rv_sampler_end_by_cancel(common, err);
  if (sampler->left == 0) return rv_sampler_end_by_count(common, err);
  if (sampler->ended) return rv_sampler_end_by_limiter(common, "", err);
  rv_table *table;
  rv_code code = rv_client_find_table(common->client, common->table, &table, err);
  if (code == RV_OK) code = draw(sampler, table, &patience, err);
  if (code != RV_OK) return code;
  sampler->asked_ns = 0;
  if (sampler->left != INT64_MAX) sampler->left--;
  return rv_sample_new(&sampler->draw, out, err);
}

static void cancel(rv_sampler *common)
{
  local_sampler *sampler = RV_CONTAINER(common, local_sampler, common);
  rv_mutex_lock(&sampler->mutex);
  sampler->cancelled = true;
  rv_gate_open(&sampler->gate);
  rv_mutex_unlock(&sampler->mutex);
}

static void free_sampler(rv_sampler *common)
{
  local_sampler *sampler = RV_CONTAINER(common, local_sampler, common);
  rv_mutex_fini(&sampler->mutex);
  free(common->table);
  free(sampler);
}

static int64_t window(rv_sampler *common)
{
  return (int64_t)common->max_in_flight_samples * common->num_streams;
}

static const rv_sampler_ops ops = {.next = next, .window = window, .cancel = cancel, .free = free_sampler};

rv_code rv_sampler_new_local(const rv_sampler *owned_common, rv_sampler **out, rv_error *err)
{
  local_sampler *sampler = calloc(1, sizeof *sampler);
  if (sampler == NULL) {
    free(owned_common->table);
    return rv_fail_memory(err, sizeof *sampler);
  }
  sampler->common = *owned_common;
  sampler->common.ops = &ops;
  sampler->left = owned_common->max_samples;
  rv_gate_init(&sampler->gate);
  rv_mutex_init(&sampler->mutex, RV_RANK_CLIENT, "sampler");
  *out = &sampler->common;
  return RV_OK;
}
