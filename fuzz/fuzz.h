/* What every fuzz target shares. A target is one file with LLVMFuzzerTestOneInput, as libFuzzer calls it; without clang, replay.c
 * drives it. */
#ifndef RV_FUZZ_H
#define RV_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stops at a promise that was broken, in every build. */
#define RV_FUZZ_CHECK(condition)                                                                                                 \
  do {                                                                                                                           \
    if (!(condition)) {                                                                                                          \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                                             \
      abort();                                                                                                                   \
    }                                                                                                                            \
  } while (0)

/* A parse either succeeds or leaves a sentence with its code, which is text, whatever the bytes were. */
static inline void rv_fuzz_check_failure(rv_code code, const rv_error *err)
{
  if (code == RV_OK) return;
  RV_FUZZ_CHECK(err->code == code);
  RV_FUZZ_CHECK(memchr(err->message, '\0', sizeof err->message) != NULL && err->message[0] != '\0');
  RV_FUZZ_CHECK(rv_utf8_valid((rv_span){(const uint8_t *)err->message, strlen(err->message)}));
}

/* Decodes what a chunk holds, as far as that is small. */
static inline void rv_fuzz_read_chunk(rv_chunk *chunk)
{
  enum { LIMIT = 1 << 20 };
  rv_error err;
  for (size_t i = 0; i < rv_chunk_num_columns(chunk); i++) {
    const rv_chunk_column *column = rv_chunk_get_column(chunk, i);
    int64_t rows = rv_chunk_num_rows(chunk, i);
    if (rows > LIMIT || column->row_bytes > LIMIT || (size_t)rows * column->row_bytes > LIMIT) continue;
    void *copy = malloc((size_t)rows * column->row_bytes + 1);
    if (copy == NULL) continue;
    rv_code code = rv_chunk_copy_rows(chunk, i, 0, rows, copy, &err);
    rv_fuzz_check_failure(code, &err);
    free(copy);
  }
}

#endif
