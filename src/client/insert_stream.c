/* An insert stream's life, and how items get from a writer's thread to the loop's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/insert_stream_parts.h"

/* A writer wakes the loop's thread when so much waits, even if that is about to look. */
enum { MANY_ITEMS = 64, GATHERED_ITEMS = 8, MOST_LEFT = 64 };
#define MANY_BYTES RV_STREAM_REQUEST_BYTES
#define GUEST_BYTES ((size_t)64 << 10) /* and who asks for each sends no more */
#define LOOK_AGAIN_NS INT64_C(1000000)

/* Of those that gather the rows' places are sent. */
static void count_bytes(const rv_stream_item *item, size_t *bytes, size_t *rows)
{
  *bytes += item->body_size;
  for (uint32_t i = 0; i < item->num_chunks; i++) {
    size_t named = item->gathers ? item->chunks[i]->rows.size : 0;
    *bytes += rv_stream_chunk_bytes(item->chunks[i]) - named;
    *rows += named;
  }
}

/* ---- hand-over ----
 *
 * Waking the loop's thread costs more than an item does. While it is known to look soon, because an answer is due, a writer leaves
 * its items in the inbox until many wait there, or until it waits for one of them itself (hurry). The promise to look is kept by a
 * timer, whatever becomes of the answer; when it finds nothing the promise is over.
 *
 * A large row is not left there where it is lent to the server: its writer sends it himself, as the loop's guest, so that the server
 * copies it while the writer makes the next one. Else the loop's thread would stand between them, to be woken, and a third one for two
 * cores. Where a row is copied to a socket, and perhaps encrypted, that thread does it beside the writer.
 *
 * Rows that lie in blocks of the server's nobody copies: where the loop's thread is to look soon, their writer gathers some before he sends them, in
 * a pack. The newest may not go in one as long as its writer may still refer to its rows, which mostly ends when he appends the next. */

static void on_retry(rv_timer *timer)
{
  rv_insert_stream_pump(RV_CONTAINER(timer, rv_insert_stream, retry));
}

static void on_look(rv_timer *timer);

static void begin(rv_insert_stream *stream)
{
  if (stream->begun) return;
  stream->begun = true;
  rv_timer_init(&stream->retry, stream->loop, on_retry);
  rv_timer_init(&stream->look, stream->loop, on_look);
}

/* Others may still refer to its chunks, and then it cannot go in a pack. */
static bool is_pinned(const rv_stream_item *item)
{
  for (uint32_t i = 0; i < item->num_chunks; i++)
    if (atomic_load_explicit(&item->chunks[i]->pins, memory_order_acquire) > 1) return true;
  return false;
}

/* Takes the newest of the inbox out to `left`, as far as they gather and are pinned. Under the mutex. */
static rv_inbox_load leave_newest(rv_insert_stream *stream, rv_link *left)
{
  rv_inbox_load load = {0};
  for (rv_link *last; (last = stream->inbox.prev) != &stream->inbox && load.items < MOST_LEFT;) {
    const rv_stream_item *item = RV_CONTAINER(last, rv_stream_item, link);
    if (!item->gathers || !is_pinned(item)) break;
    load.items++;
    count_bytes(item, &load.bytes, &load.rows);
    rv_list_remove(last);
    rv_list_push_front(left, last);
  }
  return load;
}

/* Takes what is in the inbox into the queue; true: there was something. A promise to look is over. All, or all but the newest, if the timer is to look
 * and those may go in a pack by then. */
static bool drain(rv_insert_stream *stream, bool all)
{
  rv_link left;
  rv_list_init(&left);
  begin(stream);
  rv_mutex_lock(&stream->mutex);
  bool leaves = !all && stream->packs && stream->look.runs;
  stream->left = leaves ? leave_newest(stream, &left) : (rv_inbox_load){0};
  size_t taken = stream->waiting.items - stream->left.items;
  rv_list_splice(&stream->queue, &stream->inbox);
  rv_list_splice(&stream->inbox, &left);
  stream->queue_count += taken;
  stream->waiting = stream->left;
  stream->looks_soon = false; /* under the same lock: from here on whoever adds wakes the loop */
  rv_mutex_unlock(&stream->mutex);
  return taken > 0;
}

static void promise_to_look(rv_insert_stream *stream)
{
  if (stream->sent_count == 0 || stream->call == NULL) return;
  if (!stream->look.runs) rv_timer_start(&stream->look, rv_monotonic_ns(stream->env) + LOOK_AGAIN_NS);
  rv_mutex_lock(&stream->mutex);
  stream->looks_soon = true;
  rv_mutex_unlock(&stream->mutex);
}

static void look(rv_insert_stream *stream, bool all)
{
  drain(stream, all);
  rv_insert_stream_pump(stream);
  promise_to_look(stream);
}

void rv_insert_stream_look(rv_insert_stream *stream)
{
  look(stream, false);
}

/* When there was nothing to do, the next item is to wake the loop: nobody looks a thousand times a second at a table that lets
 * nothing in. */
