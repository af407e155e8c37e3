/* Segments that more rows go into. They are there before their rows are, and stay when these have gone, so what they take cannot be had
 * from the remover: they are kept small beside the table's bound instead, however many there are. */
#include "store/changes_parts.h"
#include "store/chunk_parts.h"
#include "store/forms.h"

enum { OPEN_PART = 8 /* of max_bytes: open segments within it are counted, and items give way to them */ };

void rv_table_divide_share(rv_table *table)
{
  size_t share = rv_table_most_at_once(table) / (table->num_streams > 0 ? table->num_streams : 1);
  atomic_store_explicit(&table->share, share, memory_order_relaxed);
}

void rv_table_add_streams(rv_turn *turn, size_t streams)
{
  turn->table->num_streams += streams;
  rv_table_divide_share(turn->table);
  rv_table_leave_large(turn);
}

bool rv_table_is_large(const rv_table *table, const rv_chunk *segment)
{
  size_t rows = (size_t)rv_segment_capacity(segment) * rv_segment_row_bytes(segment);
  return (segment->has_strings ? rv_chunk_memory(segment) : rows) / 2 > rv_table_share(table);
}

static void leave(rv_turn *turn, rv_hold **place, uint64_t epoch)
{
  rv_books *books = &turn->table->books;
  rv_hold *hold = *place;
  if (hold == NULL || epoch != books->epoch || !rv_table_is_large(turn->table, hold->chunk)) return;
  *place = NULL;
  rv_books_leave(books, hold, &turn->garbage);
}

void rv_table_leave_large(rv_turn *turn)
{
  rv_table *table = turn->table;
  rv_books *books = &table->books;
  for (size_t i = 0; i < RV_MAX_FORMS && table->forms[i] != NULL; i++) {
    leave(turn, &table->forms[i]->hold, table->forms[i]->epoch);
    leave(turn, &table->forms[i]->large, table->forms[i]->large_epoch);
  }
  if (!table->compacting) leave(turn, &table->compact_into, books->epoch);
  for (rv_link *link = books->placed.next, *next; link != &books->placed; link = next) {
    rv_hold *hold = RV_CONTAINER(link, rv_hold, placed);
    next = link->next;
    if (rv_table_is_large(table, hold->chunk)) rv_books_leave(books, hold, &turn->garbage);
  }
  rv_spares_leave_large(table);
}

size_t rv_table_may_hold(const rv_table *table, size_t opens)
{
  size_t most = rv_table_max_bytes(table), open = table->books.open_memory + opens;
  return open > most / OPEN_PART ? most + (open - most / OPEN_PART) : most;
}
