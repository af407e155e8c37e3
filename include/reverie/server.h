/* A server: a store, offered to other processes over Reverb's gRPC protocol and Reverie's extensions to it.
 *
 * It runs its own I/O threads (signals masked) and returns at once. */
#ifndef REVERIE_SERVER_H
#define REVERIE_SERVER_H

#include "reverie/checkpoint.h"
#include "reverie/journal.h"
#include "reverie/security.h"
#include "reverie/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_server rv_server;

typedef struct rv_server_config {
  size_t size;                       /* sizeof(rv_server_config) */
  rv_store *store;                   /* a reference is taken */
  const char *const *addresses;      /* "host:port", "[::]:port", "unix:/path"; port 0: any free one */
  size_t num_addresses;              /* >= 1 */
  unsigned io_threads;               /* 0: one for two cores, at most 8 */
  size_t max_message_bytes;          /* 0: 256 MiB; least: 16 KiB; a longer one ends its stream: RV_RESOURCE_EXHAUSTED */
  size_t max_connections;            /* 0: 10,000 */
  size_t max_streams_per_connection; /* 0: 10,000 */
  size_t max_writer_sessions;        /* exactly-once sessions remembered; 0: 100,000 */
  int64_t writer_session_ttl_ms;     /* after its last use; 0: one hour */
  const rv_env *env;                 /* copied; NULL: the store's */
  size_t max_stream_chunk_bytes;     /* chunks that one writer's stream keeps on the server for items to come; 0: 1 GiB */
  size_t max_orphan_bytes;           /* inserts that wait although their (Reverb) client has gone, all together; 0: 1 GiB */
  /* Saves checkpoints of the store, when a client asks and as below; a reference is taken. NULL: none. Saving goes on in a thread of
   * the server's; stopping the server ends it. What is already saved is not restored by the server: rv_checkpointer_restore. */
  rv_checkpointer *checkpointer;
  int64_t checkpoint_every_ms;      /* from the beginning of one to the next; 0: not by time */
  int64_t checkpoint_every_inserts; /* into all tables together, looked at once a second; 0: not by inserts */
  /* The store's (rv_journal_recover); a reference is taken. NULL: the one that the store has, if any. In the mode RV_JOURNAL_ALWAYS inserts
   * are confirmed, and updates, deletes, resets and limiters answered, when they are on the disk. The checkpointer must be of the directory
   * that the journal was recovered with. */
  rv_journal *journal;
  int64_t checkpoint_journal_bytes; /* with both: saved when the journal grew by so many since the last one; 0: 4 GiB */
  const rv_tls_config *tls;         /* on all addresses but unix sockets; NULL: none. Copied */
  const rv_identity *identities;    /* who may call, and what he may do; NULL: everybody everything. Copied */
  size_t num_identities;
  /* A connection whose other end gives no sign of life for so long is lost, and what it held is free: 0: 10 s; negative: never. */
  int64_t peer_timeout_ms;
  size_t max_connections_per_address; /* of one IP address (an IPv6 network of 64 bits); 0: nine tenths of max_connections */
  size_t max_streams_per_identity;    /* calls open at a time; 0: 50,000 */
  size_t
      max_bytes_per_identity; /* of chunks kept for items to come, and inserts that wait: beyond it inserts wait longer; 0: 16 GiB */
  /* Reverie's clients on its machine share memory with it (up to 2 MiB each, the first 512 of them), also where they come by a TCP
   * address without TLS: their bytes do not go over the loopback device. True: only those who come by a unix socket. */
  bool no_shared_memory;
} rv_server_config;

/* RV_UNAVAILABLE when an address cannot be bound ("port 8000 is in use ..."), RV_INVALID_ARGUMENT when it cannot be parsed. */
RV_API rv_code rv_server_new(const rv_server_config *config, rv_server **out, rv_error *err);
/* Reads the files of its TLS again, for connections that begin from now on. RV_INVALID_ARGUMENT when they cannot be used: those that were
 * read before stay. RV_FAILED_PRECONDITION: it has no TLS. Any thread. */
RV_API rv_code rv_server_reload_tls(rv_server *server, rv_error *err);
/* Takes the place of the identities that it was made with; an empty list: nobody may call. Calls in progress of an identity that is
 * not in the list as it was (name, secrets and rights) end with RV_UNAUTHENTICATED, others go on. Returns when they have ended.
 * RV_INVALID_ARGUMENT names what is wrong: all is as before. RV_FAILED_PRECONDITION: it is stopped. Any thread but a callback's. */
RV_API rv_code rv_server_set_identities(rv_server *server, const rv_identity *identities, size_t num_identities, rv_error *err);
/* The port that address number `index` is bound to; 0 for a unix socket. */
RV_API uint16_t rv_server_port(const rv_server *server, size_t index);
/* Refuses new calls (health says NOT_SERVING), lets those in progress finish for up to drain_ms, ends the rest with
 * RV_UNAVAILABLE (waits on tables with RV_CANCELLED), and joins the I/O threads. The store stays open. Idempotent; any thread but
 * a callback's; a second call while one drains shortens the drain to its own, and waits for it too. A drain that lasts longer than
 * 10 s is logged, with how many calls it waits for. In a forked child, where none of its threads is, this and rv_server_free do nothing. */
RV_API void rv_server_stop(rv_server *server, int64_t drain_ms);
/* Stops it if need be. */
RV_API void rv_server_free(rv_server *server);

#ifdef __cplusplus
}
#endif
#endif