static void on_look(rv_timer *timer)
{
  rv_insert_stream *stream = RV_CONTAINER(timer, rv_insert_stream, look);
  uint64_t bytes_sent = stream->bytes_sent;
  bool any = drain(stream, true);
  rv_insert_stream_pump(stream);
  if (any || stream->bytes_sent != bytes_sent) promise_to_look(stream);
}

static void run(rv_task *task)
{
  rv_insert_stream *stream = RV_CONTAINER(task, rv_insert_stream, task);
  rv_mutex_lock(&stream->mutex);
  stream->posted = false;
  rv_mutex_unlock(&stream->mutex);
  if (stream->closing) {
    if (stream->call == NULL) rv_insert_stream_destroy(stream);
    return;
  }
  look(stream, true);
}

/* He promises nothing new: the loop's thread would have to be woken for the timer. */
static void look_as_guest(rv_insert_stream *stream, bool all)
{
  rv_mutex_lock(&stream->mutex);
  stream->posted = false;
  rv_mutex_unlock(&stream->mutex);
  drain(stream, all);
  rv_insert_stream_pump(stream);
  rv_mutex_lock(&stream->mutex);
  stream->looks_soon = stream->look.runs;
  rv_mutex_unlock(&stream->mutex);
}

static void run_by_guest(rv_task *task)
{
  look_as_guest(RV_CONTAINER(task, rv_insert_stream, visit), true);
}

static void run_but_newest_by_guest(rv_task *task)
{
  look_as_guest(RV_CONTAINER(task, rv_insert_stream, visit_but_newest), false);
}

static bool send_as_guest(rv_insert_stream *stream, rv_task *task)
{
  int fd;
  if (rv_loop_is_current(stream->loop) || !rv_loop_sit(stream->loop)) return false;
  bool visited = rv_channel_visit(stream->channel, task, &fd);
  rv_loop_stand(stream->loop);
  return visited;
}

/* All that is not confirmed, under the mutex. */
static size_t count_open(const rv_insert_stream *stream)
{
  return stream->waiting.items + stream->status.unsent + stream->status.unconfirmed;
}

static bool holds_less(const rv_insert_stream *stream, size_t bytes)
{
  return stream->waiting.items < MANY_ITEMS && stream->waiting.bytes < bytes;
}

/* Who wanted to send the items could not: they wait until the loop's thread looks. False: it does not, and is to be woken. */
static bool leave_to_loop(rv_insert_stream *stream)
{
  rv_mutex_lock(&stream->mutex);
  bool waits = stream->waiting.items == 0 || (stream->looks_soon && holds_less(stream, MANY_BYTES));
  stream->posted = !waits;
  rv_mutex_unlock(&stream->mutex);
  return waits;
}

typedef enum addition {
  TO_BE_FOUND,
  TO_BE_ASKED_FOR,
  AT_ONCE, /* where their adder may send them */
  GATHERED /* likewise, once there are some */
} addition;

/* Under the mutex: of those that gather there are not enough. */
static bool gathers_more(const rv_insert_stream *stream)
{
  return stream->waiting.items - stream->left.items < GATHERED_ITEMS && stream->waiting.rows - stream->left.rows < MANY_BYTES;
}

/* Under the mutex: what was added may be left to be found. */
static bool can_wait(const rv_insert_stream *stream, addition how)
{
  if (how == AT_ONCE || (how != TO_BE_ASKED_FOR && !stream->looks_soon)) return false;
  return how == GATHERED ? gathers_more(stream) : holds_less(stream, MANY_BYTES);
}

static void add(rv_insert_stream *stream, rv_link *items, addition how)
{
  size_t count = 0, bytes = 0, rows = 0;
  RV_LIST_EACH(link, items)
  {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    item->sequence = 0;
    item->sent = item->indexed = item->in_doubt = item->had_no_room = false;
    item->gathers = how == GATHERED;
    rv_stream_item_pin(item);
    count++;
    count_bytes(item, &bytes, &rows);
  }
  if (count == 0) return;
  rv_mutex_lock(&stream->mutex);
  rv_list_splice(&stream->inbox, items);
  stream->waiting.items += count;
  stream->waiting.bytes += bytes;
  stream->waiting.rows += rows;
  stream->asks_each = stream->asks_each && count_open(stream) == 1 && holds_less(stream, GUEST_BYTES);
  bool acts = !stream->posted && !can_wait(stream, how);
  bool visits = how >= AT_ONCE || stream->asks_each;
  stream->posted = stream->posted || acts;
  rv_mutex_unlock(&stream->mutex);
  rv_task *visit = how == GATHERED ? &stream->visit_but_newest : &stream->visit;
  if (!acts || (visits && send_as_guest(stream, visit)) || (how >= AT_ONCE && leave_to_loop(stream))) return;
  rv_loop_post(stream->loop, &stream->task);
}

void rv_insert_stream_add(rv_insert_stream *stream, rv_link *items)
{
  add(stream, items, TO_BE_FOUND);
}

void rv_insert_stream_add_at_once(rv_insert_stream *stream, rv_link *items)
{
  add(stream, items, rv_channel_lends(stream->channel) ? AT_ONCE : TO_BE_FOUND);
}

