/* A table and those who wait in it, under schedules chosen by a seed: adding, inserting, sampling with deadlines, taking back, changing
 * priorities and limits, deleting, resetting, listings and snapshots in slices, closing. A plain model looks at each step
 * (store/followed_testing.h).
 *
 * RV_TEST_INTERLEAVINGS says how many schedules; RV_TEST_SEED repeats one. */
#include "store/testing.h"

#include "client/wait.h"
#include "reverie/sampler.h"
#include "store/chunk_parts.h"
#include "store/followed_testing.h"

enum { KEPT = 1024, GROUP = 16, MOST_ROWS = 300, MILLI = 1000000 };

typedef struct kept_value {
  uint64_t key;
  int64_t value;
} kept_value;

typedef struct kept_values {
  kept_value values[KEPT];
  size_t count;
} kept_values;

static struct {
  rv_store *store;
  rv_client *client;
  rv_table *table;
  rv_registry *registry;
  rv_random random;
  rv_random entropy;
  rv_cancel *cancels[ACTORS_MAX]; /* NULL: the actor has none */
  bool closing;
  int64_t next_value;
  kept_values in, out; /* what was confirmed; what was sampled */
  rv_chunk *chunks[KEPT];
  size_t num_chunks;
  int64_t added, drawn;   /* as the callers were told */
  bool reset;             /* the table began to count anew */
  int64_t close_after_ns; /* INT64_MAX: not before all else is over */
  int others;             /* actors that are not over, but for the one that closes */
  bool many;              /* of hundreds of items */
  int completing;         /* callers of completions */
  uint64_t completed[2];  /* inserts, samples: the last that was */
} world;

static uint32_t below(uint32_t n)
{
  return rv_random_below(&world.random, n);
}

static void keep(kept_values *to, uint64_t key, int64_t value)
{
  if (to->count < KEPT) to->values[to->count++] = (kept_value){key, value};
}

static int self_index(void)
{
  return (int)(stage.current - stage.actors);
}

/* ---- the world outside ---- */

static int64_t now_ns(void *context)
{
  (void)context;
  return stage.clock_ns;
}

static void entropy(void *context, void *out, size_t n)
{
  (void)context;
  uint8_t *at = out;
  for (size_t i = 0; i < n; i++) at[i] = (uint8_t)rv_random_next(&world.entropy);
}

static void no_log(void *context, rv_log_level level, const char *line)
{
  (void)context;
  (void)level;
  (void)line;
}

/* When a caller's patience ends is known when it begins. */
void __real_rv_patience_begin(rv_patience *patience, const rv_env *env, const rv_wait *wait,
                              void (*describe)(void *context, char *out, size_t capacity), void *context);
void __wrap_rv_patience_begin(rv_patience *patience, const rv_env *env, const rv_wait *wait,
                              void (*describe)(void *context, char *out, size_t capacity), void *context);
void __wrap_rv_patience_begin(rv_patience *patience, const rv_env *env, const rv_wait *wait,
                              void (*describe)(void *context, char *out, size_t capacity), void *context)
{
  __real_rv_patience_begin(patience, env, wait, describe, context);
  if (stage.current != NULL) followed_current()->deadline_ns = patience->deadline_ns;
}

/* ---- calls that wait ---- */

static rv_wait begin_wait(rv_operation_kind kind)
{
  static const int64_t timeouts[] = {0, 1, 3, 10, 50, RV_FOREVER};
  followed_actor *self = followed_current();
  self->kind = kind;
  self->deadline_ns = INT64_MAX;
  return (rv_wait){.timeout_ms = timeouts[below(6)], .cancel = world.cancels[self_index()]};
}

