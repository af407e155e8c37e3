/* One way to wait: operations queue by kind, whoever enters the table serves them, and each completes exactly once. */
#include <sched.h>
#include <stdio.h>

#include "store/changes_parts.h"
#include "store/chunk_parts.h"

void rv_turn_lock(rv_table *table)
{
#ifndef RV_CHECK_LOCKS /* trying does not check the order */
  if (rv_mutex_trylock(&table->mutex)) return;
#endif
  atomic_fetch_add_explicit(&table->contenders, 1, memory_order_relaxed);
  rv_mutex_lock(&table->mutex);
  atomic_fetch_sub_explicit(&table->contenders, 1, memory_order_relaxed);
}

/* ---- leaving ---- */

/* Completions are called by one thread at a time, so that they come in order and never inside one another, however often they
 * submit anew: whoever finds the flag set leaves its own to the thread that set it. */
static bool take_completed(rv_table *table, rv_link *out)
{
  rv_list_init(out);
  if (table->delivering || rv_list_empty(&table->completed)) return false;
  table->delivering = true;
  rv_list_splice(out, &table->completed);
  return true;
}

static void deliver(rv_table *table, rv_link *waiters)
{
  for (;;) {
    for (rv_link *link; (link = rv_list_pop_front(waiters)) != NULL;) {
      rv_waiter *waiter = RV_CONTAINER(link, rv_waiter, link);
      waiter->complete(waiter);
    }
    rv_turn_lock(table);
    if (rv_list_empty(&table->completed)) table->delivering = false;
    rv_list_splice(waiters, &table->completed);
    rv_mutex_unlock(&table->mutex);
    if (rv_list_empty(waiters)) return;
  }
}

static void leave_once(rv_turn *turn)
{
  rv_table *table = turn->table;
  rv_link completed;
  if (table->num_events > 0) rv_table_tell(turn);
  if (turn->garbage.holds != NULL) rv_spares_keep(turn->table, &turn->garbage);
  bool some = take_completed(table, &completed);
  if (rv_memory_limit(table->memory) < SIZE_MAX && !rv_table_books_are_counted(table)) rv_table_count_books(table);
  if (table->log != NULL && table->log->fresh) {
    table->log->fresh = false;
    table->log->shared->wake(table->log->shared, table->log->pressed);
  }
  rv_mutex_unlock(&table->mutex);
  if (rv_garbage_is_some(&turn->garbage))
    rv_holds_free(atomic_exchange_explicit(&table->left_holds, rv_garbage_free_but_holds(&turn->garbage), memory_order_acq_rel));
  if (some) deliver(table, &completed);
  if (rv_table_is_bounded(table)) rv_memory_serve(table->memory);
}

static void come_again(rv_turn *turn)
{
  if (atomic_load_explicit(&turn->table->contenders, memory_order_relaxed) > 0) sched_yield();
  turn->budget = RV_TURN_BUDGET;
  rv_turn_lock(turn->table);
}

static void pause_once(rv_turn *turn)
{
  bool compact = rv_table_max_bytes(turn->table) < SIZE_MAX &&
                 rv_table_wants_compaction(turn->table); /* else too many items would go for it */
  leave_once(turn);
  if (compact) rv_table_compact(turn->table, RV_COMPACT_STAYS);
  come_again(turn);
}

static bool has_rest(const rv_table *table)
{
  return table->extensions_go_on || table->books.leaving != NULL;
}

/* What is left to do of what was done, a hold of the lock for each part of it; without compaction, which leaves turns itself. */
static void do_rest(rv_turn *turn)
{
  rv_table *table = turn->table;
  while (has_rest(table)) {
    if (turn->budget <= 0) {
      leave_once(turn);
      come_again(turn);
    }
    if (table->extensions_go_on) rv_table_let_extensions_go_on(turn);
    turn->budget -= rv_books_unlink_some(&table->books, &turn->garbage);
  }
}

void rv_turn_pause(rv_turn *turn)
{
  pause_once(turn);
  if (!has_rest(turn->table)) return;
  do_rest(turn);
  pause_once(turn);
}

void rv_turn_leave(rv_turn *turn)
{
  if (turn->table->num_events > 0) rv_table_tell(turn);
  do_rest(turn);
  leave_once(turn);
}

