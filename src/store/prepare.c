#include "store/prepare.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/past_caches.h"
#include "base/small_copies.h"
#include "store/chunk_parts.h"
#include "store/forms.h"

enum {
  LARGE_ROW = 1 << 14,      /* bytes of a row */
  LARGE_BATCH = 1 << 16,    /* of all rows */
  TOGETHER_BYTES = 1 << 19, /* worth waking somebody for */
  PIECE_BYTES = 1 << 16,
  BESIDE_BYTES = 1 << 13, /* of rows of columns that stand beside each other */
  /* Where a table is so small that pieces would be smaller than this, more rows than one piece go in step by step: they stay in the caches, and for
   * each piece items would go before its segments are full. */
  LEAST_PIECE = 1 << 21,
  MOST_PARTS = 40,       /* segments */
  PREPARED_MAX = 1 << 26 /* bytes of one piece */
};

bool rv_rows_are_large(const rv_table *table, const rv_form *form, const rv_rows *rows)
{
  size_t n = rows->n - rows->done;
  if (form->row_bytes >= LARGE_ROW) return true;
  if (form->has_strings) {
    size_t bytes, most = n > 1 ? LARGE_BATCH : LARGE_ROW;
    return rv_form_rows_within(form, rows, rows->done, n, most, &bytes) < n || bytes > most;
  }
  if (n == 1 || form->row_bytes <= LARGE_BATCH / n) return false;
  size_t most = rv_table_most_at_once(table);
  return most >= LEAST_PIECE || form->row_bytes <= most / n;
}

/* ---- copying ---- */

typedef struct rv_copying {
  const rv_tensor *columns;
  const rv_prepared *part;
  size_t done;      /* rows before the part */
  size_t piece;     /* rows */
  bool past_caches; /* the table is larger than they are */
} rv_copying;

static bool is_beside(const rv_lane *lane)
{
  return lane->row_bytes > 0 && lane->stride != lane->row_bytes;
}

/* Where the columns that stand beside each other begin in row 0; NULL: there are none. */
static const uint8_t *find_beside(const rv_chunk *segment, size_t *stride)
{
  const uint8_t *first = NULL;
  for (uint32_t c = 0; c < segment->num_columns; c++) {
    const rv_lane *lane = &segment->lanes[c];
    if (!is_beside(lane) || (first != NULL && lane->base >= first)) continue;
    first = lane->base;
    *stride = lane->stride;
  }
  return first;
}

/* These columns' rows from number `at` on, to a row of theirs. */
static void put_beside(const rv_copying *copying, const uint8_t *first, size_t at, size_t n, uint8_t *to)
{
  const rv_chunk *segment = copying->part->segment;
  for (uint32_t c = 0; c < segment->num_columns; c++) {
    const rv_lane *lane = &segment->lanes[c];
    const uint8_t *from = (const uint8_t *)copying->columns[c].data + (copying->done + at) * lane->row_bytes;
    if (is_beside(lane)) rv_copy_strided(to + (lane->base - first), lane->stride, from, lane->row_bytes, lane->row_bytes, n);
  }
}

/* As few rows at a time as stay in the first cache until all columns have written to them. To get past the caches, where no line may be written
 * twice, they are put together there first. */
static void copy_beside(const rv_copying *copying, const uint8_t *first, size_t stride, size_t at, size_t n)
{
  uint8_t together[BESIDE_BYTES];
  const size_t most = stride < BESIDE_BYTES ? BESIDE_BYTES / stride : 1;
  const bool past = copying->past_caches && stride <= BESIDE_BYTES;
  if (past) memset(together, 0, sizeof together); /* what pads the rows */
  uint8_t *to = (uint8_t *)(uintptr_t)first + ((size_t)copying->part->first + at) * stride;
  for (size_t end = at + n, rows; at < end; at += rows, to += rows * stride) {
    rows = end - at < most ? end - at : most;
    put_beside(copying, first, at, rows, past ? together : to);
    if (past) rv_stream_past_caches(to, together, rows * stride);
  }
}

