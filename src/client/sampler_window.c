/* How far ahead a sampler fetches: as it was told, or one sample, as Reverb does; and more where nobody can tell the difference.
 *
 * Who takes many samples a second gets them the cheaper the more of them are in a message, and what was taken within some milliseconds
 * is not old when it is used. */
#include <float.h>

#include "client/sampler_remote.h"

enum { WINDOW_MAX = 1024 };
#define WINDOW_BYTES_MAX ((size_t)4 << 20)
/* Of all that share an I/O thread: a process with hundreds of iterators has no gigabytes of samples that nobody took yet. */
#define WINDOWS_BYTES_MAX ((size_t)256 << 20)
#define PACE_NS INT64_C(10000000)
/* How often is looked whether it still is so; and what a server has not said yet */
#define LOOK_NS INT64_C(100000000)
#define LOOK_SOON_NS INT64_C(1000000)

/* Fetching ahead counts samples that nobody took. That shows where the selector is deterministic, where items go after so many
 * samples, and where samples and inserts are held in step. */
bool rv_fetching_ahead_is_invisible(const rv_table_info *info)
{
  bool random = info->sampler.kind == RV_SELECTOR_UNIFORM || info->sampler.kind == RV_SELECTOR_PRIORITIZED;
  bool unbounded = info->rate_limiter.min_diff <= -DBL_MAX / 2 && info->rate_limiter.max_diff >= DBL_MAX / 2;
  return random && unbounded && info->max_times_sampled <= 0;
}

static void look(rv_remote_sampler *sampler)
{
  rv_client *client = sampler->common.client;
  int64_t now = rv_monotonic_ns(&client->env);
  uint64_t losses = rv_client_losses(client);
  if (now < sampler->look_at_ns && losses == sampler->looked_losses) return;
  const rv_table_info *info;
  rv_tables *tables = rv_client_recent_tables(client);
  sampler->may_grow = tables != NULL && rv_tables_find(tables, sampler->common.table, &info, NULL) == RV_OK &&
                      rv_fetching_ahead_is_invisible(info);
  sampler->looked_losses = losses;
  sampler->look_at_ns = now + (tables != NULL ? LOOK_NS : LOOK_SOON_NS);
  rv_tables_unref(tables);
}

static void note_pace(rv_remote_sampler *sampler, int64_t handed_out)
{
  int64_t now = rv_monotonic_ns(&sampler->common.client->env), passed = now - sampler->pace.since_ns;
  if (passed < PACE_NS) return;
  double taken = (double)(handed_out - sampler->pace.handed_out);
  sampler->pace.lately = (int64_t)(taken * (double)PACE_NS / (double)passed);
  sampler->pace.since_ns = now;
  sampler->pace.handed_out = handed_out;
}

/* Bytes that a stream may have ahead; from now on the sampler counts among those that share. */
static size_t take_share(rv_remote_sampler *sampler)
{
  size_t change = sampler->fetches ? 0 : sampler->common.num_streams;
  size_t share = WINDOWS_BYTES_MAX / rv_loop_count_fetching(sampler->common.client->loop, change);
  sampler->fetches = true;
  return share < WINDOW_BYTES_MAX ? share : WINDOW_BYTES_MAX;
}

void rv_remote_sampler_leave_share(rv_remote_sampler *sampler)
{
  if (sampler->fetches) rv_loop_count_fetching(sampler->common.client->loop, (size_t)0 - sampler->common.num_streams);
  sampler->fetches = false;
}

/* `wished` samples, at least `least`, as far as they are not too many or too large. */
static int64_t bounded(rv_remote_sampler *sampler, int64_t wished, int64_t least)
{
  if (wished <= least) return least;
  size_t average = sampler->bytes_received / (sampler->samples_received + 1) + 1;
  int64_t affordable = (int64_t)(take_share(sampler) / average);
  if (wished > WINDOW_MAX) wished = WINDOW_MAX;
  if (wished > affordable) wished = affordable;
  return wished < least ? least : wished;
}

int64_t rv_remote_sampler_window(rv_remote_sampler *sampler, int64_t handed_out, int64_t batches)
{
  if (batches > 0) {
    look(sampler);
    rv_remote_sampler_ask_on(sampler, sampler->may_grow);
    return batches;
  }
  int64_t told = sampler->common.max_in_flight_samples;
  if (told > 0) note_pace(sampler, handed_out);
  int64_t wished = told == 0 ? handed_out : sampler->pace.lately, least = told == 0 ? 1 : told;
  bool matters = told == 0 ? handed_out > 0 : wished > told;
  if (matters) look(sampler);
  return sampler->may_grow ? bounded(sampler, wished, least) : least;
}
