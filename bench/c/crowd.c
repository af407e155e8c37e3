/* A crowd of clients, which share threads for their connections, on one server.
 *
 *   bench-crowd load ADDRESS CLIENTS TABLE insert|sample SECONDS
 *
 * Each calls again and again, a row of 400 bytes at a time. Prints {"count": ..., "seconds": ..., "cpu_s": ..., "p50_us": ..., "p99_us": ..., "max_us": ...}.
 * The others then do nothing:
 *
 *   bench-crowd idle ADDRESS CLIENTS             each has asked something once
 *   bench-crowd readers ADDRESS CLIENTS TABLE    each has taken one sample, and has asked for a thousand more
 *
 * Prints {"clients": ..., "seconds": ..., "bytes_each": ...} when all are there, and ends with standard input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common.h"

/* ---- load ---- */

enum { ROW = 100, WARM = 20 };

typedef struct caller {
  rv_client *client;
  const char *table;
  bool inserts;
  pthread_barrier_t *all_warm;
  int64_t ns;     /* to call for */
  int64_t *trips; /* ns each */
  size_t count, capacity;
  pthread_t thread;
} caller;

static void call_once(const caller *self)
{
  static const int64_t length = ROW;
  float values[ROW] = {0};
  const rv_tensor row = {RV_FLOAT32, 1, &length, values};
  rv_error error;
  if (self->inserts) {
    bench_check(rv_client_add(self->client, self->table, &row, 1, 1.0, NULL, NULL, &error), &error);
    return;
  }
  rv_batch *batch;
  bench_check(rv_client_sample_batch(self->client, self->table, 1, RV_UNEQUAL_ERROR, NULL, &batch, &error), &error);
  rv_batch_free(batch);
}

static void *call_until_the_end(void *argument)
{
  caller *self = argument;
  for (int i = 0; i < WARM; i++) call_once(self);
  pthread_barrier_wait(self->all_warm);
  const int64_t end = bench_now_ns() + self->ns;
  for (int64_t start; (start = bench_now_ns()) < end;) {
    call_once(self);
    if (self->count == self->capacity) {
      self->capacity *= 2;
      self->trips = realloc(self->trips, self->capacity * sizeof *self->trips);
      if (self->trips == NULL) bench_die("no memory for the round trips");
    }
    self->trips[self->count++] = bench_now_ns() - start;
  }
  return NULL;
}

static int compare(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static void load(const char *address, rv_io *io, size_t clients, const char *table, bool inserts, double seconds)
{
  caller *callers = bench_alloc(clients * sizeof *callers);
  rv_error error;
  pthread_barrier_t all_warm;
  pthread_barrier_init(&all_warm, NULL, (unsigned)clients);
  for (size_t i = 0; i < clients; i++) {
    callers[i] =
        (caller){.table = table, .inserts = inserts, .all_warm = &all_warm, .ns = (int64_t)(seconds * 1e9), .capacity = 1024};
    callers[i].trips = bench_alloc(callers[i].capacity * sizeof *callers[i].trips);
    const rv_client_config config = {.size = sizeof config, .address = address, .io = io};
    bench_check(rv_client_new(&config, &callers[i].client, &error), &error);
    if (pthread_create(&callers[i].thread, NULL, call_until_the_end, &callers[i]) != 0) bench_die("no thread");
  }
  size_t count = 0;
  for (size_t i = 0; i < clients; i++) {
    pthread_join(callers[i].thread, NULL);
    rv_client_free(callers[i].client);
    count += callers[i].count;
  }
  pthread_barrier_destroy(&all_warm);
  int64_t *all = bench_alloc((count + 1) * sizeof *all);
  size_t at = 0;
  for (size_t i = 0; i < clients; i++) {
    memcpy(all + at, callers[i].trips, callers[i].count * sizeof *all);
    at += callers[i].count;
    free(callers[i].trips);
  }
  if (count == 0) bench_die("nothing was answered");
  qsort(all, count, sizeof *all, compare);
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  printf("{\"count\": %zu, \"seconds\": %.3f, \"cpu_s\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n", count,
         seconds, (double)used.tv_sec + (double)used.tv_nsec / 1e9, (double)all[count / 2] / 1e3,
         (double)all[count - 1 - count / 100] / 1e3, (double)all[count - 1] / 1e3);
  free(all);
  free(callers);
}

/* ---- those who do nothing ---- */

static void open_client(const char *address, rv_io *io, const char *table)
{
  rv_error error;
  rv_client *client;
  const rv_client_config config = {.size = sizeof config, .address = address, .io = io};
  bench_check(rv_client_new(&config, &client, &error), &error);
  if (table == NULL) {
    rv_server_info *info;
    bench_check(rv_client_server_info(client, NULL, &info, &error), &error);
    rv_server_info_free(info);
    return;
  }
  const rv_sampler_config sampling = {.size = sizeof sampling,
                                      .table = table,
                                      .max_samples = RV_UNLIMITED,
                                      .max_in_flight_samples = 1000,
                                      .rate_limiter_timeout_ms = RV_FOREVER};
  rv_sampler *sampler;
  rv_sample *sample;
  bench_check(rv_sampler_new(client, &sampling, &sampler, &error), &error);
  bench_check(rv_sampler_next(sampler, NULL, &sample, &error), &error);
  rv_sample_unref(sample);
}

int main(int argc, char **argv)
{
  bench_die_with_parent();
  bool loads = argc == 7 && strcmp(argv[1], "load") == 0, readers = argc == 5 && strcmp(argv[1], "readers") == 0;
  if (!loads && !readers && (argc != 4 || strcmp(argv[1], "idle") != 0)) bench_die("see the head of bench/c/crowd.c");
  rv_error error;
  rv_io *io;
  bench_check(rv_io_new(&io, &error), &error);
  long clients = strtol(argv[3], NULL, 10);
  if (loads) {
    load(argv[2], io, (size_t)clients, argv[4], strcmp(argv[5], "insert") == 0, strtod(argv[6], NULL));
    rv_io_unref(io);
    return 0;
  }
  int64_t begin = bench_now_ns(), before = bench_resident_bytes();
  for (long i = 0; i < clients; i++) open_client(argv[2], io, readers ? argv[4] : NULL);
  printf("{\"clients\": %ld, \"seconds\": %.3f, \"bytes_each\": %.0f}\n", clients, (double)(bench_now_ns() - begin) / 1e9,
         (double)(bench_resident_bytes() - before) / (double)clients);
  fflush(stdout);
  while (getchar() != EOF) continue;
  return 0;
}
