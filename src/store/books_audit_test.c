/* Two tables that share chunks, for a long time: all that may happen to a table happens by chance, also while others wait in it, while a
 * snapshot is read and while listings go on. After each step a model knows which items there may be and what is in them, and all that the
 * books count is counted again from what is there. RV_TEST_SEED repeats a run, RV_TEST_OPERATIONS makes it longer. */
#include "store/audit_testing.h"

#include <float.h>
#include <math.h>

#include "store/cold_testing.h"
#include "store/forms.h"
#include "store/placed.h"
#include "store/snapshot.h"

enum {
  TABLES = 2,
  CHUNKS = 12,
  CHUNK_ROWS = 120,
  ITEMS = 8192,
  WAITING = 6,
  DRAWS = 40,
  ROWS = 150,
  WIDE = 3000, /* numbers in a row of 24 kB */
  HELD = 64,
  LISTINGS = 3,
  OLD_KEYS = 256,
  PLACED = 30,
  RUNS = 6,
  OPERATIONS = 1000
};

/* ---- what an item holds ---- */

typedef enum row_kind { RUN, FLAT, TEXT } row_kind;

typedef struct content {
  row_kind kind;
  int64_t first, second; /* of a run: the first number of each of its two parts; else of the two columns, if there are two */
  size_t length, before; /* numbers in all, and in the first part */
} content;

typedef struct known {
  uint64_t key;
  double priority;
  int32_t times_sampled;
  content content;
  uint64_t seen; /* in the step that is looked at */
} known;

typedef struct waiting {
  rv_operation_kind kind; /* 0: free */
  bool over;
  rv_insert insert;
  rv_rows rows;
  rv_sampling sampling;
  content content[ROWS]; /* of what is inserted, in order */
  uint64_t keys[ROWS];
  double priorities[ROWS];
  rv_draw draws[DRAWS];
  size_t seen;
  int64_t values[ROWS * 2];
  rv_bytes texts[ROWS];
  int64_t shape[2];
  rv_tensor column;
  size_t table;
  uint64_t number;
} waiting;

typedef struct world {
  rv_store *store;
  rv_table *tables[TABLES];
  rv_random random, entropy;
  rv_chunk *chunks[CHUNKS];
  int64_t first[CHUNKS];
  int64_t next_value;
  known *items[TABLES];
  size_t num_items[TABLES];
  waiting *waiting[WAITING];
  rv_draw held[HELD];
  content held_content[HELD];
  size_t num_held;
  rv_snapshot *snapshot[TABLES];
  int64_t snapshot_left[TABLES];
  uint64_t cursors[LISTINGS];
  uint64_t old_keys[OLD_KEYS];
  uint64_t step, submitted;
  int64_t *wide;
  rv_change_log log;
  bool logged;
  known *written[TABLES]; /* as the log says */
  size_t num_written[TABLES];
  rv_form *form[TABLES]; /* of a writer that places its rows itself, */
  rv_chunk *segment[TABLES];
  int64_t rows[TABLES], last_value[TABLES];
  bool alike; /* nearly all items look alike */
  bool spills;
} world;

static uint32_t below(world *w, uint32_t n)
{
  return rv_random_below(&w->random, n);
}

/* ---- contents ---- */

static void expect_numbers(const int64_t *numbers, const content *c)
{
  for (size_t i = 0; i < c->length; i++) {
    int64_t expected = c->first;
    if (c->kind == RUN) expected = i < c->before ? c->first + (int64_t)i : c->second + (int64_t)(i - c->before);
    assert_int_equal(numbers[i], expected);
  }
}

static void expect_content(const rv_draw *draw, const content *c)
{
  static int64_t numbers[WIDE + 2 * CHUNK_ROWS];
  rv_error err;
  if (c->kind == TEXT) {
    rv_bytes text;
    char expected[40];
    int size = snprintf(expected, sizeof expected, "this is text number %lld", (long long)c->first);
    must(rv_draw_copy_column(draw, 0, &text, &err), &err);
    assert_int_equal(text.size, size);
    assert_memory_equal(text.data, expected, text.size);
    return;
  }
  must(rv_draw_copy_column(draw, 0, numbers, &err), &err);
  expect_numbers(numbers, c);
  if (draw->trajectory->num_columns == 1) return;
  must(rv_draw_copy_column(draw, 1, numbers, &err), &err);
  assert_int_equal(numbers[0], c->second);
}

/* ---- the model ---- */

static known *find(world *w, size_t t, uint64_t key)
{
  for (size_t i = 0; i < w->num_items[t]; i++)
    if (w->items[t][i].key == key) return &w->items[t][i];
  return NULL;
}

