#include "store/standstill.h"

#include <math.h>
#include <string.h>

/* Where one insert and one sample do not both fit between the bounds, never are both let through: chance has no say but in which item is
 * sampled, and which is removed. So the ways to a standstill differ only in when items go, for fewer than min_size_to_sample let an insert in. */

#define COUNTED_STEPS 100000
#define ORDERED_STEPS 10000
#define RATIO_EXACT 0x1p53 /* up to here a double counts single samples */

/* The items that a selector may choose. Priorities are the users', so with them it may be any. */
typedef enum choice { ANY, OLDEST, NEWEST } choice;

static choice choice_of(const rv_selector_config *selector)
{
  if (selector->kind == RV_SELECTOR_FIFO) return OLDEST;
  return selector->kind == RV_SELECTOR_LIFO ? NEWEST : ANY;
}

static rv_rate_limiter begin(const rv_table_config *table)
{
  return (rv_rate_limiter){.config = table->rate_limiter, .inserts = table->rate_limiter.min_size_to_sample};
}

static bool stands(const rv_rate_limiter *limiter)
{
  return !rv_rate_limiter_can_insert(limiter, 1) && !rv_rate_limiter_can_sample(limiter, 1);
}

static int64_t present(const rv_rate_limiter *limiter)
{
  return limiter->inserts - limiter->deletes;
}

/* Whether an insert is next where both may be let through: then either may come first. */
static bool insert_is_next(const rv_rate_limiter *limiter, bool inserts_first)
{
  return rv_rate_limiter_can_insert(limiter, 1) && (inserts_first || !rv_rate_limiter_can_sample(limiter, 1));
}

/* Of how many equal parts of 1 every balance is a multiple: a small power of two, or 0 if it is of none. */
static double parts_of_one(const rv_rate_limiter_config *config)
{
  for (double parts = 1; parts <= 1024; parts *= 2)
    if (config->samples_per_insert * parts == floor(config->samples_per_insert * parts)) return parts;
  return 0;
}

/* ---- by counts alone ---- */

/* The balance comes to where it stays, and each step from there takes 1 off, or adds as much less 1 as an insert and a sample are together:
 * after as many steps as these have parts it is where it was. */
static double steps_until_round(const rv_rate_limiter_config *config)
{
  double ratio = config->samples_per_insert, begins = ratio * (double)config->min_size_to_sample;
  return fabs(begins - config->max_diff) * (1 + 1 / ratio) + (ratio + 1) * (parts_of_one(config) + 1) + 1;
}

/* Until an item goes that was sampled often enough, or where each does with its first sample, it is all the same which are chosen. */
static bool find_by_counts(const rv_table_config *table, bool inserts_first, rv_rate_limiter *limiter)
{
  int64_t times = table->max_times_sampled;
  *limiter = begin(table);
  double round = steps_until_round(&table->rate_limiter);
  int steps = times != 1 && parts_of_one(&table->rate_limiter) > 0 && round < COUNTED_STEPS ? (int)round : COUNTED_STEPS;
  for (int step = 0; step < steps && (times <= 1 || limiter->samples < times); step++) {
    if (stands(limiter)) return true;
    if (insert_is_next(limiter, inserts_first)) {
      if (present(limiter) == table->max_size) limiter->deletes++;
      limiter->inserts++;
    } else {
      if (times == 1) limiter->deletes++;
      limiter->samples++;
    }
  }
  return false;
}

/* ---- by one order ---- */

/* Items that follow one upon the other and were sampled equally often are a run; runs are in the order of age, the oldest first. Where those
 * are sampled first that were sampled least, and of these the oldest, no run was sampled as often as the one before: in so few steps no
 * more come up than this. A Lifo sampler can leave more: then it is given up. */
enum { RUNS = 160 };
_Static_assert(RUNS *(RUNS - 1) / 2 > ORDERED_STEPS, "as many runs as there can be");

typedef struct trial_run {
  int64_t times, items;
} trial_run;

typedef struct trial {
  rv_rate_limiter limiter;
  trial_run runs[RUNS + 2];
  size_t num_runs;
} trial;

