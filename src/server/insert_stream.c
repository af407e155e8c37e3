#include "server/insert_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/cold.h"
#include "store/memory.h"

enum {
  COPY_BELOW = 16 << 10, /* a chunk smaller than this, */
  COPY_SHARE = 8         /* or than this part of its message, gets memory of its own instead of pinning the message */
};

/* ---- state ---- */

static bool is_busy(const rv_insert_call *call)
{
  return call->in_request || call->num_pending > 0 || call->waits_for_session || rv_insert_journal_is_busy(call);
}

static void give_session_back(rv_insert_call *call)
{
  if (call->session == NULL || call->num_pending > 0) return;
  rv_writer_sessions_detach(call->stream.server->sessions, call->session, &call->session_user);
  call->session = NULL;
  call->waits_for_session = false;
}

static size_t most_orphans(const rv_server *server)
{
  size_t most = server->max_orphan_bytes, share = rv_memory_for_the_way(rv_store_memory(server->store)) / 2;
  return most < share ? most : share;
}

/* No item comes any more that could refer to the chunks that were kept for it. */
static void let_chunks_go(rv_insert_call *call)
{
  if (rv_server_stream_is_open(&call->stream) || call->in_request) return;
  rv_joined_fini(&call->joined);
  if (call->chunks.count == 0) return;
  rv_insert_items_count_chunks(call);
  rv_chunk_map_fini(&call->chunks);
  rv_chunk_forms_fini(&call->forms);
}

/* Keeps the account of inserts whose client has gone; over its bound they are cancelled, as if the client had come a little
 * later. */
static void count_orphans(rv_insert_call *call)
{
  rv_server *server = call->stream.server;
  if (rv_server_stream_is_open(&call->stream)) return;
  let_chunks_go(call);
  size_t bytes = call->pending_bytes + (call->in_request ? call->message->size : 0) + call->chunks.bytes;
  size_t more = bytes - call->orphan_bytes; /* modulo 2^N: it may be less */
  size_t total = atomic_fetch_add(&server->orphan_bytes, more) + more;
  bool grew = bytes > call->orphan_bytes;
  call->orphan_bytes = bytes;
  if (!grew || total <= most_orphans(server)) return;
  char omitted[RV_LOG_MORE];
  if (rv_server_may_log(server, &server->orphans, call->peer, omitted))
    rv_log(&server->env, RV_LOG_WARNING,
           "%zu inserts of %s, which has gone, are dropped: more than %zu bytes of such inserts already wait for their tables' "
           "limiters%s",
           call->num_pending, call->peer, most_orphans(server), omitted);
  rv_insert_items_drop_request(call);
  rv_insert_items_cancel(call);
  count_orphans(call);
}

/* ---- memory ---- */

static rv_memory *account_of(const rv_insert_call *call)
{
  return rv_store_memory(call->stream.server->store);
}

static void set_on_the_way(rv_insert_call *call, size_t bytes)
{
  if (bytes > call->on_the_way)
    rv_memory_begin_way(account_of(call), bytes - call->on_the_way);
  else if (bytes < call->on_the_way)
    rv_memory_end_way(account_of(call), call->on_the_way - bytes);
  call->on_the_way = bytes;
}

/* A Reverie writer, that items of it are in: when the disk has them. Were its call ended before that, he would send them all again. */
static bool is_told_later(const rv_insert_call *call)
{
  return call->by_reverie && rv_insert_journal_is_busy(call);
}

rv_code rv_insert_call_count(rv_insert_call *call, rv_error *err)
{
  rv_server *server = call->stream.server;
  rv_memory *memory = account_of(call);
  size_t kept = call->chunks.bytes;
  set_on_the_way(call, kept > call->pending_bytes ? kept : call->pending_bytes);
  size_t share = rv_memory_for_the_way(memory), inserters = atomic_load_explicit(&server->num_inserters, memory_order_relaxed);
  if (rv_memory_on_the_way(memory) <= share || call->num_pending > 0 || call->in_request || kept <= share / inserters)
    return RV_OK;
  if (err != NULL && is_told_later(call)) {
    call->keeps_too_much = true;
    return RV_OK;
  }
  char have[32], may[32];
  rv_memory_format(kept, have, sizeof have);
  rv_memory_format(share, may, sizeof may);
  return rv_fail(
      err, RV_RESOURCE_EXHAUSTED,
      "the stream keeps %s of chunks for items to come, and the %zu insert streams together may keep %s (a quarter of the "
      "store's memory_limit); create items from them, keep fewer chunks, or raise memory_limit",
      have, inserters, may);
}

