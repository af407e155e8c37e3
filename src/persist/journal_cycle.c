/* The thread's round: takes what has changed, encodes it, writes it, waits for the disk, tells those who wait. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/utf8.h"
#include "persist/journal_parts.h"

enum {
  RETRY_MIN_MS = 10,
  RETRY_MAX_MS = 1000,
  RETRY_ENDING_MS = 50,
  END_PATIENCE_MS = 2000, /* with a disk that takes nothing when it is to end */
  NAMES_APART = 4096      /* what a disk loses at once */
};

static const uint64_t segment_bytes = (uint64_t)64 << 20;

/* Holding the lock. */
static int64_t time_to_wait(const rv_journal *journal)
{
  if (journal->urgent || journal->stopping || journal->wants_generation) return 0;
  if (!journal->pending) return INT64_MAX;
  if (journal->mode == RV_JOURNAL_ALWAYS) return 0;
  int64_t left = journal->began_ns + journal->period_ns - rv_monotonic_ns(&journal->env);
  return left > 0 ? left : 0;
}

/* What is to be done in a cycle. */
typedef struct cycle {
  uint64_t number;
  rv_change_list *lists; /* one a table */
  rv_writer_note *notes;
  bool generation, last;
} cycle;

static void begin_cycle(rv_journal *journal, cycle *now)
{
  rv_mutex_lock(&journal->lock);
  for (int64_t wait; (wait = time_to_wait(journal)) > 0;) {
    if (wait == INT64_MAX)
      rv_cond_wait(&journal->work, &journal->lock);
    else
      rv_cond_wait_for(&journal->work, &journal->lock, wait);
  }
  now->last = journal->stopping;
  now->generation = journal->wants_generation;
  journal->batch_since_ns = journal->pending_since_ns;
  journal->pending_since_ns = 0;
  journal->pending = journal->urgent = journal->wants_generation = false;
  rv_mutex_unlock(&journal->lock);
  journal->began_ns = rv_monotonic_ns(&journal->env);
  now->number = atomic_fetch_add(&journal->log.cycle, 1) + 1;
  for (size_t i = 0; i < rv_store_num_tables(journal->store); i++)
    rv_table_take_changes(rv_store_table(journal->store, i), &now->lists[i]);
  /* after the tables: of whoever has changed something it is known here that it came */
  rv_mutex_lock(&journal->lock);
  now->notes = journal->notes;
  journal->notes = journal->last_note = NULL;
  rv_mutex_unlock(&journal->lock);
}

/* ---- encoding ---- */

/* Once, before anything of the cycle is noted as done: a record that named a number whose item comes behind it would make of an item that
 * a crash cuts off one that is in. */
static rv_code take_notes(rv_journal *journal, rv_writer_note *notes, rv_error *err)
{
  rv_code code = RV_OK;
  for (rv_writer_note *note = notes; note != NULL && code == RV_OK; note = note->next) {
    if (note->taken) continue;
    rv_journal_writer *writer = rv_journal_writers_get(&journal->writers, note->id);
    if (writer == NULL) return rv_fail_memory(err, sizeof *writer);
    if (note->forgotten) {
      rv_journal_writer_lose(writer, true); /* not gone yet: the cycle may still have items of it */
    } else {
      code = rv_done_set_copy(&note->done, &writer->done, err);
      if (code == RV_OK) writer->lost = writer->over = false;
    }
    note->taken = code == RV_OK;
  }
  return code;
}

static rv_code encode_notes(rv_journal *journal, const rv_writer_note *notes, rv_error *err)
{
  rv_code code = RV_OK;
  for (const rv_writer_note *note = notes; note != NULL && code == RV_OK; note = note->next)
    code = note->forgotten ? rv_journal_encode_forget_writer(&journal->encoder, note->id, err)
                           : rv_journal_encode_writer(&journal->encoder, note->id, &note->done, err);
  return code;
}

/* That a writer is lost is encoded where it happens, which is once. */
static rv_code encode_lost(rv_journal *journal, rv_error *err)
{
  rv_code code = RV_OK;
  for (rv_journal_writer *writer = NULL; code == RV_OK && (writer = rv_journal_writers_next(&journal->writers, writer)) != NULL;)
    if (writer->lost) code = rv_journal_encode_forget_writer(&journal->encoder, writer->id, err);
  return code;
}

