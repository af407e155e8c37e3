/* Samples straight into arrays: the loop's thread copies each message's rows where the consumer wants them as it comes, while a cache still has it
 * and its memory can be used for the next, and wakes him once, when all are there. What became ready while he was busy he copies himself, and what
 * comes meanwhile goes behind that: else it would be ready then, and so on, everything copied twice. */
#include "base/error.h"
#include "client/sampler_remote.h"
#include "store/gather.h"

enum { AT_ONCE = 64 };

/* ---- on the loop ---- */

static size_t count_raw(const rv_draw *draws, size_t n)
{
  size_t raw = 0;
  while (raw < n && rv_draw_is_raw(&draws[raw])) raw++;
  return raw;
}

static size_t count_fitting(const rv_pour *pour, const rv_draw *draws, size_t n)
{
  size_t left = pour->until - pour->into->taken;
  return rv_sink_count_fitting(pour->into, draws, n < left ? n : left);
}

static void note_poured(rv_remote_sampler *sampler, size_t n)
{
  sampler->handed_out += (int64_t)n;
  sampler->consumed += (int64_t)n;
  /* who goes on waiting does so from now on for the next; who has all does not wait until he comes again */
  bool goes_on = sampler->waiting && !rv_is_poured(sampler);
  sampler->starved_ns = goes_on ? rv_monotonic_ns(&sampler->common.client->env) : 0;
}

size_t rv_remote_sampler_pour(rv_remote_sampler *sampler, const rv_draw *draws, size_t n)
{
  rv_pour *pour = sampler->pour;
  n = count_raw(draws, count_fitting(pour, draws, n));
  if (n == 0) return 0;
  pour->code = rv_sink_take(pour->into, draws, n, &pour->error);
  note_poured(sampler, n);
  return n;
}

/* Those for which there is no room any more are the next batch's, and lie in the message until then. */
bool rv_remote_sampler_pour_run(rv_remote_sampler *sampler, const rv_draw *draws, size_t n, rv_call *gapped, size_t *poured)
{
  rv_pour *pour = sampler->pour;
  size_t fitting = count_fitting(pour, draws, n);
  rv_client *client = sampler->common.client;
  if (fitting > 0) rv_sink_copy_run(pour->into, client, draws, fitting, rv_call_gaps(gapped));
  if (!(fitting == n ? rv_call_give_back(gapped) : rv_call_fill_gaps(gapped))) return false;
  *poured = fitting;
  if (fitting == 0) return true;
  rv_sink_note_run(pour->into, draws, fitting);
  note_poured(sampler, fitting);
  return true;
}

/* ---- the consumer ---- */

/* Under the mutex: nothing goes to the consumer's arrays but what he copies, and what has gone there is his. */
static void end_pouring(rv_remote_sampler *sampler, rv_pour *pour)
{
  rv_remote_sampler_end_waiting(sampler);
  if (pour->into == &pour->beside) *pour->sink = pour->beside;
  pour->into = pour->sink;
}

/* Under the mutex: goes on behind n draws, which he is about to copy. */
static void pour_beside(rv_remote_sampler *sampler, rv_pour *pour, const rv_draw *draws, size_t n)
{
  if (sampler->count > 0 || pour->sink->taken + n == pour->until) return; /* others come before what comes; there is no room */
  pour->beside = *pour->sink;
  rv_sink_pass(&pour->beside, draws, n);
  pour->into = &pour->beside;
  sampler->pour = pour;
}

/* Copies what was ready. Of what failed, and what went behind it meanwhile, the sink has nothing: fewer than a batch are lost with it. */
static rv_code take_ready(rv_remote_sampler *sampler, rv_pour *pour, rv_draw *draws, size_t n, rv_error *err)
{
  rv_sink own = *pour->sink;
  rv_code code = rv_sink_take(&own, draws, n, err);
  rv_draws_release(draws, n);
  if (code == RV_OK && pour->into == pour->sink) {
    *pour->sink = own;
  } else if (code != RV_OK) {
    rv_mutex_lock(&sampler->mutex);
    rv_remote_sampler_end_waiting(sampler);
    rv_mutex_unlock(&sampler->mutex);
    pour->sink->failed = true;
  }
  return code;
}

/* Under the mutex. RV_OK: *n samples were taken, or the next is not one for the sink, or nothing speaks against waiting for one. */
static rv_code look(rv_remote_sampler *sampler, const rv_pour *pour, rv_draw *draws, size_t *n, bool *unlike, rv_error *err)
{
  if (pour->code != RV_OK) return rv_error_copy(err, &pour->error);
  if (sampler->cancelled) return rv_sampler_end_by_cancel(&sampler->common, err);
  size_t left = pour->until - pour->sink->taken;
  *n = rv_remote_sampler_take_ready(sampler, pour->sink, draws, left < AT_ONCE ? left : AT_ONCE);
  *unlike = left > 0 && *n == 0 && sampler->count > 0;
  return left == 0 || *n > 0 || *unlike ? RV_OK : rv_remote_sampler_check_over(sampler, err);
}