/* True: the caller gave up, or had to, with a right. */
static bool gave_up(rv_code code, const rv_error *err)
{
  followed_actor *self = followed_current();
  bool late = stage.clock_ns >= self->deadline_ns;
  rv_cancel *cancel = world.cancels[self_index()];
  bool cancelled = world.closing || rv_cancel_fired(cancel);
  self->deadline_ns = INT64_MAX;
  if (code == RV_OK) return late || cancelled;
  STAGE_EXPECT((code == RV_DEADLINE_EXCEEDED && late) || (code == RV_CANCELLED && cancelled), "%s: %s", rv_code_name(code),
               err->message);
  return true;
}

static bool is_closed(rv_code code)
{
  STAGE_EXPECT(code == RV_OK || (code == RV_CANCELLED && world.closing), "%s", rv_code_name(code));
  return code != RV_OK;
}

/* ---- rows ---- */

static void add_rows(void)
{
  size_t n = below(8) == 0 ? 1 + below(world.many ? MOST_ROWS : 20) : 1 + below(3), added = 0;
  int64_t mine[MOST_ROWS], shape = (int64_t)n;
  uint64_t keys[MOST_ROWS];
  for (size_t i = 0; i < n; i++) mine[i] = world.next_value++;
  rv_error err;
  rv_wait wait = begin_wait(RV_OPERATION_ROWS);
  rv_code code;
  if (n == 1 && below(2) == 0) {
    rv_tensor row = {.dtype = RV_INT64, .data = mine};
    code = rv_client_add(world.client, "t", &row, 1, 1, keys, &wait, &err);
    added = code == RV_OK ? 1 : 0;
  } else {
    rv_tensor column = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .data = mine};
    code = rv_client_add_batch(world.client, "t", &column, 1, n, NULL, keys, &added, &wait, &err);
  }
  gave_up(code, &err);
  STAGE_EXPECT((code == RV_OK) == (added == n), "%zu of %zu rows are in: %s", added, n, rv_code_name(code));
  world.added += (int64_t)added;
  for (size_t i = 0; i < added; i++) keep(&world.in, keys[i], mine[i]);
}

/* ---- items, without a thread that waits, as a server has them ---- */

typedef struct offer {
  rv_insert insert;
  int64_t value;
  bool pending; /* it was not done at once */
  int completed;
} offer;

/* One thread at a time, in order. */
static void note_completed(const rv_waiter *waiter, int *completed, const char *what)
{
  uint64_t *last = &world.completed[waiter->kind == RV_OPERATION_SAMPLE];
  STAGE_EXPECT(world.completing++ == 0, "two threads complete operations at once");
  STAGE_EXPECT(waiter->id > *last, "operation %llu is completed after %llu", (unsigned long long)waiter->id,
               (unsigned long long)*last);
  *last = waiter->id;
  stage_step(what);
  world.completing--;
  ++*completed; /* its memory may go from here on */
}

static void offer_completed(rv_waiter *waiter)
{
  note_completed(waiter, &((offer *)waiter->context)->completed, "completes an insert");
}

static void begin_offer(offer *o)
{
  *o = (offer){.value = world.next_value++, .insert = {.priority = 1 + below(3), .choose_key = below(2) == 0, .key = below(8)}};
  rv_chunk *chunk = chunk_of(o->value, 0);
  o->insert.trajectory = trajectory_of(world.store, chunk, 0, 1);
  if (world.num_chunks < KEPT)
    world.chunks[world.num_chunks++] = chunk;
  else
    rv_chunk_unref(chunk);
  o->insert.waiter = (rv_waiter){.complete = offer_completed, .context = o, .deadline_ns = INT64_MAX};
}

static void end_offer(offer *o, bool taken_back)
{
  rv_code code = o->insert.waiter.code;
  if (!taken_back && !is_closed(code)) {
    if (!o->insert.updated) {
      world.added++;
      keep(&world.in, o->insert.key, o->value);
    }
  }
  STAGE_EXPECT(o->completed == (o->pending && !taken_back ? 1 : 0), "an insert completed %d times", o->completed);
  rv_trajectory_unref(o->insert.trajectory);
}

