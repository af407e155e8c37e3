#include "store/rate_limiter.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Up to here a double counts single samples. */
#define RATIO_MAX 0x1p53
/* More inserts than will ever be made. */
#define INSERTS_MAX (INT64_C(1) << 62)
/* Parameters that let inserts and samples block each other do so soon: the balance wanders over a range that is narrower than a step. */
#define STANDSTILL_STEPS 10000

rv_rate_limiter_config rv_rate_limiter_min_size(int64_t min_size)
{
  return (rv_rate_limiter_config){
      .samples_per_insert = 1, .min_size_to_sample = min_size, .min_diff = -DBL_MAX, .max_diff = DBL_MAX};
}

rv_rate_limiter_config rv_rate_limiter_sample_to_insert_ratio(double samples_per_insert, int64_t min_size, double error_buffer)
{
  double middle = samples_per_insert * (double)min_size;
  return (rv_rate_limiter_config){.samples_per_insert = samples_per_insert,
                                  .min_size_to_sample = min_size,
                                  .min_diff = middle - error_buffer,
                                  .max_diff = middle + error_buffer};
}

/* A size below 1 goes where the check finds it. */
rv_rate_limiter_config rv_rate_limiter_queue(int64_t size)
{
  return (rv_rate_limiter_config){
      .samples_per_insert = 1, .min_size_to_sample = size < 1 ? size : 1, .min_diff = 0, .max_diff = (double)size};
}

rv_rate_limiter_config rv_rate_limiter_stack(int64_t size)
{
  return rv_rate_limiter_queue(size);
}

static bool sample_allowed(const rv_rate_limiter *limiter, int64_t n)
{
  const rv_rate_limiter_config *config = &limiter->config;
  if (limiter->inserts - limiter->deletes < config->min_size_to_sample) return false;
  return (double)limiter->inserts * config->samples_per_insert - (double)limiter->samples - (double)n >= config->min_diff;
}

/* Most inserts that a new table takes while nobody samples and nothing is deleted. */
static int64_t inserts_until_stop(const rv_rate_limiter *fresh)
{
  int64_t low = fresh->config.min_size_to_sample, high = INSERTS_MAX;
  if (rv_rate_limiter_can_insert(fresh, high)) return high;
  while (high - low > 1) { /* low is allowed, high is not */
    int64_t middle = low + (high - low) / 2;
    if (rv_rate_limiter_can_insert(fresh, middle))
      low = middle;
    else
      high = middle;
  }
  return low;
}

static rv_code fail_inverted(const rv_rate_limiter_config *config, rv_error *err)
{
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "min_diff %.17g is greater than max_diff %.17g; give an error buffer that is not negative", config->min_diff,
                 config->max_diff);
}

/* With min_diff above max_diff no balance lets anything in but what min_size_to_sample asks for. Samples and inserts then take turns
 * where each sample takes its item away and each insert pays for at least one sample; else they come to a stand. */
static bool takes_turns(const rv_rate_limiter_config *config, int64_t max_times_sampled)
{
  return max_times_sampled == 1 && config->samples_per_insert >= 1;
}

rv_code rv_rate_limiter_check(const rv_rate_limiter_config *config, rv_error *err)
{
  double ratio = config->samples_per_insert, min = config->min_diff, max = config->max_diff;
  if (!(ratio > 0 && ratio <= RATIO_MAX))
    return rv_fail(err, RV_INVALID_ARGUMENT, "samples_per_insert is %g; give a positive number, at most 2^53", ratio);
  if (config->min_size_to_sample < 1 || config->min_size_to_sample > INT32_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "min_size_to_sample (or the size of a queue or stack) is %lld; give a number from 1 to 2147483647, the "
                   "most items a table can hold",
                   (long long)config->min_size_to_sample);
  if (isnan(min) || isnan(max))
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s is NaN; give a number", isnan(min) ? "min_diff" : "max_diff");
  /* While nothing is sampled only a delete by hand lets in more inserts than this; then samples must have begun. */
  rv_rate_limiter fresh = {.config = *config};
  int64_t stop = inserts_until_stop(&fresh);
  fresh.inserts = stop;
  if (sample_allowed(&fresh, 1)) return RV_OK;
  if (min > max) return fail_inverted(config, err);
  if (stop == INSERTS_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "no sample can ever proceed: min_diff %.17g is never reached; lower min_diff", min);
  return rv_fail(
      err, RV_INVALID_ARGUMENT,
      "no sample can ever proceed: inserts stop after %lld (max_diff %.17g), where %lld x samples_per_insert %.17g - 1 = "
      "%.17g is below min_diff %.17g; raise max_diff or lower min_diff",
      (long long)stop, max, (long long)stop, ratio, (double)stop * ratio - 1, min);
}

/* ---- a table on trial ---- */