/* Until the sink has taken so many, or the next sample is not for it. */
static rv_code fill(rv_remote_sampler *sampler, rv_pour *pour, rv_patience *patience, bool *unlike, rv_error *err)
{
  rv_error gave_up;
  rv_code code = RV_OK;
  for (;;) {
    rv_draw draws[AT_ONCE];
    size_t n = 0;
    rv_mutex_lock(&sampler->mutex);
    end_pouring(sampler, pour);
    rv_code seen = look(sampler, pour, draws, &n, unlike, err);
    bool done = seen != RV_OK || *unlike || pour->sink->taken == pour->until;
    if (!done && n == 0 && code == RV_OK) rv_remote_sampler_begin_waiting(sampler, patience, pour);
    if (n > 0) pour_beside(sampler, pour, draws, n);
    bool must = seen == RV_OK && rv_remote_sampler_must_tell(sampler);
    rv_mutex_unlock(&sampler->mutex);
    rv_remote_sampler_tell(sampler, must);
    if (done) return seen;
    if (n > 0) {
      seen = take_ready(sampler, pour, draws, n, err);
      if (seen != RV_OK) return seen;
    } else if (code != RV_OK) {
      return rv_error_copy(err, &gave_up);
    } else {
      code = rv_gate_wait(&sampler->gate, patience, &gave_up); /* then one more look */
    }
  }
}

/* ---- beyond the first `each` ---- */

/* Copies n that are ready into the sink; they stay ready. false: one of them could not be copied, and the sink is as before. */
static bool copy_ready(rv_remote_sampler *sampler, rv_sink *sink, size_t n)
{
  const rv_sink before = *sink;
  for (size_t done = 0; done < n;) {
    rv_draw draws[AT_ONCE];
    size_t some = n - done < AT_ONCE ? n - done : AT_ONCE;
    rv_mutex_lock(&sampler->mutex);
    rv_remote_sampler_look_at_ready(sampler, done, draws, some);
    rv_mutex_unlock(&sampler->mutex);
    if (rv_sink_take(sink, draws, some, NULL) != RV_OK) {
      *sink = before;
      return false;
    }
    done += some;
  }
  return true;
}

static void drop_ready(rv_remote_sampler *sampler, size_t n)
{
  while (n > 0) {
    rv_draw draws[AT_ONCE];
    rv_mutex_lock(&sampler->mutex);
    size_t some = rv_remote_sampler_take_ready(sampler, NULL, draws, n < AT_ONCE ? n : AT_ONCE);
    bool must = rv_remote_sampler_must_tell(sampler);
    rv_mutex_unlock(&sampler->mutex);
    rv_remote_sampler_tell(sampler, must);
    rv_draws_release(draws, some);
    n -= some;
  }
}

/* What is there already comes along, in multiples of `each`. Nothing fails here: where one cannot be copied, its multiple stays ready, for the
 * call whose first it is, which says so. */
static void take_more(rv_remote_sampler *sampler, rv_sink *sink, size_t each, size_t most)
{
  size_t unit = each < AT_ONCE ? AT_ONCE / each * each : each; /* multiples that are copied at once */
  while (sink->taken + each <= most) {
    size_t left = most - sink->taken;
    rv_mutex_lock(&sampler->mutex);
    size_t n = rv_remote_sampler_count_ready(sampler, sink, left < unit ? left : unit) / each * each;
    rv_mutex_unlock(&sampler->mutex);
    if (n == 0 || !copy_ready(sampler, sink, n)) return;
    drop_ready(sampler, n);
  }
}

rv_code rv_remote_sampler_take_into(rv_sampler *common, rv_sink *sink, size_t each, size_t most, const rv_wait *wait,
                                    bool *unlike, rv_error *err)
{
  rv_remote_sampler *sampler = RV_CONTAINER(common, rv_remote_sampler, common);
  bool begins = sink->taken == 0; /* a batch that was begun goes on as it was */
  *unlike = begins && (sampler->has_unchecked || !rv_is_layout_checked(&sampler->check, common->client, sink->fill.layout));
  if (*unlike) return RV_OK;
  rv_patience patience;
  rv_remote_sampler_begin_patience(sampler, wait, &patience);
  rv_sink_expect(sink, common->client, each);
  rv_pour pour = {.sink = sink, .into = sink, .until = each};
  rv_code code = fill(sampler, &pour, &patience, unlike, err);
  rv_sink_expect_no_more(sink, common->client);
  if (code != RV_OK) rv_sampler_has_waited(common, &patience);
  if (code != RV_OK || *unlike) return code;
  take_more(sampler, sink, each, most);
  return RV_OK;
}
