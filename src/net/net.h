/* gRPC over HTTP/2 (nghttp2) over sockets (libuv). Knows nothing about replay.
 *
 * Everything about a connection happens on its loop's thread, or that of a guest in its stead (guest.h), and so do all callbacks; from
 * others use rv_loop_post. A call is one gRPC stream, the same type at both ends. `on_close` is always its last callback and comes exactly
 * once. */
#ifndef RV_NET_NET_H
#define RV_NET_NET_H

#include "base/buf.h"
#include "base/crew.h"
#include "base/env.h"
#include "base/gaps.h"
#include "base/list.h"
#include "base/spares.h"
#include "net/tls.h"

/* The least that max_message_bytes may be at either end. What a server says of its own accord fits: a confirmation, a refusal with its
 * reason, an answer about a table whose signature is of an ordinary size. Whoever takes less would ask for the same answer for ever. */
#define RV_LEAST_MAX_MESSAGE ((size_t)16 << 10)
/* RV_INVALID_ARGUMENT: it is less than that, and not 0, the default. */
rv_code rv_check_max_message(size_t max_message_bytes, rv_error *err);

/* ---- loops ---- */

typedef struct rv_loop rv_loop;

/* A loop with its own thread (all signals masked). */
rv_code rv_loop_new(const rv_env *env, const char *name, rv_loop **out, rv_error *err);
/* Runs what is queued, closes what is left, joins the thread. Not from its own thread. Channels on it are freed before. */
void rv_loop_free(rv_loop *loop);

typedef struct rv_task {
  void (*run)(struct rv_task *task); /* on the loop's thread */
  rv_link link;                      /* the loop's while it is queued */
} rv_task;
/* Any thread. The task's memory is the caller's and must stay until it has run. Tasks run in the order they were posted. */
void rv_loop_post(rv_loop *loop, rv_task *task);
/* The same on the loop's own thread, for tasks made by rv_task_init; one that is queued already stays where it is.
 * defer: soon, when what the loop is just doing has returned. turn: when others have had theirs, so that a piece of work that is too
 * large for one go is done in several. */
void rv_loop_defer(rv_loop *loop, rv_task *task);
void rv_loop_turn(rv_loop *loop, rv_task *task);
/* A task is known to be queued by its link: make it so before the first use. */
void rv_task_init(rv_task *task, void (*run)(rv_task *task));
bool rv_loop_is_current(const rv_loop *loop);
/* Runs `run(argument)` on the loop and waits for it; directly if already there. */
void rv_loop_call(rv_loop *loop, void (*run)(void *argument), void *argument);
/* The loop's buffers for large messages, for whoever makes those on any thread. */
rv_spares *rv_loop_spares(rv_loop *loop);
/* Who helps with one large copy that the loop's thread makes, or who does its work: one thread, while there is a core that nobody uses. NULL: nobody
 * does. */
rv_crew *rv_loop_crew(rv_loop *loop);
/* Bytes of messages that are half received, wait for paused calls, or wait to be taken by sockets; of all its servers' connections. Any
 * thread. */
size_t rv_loop_waiting_bytes(rv_loop *loop);
/* Bytes of messages that stay because clients of this machine read in them (ring.h). Any thread. */
size_t rv_loop_lent_bytes(rv_loop *loop);
/* Of rv_loop_waiting_bytes, those that wait for sockets. */
size_t rv_loop_unsent_bytes(rv_loop *loop);
/* Bytes of rows that the loop's writers have made, and no server has confirmed, about: they tell of changes (modulo 2^N). Any thread. */
void rv_loop_count_unconfirmed(rv_loop *loop, size_t change);
size_t rv_loop_unconfirmed_bytes(const rv_loop *loop);
/* Bytes of large batches that its clients' callers wait for: they tell of changes likewise, and get the sum. Any thread. */
size_t rv_loop_count_awaited(rv_loop *loop, size_t change);
/* Streams on which its clients' samplers fetch more than one sample ahead: likewise. */
size_t rv_loop_count_fetching(rv_loop *loop, size_t change);

