/* One record per present item, found by key: what an extension remembers of an item, bounded by the table's items, with no
 * operation that takes time in proportion to them. Emptying it sets the memory aside, and it is freed in slices. */
#ifndef RV_STORE_EXTENSIONS_RECORDS_H
#define RV_STORE_EXTENSIONS_RECORDS_H

#include "base/map.h"
#include "base/segarray.h"

#define RV_NO_RECORD UINT32_MAX

typedef struct rv_records {
  rv_map index; /* key to record number */
  rv_segarray records;
  uint32_t used;       /* records [0, used) have been handed out; */
  uint32_t first_free; /* of these, the free ones are linked through their first four bytes */
  rv_map left_index;   /* set aside, to be freed */
  rv_blocks left;
} rv_records;

/* A record has at least four bytes. */
void rv_records_init(rv_records *records, uint32_t record_size, uint64_t seed);
void rv_records_fini(rv_records *records);
/* The number of a new record for a key that has none; its bytes are undefined. RV_NO_RECORD when memory is out or the key has
 * one. */
uint32_t rv_records_add(rv_records *records, uint64_t key);
/* RV_NO_RECORD: the key has none. */
uint32_t rv_records_find(const rv_records *records, uint64_t key);
/* The key has a record; its number may be handed out again. */
void rv_records_remove(rv_records *records, uint64_t key, uint32_t number);
void rv_records_clear(rv_records *records);
/* Frees a little of what was set aside. */
void rv_records_tidy(rv_records *records);

#define RV_RECORD(of, type, number) RV_SEGARRAY_AT(&(of)->records, type, number)

#endif