static void learn(world *w, size_t t, uint64_t key, double priority, const content *c)
{
  assert_null(find(w, t, key));
  assert_true(w->num_items[t] < ITEMS);
  w->items[t][w->num_items[t]++] = (known){.key = key, .priority = priority, .content = *c};
}

static void learn_draw(world *w, size_t t, const rv_draw *draw)
{
  known *item = find(w, t, draw->key);
  assert_non_null(item);
  assert_int_equal(draw->times_sampled, ++item->times_sampled);
  assert_true(draw->probability >= 0 && draw->probability <= 1);
  expect_content(draw, &item->content);
}

/* What has come of those that wait, or were done at once. */
static void learn_waiting(world *w, waiting *op)
{
  size_t t = op->table;
  switch (op->kind) {
  case RV_OPERATION_ROWS:
    for (; op->seen < op->rows.done; op->seen++)
      learn(w, t, op->keys[op->seen], op->priorities[op->seen], &op->content[op->seen]);
    break;
  case RV_OPERATION_INSERT:
    if (!op->over || op->insert.waiter.code != RV_OK) break;
    if (op->insert.updated)
      find(w, t, op->insert.key)->priority = op->insert.priority;
    else
      learn(w, t, op->insert.key, op->insert.priority, &op->content[0]);
    break;
  case RV_OPERATION_SAMPLE:
    for (; op->seen < op->sampling.count; op->seen++) learn_draw(w, t, &op->draws[op->seen]);
    break;
  }
}

static void end_waiting(waiting **place)
{
  waiting *op = *place;
  if (op->kind == RV_OPERATION_INSERT) rv_trajectory_unref(op->insert.trajectory);
  if (op->kind == RV_OPERATION_SAMPLE) rv_draws_release(op->draws, op->sampling.count);
  free(op);
  *place = NULL;
}

static rv_waiter *waiter_of(waiting *op)
{
  return op->kind == RV_OPERATION_INSERT ? &op->insert.waiter
         : op->kind == RV_OPERATION_ROWS ? &op->rows.waiter
                                         : &op->sampling.waiter;
}

/* In the order in which they were submitted, inserts before samples of what they brought. */
static void learn_all(world *w)
{
  for (int samples = 0; samples < 2; samples++)
    for (uint64_t last = 0;;) {
      size_t next = WAITING;
      for (size_t i = 0; i < WAITING; i++) {
        waiting *op = w->waiting[i];
        if (op == NULL || (op->kind == RV_OPERATION_SAMPLE) != (samples != 0) || op->number <= last) continue;
        if (next == WAITING || op->number < w->waiting[next]->number) next = i;
      }
      if (next == WAITING) break;
      last = w->waiting[next]->number;
      learn_waiting(w, w->waiting[next]);
      if (w->waiting[next]->over) end_waiting(&w->waiting[next]);
    }
}

/* ---- what is written down ---- */

static void follow_change(world *w, size_t t, const rv_change *change)
{
  known *written = w->written[t];
  size_t *n = &w->num_written[t], at = 0;
  while (at < *n && written[at].key != change->key) at++;
  switch (change->kind) {
  case RV_CHANGE_INSERT:
    assert_true(at == *n && at < ITEMS);
    written[(*n)++] = (known){.key = change->key, .priority = change->priority, .times_sampled = change->times_sampled};
    break;
  case RV_CHANGE_DELETE:
    assert_true(at < *n);
    written[at] = written[--*n];
    break;
  case RV_CHANGE_UPDATE:
    assert_true(at < *n);
    written[at].priority = change->priority;
    break;
  case RV_CHANGE_SAMPLE:
    assert_true(at < *n);
    written[at].times_sampled = change->times_sampled;
    break;
  case RV_CHANGE_RESET: *n = 0; break;
  default: break;
  }
}

static void follow_log(world *w, size_t t)
{
  rv_change_list list;
  rv_table_take_changes(w->tables[t], &list);
  atomic_fetch_sub(&w->log.bytes, list.bytes);
  for (const rv_change_block *block = list.blocks; block != NULL; block = block->next)
    for (size_t i = 0; i < block->count; i++) follow_change(w, t, &block->changes[i]);
  rv_change_list_fini(&list);
}

static void wake(rv_change_log *log, bool urgent)
{
  (void)log;
  (void)urgent;
}