/* One-shot timers, on the loop's thread only. Storage is the caller's; fini stops it. */
typedef struct rv_timer {
  void (*fire)(struct rv_timer *timer);
  rv_loop *loop;
  int64_t at_ns; /* monotonic */
  bool runs;
  struct rv_timer *child, *before,
      *next; /* the loop's: timers that fire later, and the parent or brother before it, and behind it */
} rv_timer;
void rv_timer_init(rv_timer *timer, rv_loop *loop, void (*fire)(rv_timer *timer));
void rv_timer_start(rv_timer *timer, int64_t at_ns); /* or moves it */
void rv_timer_stop(rv_timer *timer);                 /* fine when it does not run */

/* ---- calls ---- */

typedef struct rv_call rv_call;

typedef struct rv_call_events {
  /* Client: messages may come with gaps (rv_call_gaps). */
  bool takes_gaps;
  /* The peer's initial metadata is there (client side only; before the first message). May be NULL. */
  void (*on_headers)(rv_call *call, void *user);
  /* One whole message: `size` bytes at `data` inside `buf`; take a reference to keep it. */
  void (*on_message)(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size);
  /* A message is too large, or more wait than are kept (RV_UNAVAILABLE: they may come again), or memory was out for one (server side only): no more
   * come, and the callee ends the call with this status, or another. NULL: the call ends at once, without what is queued. */
  void (*on_refused)(rv_call *call, void *user, rv_code code, const char *message);
  /* The client has sent its last message (server side only). May be NULL. */
  void (*on_half_close)(rv_call *call, void *user);
  /* rv_call_queued fell below the low-water mark (64 KiB) after having been above it. May be NULL. */
  void (*on_writable)(rv_call *call, void *user);
  /* The call is over: on the client side with the status that the server sent (or UNAVAILABLE with the reason the connection
   * broke, DEADLINE_EXCEEDED, CANCELLED); on the server side RV_OK after rv_call_finish was sent out, RV_CANCELLED when the
   * client or connection went away, RV_DEADLINE_EXCEEDED when grpc-timeout passed, RV_UNAVAILABLE when the server stops, or the
   * status that ended a call whose messages were broken or too large. The call is gone afterwards. */
  void (*on_close)(rv_call *call, void *user, rv_code code, const char *message);
} rv_call_events;

rv_loop *rv_call_loop(rv_call *call);
/* Within on_message, of who takes gaps. What of the message still lies where the server lends it, and must not be read in the message; NULL: all
 * is there. Before it is kept or read there, rv_call_fill_gaps; when what it was for was copied by rv_gaps_copy, rv_call_give_back, and there are
 * gaps no more. False: it was not lent any more, the message and what was copied are good for nothing, and the connection is about to be lost. */
const rv_gaps *rv_call_gaps(const rv_call *call);
bool rv_call_fill_gaps(rv_call *call);
bool rv_call_give_back(rv_call *call);
/* Client, in on_close: the code is what the server said, and not what went wrong on the way or on this side. */
bool rv_call_has_status(const rv_call *call);
/* A header or metadata value the peer sent (NULL: none); valid until on_close. Names in lower case. */
const char *rv_call_metadata(rv_call *call, const char *name);
const char *rv_call_peer(rv_call *call); /* "ipv4:127.0.0.1:4711", "unix:process 4711 of user 1000 to /path" */
/* Server: the call came a good while ago, and so did all others of its loop lately: more come than can be answered. To be asked before a
 * call is begun that may as well be made later. */
bool rv_call_is_late(rv_call *call);
/* Server: bytes of answers that wait for the call's peer to take them, whichever calls of its connection they are of. */
size_t rv_call_answers_unsent(const rv_call *call);
/* The name in the certificate that the peer showed; "": none. Valid while the connection is open. */
const char *rv_call_peer_name(rv_call *call);
/* Queues one message and takes its pieces (empty afterwards). Never blocks, sets no bound: look at rv_call_queued. After the call
 * is closing the pieces are dropped. */
void rv_call_send(rv_call *call, rv_pieces *pieces);
bool rv_call_is_over(const rv_call *call);  /* on_close is to come: what is sent is dropped */
size_t rv_call_queued(const rv_call *call); /* bytes not yet on their way to the socket, prefixes included */
/* Server: trailers after what is queued. Nothing can be sent afterwards; on_message is not called any more. */
void rv_call_finish(rv_call *call, rv_code code, const char *message);
/* Server: a metadata pair (at most 48) in the response's initial headers, or, where these went out (with the first message, or before), in its
 * trailers; before rv_call_finish. Name in lower case. */