/* Takes it back, or waits for what is certain to come. True: taken back. */
static bool take_back(rv_waiter *waiter, const int *completed)
{
  if (*completed == 0 && rv_waiter_cancel(waiter)) return true;
  while (*completed == 0) stage_sleep(MILLI);
  return false;
}

static void insert_items(void)
{
  offer offers[GROUP];
  rv_insert *inserts[GROUP];
  rv_submitted submitted[GROUP];
  size_t n = below(4) == 0 ? 1 + below(GROUP) : 1 + below(2);
  followed_current()->kind = RV_OPERATION_INSERT;
  for (size_t i = 0; i < n; i++) {
    begin_offer(&offers[i]);
    inserts[i] = &offers[i].insert;
  }
  size_t taken = n;
  if (n == 1)
    submitted[0] = rv_table_insert(world.table, inserts[0]);
  else
    taken = rv_table_insert_many(world.table, inserts, n, submitted);
  for (size_t i = 0; i < taken; i++) offers[i].pending = submitted[i] == RV_SUBMIT_PENDING;
  for (uint32_t i = below(4); i > 0; i--) stage_sleep((int64_t)below(20) * MILLI);
  for (size_t i = n; i-- > 0;) { /* the newest first, so that order is kept */
    bool back = i >= taken || (offers[i].pending && take_back(&inserts[i]->waiter, &offers[i].completed));
    end_offer(&offers[i], back);
  }
}

/* ---- samples ---- */

static void sample_batch(void)
{
  size_t want = below(8) == 0 ? 1 + below(60) : 1 + below(4);
  rv_error err;
  rv_batch *batch = NULL;
  rv_wait wait = begin_wait(RV_OPERATION_SAMPLE);
  rv_code code =
      rv_client_sample_batch(world.client, "t", want, below(2) == 0 ? RV_UNEQUAL_ERROR : RV_UNEQUAL_LIST, &wait, &batch, &err);
  bool right = gave_up(code, &err);
  if (code != RV_OK) return;
  size_t size = rv_batch_size(batch);
  int64_t values[60];
  STAGE_EXPECT(size == want || (right && size > 0), "%zu of %zu samples", size, want);
  code = rv_batch_gather(batch, 0, values, size * sizeof *values, &err);
  STAGE_EXPECT(code == RV_OK, "%s", err.message);
  for (size_t i = 0; i < size; i++) keep(&world.out, rv_batch_info(batch, i)->key, values[i]);
  world.drawn += (int64_t)size;
  if (below(2) == 0) stage_idle(); /* while it is held */
  rv_batch_free(batch);
}

static void sample_into(void)
{
  size_t want = 1 + below(6);
  int64_t values[6];
  uint64_t keys[6];
  void *columns[] = {values};
  rv_error err;
  rv_batch *batch = NULL;
  rv_wait wait = begin_wait(RV_OPERATION_SAMPLE);
  rv_code code = rv_client_sample_batch(world.client, "t", 1, RV_UNEQUAL_LIST, &wait, &batch, &err);
  gave_up(code, &err);
  if (code != RV_OK) return;
  world.drawn++;
  rv_layout *layout = rv_layout_ref(rv_batch_layout(batch));
  rv_batch_free(batch);
  wait = begin_wait(RV_OPERATION_SAMPLE);
  rv_batch_arrays arrays = {.size = sizeof arrays, .layout = layout, .columns = columns, .keys = keys};
  code = rv_client_sample_into(world.client, "t", want, &arrays, &wait, &err);
  bool right = gave_up(code, &err);
  STAGE_EXPECT(code != RV_OK || arrays.count == want || right, "%zu of %zu samples", arrays.count, want);
  for (size_t i = 0; code == RV_OK && i < arrays.count; i++) keep(&world.out, keys[i], values[i]);
  if (code == RV_OK) world.drawn += (int64_t)arrays.count;
  rv_layout_unref(layout);
}