static void begin_or_end_log(world *w)
{
  rv_error err;
  w->logged = !w->logged;
  if (!w->logged) {
    rv_store_drop_changes(w->store);
    return;
  }
  rv_change_log_init(&w->log, SIZE_MAX / 8, wake);
  must(rv_store_keep_changes(w->store, &w->log, &err), &err);
  for (size_t t = 0; t < TABLES; t++) {
    memcpy(w->written[t], w->items[t], w->num_items[t] * sizeof(known));
    w->num_written[t] = w->num_items[t];
  }
}

/* ---- comparing ---- */

/* Everything that the table holds is known, as it is; what it does not hold any more is forgotten. */
static void compare_items(world *w, size_t t)
{
  const rv_slab *slab = &w->tables[t]->books.slab;
  for (uint32_t slot = slab->oldest; slot != RV_NO_SLOT; slot = rv_slab_at(slab, slot)->next) {
    const rv_item *item = rv_slab_at(slab, slot);
    known *of = find(w, t, item->key);
    if (of == NULL) fail_msg("table %zu: key %llu came from nowhere", t, (unsigned long long)item->key);
    assert_true(of->seen != w->step);
    of->seen = w->step;
    if (!(of->priority == item->priority))
      fail_msg("key %llu has the priority %g, not %g", (unsigned long long)item->key, item->priority, of->priority);
    assert_int_equal(of->times_sampled, item->times_sampled);
  }
  size_t kept = 0;
  for (size_t i = 0; i < w->num_items[t]; i++) {
    known *item = &w->items[t][i];
    if (item->seen == w->step)
      w->items[t][kept++] = *item;
    else
      w->old_keys[below(w, OLD_KEYS)] = item->key;
  }
  w->num_items[t] = kept;
}

static void compare_priorities(world *w, size_t t)
{
  double lowest = NAN, highest = NAN;
  for (size_t i = 0; i < w->num_items[t]; i++) {
    double priority = w->items[t][i].priority;
    if (!(lowest <= priority)) lowest = priority;
    if (!(highest >= priority)) highest = priority;
  }
  rv_table_info info = info_of(w->tables[t]);
  assert_int_equal(info.current_size, w->num_items[t]);
  if (w->num_items[t] == 0)
    assert_true(isnan(info.min_priority) && isnan(info.max_priority));
  else
    assert_true(info.min_priority == lowest && info.max_priority == highest);
  rv_table_info_fini(&info);
}

/* What was written down since comes to the same. */
static void compare_log(world *w, size_t t)
{
  if (!w->logged) return;
  follow_log(w, t);
  const rv_books *books = &w->tables[t]->books;
  assert_int_equal(w->num_written[t], books->slab.count);
  for (size_t i = 0; i < w->num_written[t]; i++) {
    const known *written = &w->written[t][i];
    uint32_t slot = rv_books_find(books, written->key);
    assert_true(slot != RV_NO_SLOT);
    assert_true(rv_slab_at(&books->slab, slot)->priority == written->priority);
    assert_int_equal(rv_slab_at(&books->slab, slot)->times_sampled, written->times_sampled);
  }
}

static void compare(world *w)
{
  w->step++;
  learn_all(w);
  for (size_t t = 0; t < TABLES; t++) {
    audit_table(w->tables[t]);
    compare_items(w, t);
    if (below(w, 20) == 0) compare_priorities(w, t);
    if (below(w, 3) == 0) compare_log(w, t);
  }
  assert_int_equal(rv_memory_on_the_way(rv_store_memory(w->store)), 0);
}

/* ---- operations ---- */

static double some_priority(world *w, size_t t)
{
  static const double few[] = {0, -0.0, 1, 1, 1, 2, DBL_MIN, 5e-324, 1e-300, 1e300, DBL_MAX};
  static const double others[] = {-1, INFINITY, -INFINITY, -DBL_MAX};
  if (!w->tables[t]->weighs && below(w, 6) == 0) return others[below(w, 4)];
  return below(w, 2) == 0 ? few[below(w, 11)] : rv_random_unit(&w->random);
}

static uint64_t some_key(world *w, size_t t)
{
  const rv_books *books = &w->tables[t]->books;
  switch (below(w, 9)) {
  case 0: return 0;
  case 1: return UINT64_MAX;
  case 2: return below(w, 300);
  case 3: return rv_random_next(&w->random);
  case 4: return w->old_keys[below(w, OLD_KEYS)];
  case 5: return books->key_tag | below(w, 2000); /* as if the table had made it */
  default: return w->num_items[t] == 0 ? 7 : w->items[t][below(w, (uint32_t)w->num_items[t])].key;
  }
}

