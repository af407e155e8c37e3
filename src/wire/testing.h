/* For the unit tests of this folder: seeds, flat copies that catch reads past their end, golden bytes. */
#ifndef RV_WIRE_TESTING_H
#define RV_WIRE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/random.h"
#include "wire/proto.h"

#define SPAN(text) ((rv_span){(const uint8_t *)(text), sizeof(text) - 1})

static inline uint64_t seed_of_the_run(void)
{
  const char *given = getenv("RV_TEST_SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
  print_message("seed %llu (RV_TEST_SEED repeats it)\n", (unsigned long long)seed);
  return seed;
}

/* All pieces one after another in a buffer of exactly their size; the pieces are gone. */
static inline rv_buf *flatten(rv_pieces *pieces)
{
  rv_buf *flat = rv_buf_new(pieces->bytes);
  assert_non_null(flat);
  for (size_t i = 0; i < pieces->count; i++) {
    memcpy(flat->data + flat->size, pieces->piece[i].data, pieces->piece[i].size);
    flat->size += pieces->piece[i].size;
  }
  assert_int_equal(flat->size, pieces->bytes);
  rv_pieces_fini(pieces);
  return flat;
}

static inline rv_span span_of(const rv_buf *buf)
{
  return (rv_span){buf->data, buf->size};
}

static inline rv_buf *buf_of(rv_span span)
{
  rv_buf *buf = rv_buf_copy(span.data, span.size);
  assert_non_null(buf);
  return buf;
}

/* What was written, in a buffer of exactly its size; the writer is gone. */
static inline rv_buf *written(rv_writer_buf *writer)
{
  assert_false(writer->failed);
  rv_buf *buf = buf_of((rv_span){writer->data, writer->size});
  rv_writer_buf_fini(writer);
  return buf;
}

static inline void assert_bytes(const rv_buf *got, const void *expected, size_t size)
{
  if (got->size != size || memcmp(got->data, expected, size) != 0) {
    for (size_t i = 0; i < got->size; i++) print_message("%02x%s", got->data[i], i % 16 == 15 ? "\n" : " ");
    print_message("(%zu bytes, expected %zu)\n", got->size, size);
  }
  assert_int_equal(got->size, size);
  assert_memory_equal(got->data, expected, size);
}

static inline bool span_is(rv_span span, const char *text)
{
  return span.size == strlen(text) && (span.size == 0 || memcmp(span.data, text, span.size) == 0);
}

/* A number of any size, small ones often. */
static inline uint64_t some_number(rv_random *random)
{
  return rv_random_next(random) >> rv_random_below(random, 64);
}

#endif