/* Items that were sampled equally often are a run; those that were sampled least come last. In so few steps no more runs come up than this, for
 * no two are of the same count. */
enum { RUNS = 160 };
_Static_assert(RUNS *(RUNS - 1) / 2 > STANDSTILL_STEPS, "as many runs as there can be");

typedef struct trial_run {
  int64_t times, items;
} trial_run;

typedef struct trial {
  rv_rate_limiter limiter;
  int64_t max_size, max_times_sampled;
  trial_run runs[RUNS];
  size_t num_runs;
} trial;

static void add_to_run(trial *t, int64_t times)
{
  size_t at = t->num_runs;
  while (at > 0 && t->runs[at - 1].times < times) at--;
  if (at == 0 || t->runs[at - 1].times != times) {
    memmove(&t->runs[at + 1], &t->runs[at], (t->num_runs++ - at) * sizeof *t->runs);
    t->runs[at++] = (trial_run){.times = times};
  }
  t->runs[at - 1].items++;
}

static void take_from_run(trial *t, size_t run)
{
  if (--t->runs[run].items > 0) return;
  t->num_runs--;
  memmove(&t->runs[run], &t->runs[run + 1], (t->num_runs - run) * sizeof *t->runs);
}

static void insert_one(trial *t)
{
  if (t->limiter.inserts - t->limiter.deletes == t->max_size) {
    take_from_run(t, 0);
    t->limiter.deletes++;
  }
  add_to_run(t, 0);
  t->limiter.inserts++;
}

/* Where both can come to a stand the balance never lets both through, so chance has no say but in which item is sampled. The one that was
 * sampled least: so items stay longest, and it comes last that fewer than min_size_to_sample are left, which would let an insert in. */
static void sample_one(trial *t)
{
  int64_t times = t->runs[t->num_runs - 1].times + 1;
  take_from_run(t, t->num_runs - 1);
  t->limiter.samples++;
  if (times == t->max_times_sampled)
    t->limiter.deletes++;
  else
    add_to_run(t, times);
}

/* One insert and one sample fit between the bounds, whatever the balance, and it is exact: no trial would find anything. */
static bool is_wide(const rv_rate_limiter_config *config)
{
  double ratio = config->samples_per_insert, step = ratio > 1 ? ratio : 1;
  return config->max_diff - config->min_diff >= 2 * step &&
         ratio * ((double)config->min_size_to_sample + STANDSTILL_STEPS) < RATIO_MAX / 2;
}

/* Where a schedule of inserts and samples comes to a stand; true when one is found. */
static bool find_standstill(trial *t, bool inserts_first)
{
  for (int step = 0; step < STANDSTILL_STEPS; step++) {
    bool insert = rv_rate_limiter_can_insert(&t->limiter, 1), sample = sample_allowed(&t->limiter, 1);
    if (!insert && !sample) return true;
    if (insert && (inserts_first || !sample))
      insert_one(t);
    else
      sample_one(t);
  }
  return false;
}

rv_code rv_rate_limiter_check_size(const rv_rate_limiter_config *config, int64_t max_size, int64_t max_times_sampled,
                                   rv_error *err)
{
  rv_code code = rv_rate_limiter_check(config, err);
  if (code != RV_OK) return code;
  if (config->min_size_to_sample > max_size)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "min_size_to_sample is %lld, but the table never holds more than max_size = %lld items, so no sample could "
                   "ever proceed; lower the one or raise the other",
                   (long long)config->min_size_to_sample, (long long)max_size);
  if (config->min_diff > config->max_diff && !takes_turns(config, max_times_sampled)) return fail_inverted(config, err);
  for (int inserts_first = 0; inserts_first < 2 && !is_wide(config); inserts_first++) {
    trial t = {.limiter = {.config = *config, .inserts = config->min_size_to_sample},
               .max_size = max_size,
               .max_times_sampled = max_times_sampled,
               .runs = {{.items = config->min_size_to_sample}},
               .num_runs = 1};
    if (!find_standstill(&t, inserts_first != 0)) continue;
    double ratio = config->samples_per_insert, width = 2 * (ratio > 1 ? ratio : 1);
    return rv_fail(
        err, RV_INVALID_ARGUMENT,
        "inserts and samples would come to wait for each other for ever, for example after %lld inserts and %lld samples; "
        "make max_diff - min_diff, which is %.17g, at least 2 * max(1, samples_per_insert) = %g (an error buffer of %g)",
        (long long)t.limiter.inserts, (long long)t.limiter.samples, config->max_diff - config->min_diff, width, width / 2);
  }
  return RV_OK;
}

rv_code rv_rate_limiter_init(rv_rate_limiter *limiter, const rv_rate_limiter_config *config, rv_error *err)
{
  *limiter = (rv_rate_limiter){0};
  return rv_rate_limiter_configure(limiter, config, err);
}