static void copy_piece(void *context, size_t i)
{
  const rv_copying *copying = context;
  const rv_prepared *part = copying->part;
  size_t at = i * copying->piece, n = part->rows - at < copying->piece ? part->rows - at : copying->piece, stride;
  const uint8_t *first = find_beside(part->segment, &stride);
  if (first != NULL) copy_beside(copying, first, stride, at, n);
  for (uint32_t c = 0; c < part->segment->num_columns; c++) {
    const rv_lane *lane = &part->segment->lanes[c];
    if (is_beside(lane) || lane->row_bytes == 0) continue;
    uint8_t *to = (uint8_t *)(uintptr_t)lane->base + ((size_t)part->first + at) * lane->stride;
    const uint8_t *from = (const uint8_t *)copying->columns[c].data + (copying->done + at) * lane->row_bytes;
    if (copying->past_caches)
      rv_stream_past_caches(to, from, n * lane->row_bytes);
    else
      memcpy(to, from, n * lane->row_bytes);
  }
  if (copying->past_caches) rv_past_caches_settle();
}

static rv_code copy_part(rv_table *table, const rv_rows *rows, const rv_prepared *part, size_t done, bool past_caches,
                         rv_error *err)
{
  const rv_form *form = rows->form;
  rv_code code = RV_OK;
  if (form->has_strings) {
    for (uint32_t c = 0; c < form->num_columns && code == RV_OK; c++)
      code = rv_segment_fill(part->segment, c, part->first, (const uint8_t *)rows->columns[c].data + done * form->column_bytes[c],
                             part->rows, err);
  } else {
    rv_copying copying = {
        .columns = rows->columns, .part = part, .done = done, .piece = PIECE_BYTES / form->row_bytes, .past_caches = past_caches};
    if (copying.piece == 0) copying.piece = 1;
    bool together = part->rows > TOGETHER_BYTES / form->row_bytes;
    rv_crew_run(together ? table->crew : NULL, (part->rows + copying.piece - 1) / copying.piece, part->rows * form->row_bytes,
                copy_piece, &copying);
  }
  for (uint32_t c = 0; c < form->num_columns && code == RV_OK; c++)
    rv_segment_publish(part->segment, c, part->first + (int64_t)part->rows);
  return code;
}

/* ---- the segment that is lent ---- */

static rv_hold *lent_hold(const rv_table *table, const rv_form *form)
{
  return form->large_epoch == table->books.epoch ? form->large : NULL;
}

/* Takes it away from the form; its hold stays open. */
static void borrow(rv_table *table, rv_rows *rows, size_t n)
{
  rv_form *form = rows->form;
  rv_hold *hold = lent_hold(table, form);
  form->large = NULL;
  if (hold == NULL) return;
  int64_t first = rv_chunk_num_rows(hold->chunk, 0), room = rv_segment_capacity(hold->chunk) - first;
  rows->prepared[rows->num_prepared++] =
      (rv_prepared){.segment = rv_chunk_ref(hold->chunk), .first = first, .rows = (size_t)room < n ? (size_t)room : n};
}

static void close_hold(rv_turn *turn, rv_chunk *segment)
{
  rv_books *books = &turn->table->books;
  rv_hold *hold = rv_books_find_hold(books, segment);
  if (hold != NULL) rv_books_leave(books, hold, &turn->garbage);
}

/* What has room goes back to the form, unless another caller was faster. */
static void give_back(rv_turn *turn, rv_rows *rows)
{
  rv_table *table = turn->table;
  rv_form *form = rows->form;
  for (size_t i = 0; i < rows->num_prepared; i++) {
    rv_chunk *segment = rows->prepared[i].segment;
    if (segment == NULL) continue;
    rv_hold *hold = NULL;
    /* one of strings is never lent again (plan_parts), and would stay open */
    bool room =
        !form->has_strings && rv_chunk_num_rows(segment, 0) < rv_segment_capacity(segment) && !rv_table_is_large(table, segment);
    if (room && lent_hold(table, form) == NULL && rv_books_hold(&table->books, segment, &hold, NULL) == RV_OK) {
      hold->own = true;
      rv_books_open(&table->books, hold);
      form->large = hold;
      form->large_epoch = table->books.epoch;
    } else {
      close_hold(turn, segment);
    }
  }
}