bool rv_insert_call_brings_too_much(const rv_insert_call *call)
{
  const rv_memory *memory = account_of(call);
  size_t share = rv_memory_for_the_way(memory);
  size_t inserters = atomic_load_explicit(&call->stream.server->num_inserters, memory_order_relaxed);
  return rv_memory_on_the_way(memory) > share && call->on_the_way > share / inserters;
}

/* Something of it waits, and what else comes waits as well: some insert waits for memory, or there is too much of it, or of its caller's. */
static bool is_to_wait(const rv_insert_call *call)
{
  return call->num_pending > 0 &&
         (rv_memory_is_awaited(account_of(call)) || rv_insert_call_brings_too_much(call) || rv_insert_call_is_held(call));
}

static void set_reading(rv_insert_call *call)
{
  /* All of that ends elsewhere, and an item that waits for its limiter may next wait for memory; also when its client has gone. */
  bool limited = rv_memory_limit(account_of(call)) != SIZE_MAX || rv_insert_call_is_held(call);
  if (call->num_pending > 0 && limited) rv_server_stream_look_again(&call->stream);
  if (!rv_server_stream_is_open(&call->stream)) return;
  bool waits = is_to_wait(call);
  bool pause = call->waits_for_session || waits || call->in_request || call->keeps_too_much ||
               call->num_pending >= RV_INSERTS_PENDING_MAX || call->pending_bytes >= RV_INSERT_BYTES_PENDING_MAX ||
               rv_insert_answers_unsent(call) >= RV_ANSWERS_UNSENT_MAX;
  if (pause == call->paused) return;
  call->paused = pause;
  if (pause)
    rv_call_pause(call->stream.call);
  else
    rv_call_resume(call->stream.call); /* may call on_message: nothing comes after it */
}

/* RV_RESOURCE_EXHAUSTED: its caller has more than he may. What waits for tables waits longer then; chunks that are kept go only with their
 * streams. */
static rv_code check_caller(const rv_insert_call *call, rv_error *err)
{
  const rv_caller *caller = call->stream.caller;
  const size_t most = call->stream.server->caller_limits.max_bytes;
  if (caller == NULL || rv_caller_bytes(caller) <= most || call->chunks.bytes == 0 || call->num_pending > 0) return RV_OK;
  return rv_fail(
      err, RV_RESOURCE_EXHAUSTED,
      "the streams of \"%.80s\" keep more than the %zu bytes they may; create items from their chunks, or keep fewer, or raise "
      "the server's max_bytes_per_identity",
      rv_caller_name(caller), most);
}

/* Keeps its caller's account. */
static void count_bytes(rv_insert_call *call)
{
  const rv_caller *caller = call->stream.caller;
  rv_error err;
  if (caller == NULL) return;
  size_t bytes = call->chunks.bytes + call->pending_bytes + (call->in_request ? call->message->size : 0);
  bytes += rv_joined_bytes(&call->joined);
  size_t more = bytes - call->caller_bytes; /* modulo 2^N: it may be less */
  bool grew = bytes > call->caller_bytes;
  call->caller_bytes = bytes;
  rv_caller_count_bytes(caller, more);
  if (!grew || check_caller(call, &err) == RV_OK) return;
  if (is_told_later(call))
    call->keeps_too_much = true;
  else
    rv_insert_call_end(call, err.code, err.message);
}

/* The stream has no room for that chunk: its writer need not take other items than the one that brings it for what is too large. */
static rv_code name_chunk(rv_insert_call *call, uint64_t key, rv_code code)
{
  if (code != RV_RESOURCE_EXHAUSTED || !call->by_reverie || !rv_server_stream_is_open(&call->stream)) return code;
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, key);
  rv_call_set_header(call->stream.call, "reverie-refused-chunk", text);
  snprintf(text, sizeof text, "%" PRIu64, call->last_sequence); /* items before may have that chunk, too */
  rv_call_set_header(call->stream.call, "reverie-refused-after", text);
  return code;
}

static rv_code name_newest_chunk(rv_insert_call *call, rv_code code)
{
  return call->chunks.count > 0 ? name_chunk(call, call->chunks.entries[call->chunks.count - 1].place.key, code) : code;
}

