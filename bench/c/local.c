/* One store in process, timed from C: bench-local reverie|machine KIND OBS_BYTES CAPACITY BATCH LENGTH PERIOD.
 *
 * Reads lines "OPERATION SECONDS" and answers each with {"us": ..., "cpu_us": ...}, as bench/local/worker.py does; "us" is null where there is
 * no such operation. "machine" is bare copies of the same bytes. The first line that Reverie prints tells by how many bytes an item memory grew
 * beyond the data while the uniform table was filled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copies.h"

typedef void call(void *context);

static void answer(call *function, void *context, double seconds)
{
  if (function == NULL) {
    printf("{\"us\": null}\n");
  } else {
    bench_timing timing = bench_time_calls(function, context, seconds);
    printf("{\"us\": %.5f, \"cpu_us\": %.5f}\n", timing.ns / 1e3, timing.cpu_ns / 1e3);
  }
  fflush(stdout);
}

static bool read_request(char operation[32], double *seconds)
{
  return scanf("%31s %lf", operation, seconds) == 2;
}

static void serve_copies(const buffer_shape *shape)
{
  bench_copies copies;
  copies_init(&copies, shape);
  printf("{\"ready\": \"\"}\n");
  fflush(stdout);
  char operation[32];
  double seconds;
  while (read_request(operation, &seconds)) {
    call *function = NULL;
    if (strcmp(operation, "add") == 0) function = copies_add;
    if (strcmp(operation, "add_batch") == 0) function = copies_add_batch;
    if (strcmp(operation, "sample") == 0) function = copies_sample;
    if (strcmp(operation, "gather") == 0 && (shape->kind == BUFFER_TRANSITION || shape->kind == BUFFER_SEQUENCE))
      function = copies_gather;
    answer(function, &copies, seconds);
  }
  copies_fini(&copies);
}

static void serve_reverie(const buffer_shape *shape)
{
  bench_buffer uniform, prioritized;
  buffer_init(&uniform, shape, RV_SELECTOR_UNIFORM, RV_SELECTOR_FIFO);
  int64_t empty = bench_anonymous_bytes();
  buffer_fill(&uniform, shape->capacity);
  int64_t grown = bench_anonymous_bytes() - empty, stored = buffer_stored_bytes(shape);
  bool rows = shape->kind == BUFFER_TRANSITION;
  if (rows) {
    buffer_init(&prioritized, shape, RV_SELECTOR_PRIORITIZED, RV_SELECTOR_FIFO);
    buffer_fill(&prioritized, shape->capacity);
    buffer_sample(&prioritized);
  }
  printf("{\"ready\": \"%s\", \"overhead_bytes\": %.2f}\n", rv_version(), (double)(grown - stored) / (double)buffer_items(shape));
  fflush(stdout);
  char operation[32];
  double seconds;
  while (read_request(operation, &seconds)) {
    if (strcmp(operation, "add") == 0)
      answer(buffer_add, &uniform, seconds);
    else if (strcmp(operation, "sample") == 0)
      answer(buffer_sample, &uniform, seconds);
    else if (rows && strcmp(operation, "add_batch") == 0)
      answer(buffer_add_batch, &uniform, seconds);
    else if (rows && strcmp(operation, "prioritized_sample") == 0)
      answer(buffer_sample, &prioritized, seconds);
    else if (rows && strcmp(operation, "update_priorities") == 0)
      answer(buffer_update, &prioritized, seconds);
    else
      answer(NULL, NULL, seconds);
  }
  buffer_fini(&uniform);
  if (rows) buffer_fini(&prioritized);
}

int main(int argc, char **argv)
{
  bench_die_with_parent();
  if (argc != 8) bench_die("usage: bench-local reverie|machine KIND OBS_BYTES CAPACITY BATCH LENGTH PERIOD");
  buffer_shape shape = {buffer_kind_of(argv[2]), atol(argv[3]), atol(argv[4]), atol(argv[5]), atol(argv[6]), atol(argv[7])};
  if (strcmp(argv[1], "machine") == 0)
    serve_copies(&shape);
  else
    serve_reverie(&shape);
}