static rv_code encode(rv_journal *journal, const cycle *now, rv_error *err)
{
  rv_journal_encoder *encoder = &journal->encoder;
  rv_code code = RV_OK;
  bool again = journal->forget_chunks;
  if (again) code = rv_journal_encode_forget_chunks(encoder, err);
  if (code == RV_OK) code = take_notes(journal, now->notes, err);
  if (code == RV_OK) code = encode_notes(journal, now->notes, err);
  if (code == RV_OK && again) code = encode_lost(journal, err);
  for (uint32_t i = 0; i < rv_store_num_tables(journal->store) && code == RV_OK; i++)
    code = rv_journal_encode_changes(encoder, i, &now->lists[i], &journal->writers, err);
  if (code == RV_OK) {
    journal->forget_chunks = false;
    return RV_OK;
  }
  rv_journal_encoder_clear(encoder);
  rv_journal_encoder_forget_chunks(encoder);
  journal->forget_chunks = true;
  return code;
}

/* ---- writing ---- */

/* The tables' names; in a new generation, at its beginning, also what is known of the writers. */
static rv_code put_head(rv_journal *journal, bool begins, int *number, rv_error *err)
{
  rv_journal_encoder head;
  bool whole = begins && journal->new_generation;
  *number = ENOMEM;
  rv_code code = rv_journal_encoder_init(&head, journal->store, err);
  if (code != RV_OK) return code;
  code = rv_journal_encode_tables(&head, err);
  if (code == RV_OK && whole) code = rv_journal_encode_forget_chunks(&head, err);
  for (rv_journal_writer *writer = NULL;
       code == RV_OK && whole && (writer = rv_journal_writers_next(&journal->writers, writer)) != NULL;)
    code = writer->lost ? rv_journal_encode_forget_writer(&head, writer->id, err)
                        : rv_journal_encode_writer(&head, writer->id, &writer->done, err);
  for (size_t i = 0; i < head.num_groups && code == RV_OK; i++)
    code = rv_journal_file_put(&journal->file, &head.groups[i].records, 0, number, err);
  rv_journal_encoder_fini(&head);
  journal->named_offset = journal->file.offset;
  return code;
}

/* Without the names nobody knows which tables a segment's changes are of: where their first group is damaged, no more is lost for that than
 * stood before them the next time. */
static bool names_are_due(const rv_journal *journal)
{
  return journal->file.offset >= NAMES_APART && journal->file.offset / 2 > journal->named_offset;
}

rv_code rv_journal_write_once(rv_journal *journal, int *number, rv_error *err)
{
  rv_journal_file *file = &journal->file;
  bool begins = file->file < 0 || journal->new_generation || file->offset >= segment_bytes;
  rv_code code = RV_OK;
  if (begins) {
    code = rv_journal_file_begin(file, journal->new_generation, rv_wall_ns(&journal->env), number, err);
    if (code == RV_OK) code = put_head(journal, true, number, err);
  }
  for (size_t i = 0; i < journal->encoder.num_groups && code == RV_OK; i++) {
    if (names_are_due(journal)) code = put_head(journal, false, number, err);
    if (code != RV_OK) break;
    code = rv_journal_file_put(file, &journal->encoder.groups[i].records, journal->encoder.groups[i].changes, number, err);
  }
  if (code != RV_OK || file->synced_offset == file->offset) return code;
  int64_t begun_ns = rv_monotonic_ns(&journal->env);
  code = rv_journal_file_sync(file, number, err);
  int64_t took_ns = rv_monotonic_ns(&journal->env) - begun_ns;
  if (code != RV_OK) return code;
  rv_mutex_lock(&journal->lock);
  journal->stats.fsyncs++;
  if (took_ns > journal->stats.max_fsync_ns) journal->stats.max_fsync_ns = took_ns;
  rv_mutex_unlock(&journal->lock);
  return RV_OK;
}

