/* Does memory creep? bench-creep fifo|min_heap CAPACITY FIRST LAST: inserts rows into a full table, and prints its resident memory after
 * FIRST and after LAST inserts: {"first_bytes": ..., "last_bytes": ..., "largest_bytes": ..., "ns": nanoseconds an insert}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"

int main(int argc, char **argv)
{
  bench_die_with_parent();
  if (argc != 5) bench_die("usage: bench-creep fifo|min_heap CAPACITY FIRST LAST");
  bool min_heap = strcmp(argv[1], "min_heap") == 0;
  buffer_shape shape = {BUFFER_TRANSITION, 16, atol(argv[2]), 256, 1, 1};
  int64_t first = atol(argv[3]), last = atol(argv[4]), first_bytes = 0, largest = 0;
  bench_buffer buffer;
  buffer_init(&buffer, &shape, RV_SELECTOR_UNIFORM, min_heap ? RV_SELECTOR_MIN_HEAP : RV_SELECTOR_FIFO);
  int64_t begin = bench_now_ns(), step = first < 1000000 ? first : 1000000;
  while (buffer.added < last) {
    buffer_fill(&buffer, step);
    int64_t now = bench_resident_bytes();
    if (now > largest) largest = now;
    if (first_bytes == 0 && buffer.added >= first) first_bytes = now;
  }
  printf("{\"first_bytes\": %ld, \"last_bytes\": %ld, \"largest_bytes\": %ld, \"ns\": %.1f}\n", (long)first_bytes,
         (long)bench_resident_bytes(), (long)largest, (double)(bench_now_ns() - begin) / (double)buffer.added);
  buffer_fini(&buffer);
}
