#include "persist/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/lock.h"
#include "persist/checkpoint_dir.h"
#include "persist/checkpoint_files.h"
#include "persist/journal_encode.h"
#include "persist/journal_read.h"

enum { RETRY_MIN_MS = 10, RETRY_MAX_MS = 1000, LOOK_NS = 20000000 };

static const uint64_t segment_bytes = (uint64_t)64 << 20;

/* A writer's session that began or ended. */
typedef struct writer_note {
  uint64_t id[2];
  bool forgotten;
  bool taken;       /* the writers know of it */
  rv_done_set done; /* then: what was done of one that began, before the changes of the cycle */
  struct writer_note *next;
} writer_note;

struct rv_journal {
  rv_change_log log; /* the tables' */
  atomic_size_t refs;
  rv_env env;
  rv_store *store; /* one reference */
  char *dir;
  char *checkpoints; /* the directory that it goes on from */
  rv_journal_lock *dir_lock;
  rv_journal_mode mode;
  int64_t period_ns;
  uint64_t id[2];
  pthread_t thread;
  _Atomic(uint64_t) written; /* cycle */

  rv_mutex lock; /* guards what follows */
  rv_cond work, done;
  bool pending, urgent, stopping, stopped;
  bool wants_generation, saving; /* for a checkpoint; one is being saved */
  uint64_t generations;          /* begun so far, and the segment of the last */
  uint64_t last_generation;
  int64_t generation_bytes, covered_bytes;  /* of stats.bytes: before the last generation; before that of the last checkpoint */
  int64_t pending_since_ns, batch_since_ns; /* 0: nothing waits there */
  rv_link waiters;
  writer_note *notes, *last_note;
  rv_journal_stats stats;

  /* the thread's own */
  rv_journal_file file;
  rv_journal_encoder encoder;
  rv_journal_writers writers;
  rv_change_list *lists; /* one a table */
  int64_t began_ns;      /* the last cycle */
  bool head;             /* the segment at hand has its tables */
  bool new_generation, forget_chunks;
  bool told; /* that it cannot write */
};

static rv_journal *of_log(rv_change_log *log)
{
  return RV_CONTAINER(log, rv_journal, log);
}

/* ---- being told ---- */

