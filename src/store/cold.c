#include "store/cold.h"

#include "base/pages.h"
#include "store/chunk_parts.h"
#include "store/table_parts.h"

enum { MOVES_AT_ONCE = 16, TRIED = 64, LOOSE_MAX = 512 };

void rv_table_keep_cold(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_books *books = &table->books;
  table->keeps_cold = books->keeps_cold = true;
  for (uint32_t i = 0; i < books->num_holds; i++) {
    uintptr_t place = (uintptr_t)*RV_SEGARRAY_AT(&books->holds, rv_hold *, i);
    if ((place & 1U) == 0) rv_books_note_cold(books, (rv_hold *)place);
  }
  rv_turn_end(&turn);
}

/* Does the table alone refer to it, or that and `others`? Who reads a loose item has a reference to its trajectory. */
static bool is_idle(const rv_hold *hold, size_t others)
{
  if (hold->open || hold->drawn > 0 || hold->num_loose > LOOSE_MAX) return false;
  if (rv_chunk_refs(hold->chunk) != (size_t)hold->num_loose + 1 + others) return false;
  RV_LIST_EACH(link, &hold->loose)
  {
    rv_trajectory *trajectory = RV_CONTAINER(link, rv_loose_link, link)->loose->trajectory;
    if (atomic_load_explicit(&rv_trajectory_box_of(trajectory)->refs, memory_order_acquire) != 1) return false;
  }
  return true;
}

size_t rv_table_take_cold(rv_table *table, rv_cold *cold, size_t most, size_t most_bytes)
{
  rv_turn turn;
  size_t n = 0, bytes = 0;
  rv_turn_begin(&turn, table);
  rv_link *list = &table->books.cold;
  rv_link later;
  rv_list_init(&later);
  for (size_t tried = 0; tried < TRIED && n < most && bytes < most_bytes && !rv_list_empty(list); tried++) {
    rv_hold *hold = RV_CONTAINER(rv_list_pop_front(list), rv_hold, cold);
    if (!is_idle(hold, 0)) {
      rv_list_push_back(&later, &hold->cold);
      continue;
    }
    rv_cold *next = &cold[n];
    *next = (rv_cold){.chunk = hold->chunk};
    if (!rv_chunk_movable(hold->chunk, &next->bytes, &next->size)) continue; /* it never is */
    rv_chunk_ref(hold->chunk);
    rv_list_push_back(&later, &hold->cold); /* until it has moved it may yet have to be tried again */
    bytes += next->size;
    n++;
  }
  rv_list_splice(list, &later);
  rv_turn_leave(&turn);
  return n;
}

size_t rv_table_move_cold(rv_table *table, rv_cold *cold, size_t n)
{
  rv_moved old[MOVES_AT_ONCE];
  size_t won = 0;
  for (size_t begin = 0, end; begin < n; begin = end) {
    end = n - begin < MOVES_AT_ONCE ? n : begin + MOVES_AT_ONCE;
    rv_turn turn;
    rv_turn_begin(&turn, table);
    for (size_t i = begin; i < end; i++) {
      old[i - begin] = (rv_moved){.buf = NULL};
      rv_hold *hold = cold[i].place == NULL ? NULL : rv_books_find_hold(&table->books, cold[i].chunk);
      if (hold == NULL || !is_idle(hold, 1)) {
        old[i - begin].buf = cold[i].place;
        continue;
      }
      rv_list_remove(&hold->cold);
      rv_books_forget_sparse(&table->books, hold);
      rv_chunk_move(cold[i].chunk, cold[i].place, &old[i - begin]);
      hold->plan = 0; /* where its rows begin is another place now */
      rv_books_note_spilled(&table->books, hold);
      won += cold[i].size;
    }
    rv_turn_leave(&turn);
    for (size_t i = begin; i < end; i++) {
      rv_moved_free(&old[i - begin]);
      rv_chunk_unref(cold[i].chunk);
    }
  }
  rv_memory_serve(table->memory);
  return won;
}

void rv_moved_free(rv_moved *old)
{
  rv_buf_unref(old->buf);
  if (old->block != NULL) rv_pages_free(old->block, old->size);
}
