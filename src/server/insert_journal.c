/* Confirmations that wait for the disk. A call has one place in the journal's queue at a time: it stands for the answers that had
 * gathered when it was taken; those that come meanwhile take the next. */
#include "server/insert_stream.h"

/* On the journal's thread. */
static void on_written(rv_journal_waiter *waiter)
{
  rv_insert_call *call = RV_CONTAINER(waiter, rv_insert_call, journal_waiter);
  rv_loop_post(call->stream.loop, &call->journal_task);
}

static void on_journal_task(rv_task *task)
{
  rv_insert_call *call = RV_CONTAINER(task, rv_insert_call, journal_task);
  call->waits_for_journal = false;
  if (call->opening && rv_server_stream_is_open(&call->stream)) rv_call_send_headers(call->stream.call);
  call->opening = false;
  rv_insert_answers_send(call, false);
  rv_insert_items_advance(call);
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

void rv_insert_journal_init(rv_insert_call *call)
{
  call->journal_waiter.done = on_written;
  call->journal_task.run = on_journal_task;
}

static bool takes_its_time(const rv_insert_call *call)
{
  const rv_journal *journal = call->stream.server->journal;
  return journal != NULL && rv_journal_is_always(journal);
}

void rv_insert_journal_note(rv_insert_call *call)
{
  if (!takes_its_time(call)) return;
  rv_journal *journal = call->stream.server->journal;
  call->last_ticket = rv_journal_ticket(journal);
  if (call->opening && call->journal_waiter.table == NULL) rv_journal_show(journal, &call->journal_waiter, call->last_table, 1);
}

/* True: it waits. */
static bool wait_for(rv_insert_call *call, uint64_t ticket)
{
  call->journal_waiter.ticket = ticket;
  call->journal_waiter.table = call->opening ? NULL : call->last_table;
  call->journal_waiter.peer = call->peer;
  call->journal_waiter.wanted = call->waiting_keys;
  call->waits_for_journal = true;
  rv_server_stream_ref(&call->stream);
  if (rv_journal_wait(call->stream.server->journal, &call->journal_waiter)) return true;
  call->waits_for_journal = false;
  rv_server_stream_unref(&call->stream); /* the caller holds another */
  return false;
}

bool rv_insert_journal_open(rv_insert_call *call)
{
  rv_journal *journal = call->stream.server->journal;
  if (journal == NULL) return true;
  call->opening = true;
  if (wait_for(call, rv_journal_ticket(journal))) return false;
  call->opening = false;
  return true;
}

size_t rv_insert_journal_ready(rv_insert_call *call)
{
  if (call->opening) return 0;
  if (!takes_its_time(call) || call->num_keys == 0) return call->num_keys;
  const rv_journal *journal = call->stream.server->journal;
  if (rv_journal_is_written(journal, call->last_ticket)) return call->num_keys;
  if (call->waits_for_journal) return rv_journal_is_written(journal, call->journal_waiter.ticket) ? call->waiting_keys : 0;
  size_t ready = call->waiting_keys; /* of the last time */
  if (ready > 0 && rv_journal_is_written(journal, call->journal_waiter.ticket)) return ready;
  call->waiting_keys = call->num_keys;
  return wait_for(call, call->last_ticket) ? 0 : call->num_keys;
}

bool rv_insert_journal_is_busy(const rv_insert_call *call)
{
  if (call->opening) return true;
  return takes_its_time(call) && call->num_keys > 0 && !rv_journal_is_written(call->stream.server->journal, call->last_ticket);
}

void rv_insert_journal_cancel(rv_insert_call *call)
{
  if (!call->waits_for_journal || !rv_journal_cancel(call->stream.server->journal, &call->journal_waiter)) return;
  call->waits_for_journal = call->opening = false;
  rv_server_stream_unref(&call->stream); /* the caller holds another */
}