void rv_turn_end_with_rest(rv_turn *turn)
{
  rv_table *table = turn->table;
  if (table->num_events > 0) rv_table_tell(turn);
  do_rest(turn);
  bool compact = rv_table_wants_compaction(table);
  leave_once(turn);
  if (compact) rv_table_compact(table, RV_COMPACT_STAYS);
}

/* ---- serving ---- */

static bool step(rv_turn *turn, rv_link *queue)
{
  if (rv_list_empty(queue)) return false;
  rv_waiter *waiter = RV_CONTAINER(queue->next, rv_waiter, link);
  switch (waiter->kind) {
  case RV_OPERATION_INSERT: return rv_insert_step(turn, RV_CONTAINER(waiter, rv_insert, waiter));
  case RV_OPERATION_ROWS: return rv_rows_step(turn, RV_CONTAINER(waiter, rv_rows, waiter));
  case RV_OPERATION_SAMPLE: break;
  }
  return rv_sampling_step(turn, RV_CONTAINER(waiter, rv_sampling, waiter));
}

/* Serves the queues, inserts and samples in turns, until nothing moves (false) or the budget is spent (true). */
static bool serve(rv_turn *turn)
{
  rv_table *table = turn->table;
  for (;;) {
    bool moved = step(turn, &table->inserts);
    moved |= step(turn, &table->samples);
    if (!moved || (rv_list_empty(&table->inserts) && rv_list_empty(&table->samples))) return false;
    if (turn->budget <= 0) return true;
  }
}

void rv_turn_finish(rv_turn *turn)
{
  while (serve(turn)) rv_turn_pause(turn);
  rv_turn_end(turn);
}

static void count_pending(rv_table *table, const rv_waiter *waiter, int64_t change)
{
  *(waiter->kind == RV_OPERATION_SAMPLE ? &table->pending_samples : &table->pending_inserts) += change;
  rv_rates_idle(table);
}

rv_waiting_group *rv_waiter_group(rv_waiter *waiter)
{
  rv_insert *insert = waiter->kind == RV_OPERATION_INSERT ? RV_CONTAINER(waiter, rv_insert, waiter) : NULL;
  return insert != NULL && insert->group != NULL ? insert->group : &waiter->alone;
}

static void begin_pending(rv_table *table, rv_waiter *waiter)
{
  waiter->state = RV_WAITER_PENDING;
  waiter->since_ns = rv_monotonic_ns(table->env);
  waiter->alone.count = 0;
  rv_waiting_group *group = rv_waiter_group(waiter);
  if (group->count++ == 0) {
    rv_list_init(&group->waiters);
    rv_list_push_back(waiter->kind == RV_OPERATION_SAMPLE ? &table->samplers : &table->inserters, &group->link);
  }
  rv_list_push_back(&group->waiters, &waiter->of_group);
  count_pending(table, waiter, 1);
}

static void end_pending(rv_table *table, rv_waiter *waiter)
{
  rv_waiting_group *group = rv_waiter_group(waiter);
  rv_list_remove(&waiter->of_group);
  if (--group->count == 0) rv_list_remove(&group->link);
  count_pending(table, waiter, -1);
}

rv_submitted rv_turn_place(rv_turn *turn, rv_waiter *waiter, rv_operation_kind kind)
{
  rv_table *table = turn->table;
  bool insert = kind != RV_OPERATION_SAMPLE;
  waiter->kind = kind;
  waiter->code = RV_OK;
  waiter->id = ++table->next_waiter;
  waiter->since_ns = 0;
  waiter->state = RV_WAITER_INLINE;
  bool alone = rv_list_empty(&table->inserts) && rv_list_empty(&table->samples);
  rv_list_push_back(insert ? &table->inserts : &table->samples, &waiter->link);
  int64_t begun_ns = rv_rates_begin(table);
  if (alone) step(turn, insert ? &table->inserts : &table->samples); /* mostly that is all there is to do */
  if (waiter->state == RV_WAITER_INLINE || !alone) {
    if (turn->budget <= 0) rv_turn_pause(turn);
    while (serve(turn)) rv_turn_pause(turn);
  }
  if (begun_ns != 0) {
    rv_rates_worked(table, insert, begun_ns);
    rv_table_count_books(table);
  }
  bool done = waiter->state == RV_WAITER_DONE;
  if (waiter->state == RV_WAITER_INLINE) begin_pending(table, waiter);
  return done ? RV_SUBMIT_DONE : RV_SUBMIT_PENDING;
}