rv_code rv_rate_limiter_configure(rv_rate_limiter *limiter, const rv_rate_limiter_config *config, rv_error *err)
{
  rv_code code = rv_rate_limiter_check(config, err);
  if (code == RV_OK) limiter->config = *config;
  return code;
}

bool rv_rate_limiter_can_sample(const rv_rate_limiter *limiter, int64_t n)
{
  return n <= 0 || sample_allowed(limiter, n);
}

static int64_t most(const rv_rate_limiter *limiter, int64_t want, bool (*allowed)(const rv_rate_limiter *limiter, int64_t n))
{
  if (want <= 0) return 0;
  if (allowed(limiter, want)) return want; /* and so are all before it */
  if (!allowed(limiter, 1)) return 0;
  int64_t low = 1, high = want;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (allowed(limiter, middle))
      low = middle;
    else
      high = middle;
  }
  return low;
}

int64_t rv_rate_limiter_inserts_allowed(const rv_rate_limiter *limiter, int64_t want)
{
  return most(limiter, want, rv_rate_limiter_can_insert);
}
int64_t rv_rate_limiter_samples_allowed(const rv_rate_limiter *limiter, int64_t want)
{
  return most(limiter, want, sample_allowed);
}

void rv_rate_limiter_reset(rv_rate_limiter *limiter)
{
  limiter->inserts = limiter->samples = limiter->deletes = 0;
}

rv_code rv_rate_limiter_restore(rv_rate_limiter *limiter, int64_t inserts, int64_t samples, int64_t deletes, rv_error *err)
{
  if (inserts < 0 || samples < 0 || deletes < 0 || deletes > inserts || inserts > INSERTS_MAX || samples > INSERTS_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "rate limiter counters %lld inserts, %lld samples, %lld deletes are impossible: none is negative, and deletes "
                   "do not exceed inserts",
                   (long long)inserts, (long long)samples, (long long)deletes);
  limiter->inserts = inserts;
  limiter->samples = samples;
  limiter->deletes = deletes;
  return RV_OK;
}

/* How many more it takes, at least 1: rounding must not make it 0. */
static double at_least_one(double n)
{
  return n > 1 ? ceil(n) : 1;
}

static rv_wait_reason explain_insert(const rv_rate_limiter *limiter, char *out, size_t capacity)
{
  const rv_rate_limiter_config *config = &limiter->config;
  double after = ((double)limiter->inserts + 1) * config->samples_per_insert - (double)limiter->samples;
  double more = at_least_one(after - config->max_diff);
  snprintf(out, capacity,
           "waits for %.0f more sample%s (max_diff %g; with this insert %lld x samples_per_insert %g - %lld samples = %g)", more,
           more == 1 ? "" : "s", config->max_diff, (long long)limiter->inserts + 1, config->samples_per_insert,
           (long long)limiter->samples, after);
  return RV_WAIT_TOO_MANY_INSERTS;
}

enum { GROUPED = 32 };

/* 1,234,567 */
static void group(int64_t n, char out[GROUPED])
{
  char digits[GROUPED];
  int length = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-') out[at++] = ',';
    out[at++] = digits[i];
  }
  out[at] = '\0';
}

static rv_wait_reason explain_sample(const rv_rate_limiter *limiter, char *out, size_t capacity)
{
  const rv_rate_limiter_config *config = &limiter->config;
  int64_t present = limiter->inserts - limiter->deletes;
  if (present < config->min_size_to_sample) {
    char wanted[GROUPED], has[GROUPED];
    group(config->min_size_to_sample, wanted);
    group(present, has);
    snprintf(out, capacity, "waits for %s item%s, has %s (min_size_to_sample)", wanted,
             config->min_size_to_sample == 1 ? "" : "s", has);
    return RV_WAIT_MIN_SIZE;
  }
  double after = (double)limiter->inserts * config->samples_per_insert - (double)limiter->samples - 1;
  double more = at_least_one((config->min_diff - after) / config->samples_per_insert);
  snprintf(out, capacity,
           "waits for %.0f more insert%s (min_diff %g; with this sample %lld x samples_per_insert %g - %lld samples = %g)", more,
           more == 1 ? "" : "s", config->min_diff, (long long)limiter->inserts, config->samples_per_insert,
           (long long)limiter->samples + 1, after);
  return RV_WAIT_TOO_MANY_SAMPLES;
}

rv_wait_reason rv_rate_limiter_explain(const rv_rate_limiter *limiter, bool insert, char *out, size_t capacity)
{
  if (insert ? rv_rate_limiter_can_insert(limiter, 1) : sample_allowed(limiter, 1)) {
    snprintf(out, capacity, "may proceed");
    return RV_WAIT_NONE;
  }
  return insert ? explain_insert(limiter, out, capacity) : explain_sample(limiter, out, capacity);
}
