/* The chunks of a checkpoint that is being read, by key. */
#ifndef RV_PERSIST_LOADED_CHUNKS_H
#define RV_PERSIST_LOADED_CHUNKS_H

#include "base/buf.h"
#include "base/map.h"
#include "persist/warm_memory.h"
#include "store/chunk.h"
#include "wire/proto.h"

typedef struct rv_loaded_chunks {
  rv_map by_key;     /* to the chunk's number */
  rv_chunk **chunks; /* a reference each */
  size_t count, capacity;
  rv_warm_memory memory; /* of small chunks */
  /* set before the first is added: */
  rv_decode_cache *cache; /* that they are attached to; borrowed */
  bool apart;             /* they may have to move to a spill's file (store/cold.h) */
} rv_loaded_chunks;

void rv_loaded_chunks_init(rv_loaded_chunks *all, uint64_t seed);
void rv_loaded_chunks_fini(rv_loaded_chunks *all);
/* A record's ChunkData. *added is borrowed; NULL where there was one of its key, which counts, as in Reverb. */
rv_code rv_loaded_chunks_add(rv_loaded_chunks *all, rv_buf *owned_record, rv_chunk **added, rv_error *err);
/* A chunk that begins so is added next, if it is what it seems: where its key goes is fetched from memory meanwhile. */
void rv_loaded_chunks_prefetch(const rv_loaded_chunks *all, rv_span message);
/* Borrowed; NULL: there is none. `context` are the chunks. */
rv_chunk *rv_loaded_chunks_find(void *context, uint64_t key);
/* The one that was added last, if it has the key; else NULL. */
rv_chunk *rv_loaded_chunks_last(const rv_loaded_chunks *all, uint64_t key);

#endif