static void renew_chunk(world *w)
{
  size_t i = below(w, CHUNKS);
  rv_chunk_unref(w->chunks[i]);
  w->chunks[i] = NULL;
  if (below(w, 5) == 0) return;
  w->first[i] = w->next_value;
  w->next_value += CHUNK_ROWS;
  w->chunks[i] = encoded_numbers(w->first[i], CHUNK_ROWS, 1 + below(w, 5), below(w, 2) == 0);
}

static void completed(rv_waiter *waiter)
{
  *(bool *)waiter->context = true;
}

static waiting *begin_waiting(world *w, size_t t, rv_operation_kind kind, rv_waiter **waiter)
{
  size_t i = 0;
  while (i < WAITING && w->waiting[i] != NULL) i++;
  if (i == WAITING) return NULL;
  waiting *op = calloc(1, sizeof *op);
  op->kind = kind;
  op->table = t;
  op->number = ++w->submitted;
  w->waiting[i] = op;
  *waiter = kind == RV_OPERATION_INSERT ? &op->insert.waiter
            : kind == RV_OPERATION_ROWS ? &op->rows.waiter
                                        : &op->sampling.waiter;
  **waiter = (rv_waiter){.complete = completed, .context = &op->over, .deadline_ns = INT64_MAX};
  return op;
}

static void take_back(world *w)
{
  size_t i = below(w, WAITING);
  waiting *op = w->waiting[i];
  if (op == NULL) return;
  assert_true(rv_waiter_cancel(waiter_of(op)));
  learn_all(w); /* what came of others by that */
  learn_waiting(w, op);
  end_waiting(&w->waiting[i]);
}

static void submitted(waiting *op, rv_submitted how)
{
  if (how == RV_SUBMIT_DONE) op->over = true;
  rv_waiter *waiter = waiter_of(op);
  if (op->over && waiter->code != RV_OK) fail_msg("%s: %s", rv_code_name(waiter->code), waiter->error.message);
}

static void insert_item(world *w, size_t t)
{
  rv_waiter *waiter;
  size_t a = below(w, CHUNKS), b = below(w, CHUNKS);
  bool loose = !w->alike && below(w, 3) == 0 && a != b;
  if (w->chunks[a] == NULL || (loose && w->chunks[b] == NULL)) return;
  waiting *op = begin_waiting(w, t, RV_OPERATION_INSERT, &waiter);
  if (op == NULL) return;
  uint32_t at = below(w, CHUNK_ROWS), length = 1 + below(w, below(w, 2) == 0 ? 3 : CHUNK_ROWS - at),
           bt = below(w, CHUNK_ROWS - 4);
  if (length > CHUNK_ROWS - at) length = CHUNK_ROWS - at;
  if (w->alike) length = 1;
  rv_slice slices[2] = {{.chunk = w->chunks[a], .offset = (int32_t)at, .length = (int32_t)length},
                        {.chunk = w->chunks[b], .offset = (int32_t)bt, .length = 4}};
  rv_trajectory_desc desc = {
      .slices = slices, .num_slices = (uint32_t[]){loose ? 2 : 1}, .squeeze = (bool[]){w->alike}, .num_columns = 1};
  rv_error err;
  op->insert.key = some_key(w, t);
  op->insert.choose_key = below(w, 3) == 0;
  op->insert.priority = some_priority(w, t);
  op->content[0] = (content){.kind = RUN,
                             .first = w->first[a] + (int64_t)at,
                             .second = w->first[b] + (int64_t)bt,
                             .length = length + (loose ? 4 : 0),
                             .before = length};
  must(rv_trajectory_new(rv_store_layouts(w->store), &desc, &op->insert.trajectory, &err), &err);
  rv_submitted how = rv_table_insert(w->tables[t], &op->insert);
  if (how == RV_SUBMIT_PENDING && !op->insert.choose_key) { /* it is not known whether the key will be there */
    assert_true(rv_waiter_cancel(&op->insert.waiter));
    op->insert.waiter.code = RV_CANCELLED;
    op->over = true;
    return;
  }
  submitted(op, how);
}