static void wake(rv_change_log *log, bool urgent)
{
  rv_journal *journal = of_log(log);
  rv_mutex_lock(&journal->lock);
  if (!journal->pending) journal->pending_since_ns = rv_monotonic_ns(&journal->env);
  journal->pending = true;
  journal->urgent |= urgent;
  rv_cond_signal(&journal->work);
  rv_mutex_unlock(&journal->lock);
}

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
  writer_note *notes;
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
static rv_code take_notes(rv_journal *journal, writer_note *notes, rv_error *err)
{
  rv_code code = RV_OK;
  for (writer_note *note = notes; note != NULL && code == RV_OK; note = note->next) {
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

static rv_code encode_notes(rv_journal *journal, const writer_note *notes, rv_error *err)
{
  rv_code code = RV_OK;
  for (const writer_note *note = notes; note != NULL && code == RV_OK; note = note->next)
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

/* What a segment begins with; in a new generation also what is known of the writers. */
static rv_code put_head(rv_journal *journal, int *number, rv_error *err)
{
  rv_journal_encoder head;
  *number = ENOMEM;
  rv_code code = rv_journal_encoder_init(&head, journal->store, err);
  if (code != RV_OK) return code;
  code = rv_journal_encode_tables(&head, err);
  if (code == RV_OK && journal->new_generation) code = rv_journal_encode_forget_chunks(&head, err);
  for (rv_journal_writer *writer = NULL;
       code == RV_OK && journal->new_generation && (writer = rv_journal_writers_next(&journal->writers, writer)) != NULL;)
    code = writer->lost ? rv_journal_encode_forget_writer(&head, writer->id, err)
                        : rv_journal_encode_writer(&head, writer->id, &writer->done, err);
  for (size_t i = 0; i < head.num_groups && code == RV_OK; i++)
    code = rv_journal_file_put(&journal->file, &head.groups[i].records, 0, number, err);
  rv_journal_encoder_fini(&head);
  return code;
}

static rv_code write_once(rv_journal *journal, int *number, rv_error *err)
{
  rv_journal_file *file = &journal->file;
  bool begins = file->file < 0 || journal->new_generation || file->offset >= segment_bytes;
  rv_code code = RV_OK;
  if (begins) {
    code = rv_journal_file_begin(file, journal->new_generation, rv_wall_ns(&journal->env), number, err);
    if (code == RV_OK) code = put_head(journal, number, err);
  }
  for (size_t i = 0; i < journal->encoder.num_groups && code == RV_OK; i++)
    code = rv_journal_file_put(file, &journal->encoder.groups[i].records, journal->encoder.groups[i].changes, number, err);
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
  snprintf(journal->stats.fault, sizeof journal->stats.fault, "%.127s", err->message);
  rv_mutex_unlock(&journal->lock);
  if (journal->told) return;
  journal->told = true;
  rv_log(&journal->env, RV_LOG_ERROR,
         "journal: %s. Nothing is lost, and it is tried again; inserts wait when %zu MiB have gathered, and in the mode "
         "\"always\" for "
         "their confirmation",
         err->message, journal->log.max_bytes >> 20);
}

static void note_success(rv_journal *journal, int64_t bytes)
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

/* Sleeps; false: the journal is to end, and has been tried once more. */
static bool may_retry(rv_journal *journal, int64_t ms, bool *last_try)
{
  rv_mutex_lock(&journal->lock);
  bool stopping = journal->stopping;
  if (!stopping) rv_cond_wait_for(&journal->work, &journal->lock, ms * 1000000);
  rv_mutex_unlock(&journal->lock);
  if (!stopping) return true;
  if (*last_try) return false;
  *last_try = true;
  return true;
}

/* Until what was encoded is on the disk; false: the journal ends before that. */
static bool write_all(rv_journal *journal)
{
  rv_error err;
  bool last_try = false;
  int number = 0;
  for (int64_t ms = RETRY_MIN_MS;; ms = 2 * ms < RETRY_MAX_MS ? 2 * ms : RETRY_MAX_MS) {
    uint64_t before = journal->file.file < 0 ? 0 : journal->file.offset, segment = journal->file.segment;
    if (write_once(journal, &number, &err) == RV_OK) {
      note_success(journal, (int64_t)(journal->file.offset - (segment == journal->file.segment ? before : 0)));
      return true;
    }
    rv_journal_file_give_up(&journal->file);
    note_fault(journal, number, &err);
    if (!may_retry(journal, ms, &last_try)) return false;
  }
}

/* Encoding needs memory alone. */
static bool encode_all(rv_journal *journal, const cycle *now)
{
  rv_error err;
  bool last_try = false;
  for (int64_t ms = RETRY_MIN_MS; encode(journal, now, &err) != RV_OK; ms = 2 * ms < RETRY_MAX_MS ? 2 * ms : RETRY_MAX_MS) {
    note_fault(journal, ENOMEM, &err);
    if (!may_retry(journal, ms, &last_try)) return false;
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
    writer_note *next = now->notes->next;
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
    size_t bytes = atomic_load(&journal->log.bytes);
    rv_log(&journal->env, RV_LOG_ERROR, "journal: it ends although %zu KiB of changes are not on the disk: %s", bytes >> 10,
           journal->stats.fault);
  }
  release(journal, now);
  if (fine) tell(journal, now, begun);
  return fine;
}

static void *run(void *argument)
{
  rv_journal *journal = argument;
  cycle now = {.lists = journal->lists};
  bool fine;
  do {
    begin_cycle(journal, &now);
    fine = run_cycle(journal, &now);
  } while (fine && !now.last);
  rv_mutex_lock(&journal->lock);
  journal->stopped = true;
  rv_cond_broadcast(&journal->done);
  rv_mutex_unlock(&journal->lock);
  return NULL;
}

/* ---- tickets ---- */

bool rv_journal_is_always(const rv_journal *journal)
{
  return journal->mode == RV_JOURNAL_ALWAYS;
}

const rv_store *rv_journal_store(const rv_journal *journal)
{
  return journal->store;
}

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

/* Waits for the ticket. `watch` and `deadline_ns` (monotonic; INT64_MAX: none) end it. */
static rv_code wait_for(rv_journal *journal, uint64_t ticket, const rv_checkpoint_watch *watch, int64_t deadline_ns,
                        rv_error *err)
{
  const rv_checkpoint_progress none = {.size = sizeof none};
  rv_code code = RV_OK;
  rv_mutex_lock(&journal->lock);
  hurry(journal);
  while (code == RV_OK && !rv_journal_is_written(journal, ticket)) {
    if (journal->stopped) {
      code = rv_fail(err, RV_CANCELLED, "the journal has ended");
    } else if (rv_monotonic_ns(&journal->env) >= deadline_ns) {
      code = rv_fail(err, RV_DEADLINE_EXCEEDED, "the journal is not on the disk yet: %s",
                     journal->stats.fault[0] != '\0' ? journal->stats.fault : "the disk is slow");
    } else if (!rv_cond_wait_for(&journal->done, &journal->lock, LOOK_NS)) {
      rv_mutex_unlock(&journal->lock);
      code = rv_checkpoint_ask(watch, &none, err);
      rv_mutex_lock(&journal->lock);
    }
  }
  rv_mutex_unlock(&journal->lock);
  return code;
}

rv_code rv_journal_sync(rv_journal *journal, int64_t timeout_ms, rv_error *err)
{
  int64_t now = rv_monotonic_ns(&journal->env), deadline_ns = INT64_MAX;
  if (timeout_ms >= 0 && timeout_ms < (INT64_MAX - now) / 1000000) deadline_ns = now + timeout_ms * 1000000;
  return wait_for(journal, rv_journal_ticket(journal), NULL, deadline_ns, err);
}

rv_code rv_journal_settle(rv_journal *journal, const rv_checkpoint_watch *watch, rv_error *err)
{
  return wait_for(journal, rv_journal_ticket(journal), watch, INT64_MAX, err);
}

/* ---- writers ---- */

void rv_journal_note_writer(rv_journal *journal, const uint64_t id[2], bool forgotten)
{
  writer_note *note = malloc(sizeof *note);
  if (note == NULL) return;
  *note = (writer_note){.id = {id[0], id[1]}, .forgotten = forgotten};
  rv_mutex_lock(&journal->lock);
  *(journal->last_note == NULL ? &journal->notes : &journal->last_note->next) = note;
  journal->last_note = note;
  if (!journal->pending) journal->pending_since_ns = rv_monotonic_ns(&journal->env);
  journal->pending = true;
  rv_cond_signal(&journal->work);
  rv_mutex_unlock(&journal->lock);
}

const rv_journal_writer *rv_journal_recovered_writer(const rv_journal *journal, const rv_journal_writer *after)
{
  return rv_journal_writers_next(&journal->writers, after);
}

/* ---- checkpoints ---- */

rv_journal *rv_journal_of(rv_store *store)
{
  rv_change_log *log = rv_store_change_log(store);
  return log == NULL ? NULL : rv_journal_ref(of_log(log));
}

static rv_code take_turn(rv_journal *journal, rv_error *err)
{
  rv_mutex_lock(&journal->lock);
  bool busy = journal->saving;
  journal->saving = true;
  rv_mutex_unlock(&journal->lock);
  return busy ? rv_fail(err, RV_FAILED_PRECONDITION, "another checkpoint of this store is being saved; wait for that one")
              : RV_OK;
}

void rv_journal_end_checkpoint(rv_journal *journal)
{
  rv_mutex_lock(&journal->lock);
  journal->saving = false;
  rv_mutex_unlock(&journal->lock);
}

rv_code rv_journal_begin_checkpoint(rv_journal *journal, const rv_checkpoint_watch *watch, uint64_t *segment, rv_error *err)
{
  const rv_checkpoint_progress none = {.size = sizeof none};
  rv_code code = take_turn(journal, err);
  if (code != RV_OK) return code;
  rv_mutex_lock(&journal->lock);
  uint64_t before = journal->generations;
  journal->wants_generation = true;
  rv_cond_signal(&journal->work);
  while (code == RV_OK && journal->generations == before) {
    if (journal->stopped) {
      code = rv_fail(err, RV_CANCELLED, "the journal has ended");
    } else if (!rv_cond_wait_for(&journal->done, &journal->lock, LOOK_NS)) {
      rv_mutex_unlock(&journal->lock);
      code = rv_checkpoint_ask(watch, &none, err);
      rv_mutex_lock(&journal->lock);
    }
  }
  *segment = journal->last_generation;
  rv_mutex_unlock(&journal->lock);
  if (code == RV_OK)
    atomic_store(&journal->log.snapshot, *segment);
  else
    rv_journal_end_checkpoint(journal);
  return code;
}

void rv_journal_get_link(const rv_journal *journal, uint64_t segment, rv_journal_link *out)
{
  *out = (rv_journal_link){.id = {journal->id[0], journal->id[1]}, .segment = segment};
}

bool rv_journal_goes_on_from(const rv_journal *journal, const char *checkpoints)
{
  struct stat own, other;
  if (strcmp(checkpoints, journal->checkpoints) == 0) return true;
  return stat(checkpoints, &other) == 0 && stat(journal->checkpoints, &own) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

/* False: none is. What cannot be looked at may need all: *least is 0. */
static bool least_needed(const rv_journal *journal, const char *root, uint64_t *least)
{
  rv_checkpoint_list list;
  *least = UINT64_MAX;
  if (rv_checkpoint_list_read(root, &list, NULL) != RV_OK) return false;
  for (size_t i = 0; i < list.count; i++) {
    rv_journal_link link;
    rv_error err;
    bool found = false;
    char *path = rv_path_join(root, list.entries[i].name);
    rv_code code = path == NULL ? rv_fail_memory(&err, strlen(root)) : rv_journal_link_read(path, &found, &link, &err);
    if (code != RV_OK) {
      *least = 0;
      rv_log(&journal->env, RV_LOG_WARNING, "journal: all its segments stay: %s", err.message);
    } else if (found && link.id[0] == journal->id[0] && link.id[1] == journal->id[1] && link.segment < *least) {
      *least = link.segment;
    }
    free(path);
  }
  rv_checkpoint_list_fini(&list);
  return *least != UINT64_MAX;
}

void rv_journal_prune(rv_journal *journal, const char *checkpoints)
{
  const rv_files *files = journal->file.files;
  rv_segment_list list;
  uint64_t least;
  int64_t left = 0;
  if (!rv_journal_goes_on_from(journal, checkpoints)) return;
  rv_mutex_lock(&journal->lock);
  journal->covered_bytes = journal->generation_bytes;
  rv_mutex_unlock(&journal->lock);
  if (!least_needed(journal, checkpoints, &least) || rv_segment_list_read(journal->dir, &list, NULL) != RV_OK) return;
  for (size_t i = 0; i < list.count; i++) {
    char name[RV_JOURNAL_NAME_MAX];
    rv_segment_name(list.entries[i].number, name);
    char *path = rv_path_join(journal->dir, name);
    bool goes = list.entries[i].number < least && path != NULL;
    if (goes && files->remove(files->context, path) != 0)
      rv_log(&journal->env, RV_LOG_WARNING, "journal: %s is no longer needed, and cannot be removed: %s", path,
             strerrordesc_np(errno));
    if (!goes) left += (int64_t)list.entries[i].bytes;
    free(path);
  }
  rv_segment_list_fini(&list);
  rv_mutex_lock(&journal->lock);
  journal->stats.disk_bytes = left;
  rv_mutex_unlock(&journal->lock);
}

/* ---- looking ---- */

int64_t rv_journal_fresh_bytes(rv_journal *journal)
{
  rv_mutex_lock(&journal->lock);
  int64_t bytes = journal->stats.bytes - journal->covered_bytes;
  rv_mutex_unlock(&journal->lock);
  return bytes;
}

void rv_journal_get_stats(rv_journal *journal, rv_journal_stats *out)
{
  rv_mutex_lock(&journal->lock);
  rv_journal_stats stats = journal->stats;
  int64_t since = journal->batch_since_ns != 0 ? journal->batch_since_ns : journal->pending_since_ns;
  rv_mutex_unlock(&journal->lock);
  stats.queued_bytes = (int64_t)atomic_load(&journal->log.bytes);
  stats.lag_ns = since == 0 ? 0 : rv_monotonic_ns(&journal->env) - since;
  size_t size = out->size < sizeof stats ? out->size : sizeof stats;
  stats.size = size;
  memcpy(out, &stats, size);
}

/* ---- life ---- */

static void destroy(rv_journal *journal)
{
  rv_journal_encoder_fini(&journal->encoder);
  rv_journal_writers_fini(&journal->writers);
  rv_journal_file_fini(&journal->file);
  rv_cond_fini(&journal->work);
  rv_cond_fini(&journal->done);
  rv_mutex_fini(&journal->lock);
  rv_journal_lock_free(journal->dir_lock);
  rv_store_unref(journal->store);
  free(journal->lists);
  free(journal->checkpoints);
  free(journal->dir);
  free(journal);
}

static rv_code start_thread(rv_journal *journal, rv_error *err)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&journal->thread, NULL, run, journal);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed == 0 ? RV_OK : rv_fail(err, RV_RESOURCE_EXHAUSTED, "no thread could be started for the journal");
}

/* The first segment is begun at once, so that a disk that takes nothing is known before anything depends on it. */
static rv_code begin(rv_journal *journal, rv_error *err)
{
  int number;
  rv_code code = write_once(journal, &number, err);
  if (code != RV_OK) {
    rv_journal_file_give_up(&journal->file);
    return code;
  }
  note_success(journal, (int64_t)journal->file.offset);
  code = rv_store_keep_changes(journal->store, &journal->log, err);
  if (code != RV_OK) return code;
  code = start_thread(journal, err);
  if (code != RV_OK) rv_store_drop_changes(journal->store);
  return code;
}

rv_code rv_journal_open(const rv_journal_start *start, const rv_files *files, rv_journal **out, rv_error *err)
{
  rv_journal *journal = calloc(1, sizeof *journal);
  if (journal == NULL) {
    rv_journal_lock_free(start->lock);
    return rv_fail_memory(err, sizeof *journal);
  }
  const rv_journal_config *config = start->config;
  rv_change_log_init(&journal->log, config->max_queued_bytes, wake);
  atomic_init(&journal->refs, 1);
  rv_env_fill(&journal->env, config->env != NULL ? config->env : rv_store_env(start->store));
  journal->store = rv_store_ref(start->store);
  journal->dir = strdup(start->dir);
  journal->checkpoints = strdup(start->checkpoints);
  journal->lists = calloc(rv_store_num_tables(start->store), sizeof *journal->lists);
  journal->dir_lock = start->lock;
  journal->mode = config->mode;
  journal->period_ns = config->period_ms * 1000000;
  journal->id[0] = start->id[0];
  journal->id[1] = start->id[1];
  atomic_init(&journal->written, 0);
  rv_mutex_init(&journal->lock, RV_RANK_WAIT, "journal");
  rv_cond_init(&journal->work);
  rv_cond_init(&journal->done);
  rv_list_init(&journal->waiters);
  journal->stats.disk_bytes = start->disk_bytes;
  journal->covered_bytes = -start->fresh_bytes;
  journal->writers = *start->writers;
  rv_journal_writers_init(start->writers, 0);
  rv_journal_file_init(&journal->file, files, journal->dir, start->id, start->segment, start->generation, start->next_group);
  rv_code code = rv_journal_encoder_init(&journal->encoder, start->store, err);
  if (code == RV_OK && (journal->dir == NULL || journal->checkpoints == NULL || journal->lists == NULL))
    code = rv_fail_memory(err, strlen(start->dir));
  if (code == RV_OK) code = rv_journal_encode_forget_chunks(&journal->encoder, err);
  if (code == RV_OK) code = begin(journal, err);
  if (code == RV_OK) {
    rv_journal_encoder_clear(&journal->encoder);
    *out = journal;
    return RV_OK;
  }
  destroy(journal);
  return code;
}

rv_journal *rv_journal_ref(rv_journal *journal)
{
  atomic_fetch_add_explicit(&journal->refs, 1, memory_order_relaxed);
  return journal;
}

void rv_journal_unref(rv_journal *journal)
{
  if (journal == NULL || atomic_fetch_sub_explicit(&journal->refs, 1, memory_order_acq_rel) != 1) return;
  rv_mutex_lock(&journal->lock);
  journal->stopping = true;
  rv_cond_signal(&journal->work);
  rv_mutex_unlock(&journal->lock);
  pthread_join(journal->thread, NULL);
  rv_store_drop_changes(journal->store);
  destroy(journal);
}
