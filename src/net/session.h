/* One HTTP/2 connection, at either end: a socket, nghttp2's session, and the calls that are open on it.
 *
 * Life: new (it reads at once) -> ready (the peer's SETTINGS are there) -> perhaps shutting down (GOAWAY sent or received; open
 * calls go on) -> ending (every call has got its end; the last bytes are written, then those the peer still sends are thrown away
 * until it closes) -> gone. `on_gone` comes exactly once, from the loop, never from within a function called here.
 *
 * Flow control: the connection's window is large and given back when bytes arrive, so that no call can stop another. A stream's
 * window is given back when its messages are handed to the call's owner; while a message is incomplete the window is as large as
 * what is missing of it. A paused call holds at most one window (of a peer that lends it may be the larger one) and one message. */
#ifndef RV_NET_SESSION_H
#define RV_NET_SESSION_H

#include <nghttp2/nghttp2.h>

#include "net/greeting.h"
#include "net/loop.h"
#include "net/output.h"
#include "net/ring_transport.h"
#include "net/socket.h"
#include "net/tls.h"

enum {
  /* A stream's initial window. A paused call may hold this much, or RV_BORROWED_WINDOW where it has that; a gigabyte a second over a
   * round trip of 1 ms needs it. */
  RV_STREAM_WINDOW = 1 << 20,
  RV_BORROWED_WINDOW = 4 << 20, /* of a peer that lends: more goes to each waking of either end */
  RV_MOST_WIDE = 16,            /* streams that have as much at a server, of each loop */
  RV_CONNECTION_WINDOW = 64 << 20,
  RV_MAX_FRAME = 1 << 20,     /* DATA frames we take */
  RV_SEND_FRAME = 256 << 10,  /* DATA frames we send: small enough that calls take turns */
  RV_OUTPUT_HIGH = 256 << 10, /* more is left with the calls until the socket has taken this */
  RV_LOW_WATER = 64 << 10,    /* of rv_call_queued, for on_writable */
  RV_MAX_HEADER_LIST = 16 << 10,
  RV_MAX_PAIRS = 48,                /* of a user's own metadata that we send in one call */
  RV_HEADER_LIST_FATAL = 256 << 10, /* beyond it the connection ends, not only the call */
  /* Resets by the peer: a sampler that ends costs one. nghttp2's bucket, at a level that only abuse reaches. */
  RV_RESET_BURST = 20000,
  RV_RESETS_PER_SECOND = 5000,
  RV_DEFAULT_MAX_STREAMS = 16384,
  /* Answers and control frames waiting for a peer that does not read; then we do not read either. A client's calls are its own, a server's
   * anybody's: each that is refused waits with 1.5 kB. */
  RV_OUTBOUND_FRAMES = 20000,
  RV_SERVER_OUTBOUND_FRAMES = 256,
  RV_OUTBOUND_ACKS = 200 /* of PING and SETTINGS among them; beyond it the connection ends */
};
#define RV_DEFAULT_MAX_MESSAGE ((size_t)256 << 20)
#define RV_DEFAULT_PEER_TIMEOUT_NS (INT64_C(10) * 1000000000)
/* A server gives a connection so long to begin to speak HTTP/2, TLS included; a client, which waits for a sign of life, its peer timeout. */
#define RV_HANDSHAKE_NS (INT64_C(20) * 1000000000)
#define RV_LINGER_NS (INT64_C(1) * 1000000000)

typedef struct rv_session rv_session;

typedef struct rv_session_owner {
  /* Server: a request's headers are there and right; as rv_grpc_server_config.on_call. */
  bool (*on_request)(void *owner, rv_call *call, const char *path, const rv_call_events **events, void **user);
  void (*on_ready)(void *owner, rv_session *session);  /* client: calls may be started */
  void (*on_goaway)(void *owner, rv_session *session); /* client: no more calls may be started */
  void (*on_room)(void *owner, rv_session *session);   /* client: a stream has closed */
  /* The session is gone; `message` says why. `ready`: it had been. */
  void (*on_gone)(void *owner, rv_session *session, bool ready, const char *message);
} rv_session_owner;

