/* Rates and times, without asking the clock for every operation: one in some is timed and stands for the others, and waiting is
 * measured where it begins and ends. */
#include "store/table_parts.h"

#define SECOND INT64_C(1000000000)
#define LONGEST_TIMED INT64_C(1000000) /* longer ones were interrupted by the system */
#define WINDOW (10 * SECOND)

void rv_rates_init(rv_rates *rates, int64_t now_ns)
{
  *rates = (rv_rates){.idle_since_ns = now_ns};
  rates->snapshots[0] = (rv_rate_snapshot){.at_ns = now_ns};
  rates->num_snapshots = rates->next_snapshot = 1;
}

static void tick(rv_rates *rates, int64_t now_ns)
{
  const rv_rate_snapshot *last = &rates->snapshots[(rates->next_snapshot + RV_RATE_SNAPSHOTS - 1) % RV_RATE_SNAPSHOTS];
  if (now_ns - last->at_ns < SECOND) return;
  rates->snapshots[rates->next_snapshot] =
      (rv_rate_snapshot){.at_ns = now_ns, .inserts = rates->inserts, .samples = rates->samples};
  rates->next_snapshot = (rates->next_snapshot + 1) % RV_RATE_SNAPSHOTS;
  if (rates->num_snapshots < RV_RATE_SNAPSHOTS) rates->num_snapshots++;
}

static rv_idle_kind idle_kind(const rv_table *table)
{
  if (table->pending_samples > 0) return RV_IDLE_WANTS_INSERTS;
  return table->pending_inserts > 0 ? RV_IDLE_WANTS_SAMPLES : RV_IDLE_SLEEPING;
}

void rv_rates_idle(rv_table *table)
{
  rv_rates *rates = &table->rates;
  rv_idle_kind kind = idle_kind(table);
  if (kind == rates->idle) return;
  int64_t now = rv_monotonic_ns(table->env);
  rates->idle_ns[rates->idle] += now - rates->idle_since_ns;
  rates->idle_since_ns = now;
  rates->idle = kind;
  tick(rates, now);
}

void rv_rates_worked(rv_table *table, bool insert, int64_t begun_ns)
{
  rv_rates *rates = &table->rates;
  int64_t now = rv_monotonic_ns(table->env), took = now - begun_ns;
  if (took < 0) took = 0;
  if (took > LONGEST_TIMED) took = LONGEST_TIMED;
  *(insert ? &rates->inserting_ns : &rates->sampling_ns) += took * RV_TIMED_ONE_IN;
  tick(rates, now);
}

/* The newest snapshot that is old enough, else the oldest there is. */
static rv_rate_snapshot window_begin(const rv_rates *rates, int64_t now_ns)
{
  uint32_t at = (rates->next_snapshot + RV_RATE_SNAPSHOTS - 1) % RV_RATE_SNAPSHOTS;
  for (uint32_t i = 1; i < rates->num_snapshots && now_ns - rates->snapshots[at].at_ns < WINDOW; i++)
    at = (at + RV_RATE_SNAPSHOTS - 1) % RV_RATE_SNAPSHOTS;
  return rates->snapshots[at];
}

void rv_rates_report(rv_table *table, int64_t now_ns, rv_table_info *out)
{
  rv_rates *rates = &table->rates;
  tick(rates, now_ns);
  rv_rate_snapshot from = window_begin(rates, now_ns);
  double seconds = (double)(now_ns - from.at_ns) * 1e-9;
  if (seconds > 0) {
    out->inserts_per_second = (double)(rates->inserts - from.inserts) / seconds;
    out->samples_per_second = (double)(rates->samples - from.samples) / seconds;
  }
  int64_t idle[RV_IDLE_KINDS];
  for (int i = 0; i < RV_IDLE_KINDS; i++) idle[i] = rates->idle_ns[i];
  idle[rates->idle] += now_ns - rates->idle_since_ns;
  out->sampling_ns = rates->sampling_ns;
  out->inserting_ns = rates->inserting_ns;
  out->running_ns = rates->sampling_ns + rates->inserting_ns;
  out->waiting_for_sampling_ns = idle[RV_IDLE_WANTS_SAMPLES];
  out->waiting_for_inserts_ns = idle[RV_IDLE_WANTS_INSERTS];
  out->sleeping_ns = idle[RV_IDLE_SLEEPING] > out->running_ns ? idle[RV_IDLE_SLEEPING] - out->running_ns : 0;
}
