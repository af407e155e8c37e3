/* "diffusion": when an item's priority is updated, the items of the same episode that begin up to `steps` steps before or after
 * it are raised towards it, since what surprised a learner in one step concerns the steps that led there:
 *
 *     new = max(own, decay^distance * updated)
 *
 * The Reverb paper (Cassirer et al. 2021) names the idea only. An update never lowers a neighbour, and one that is not positive
 * and finite does not spread; neither do inserts, nor what was raised here. Of the items that begin at one step the 16 inserted
 * last are looked at, so that an update costs at most 32 * steps look-ups. After a few of them the rest waits until the table asks to go on,
 * which it does before the call that updated returns; items that come meanwhile may be raised, too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "store/extensions/extension.h"
#include "store/extensions/records.h"

enum {
  STEPS_MAX = 100,
  STEPS_DEFAULT = 5,
  LOOKED_AT = 16,
  LOOKS_AT_ONCE = 32, /* in one hold of the table's lock, and the rest of a step's */
  FIRST_WAITING = 16
};
#define DECAY_DEFAULT 0.7

/* Items that begin at the same step of the same episode are linked, the latest first. */
typedef struct item {
  uint32_t next, previous;
  uint64_t key, episode;
  int64_t step;
} item;

/* An update that spreads: what is to be raised next. */
typedef struct spreading {
  uint64_t episode;
  int64_t step, distance;
  bool after; /* the steps before the update's are done at this distance */
  double priority;
} spreading;

typedef struct diffusion {
  int64_t steps;
  double decay;
  rv_records items;
  rv_map first;      /* of (episode, step) mixed, which may be that of another pair, to the first item's record */
  rv_map left_first; /* set aside at a reset, to be freed */
  uint64_t spread, raised;
  spreading *waiting; /* a ring of those that are not done, in order */
  size_t first_waiting, num_waiting, capacity;
} diffusion;

static rv_code parse(diffusion *self, const char *options, rv_error *err)
{
  rv_option option;
  for (bool found = true;;) {
    rv_code code = rv_option_next(&options, &option, &found, err);
    if (code != RV_OK || !found) return code;
    if (strcmp(option.name, "steps") == 0)
      code = rv_option_int(&option, 1, STEPS_MAX, &self->steps, err);
    else if (strcmp(option.name, "decay") == 0)
      code = rv_option_double(&option, 0, 1, &self->decay, err);
    else
      code = rv_fail(err, RV_INVALID_ARGUMENT, "option \"%s\" is unknown; there are steps and decay", option.name);
    if (code != RV_OK) return code;
  }
}

static rv_code create(const char *table, const char *options, void **out, rv_error *err)
{
  (void)table;
  diffusion *self = calloc(1, sizeof *self);
  if (self == NULL) return rv_fail_memory(err, sizeof *self);
  self->steps = STEPS_DEFAULT;
  self->decay = DECAY_DEFAULT;
  rv_code code = parse(self, options, err);
  if (code != RV_OK) {
    free(self);
    return code;
  }
  rv_env env;
  rv_env_default(&env);
  rv_records_init(&self->items, sizeof(item), rv_entropy64(&env));
  rv_map_init(&self->first, rv_entropy64(&env));
  *out = self;
  return RV_OK;
}

static void destroy(void *extension)
{
  diffusion *self = extension;
  rv_records_fini(&self->items);
  rv_map_fini(&self->first);
  rv_map_fini(&self->left_first);
  free(self->waiting);
  free(self);
}

static item *at(const diffusion *self, uint32_t number)
{
  return RV_RECORD(&self->items, item, number);
}

static uint64_t mix(uint64_t episode, int64_t step)
{
  return episode * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)step * UINT64_C(0xD1B54A32D192ED03);
}

static void inserted(diffusion *self, const rv_event *event)
{
  if (event->episode_step < 0) return;
  uint32_t number = rv_records_add(&self->items, event->key);
  if (number == RV_NO_RECORD) return;
  uint64_t mixed = mix(event->episode_id, event->episode_step);
  const uint32_t *first = rv_map_get(&self->first, mixed);
  uint32_t next = first != NULL ? *first : RV_NO_RECORD;
  if (rv_map_put(&self->first, mixed, number) != RV_OK) {
    rv_records_remove(&self->items, event->key, number);
    return;
  }
  *at(self, number) = (item){next, RV_NO_RECORD, event->key, event->episode_id, event->episode_step};
  if (next != RV_NO_RECORD) at(self, next)->previous = number;
}

static void deleted(diffusion *self, const rv_event *event)
{
  uint32_t number = rv_records_find(&self->items, event->key);
  if (number == RV_NO_RECORD) return;
  item gone = *at(self, number);
  if (gone.next != RV_NO_RECORD) at(self, gone.next)->previous = gone.previous;
  if (gone.previous != RV_NO_RECORD)
    at(self, gone.previous)->next = gone.next;
  else if (gone.next != RV_NO_RECORD)
    *rv_map_get(&self->first, mix(gone.episode, gone.step)) = gone.next;
  else
    rv_map_remove(&self->first, mix(gone.episode, gone.step));
  rv_records_remove(&self->items, event->key, number);
}