/* An item more at the end of run `at` - 1 if that was sampled as often, else in a run of its own. */
static void put_after(trial *t, size_t at, int64_t times)
{
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

static size_t most_sampled(const trial *t)
{
  size_t most = 0;
  for (size_t i = 1; i < t->num_runs; i++)
    if (t->runs[i].times > t->runs[most].times) most = i;
  return most;
}

/* Those that would go soonest are removed, where the remover may choose: so items last longest. */
static void insert_one(trial *t, const rv_table_config *table)
{
  if (present(&t->limiter) == table->max_size) {
    choice removed = choice_of(&table->remover);
    take_from_run(t, removed == OLDEST ? 0 : removed == NEWEST ? t->num_runs - 1 : most_sampled(t));
    t->limiter.deletes++;
  }
  put_after(t, t->num_runs, 0);
  t->limiter.inserts++;
}

static void sample_one(trial *t, const rv_table_config *table)
{
  choice sampled = choice_of(&table->sampler);
  size_t run = sampled == OLDEST ? 0 : t->num_runs - 1;
  int64_t times = t->runs[run].times + 1;
  take_from_run(t, run);
  t->limiter.samples++;
  if (times == table->max_times_sampled)
    t->limiter.deletes++;
  else /* of the run it was the newest, behind which nothing stands, or the oldest, which is before what is left of it */
    put_after(t, sampled == NEWEST ? t->num_runs : run, times);
}

static bool find_in_order(const rv_table_config *table, bool inserts_first, rv_rate_limiter *limiter)
{
  trial t = {.limiter = begin(table), .runs = {{.items = table->rate_limiter.min_size_to_sample}}, .num_runs = 1};
  for (int step = 0; step < ORDERED_STEPS && t.num_runs < RUNS; step++) {
    *limiter = t.limiter;
    if (stands(limiter)) return true;
    if (insert_is_next(limiter, inserts_first))
      insert_one(&t, table);
    else
      sample_one(&t, table);
  }
  return false;
}

/* ---- by every order, of a few items ---- */

/* After each step all tables that there may be then; of more than LAYER some are forgotten, that chance chooses. */
enum { FEW = RV_STANDSTILL_FEW, LAYER = 128, HASHES = 512, LOOKED_AT = 6000, FEW_STEPS = 2000 };

/* How often each item was sampled, the oldest first; where age does not matter, the most often sampled first. The rest are 0. */
typedef struct few {
  int64_t inserts, n;
  int32_t times[FEW];
} few;
_Static_assert(sizeof(few) == sizeof(int64_t[2]) + sizeof(int32_t[FEW]), "no padding: two are compared as bytes");

typedef struct layer {
  few tables[LAYER];
  size_t n;
  uint8_t places[HASHES]; /* 1 + where it stands, 0 for none: an open map */
} layer;
_Static_assert(LAYER < UINT8_MAX && LAYER * 2 <= HASHES, "a place fits, and the map keeps room");

typedef struct few_search {
  const rv_table_config *table;
  choice sampled, removed;
  bool by_age;
  layer *next;
} few_search;

static uint64_t hash_of(const few *table)
{
  uint64_t hash = (uint64_t)table->inserts * UINT64_C(0x9E3779B97F4A7C15);
  for (int64_t i = 0; i < table->n; i++) hash = (hash ^ (uint64_t)table->times[i]) * UINT64_C(0xFF51AFD7ED558CCD);
  return hash ^ hash >> 32;
}

static void sort_by_times(few *table)
{
  for (int64_t i = 1; i < table->n; i++) {
    int64_t at = i;
    int32_t times = table->times[i];
    for (; at > 0 && table->times[at - 1] < times; at--) table->times[at] = table->times[at - 1];
    table->times[at] = times;
  }
}

static void add(few_search *search, few *table)
{
  layer *next = search->next;
  if (!search->by_age) sort_by_times(table);
  uint64_t hash = hash_of(table);
  size_t at = hash % HASHES;
  for (; next->places[at] != 0; at = (at + 1) % HASHES)
    if (memcmp(&next->tables[next->places[at] - 1], table, sizeof *table) == 0) return;
  if (next->n == LAYER) {
    next->tables[(hash >> 16) % LAYER] = *table;
    return;
  }
  next->tables[next->n++] = *table;
  next->places[at] = (uint8_t)next->n;
}

static void drop(few *table, int64_t at)
{
  table->n--;
  memmove(&table->times[at], &table->times[at + 1], (size_t)(table->n - at) * sizeof *table->times);
  table->times[table->n] = 0;
}

/* Those that a selector may choose are from `*first` to before `*end`. */
static void choose(choice which, int64_t n, int64_t *first, int64_t *end)
{
  *first = which == NEWEST ? n - 1 : 0;
  *end = which == OLDEST ? 1 : n;
}

static void add_inserted(few_search *search, const few *from)
{
  int64_t first, end;
  few to = *from;
  to.inserts++;
  if (to.n < search->table->max_size) {
    to.n++; /* never sampled */
    if (to.n <= FEW) add(search, &to);
    return;
  }
  choose(search->removed, from->n, &first, &end);
  for (int64_t i = first; i < end; i++) {
    few kept = to;
    drop(&kept, i);
    kept.n++;
    add(search, &kept);
  }
}

static void add_sampled(few_search *search, const few *from)
{
  int64_t first, end;
  choose(search->sampled, from->n, &first, &end);
  for (int64_t i = first; i < end; i++) {
    few to = *from;
    if (++to.times[i] == search->table->max_times_sampled) drop(&to, i);
    add(search, &to);
  }
}

static bool find_of_few(const rv_table_config *table, rv_rate_limiter *limiter)
{
  if (table->rate_limiter.min_size_to_sample > FEW) return false;
  int64_t first = table->rate_limiter.min_size_to_sample;
  layer layers[2] = {{.n = 1, .tables = {{.inserts = first, .n = first}}}};
  few_search search = {.table = table, .sampled = choice_of(&table->sampler), .removed = choice_of(&table->remover)};
  search.by_age = search.sampled != ANY || (search.removed != ANY && table->max_size <= FEW);
  size_t looked_at = 0;
  for (int step = 0; step < FEW_STEPS && looked_at < LOOKED_AT; step++) {
    const layer *now = &layers[step % 2];
    search.next = &layers[(step + 1) % 2];
    search.next->n = 0;
    memset(search.next->places, 0, sizeof search.next->places);
    looked_at += now->n;
    for (size_t i = 0; i < now->n; i++) {
      const few *from = &now->tables[i];
      *limiter = begin(table);
      limiter->samples = limiter->inserts + step - from->inserts;
      limiter->inserts = from->inserts;
      limiter->deletes = from->inserts - from->n;
      if (stands(limiter)) return true;
      if (rv_rate_limiter_can_insert(limiter, 1)) add_inserted(&search, from);
      if (rv_rate_limiter_can_sample(limiter, 1)) add_sampled(&search, from);
    }
  }
  return false;
}

/* ---- all together ---- */

/* One insert and one sample fit between the bounds, whatever the balance, and it is exact: no trial would find anything. */
static bool is_wide(const rv_rate_limiter_config *config)
{
  double ratio = config->samples_per_insert, step = ratio > 1 ? ratio : 1;
  return config->max_diff - config->min_diff >= 2 * step &&
         ratio * ((double)config->min_size_to_sample + COUNTED_STEPS) < RATIO_EXACT / 2;
}

/* Of the multiples that the balance can be none is one at which neither side may proceed. */
static bool is_between_multiples(const rv_rate_limiter_config *config)
{
  const double exact = 0x1p40, parts = parts_of_one(config);
  double ratio = config->samples_per_insert * parts, min = ceil(config->min_diff * parts), max = floor(config->max_diff * parts);
  return parts > 0 && ratio < exact && fabs(min) < exact && fabs(max) < exact && min + parts - (max - ratio) <= 1;
}

bool rv_standstill_find(const rv_table_config *table, rv_standstill *found)
{
  const rv_rate_limiter_config *config = &table->rate_limiter;
  if (is_wide(config) || is_between_multiples(config)) return false;
  rv_rate_limiter limiter;
  bool is_found = false;
  for (int inserts_first = 0; inserts_first < 2 && !is_found; inserts_first++)
    is_found = find_by_counts(table, inserts_first != 0, &limiter) ||
               (table->max_times_sampled > 1 && find_in_order(table, inserts_first != 0, &limiter));
  if (!is_found && table->max_times_sampled > 1) is_found = find_of_few(table, &limiter);
  if (is_found) *found = (rv_standstill){.inserts = limiter.inserts, .samples = limiter.samples};
  return is_found;
}
