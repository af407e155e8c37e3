#include <stdlib.h>
#include <string.h>

#include "server/insert_stream.h"

enum {
  ANSWER_BYTES_MAX = 12 << 10, /* of a message, below RV_LEAST_MAX_MESSAGE */
  KEYS_AT_ONCE = 1024,
  KEY_BYTES_MAX = 10,
  FAILURE_BYTES_MAX = 48 /* beside its text */
};

#define OUT_OF_MEMORY "the server is out of memory for confirmations"

/* Runs after all messages of one read have been worked off, so that their answers go out together. */
static void on_answers_task(rv_task *task)
{
  rv_insert_call *call = RV_CONTAINER(task, rv_insert_call, answers_task);
  call->answers_posted = false;
  rv_insert_answers_send(call, false);
  rv_insert_items_advance(call);
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

void rv_insert_answers_init(rv_insert_call *call)
{
  rv_task_init(&call->answers_task, on_answers_task);
}

static void drop_failures(rv_insert_call *call, size_t n)
{
  size_t end = call->failures_sent + n;
  while (call->failures_sent < end) free((void *)(uintptr_t)call->failures[call->failures_sent++].message.data);
  if (end == call->num_failures) call->num_failures = call->failures_sent = 0;
}

void rv_insert_answers_fini(rv_insert_call *call)
{
  drop_failures(call, call->num_failures - call->failures_sent);
  free(call->failures);
  free(call->keys);
}

static void *grow(void *array, size_t count, size_t *capacity, size_t size)
{
  if (count < *capacity) return array;
  size_t wanted = *capacity == 0 ? 64 : *capacity * 2;
  void *grown = realloc(array, wanted * size);
  if (grown != NULL) *capacity = wanted;
  return grown;
}

static bool push_key(rv_insert_call *call, uint64_t key)
{
  uint64_t *keys = grow(call->keys, call->num_keys, &call->keys_capacity, sizeof *keys);
  if (keys == NULL) return false;
  call->keys = keys;
  keys[call->num_keys++] = key;
  rv_insert_journal_note(call);
  return true;
}

/* Room of those that were sent is used again when it is half of all. */
static void close_up(rv_insert_call *call)
{
  if (call->num_failures < call->failures_capacity || call->failures_sent <= call->failures_capacity / 2) return;
  call->num_failures -= call->failures_sent;
  memmove(call->failures, call->failures + call->failures_sent, call->num_failures * sizeof *call->failures);
  call->failures_sent = 0;
}

static bool push_failure(rv_insert_call *call, uint64_t key, rv_code code, const char *message)
{
  close_up(call);
  rv_insert_failure *failures = grow(call->failures, call->num_failures, &call->failures_capacity, sizeof *failures);
  if (failures == NULL) return false;
  call->failures = failures;
  char *copy = strdup(message);
  if (copy == NULL) return false;
  rv_span text = {.data = (const uint8_t *)copy, .size = strlen(copy)};
  failures[call->num_failures++] = (rv_insert_failure){.key = key, .code = code, .message = text};
  return true;
}

void rv_insert_answer_again(rv_insert_call *call, uint64_t key, rv_code code, const char *message)
{
  if (!rv_server_stream_is_open(&call->stream)) return;
  bool pushed = code == RV_OK ? push_key(call, key) : push_failure(call, key, code, message);
  if (!pushed) { /* UNAVAILABLE: what became of the item is asked for again */
    rv_insert_call_end(call, RV_UNAVAILABLE, OUT_OF_MEMORY);
    return;
  }
  if (call->answers_posted) return;
  call->answers_posted = true;
  rv_server_stream_ref(&call->stream);
  rv_loop_defer(call->stream.loop, &call->answers_task);
}

void rv_insert_answer(rv_insert_call *call, uint64_t key, uint64_t sequence, rv_code code, const char *message)
{
  if (code == RV_CANCELLED || code == RV_RESOURCE_EXHAUSTED) {
    rv_insert_call_end(call, code, message);
    return;
  }
  /* What cannot be remembered is answered all the same; the writer is told if it ever comes back. */
  if (call->session != NULL && sequence != 0) rv_writer_session_record(call->session, sequence, code, message);
  if (code == RV_OK || call->by_reverie)
    rv_insert_answer_again(call, key, code, message);
  else
    rv_insert_call_end(call, code, message);
}

static void take_keys(rv_insert_call *call, size_t n)
{
  call->num_keys -= n;
  call->waiting_keys = call->waiting_keys > n ? call->waiting_keys - n : 0;
  if (call->num_keys > 0) memmove(call->keys, call->keys + n, call->num_keys * sizeof *call->keys);
}

/* What goes into one message: a client that takes little must be able to read it, or it would be sent the same again for ever. */
static size_t count_keys(size_t ready)
{
  return ready < KEYS_AT_ONCE ? ready : KEYS_AT_ONCE;
}

static size_t count_failures(const rv_insert_call *call, size_t num_keys)
{
  size_t bytes = num_keys * KEY_BYTES_MAX, n = 0;
  for (size_t left = call->num_failures - call->failures_sent; n < left; n++) {
    bytes += call->failures[call->failures_sent + n].message.size + FAILURE_BYTES_MAX;
    if (bytes > ANSWER_BYTES_MAX && num_keys + n > 0) break;
  }
  return n;
}

static void send_message(rv_insert_call *call, size_t ready)
{
  size_t num_keys = count_keys(ready), num_failures = count_failures(call, num_keys);
  rv_insert_response response = {.keys = call->keys,
                                 .num_keys = num_keys,
                                 .failures = num_failures > 0 ? call->failures + call->failures_sent : NULL,
                                 .num_failures = num_failures};
  rv_writer_buf body;
  rv_pieces pieces;
  rv_error err;
  rv_writer_buf_init(&body);
  rv_pieces_init(&pieces);
  rv_insert_response_serialize(&body, &response);
  take_keys(call, num_keys);
  drop_failures(call, num_failures);
  if (rv_server_put(&pieces, &body, &err) == RV_OK)
    rv_call_send(call->stream.call, &pieces);
  else
    rv_insert_call_end(call, RV_UNAVAILABLE, OUT_OF_MEMORY);
  rv_pieces_fini(&pieces);
}

void rv_insert_answers_send(rv_insert_call *call, bool always)
{
  while (rv_insert_answers_unsent(call) > 0 && rv_server_stream_is_open(&call->stream)) {
    if (!always && rv_call_queued(call->stream.call) > RV_ANSWER_BYTES_QUEUED_MAX) return; /* on_writable comes */
    size_t ready = rv_insert_journal_ready(call);
    if (call->opening || ready + call->num_failures == 0) return;
    send_message(call, ready);
  }
}
