/* A store: tables in this process's memory. It has no threads but those of `gather_threads`, and does no I/O.
 *
 * A store is made with all its tables and shared by reference: a server serves it, clients use it in process. Closing it ends
 * every wait on it with RV_CANCELLED; its memory goes with the last reference (samples that are still held keep theirs). */
#ifndef REVERIE_STORE_H
#define REVERIE_STORE_H

#include "reverie/table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_store rv_store;

typedef struct rv_store_config {
  size_t size;                   /* sizeof(rv_store_config) */
  const rv_env *env;             /* copied; NULL: the default */
  const rv_registry *registry;   /* borrowed for the store's life; NULL: only what is built in */
  const rv_table_config *tables; /* copied; names must differ */
  size_t num_tables;             /* >= 1 */
  size_t max_decode_cache_bytes; /* for in-process learners over compressed chunks; 0: 64 MiB */
  /* Threads that copy one large batch (512 KiB and more) in or out, the caller included; 0: as many as this process may use cores, at
   * most 4; 1: the caller alone. They are started when first needed and sleep in between. */
  uint32_t gather_threads;
  /* Bytes that all tables may take, with their books and with what streams have brought that is no item's yet; a chunk counts once,
   * whoever refers to it. A sixteenth below it inserts begin to wait (RV_WAIT_MEMORY), first come, first served, until something goes. Not counted:
   * what the program takes besides (connections, about 30 KB each, decoded chunks, samples that were copied). 0: no bound. It can be changed:
   * rv_client_set_memory_limit. */
  size_t memory_limit;
  /* Read while the store is made; NULL: the environment's entropy. With a seed the same calls, in the same order, draw and remove the same
   * items, and give them the same keys: calls of one thread, to tables that stand in the same order, in a store that begins alike. Nothing
   * else comes from it, so hashes stay unforeseeable, but whoever knows it foresees draws and keys, and a store that is made anew gives keys
   * again that clients of the one before may still have. Items of clients elsewhere have keys that those choose. */
  const uint64_t *seed;
} rv_store_config;

/* What a store, and the server that offers it, take. */
typedef struct rv_memory_info {
  int64_t used_bytes;  /* what memory_limit bounds */
  int64_t limit_bytes; /* 0: none */
  int64_t
      stream_bytes; /* of used_bytes, about: what insert streams and inserts under way keep that is no item's, or may not be */
  int64_t
      connection_bytes; /* besides: messages that are half received, that wait to be read by their clients, or are lent to them */
  int64_t spilled_bytes; /* besides, in the spill's file (reverie/spill.h) */
  char spill_fault[64];  /* what keeps more from going there while memory is short ("": nothing) */
} rv_memory_info;

/* RV_INVALID_ARGUMENT names the table and the field that is wrong; RV_NOT_FOUND a selector or extension that is not
 * registered. The caller owns one reference to *out. */
RV_API rv_code rv_store_new(const rv_store_config *config, rv_store **out, rv_error *err);
RV_API rv_store *rv_store_ref(rv_store *store);
RV_API void rv_store_unref(rv_store *store);
/* Ends all waits with RV_CANCELLED and refuses new work. Idempotent; any thread. */
RV_API void rv_store_close(rv_store *store);

#ifdef __cplusplus
}
#endif
#endif
