/* Memory that a growing table needs next, found before it is needed and without its lock: to write to a huge page for the first time takes a
 * third of a millisecond, and where a virtual machine's host has to find it several, in which nobody else could have the table. */
#include "base/pages.h"
#include "store/chunk_parts.h"
#include "store/forms.h"

typedef struct rv_ahead {
  uint64_t epoch; /* of the books */
  bool items;     /* room for items is made */
  void *block;    /* it; NULL: there is no memory */
  rv_form *form;  /* a segment is made for its rows; one reference. NULL: none is */
  size_t rows;
  rv_chunk_meta meta;
  rv_chunk *segment; /* NULL: as with the block */
} rv_ahead;

/* May it be there before it is needed? Not where others would have to go for it. */
static bool may_be_there(const rv_table *table)
{
  enum { PART = 32 };
  return !rv_table_is_bounded(table) ||
         (RV_HUGE_PAGE <= table->books.chunk_memory / PART && !rv_memory_is_awaited(table->memory));
}

/* The one that the table has a segment wanted for, if it has not gone meanwhile. */
static rv_form *take_form(rv_table *table)
{
  const rv_form *wanted = table->ahead_for;
  table->ahead_for = NULL;
  for (size_t i = 0; i < RV_MAX_FORMS && wanted != NULL; i++)
    if (table->forms[i] == wanted) return table->forms[i];
  return NULL;
}

static void plan(rv_table *table, rv_ahead *ahead)
{
  *ahead = (rv_ahead){.epoch = table->books.epoch};
  const bool items = rv_slab_wants_ahead(&table->books.slab);
  rv_form *form = take_form(table);
  if (items) rv_slab_promise_ahead(&table->books.slab);
  if (!may_be_there(table)) return;
  ahead->items = items;
  if (form == NULL) return;
  ahead->rows = rv_form_next_rows(table, form);
  ahead->meta = rv_rows_meta(table, (int64_t)ahead->rows);
  ahead->form = form;
  form->refs++;
}

static void make(rv_ahead *ahead)
{
  if (ahead->items) ahead->block = rv_pages_alloc(RV_HUGE_PAGE);
  if (ahead->block != NULL) rv_pages_touch(ahead->block, RV_HUGE_PAGE);
  const rv_form *form = ahead->form;
  if (form == NULL || rv_segment_new(form->specs, form->num_columns, ahead->rows, &ahead->meta, &ahead->segment, NULL) != RV_OK)
    return;
  rv_segment_touch(ahead->segment);
}

static void put(rv_turn *turn, rv_ahead *ahead)
{
  rv_table *table = turn->table;
  if (ahead->epoch == table->books.epoch && rv_slab_put_ahead(&table->books.slab, ahead->block)) ahead->block = NULL;
  if (ahead->segment != NULL && rv_spares_put(table, ahead->segment)) ahead->segment = NULL;
  if (ahead->form != NULL) rv_form_unref(table, ahead->form, &turn->garbage);
}

void rv_turn_end_and_make_ahead(rv_turn *turn)
{
  rv_table *table = turn->table;
  rv_ahead ahead;
  plan(table, &ahead);
  rv_turn_end(turn);
  if (!ahead.items && ahead.form == NULL) return;
  make(&ahead);
  rv_turn_begin(turn, table);
  put(turn, &ahead);
  rv_turn_end(turn);
  rv_pages_free(ahead.block, RV_HUGE_PAGE);
  rv_chunk_unref(ahead.segment);
}