static void insert_rows(world *w, size_t t)
{
  rv_waiter *waiter;
  waiting *op = begin_waiting(w, t, RV_OPERATION_ROWS, &waiter);
  if (op == NULL) return;
  size_t n = below(w, 3) == 0 ? 1 : 1 + below(w, below(w, 4) == 0 ? ROWS : 8), numbers = 1;
  static char texts[ROWS][40];
  uint32_t what = w->alike ? 7 : below(w, 8);
  op->column = (rv_tensor){.dtype = RV_INT64, .rank = 1, .shape = op->shape, .data = op->values};
  if (what == 0) { /* large */
    n = 1 + below(w, 3);
    numbers = WIDE;
    op->column.rank = 2;
    op->column.data = w->wide;
  } else if (what == 1) {
    op->column.dtype = RV_STRING;
    op->column.data = op->texts;
  } else if (what < 5) {
    numbers = 2;
    op->column.rank = 2;
  }
  op->shape[0] = (int64_t)n;
  op->shape[1] = (int64_t)numbers;
  for (size_t i = 0; i < n; i++) {
    int64_t value = w->next_value++;
    op->priorities[i] = some_priority(w, t);
    op->content[i] = (content){.kind = what == 1 ? TEXT : FLAT, .first = value, .length = numbers};
    if (what == 1)
      op->texts[i] = (rv_bytes){(const uint8_t *)texts[i],
                                (size_t)snprintf(texts[i], sizeof texts[i], "this is text number %lld", (long long)value)};
    for (size_t k = 0; k < numbers; k++) ((int64_t *)(numbers == WIDE ? w->wide : op->values))[i * numbers + k] = value;
  }
  op->rows.columns = &op->column;
  op->rows.num_columns = 1;
  op->rows.n = n;
  op->rows.priorities = op->priorities;
  op->rows.keys = op->keys;
  if (n == 1 && below(w, 2) == 0) {
    rv_tensor cell = op->column;
    cell.rank--;
    cell.shape++;
    rv_row row = {.columns = &cell, .num_columns = 1, .priority = op->priorities[0]};
    if (rv_table_add_row(w->tables[t], &row)) {
      op->keys[0] = row.key;
      op->rows.done = 1;
      op->over = true;
      return;
    }
  }
  rv_submitted how = rv_table_insert_rows(w->tables[t], &op->rows);
  if (how == RV_SUBMIT_PENDING && (what <= 1)) { /* what they point to is needed for the next ones */
    assert_true(rv_waiter_cancel(&op->rows.waiter));
    op->over = true;
    return;
  }
  submitted(op, how);
}

static void sample(world *w, size_t t)
{
  rv_waiter *waiter;
  waiting *op = begin_waiting(w, t, RV_OPERATION_SAMPLE, &waiter);
  if (op == NULL) return;
  op->sampling.want = 1 + below(w, DRAWS);
  op->sampling.partial = below(w, 2) == 0;
  op->sampling.max_bytes = below(w, 3) == 0 ? 1000 : 0;
  op->sampling.draws = op->draws;
  submitted(op, rv_table_sample(w->tables[t], &op->sampling));
}

/* What is drawn straight into arrays. */
static void fill(world *w, size_t t)
{
  static int64_t numbers[DRAWS * WIDE], seconds[DRAWS];
  rv_table *table = w->tables[t];
  const rv_slab *slab = &table->books.slab;
  if (slab->count == 0) return;
  rv_layout *layout = rv_layout_ref(rv_books_trajectory(&table->books, rv_slab_at(slab, slab->newest))->layout);
  uint64_t keys[DRAWS];
  double probabilities[DRAWS], priorities[DRAWS];
  int32_t times_sampled[DRAWS];
  rv_draw draws[DRAWS];
  rv_fill fill = {.layout = layout,
                  .columns = (void *[]){numbers, seconds},
                  .keys = keys,
                  .probabilities = probabilities,
                  .priorities = priorities,
                  .times_sampled = times_sampled};
  rv_sampling ask = {.want = 1 + below(w, DRAWS), .same_layout = true, .fill = &fill, .draws = draws};
  ask.waiter.deadline_ns = INT64_MAX;
  if (rv_table_sample(table, &ask) == RV_SUBMIT_PENDING)
    assert_true(rv_waiter_cancel(&ask.waiter));
  else
    assert_true(ask.waiter.code == RV_OK || ask.waiter.code == RV_FAILED_PRECONDITION); /* they do not look alike */
  learn_all(w);
  size_t length = (size_t)layout->columns[0].length * layout->columns[0].spec.row_bytes / sizeof *numbers;
  for (size_t i = 0; i < fill.done; i++) {
    known *item = find(w, t, keys[i]);
    assert_non_null(item);
    assert_int_equal(times_sampled[i], ++item->times_sampled);
    assert_int_equal(length, item->content.length);
    expect_numbers(numbers + i * length, &item->content);
    if (layout->num_columns == 2) assert_int_equal(seconds[i], item->content.second);
  }
  for (size_t i = fill.done; i < ask.count; i++) {
    learn_draw(w, t, &draws[i]);
    rv_draw_release(&draws[i]);
  }
  rv_layout_unref(fill.found);
  rv_layout_unref(layout);
}