rv_submitted rv_turn_submit(rv_turn *turn, rv_waiter *waiter, rv_operation_kind kind)
{
  rv_submitted submitted = rv_turn_place(turn, waiter, kind);
  rv_turn_end_grown(turn);
  return submitted;
}

/* Out of its queue, whatever the reason. */
static void take_out(rv_turn *turn, rv_waiter *waiter)
{
  rv_list_remove(&waiter->link);
  if (waiter->kind == RV_OPERATION_ROWS) rv_rows_end(turn->table, RV_CONTAINER(waiter, rv_rows, waiter), &turn->garbage);
  if (waiter->kind == RV_OPERATION_INSERT) rv_insert_end(turn, RV_CONTAINER(waiter, rv_insert, waiter));
  if (waiter->state == RV_WAITER_PENDING) end_pending(turn->table, waiter);
}

void rv_turn_complete(rv_turn *turn, rv_waiter *waiter, rv_code code)
{
  take_out(turn, waiter);
  waiter->code = code;
  if (waiter->state == RV_WAITER_INLINE) {
    waiter->state = RV_WAITER_DONE;
    return;
  }
  waiter->state = RV_WAITER_COMPLETING;
  rv_list_push_back(&turn->table->completed, &waiter->link);
}

bool rv_waiter_cancel(rv_waiter *waiter)
{
  rv_table *table = waiter->table;
  if (table == NULL) return false;
  rv_turn turn;
  rv_turn_begin(&turn, table);
  bool waiting = waiter->state == RV_WAITER_PENDING || waiter->state == RV_WAITER_INLINE;
  if (waiting) {
    take_out(&turn, waiter);
    waiter->state = RV_WAITER_CANCELLED;
  }
  rv_turn_finish(&turn); /* the next in line may ask for something that is possible */
  return waiting;
}

/* ---- saying what is waited for ---- */

enum { COUNTED_AHEAD = 1000 };

rv_wait_reason rv_waiter_explain(rv_waiter *waiter, char *out, size_t capacity)
{
  rv_table *table = waiter->table;
  if (table == NULL) {
    snprintf(out, capacity, "was not submitted to a table");
    return RV_WAIT_NONE;
  }
  bool insert = waiter->kind != RV_OPERATION_SAMPLE;
  char sentence[320];
  rv_turn turn;
  rv_turn_begin(&turn, table);
  const rv_link *queue = insert ? &table->inserts : &table->samples;
  bool queued = waiter->state == RV_WAITER_PENDING || waiter->state == RV_WAITER_INLINE;
  size_t ahead = 0;
  if (queued)
    for (const rv_link *link = queue->next; link != &waiter->link && ahead < COUNTED_AHEAD; link = link->next) ahead++;
  rv_wait_reason reason = rv_rate_limiter_explain(&table->limiter, insert, sentence, sizeof sentence);
  if (reason == RV_WAIT_NONE && !insert && table->books.slab.count == 0) {
    reason = RV_WAIT_EMPTY;
    snprintf(sentence, sizeof sentence, "waits for an item, has none");
  }
  if (reason == RV_WAIT_NONE && !rv_changes_have_room(table, insert ? 1 : 2)) {
    reason = RV_WAIT_JOURNAL;
    rv_changes_explain(table->log, sentence, sizeof sentence);
  }
  if (reason == RV_WAIT_NONE && insert && table->waits_for_memory) {
    reason = RV_WAIT_MEMORY;
    rv_memory_explain(table->memory, sentence, sizeof sentence);
  }
  rv_turn_end_look(&turn);
  const char *what = insert ? "inserting" : "sampling";
  if (ahead > 0) {
    snprintf(out, capacity, "table \"%s\": %s waits for its turn, %zu%s came first, the first of which %s", table->name, what,
             ahead, ahead == COUNTED_AHEAD ? " or more" : "", sentence);
    return RV_WAIT_TURN;
  }
  snprintf(out, capacity, "table \"%s\": %s %s", table->name, what, sentence);
  return reason;
}
