/* A plain model of a table that follows it step by step, and what must hold of the table and of those who wait at each step.
 *
 * The model is told what happened by an extension: every insert, sample, update, delete and reset, in order. It knows the limiter's two
 * formulas and a list of items, and says at once what could not have happened. Tables without that extension take other ways
 * (replace.c): of these the queues and the limiter are looked at. For actors_testing.h; nobody else runs while it looks. */
#ifndef RV_STORE_FOLLOWED_TESTING_H
#define RV_STORE_FOLLOWED_TESTING_H

#include <math.h>
#include <string.h>

#include "base/actors_testing.h"
#include "store/snapshot.h"
#include "store/store.h"
#include "store/table_parts.h"

enum { FOLLOWED_ITEMS = 512, FOLLOWED_QUEUE = 256, FOLLOWED_KEYS = 32 };

typedef struct followed_item {
  uint64_t key;
  double priority;
  int32_t times_sampled;
  bool gone;      /* for a listing: since it began */
  uint32_t shown; /* by it, so often */
} followed_item;

typedef struct followed_list {
  followed_item items[FOLLOWED_ITEMS + 1]; /* in order of insertion */
  size_t count;
} followed_list;

typedef struct followed_queue {
  uint64_t ids[FOLLOWED_QUEUE];
  size_t count;
} followed_queue;

typedef struct followed_actor {
  rv_operation_kind kind; /* what it submits */
  uint64_t cancelling;    /* the operation that it takes back; 0: none */
  uint64_t deleting[FOLLOWED_KEYS];
  size_t num_deleting;
  int64_t deadline_ns; /* of what it waits for; INT64_MAX: none */
  bool fired;          /* its cancel was, and whoever did that has told it */
} followed_actor;

static struct {
  rv_table *table; /* NULL: nothing is followed */
  bool told;       /* of everything that happens */
  followed_list list;
  int64_t inserts, samples, deletes, unique, updates;
  followed_list before[ACTORS_MAX];   /* as the snapshot that the actor began last must show it */
  const struct rv_snapshot *snapshot; /* when the lock was last given back */
  followed_list listed;               /* what a listing must show, but for those that went */
  followed_queue queue[2];            /* inserts, samples: when the lock was last given back */
  uint64_t last_waiter;
  followed_actor actors[ACTORS_MAX];
} followed;

static followed_actor *followed_current(void)
{
  return &followed.actors[stage.current - stage.actors];
}

/* ---- the model ---- */

static bool followed_may_insert(void)
{
  const rv_rate_limiter_config *c = &followed.table->limiter.config;
  return followed.inserts + 1 - followed.deletes <= c->min_size_to_sample ||
         (double)(followed.inserts + 1) * c->samples_per_insert - (double)followed.samples <= c->max_diff;
}

static bool followed_may_sample(void)
{
  const rv_rate_limiter_config *c = &followed.table->limiter.config;
  return followed.inserts - followed.deletes >= c->min_size_to_sample &&
         (double)followed.inserts * c->samples_per_insert - (double)followed.samples - 1 >= c->min_diff;
}

static followed_item *followed_find(followed_list *list, uint64_t key)
{
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i].key == key) return &list->items[i];
  return NULL;
}

static void followed_insert(const rv_event *event)
{
  STAGE_EXPECT(followed_may_insert(), "key %llu was inserted although the limiter forbids it", (unsigned long long)event->key);
  STAGE_EXPECT(followed_find(&followed.list, event->key) == NULL, "key %llu was inserted twice", (unsigned long long)event->key);
  STAGE_EXPECT(followed.list.count <= FOLLOWED_ITEMS, "more items than the model has room for");
  followed.list.items[followed.list.count++] = (followed_item){.key = event->key, .priority = event->priority};
  followed.inserts++;
}

static void followed_sample(const rv_event *event)
{
  followed_item *item = followed_find(&followed.list, event->key);
  STAGE_EXPECT(item != NULL, "key %llu was sampled, which is not there", (unsigned long long)event->key);
  STAGE_EXPECT(followed_may_sample(), "key %llu was sampled although the limiter forbids it", (unsigned long long)event->key);
  if (followed.table->config.sampler.kind == RV_SELECTOR_FIFO)
    STAGE_EXPECT(item == &followed.list.items[0], "another than the oldest item was sampled");
  if (item->times_sampled++ == 0) followed.unique++;
  STAGE_EXPECT(event->times_sampled == item->times_sampled, "key %llu: sampled %d times, not %d", (unsigned long long)event->key,
               (int)item->times_sampled, (int)event->times_sampled);
  STAGE_EXPECT(event->priority == item->priority, "key %llu: sampled with another priority", (unsigned long long)event->key);
  followed.samples++;
}