/* ---- a writer that places its rows itself: each row is one item's second and the next one's first ---- */

static void end_segment(world *w, size_t t)
{
  rv_placed_segment_close(w->tables[t], w->segment[t]);
  w->segment[t] = NULL;
}

static void begin_segment(world *w, size_t t)
{
  const rv_spec spec = {.name = "", .dtype = RV_INT64};
  const rv_placed_column columns[] = {{.length = 1, .squeeze = true}, {.first = 1, .length = 1, .squeeze = true}};
  rv_error err;
  if (w->form[t] == NULL) {
    must(rv_placed_form_new(w->tables[t], &spec, 1, columns, 2, &w->form[t], &err), &err);
    rv_placed_begin(w->tables[t], 1);
  }
  must(rv_placed_segment_new(w->tables[t], w->form[t], 2 + below(w, 60), &w->segment[t], &err), &err);
  w->rows[t] = 0;
}

static void put_row(world *w, size_t t, int64_t value)
{
  rv_error err;
  rv_tensor cell = {.dtype = RV_INT64, .data = &value};
  must(rv_segment_put(w->segment[t], 0, w->rows[t], &cell, &err), &err);
  rv_segment_publish(w->segment[t], 0, ++w->rows[t]);
  w->last_value[t] = value;
}

static void place(world *w, size_t t)
{
  rv_place places[PLACED];
  uint64_t keys[PLACED];
  double priorities[PLACED];
  content contents[PLACED];
  size_t n = 0, most = 1 + below(w, PLACED);
  if (w->segment[t] == NULL) {
    begin_segment(w, t);
    put_row(w, t, w->next_value++);
  }
  for (; n < most && w->rows[t] < rv_segment_capacity(w->segment[t]); n++) {
    priorities[n] = some_priority(w, t);
    contents[n] = (content){.kind = FLAT, .first = w->last_value[t], .second = w->next_value, .length = 1};
    places[n] = (rv_place){.segment = w->segment[t], .base = w->rows[t] - 1};
    put_row(w, t, w->next_value++);
  }
  rv_rows rows = {.n = n, .placed = places, .priorities = priorities, .keys = keys};
  rows.waiter.deadline_ns = INT64_MAX;
  if (rv_table_insert_placed(w->tables[t], w->form[t], &rows) == RV_SUBMIT_PENDING)
    assert_true(rv_waiter_cancel(&rows.waiter));
  else
    must(rows.waiter.code, &rows.waiter.error);
  for (size_t i = 0; i < rows.done; i++) learn(w, t, keys[i], priorities[i], &contents[i]);
  if (below(w, 20) == 0 || w->rows[t] == rv_segment_capacity(w->segment[t])) end_segment(w, t);
}

/* ---- holding ---- */

/* Cold chunks go elsewhere, as to a file. */
static void spill(world *w, size_t t)
{
  rv_cold cold[16];
  const bool alone = below(w, 2) == 0; /* tables hold what they share, and nobody else does */
  for (size_t i = 0; alone && i < 2 * CHUNKS; i++) renew_chunk(w);
  size_t n = rv_table_take_cold(w->tables[t], cold, 1 + below(w, 16), 1 << 20);
  if (below(w, 4) > 0) n = rv_table_leave_busy(w->tables[t], w->store, cold, n);
  for (size_t i = 0; i < n; i++) cold[i].place = below(w, 6) == 0 ? NULL : rv_test_place(cold[i].bytes, cold[i].size);
  rv_table_move_cold(w->tables[t], cold, n);
  if (below(w, 3) == 0) rv_table_compact_spilled(w->tables[t], 1 + below(w, 100000), below(w, 2) == 0);
}

static void hold_draw(world *w, size_t t)
{
  if (w->num_items[t] == 0) return;
  const known *item = &w->items[t][below(w, (uint32_t)w->num_items[t])];
  size_t i = w->num_held == HELD ? below(w, HELD) : w->num_held++;
  rv_error err;
  if (w->held[i].trajectory != NULL) {
    expect_content(&w->held[i], &w->held_content[i]);
    rv_draw_release(&w->held[i]);
  }
  w->held[i] = (rv_draw){0};
  must(rv_table_get(w->tables[t], item->key, &w->held[i], &err), &err);
  w->held_content[i] = item->content;
}

static void let_go(world *w)
{
  while (w->num_held > 0) {
    rv_draw *draw = &w->held[--w->num_held];
    if (draw->trajectory != NULL) {
      expect_content(draw, &w->held_content[w->num_held]);
      rv_draw_release(draw);
    }
    *draw = (rv_draw){0};
  }
}