typedef struct ask {
  rv_sampling sampling;
  rv_draw draws[40];
  int completed;
} ask;

static void ask_completed(rv_waiter *waiter)
{
  note_completed(waiter, &((ask *)waiter->context)->completed, "completes a sample");
}

static void ask_for_samples(void)
{
  ask a;
  a.completed = 0;
  a.sampling =
      (rv_sampling){.want = 1 + below(40), .partial = below(2) == 0, .max_bytes = below(2) == 0 ? 100 : 0, .draws = a.draws};
  a.sampling.waiter = (rv_waiter){.complete = ask_completed, .context = &a, .deadline_ns = stage.clock_ns + 5 * MILLI};
  followed_current()->kind = RV_OPERATION_SAMPLE;
  bool pending = rv_table_sample(world.table, &a.sampling) == RV_SUBMIT_PENDING, back = false;
  if (pending) {
    stage_sleep(5 * MILLI);
    back = take_back(&a.sampling.waiter, &a.completed);
  }
  if (!back) is_closed(a.sampling.waiter.code);
  STAGE_EXPECT(a.completed == (pending && !back ? 1 : 0), "a sample completed %d times", a.completed);
  rv_error err;
  for (size_t i = 0; i < a.sampling.count; i++) {
    int64_t value = -1;
    STAGE_EXPECT(rv_draw_copy_column(&a.draws[i], 0, &value, &err) == RV_OK, "%s", err.message);
    keep(&world.out, a.draws[i].key, value);
  }
  world.drawn += (int64_t)a.sampling.count;
  rv_draws_release(a.draws, a.sampling.count);
}

/* ---- changes ---- */

static uint64_t some_key(void)
{
  return world.in.count > 0 && below(4) > 0 ? world.in.values[below((uint32_t)world.in.count)].key : below(8);
}

static void update(void)
{
  uint64_t keys[8];
  double priorities[8];
  size_t n = 1 + below(8), unknown;
  rv_error err;
  for (size_t i = 0; i < n; i++) {
    keys[i] = some_key();
    priorities[i] = below(4);
  }
  is_closed(rv_client_update_priorities(world.client, "t", keys, priorities, n, NULL, &unknown, NULL, &err));
}

static void delete_some(void)
{
  followed_actor *self = followed_current();
  size_t n = below(4) == 0 ? 1 + below(FOLLOWED_KEYS) : 1 + below(3), unknown;
  uint64_t keys[FOLLOWED_KEYS];
  rv_key_priority update = {some_key(), 2};
  rv_error err;
  bool all = below(3) == 0 && followed.told;
  if (all) n = followed.list.count < FOLLOWED_KEYS ? followed.list.count : FOLLOWED_KEYS;
  for (size_t i = 0; i < n; i++) self->deleting[i] = keys[i] = all ? followed.list.items[i].key : some_key();
  self->num_deleting = n;
  is_closed(rv_client_mutate(world.client, "t", &update, below(2), keys, n, NULL, &unknown, NULL, &err));
  self->num_deleting = 0;
}

static rv_rate_limiter_config some_limiter(int64_t max_size)
{
  switch (below(6)) {
  case 0: return rv_rate_limiter_min_size(1 + (int64_t)below((uint32_t)max_size));
  case 1: return rv_rate_limiter_sample_to_insert_ratio(2, 1 + max_size / 2, 6);
  case 2: return rv_rate_limiter_queue(max_size);
  case 3: return rv_rate_limiter_stack(1 + max_size / 2);
  case 4: return rv_rate_limiter_sample_to_insert_ratio(0.5, 1, 3);
  default: return rv_rate_limiter_min_size(1);
  }
}

static void change_limiter(void)
{
  rv_error err;
  rv_rate_limiter_config limiter = some_limiter(world.table->config.max_size);
  rv_code code = rv_client_set_rate_limiter(world.client, "t", &limiter, NULL, &err);
  if (code != RV_INVALID_ARGUMENT) is_closed(code); /* not every limiter is for every table */
}