static void note_fault(rv_journal *journal, int number, const rv_error *err)
{
  atomic_store(&journal->log.fault, number);
  rv_mutex_lock(&journal->lock);
  journal->stats.errors++;
  journal->fault_code = err->code;
  snprintf(journal->stats.fault, sizeof journal->stats.fault, "%.255s", err->message);
  rv_utf8_repair(journal->stats.fault); /* it may be cut within a character */
  rv_mutex_unlock(&journal->lock);
  if (journal->told) return;
  journal->told = true;
  if (journal->log.waits_on_fault)
    rv_log(&journal->env, RV_LOG_ERROR,
           "journal: %s. Nothing is lost while the server lives, and it is tried again; inserts wait until then", err->message);
  else
    rv_log(&journal->env, RV_LOG_ERROR,
           "journal: %s. Nothing is lost, and it is tried again; inserts are confirmed when it has been written, and wait when "
           "%zu MiB "
           "have gathered",
           err->message, journal->log.max_bytes >> 20);
}

void rv_journal_note_success(rv_journal *journal, int64_t bytes)
{
  int64_t changes = 0;
  for (size_t i = 0; i < journal->encoder.num_groups; i++) changes += journal->encoder.groups[i].changes;
  atomic_store(&journal->log.fault, 0);
  rv_mutex_lock(&journal->lock);
  journal->stats.changes += changes;
  journal->stats.groups += (int64_t)journal->encoder.num_groups;
  journal->stats.bytes += bytes;
  journal->stats.disk_bytes += bytes;
  journal->stats.segment = (int64_t)journal->file.segment;
  journal->stats.fault[0] = '\0';
  rv_mutex_unlock(&journal->lock);
  if (journal->told) rv_log(&journal->env, RV_LOG_INFO, "journal: it can be written again");
  journal->told = false;
}

/* Holding the lock: until that time, or until the journal is to end. */
static void sleep_until(rv_journal *journal, int64_t until_ns)
{
  for (int64_t left; !journal->stopping && (left = until_ns - rv_monotonic_ns(&journal->env)) > 0;)
    if (!rv_cond_wait_for(&journal->work, &journal->lock, left)) return;
}

/* Holding the lock: nobody calls for work any more. False: it is over. */
static bool sleep_at_the_end(rv_journal *journal, int64_t ms)
{
  int64_t now_ns = rv_monotonic_ns(&journal->env);
  if (journal->end_by_ns == 0) journal->end_by_ns = now_ns + (int64_t)END_PATIENCE_MS * 1000000;
  if (now_ns >= journal->end_by_ns || atomic_load(&journal->abandoned)) return false;
  int64_t pause_ns = (ms < RETRY_ENDING_MS ? ms : RETRY_ENDING_MS) * 1000000;
  rv_cond_wait_for(&journal->work, &journal->lock, pause_ns);
  return true;
}

/* Sleeps, whoever calls for work meanwhile; false: the journal is to end, and has been tried for as long as that may take. */
static bool may_retry(rv_journal *journal, int64_t ms)
{
  rv_mutex_lock(&journal->lock);
  bool stopping = journal->stopping;
  if (!stopping) sleep_until(journal, rv_monotonic_ns(&journal->env) + ms * 1000000);
  bool may = !stopping || sleep_at_the_end(journal, ms);
  rv_mutex_unlock(&journal->lock);
  return may;
}

/* Until what was encoded is on the disk; false: the journal ends before that. */
static bool write_all(rv_journal *journal)
{
  rv_error err;
  int number = 0;
  for (int64_t ms = RETRY_MIN_MS;; ms = 2 * ms < RETRY_MAX_MS ? 2 * ms : RETRY_MAX_MS) {
    uint64_t before = journal->file.file < 0 ? 0 : journal->file.offset, segment = journal->file.segment;
    if (rv_journal_write_once(journal, &number, &err) == RV_OK) {
      rv_journal_note_success(journal, (int64_t)(journal->file.offset - (segment == journal->file.segment ? before : 0)));
      return true;
    }
    rv_journal_file_give_up(&journal->file);
    note_fault(journal, number, &err);
    if (!may_retry(journal, ms)) return false;
  }
}

/* Encoding needs memory alone. */
static bool encode_all(rv_journal *journal, const cycle *now)
{
  rv_error err;
  for (int64_t ms = RETRY_MIN_MS; encode(journal, now, &err) != RV_OK; ms = 2 * ms < RETRY_MAX_MS ? 2 * ms : RETRY_MAX_MS) {
    note_fault(journal, ENOMEM, &err);
    if (!may_retry(journal, ms)) return false;
  }
  return true;
}