static void mutate(world *w, size_t t)
{
  rv_key_priority updates[40];
  uint64_t deletes[40];
  size_t num_updates = below(w, 3) == 0 ? 0 : below(w, 40), num_deletes = below(w, 3) == 0 ? below(w, 40) : below(w, 3), unknown;
  for (size_t i = 0; i < num_updates; i++) updates[i] = (rv_key_priority){.key = some_key(w, t), .priority = some_priority(w, t)};
  for (size_t i = 0; i < num_deletes; i++) deletes[i] = some_key(w, t);
  rv_error err;
  /* who waits comes in between: only where nobody does is it known what has come of each */
  for (size_t i = 0; i < WAITING; i++)
    if (w->waiting[i] != NULL && w->waiting[i]->table == t) num_updates = 0;
  must(rv_table_mutate(w->tables[t], updates, num_updates, deletes, num_deletes, NULL, &unknown, &err), &err);
  learn_all(w);
  for (size_t i = 0; i < num_updates; i++) {
    known *item = find(w, t, updates[i].key);
    if (item != NULL) item->priority = updates[i].priority;
  }
}

static void change_bounds(world *w, size_t t)
{
  static const int64_t bytes[] = {0, 0, 40000, 200000, 1 << 20};
  rv_bounds_change change = {.bounds = rv_table_bounds_unchanged()};
  if (below(w, 2) == 0) change.bounds.max_size = 1 + below(w, below(w, 2) == 0 ? 20 : 600);
  if (below(w, 3) == 0) change.bounds.max_bytes = bytes[below(w, 5)];
  if (below(w, 3) == 0) change.bounds.max_times_sampled = (int32_t)below(w, 4);
  rv_error err;
  while (!change.done) {
    if (rv_table_change_bounds(w->tables[t], &change, &err) == RV_OK) continue;
    assert_int_equal(err.code, RV_INVALID_ARGUMENT); /* the limiter wants more */
    return;
  }
}

static void change_limiter(world *w, size_t t)
{
  int64_t size = w->tables[t]->config.max_size;
  rv_rate_limiter_config limiter = rv_rate_limiter_min_size(1);
  switch (below(w, 6)) {
  case 0: limiter = rv_rate_limiter_min_size(1 + (int64_t)below(w, (uint32_t)size)); break;
  case 1: limiter = rv_rate_limiter_sample_to_insert_ratio(0.3, 1 + size / 2, 40); break;
  case 2: limiter = rv_rate_limiter_sample_to_insert_ratio(1e15, 1, 1e17); break;
  case 3: limiter = rv_rate_limiter_sample_to_insert_ratio(1e-9, 1, 3); break;
  default: break;
  }
  rv_error err;
  rv_code code = rv_table_set_rate_limiter(w->tables[t], &limiter, &err);
  assert_true(code == RV_OK || code == RV_INVALID_ARGUMENT);
}

static void go_on_with_snapshot(world *w, size_t t)
{
  rv_error err;
  if (w->snapshot[t] == NULL) {
    must(rv_snapshot_new(w->tables[t], &w->snapshot[t], &err), &err);
    w->snapshot_left[t] = rv_snapshot_get_head(w->snapshot[t])->num_items;
    return;
  }
  const rv_draw *items;
  size_t count;
  must(rv_snapshot_next(w->snapshot[t], &items, &count, &err), &err);
  w->snapshot_left[t] -= (int64_t)count;
  assert_true(w->snapshot_left[t] >= 0);
  if (count > 0) return;
  assert_int_equal(w->snapshot_left[t], 0);
  rv_snapshot_free(w->snapshot[t]);
  w->snapshot[t] = NULL;
}

static void go_on_with_listing(world *w)
{
  size_t i = below(w, LISTINGS), count;
  rv_item_info page[64];
  rv_error err;
  must(rv_table_items(w->tables[i % TABLES], &w->cursors[i], page, 1 + below(w, 64), &count, &err), &err);
}

static void operate(world *w)
{
  size_t t = below(w, TABLES);
  uint32_t what = below(w, 1000);
  if (what < 250)
    insert_item(w, t);
  else if (what < 400)
    insert_rows(w, t);
  else if (what < 500)
    sample(w, t);
  else if (what < 560)
    fill(w, t);
  else if (what < 600)
    place(w, w->alike ? 0 : t);
  else if (what < 700)
    mutate(w, t);
  else if (what < 750)
    renew_chunk(w);
  else if (what < 800)
    hold_draw(w, t);
  else if (what < 830)
    take_back(w);
  else if (what < 860)
    go_on_with_snapshot(w, t);
  else if (what < 900)
    go_on_with_listing(w);
  else if (what < 920)
    change_bounds(w, t);
  else if (what < 940)
    change_limiter(w, t);
  else if (what < 945)
    assert_int_equal(rv_table_reset(w->tables[t], NULL), RV_OK);
  else if (what < 950)
    let_go(w);
  else if (what < 960)
    begin_or_end_log(w);
  else if (w->spills)
    spill(w, t);
}

