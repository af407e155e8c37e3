#include "client/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MILLISECOND INT64_C(1000000)

enum { IN_FLIGHT_MAX = 1000000, STREAMS_MAX = 1024, DEFAULT_PER_STREAM = 10000 };

static rv_code check_config(const rv_sampler_config *config, rv_error *err)
{
  if (config->max_samples < 1 && config->max_samples != RV_UNLIMITED)
    return rv_fail(err, RV_INVALID_ARGUMENT, "max_samples must be at least 1, or -1 for no bound, got %lld",
                   (long long)config->max_samples);
  if (config->max_in_flight_samples > IN_FLIGHT_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "max_in_flight_samples must be at most %d, got %u", IN_FLIGHT_MAX,
                   (unsigned)config->max_in_flight_samples);
  if (config->num_streams > STREAMS_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "num_streams must be at most %d, got %u", STREAMS_MAX,
                   (unsigned)config->num_streams);
  if (config->max_samples_per_stream < RV_UNLIMITED)
    return rv_fail(err, RV_INVALID_ARGUMENT, "max_samples_per_stream must be at least 1, 0 for the default, or -1, got %lld",
                   (long long)config->max_samples_per_stream);
  if (config->rate_limiter_timeout_ms < RV_FOREVER)
    return rv_fail(err, RV_INVALID_ARGUMENT, "rate_limiter_timeout_ms must be at least 0, or -1 to wait for ever, got %lld",
                   (long long)config->rate_limiter_timeout_ms);
  return RV_OK;
}

static void fill(rv_sampler *common, const rv_sampler_config *config)
{
  common->max_samples = config->max_samples == RV_UNLIMITED ? INT64_MAX : config->max_samples;
  common->max_in_flight_samples = config->max_in_flight_samples;
  common->num_streams = config->num_streams == 0 ? 1 : config->num_streams;
  int64_t per_stream = config->max_samples_per_stream;
  if (per_stream == 0) per_stream = DEFAULT_PER_STREAM;
  common->max_samples_per_stream = per_stream == RV_UNLIMITED ? INT64_MAX : per_stream;
  int64_t ms = config->rate_limiter_timeout_ms;
  common->rate_limiter_timeout_ns = ms < 0 || ms > INT64_MAX / 4 / MILLISECOND ? INT64_MAX : ms * MILLISECOND;
}

rv_code rv_sampler_new(rv_client *client, const rv_sampler_config *config, rv_sampler **out, rv_error *err)
{
  if (config == NULL || config->size < sizeof *config)
    return rv_fail(err, RV_INVALID_ARGUMENT, "sampler config: size must be sizeof(rv_sampler_config)");
  rv_code code = rv_client_check_table(client, config->table, err);
  if (code == RV_OK) code = check_config(config, err);
  if (code != RV_OK) return code;
  rv_sampler common = {.client = client, .table = strdup(config->table)};
  if (common.table == NULL) return rv_fail_memory(err, strlen(config->table) + 1);
  fill(&common, config);
  return client->store != NULL ? rv_sampler_new_local(&common, out, err) : rv_sampler_new_remote(&common, out, err);
}

rv_code rv_sampler_next(rv_sampler *sampler, const rv_wait *wait, rv_sample **out, rv_error *err)
{
  rv_code code = rv_client_check(sampler->client, err);
  if (code != RV_OK) return code;
  code = sampler->ops->next(sampler, wait, out, err);
  if (code != RV_DEADLINE_EXCEEDED) sampler->waited.begun_ns = 0;
  return code;
}

rv_code rv_sampler_take_into(rv_sampler *sampler, rv_sink *sink, size_t each, size_t most, const rv_wait *wait, bool *unlike,
                             rv_error *err)
{
  rv_code code = rv_client_check(sampler->client, err);
  *unlike = !rv_sampler_can_take_into(sampler);
  if (code != RV_OK || *unlike) return code;
  size_t before = sink->taken;
  code = sampler->ops->take_into(sampler, sink, each, most, wait, unlike, err);
  if (code != RV_DEADLINE_EXCEEDED || sink->taken > before) sampler->waited.begun_ns = 0;
  return code;
}

uint64_t rv_sampler_losses(rv_sampler *sampler)
{
  bool may_lose = sampler->ops->losses != NULL && rv_client_is_here(sampler->client);
  return may_lose ? sampler->ops->losses(sampler) : 0;
}

int64_t rv_sampler_window(rv_sampler *sampler)
{
  return rv_client_is_here(sampler->client) ? sampler->ops->window(sampler) : 0;
}

void rv_sampler_cancel(rv_sampler *sampler)
{
  if (rv_client_is_here(sampler->client)) sampler->ops->cancel(sampler);
}

void rv_sampler_free(rv_sampler *sampler)
{
  if (sampler != NULL && rv_client_is_here(sampler->client)) sampler->ops->free(sampler);
}

void rv_sampler_wait_on(const rv_sampler *sampler, rv_patience *patience)
{
  if (sampler->waited.begun_ns == 0 || patience->begun_ns - sampler->waited.until_ns > 1000 * MILLISECOND) return;
  patience->begun_ns = sampler->waited.begun_ns;
  patience->log_ns = sampler->waited.log_ns;
}

void rv_sampler_has_waited(rv_sampler *sampler, const rv_patience *patience)
{
  sampler->waited.begun_ns = patience->begun_ns;
  sampler->waited.log_ns = patience->log_ns;
  sampler->waited.until_ns = rv_monotonic_ns(patience->env);
}

/* ---- sentences ---- */

rv_code rv_sampler_end_by_count(const rv_sampler *sampler, rv_error *err)
{
  return rv_fail(err, RV_OUT_OF_RANGE, "end of the sequence: max_samples (%lld) samples of table \"%s\" were given",
                 (long long)sampler->max_samples, sampler->table);
}

rv_code rv_sampler_end_by_limiter(const rv_sampler *sampler, const char *reason, rv_error *err)
{
  return rv_fail(err, RV_OUT_OF_RANGE, "end of the sequence: the rate limiter of table \"%s\" let nothing through for %g s%s%s",
                 sampler->table, (double)sampler->rate_limiter_timeout_ns * 1e-9, reason[0] != '\0' ? "; the sampler " : "",
                 reason);
}

rv_code rv_sampler_end_by_cancel(const rv_sampler *sampler, rv_error *err)
{
  return rv_fail(err, RV_CANCELLED, "the sampler of table \"%s\" was cancelled", sampler->table);
}