/* ---- the verbs ---- */

typedef struct rv_new_segment {
  size_t capacity;
  rv_chunk_meta meta;
} rv_new_segment;

/* The parts and their places, with a segment or with the making of one. All segments of a form are of one size, so that what dies is what is
 * needed next. */
static void plan_parts(rv_turn *turn, rv_rows *rows, size_t n, rv_new_segment *make)
{
  rv_table *table = turn->table;
  size_t row = rows->form->row_bytes;
  borrow(table, rows, n);
  size_t rest = n - (rows->num_prepared == 0 ? 0 : rows->prepared[0].rows);
  for (; rest > 0 && rows->num_prepared < MOST_PARTS; rows->num_prepared++) {
    size_t capacity;
    rv_chunk *spare = rv_form_take_segment(table, rows->form, &turn->garbage, &capacity);
    if (spare != NULL) capacity = (size_t)rv_segment_capacity(spare);
    size_t part = rest < capacity ? rest : capacity;
    rows->prepared[rows->num_prepared] = (rv_prepared){.segment = spare, .rows = part};
    make[rows->num_prepared] = (rv_new_segment){capacity, rv_rows_meta(table, (int64_t)capacity)};
    rest -= part;
  }
  for (size_t i = 0; i < rows->num_prepared; i++) rows->prepared[i].largest = row;
  rows->end = rows->begun + n - rest;
}

/* The making of as many parts as there may be: which rows with strings each has is seen without the lock (cut_parts). */
static void plan_string_parts(rv_table *table, const rv_form *form, rv_new_segment *make)
{
  size_t most = rv_form_most_rows(table, form);
  for (size_t i = 0; i < MOST_PARTS; i++) make[i] = (rv_new_segment){most, rv_rows_meta(table, 0)};
}

/* As many of the rows from `first` on as are `most_bytes` with their strings, one at least, up to one that never fits. */
static rv_prepared cut_part(const rv_table *table, const rv_rows *rows, size_t first, size_t most_rows, size_t most_bytes,
                            size_t *bytes)
{
  rv_prepared part = {.segment = NULL};
  size_t fits = rv_table_fits(table);
  for (*bytes = 0; part.rows < most_rows; part.rows++) {
    size_t row = rv_form_bytes_of_row(rows->form, rows, first + part.rows);
    if (part.rows > 0 && (row > fits || *bytes > most_bytes || row > most_bytes - *bytes)) break;
    *bytes += row;
    if (row > part.largest) part.largest = row;
  }
  return part;
}

/* Rows of `most` bytes, one at least. One that never fits is refused where a piece begins with it, so it begins one. */
static void cut_parts(const rv_table *table, rv_rows *rows, size_t most, rv_new_segment *make)
{
  size_t fits = rv_table_fits(table), one = rv_form_most_with_strings(table), taken = 0, bytes;
  for (rows->end = rows->begun; rows->num_prepared < MOST_PARTS && rows->end < rows->n; taken += bytes) {
    rv_new_segment *segment = &make[rows->num_prepared];
    size_t rest = rows->n - rows->end, left = most > taken ? most - taken : 0;
    rv_prepared part =
        cut_part(table, rows, rows->end, rest < segment->capacity ? rest : segment->capacity, left < one ? left : one, &bytes);
    if (rows->num_prepared > 0 && (bytes > left || part.largest > fits)) return;
    segment->capacity = part.rows;
    segment->meta.last_step = (int32_t)part.rows - 1;
    rows->prepared[rows->num_prepared++] = part;
    rows->end += part.rows;
  }
}

static void put_on_the_way(rv_table *table, rv_rows *rows, rv_chunk *segment)
{
  size_t before = rv_chunk_counted(segment);
  rv_chunk_count(segment, table->memory);
  size_t bytes = rv_chunk_counted(segment) - before;
  rows->on_the_way += bytes;
  rv_memory_begin_way(table->memory, bytes);
}