void rv_call_set_header(rv_call *call, const char *name, const char *value);
/* Server: what metadata came is let go. */
void rv_call_drop_metadata(rv_call *call);
/* Server, from on_call: messages above `most` bytes are refused, if the server's own bound is not lower. */
void rv_call_take_at_most(rv_call *call, size_t most);
/* Server, from on_call: for a call of somebody who is not asked who he is, so that he uses up little. Messages above `most` bytes are refused,
 * the metadata is let go, and the call ends after `lasts_ms` (0: it may last). False: its connection has `at_once` such calls already. */
bool rv_call_keep_small(rv_call *call, size_t most, size_t at_once, int64_t lasts_ms);
/* Server, from on_message: so many bytes of the message are kept on; to the call's end they count with those that wait on its connection. */
void rv_call_count_kept(rv_call *call, size_t bytes);
/* Server: sends the initial headers now instead of with the first message; the client's on_headers then comes early. */
void rv_call_send_headers(rv_call *call);
/* Client: no more messages will be sent (after what is queued). */
void rv_call_half_close(rv_call *call);
/* Client: what comes from now on goes to another user, as if the call had always been his. false: it is over, or nothing can be sent on it any
 * more; all is as before. */
bool rv_call_hand_on(rv_call *call, const rv_call_events *events, void *user);
/* Either side: RST_STREAM(CANCEL). on_close follows (not from within this function). */
void rv_call_cancel(rv_call *call);
/* While paused no on_message is called and no stream credit is returned; the connection's credit is, so that other calls
 * go on. What is kept for a paused call is bounded by its stream window. */
void rv_call_pause(rv_call *call);
void rv_call_resume(rv_call *call);

/* ---- rows by their place ----
 *
 * A row in a block of the server's (rv_channel_take_block) need not be in the message that is about it: the message names its place, and the
 * server takes it from there. */

enum { RV_PLACE_BYTES = 16 };
/* Client: where a row that lies in a block is to be found by the server at the other end of this call's connection. False: it lies elsewhere. It is
 * held, and not written to, until the server has answered, or the call is over. */
bool rv_call_name_place(const rv_call *call, const uint8_t *row, size_t size, uint8_t out[RV_PLACE_BYTES]);
/* Server: the row there, behind `before` bytes and before `behind` bytes that the caller writes: all of the buffer, which is his, from its beginning on.
 * A row that was taken before, or has no room around it, is copied. RV_INVALID_ARGUMENT: the client has no such block; RV_RESOURCE_EXHAUSTED. */
rv_code rv_call_take_place(rv_call *call, const uint8_t place[RV_PLACE_BYTES], size_t before, size_t size, size_t behind,
                           rv_buf **out, rv_error *err);
/* Server: the row there is taken soon, and what is around it fetched from memory meanwhile. */
void rv_call_fetch_place(const rv_call *call, const uint8_t place[RV_PLACE_BYTES], size_t size);

/* ---- server side ---- */

typedef struct rv_grpc_server rv_grpc_server;

typedef struct rv_grpc_server_config {
  const rv_env *env;
  const char *const *addresses;
  size_t num_addresses;
  unsigned io_threads; /* 0: one for two cores, at most 8 */
  size_t max_message_bytes, max_connections, max_streams_per_connection;
  size_t max_connections_per_address; /* 0: nine tenths of max_connections. Not of unix sockets */
  bool shares_memory; /* with clients of its machine who come by a TCP address without TLS (shortcut.h); by unix sockets always */
  bool lends_memory;  /* large messages lie where clients of its user and machine may read them, all of them (ring.h) */
  /* Of what callers bring, just now (0, or NULL: none), on any thread: of a part of what it is at first rows may be in blocks (landing.h),
   * uncounted as yet; of another there may be messages that have come in part (half_messages.c). */
  size_t (*memory_limit)(void *context);
  int64_t peer_timeout_ms; /* a connection whose other end gives no sign of life for so long is lost; 0: 10 s; negative: never */
  rv_tls *tls;             /* on all addresses but unix sockets; NULL: none. A reference is taken */
  /* A new call: choose its events and user pointer by path ("/package.Service/Method"). false: UNIMPLEMENTED. Calls whose
   * content-type, encoding or timeout is wrong never get here. On the loop's thread. */
  bool (*on_call)(void *context, rv_call *call, const char *path, const rv_call_events **events, void **user);
  void (*on_minute)(void *context); /* once a minute, on the first loop's thread; NULL: nothing is to be done */
  void *context;
} rv_grpc_server_config;

