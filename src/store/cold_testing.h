/* Places of chunks that have moved nowhere but to other memory: for tests of what moves, without a file. */
#ifndef RV_STORE_COLD_TESTING_H
#define RV_STORE_COLD_TESTING_H

#include <stdlib.h>
#include <string.h>

#include "store/cold.h"

static inline int rv_test_read(const rv_cold_place *place, const uint8_t *from, void *to, size_t size)
{
  (void)place;
  memcpy(to, from, size);
  return 0;
}
static inline int rv_test_bring(const rv_cold_place *place, const uint8_t *from, size_t size)
{
  (void)place, (void)from, (void)size;
  return 0;
}
static inline void rv_test_ask(const rv_cold_place *place, const uint8_t *from, size_t size)
{
  (void)place, (void)from, (void)size;
}

static inline void rv_test_release(rv_buf *buf)
{
  free(buf->data);
  free(buf);
}

static inline rv_cold_place *rv_test_place(const uint8_t *bytes, size_t size)
{
  rv_cold_place *place = calloc(1, sizeof *place);
  place->buf = (rv_buf){.size = size, .capacity = size, .release = rv_test_release, .data = malloc(size)};
  atomic_init(&place->buf.refs, 1);
  memcpy(place->buf.data, bytes, size);
  place->directory = "memory";
  place->read = rv_test_read;
  place->bring = rv_test_bring;
  place->ask = rv_test_ask;
  return place;
}

#endif
