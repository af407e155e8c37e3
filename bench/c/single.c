/* Round trips of single calls on a Reverie server by one client in one thread: the next call begins a while after the answer to the one before.
 *
 * Reads lines "ADDRESS OPERATION TABLE OTHER ELEMENTS PAUSE_US SECONDS PATH", OPERATION one of those below (bench/single/client.py has the same). Writes to PATH an int64 for each call, nanoseconds. Answers
 * {"count": ..., "cpu_us": ...}, the process's time on a processor for a call and its pause. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "common.h"

enum { WARM_CALLS = 50 };

typedef struct single_job {
  char address[256], operation[24], table[32], other[32], path[512];
  int64_t elements, pause_us;
  double seconds;
} single_job;

typedef struct single_caller {
  const single_job *job;
  rv_client *client;
  rv_writer *writer; /* NULL: not needed */
  uint64_t key;      /* of an item in the table */
  int64_t calls;
  float *row;
} single_caller;

static const rv_wait patience = {.timeout_ms = 60000};

static void take_batch(single_caller *self, const char *table)
{
  rv_batch *batch;
  rv_error error;
  bench_check(rv_client_sample_batch(self->client, table, 1, RV_UNEQUAL_ERROR, &patience, &batch, &error), &error);
  bench_check(rv_batch_gather(batch, 0, self->row, (size_t)self->job->elements * sizeof(float), &error), &error);
  self->key = rv_batch_info(batch, 0)->key;
  rv_batch_free(batch);
}

/* Of two tables by turns: who asks for one again and again gets batches that were drawn ahead. */
static void sample_batch(single_caller *self)
{
  take_batch(self, self->calls % 2 == 0 ? self->job->table : self->job->other);
}

static void sample_batch_ahead(single_caller *self)
{
  take_batch(self, self->job->table);
}

static void sample(single_caller *self)
{
  rv_sampler *sampler;
  rv_sample *taken;
  rv_error error;
  rv_sampler_config config = {
      .size = sizeof config, .table = self->job->table, .max_samples = 1, .rate_limiter_timeout_ms = RV_FOREVER};
  bench_check(rv_sampler_new(self->client, &config, &sampler, &error), &error);
  bench_check(rv_sampler_next(sampler, &patience, &taken, &error), &error);
  bench_check(rv_sample_copy(taken, 0, self->row, (size_t)self->job->elements * sizeof(float), &error), &error);
  rv_sample_unref(taken);
  rv_sampler_free(sampler);
}

static void update_priorities(single_caller *self)
{
  double priority = 1.0 + (double)(self->calls & 63);
  size_t num_unknown;
  rv_error error;
  bench_check(rv_client_update_priorities(self->client, self->job->table, &self->key, &priority, 1, NULL, &num_unknown, &patience,
                                          &error),
              &error);
  if (num_unknown > 0) bench_die("the item whose priority is updated has left table %s", self->job->table);
}

static void add(single_caller *self)
{
  rv_tensor row = {RV_FLOAT32, 1, &self->job->elements, self->row};
  rv_error error;
  bench_check(rv_client_add(self->client, self->job->table, &row, 1, 1.0, NULL, &patience, &error), &error);
}

static void append_and_flush(single_caller *self)
{
  rv_cell cell = {0, {RV_FLOAT32, 1, &self->job->elements, self->row}};
  rv_run run = {.column = 0, .count = 1, .first = self->calls, .stride = 1};
  rv_item_column column = {.runs = &run, .num_runs = 1};
  rv_error error;
  bench_check(rv_writer_append(self->writer, &cell, 1, false, &error), &error);
  bench_check(rv_writer_create_item(self->writer, self->job->table, 1.0, &column, 1, NULL, &error), &error);
  bench_check(rv_writer_flush(self->writer, 0, &patience, &error), &error);
}

static void server_info(single_caller *self)
{
  rv_server_info *info;
  rv_error error;
  bench_check(rv_client_server_info(self->client, &patience, &info, &error), &error);
  rv_server_info_free(info);
}

static const struct operation {
  const char *name;
  void (*call)(single_caller *self);
} operations[] = {{"sample_batch", sample_batch},
                  {"sample_batch_ahead", sample_batch_ahead},
                  {"sample", sample},
                  {"update_priorities", update_priorities},
                  {"add", add},
                  {"writer", append_and_flush},
                  {"server_info", server_info}};

static void (*operation_of(const single_job *job))(single_caller *self)
{
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
    if (strcmp(operations[i].name, job->operation) == 0) return operations[i].call;
  bench_die("%s is no operation", job->operation);
}

static int64_t cpu_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void call_again_and_again(single_caller *self)
{
  const single_job *job = self->job;
  void (*call)(single_caller *) = operation_of(job);
  FILE *file = fopen(job->path, "wb");
  if (file == NULL) bench_die("%s cannot be written", job->path);
  struct timespec pause = {.tv_sec = job->pause_us / 1000000, .tv_nsec = job->pause_us % 1000000 * 1000};
  int64_t cpu = cpu_ns(), end = 0;
  for (self->calls = 0; self->calls < WARM_CALLS || bench_now_ns() < end; self->calls++) {
    if (self->calls == WARM_CALLS) cpu = cpu_ns();
    if (job->pause_us > 0) nanosleep(&pause, NULL);
    int64_t begin = bench_now_ns();
    call(self);
    int64_t now = bench_now_ns(), took = now - begin;
    if (self->calls < WARM_CALLS)
      end = now + (int64_t)(job->seconds * 1e9);
    else
      fwrite(&took, sizeof took, 1, file);
  }
  int64_t count = self->calls - WARM_CALLS;
  fclose(file);
  printf("{\"count\": %lld, \"cpu_us\": %.3f}\n", (long long)count,
         (double)(cpu_ns() - cpu) / 1e3 / (double)(count > 0 ? count : 1));
  fflush(stdout);
}

static void run(const single_job *job)
{
  single_caller self = {.job = job, .row = bench_alloc((size_t)job->elements * sizeof(float))};
  bench_random random = bench_random_of(1);
  rv_error error;
  bench_random_floats(&random, self.row, (size_t)job->elements);
  rv_client_config config = {.size = sizeof config, .address = job->address};
  bench_check(rv_client_new(&config, &self.client, &error), &error);
  rv_writer_config writer = {.size = sizeof writer, .num_keep_alive_refs = 1};
  if (strcmp(job->operation, "writer") == 0) bench_check(rv_writer_new(self.client, &writer, &self.writer, &error), &error);
  if (strcmp(job->operation, "update_priorities") == 0) take_batch(&self, job->table);
  call_again_and_again(&self);
  rv_writer_free(self.writer);
  rv_client_free(self.client);
  free(self.row);
}

int main(void)
{
  bench_die_with_parent();
  prctl(PR_SET_TIMERSLACK, 1); /* pauses end when they should */
  single_job job;
  while (scanf("%255s %23s %31s %31s %ld %ld %lf %511s", job.address, job.operation, job.table, job.other, &job.elements,
               &job.pause_us, &job.seconds, job.path) == 8)
    run(&job);
}