static void followed_update(const rv_event *event)
{
  followed_item *item = followed_find(&followed.list, event->key);
  STAGE_EXPECT(item != NULL && item->priority == event->old_priority, "key %llu was updated from a priority that it did not have",
               (unsigned long long)event->key);
  item->priority = event->priority;
  followed.updates++;
}

static bool followed_is_being_deleted(uint64_t key)
{
  for (int i = 0; i < stage.count; i++)
    for (size_t j = 0; j < followed.actors[i].num_deleting; j++)
      if (followed.actors[i].deleting[j] == key) return true;
  return false;
}

static void followed_delete(const rv_event *event)
{
  followed_list *list = &followed.list;
  followed_item *item = followed_find(list, event->key);
  const rv_table_config *config = &followed.table->config;
  STAGE_EXPECT(item != NULL, "key %llu went, which was not there", (unsigned long long)event->key);
  bool worn = config->max_times_sampled > 0 && item->times_sampled == config->max_times_sampled;
  bool over = (int64_t)list->count > config->max_size && (config->remover.kind != RV_SELECTOR_FIFO || item == &list->items[0]);
  STAGE_EXPECT(worn || over || followed_is_being_deleted(event->key), "key %llu went without a reason",
               (unsigned long long)event->key);
  followed_item *listed = followed_find(&followed.listed, event->key);
  if (listed != NULL) listed->gone = true;
  memmove(item, item + 1, (size_t)(&list->items[list->count] - item - 1) * sizeof *item);
  list->count--;
  followed.deletes++;
}

static void followed_reset(void)
{
  for (size_t i = 0; i < followed.listed.count; i++) followed.listed.items[i].gone = true;
  followed.list.count = 0;
  followed.inserts = followed.samples = followed.deletes = followed.unique = followed.updates = 0;
}

static void followed_on_events(void *extension, const rv_event *events, size_t n, rv_edit *edit)
{
  (void)extension;
  (void)edit;
  for (size_t i = 0; i < n && followed.table != NULL; i++) {
    switch (events[i].kind) {
    case RV_EVENT_INSERT: followed_insert(&events[i]); break;
    case RV_EVENT_SAMPLE: followed_sample(&events[i]); break;
    case RV_EVENT_UPDATE: followed_update(&events[i]); break;
    case RV_EVENT_DELETE: followed_delete(&events[i]); break;
    case RV_EVENT_RESET: followed_reset(); break;
    }
  }
}

static rv_code followed_create(const char *table, const char *options, void **extension, rv_error *err)
{
  (void)table;
  (void)options;
  (void)err;
  *extension = &followed;
  return RV_OK;
}

static void followed_destroy(void *extension)
{
  (void)extension;
}

static const rv_extension_ops followed_ops = {
    .size = sizeof followed_ops, .create = followed_create, .destroy = followed_destroy, .on_events = followed_on_events};

/* ---- whenever the table's lock is given back ---- */

static bool followed_has(const followed_queue *queue, uint64_t id)
{
  for (size_t i = 0; i < queue->count; i++)
    if (queue->ids[i] == id) return true;
  return false;
}

/* First come, first served: who left stood before all who stay, but for who was taken back. */
static void followed_check_queue(int kind, const rv_link *queue)
{
  followed_queue *seen = &followed.queue[kind], now = {.count = 0};
  RV_LIST_EACH(link, queue)
  {
    const rv_waiter *waiter = RV_CONTAINER(link, rv_waiter, link);
    STAGE_EXPECT(now.count < FOLLOWED_QUEUE, "more wait than the model has room for");
    STAGE_EXPECT(now.count == 0 || now.ids[now.count - 1] < waiter->id, "a queue is out of order");
    now.ids[now.count++] = waiter->id;
  }
  const followed_actor *self = followed_current();
  for (size_t i = 0; i < seen->count; i++) {
    uint64_t id = seen->ids[i];
    if (followed_has(&now, id) || id == self->cancelling) continue;
    STAGE_EXPECT(now.count == 0 || id < now.ids[0], "operation %llu was served before %llu, which came first",
                 (unsigned long long)id, (unsigned long long)now.ids[0]);
  }
  bool ours = (kind == 1) == (self->kind == RV_OPERATION_SAMPLE);
  for (uint64_t id = followed.last_waiter + 1; ours && id <= followed.table->next_waiter; id++)
    STAGE_EXPECT(followed_has(&now, id) || now.count == 0 || id < now.ids[0],
                 "operation %llu was served at once although %llu waits", (unsigned long long)id, (unsigned long long)now.ids[0]);
  *seen = now;
}