static rv_code fill_parts(rv_table *table, rv_rows *rows, const rv_new_segment *make, bool past_caches, rv_error *err)
{
  const rv_form *form = rows->form;
  rv_code code = RV_OK;
  size_t done = rows->begun;
  for (size_t i = 0; i < rows->num_prepared && code == RV_OK; i++) {
    rv_prepared *part = &rows->prepared[i];
    if (part->segment == NULL) {
      code = rv_segment_new(form->specs, form->num_columns, make[i].capacity, &make[i].meta, &part->segment, err);
      if (code == RV_OK) put_on_the_way(table, rows, part->segment);
    }
    if (code == RV_OK) code = copy_part(table, rows, part, done, past_caches, err);
    if (code == RV_OK && form->has_strings) put_on_the_way(table, rows, part->segment);
    done += part->rows;
  }
  return code;
}

rv_code rv_rows_prepare(rv_turn *turn, rv_rows *rows, rv_error *err)
{
  rv_table *table = turn->table;
  bool has_strings = rows->form->has_strings;
  size_t most = rv_table_most_at_once(table) < PREPARED_MAX ? rv_table_most_at_once(table) : PREPARED_MAX;
  size_t n = most / rows->form->row_bytes, rest = rows->n - rows->done;
  rv_new_segment make[MOST_PARTS];
  if (n > rest) n = rest;
  if (n == 0) n = 1;
  rows->prepared = malloc(MOST_PARTS * sizeof *rows->prepared);
  if (rows->prepared == NULL) return rv_fail_memory(err, MOST_PARTS * sizeof *rows->prepared);
  rows->left = malloc(sizeof *rows->left + MOST_PARTS * sizeof(rv_chunk *));
  if (rows->left == NULL) {
    free(rows->prepared);
    rows->prepared = NULL;
    return rv_fail_memory(err, sizeof *rows->left + MOST_PARTS * sizeof(rv_chunk *));
  }
  rows->num_prepared = rows->on_the_way = 0;
  if (has_strings)
    plan_string_parts(table, rows->form, make);
  else
    plan_parts(turn, rows, n, make);
  bool past_caches = rv_table_outgrows_caches(table);
  rv_turn_end(turn);
  if (has_strings) cut_parts(table, rows, most, make);
  rv_code code = fill_parts(table, rows, make, past_caches, err);
  rv_turn_begin(turn, table);
  give_back(turn, rows);
  return code;
}

const rv_prepared *rv_rows_part(const rv_rows *rows, size_t *begin)
{
  *begin = rows->begun;
  for (size_t i = 0; rows->prepared != NULL && i < rows->num_prepared; i++) {
    const rv_prepared *part = &rows->prepared[i];
    if (rows->done - *begin < part->rows) return part;
    *begin += part->rows;
  }
  return NULL;
}

rv_chunk *rv_rows_prepared(const rv_rows *rows, int64_t *first, size_t *left)
{
  size_t begin;
  const rv_prepared *part = rv_rows_part(rows, &begin);
  if (part == NULL) return NULL;
  *first = part->first + (int64_t)(rows->done - begin);
  *left = part->rows - (rows->done - begin);
  return part->segment;
}

/* Rows that are in the table are kept by that; those that came into none are many, and take long to free. */
void rv_rows_unprepare(rv_rows *rows, rv_garbage *garbage)
{
  if (rows->prepared == NULL) return;
  rv_left_chunks *left = rows->left;
  *left = (rv_left_chunks){.next = garbage->left, .memory = rows->waiter.table->memory, .on_the_way = rows->on_the_way};
  for (size_t i = 0; i < rows->num_prepared; i++) {
    rv_chunk *segment = rows->prepared[i].segment;
    if (segment != NULL && !rv_chunk_unref_unless_last(segment)) left->chunk[left->count++] = segment;
  }
  free(rows->prepared);
  rows->prepared = NULL;
  garbage->more |= left->count > 0;
  if (left->count > 0)
    garbage->left = left;
  else
    rv_left_chunks_free(left);
}