static void reset(void)
{
  rv_error err;
  world.reset = true;
  is_closed(rv_client_reset(world.client, "t", NULL, &err));
}

static void change(void)
{
  uint32_t what = below(20);
  if (what < 8)
    update();
  else if (what < 14)
    delete_some();
  else if (what < 18)
    change_limiter();
  else
    reset();
}

/* ---- looking ---- */

/* None that stayed is missed or shown twice. */
static void list_items(void)
{
  static bool busy;
  rv_item_info page[50];
  uint64_t cursor = 0;
  size_t count, capacity = world.many ? 50 : 1 + below(6);
  rv_error err;
  if (busy || !followed.told) return;
  busy = true;
  followed.listed = followed.list;
  for (size_t i = 0; i < followed.listed.count; i++) followed.listed.items[i].gone = false;
  for (size_t i = 0; i < followed.listed.count; i++) followed.listed.items[i].shown = 0;
  do {
    rv_code code = rv_client_items(world.client, "t", &cursor, page, capacity, &count, NULL, &err);
    STAGE_EXPECT(code == RV_OK || world.closing, "%s", err.message);
    if (code != RV_OK) break;
    for (size_t i = 0; i < count; i++) {
      followed_item *item = followed_find(&followed.listed, page[i].key);
      if (item != NULL)
        STAGE_EXPECT(item->shown++ == 0 || item->gone, "key %llu is listed twice", (unsigned long long)page[i].key);
    }
    if (cursor != 0) stage_idle();
    if (cursor == 0)
      for (size_t i = 0; i < followed.listed.count; i++) {
        followed_item *item = &followed.listed.items[i];
        STAGE_EXPECT(item->gone || item->shown == 1, "key %llu is listed %u times", (unsigned long long)item->key, item->shown);
      }
  } while (cursor != 0);
  followed.listed.count = 0;
  busy = false;
}

static void look_at_info(void)
{
  rv_table_info info;
  rv_error err;
  rv_code code = rv_table_get_info(world.table, &info, &err);
  STAGE_EXPECT(code == RV_OK, "%s", err.message);
  STAGE_EXPECT(info.current_size >= 0 && info.current_size <= info.max_size, "%lld items", (long long)info.current_size);
  for (size_t i = 1; i < info.num_waiting; i++)
    STAGE_EXPECT(info.waiting[i].is_insert != info.waiting[i - 1].is_insert || info.waiting[i].id > info.waiting[i - 1].id,
                 "who waits is shown out of order");
  rv_table_info_fini(&info);
}

static void take_snapshot(void)
{
  rv_snapshot *snapshot;
  const rv_draw *items;
  size_t count, at = 0;
  rv_error err;
  rv_code code = rv_snapshot_new(world.table, &snapshot, &err);
  if (code == RV_FAILED_PRECONDITION) return; /* another's is being taken */
  STAGE_EXPECT(code == RV_OK, "%s", err.message);
  const followed_list *before = &followed.before[self_index()];
  size_t expected = before->count;
  bool all = below(8) > 0;
  do {
    code = rv_snapshot_next(snapshot, &items, &count, &err);
    STAGE_EXPECT(code == RV_OK, "%s", err.message);
    for (size_t i = 0; i < count; i++, at++) {
      if (!followed.told) continue;
      const followed_item *item = &before->items[at];
      STAGE_EXPECT(at < expected && items[i].key == item->key && items[i].priority == item->priority &&
                       items[i].times_sampled == item->times_sampled,
                   "item %zu of the snapshot is not what it was: key %llu", at, (unsigned long long)items[i].key);
    }
    stage_idle();
  } while (count > 0 && all);
  STAGE_EXPECT(!all || at == expected, "the snapshot has %zu items, not %zu", at, expected);
  rv_snapshot_free(snapshot);
}

