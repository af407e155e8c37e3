#include "store/prepare.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/past_caches.h"
#include "store/chunk_parts.h"
#include "store/forms.h"

enum {
  LARGE_ROW = 1 << 14,      /* bytes of a row */
  LARGE_BATCH = 1 << 16,    /* of all rows */
  TOGETHER_BYTES = 1 << 19, /* worth waking somebody for */
  PIECE_BYTES = 1 << 16,
  MOST_PARTS = 40,       /* segments */
  PREPARED_MAX = 1 << 26 /* bytes that are copied so; the rest follows row by row */
};

bool rv_rows_are_large(const rv_form *form, const rv_rows *rows)
{
  if (form->has_strings) {
    size_t bytes, most = rows->n > 1 ? LARGE_BATCH : LARGE_ROW;
    return rv_form_rows_within(form, rows, 0, rows->n, most, &bytes) < rows->n || bytes > most;
  }
  if (form->row_bytes >= LARGE_ROW) return true;
  return rows->n > 1 && form->row_bytes > LARGE_BATCH / rows->n;
}

/* ---- copying ---- */

typedef struct rv_copying {
  const rv_tensor *columns;
  const rv_prepared *part;
  size_t done;      /* rows before the part */
  size_t piece;     /* rows */
  bool past_caches; /* the table is larger than they are */
} rv_copying;

static void copy_piece(void *context, size_t i)
{
  const rv_copying *copying = context;
  const rv_prepared *part = copying->part;
  size_t at = i * copying->piece, n = part->rows - at < copying->piece ? part->rows - at : copying->piece;
  const rv_lane *lane = part->segment->lanes, *end = lane + part->segment->num_columns;
  const rv_tensor *column = copying->columns;
  for (; lane < end; lane++, column++) {
    uint8_t *to = (uint8_t *)(uintptr_t)lane->base + ((size_t)part->first + at) * lane->stride;
    const uint8_t *from = (const uint8_t *)column->data + (copying->done + at) * lane->row_bytes;
    if (copying->past_caches && lane->stride == lane->row_bytes)
      rv_copy_past_caches(to, from, n * lane->row_bytes);
    else
      rv_copy_strided(to, lane->stride, from, lane->row_bytes, lane->row_bytes, n);
  }
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
static void plan_parts(rv_table *table, rv_rows *rows, size_t n, rv_new_segment *make)
{
  const rv_form *form = rows->form;
  if (!form->has_strings) borrow(table, rows, n);
  size_t rest = n - (rows->num_prepared == 0 ? 0 : rows->prepared[0].rows);
  for (; rest > 0 && rows->num_prepared < MOST_PARTS; rows->num_prepared++) {
    size_t capacity;
    rv_chunk *spare = rv_form_take_segment(table, rows->form, &capacity);
    if (spare != NULL) capacity = (size_t)rv_segment_capacity(spare);
    size_t part = rest < capacity ? rest : capacity, bytes;
    if (form->has_strings)
      part = capacity = rv_form_rows_within(form, rows, n - rest, part, rv_form_most_with_strings(table), &bytes);
    rows->prepared[rows->num_prepared] = (rv_prepared){.segment = spare, .rows = part};
    make[rows->num_prepared] = (rv_new_segment){capacity, rv_rows_meta(table, (int64_t)capacity)};
    rest -= part;
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
  size_t done = 0;
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
  size_t most = rv_table_most_at_once(table) < PREPARED_MAX ? rv_table_most_at_once(table) : PREPARED_MAX;
  size_t n = most / rows->form->row_bytes, bytes;
  rv_new_segment make[MOST_PARTS];
  if (n > rows->n) n = rows->n;
  if (n == 0) n = 1;
  if (rows->form->has_strings) n = rv_form_rows_within(rows->form, rows, 0, n, most, &bytes);
  rows->prepared = malloc(MOST_PARTS * sizeof *rows->prepared);
  if (rows->prepared == NULL) return rv_fail_memory(err, MOST_PARTS * sizeof *rows->prepared);
  rows->num_prepared = rows->on_the_way = 0;
  plan_parts(table, rows, n, make);
  bool past_caches = rv_table_outgrows_caches(table);
  rv_turn_end(turn);
  rv_code code = fill_parts(table, rows, make, past_caches, err);
  rv_turn_begin(turn, table);
  give_back(turn, rows);
  return code;
}

rv_chunk *rv_rows_prepared(const rv_rows *rows, int64_t *first, size_t *left)
{
  size_t before = 0;
  for (size_t i = 0; rows->prepared != NULL && i < rows->num_prepared; i++) {
    const rv_prepared *part = &rows->prepared[i];
    if (rows->done - before < part->rows) {
      *first = part->first + (int64_t)(rows->done - before);
      *left = part->rows - (rows->done - before);
      return part->segment;
    }
    before += part->rows;
  }
  return NULL;
}

void rv_rows_unprepare(rv_rows *rows)
{
  if (rows->prepared == NULL) return;
  for (size_t i = 0; i < rows->num_prepared; i++) rv_chunk_unref(rows->prepared[i].segment);
  free(rows->prepared);
  rows->prepared = NULL;
  rv_memory_end_way(rows->waiter.table->memory, rows->on_the_way);
}
