/* A store: tables in this process's memory. It has no threads and does no I/O.
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
} rv_store_config;

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