/* It had more than its share when items of it waited for the disk, which are confirmed by now. */
static void end_if_it_still_keeps_too_much(rv_insert_call *call)
{
  if (!call->keeps_too_much || !rv_server_stream_is_open(&call->stream) || is_told_later(call)) return;
  rv_error err;
  call->keeps_too_much = false;
  rv_code code = rv_insert_call_count(call, &err);
  if (code != RV_OK && call->chunk_bytes > 0) name_newest_chunk(call, code); /* the last message brought chunks only */
  if (code == RV_OK) code = check_caller(call, &err);
  if (code == RV_OK) return;
  rv_insert_call_end(call, code, err.message);
}

void rv_insert_call_update(rv_insert_call *call)
{
  let_chunks_go(call);
  count_bytes(call);
  if (rv_server_stream_is_open(&call->stream) && !is_busy(call)) {
    if (call->half_closed)
      rv_insert_call_end(call, RV_OK, "");
    else if (call->draining)
      rv_insert_call_end(call, RV_UNAVAILABLE, "the server is shutting down");
  }
  end_if_it_still_keeps_too_much(call);
  if (!rv_server_stream_is_open(&call->stream)) give_session_back(call);
  count_orphans(call);
  rv_insert_call_count(call, NULL);
  set_reading(call);
}

void rv_insert_call_end(rv_insert_call *call, rv_code code, const char *message)
{
  if (code != RV_OK) rv_insert_items_drop_request(call);
  bool all_taken_back = !call->by_reverie || rv_insert_items_cancel(call);
  rv_insert_answers_send(call, true);
  if (rv_server_stream_is_open(&call->stream)) {
    /* What is in, and is not said yet or waits for the disk, is not to be taken for failed with the rest. */
    if (code == RV_RESOURCE_EXHAUSTED && call->by_reverie && (call->num_keys > 0 || !all_taken_back)) code = RV_UNAVAILABLE;
    rv_server_stream_finish(&call->stream, code, message);
  }
  rv_insert_journal_cancel(call);
  give_session_back(call);
}

/* ---- sessions ---- */