/* Messages that have come in part, of all connections of a server (half_messages.c). */
typedef struct rv_half_messages {
  atomic_size_t bytes;
  size_t memory, largest;                /* that there is; and a message may be */
  size_t (*memory_limit)(void *context); /* as rv_grpc_server_config's */
  void *context;
} rv_half_messages;

typedef struct rv_session_config {
  rv_loop *loop;
  const rv_session_owner *events;
  void *owner;
  bool server;
  size_t max_message_bytes;
  size_t max_streams;
  int64_t peer_timeout_ms;        /* as in net.h */
  uint64_t machine;               /* server: rv_socket_peer_machine */
  const char *address;            /* client: the name for people and for :authority */
  rv_tls *tls;                    /* NULL: none; a reference is taken */
  const char *host;               /* client, with tls: whose certificate is expected */
  rv_rings *owned_rings;          /* client, without tls: given by the server; NULL: the socket alone */
  rv_half_messages *half;         /* server: all its connections' */
  struct rv_ring_host *ring_host; /* server, on a unix socket: the client may ask for rings */
} rv_session_config;

typedef enum rv_session_state {
  RV_SESSION_OPEN,
  RV_SESSION_LINGERING, /* all is written; what the peer still sends is thrown away until it closes */
  RV_SESSION_GONE
} rv_session_state;

struct rv_session {
  rv_loop *loop;
  const rv_session_owner *events;
  void *owner; /* NULL once it does not want to hear of us */
  size_t refs; /* of the loop's thread: its calls, its poll handle, whoever asks */
  bool server, ready, encrypted;
  bool useful;        /* client: the peer has answered something on it */
  bool shutting_down; /* GOAWAY sent or received */
  bool write_blocked; /* the socket is full */
  bool lost;          /* the flush task will close it */
  bool acknowledges;  /* the socket is of a kind whose sender waits for that */
  bool deaf;          /* nghttp2 has given up on what is received */
  bool room_changed;  /* client: on_room is due */
  bool reads_on;      /* read_task is posted, and holds a reference */
  bool stalled;       /* too much waits to be sent for what comes to be read; it goes on with the sending */
  rv_session_state state;
  size_t max_message_bytes;

  nghttp2_session *http;
  rv_transport transport;
  uv_poll_t poll;
  int poll_events;
  rv_output output;
  rv_task flush_task;
  rv_task look_task;  /* while poll_events are not watched for yet */
  rv_task read_task;  /* goes on with what the socket does not know of any more */
  rv_timer timer;     /* handshake, then the end */
  rv_timer pulse;     /* looks whether the peer is still there (pulse.c) */
  rv_link link;       /* the loop's connections */
  rv_link owner_link; /* for the owner; taken out before on_gone */

  rv_link calls;         /* open calls, rv_call.link */
  size_t num_streams;    /* client: streams that nghttp2 has not closed yet */
  size_t num_closing;    /* calls whose owner is about to hear that they are over */
  size_t num_small;      /* server: open calls of rv_call_keep_small */
  size_t half_bytes;     /* of messages that are incomplete, and whose calls are not paused */
  size_t held_bytes;     /* of messages that are incomplete or wait for paused calls */
  size_t queued_bytes;   /* server: of messages that wait to be sent */
  size_t answer_bytes;   /* of them: of calls that are finished but for that */
  size_t counted_half;   /* in its server's half */
  size_t counted_held;   /* in the loop's held_bytes */
  size_t counted_unsent; /* what waits to be sent, output's included, in its unsent_bytes */
  size_t counted_lent;   /* in its lent_bytes */

