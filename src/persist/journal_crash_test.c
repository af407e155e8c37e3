/* A server goes at each of its calls that change files, and whoever starts next at each of his: what was confirmed is there, once. */
#include "persist/crash_testing.h"
#include "persist/journal_testing.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MAX_SIZE = 6, A_LIFE = 12, WIDE = 12000, FAILED = 1, CALLS_OF_A_START = 16, FROM_NOTHING = 40 };

/* ---- what there should be ---- */

typedef struct model_item {
  uint64_t key;
  double priority;
  int32_t times_sampled;
} model_item;

typedef struct model {
  model_item items[MAX_SIZE + 1]; /* in the order of insertion */
  size_t count;
  uint64_t inserts; /* as many numbers of the writer are done */
  uint64_t samples; /* since the last reset */
} model;

typedef enum what { INSERT, INSERT_WIDE, UPDATE, DELETE, SAMPLE, RESET, CHECKPOINT } what;

/* The i-th operation. Each but a checkpoint changes something. */
static what operation(uint64_t i, const model *m)
{
  static const what round[] = {INSERT, INSERT, UPDATE,      CHECKPOINT, SAMPLE, INSERT, DELETE, INSERT, INSERT_WIDE, INSERT,
                               UPDATE, INSERT, INSERT_WIDE, CHECKPOINT, SAMPLE, UPDATE, INSERT, RESET,  INSERT};
  what next = round[i % (sizeof round / sizeof round[0])];
  return m->count == 0 && (next == UPDATE || next == DELETE || next == SAMPLE) ? INSERT : next;
}

static void remove_at(model *m, size_t at)
{
  for (m->count--; at < m->count; at++) m->items[at] = m->items[at + 1];
}

static void apply(model *m, uint64_t i)
{
  switch (operation(i, m)) {
  case INSERT:
  case INSERT_WIDE:
    m->items[m->count++] = (model_item){.key = i + 1, .priority = 1};
    m->inserts++;
    if (m->count > MAX_SIZE) remove_at(m, 0);
    break;
  case UPDATE: m->items[m->count - 1].priority = (double)i; break;
  case DELETE: remove_at(m, m->count / 2); break;
  case SAMPLE:
    m->items[0].times_sampled++;
    m->samples++;
    break;
  case RESET: m->count = m->samples = 0; break;
  case CHECKPOINT: break;
  }
}

static model after(uint64_t operations)
{
  model m = {.count = 0};
  for (uint64_t i = 0; i < operations; i++) apply(&m, i);
  return m;
}

/* ---- a server's life ---- */

/* In memory that outlives it. */
typedef struct known_of_life {
  uint64_t begun, confirmed; /* operations */
  uint64_t lives;
  char says[512];
} known_of_life;

typedef struct life {
  known_of_life *known;
  crash_cache *cache;
  fixture *f;
  disk d;
  journaled j;
  rv_table *table;
} life;

static const uint64_t writer[2] = {3, 7};

static void give_up_life(const life *l, const char *sentence, const char *detail)
{
  snprintf(l->known->says, sizeof l->known->says, "life %llu, operations %llu to %llu: %s %.300s",
           (unsigned long long)l->known->lives, (unsigned long long)l->known->confirmed, (unsigned long long)l->known->begun,
           sentence, detail);
  crash.armed = false;
  crash_exit(FAILED);
}

static void need(const life *l, rv_code code, const rv_error *err, const char *sentence)
{
  if (code != RV_OK) give_up_life(l, sentence, err->message);
}

static int64_t first_value(const life *l, uint64_t key)
{
  rv_error err;
  rv_draw draw;
  int64_t values[WIDE];
  need(l, rv_table_get(l->table, key, &draw, &err), &err, "an item cannot be had:");
  need(l, rv_draw_copy_column(&draw, 0, values, &err), &err, "an item's rows cannot be had:");
  rv_draw_release(&draw);
  return values[0];
}

static bool is_after(const life *l, uint64_t operations)
{
  model m = after(operations);
  rv_item_info items[2 * MAX_SIZE];
  size_t count = list_items(l->table, items, 2 * MAX_SIZE);
  bool same = count == m.count;
  for (size_t i = 0; i < count && same; i++)
    same = items[i].key == m.items[i].key && items[i].priority == m.items[i].priority &&
           items[i].times_sampled == m.items[i].times_sampled && first_value(l, items[i].key) == (int64_t)items[i].key;
  rv_table_info info = info_of(l->table);
  same = same && info.samples == (int64_t)m.samples;
  rv_table_info_fini(&info);
  if (!same) return false;
  const rv_journal_writer *known = rv_journal_recovered_writer(l->j.journal, NULL);
  for (uint64_t number = 1; number <= m.inserts + 1; number++)
    if (number <= m.inserts ? known == NULL || !rv_done_set_has(&known->done, number)
                            : known != NULL && rv_done_set_has(&known->done, number))
      return false;
  return true;
}

