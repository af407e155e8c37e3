/* The chunks of a checkpoint that is being read, by key. */
#ifndef RV_PERSIST_LOADED_CHUNKS_H
#define RV_PERSIST_LOADED_CHUNKS_H

#include "base/buf.h"
#include "base/map.h"
#include "store/chunk.h"

typedef struct rv_loaded_chunks {
  rv_map by_key;     /* to the chunk's number */
  rv_chunk **chunks; /* a reference each */
  size_t count, capacity;
  size_t warm; /* bytes that small chunks may still take until memory is taken for more */
  /* set before the first is added: */
  rv_decode_cache *cache; /* that they are attached to; borrowed */
  bool apart;             /* they may have to move to a spill's file (store/cold.h) */
} rv_loaded_chunks;

void rv_loaded_chunks_init(rv_loaded_chunks *all, uint64_t seed);
void rv_loaded_chunks_fini(rv_loaded_chunks *all);
/* A record's ChunkData. *added is borrowed; NULL where there was one of its key, which counts, as in Reverb. */
rv_code rv_loaded_chunks_add(rv_loaded_chunks *all, rv_buf *owned_record, rv_chunk **added, rv_error *err);
/* Borrowed; NULL: there is none. `context` are the chunks. */
rv_chunk *rv_loaded_chunks_find(void *context, uint64_t key);

#endif