void rv_insert_stream_add_gathered(rv_insert_stream *stream, rv_link *items)
{
  add(stream, items, rv_channel_lends(stream->channel) ? GATHERED : TO_BE_FOUND);
}

void rv_insert_stream_add_asked(rv_insert_stream *stream, rv_link *items)
{
  add(stream, items, TO_BE_ASKED_FOR);
}

void rv_insert_stream_hurry(rv_insert_stream *stream, size_t others)
{
  rv_mutex_lock(&stream->mutex);
  bool post = !stream->posted && stream->waiting.items > others;
  stream->posted = stream->posted || post;
  rv_mutex_unlock(&stream->mutex);
  if (post) rv_loop_post(stream->loop, &stream->task);
}

void rv_insert_stream_ask(rv_insert_stream *stream, rv_gate *gate, rv_patience *patience)
{
  rv_mutex_lock(&stream->mutex);
  size_t open = count_open(stream);
  bool any = !stream->posted && stream->waiting.items > 0, few = holds_less(stream, GUEST_BYTES) && open < MANY_ITEMS;
  stream->posted = stream->posted || any;
  stream->asks_each = open == 1;
  rv_mutex_unlock(&stream->mutex);
  if (few && rv_gate_visit(gate, any ? &stream->visit : NULL, patience)) return;
  if (any) rv_loop_post(stream->loop, &stream->task);
}

void rv_insert_stream_add_one(rv_insert_stream *stream, rv_stream_item *item)
{
  rv_link items;
  rv_list_init(&items);
  rv_list_push_back(&items, &item->link);
  rv_insert_stream_add(stream, &items);
}

/* ---- life ---- */

void rv_insert_stream_destroy(rv_insert_stream *stream)
{
  rv_stream_slots_fini(&stream->slots);
  rv_writer_buf_fini(&stream->scratch);
  rv_writer_buf_fini(&stream->places);
  free(stream->keep);
  rv_mutex_fini(&stream->mutex);
  free(stream);
}

static void on_end(rv_task *task)
{
  rv_insert_stream_shut(RV_CONTAINER(task, rv_insert_stream, end));
}

rv_code rv_insert_stream_new(const rv_insert_stream_config *config, rv_insert_stream **out, rv_error *err)
{
  rv_insert_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return rv_fail_memory(err, sizeof *stream);
  stream->env = config->env;
  stream->loop = config->loop;
  stream->channel = config->channel;
  stream->answered = config->answered;
  stream->context = config->context;
  rv_mutex_init(&stream->mutex, RV_RANK_CLIENT, "insert stream");
  rv_list_init(&stream->inbox);
  rv_list_init(&stream->queue);
  rv_list_init(&stream->sent);
  rv_list_init(&stream->held);
  stream->task.run = run;
  stream->visit.run = run_by_guest;
  stream->visit_but_newest.run = run_but_newest_by_guest;
  stream->end.run = on_end;
  stream->backoff_ns = RV_STREAM_BACKOFF_NS;
  stream->exhausted_ns = INT64_MAX;
  stream->request_bytes = RV_STREAM_REQUEST_BYTES;
  rv_stream_slots_init(&stream->slots, rv_entropy64(stream->env));
  rv_writer_buf_init(&stream->scratch);
  rv_writer_buf_init(&stream->places);
  rv_insert_stream_take_writer_id(stream);
  *out = stream;
  return RV_OK;
}

void rv_insert_stream_shut(rv_insert_stream *stream)
{
  drain(stream, true);
  rv_timer_stop(&stream->retry);
  rv_timer_stop(&stream->look);
  stream->closing = true;
  rv_insert_stream_requeue(stream);
  rv_insert_stream_drop_held(stream);
  rv_link *link;
  while ((link = stream->queue.next) != &stream->queue) {
    rv_stream_item *item = RV_CONTAINER(link, rv_stream_item, link);
    rv_stream_item_unpin(item);
    rv_insert_stream_finish(item, RV_CANCELLED, "the writer was freed");
  }
  if (stream->call != NULL) {
    rv_call_cancel(stream->call); /* on_close destroys */
  } else {
    rv_mutex_lock(&stream->mutex);
    bool posted = stream->posted;
    rv_mutex_unlock(&stream->mutex);
    if (!posted) rv_insert_stream_destroy(stream); /* else the task does */
  }
}

void rv_insert_stream_free(rv_insert_stream *stream)
{
  if (stream != NULL) rv_loop_post(stream->loop, &stream->end);
}

void rv_insert_stream_get_status(rv_insert_stream *stream, rv_insert_stream_status *out)
{
  char channel[320], why[128];
  rv_channel_state(stream->channel, channel, sizeof channel);
  rv_mutex_lock(&stream->mutex);
  *out = stream->status;
  out->unsent += stream->waiting.items;
  memcpy(why, stream->last_error, sizeof why);
  rv_mutex_unlock(&stream->mutex);
  if (why[0] == '\0') {
    snprintf(out->state, sizeof out->state, "%s", channel);
  } else {
    snprintf(out->state, sizeof out->state, "%s; the last stream ended with %s", channel, why);
  }
}
