/* Those who wait until the disk has what they changed. */
#include <stdio.h>

#include "base/error.h"
#include "persist/checkpoint_files.h"
#include "persist/journal_parts.h"

enum {
  LOOK_NS = 20000000,   /* how often a caller that blocks is asked whether it goes on */
  SHOWN_NS = 1000000000 /* who waits longer is shown */
};
#define GIVE_WAY_NS INT64_C(5000000000) /* several tries */

uint64_t rv_journal_ticket(const rv_journal *journal)
{
  return atomic_load(&journal->log.cycle) + 1;
}

bool rv_journal_is_written(const rv_journal *journal, uint64_t ticket)
{
  return atomic_load(&journal->written) >= ticket;
}

/* Holding the lock: a cycle must come that has nothing to write, perhaps. */
static void hurry(rv_journal *journal)
{
  journal->pending = journal->urgent = true;
  rv_cond_signal(&journal->work);
}

bool rv_journal_wait(rv_journal *journal, rv_journal_waiter *waiter)
{
  rv_list_init(&waiter->link);
  if (rv_journal_is_written(journal, waiter->ticket)) return false;
  rv_mutex_lock(&journal->lock);
  bool written = rv_journal_is_written(journal, waiter->ticket);
  if (!written) {
    waiter->since_ns = rv_monotonic_ns(&journal->env);
    rv_list_push_back(&journal->waiters, &waiter->link);
    hurry(journal);
  }
  rv_mutex_unlock(&journal->lock);
  return !written;
}

bool rv_journal_cancel(rv_journal *journal, rv_journal_waiter *waiter)
{
  rv_mutex_lock(&journal->lock);
  bool there = false;
  for (const rv_link *link = journal->waiters.next; link != &journal->waiters && !there; link = link->next)
    there = link == &waiter->link;
  if (there) rv_list_remove(&waiter->link);
  rv_mutex_unlock(&journal->lock);
  return there;
}

void rv_journal_show(rv_journal *journal, rv_journal_waiter *waiter, const rv_table *table, size_t wanted)
{
  rv_mutex_lock(&journal->lock);
  waiter->table = table;
  waiter->wanted = wanted;
  rv_mutex_unlock(&journal->lock);
}

static void show_waiter(const rv_journal_waiter *waiter, int64_t waiting_ns, rv_waiting_caller *out)
{
  *out = (rv_waiting_caller){.id = waiter->ticket,
                             .is_insert = !waiter->is_change,
                             .is_change = waiter->is_change,
                             .reason = RV_WAIT_JOURNAL,
                             .waiting_ns = waiting_ns,
                             .remaining_ns = INT64_MAX,
                             .wanted = (int64_t)waiter->wanted};
  snprintf(out->peer, sizeof out->peer, "%s", waiter->peer);
}

size_t rv_journal_list_waiting(rv_journal *journal, const rv_table *table, rv_waiting_caller *out, size_t capacity,
                               size_t *num_inserts)
{
  int64_t now = rv_monotonic_ns(&journal->env);
  size_t count = 0;
  *num_inserts = 0;
  rv_mutex_lock(&journal->lock);
  for (const rv_link *link = journal->waiters.next; link != &journal->waiters; link = link->next) {
    const rv_journal_waiter *waiter = RV_CONTAINER(link, rv_journal_waiter, link);
    int64_t waiting_ns = now - waiter->since_ns;
    if (waiter->table != table || waiting_ns < SHOWN_NS) continue;
    if (count < capacity) show_waiter(waiter, waiting_ns, &out[count]);
    count++;
    if (!waiter->is_change) ++*num_inserts;
  }
  rv_mutex_unlock(&journal->lock);
  return count;
}

/* Holding the lock. With the disk's own reason, as far as it is known. */
static rv_code fail_with_fault(const rv_journal *journal, rv_code code, const char *what, rv_error *err)
{
  const char *fault = journal->stats.fault;
  return fault[0] == '\0' ? rv_fail(err, code, "%s", what) : rv_fail(err, code, "%s: %s", what, fault);
}

/* Holding the lock, which it lets go meanwhile. */
static rv_code ask(rv_journal *journal, const rv_checkpoint_watch *watch, rv_error *err)
{
  const rv_checkpoint_progress none = {.size = sizeof none};
  rv_error fault;
  rv_mutex_unlock(&journal->lock);
  rv_code code = rv_checkpoint_ask(watch, &none, &fault);
  rv_mutex_lock(&journal->lock);
  return code == RV_OK ? RV_OK : fail_with_fault(journal, code, fault.message, err);
}

/* How long the journal cannot be written already, as far as whoever waits has seen it. */
static int64_t fault_ns(const rv_journal *journal, int64_t *since_ns)
{
  int64_t now = rv_monotonic_ns(&journal->env);
  if (journal->stats.fault[0] == '\0' || *since_ns == 0) *since_ns = now;
  return now - *since_ns;
}

rv_code rv_journal_await(rv_journal *journal, bool (*there)(const rv_journal *journal, uint64_t what), uint64_t what,
                         const rv_journal_patience *until, rv_error *err)
{
  int64_t since_ns = 0;
  rv_code code = RV_OK;
  while (code == RV_OK && !there(journal, what)) {
    if (journal->stopped)
      code = rv_fail(err, RV_CANCELLED, "the journal has ended");
    else if (rv_monotonic_ns(&journal->env) >= until->deadline_ns)
      code = rv_fail(err, RV_DEADLINE_EXCEEDED, "the journal is not on the disk yet: %s",
                     journal->stats.fault[0] != '\0' ? journal->stats.fault : "the disk is slow");
    else if (until->gives_way && fault_ns(journal, &since_ns) >= GIVE_WAY_NS)
      code = fail_with_fault(journal, journal->fault_code,
                             "it was given up, so that the journal, which could not be written for 5 s, has the room", err);
    else if (!rv_cond_wait_for(&journal->done, &journal->lock, LOOK_NS))
      code = ask(journal, until->watch, err);
  }
  return code;
}

static rv_code wait_for_all(rv_journal *journal, const rv_journal_patience *until, rv_error *err)
{
  rv_mutex_lock(&journal->lock);
  hurry(journal);
  rv_code code = rv_journal_await(journal, rv_journal_is_written, rv_journal_ticket(journal), until, err);
  rv_mutex_unlock(&journal->lock);
  return code;
}

rv_code rv_journal_sync(rv_journal *journal, int64_t timeout_ms, rv_error *err)
{
  int64_t now = rv_monotonic_ns(&journal->env);
  rv_journal_patience until = {.deadline_ns = INT64_MAX};
  if (timeout_ms >= 0 && timeout_ms < (INT64_MAX - now) / 1000000) until.deadline_ns = now + timeout_ms * 1000000;
  return wait_for_all(journal, &until, err);
}

rv_code rv_journal_settle(rv_journal *journal, const rv_checkpoint_watch *watch, rv_error *err)
{
  const rv_journal_patience until = {.deadline_ns = INT64_MAX, .watch = watch, .gives_way = true};
  return wait_for_all(journal, &until, err);
}
