#include "copies.h"

#include <stdlib.h>
#include <string.h>

enum { PLACES = 1 << 22 };

void copies_init(bench_copies *copies, const buffer_shape *shape)
{
  *copies = (bench_copies){.num_rows = shape->capacity, .num_pieces = shape->batch};
  copies->row_bytes = (size_t)(shape->obs_bytes + 13);
  switch (shape->kind) {
  case BUFFER_TRANSITION: copies->row_bytes = copies->piece_bytes = (size_t)buffer_item_bytes(shape); break;
  case BUFFER_SEQUENCE: copies->piece_bytes = copies->row_bytes * (size_t)shape->length; break;
  case BUFFER_NEXT:
  case BUFFER_NSTEP: copies->piece_bytes = (size_t)buffer_item_bytes(shape); break;
  case BUFFER_FRAMESTACK:
    copies->piece_bytes = copies->row_bytes * (size_t)shape->length;
    copies->num_pieces *= 2;
    break;
  }
  const size_t columns[BUFFER_COLUMNS_MAX] = {(size_t)shape->obs_bytes, 8, 4, 1,
                                              shape->kind == BUFFER_TRANSITION ? (size_t)shape->obs_bytes : 0};
  memcpy(copies->column_bytes, columns, sizeof columns);
  copies->column_rows = shape->kind == BUFFER_SEQUENCE ? (size_t)shape->length : 1;
  size_t size = copies->row_bytes * (size_t)copies->num_rows + copies->piece_bytes;
  copies->rows = bench_alloc(size);
  memset(copies->rows, 1, size);
  copies->row = bench_alloc(copies->row_bytes * BUFFER_ADD_BATCH);
  memset(copies->row, 2, copies->row_bytes * BUFFER_ADD_BATCH);
  copies->out = bench_alloc(copies->piece_bytes * (size_t)copies->num_pieces);
  copies->num_turns = PLACES / copies->num_pieces;
  int64_t num_places = copies->num_turns * copies->num_pieces;
  copies->places = bench_alloc((size_t)num_places * sizeof *copies->places);
  bench_random random = bench_random_of(3);
  for (int64_t i = 0; i < num_places; i++) copies->places[i] = (uint32_t)bench_random_below(&random, (uint64_t)copies->num_rows);
}

void copies_fini(bench_copies *copies)
{
  for (int c = 0; c < BUFFER_COLUMNS_MAX; c++) {
    free(copies->columns[c]);
    free(copies->outs[c]);
  }
  free(copies->rows);
  free(copies->row);
  free(copies->out);
  free(copies->places);
}

static void write_rows(bench_copies *copies, int64_t count)
{
  if (copies->next + count > copies->num_rows) copies->next = 0;
  memcpy(copies->rows + (size_t)copies->next * copies->row_bytes, copies->row, copies->row_bytes * (size_t)count);
  copies->next += count;
}

void copies_add(void *context)
{
  write_rows(context, 1);
}

void copies_add_batch(void *context)
{
  write_rows(context, BUFFER_ADD_BATCH);
}

void copies_sample(void *context)
{
  bench_copies *copies = context;
  copies->turn = (copies->turn + 1) % copies->num_turns;
  const uint32_t *places = copies->places + (size_t)copies->turn * (size_t)copies->num_pieces;
  unsigned char *out = copies->out;
  for (int64_t i = 0; i < copies->num_pieces; i++, out += copies->piece_bytes)
    memcpy(out, copies->rows + places[i] * copies->row_bytes, copies->piece_bytes);
}

static void make_columns(bench_copies *copies)
{
  for (int c = 0; c < BUFFER_COLUMNS_MAX; c++) {
    size_t bytes = copies->column_bytes[c], size = bytes * ((size_t)copies->num_rows + copies->column_rows);
    if (bytes == 0) continue;
    copies->columns[c] = bench_alloc(size);
    memset(copies->columns[c], 3, size);
    copies->outs[c] = bench_alloc(bytes * copies->column_rows * (size_t)copies->num_pieces);
  }
}

/* The sizes that rows have here are written out, as in any plain buffer that knows its columns. */
#define GATHER_EACH(bytes)                                                                                                       \
  case bytes:                                                                                                                    \
    for (int64_t i = 0; i < n; i++) memcpy(out + i * bytes, from + (size_t)places[i] * bytes, bytes);                            \
    return

static void gather_column(unsigned char *out, const unsigned char *from, const uint32_t *places, int64_t n, size_t bytes,
                          size_t rows)
{
  switch (rows == 1 ? bytes : 0) {
    GATHER_EACH(1);
    GATHER_EACH(4);
    GATHER_EACH(8);
    GATHER_EACH(16);
  default: break;
  }
  for (int64_t i = 0; i < n; i++) memcpy(out + (size_t)i * bytes * rows, from + places[i] * bytes, bytes * rows);
}

void copies_gather(void *context)
{
  bench_copies *copies = context;
  if (copies->columns[0] == NULL) make_columns(copies);
  copies->turn = (copies->turn + 1) % copies->num_turns;
  const uint32_t *places = copies->places + (size_t)copies->turn * (size_t)copies->num_pieces;
  for (int c = 0; c < BUFFER_COLUMNS_MAX; c++)
    if (copies->columns[c] != NULL)
      gather_column(copies->outs[c], copies->columns[c], places, copies->num_pieces, copies->column_bytes[c],
                    copies->column_rows);
}
