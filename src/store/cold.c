#include "store/cold.h"

#include "base/pages.h"
#include "store/chunk_parts.h"
#include "store/table_parts.h"

enum {
  MOVES_AT_ONCE = 16,
  TRIED = 64,
  LOOSE_MAX = 512,
  TRY_STEPS = 8,  /* small steps that looking at a chunk is worth, */
  LOOSE_STEPS = 4 /* and at each of its loose items: some wait for their memory */
};

void rv_table_keep_cold(rv_table *table)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  rv_books *books = &table->books;
  table->keeps_cold = books->keeps_cold = true;
  for (uint32_t i = 0; i < books->num_holds; i++) {
    if (turn.budget-- <= 0) rv_turn_pause(&turn); /* what comes meanwhile is listed as it comes */
    if (i >= books->num_holds) break;             /* all went meanwhile */
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

static int steps_of(const rv_hold *hold)
{
  return TRY_STEPS + LOOSE_STEPS * (int)(hold->num_loose < LOOSE_MAX ? hold->num_loose : LOOSE_MAX);
}

typedef struct rv_taking {
  rv_cold *cold;
  size_t most, most_bytes, n, bytes, tried;
} rv_taking;

static bool goes_on(const rv_taking *taking, const rv_link *list)
{
  return taking->tried < TRIED && taking->n < taking->most && taking->bytes < taking->most_bytes && !rv_list_empty(list);
}

/* In one hold of the lock; those that are taken have a reference more, so that no later one takes them, too. False: that is all. */
static bool take_some(rv_turn *turn, rv_taking *taking)
{
  rv_link *list = &turn->table->books.cold;
  rv_link later;
  rv_list_init(&later);
  for (; turn->budget > 0 && goes_on(taking, list); taking->tried++) {
    rv_hold *hold = RV_CONTAINER(rv_list_pop_front(list), rv_hold, cold);
    turn->budget -= steps_of(hold);
    if (!is_idle(hold, 0)) {
      rv_list_push_back(&later, &hold->cold);
      continue;
    }
    rv_cold *next = &taking->cold[taking->n];
    *next = (rv_cold){.chunk = hold->chunk};
    if (!rv_chunk_movable(hold->chunk, &next->bytes, &next->size)) continue; /* it never is */
    rv_chunk_ref(hold->chunk);
    rv_list_push_back(&later, &hold->cold); /* until it has moved it may yet have to be tried again */
    taking->bytes += next->size;
    taking->n++;
  }
  bool more = goes_on(taking, list);
  rv_list_splice(list, &later);
  return more;
}

size_t rv_table_take_cold(rv_table *table, rv_cold *cold, size_t most, size_t most_bytes)
{
  rv_taking taking = {.cold = cold, .most = most, .most_bytes = most_bytes};
  rv_turn turn;
  rv_turn_begin(&turn, table);
  while (take_some(&turn, &taking)) rv_turn_pause(&turn);
  rv_turn_leave(&turn);
  return taking.n;
}

static void free_moved(rv_moved *old)
{
  rv_buf_unref(old->buf);
  if (old->block != NULL) rv_pages_free(old->block, old->size);
}

size_t rv_table_move_cold(rv_table *table, rv_cold *cold, size_t n)
{
  rv_moved old[MOVES_AT_ONCE];
  size_t won = 0;
  for (size_t begin = 0, end; begin < n; begin = end) {
    rv_turn turn;
    rv_turn_begin(&turn, table);
    for (end = begin; end < n && end - begin < MOVES_AT_ONCE && turn.budget > 0; end++) {
      const size_t i = end;
      old[i - begin] = (rv_moved){.buf = NULL};
      rv_hold *hold = cold[i].place == NULL ? NULL : rv_books_find_hold(&table->books, cold[i].chunk);
      if (hold != NULL) turn.budget -= steps_of(hold);
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
      free_moved(&old[i - begin]);
      rv_chunk_unref(cold[i].chunk);
    }
  }
  rv_memory_serve(table->memory);
  return won;
}