static void followed_check_counts(void)
{
  const rv_table *table = followed.table;
  STAGE_EXPECT(table->num_events == 0, "events were kept back");
  STAGE_EXPECT(table->books.slab.count == followed.list.count, "%zu items, not %zu", (size_t)table->books.slab.count,
               followed.list.count);
  STAGE_EXPECT((int64_t)followed.list.count <= table->config.max_size, "%zu items are too many", followed.list.count);
  STAGE_EXPECT(table->limiter.inserts == followed.inserts && table->limiter.samples == followed.samples &&
                   table->limiter.deletes == followed.deletes,
               "the limiter counts %lld inserts, %lld samples, %lld deletes, not %lld, %lld, %lld",
               (long long)table->limiter.inserts, (long long)table->limiter.samples, (long long)table->limiter.deletes,
               (long long)followed.inserts, (long long)followed.samples, (long long)followed.deletes);
  STAGE_EXPECT(table->num_unique_samples == followed.unique && table->updates == followed.updates, "other counts differ");
}

static void followed_unlocking(rv_mutex *mutex)
{
  rv_table *table = followed.table;
  if (table == NULL || mutex != &table->mutex) return;
  followed_check_queue(0, &table->inserts);
  followed_check_queue(1, &table->samples);
  followed.last_waiter = table->next_waiter;
  if (!followed.told) {
    followed.inserts = table->limiter.inserts;
    followed.samples = table->limiter.samples;
    followed.deletes = table->limiter.deletes;
    followed.list.count = table->books.slab.count;
    STAGE_EXPECT(followed.inserts - followed.deletes == (int64_t)followed.list.count, "the limiter lost count of the items");
    STAGE_EXPECT((int64_t)followed.list.count <= table->config.max_size, "%zu items are too many", followed.list.count);
  } else {
    followed_check_counts();
  }
  if (table->snapshot != NULL && table->snapshot != followed.snapshot)
    followed.before[stage.current - stage.actors] = followed.list;
  followed.snapshot = table->snapshot;
}

/* ---- when nobody is in the middle of anything ---- */

static void followed_look(bool calm)
{
  const rv_table *table = followed.table;
  if (!calm || table == NULL) return;
  STAGE_EXPECT(rv_list_empty(&table->completed) && !table->delivering, "an operation is complete and nobody says so");
  STAGE_EXPECT(table->pending_inserts == (int64_t)followed.queue[0].count &&
                   table->pending_samples == (int64_t)followed.queue[1].count,
               "%lld inserts and %lld samples are said to wait, not %zu and %zu", (long long)table->pending_inserts,
               (long long)table->pending_samples, followed.queue[0].count, followed.queue[1].count);
  if (table->closed) {
    STAGE_EXPECT(followed.queue[0].count + followed.queue[1].count == 0, "somebody waits in a table that is closed");
  } else {
    STAGE_EXPECT(followed.queue[0].count == 0 || !followed_may_insert(), "an insert waits that may proceed");
    STAGE_EXPECT(followed.queue[1].count == 0 || followed.list.count == 0 || !followed_may_sample(),
                 "a sample waits that may proceed");
  }
  for (int i = 0; i < stage.count; i++) {
    const actor *a = &stage.actors[i];
    const followed_actor *f = &followed.actors[i];
    if (a->over || a->outside) continue;
    STAGE_EXPECT(f->deadline_ns > stage.clock_ns, "actor %d sleeps beyond its deadline", i);
    STAGE_EXPECT(!f->fired, "actor %d sleeps although it was cancelled", i);
    STAGE_EXPECT(!table->closed, "actor %d sleeps although the table is closed", i);
  }
}

/* ---- cancelling, in the place of the real one ---- */

bool __real_rv_waiter_cancel(rv_waiter *waiter);
bool __wrap_rv_waiter_cancel(rv_waiter *waiter);
bool __wrap_rv_waiter_cancel(rv_waiter *waiter)
{
  if (stage.current == NULL) return __real_rv_waiter_cancel(waiter);
  followed_actor *self = followed_current();
  self->cancelling = waiter->id;
  bool taken = __real_rv_waiter_cancel(waiter);
  self->cancelling = 0;
  return taken;
}

/* ---- beginning and ending ---- */

static void followed_begin(rv_table *table, bool told)
{
  followed.table = table;
  followed.told = told;
  followed.list.count = followed.listed.count = 0;
  followed.inserts = followed.samples = followed.deletes = followed.unique = followed.updates = 0;
  followed.snapshot = NULL;
  followed.queue[0].count = followed.queue[1].count = 0;
  followed.last_waiter = table->next_waiter;
  for (int i = 0; i < ACTORS_MAX; i++) followed.actors[i] = (followed_actor){.deadline_ns = INT64_MAX};
  stage.look = followed_look;
  stage.unlocking = followed_unlocking;
}

static void followed_end(void)
{
  followed.table = NULL;
  stage.look = NULL;
  stage.unlocking = NULL;
}

#endif
