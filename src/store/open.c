/* Segments that more rows go into. They are there before their rows are, and stay when these have gone, so what they take cannot be had
 * from the remover: they are kept small beside the table's bound instead, however many there are. */
#include "store/changes_parts.h"
#include "store/chunk_parts.h"
#include "store/forms.h"

enum {
  OPEN_PART = 8, /* of max_bytes: open segments within it are counted, and items give way to them */
  LEFT_AT_ONCE = 32
};

void rv_table_divide_share(rv_table *table)
{
  size_t share = rv_table_most_at_once(table) / (table->num_streams > 0 ? table->num_streams : 1);
  atomic_store_explicit(&table->share, share, memory_order_relaxed);
}

static size_t bytes_of_rows(const rv_chunk *segment)
{
  return (size_t)rv_segment_capacity(segment) * rv_segment_row_bytes(segment);
}

bool rv_table_is_large(const rv_table *table, const rv_chunk *segment)
{
  size_t share = rv_table_share(table);
  return segment->has_strings ? rv_chunk_memory(segment) > share : bytes_of_rows(segment) / 2 > share;
}

static void leave(rv_turn *turn, rv_hold **place, uint64_t epoch)
{
  rv_books *books = &turn->table->books;
  rv_hold *hold = *place;
  if (hold == NULL || epoch != books->epoch || !rv_table_is_large(turn->table, hold->chunk)) return;
  *place = NULL;
  rv_books_leave(books, hold, &turn->garbage);
}

/* ---- segments that writers fill ----
 *
 * There may be very many, so those that have become large are found by their class of size; all of a class are as large as one of them may be.
 * A writer may go on with a segment that is large, for it has to have room for two transitions: it is left again when the share is half of what
 * it was then, so each is left a few times, however many writers come. */

/* The first class of segments that are large. */
static size_t large_class(const rv_table *table)
{
  size_t share = rv_table_share(table);
  return share < SIZE_MAX / 2 ? rv_size_class(2 * share + 1) : RV_SIZE_CLASSES;
}

void rv_table_note_placed(rv_table *table, rv_hold *hold)
{
  rv_books *books = &table->books;
  size_t class = rv_size_class(bytes_of_rows(hold->chunk));
  if (class >= large_class(table)) class = rv_size_class(rv_table_share(table));
  rv_list_push_back(&books->placed[class], &hold->placed);
  books->placed_some[class / 64] |= UINT64_C(1) << class % 64;
}

/* The largest; NULL: none is large. */
static rv_hold *find_large(rv_table *table)
{
  rv_books *books = &table->books;
  size_t least = large_class(table);
  for (size_t word = RV_SIZE_CLASSES / 64; word-- > least / 64;) {
    uint64_t *some = &books->placed_some[word];
    while (*some != 0) {
      size_t class = 64 * word + (size_t)(63 - __builtin_clzll(*some));
      if (class < least) return NULL;
      if (!rv_list_empty(&books->placed[class])) return RV_CONTAINER(books->placed[class].next, rv_hold, placed);
      *some &= ~(UINT64_C(1) << class % 64);
    }
  }
  return NULL;
}

static bool leave_placed(rv_turn *turn)
{
  for (int left = 0; left < LEFT_AT_ONCE; left++) {
    rv_hold *hold = find_large(turn->table);
    if (hold == NULL) return false;
    rv_books_leave(&turn->table->books, hold, &turn->garbage);
  }
  return true;
}

/* ---- all of them ---- */

bool rv_table_leave_large(rv_turn *turn)
{
  rv_table *table = turn->table;
  for (size_t i = 0; i < RV_MAX_FORMS && table->forms[i] != NULL; i++) {
    leave(turn, &table->forms[i]->hold, table->forms[i]->epoch);
    leave(turn, &table->forms[i]->large, table->forms[i]->large_epoch);
  }
  if (!table->compacting) leave(turn, &table->compact_into, table->books.epoch);
  return leave_placed(turn);
}

void rv_table_leave_all_large(rv_turn *turn)
{
  while (rv_table_leave_large(turn)) rv_turn_pause(turn);
  rv_spares_leave_large(turn);
}

void rv_table_add_streams(rv_turn *turn, size_t streams)
{
  turn->table->num_streams += streams;
  rv_table_divide_share(turn->table);
  rv_table_leave_all_large(turn);
}

size_t rv_table_may_hold(const rv_table *table, size_t opens)
{
  size_t most = rv_table_max_bytes(table), open = table->books.open_memory + opens;
  return open > most / OPEN_PART ? most + (open - most / OPEN_PART) : most;
}