static void look(void)
{
  switch (below(3)) {
  case 0: list_items(); break;
  case 1: look_at_info(); break;
  default: take_snapshot();
  }
}

/* ---- actors ---- */

static void cancel_somebody(void)
{
  int who = (int)below((uint32_t)stage.count);
  stage_sleep((int64_t)below(10) * MILLI);
  if (world.cancels[who] == NULL) return;
  rv_cancel_fire(world.cancels[who]);
  followed.actors[who].fired = true;
}

static void act(void *role)
{
  void (*const *verbs)(void) = role;
  for (uint32_t i = 1 + below(4); i > 0; i--) {
    stage_idle();
    verbs[below(2)]();
  }
  world.others--;
}

/* Last, or in the middle of it. */
static void close_store(void *unused)
{
  (void)unused;
  stage_sleep(world.close_after_ns);
  world.closing = true;
  rv_store_close(world.store);
}

static void (*const ADDS[])(void) = {add_rows, add_rows};
static void (*const INSERTS[])(void) = {insert_items, insert_items};
static void (*const ROWS_AND_ITEMS[])(void) = {add_rows, insert_items};
static void (*const SAMPLES[])(void) = {sample_batch, sample_batch};
static void (*const ASKS[])(void) = {ask_for_samples, sample_into};
static void (*const CHANGES[])(void) = {change, change};
static void (*const LOOKS[])(void) = {look, look};
static void (*const CANCELS[])(void) = {cancel_somebody, cancel_somebody};

static void add_actor(void (*const *verbs)(void))
{
  rv_error err;
  int index = stage.count;
  world.cancels[index] = NULL;
  if (below(2) == 0) must(rv_cancel_new(&world.cancels[index], &err), &err);
  stage_add(act, (void *)(uintptr_t)verbs);
  world.others++;
}

static void add_actors(void)
{
  void (*const *const producers[])(void) = {ADDS, INSERTS, ROWS_AND_ITEMS};
  void (*const *const consumers[])(void) = {SAMPLES, ASKS};
  void (*const *const rest[])(void) = {ADDS, INSERTS, SAMPLES, ASKS, CHANGES, CHANGES, LOOKS, CANCELS};
  add_actor(producers[below(3)]);
  add_actor(consumers[below(2)]);
  for (uint32_t i = 1 + below(4); i > 0; i--) add_actor(rest[below(8)]);
  world.cancels[stage.count] = NULL;
  stage_add(close_store, NULL);
}

/* ---- one schedule ---- */

static rv_table_config some_table(void)
{
  static const rv_extension_config follow = {.name = "followed"};
  world.many = below(24) == 0;
  rv_table_config config =
      rv_table_config_default("t", world.many ? 150 + (int64_t)below(200) : 1 + (int64_t)below(below(2) == 0 ? 3 : 12));
  config.sampler.kind = below(3) == 0 ? RV_SELECTOR_FIFO : RV_SELECTOR_UNIFORM;
  if (below(4) == 0) config.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  if (below(4) == 0) config.remover.kind = RV_SELECTOR_MIN_HEAP;
  config.max_times_sampled = below(3) == 0 ? 1 + (int32_t)below(2) : 0;
  do config.rate_limiter = some_limiter(config.max_size);
  while (rv_rate_limiter_check_table(&config, NULL) != RV_OK);
  if (below(4) > 0) {
    config.extensions = &follow;
    config.num_extensions = 1;
  }
  return config;
}

static void check_values(void)
{
  for (size_t i = 0; i < world.out.count && world.in.count < KEPT; i++) {
    bool found = false;
    for (size_t j = 0; j < world.in.count && !found; j++)
      found = world.in.values[j].key == world.out.values[i].key && world.in.values[j].value == world.out.values[i].value;
    STAGE_EXPECT(found, "key %llu was sampled with value %lld, which nobody put there",
                 (unsigned long long)world.out.values[i].key, (long long)world.out.values[i].value);
  }
}