/* How many were looked at, and the step itself. */
static int raise_at(diffusion *self, uint64_t episode, int64_t step, double priority, rv_edit *edit)
{
  const uint32_t *first = rv_map_get(&self->first, mix(episode, step));
  uint32_t number = first != NULL ? *first : RV_NO_RECORD;
  int looked_at = 0;
  for (; number != RV_NO_RECORD && looked_at < LOOKED_AT; looked_at++) {
    const item *neighbour = at(self, number);
    number = neighbour->next;
    double own;
    if (neighbour->episode != episode || neighbour->step != step) continue;
    if (rv_edit_priority(edit, neighbour->key, &own) != RV_OK || own >= priority) continue;
    if (rv_edit_set_priority(edit, neighbour->key, priority) == RV_OK) self->raised++;
  }
  return 1 + looked_at;
}

/* One step of the episode, the nearest first. False: there is none left. */
static bool spread_on(diffusion *self, spreading *from, int *looks, rv_edit *edit)
{
  if (!from->after) {
    from->priority *= self->decay;
    if (++from->distance > self->steps || from->priority == 0) return false;
    if (from->step >= from->distance) *looks += raise_at(self, from->episode, from->step - from->distance, from->priority, edit);
  } else if (from->step <= INT64_MAX - from->distance) {
    *looks += raise_at(self, from->episode, from->step + from->distance, from->priority, edit);
  }
  from->after = !from->after;
  return true;
}

/* ---- those that wait ---- */

/* False: out of memory. */
static bool has_room(diffusion *self)
{
  if (self->num_waiting < self->capacity) return true;
  size_t capacity = self->capacity == 0 ? FIRST_WAITING : 2 * self->capacity;
  spreading *grown = malloc(capacity * sizeof *grown);
  if (grown == NULL) return false;
  for (size_t i = 0; i < self->num_waiting; i++) grown[i] = self->waiting[(self->first_waiting + i) % self->capacity];
  free(self->waiting);
  self->waiting = grown;
  self->first_waiting = 0;
  self->capacity = capacity;
  return true;
}

/* As much of what waits as may be done at once; true: there is more. */
static bool spread_waiting(diffusion *self, int *looks, rv_edit *edit)
{
  while (self->num_waiting > 0 && *looks < LOOKS_AT_ONCE) {
    if (spread_on(self, &self->waiting[self->first_waiting], looks, edit)) continue;
    self->first_waiting = (self->first_waiting + 1) % self->capacity;
    self->num_waiting--;
  }
  return self->num_waiting > 0;
}

static bool go_on(void *extension, rv_edit *edit)
{
  int looks = 0;
  return spread_waiting(extension, &looks, edit);
}

static void updated(diffusion *self, const rv_event *event, int *looks, rv_edit *edit)
{
  uint32_t number = rv_records_find(&self->items, event->key);
  if (number == RV_NO_RECORD || !(event->priority > 0) || !isfinite(event->priority)) return;
  const item *origin = at(self, number);
  spreading begun = {.episode = origin->episode, .step = origin->step, .priority = event->priority};
  self->spread++;
  bool more = true;
  while (more && self->num_waiting == 0 && *looks < LOOKS_AT_ONCE) more = spread_on(self, &begun, looks, edit);
  if (more && has_room(self))
    self->waiting[(self->first_waiting + self->num_waiting++) % self->capacity] = begun;
  else
    while (more) more = spread_on(self, &begun, looks, edit);
}

static void reset(diffusion *self)
{
  rv_records_clear(&self->items);
  rv_map_fini(&self->left_first); /* usually long gone */
  self->left_first = self->first;
  rv_map_init(&self->first, self->first.hash.seed);
  self->spread = self->raised = 0;
  self->first_waiting = self->num_waiting = 0;
}

static void on_events(void *extension, const rv_event *events, size_t n, rv_edit *edit)
{
  diffusion *self = extension;
  int looks = 0;
  for (size_t i = 0; i < n; i++) switch (events[i].kind) {
    case RV_EVENT_INSERT: inserted(self, &events[i]); break;
    case RV_EVENT_UPDATE: updated(self, &events[i], &looks, edit); break;
    case RV_EVENT_DELETE: deleted(self, &events[i]); break;
    case RV_EVENT_RESET: reset(self); break;
    case RV_EVENT_SAMPLE: break;
    }
  rv_records_tidy(&self->items);
  rv_map_fini_some(&self->left_first, LOOKED_AT);
}

static size_t describe(void *extension, char *out, size_t capacity)
{
  const diffusion *self = extension;
  int written =
      snprintf(out, capacity, "steps=%lld decay=%g items=%zu updates_spread=%llu priorities_raised=%llu", (long long)self->steps,
               self->decay, self->items.index.count, (unsigned long long)self->spread, (unsigned long long)self->raised);
  return written > 0 ? (size_t)written : 0;
}

const rv_extension_ops rv_extension_diffusion = {
    .size = sizeof(rv_extension_ops),
    .create = create,
    .destroy = destroy,
    .on_events = on_events,
    .describe = describe,
    .go_on = go_on,
};
