#include "store/extensions/records.h"

#include <string.h>

enum { SLICE = 8 };

void rv_records_init(rv_records *records, uint32_t record_size, uint64_t seed)
{
  *records = (rv_records){.first_free = RV_NO_RECORD};
  rv_map_init(&records->index, seed);
  rv_segarray_init(&records->records, record_size, 0, 0);
}

void rv_records_fini(rv_records *records)
{
  rv_map_fini(&records->index);
  rv_segarray_fini(&records->records);
  rv_map_fini(&records->left_index);
  rv_blocks_free(&records->left);
}

static void *at(const rv_records *records, uint32_t number)
{
  char *block = records->records.block[number >> RV_SEGMENT_SHIFT];
  return block + (size_t)(number & (RV_SEGMENT_LENGTH - 1)) * records->records.element_size;
}

uint32_t rv_records_find(const rv_records *records, uint64_t key)
{
  const uint32_t *number = rv_map_get(&records->index, key);
  return number != NULL ? *number : RV_NO_RECORD;
}

uint32_t rv_records_add(rv_records *records, uint64_t key)
{
  if (rv_map_get(&records->index, key) != NULL) return RV_NO_RECORD;
  uint32_t number = records->first_free;
  if (number == RV_NO_RECORD) {
    number = records->used;
    if (number == RV_NO_RECORD || rv_segarray_grow(&records->records, (uint64_t)number + 1, NULL) != RV_OK) return RV_NO_RECORD;
  }
  if (rv_map_put(&records->index, key, number) != RV_OK) return RV_NO_RECORD;
  if (number == records->used)
    records->used++;
  else
    memcpy(&records->first_free, at(records, number), sizeof records->first_free);
  return number;
}

void rv_records_remove(rv_records *records, uint64_t key, uint32_t number)
{
  rv_map_remove(&records->index, key);
  memcpy(at(records, number), &records->first_free, sizeof records->first_free);
  records->first_free = number;
}

void rv_records_clear(rv_records *records)
{
  rv_map_fini(&records->left_index); /* usually long gone */
  records->left_index = records->index;
  rv_map_init(&records->index, records->index.hash.seed);
  rv_segarray_clear(&records->records, &records->left);
  records->used = 0;
  records->first_free = RV_NO_RECORD;
}

void rv_records_tidy(rv_records *records)
{
  rv_map_fini_some(&records->left_index, SLICE);
  rv_blocks_free_some(&records->left, SLICE);
}