/* Binds all addresses, then starts. RV_UNAVAILABLE: "port 8000 on 127.0.0.1 is in use by another process, or by a
 * server of this one that was not stopped; choose another or stop it". */
rv_code rv_grpc_server_new(const rv_grpc_server_config *config, rv_grpc_server **out, rv_error *err);
uint16_t rv_grpc_server_port(const rv_grpc_server *server, size_t index);
/* GOAWAY to all, no new calls; calls still open after drain_ms end with UNAVAILABLE ("Cancelling all calls"). Blocks. */
void rv_grpc_server_stop(rv_grpc_server *server, int64_t drain_ms);
void rv_grpc_server_free(rv_grpc_server *server);
size_t rv_grpc_server_num_loops(const rv_grpc_server *server);
rv_loop *rv_grpc_server_loop(const rv_grpc_server *server, size_t index);

/* ---- client side ---- */

typedef struct rv_channel rv_channel;

/* Checks the address that a client is to connect to, and says what is wrong with it. */
rv_code rv_address_check(const char *address, rv_error *err);

typedef struct rv_channel_config {
  const rv_env *env;
  rv_loop *loop;
  const char *address;
  size_t max_message_bytes;
  rv_tls *tls;               /* NULL: none; a reference is taken. Not for a unix socket */
  const char *authorization; /* sent with every call; NULL: nothing. Copied */
  int64_t peer_timeout_ms;   /* as the server's */
  bool shares_memory;        /* without TLS, with a server of this machine that does (ring_transport.h) */
} rv_channel_config;

/* Connects when the first call is made, and again (back-off 10 ms doubling to 1 s, jittered) as calls ask for it. */
rv_code rv_channel_new(const rv_channel_config *config, rv_channel **out, rv_error *err);
/* Its connections end now, and none is made any more. Calls that are open end with CANCELLED; later ones, and those that wait for a connection,
 * wait for whoever made them to give up. Not on the loop's thread. Calling it again does nothing. */
void rv_channel_close(rv_channel *channel);
/* All calls end with CANCELLED. On another thread it waits for their on_close; on the loop's thread they come later. */
void rv_channel_free(rv_channel *channel);

typedef struct rv_metadata {
  const char *name, *value;
} rv_metadata;

typedef struct rv_call_config {
  const char *path;
  const rv_metadata *metadata;
  size_t num_metadata;
  int64_t deadline_ns; /* monotonic; INT64_MAX: none. Sent as grpc-timeout, and kept on this side too */
  bool wait_for_ready; /* wait for a connection instead of failing with UNAVAILABLE at the first refusal */
} rv_call_config;

/* On the loop's thread. Messages may be sent at once; they are queued until the connection stands. */
rv_call *rv_channel_call(rv_channel *channel, const rv_call_config *config, const rv_call_events *events, void *user);
/* For people: "connected to 127.0.0.1:8000", "connecting to ... (connection refused, attempt 3)". Any thread. */
void rv_channel_state(rv_channel *channel, char *out, size_t capacity);
/* The last connection has rings and an arena: what lies there is lent to the server, not copied. Any thread. */
bool rv_channel_lends(const rv_channel *channel);
/* The connection for new calls has memory of its server's for large rows (landing.h). Any thread. */
bool rv_channel_gives_blocks(const rv_channel *channel);
/* Memory of the server's for a row of so many bytes, which may be written to until it is sent, where the connection has such: then the row is not
 * copied. NULL: there is none just now. Any thread. */
rv_buf *rv_channel_take_block(rv_channel *channel, size_t bytes);
/* How many connections that stood are gone by now, or take no new calls: the next call may meet another server. Any thread. */
uint64_t rv_channel_losses(const rv_channel *channel);

#endif