/* ---- the cycle's end ---- */

static void release(rv_journal *journal, cycle *now)
{
  size_t bytes = 0;
  for (size_t i = 0; i < rv_store_num_tables(journal->store); i++) {
    bytes += now->lists[i].bytes;
    rv_change_list_fini(&now->lists[i]);
  }
  bool over = false;
  while (now->notes != NULL) {
    over |= now->notes->forgotten;
    bytes += sizeof *now->notes;
    rv_writer_note *next = now->notes->next;
    rv_done_set_fini(&now->notes->done);
    free(now->notes);
    now->notes = next;
  }
  if (over) rv_journal_writers_drop_over(&journal->writers);
  rv_journal_encoder_clear(&journal->encoder);
  atomic_fetch_sub(&journal->log.bytes, bytes);
}

static void tell(rv_journal *journal, const cycle *now, bool begun)
{
  rv_link ready;
  rv_list_init(&ready);
  atomic_store(&journal->written, now->number);
  rv_mutex_lock(&journal->lock);
  journal->batch_since_ns = 0;
  if (begun) {
    journal->generations++;
    journal->last_generation = journal->file.segment;
  }
  for (rv_link *link = journal->waiters.next, *next; link != &journal->waiters; link = next) {
    next = link->next;
    if (RV_CONTAINER(link, rv_journal_waiter, link)->ticket > now->number) continue;
    rv_list_remove(link);
    rv_list_push_back(&ready, link);
  }
  rv_cond_broadcast(&journal->done);
  rv_mutex_unlock(&journal->lock);
  for (rv_link *link; (link = rv_list_pop_front(&ready)) != NULL;) {
    rv_journal_waiter *waiter = RV_CONTAINER(link, rv_journal_waiter, link);
    waiter->done(waiter);
  }
  for (size_t i = 0; i < rv_store_num_tables(journal->store); i++) rv_table_serve_changes(rv_store_table(journal->store, i));
}

/* What came before a new generation goes into the old one. */
static bool begin_generation(rv_journal *journal)
{
  rv_journal_encoder_clear(&journal->encoder);
  rv_journal_encoder_forget_chunks(&journal->encoder);
  rv_mutex_lock(&journal->lock);
  journal->generation_bytes = journal->stats.bytes;
  rv_mutex_unlock(&journal->lock);
  journal->new_generation = true;
  bool fine = write_all(journal);
  journal->new_generation = false;
  return fine;
}

static bool run_cycle(rv_journal *journal, cycle *now)
{
  bool fine = encode_all(journal, now) && write_all(journal);
  bool begun = fine && now->generation && begin_generation(journal);
  fine = fine && begun == now->generation;
  if (!fine) {
    journal->cut_short = true;
    size_t bytes = atomic_load(&journal->log.bytes);
    rv_log(&journal->env, RV_LOG_ERROR, "journal: it ends although %zu KiB of changes are not on the disk: %s", bytes >> 10,
           journal->stats.fault);
  }
  release(journal, now);
  if (fine) tell(journal, now, begun);
  return fine;
}

/* An empty group behind the last: its header says that everything was on the disk, so that what cannot be read later is damage and no torn
 * tail. Where it cannot be written, only that is not known: every change is there. */
static void mark_end(rv_journal *journal)
{
  const rv_pieces nothing = {.count = 0};
  rv_journal_file *file = &journal->file;
  rv_error err;
  int number;
  if (file->file < 0 || atomic_load(&journal->abandoned)) return;
  rv_code code = rv_journal_file_put(file, &nothing, 0, &number, &err);
  if (code == RV_OK) code = rv_journal_file_sync(file, &number, &err);
  if (code != RV_OK) rv_journal_file_give_up(file);
}

void *rv_journal_run(void *argument)
{
  rv_journal *journal = argument;
  cycle now = {.lists = journal->lists};
  bool fine;
  do {
    begin_cycle(journal, &now);
    fine = run_cycle(journal, &now);
  } while (fine && !now.last);
  if (fine) mark_end(journal);
  rv_mutex_lock(&journal->lock);
  journal->stopped = true;
  rv_cond_broadcast(&journal->done);
  rv_mutex_unlock(&journal->lock);
  return NULL;
}
