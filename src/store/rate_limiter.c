#include "store/rate_limiter.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/standstill.h"

/* Up to here a double counts single samples. */
#define RATIO_MAX 0x1p53
/* More inserts than will ever be made. */
#define INSERTS_MAX (INT64_C(1) << 62)

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

rv_code rv_rate_limiter_check_table(const rv_table_config *table, rv_error *err)
{
  const rv_rate_limiter_config *config = &table->rate_limiter;
  rv_code code = rv_rate_limiter_check(config, err);
  if (code != RV_OK) return code;
  if (config->min_size_to_sample > table->max_size)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "min_size_to_sample is %lld, but the table never holds more than max_size = %lld items, so no sample could "
                   "ever proceed; lower the one or raise the other",
                   (long long)config->min_size_to_sample, (long long)table->max_size);
  if (config->min_diff > config->max_diff && !takes_turns(config, table->max_times_sampled)) return fail_inverted(config, err);
  rv_standstill found;
  if (!rv_standstill_find(table, &found)) return RV_OK;
  double ratio = config->samples_per_insert, width = 2 * (ratio > 1 ? ratio : 1);
  return rv_fail(
      err, RV_INVALID_ARGUMENT,
      "inserts and samples would come to wait for each other for ever, for example after %lld inserts and %lld samples; "
      "make max_diff - min_diff, which is %.17g, at least 2 * max(1, samples_per_insert) = %g (an error buffer of %g)",
      (long long)found.inserts, (long long)found.samples, config->max_diff - config->min_diff, width, width / 2);
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

/* Behind what one side waits for, when the other one waits, too. */
static void explain_standstill(const char *other, char *out, size_t capacity)
{
  size_t size = strlen(out);
  snprintf(out + size, capacity - size,
           "; %s waits, too, and neither goes on by itself: set another rate limiter, delete items or reset the table", other);
}

rv_wait_reason rv_rate_limiter_explain(const rv_rate_limiter *limiter, bool insert, char *out, size_t capacity)
{
  bool inserts = rv_rate_limiter_can_insert(limiter, 1), samples = sample_allowed(limiter, 1);
  if (insert ? inserts : samples) {
    snprintf(out, capacity, "may proceed");
    return RV_WAIT_NONE;
  }
  rv_wait_reason reason = insert ? explain_insert(limiter, out, capacity) : explain_sample(limiter, out, capacity);
  if (!inserts && !samples && capacity > 0) explain_standstill(insert ? "sampling" : "inserting", out, capacity);
  return reason;
}
