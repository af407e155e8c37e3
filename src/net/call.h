/* A call's inside, for net alone: one gRPC stream at either end.
 *
 * Whatever ends a call goes through rv_call_end: it lets go of the stream, drops what is queued and defers on_close, so that a
 * handler may end its call, or others, from within any callback. */
#ifndef RV_NET_CALL_H
#define RV_NET_CALL_H

#include "net/metadata.h"
#include "net/reader.h"
#include "net/sendq.h"
#include "net/session.h"

enum { RV_DUE_DELIVER = 1, RV_DUE_WRITABLE = 2, RV_DUE_CLOSE = 4 };

typedef struct rv_held {
  rv_buf **message; /* a ring */
  size_t head, count, capacity;
} rv_held;

struct rv_call {
  rv_loop *loop;
  rv_session *session;          /* one reference; NULL: a client's call that is not started yet */
  rv_channel *channel;          /* client: until the channel is freed */
  int32_t stream_id;            /* 0: no stream, or none any more */
  rv_link link;                 /* the session's calls, or the channel's waiting ones */
  rv_link channel_link;         /* client: all calls of the channel whose on_close has not come */
  const rv_call_events *events; /* NULL: nobody hears of this call */
  void *user;

  bool server, wait_for_ready;
  bool paused;
  bool delivering;                      /* within on_message */
  const rv_buf *message_at_hand;        /* its message; NULL: not within it */
  bool delivered;                       /* a message was */
  bool headers_received;                /* client */
  bool headers_sent;                    /* server */
  bool peer_done;                       /* no more messages will come */
  bool half_close_told;                 /* server */
  bool trailers_submitted;              /* server */
  bool no_more;                         /* half-closed (client) or finished (server): nothing more can be queued */
  bool data_deferred;                   /* nghttp2 waits for rv_call_wake_source */
  bool was_full;                        /* queued bytes were above the low-water mark */
  bool over;                            /* rv_call_end was called */
  bool closing;                         /* server: and its session counts it */
  bool is_small;                        /* server: and its session counts it */
  bool brings_large;                    /* server: messages that may have been lent */
  bool is_wide;                         /* server: and its loop counts it */
  bool headers_too_large, headers_lost; /* memory was out for them */
  bool has_status;                      /* client: the end is what the server said */
  unsigned due;

  rv_sendq sendq;
  rv_message_reader reader;
  rv_held held;
  size_t half_bytes; /* of an incomplete message, as its session counts it */
  size_t half_seen;  /* of them, those that were there when it was last weighed (half_messages.c) */
  size_t held_bytes; /* received, not delivered */
  size_t most_bytes; /* of a message, where it is less than the session's; 0: it is not */
  size_t header_bytes;
  int http_status; /* client */
  char method[8];  /* server: "POST", cut */
  char *path;
  rv_metadata_store received; /* the peer's headers and trailers */
  rv_metadata_store to_send;  /* client: request metadata; server: extra response headers, or trailers once those went out */
  int64_t started_ns, deadline_ns;
  rv_timer timer;
  rv_task task;

  rv_code code; /* the end, or (server) what the trailers will say */
  char *message;
};

/* NULL: out of memory. */
rv_call *rv_call_new(rv_loop *loop, bool server);
/* What waits to be sent is not sent any more. */
void rv_call_drop_queued(rv_call *call);
/* Frees a call that nobody was told of; others free themselves after on_close. */
void rv_call_free(rv_call *call);

/* The call is over: on_close follows from the loop, after the messages that wait (if `deliver`) have been taken. The stream, if
 * it is still open, is reset with `reset`; RV_NO_RESET leaves it to whoever closes it. */
#define RV_NO_RESET UINT32_MAX
void rv_call_end(rv_call *call, rv_code code, const char *message, uint32_t reset, bool deliver);

void rv_call_received(rv_call *call, const uint8_t *data, size_t size); /* DATA */
void rv_call_peer_done(rv_call *call);                                  /* END_STREAM */
/* Gives the peer stream credit as far as it may have it. */
void rv_call_top_up(rv_call *call);
/* Server: its half message ends it, with RV_UNAVAILABLE: the call, or the message, may come again. `why` is what it says of this one. */
void rv_call_end_half_message(rv_call *call, const char *why);
void rv_call_start_deadline(rv_call *call);
/* Defers an event. */
void rv_call_due(rv_call *call, unsigned due);

/* ---- request.c: the client's end ---- */

/* Opens the stream. The call is over when that fails. */
void rv_call_start(rv_call *call, rv_session *session);
void rv_call_response_headers(rv_call *call, bool end_stream);
void rv_call_response_done(rv_call *call); /* END_STREAM on DATA: there will be no trailers */
void rv_call_reset_by_peer(rv_call *call, uint32_t error_code);

/* ---- response.c: the server's end ---- */

void rv_call_request_headers(rv_call *call, bool end_stream);
/* Sends what is left of the response's headers and a status, at once: what is queued is dropped. Ends the call with `code`. */
void rv_call_reject(rv_call *call, rv_code code, const char *message);
void rv_call_submit_trailers(rv_call *call);
void rv_call_submit_headers(rv_call *call);

/* ---- for http.c ---- */

/* More can be sent, or the end is near: wakes nghttp2's data source, if there is one. */
void rv_call_wake_source(rv_call *call);

#endif
