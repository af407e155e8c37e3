#include "store/cold.h"

#include <sched.h>

#include "base/pages.h"
#include "store/chunk_parts.h"
#include "store/store.h"
#include "store/table_parts.h"

enum {
  MOVES_AT_ONCE = 16,
  TRIED = 64,
  TRIES = 100, /* to lock another table that holds a chunk, too */
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

/* Does nobody read the chunk through this table? Who reads a loose item has a reference to its trajectory. */
static bool is_quiet(const rv_hold *hold)
{
  if (hold->open || hold->drawn > 0 || hold->num_loose > LOOSE_MAX) return false;
  RV_LIST_EACH(link, &hold->loose)
  {
    rv_trajectory *trajectory = RV_CONTAINER(link, rv_loose_link, link)->loose->trajectory;
    if (atomic_load_explicit(&rv_trajectory_box_of(trajectory)->refs, memory_order_acquire) != 1) return false;
  }
  return true;
}

/* To its chunk, where it is quiet. */
static size_t refs_of(const rv_hold *hold)
{
  return (size_t)hold->num_loose + 1;
}

/* Does the table alone refer to it? Where others hold it, too, that is asked later. */
static bool may_be_idle(const rv_hold *hold)
{
  return rv_chunk_refs(hold->chunk) == refs_of(hold) + atomic_load(&hold->chunk->kept) || rv_chunk_holds(hold->chunk) > 1;
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
    if (!may_be_idle(hold) || !is_quiet(hold)) {
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

/* ---- those that several tables hold ---- */

typedef struct rv_sharing {
  size_t refs; /* of the tables that were looked at */
  bool busy;   /* in one of them */
} rv_sharing;

static void look_at_shares(rv_table *table, bool is_first, rv_cold *cold, rv_sharing *sharing, size_t n)
{
  rv_turn turn;
  rv_turn_begin(&turn, table);
  for (size_t i = 0; i < n; i++) {
    if (turn.budget <= 0) rv_turn_pause(&turn);
    turn.budget--;
    rv_hold *hold = rv_chunk_holds(cold[i].chunk) > 1 ? rv_books_find_hold(&table->books, cold[i].chunk) : NULL;
    if (hold == NULL) continue;
    turn.budget -= steps_of(hold);
    if (!is_quiet(hold) || (!is_first && cold[i].num_others == RV_COLD_OTHERS))
      sharing[i].busy = true;
    else if (!is_first)
      cold[i].others[cold[i].num_others++] = table;
    sharing[i].refs += refs_of(hold);
  }
  rv_turn_leave(&turn);
}

static bool some_are_shared(const rv_cold *cold, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (rv_chunk_holds(cold[i].chunk) > 1) return true;
  return false;
}

size_t rv_table_leave_busy(rv_table *table, rv_store *store, rv_cold *cold, size_t n)
{
  if (!some_are_shared(cold, n)) return n;
  rv_sharing sharing[TRIED] = {{.refs = 0}};
  size_t left = 0;
  look_at_shares(table, true, cold, sharing, n);
  for (size_t i = 0; i < rv_store_num_tables(store); i++)
    if (rv_store_table(store, i) != table) look_at_shares(rv_store_table(store, i), false, cold, sharing, n);
  for (size_t i = 0; i < n; i++) {
    const bool shared = sharing[i].refs > 0;
    if (!shared || (!sharing[i].busy && sharing[i].refs + 1 + atomic_load(&cold[i].chunk->kept) == rv_chunk_refs(cold[i].chunk)))
      cold[left++] = cold[i];
    else
      rv_chunk_unref(cold[i].chunk);
  }
  return left;
}

/* Others' locks are tried, not waited for, as this table's is held. */
static bool lock_others(const rv_cold *cold)
{
  for (size_t i = 0; i < cold->num_others; i++) {
    if (rv_mutex_trylock(&cold->others[i]->mutex)) continue;
    while (i-- > 0) rv_mutex_unlock(&cold->others[i]->mutex);
    return false;
  }
  return true;
}

static void unlock_others(const rv_cold *cold)
{
  for (size_t i = 0; i < cold->num_others; i++) rv_mutex_unlock(&cold->others[i]->mutex);
}

/* ---- moving ---- */

static void free_moved(rv_moved *old)
{
  rv_buf_unref(old->buf);
  if (old->block != NULL) rv_pages_free(old->block, old->size);
}

/* The chunk's hold in this table, and in the others, whose locks are held; how many. */
static size_t find_holds(rv_table *table, const rv_cold *cold, rv_table **tables, rv_hold **holds)
{
  size_t n = 0;
  for (size_t i = 0; i <= cold->num_others; i++) {
    rv_table *holder = i == 0 ? table : cold->others[i - 1];
    rv_hold *hold = rv_books_find_hold(&holder->books, cold->chunk);
    if (hold == NULL) continue;
    tables[n] = holder;
    holds[n++] = hold;
  }
  return n;
}

/* Do these tables and the mover alone refer to the chunk? */
static bool are_idle(const rv_cold *cold, rv_hold *const *holds, size_t n)
{
  size_t refs = 1 + atomic_load(&cold->chunk->kept);
  for (size_t i = 0; i < n; i++) {
    if (!is_quiet(holds[i])) return false;
    refs += refs_of(holds[i]);
  }
  return rv_chunk_refs(cold->chunk) == refs;
}

typedef enum rv_moving { MOVED, STAYS, LATER } rv_moving;

/* What is the caller's to free is *old. LATER: somebody is in one of the other tables, or just loads an item. */
static rv_moving move_one(rv_turn *turn, const rv_cold *cold, rv_moved *old)
{
  *old = (rv_moved){.buf = cold->place == NULL ? NULL : &cold->place->buf};
  if (cold->place == NULL) return STAYS;
  if (!lock_others(cold)) return LATER;
  const bool kept = atomic_load(&cold->chunk->kept) > 0;
  if (kept && !rv_memory_try_moving(turn->table->memory)) {
    unlock_others(cold);
    return LATER;
  }
  rv_table *tables[RV_COLD_OTHERS + 1];
  rv_hold *holds[RV_COLD_OTHERS + 1];
  const size_t n = find_holds(turn->table, cold, tables, holds);
  for (size_t i = 0; i < n; i++) turn->budget -= steps_of(holds[i]);
  const bool moves = n > 0 && are_idle(cold, holds, n);
  if (moves) {
    for (size_t i = 0; i < n; i++) {
      rv_list_remove(&holds[i]->cold);
      rv_books_forget_sparse(&tables[i]->books, holds[i]);
    }
    rv_chunk_move(cold->chunk, cold->place, old);
    for (size_t i = 0; i < n; i++) {
      holds[i]->plan = 0; /* where its rows begin is another place now */
      rv_books_note_spilled(&tables[i]->books, holds[i]);
    }
  }
  if (kept) rv_memory_end_claiming(turn->table->memory);
  unlock_others(cold);
  return moves ? MOVED : STAYS;
}

size_t rv_table_move_cold(rv_table *table, rv_cold *cold, size_t n)
{
  rv_moved old[MOVES_AT_ONCE];
  size_t won = 0, tries = 0;
  for (size_t begin = 0, end; begin < n; begin = end) {
    rv_moving moving = STAYS;
    rv_turn turn;
    rv_turn_begin(&turn, table);
    for (end = begin; end < n && end - begin < MOVES_AT_ONCE && turn.budget > 0; end++) {
      moving = move_one(&turn, &cold[end], &old[end - begin]);
      if (moving == LATER && ++tries < TRIES) break;
      tries = 0;
      if (moving == MOVED) won += cold[end].size;
    }
    rv_turn_leave(&turn);
    for (size_t i = begin; i < end; i++) {
      free_moved(&old[i - begin]);
      rv_chunk_unref(cold[i].chunk);
    }
    if (moving == LATER) sched_yield();
  }
  rv_memory_serve(table->memory);
  return won;
}