/* ---- runs ---- */

static uint64_t number_from(const char *name, uint64_t otherwise)
{
  const char *text = getenv(name);
  return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

static rv_table_config some_table(world *w, const char *name)
{
  rv_table_config config = rv_table_config_default(name, 1 + below(w, 500));
  config.sampler.kind = (rv_selector_kind)(1 + below(w, 6));
  config.remover.kind = below(w, 2) == 0 ? RV_SELECTOR_FIFO : (rv_selector_kind)(1 + below(w, 6));
  if (config.sampler.kind == RV_SELECTOR_PRIORITIZED) config.sampler.priority_exponent = (double[]){0, 1, 0.6, -1}[below(w, 4)];
  if (config.remover.kind == RV_SELECTOR_PRIORITIZED) config.remover.priority_exponent = (double[]){0, 1, 0.6, -1}[below(w, 4)];
  return config;
}

/* Of the store too, so that a seed is a run. */
static void entropy(void *context, void *out, size_t n)
{
  uint8_t *at = out;
  for (size_t i = 0; i < n; i++) at[i] = (uint8_t)rv_random_next(context);
}

static world *new_world(uint64_t seed)
{
  world *w = calloc(1, sizeof *w);
  rv_error err;
  rv_random_init(&w->random, seed);
  rv_random_init(&w->entropy, ~seed);
  rv_env env = {.size = sizeof env, .context = &w->entropy, .entropy = entropy};
  w->wide = malloc(sizeof(int64_t) * WIDE * 3);
  rv_table_config configs[TABLES] = {some_table(w, "a"), some_table(w, "b")};
  rv_store_config config = {.size = sizeof config,
                            .env = &env,
                            .tables = configs,
                            .num_tables = TABLES,
                            .memory_limit = below(w, 2) == 0 ? SIZE_MAX - 1 : 0};
  must(rv_store_new(&config, &w->store, &err), &err);
  w->alike = below(w, 2) == 0;
  w->spills = below(w, 2) == 0;
  if (w->spills) rv_memory_begin_spilling(rv_store_memory(w->store));
  for (size_t t = 0; t < TABLES; t++) {
    w->tables[t] = rv_store_table(w->store, t);
    w->items[t] = calloc(ITEMS, sizeof(known));
    w->written[t] = calloc(ITEMS, sizeof(known));
    if (w->spills) rv_table_keep_cold(w->tables[t]);
  }
  return w;
}

static void end_world(world *w)
{
  let_go(w);
  for (size_t i = 0; i < WAITING; i++) {
    if (w->waiting[i] != NULL) rv_waiter_cancel(waiter_of(w->waiting[i]));
    learn_all(w);
    if (w->waiting[i] != NULL) end_waiting(&w->waiting[i]);
  }
  for (size_t i = 0; i < CHUNKS; i++) rv_chunk_unref(w->chunks[i]);
  if (w->logged) begin_or_end_log(w);
  for (size_t t = 0; t < TABLES; t++) {
    rv_snapshot_free(w->snapshot[t]);
    end_segment(w, t);
    rv_placed_form_free(w->tables[t], w->form[t]);
  }
  rv_store_unref(w->store); /* and the account goes with its last byte: what is counted wrongly leaks, or is freed twice */
  for (size_t t = 0; t < TABLES; t++) {
    free(w->items[t]);
    free(w->written[t]);
  }
  free(w->wide);
  free(w);
}

static void whatever_happens_to_two_tables_their_items_are_those_of_a_list_and_their_books_count_what_is_there(void **state)
{
  (void)state;
  bool given = getenv("RV_TEST_SEED") != NULL;
  uint64_t first = number_from("RV_TEST_SEED", 1), operations = number_from("RV_TEST_OPERATIONS", OPERATIONS);
  for (uint64_t seed = first; seed < first + (given ? 1 : RUNS); seed++) {
    print_message("seed %llu\n", (unsigned long long)seed);
    world *w = new_world(seed);
    for (uint64_t i = 0; i < operations; i++) {
      operate(w);
      compare(w);
    }
    end_world(w);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whatever_happens_to_two_tables_their_items_are_those_of_a_list_and_their_books_count_what_is_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