  /* The DATA frame being received. */
  size_t turn_frames; /* that began since this turn to read did */
  int32_t frame_stream;
  size_t frame_left;
  bool frame_padded;
  bool frame_heard;   /* the last bytes that were received ended in data of it that nghttp2 handed on */
  bool receives_bulk; /* the last read brought much of a large message */
  bool emptied;       /* the last read left nothing in the socket, */
  int64_t emptied_ns; /* then */
  int64_t since_ns;   /* what is being read came after this (uv_hrtime) */
  rv_greeting greeting;
  rv_buf *gapped; /* the message that has the loop's gaps, within a read; NULL: none has */
  bool recalled;  /* what was lent is not any more, and was needed: it is to be lost */
  rv_buf *kept;   /* what was read and is looked at when less waits to be sent, from kept_at on; NULL: nothing */
  size_t kept_at;

  /* signs of life */
  int64_t peer_timeout_ns;
  bool heard;             /* bytes came, or the socket took some that it had no room for, since the last look */
  bool asked;             /* there was no sign at the last look */
  size_t unsent;          /* bytes in the socket then that the peer had not acknowledged */
  rv_half_messages *half; /* NULL: a client's */
  int64_t weighed_ns;     /* when the calls' half messages were last weighed */

  uint64_t machine; /* rv_socket_peer_machine */
  char peer[RV_PEER_MAX];
  char address[RV_ADDRESS_TEXT_MAX];
  char error[128];  /* what nghttp2 last found wrong */
  char reason[256]; /* why it is ending; empty: it is not, or the peer wished it */
};

/* On the loop's thread. Takes the socket, and the rings, also when it fails. */
rv_code rv_session_new(const rv_session_config *config, int owned_fd, rv_session **out, rv_error *err);
void rv_session_unref(rv_session *session);
rv_session *rv_session_ref(rv_session *session);
/* The owner hears nothing any more. */
void rv_session_disown(rv_session *session);
/* GOAWAY, no new calls; ends by itself when the last call is over. */
void rv_session_shut_down(rv_session *session);
/* Ends every open call with this status (server: it is sent to the client), then the session. */
void rv_session_finish(rv_session *session, rv_code code, const char *message);
/* The connection is lost, or is to be given up at once: calls end with UNAVAILABLE and this reason. */
void rv_session_lose(rv_session *session, const char *format, ...) RV_PRINTF(2, 3);
/* What nghttp2 answered: where memory was out the session is lost, since what it was told never comes. */
void rv_session_check(rv_session *session, int http_code);
/* Its loop's counts learn what waits now. */
void rv_session_count_waiting(rv_session *session);
/* Something is to be sent: it is, before the loop sleeps. */
void rv_session_touch(rv_session *session);
/* Client: how many more calls may be started. */
size_t rv_session_room(const rv_session *session);
/* Client: each stream id that a connection has was used (2^30). As after GOAWAY no more calls may be started; it ends with the last one. */
bool rv_session_is_spent(const rv_session *session);

/* Reads what is there, and says how many bytes; the connection may be lost afterwards. */
size_t rv_session_receive(rv_session *session);
/* As rv_call_fill_gaps and rv_call_give_back (net.h); nothing where no message has gaps. */
bool rv_session_fill_gaps(rv_session *session);
bool rv_session_give_back(rv_session *session);

/* ---- pulse.c ---- */

void rv_pulse_init(rv_session *session);
void rv_pulse_start(rv_session *session);

/* ---- half_messages.c ---- */

void rv_half_messages_init(rv_half_messages *half, size_t largest, size_t (*memory_limit)(void *context), void *context);
/* A look at the half messages of a server's connection: while there are too many bytes of them, the slow ones end. */
void rv_half_messages_weigh(rv_session *session);
/* Something of it has just come, and there is no room for it. */
bool rv_half_message_must_end(const rv_call *call);

/* ---- http.c ---- */

/* nghttp2's session with our callbacks and settings; NULL: out of memory. */
nghttp2_session *rv_session_http_new(rv_session *session, size_t max_streams);
extern const nghttp2_data_provider rv_session_data_provider;

#endif
