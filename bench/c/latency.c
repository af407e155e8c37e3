/* Round trips of single operations on a Reverie server, begun on a schedule that does not wait for answers.
 *
 * Reads lines "ADDRESS OPERATION TABLE ELEMENTS CLIENTS RATE SECONDS PATH", OPERATION one of insert and sample. RATE, operations a second
 * over all clients, 0: one after another, as fast as they go. Writes to PATH, for each operation, two int64: nanoseconds from the
 * intended and from the actual start to the answer. Answers {"count": ..., "seconds": ...}. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "common.h"

typedef struct trip {
  int64_t from_intended, from_start;
} trip;

typedef struct trip_request {
  char address[256], operation[16], table[32], path[512];
  int64_t elements, clients;
  double rate, seconds;
} trip_request;

typedef struct caller {
  const trip_request *request;
  int64_t number, begin; /* ns: when all callers begin */
  rv_client *client;
  float *row;
  trip *trips;
  int64_t num_trips, capacity, end;
  pthread_t thread;
} caller;

static void call_once(caller *self)
{
  const trip_request *request = self->request;
  rv_error error;
  if (strcmp(request->operation, "insert") == 0) {
    rv_tensor row = {RV_FLOAT32, 1, &request->elements, self->row};
    bench_check(rv_client_add(self->client, request->table, &row, 1, 1.0, NULL, NULL, &error), &error);
    return;
  }
  rv_batch *batch;
  rv_sample_column column;
  bench_check(rv_client_sample_batch(self->client, request->table, 1, RV_UNEQUAL_ERROR, NULL, &batch, &error), &error);
  bench_check(rv_batch_column(batch, 0, &column, &error), &error);
  bench_check(rv_batch_gather(batch, 0, self->row, column.bytes, &error), &error);
  rv_batch_free(batch);
}

static void wait_until(int64_t at)
{
  struct timespec then = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
}

static void note(caller *self, int64_t intended, int64_t start, int64_t now)
{
  if (self->num_trips == self->capacity) {
    self->capacity *= 2;
    self->trips = realloc(self->trips, (size_t)self->capacity * sizeof *self->trips);
    if (self->trips == NULL) bench_die("no memory for the round trips");
  }
  self->trips[self->num_trips++] = (trip){now - intended, now - start};
}

static void *call_on_schedule(void *context)
{
  caller *self = context;
  const trip_request *request = self->request;
  int64_t end = self->begin + (int64_t)(request->seconds * 1e9);
  double gap = request->rate > 0 ? 1e9 * (double)request->clients / request->rate : 0;
  /* Callers are spread over the gap, so that they do not all ask at once. */
  double next = (double)self->begin + gap * (double)self->number / (double)request->clients;
  wait_until(self->begin);
  for (;;) {
    int64_t intended = (int64_t)next;
    if (gap > 0 && intended > bench_now_ns()) wait_until(intended);
    int64_t start = bench_now_ns();
    if ((gap > 0 ? intended : start) >= end) break;
    if (start > end + (int64_t)5e9) break; /* it cannot keep up: what was late so far tells it */
    call_once(self);
    note(self, gap > 0 ? intended : start, start, bench_now_ns());
    next += gap;
  }
  self->end = bench_now_ns();
  return NULL;
}

static void run(const trip_request *request)
{
  caller *callers = bench_alloc((size_t)request->clients * sizeof *callers);
  rv_error error;
  for (int64_t i = 0; i < request->clients; i++) {
    caller *self = &callers[i];
    *self = (caller){.request = request, .number = i, .capacity = 1 << 16};
    self->trips = bench_alloc((size_t)self->capacity * sizeof *self->trips);
    self->row = bench_alloc((size_t)request->elements * sizeof(float));
    rv_client_config config = {.size = sizeof config, .address = request->address};
    bench_check(rv_client_new(&config, &self->client, &error), &error);
    for (int warm = 0; warm < 20; warm++) call_once(self);
  }
  int64_t begin = bench_now_ns() + 20000000, end = begin, count = 0;
  for (int64_t i = 0; i < request->clients; i++) {
    callers[i].begin = begin;
    if (pthread_create(&callers[i].thread, NULL, call_on_schedule, &callers[i]) != 0) bench_die("no thread");
  }
  FILE *file = fopen(request->path, "wb");
  if (file == NULL) bench_die("%s cannot be written", request->path);
  for (int64_t i = 0; i < request->clients; i++) {
    caller *self = &callers[i];
    pthread_join(self->thread, NULL);
    fwrite(self->trips, sizeof(trip), (size_t)self->num_trips, file);
    count += self->num_trips;
    if (self->end > end) end = self->end;
    rv_client_free(self->client);
    free(self->trips);
    free(self->row);
  }
  fclose(file);
  free(callers);
  printf("{\"count\": %ld, \"seconds\": %.6f}\n", (long)count, (double)(end - begin) / 1e9);
  fflush(stdout);
}

int main(void)
{
  bench_die_with_parent();
  prctl(PR_SET_TIMERSLACK, 1);
  trip_request request;
  while (scanf("%255s %15s %31s %ld %ld %lf %lf %511s", request.address, request.operation, request.table, &request.elements,
               &request.clients, &request.rate, &request.seconds, request.path) == 8)
    run(&request);
}