static void let_go(void)
{
  rv_client_free(world.client);
  rv_store_unref(world.store);
  for (size_t i = 0; i < world.num_chunks; i++) {
    STAGE_EXPECT(rv_chunk_refs(world.chunks[i]) == 1, "a chunk has %zu references left", rv_chunk_refs(world.chunks[i]) - 1);
    rv_chunk_unref(world.chunks[i]);
  }
  for (int i = 0; i < stage.count; i++) rv_cancel_free(world.cancels[i]);
}

/* What it came to, as a number that another run of the same seed must come to. */
static uint64_t run(uint64_t seed)
{
  rv_error err;
  rv_env env = {.size = sizeof env, .wall_ns = now_ns, .monotonic_ns = now_ns, .entropy = entropy, .log = no_log};
  stage_begin(seed);
  rv_random_init(&world.random, seed ^ UINT64_C(0x5EED));
  rv_random_init(&world.entropy, seed ^ UINT64_C(0xE17));
  world.next_value = 1;
  world.in.count = world.out.count = world.num_chunks = 0;
  world.added = world.drawn = 0;
  world.completing = 0;
  world.completed[0] = world.completed[1] = 0;
  world.others = 0;
  world.closing = world.reset = false;
  rv_table_config config = some_table();
  rv_store_config whole = {
      .size = sizeof whole, .env = &env, .registry = world.registry, .tables = &config, .num_tables = 1, .gather_threads = 1};
  must(rv_store_new(&whole, &world.store, &err), &err);
  rv_client_config client = {.size = sizeof client, .store = world.store, .env = &env};
  must(rv_client_new(&client, &world.client, &err), &err);
  world.table = rv_store_table(world.store, 0);
  followed_begin(world.table, config.num_extensions > 0);
  world.close_after_ns = below(4) == 0 ? (int64_t)below(30) * MILLI : INT64_C(60) * 1000 * MILLI;
  add_actors();
  stage_run();
  STAGE_EXPECT(world.others == 0, "%d actors are not over", world.others);
  STAGE_EXPECT(world.reset || (world.table->limiter.inserts == world.added && world.table->limiter.samples == world.drawn),
               "the table counts %lld inserts and %lld samples; callers were told of %lld and %lld",
               (long long)world.table->limiter.inserts, (long long)world.table->limiter.samples, (long long)world.added,
               (long long)world.drawn);
  followed_end();
  check_values();
  let_go();
  return stage.hash;
}

/* ---- tests ---- */

static uint64_t number_from(const char *name, uint64_t otherwise)
{
  const char *text = getenv(name);
  return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

static void whatever_the_schedule_nobody_waits_who_may_proceed_and_all_end_once(void **state)
{
  (void)state;
  uint64_t first = number_from("RV_TEST_SEED", 1);
  uint64_t schedules = number_from("RV_TEST_INTERLEAVINGS", getenv("RV_TEST_SEED") != NULL ? 1 : 4000), steps = 0;
  for (uint64_t seed = first; seed < first + schedules; seed++) {
    run(seed);
    steps += stage.steps;
  }
  print_message("%llu schedules from seed %llu, %llu steps\n", (unsigned long long)schedules, (unsigned long long)first,
                (unsigned long long)steps);
}

static void a_seed_is_a_schedule(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed < 100; seed++) assert_int_equal(run(seed), run(seed));
}

static int set_up(void **state)
{
  (void)state;
  rv_error err;
  must(rv_registry_new(&world.registry, &err), &err);
  must(rv_registry_add_extension(world.registry, "followed", &followed_ops, &err), &err);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  rv_registry_free(world.registry);
  stage_fini();
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_seed_is_a_schedule),
      cmocka_unit_test(whatever_the_schedule_nobody_waits_who_may_proceed_and_all_end_once),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