static void insert(const life *l, uint64_t i, bool is_wide)
{
  rv_error err;
  rv_chunk *chunk = NULL;
  const int64_t shape = is_wide ? WIDE : 1;
  rv_spec spec = {.name = "", .dtype = RV_INT64, .rank = 1, .shape = &shape};
  rv_chunk_meta meta = {.key = i + 1, .episode_id = i};
  int64_t values[WIDE] = {(int64_t)i + 1};
  rv_tensor cell = {.dtype = RV_INT64, .rank = 1, .shape = &shape, .data = values};
  must(rv_segment_new(&spec, 1, 1, &meta, &chunk, &err), &err);
  must(rv_segment_put(chunk, 0, 0, &cell, &err), &err);
  rv_segment_publish(chunk, 0, 1);
  model m = after(i);
  rv_insert insert = {.key = i + 1,
                      .priority = 1,
                      .trajectory = trajectory_of(l->j.store, chunk, 0, 1),
                      .writer = {writer[0], writer[1]},
                      .number = m.inserts + 1};
  insert.waiter.deadline_ns = INT64_MAX;
  rv_chunk_unref(chunk);
  assert_int_equal(rv_table_insert(l->table, &insert), RV_SUBMIT_DONE);
  rv_trajectory_unref(insert.trajectory);
  need(l, insert.waiter.code, &insert.waiter.error, "an insert fails:");
}

static void act(const life *l, uint64_t i)
{
  rv_error err;
  model m = after(i);
  size_t unknown;
  switch (operation(i, &m)) {
  case INSERT: insert(l, i, false); break;
  case INSERT_WIDE: insert(l, i, true); break;
  case UPDATE: {
    const rv_key_priority update = {m.items[m.count - 1].key, (double)i};
    need(l, rv_table_mutate(l->table, &update, 1, NULL, 0, NULL, &unknown, &err), &err, "an update fails:");
    break;
  }
  case DELETE:
    need(l, rv_table_mutate(l->table, NULL, 0, &m.items[m.count / 2].key, 1, NULL, &unknown, &err), &err, "a delete fails:");
    break;
  case SAMPLE: draw_some(l->table, 1); break;
  case RESET: need(l, rv_table_reset(l->table, &err), &err, "a reset fails:"); break;
  case CHECKPOINT:
    need(l, rv_checkpointer_save(l->d.checkpointer, l->j.store, NULL, NULL, &err), &err, "a checkpoint fails:");
    break;
  }
}

/* The last of what was begun that it can be. */
static void look(const life *l)
{
  char found[200];
  known_of_life *known = l->known;
  for (uint64_t i = known->begun; i + 1 > known->confirmed; i--) {
    if (!is_after(l, i)) continue;
    known->begun = known->confirmed = i;
    return;
  }
  rv_table_info info = info_of(l->table);
  model m = after(known->begun);
  snprintf(found, sizeof found, "%lld items, %lld samples; %zu, %llu samples", (long long)info.current_size,
           (long long)info.samples, m.count, (unsigned long long)m.samples);
  give_up_life(l, "what is recovered was never there:", found);
}

typedef struct crashes {
  bool power, incremental;
  uint64_t seed;
  uint32_t keep;
} crashes;

static void live(life *l, const crashes *as, long calls)
{
  rv_error err;
  rv_checkpointer_config saved = {
      .size = sizeof saved, .path = l->d.checkpoints, .keep = as->keep, .env = &l->f->env, .incremental = as->incremental};
  rv_checkpointer_unref(l->d.checkpointer);
  must(rv_checkpointer_new(&saved, &l->d.checkpointer, &err), &err);
  rv_table_config config = rv_table_config_default("replay", MAX_SIZE);
  config.sampler.kind = RV_SELECTOR_FIFO;
  crash_arm(l->cache, calls, as->power, as->seed + l->known->lives);
  need(l, try_open(&l->d, (how){.mode = 0}, &config, 1, &l->j, &err), &err, "it does not start:");
  l->table = rv_store_table(l->j.store, 0);
  look(l);
  if (rv_journal_recovered_writer(l->j.journal, NULL) == NULL) rv_journal_note_writer(l->j.journal, writer, false);
  sync_all(&l->j);
  for (uint64_t end = l->known->begun + A_LIFE; l->known->begun < end;) {
    act(l, l->known->begun++); /* one after the other, and two at a time */
    if (l->known->begun % 3 == 0) continue;
    sync_all(&l->j);
    l->known->confirmed = l->known->begun;
  }
  close_all(&l->j);
}

/* True: it came to its end before so many calls. */
static bool lives(fixture *f, const crashes *as, known_of_life *known, crash_cache *cache, long calls)
{
  int status;
  known->lives++;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    life l = {.known = known, .cache = cache, .f = f, .d = disk_of(f, "first")};
    live(&l, as, calls);
    crash_exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (status != 0 && status != CRASH_STATUS << 8) fail_msg("%s (status %x)", known->says, (unsigned)status);
  return status == 0;
}

