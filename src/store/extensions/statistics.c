/* "statistics": how often each kind of event happens, which priorities are given, and what becomes of items: how often they were
 * sampled and how old they were when they went. Everything counts since the last reset. */
#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/env.h"
#include "base/error.h"
#include "store/extensions/extension.h"
#include "store/extensions/records.h"

enum { KINDS = 5, WINDOW = 10 };
#define SECOND_NS INT64_C(1000000000)

/* Numbers that were seen; the mean is adjusted towards each, so that it never overflows. */
typedef struct tally {
  uint64_t count;
  double min, max, mean;
} tally;

/* Counts of the last seconds, each in its place modulo WINDOW. */
typedef struct second {
  int64_t second;
  uint64_t events[KINDS];
} second;

typedef struct statistics {
  int64_t (*monotonic_ns)(void *context);
  void *context;
  int64_t began_ns;
  uint64_t events[KINDS]; /* by kind - 1 */
  second seconds[WINDOW];
  uint64_t deleted_unsampled;
  tally priority, times_sampled, age_s;
  rv_records inserted_ns; /* int64_t */
} statistics;

static void add(tally *to, double x)
{
  if (to->count == 0) to->min = to->max = x;
  if (x < to->min) to->min = x;
  if (x > to->max) to->max = x;
  to->count++;
  double finite = x > DBL_MAX ? DBL_MAX : x < -DBL_MAX ? -DBL_MAX : x;
  double n = (double)to->count;
  to->mean += finite / n - to->mean / n;
}

rv_code rv_statistics_new(int64_t (*monotonic_ns)(void *context), void *context, void **out, rv_error *err)
{
  statistics *self = calloc(1, sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  rv_env env;
  rv_env_default(&env);
  self->monotonic_ns = monotonic_ns;
  self->context = context;
  self->began_ns = monotonic_ns(context);
  rv_records_init(&self->inserted_ns, sizeof(int64_t), rv_entropy64(&env));
  *out = self;
  return RV_OK;
}

static rv_code create(const char *table, const char *options, void **out, rv_error *err)
{
  (void)table;
  if (options != NULL && options[0] != '\0')
    return rv_fail(err, RV_INVALID_ARGUMENT, "it has no options, got \"%.100s\"", options);
  rv_env env;
  rv_env_default(&env);
  return rv_statistics_new(env.monotonic_ns, env.context, out, err);
}

static void destroy(void *extension)
{
  statistics *self = extension;
  rv_records_fini(&self->inserted_ns);
  free(self);
}

static void reset(statistics *self, int64_t now)
{
  rv_records_clear(&self->inserted_ns);
  uint64_t resets = self->events[RV_EVENT_RESET - 1];
  *self = (statistics){
      .monotonic_ns = self->monotonic_ns, .context = self->context, .began_ns = now, .inserted_ns = self->inserted_ns};
  self->events[RV_EVENT_RESET - 1] = resets;
}

static void inserted(statistics *self, const rv_event *event, int64_t now)
{
  add(&self->priority, event->priority);
  uint32_t number = rv_records_add(&self->inserted_ns, event->key);
  if (number != RV_NO_RECORD) *RV_RECORD(&self->inserted_ns, int64_t, number) = now;
}

static void deleted(statistics *self, const rv_event *event, int64_t now)
{
  add(&self->times_sampled, event->times_sampled);
  if (event->times_sampled <= 0) self->deleted_unsampled++;
  uint32_t number = rv_records_find(&self->inserted_ns, event->key);
  if (number == RV_NO_RECORD) return;
  add(&self->age_s, (double)(now - *RV_RECORD(&self->inserted_ns, int64_t, number)) / (double)SECOND_NS);
  rv_records_remove(&self->inserted_ns, event->key, number);
}

static second *this_second(statistics *self, int64_t now)
{
  second *entry = &self->seconds[(uint64_t)(now / SECOND_NS) % WINDOW];
  if (entry->second != now / SECOND_NS) *entry = (second){.second = now / SECOND_NS};
  return entry;
}

static void on_events(void *extension, const rv_event *events, size_t n, rv_edit *edit)
{
  (void)edit;
  statistics *self = extension;
  int64_t now = self->monotonic_ns(self->context);
  for (size_t i = 0; i < n; i++) {
    const rv_event *event = &events[i];
    if (event->kind < RV_EVENT_INSERT || event->kind > RV_EVENT_RESET) continue;
    if (event->kind == RV_EVENT_RESET) reset(self, now);
    if (event->kind == RV_EVENT_INSERT) inserted(self, event, now);
    if (event->kind == RV_EVENT_UPDATE) add(&self->priority, event->priority);
    if (event->kind == RV_EVENT_DELETE) deleted(self, event, now);
    self->events[event->kind - 1]++;
    this_second(self, now)->events[event->kind - 1]++;
  }
  rv_records_tidy(&self->inserted_ns);
}

/* Over the last ten seconds, or since the beginning where that is less. */
static double rate(const statistics *self, rv_event_kind kind, int64_t now)
{
  uint64_t count = 0;
  for (int i = 0; i < WINDOW; i++)
    if (self->seconds[i].second > now / SECOND_NS - WINDOW) count += self->seconds[i].events[kind - 1];
  int64_t window_ns = (WINDOW - 1) * SECOND_NS + now % SECOND_NS;
  int64_t since_ns = now - self->began_ns;
  double span_ns = (double)(since_ns < window_ns ? since_ns : window_ns);
  return span_ns > 0 ? (double)count * (double)SECOND_NS / span_ns : 0;
}

typedef struct text {
  char *out;
  size_t capacity, length;
} text;

static void RV_PRINTF(2, 3) print(text *to, const char *format, ...)
{
  bool fits = to->length < to->capacity;
  va_list args;
  va_start(args, format);
  int written = vsnprintf(fits ? to->out + to->length : NULL, fits ? to->capacity - to->length : 0, format, args);
  va_end(args);
  if (written > 0) to->length += (size_t)written;
}

static void print_tally(text *to, const char *name, const tally *of)
{
  if (of->count > 0) print(to, " %s_min=%.6g %s_mean=%.6g %s_max=%.6g", name, of->min, name, of->mean, name, of->max);
}

static size_t describe(void *extension, char *out, size_t capacity)
{
  static const char *const names[KINDS] = {"inserts", "samples", "updates", "deletes", "resets"};
  const statistics *self = extension;
  int64_t now = self->monotonic_ns(self->context);
  text to = {.out = out, .capacity = capacity};
  for (int i = 0; i < KINDS; i++) print(&to, "%s%s=%llu", i > 0 ? " " : "", names[i], (unsigned long long)self->events[i]);
  for (rv_event_kind kind = RV_EVENT_INSERT; kind < RV_EVENT_RESET; kind++)
    print(&to, " %s_per_second=%.1f", names[kind - 1], rate(self, kind, now));
  print_tally(&to, "priority", &self->priority);
  print(&to, " deleted_unsampled=%llu", (unsigned long long)self->deleted_unsampled);
  print_tally(&to, "times_sampled_at_delete", &self->times_sampled);
  print_tally(&to, "age_at_delete_s", &self->age_s);
  return to.length;
}

const rv_extension_ops rv_extension_statistics = {
    .size = sizeof(rv_extension_ops),
    .create = create,
    .destroy = destroy,
    .on_events = on_events,
    .describe = describe,
};