static void on_evict_task(rv_task *task)
{
  rv_insert_call *call = RV_CONTAINER(task, rv_insert_call, evict_task);
  rv_insert_call_end(call, RV_ABORTED, "a newer stream of the same writer has taken over");
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

static void on_granted_task(rv_task *task)
{
  rv_insert_call *call = RV_CONTAINER(task, rv_insert_call, granted_task);
  call->waits_for_session = false;
  rv_error err;
  if (call->session != NULL && rv_writer_session_check(call->session, &err) != RV_OK)
    rv_insert_call_end(call, err.code, err.message);
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

/* The two below run on any thread, under the registry's lock; the call is attached, so it lives. */
static void on_evict(rv_writer_session_user *user)
{
  rv_insert_call *call = RV_CONTAINER(user, rv_insert_call, session_user);
  rv_server_stream_ref(&call->stream);
  rv_loop_post(call->stream.loop, &call->evict_task);
}

static void on_granted(rv_writer_session_user *user)
{
  rv_insert_call *call = RV_CONTAINER(user, rv_insert_call, session_user);
  rv_server_stream_ref(&call->stream);
  rv_loop_post(call->stream.loop, &call->granted_task);
}

static rv_code attach_session(rv_insert_call *call, const char *writer, rv_error *err)
{
  rv_server *server = call->stream.server;
  const char *seen = rv_call_metadata(call->stream.call, "reverie-server-state");
  bool resumes = seen != NULL && strcmp(seen, server->state_id) == 0, granted;
  call->evict_task.run = on_evict_task;
  call->granted_task.run = on_granted_task;
  call->session_user =
      (rv_writer_session_user){.evict = on_evict, .granted = on_granted, .caller = rv_caller_id(call->stream.caller)};
  rv_code code = rv_writer_sessions_attach(server->sessions, &server->session_limits, writer, resumes, &call->session_user,
                                           &call->session, &granted, err);
  if (code == RV_OK) call->waits_for_session = !granted;
  return code;
}

/* ---- events ---- */

static rv_code take_chunk(rv_insert_call *call, rv_span bytes, size_t pinned, rv_chunk_place *out, rv_error *err)
{
  const bool copy = bytes.size < COPY_BELOW || bytes.size < pinned / COPY_SHARE;
  const bool apart = copy && bytes.size >= RV_COLD_LEAST && rv_memory_spills(account_of(call));
  rv_chunk *chunk = NULL;
  rv_code code = RV_OK;
  if (copy && (!apart || bytes.size < RV_JOINED_CHUNK_BYTES)) {
    code = rv_chunk_parse_alike(&call->forms, &call->joined, bytes, out, err);
    if (code != RV_OK || out->is_joined) return code;
    chunk = out->chunk;
  }
  if (apart) {
    rv_chunk_unref(chunk);
    code = rv_chunk_parse_apart(bytes, &chunk, err);
  } else if (!copy) {
    code = rv_chunk_parse(call->message, bytes, false, &chunk, err);
  }
  if (code != RV_OK) return code;
  rv_chunk_attach_cache(chunk, rv_store_decode_cache(call->stream.server->store));
  rv_chunk_count_new(chunk, account_of(call));
  *out = rv_chunk_place_whole(chunk);
  return RV_OK;
}

rv_code rv_insert_call_take_chunks(rv_insert_call *call, rv_error *err)
{
  const size_t pinned = call->message_size > call->message->capacity ? call->message_size : call->message->capacity;
  for (size_t i = 0; i < call->request.num_chunks; i++) {
    rv_span bytes = call->request.chunks[i];
    rv_chunk_place place;
    rv_code code = take_chunk(call, bytes, pinned, &place, err);
    if (code != RV_OK) return code;
    const uint64_t key = place.key;
    code = rv_chunk_map_put(&call->chunks, &place, err);
    if (code != RV_OK) return name_chunk(call, key, code);
  }
  return RV_OK;
}

_Static_assert((int)RV_ROWS_PLACE_BYTES == (int)RV_PLACE_BYTES, "a pack brings what a call names");

static rv_code take_row(void *context, const uint8_t *place, size_t before, size_t rows, size_t behind, rv_buf **out,
                        rv_error *err)
{
  rv_insert_call *call = context;
  if (call->stream.call == NULL) return rv_fail(err, RV_CANCELLED, "the connection has gone that has the rows of its items");
  return rv_call_take_place(call->stream.call, place, before, rows, behind, out, err);
}

static void fetch_row(void *context, const uint8_t *place, size_t rows)
{
  const rv_insert_call *call = context;
  if (call->stream.call != NULL) rv_call_fetch_place(call->stream.call, place, rows);
}

static rv_code take_request(rv_insert_call *call, rv_buf *buf, const uint8_t *data, size_t size, rv_error *err)
{
  rv_code code = rv_insert_request_parse((rv_span){.data = data, .size = size}, &call->request, err);
  if (code != RV_OK) return code;
  call->message = rv_buf_ref(buf);
  call->message_size = size;
  call->next_item = 0;
  call->in_request = true;
  bool packed = call->request.pack.data != NULL;
  if (call->request.num_chunks == 0 && call->request.num_items == 0 && !packed)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the request has neither chunks nor items");
  if (packed) {
    code = rv_insert_pack_begin(&call->pack, call->request.pack, rv_memory_spills(account_of(call)), &call->placed_rows, err);
    if (code == RV_OK) rv_insert_pack_join(&call->pack, &call->joined);
  }
  if (call->last_table == NULL && code == RV_OK) rv_insert_items_meet_table(call);
  call->joined.table = call->last_table;
  call->joined.streams = atomic_load_explicit(&call->stream.server->num_inserters, memory_order_relaxed);
  if (code == RV_OK && !packed) code = rv_insert_call_take_chunks(call, err);
  if (code != RV_OK) return code;
  call->chunk_bytes += size;
  size_t num_items = call->request.num_items + call->pack.count;
  if (num_items == 0) {
    rv_insert_items_drop_request(call);
    return name_newest_chunk(call, rv_insert_call_count(call, err));
  } else {
    call->bytes_per_item = call->chunk_bytes / num_items + 1;
    call->chunk_bytes = 0;
  }
  return RV_OK;
}

static void on_message(rv_call *net_call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  rv_insert_call *call = user;
  rv_error err;
  (void)net_call;
  if (!rv_server_stream_is_open(&call->stream)) return;
  rv_server_stream_ref(&call->stream);
  if (take_request(call, buf, data, size, &err) != RV_OK) rv_insert_call_end(call, err.code, err.message);
  rv_insert_items_advance(call);
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

static void on_refused(rv_call *net_call, void *user, rv_code code, const char *message)
{
  rv_insert_call *call = user;
  (void)net_call;
  rv_server_stream_ref(&call->stream);
  rv_insert_call_end(call, code, message);
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

static void on_half_close(rv_call *net_call, void *user)
{
  rv_insert_call *call = user;
  (void)net_call;
  call->half_closed = true;
  rv_server_stream_ref(&call->stream);
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

static void on_writable(rv_call *net_call, void *user)
{
  rv_insert_call *call = user;
  (void)net_call;
  rv_server_stream_ref(&call->stream);
  rv_insert_answers_send(call, false);
  rv_insert_items_advance(call);
  rv_insert_call_update(call);
  rv_server_stream_unref(&call->stream);
}

static void on_close(rv_call *net_call, void *user, rv_code code, const char *message)
{
  rv_insert_call *call = user;
  (void)net_call, (void)code, (void)message;
  call->stream.call = NULL;
  call->num_keys = call->waiting_keys = 0; /* nobody will read them, and the rest of a message must not wait for that */
  rv_insert_journal_cancel(call);
  if (call->by_reverie) {
    rv_insert_items_drop_request(call);
    rv_insert_items_cancel(call);
  }
  rv_insert_items_advance(call);
  rv_insert_call_update(call);
  rv_server_stream_closed(&call->stream);
}

static const rv_call_events insert_events = {.on_message = on_message,
                                             .on_refused = on_refused,
                                             .on_half_close = on_half_close,
                                             .on_writable = on_writable,
                                             .on_close = on_close};

/* ---- life ---- */

static void sweep(rv_server_stream *stream, rv_sweep kind)
{
  rv_insert_call *call = RV_CONTAINER(stream, rv_insert_call, stream);
  rv_server_stream_ref(stream);
  call->draining = true;
  if (kind != RV_SWEEP_DRAIN) {
    const char *message;
    rv_code code = rv_sweep_says(kind, &message);
    rv_insert_items_drop_request(call);
    rv_insert_items_cancel(call);
    rv_insert_call_end(call, code, message);
  }
  rv_insert_call_update(call);
  rv_server_stream_unref(stream);
}

static void look(rv_server_stream *stream)
{
  rv_insert_call *call = RV_CONTAINER(stream, rv_insert_call, stream);
  rv_insert_items_advance(call);
  rv_insert_call_update(call);
}

static void destroy(rv_server_stream *stream)
{
  rv_insert_call *call = RV_CONTAINER(stream, rv_insert_call, stream);
  rv_insert_items_fini(call);
  rv_insert_answers_fini(call);
  rv_caller_count_bytes(stream->caller, 0 - call->caller_bytes);
  rv_chunk_map_fini(&call->chunks);
  rv_chunk_forms_fini(&call->forms);
  rv_joined_fini(&call->joined);
  set_on_the_way(call, 0);
  atomic_fetch_sub_explicit(&call->stream.server->num_inserters, 1, memory_order_relaxed);
  free(call);
}

static const rv_server_stream_ops insert_ops = {.sweep = sweep, .destroy = destroy, .look = look};

rv_code rv_begin_insert_stream(rv_server *server, rv_call *net_call, const rv_method *method, const rv_call_events **events,
                               void **user, rv_error *err)
{
  rv_insert_call *call = calloc(1, sizeof *call);
  if (call == NULL) return rv_fail_memory(err, sizeof *call);
  rv_insert_items_init(call);
  rv_insert_answers_init(call);
  rv_insert_journal_init(call);
  call->placed_rows = (rv_placed_rows){.take = take_row, .fetch = fetch_row, .context = call};
  rv_chunk_map_init(&call->chunks, rv_entropy64(&server->env), server->max_stream_chunk_bytes);
  rv_joined_init(&call->joined, rv_store_memory(server->store), rv_entropy64(&server->env));
  snprintf(call->peer, sizeof call->peer, "%s", rv_call_peer(net_call));
  atomic_fetch_add_explicit(&server->num_inserters, 1, memory_order_relaxed);
  rv_code code = rv_server_stream_begin(&call->stream, &insert_ops, server, net_call, err);
  if (code != RV_OK) {
    destroy(&call->stream);
    return code;
  }
  *events = &insert_events;
  *user = call;
  rv_error refused;
  if (rv_server_stream_check(&call->stream, method, &refused) != RV_OK) {
    rv_insert_call_end(call, refused.code, refused.message);
    return RV_OK;
  }
  const char *writer = rv_call_metadata(net_call, "reverie-writer");
  if (writer == NULL) return RV_OK;
  call->by_reverie = true;
  rv_call_set_header(net_call, "reverie-packs", "2");
  char most[24];
  snprintf(most, sizeof most, "%zu", server->max_message_bytes);
  rv_call_set_header(net_call, "reverie-max-message", most);
  if (attach_session(call, writer, &refused) != RV_OK) {
    rv_insert_call_end(call, refused.code, refused.message);
    return RV_OK;
  }
  if (rv_insert_journal_open(call))
    rv_call_send_headers(net_call); /* the writer learns whom it talks to before its first item is in */
  set_reading(call);
  return RV_OK;
}