/* After each that goes so does the start behind it, and then one comes to its end, now and then. */
static void crash_at_each_call(fixture *f, crashes with)
{
  const char *seed = getenv("RV_TEST_SEED");
  with.seed = seed == NULL ? 0 : strtoull(seed, NULL, 10);
  const crashes *as = &with;
  known_of_life *known = mmap(NULL, sizeof *known, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(known != MAP_FAILED);
  char kept[160];
  snprintf(kept, sizeof kept, "%s/kept", f->top);
  crash_cache *cache = crash_cache_new(kept);
  for (long calls = 0; !lives(f, as, known, cache, calls); calls++) {
    lives(f, as, known, cache, calls % CALLS_OF_A_START);
    if (calls >= FROM_NOTHING && calls % 2 == 0) assert_true(lives(f, as, known, cache, LONG_MAX));
  }
  print_message("%llu lives, %llu operations\n", (unsigned long long)known->lives, (unsigned long long)known->begun);
  crash_cache_free(cache);
  munmap(known, sizeof *known);
}

static void nothing_confirmed_is_lost_or_doubled_at_whichever_call_a_server_is_killed(void **state)
{
  crash_at_each_call(*state, (crashes){.keep = 1});
}
static void nothing_confirmed_is_lost_or_doubled_at_whichever_call_the_power_goes(void **state)
{
  crash_at_each_call(*state, (crashes){.power = true, .keep = 1});
}
static void nothing_confirmed_is_lost_or_doubled_at_whichever_call_the_power_goes_beside_incremental_checkpoints(void **state)
{
  crash_at_each_call(*state, (crashes){.power = true, .incremental = true, .keep = 2});
}

/* ---- salvage ---- */

/* The names of checkpoints there, one behind the other. */
static void names_of(const disk *d, char *out, size_t capacity)
{
  rv_error err;
  rv_checkpoint_list list;
  size_t size = 0;
  must(rv_checkpoint_list_read(d->checkpoints, &list, &err), &err);
  out[0] = '\0';
  for (size_t i = 0; i < list.count; i++)
    if (list.entries[i].done) size += (size_t)snprintf(out + size, capacity - size, "%s ", list.entries[i].name);
  rv_checkpoint_list_fini(&list);
}

/* True: it came to its end. */
static bool salvages(fixture *f, const rv_table_config *config, crash_cache *cache, long calls, uint64_t seed)
{
  int status;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    rv_error err;
    journaled j;
    disk d = disk_of(f, "first");
    crash_arm(cache, calls, true, seed);
    rv_code code = try_open(&d, (how){.salvage = true}, config, 1, &j, &err);
    crash.armed = false;
    crash_exit(code == RV_OK ? 0 : FAILED);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(status == 0 || status == CRASH_STATUS << 8);
  return status == 0;
}

static void salvage_that_goes_at_whichever_call_gives_nothing_up_before_its_checkpoint_is_whole(void **state)
{
  fixture *f = *state;
  rv_table_config config = rv_table_config_default("replay", 1000);
  char name[RV_JOURNAL_NAME_MAX], command[900], before[500], after[500], kept[160];
  disk d = disk_of(f, "first");
  journaled j = open_with(&d, (how){.mode = 0}, &config, 1);
  last_segment_name(&d, name);
  add_rows(rv_store_table(j.store, 0), 5, 0);
  close_all(&j);
  names_of(&d, before, sizeof before);
  snprintf(command, sizeof command, "mv %s %s.whole", d.dir, d.dir);
  assert_int_equal(system(command), 0);
  bool ended = false;
  for (long calls = 0; !ended; calls++) {
    snprintf(command, sizeof command, "rm -rf %s && cp -a %s.whole %s && mv %s/%s %s/away", d.dir, d.dir, d.dir, d.journal, name,
             d.dir);
    assert_int_equal(system(command), 0);
    snprintf(kept, sizeof kept, "%s/kept%ld", f->top, calls);
    crash_cache *cache = crash_cache_new(kept);
    ended = salvages(f, &config, cache, calls, (uint64_t)calls);
    crash_cache_free(cache);
    names_of(&d, after, sizeof after);
    snprintf(command, sizeof command, "mv %s/away %s/%s", d.dir, d.journal, name);
    assert_int_equal(system(command), 0);
    j = open_with(&d, (how){.mode = 0}, &config, 1);
    assert_int_equal(size_of(j.store, 0), strcmp(before, after) == 0 ? 5 : 0);
    close_all(&j);
  }
  disk_fini(&d);
}

int main(void)
{
#define WITH_DISK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      WITH_DISK(nothing_confirmed_is_lost_or_doubled_at_whichever_call_a_server_is_killed),
      WITH_DISK(nothing_confirmed_is_lost_or_doubled_at_whichever_call_the_power_goes),
      WITH_DISK(nothing_confirmed_is_lost_or_doubled_at_whichever_call_the_power_goes_beside_incremental_checkpoints),
      WITH_DISK(salvage_that_goes_at_whichever_call_gives_nothing_up_before_its_checkpoint_is_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
