/* Clients of a Reverie server, each a thread with a connection of its own (they share I/O threads, as those of a Python process do), told what
 * to do by lines on standard input:
 *
 *   ADDRESS OPERATION SAMPLER TABLES ELEMENTS FIRST CLIENTS IN_FLIGHT BATCH STEP BOARD SHARED_MEMORY
 *
 * as bench/wire/job.py's Job has them. Answers each line with {"ready": true} when all clients are made, and with {"done": true} or
 * {"error": "..."} when they have stopped. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

typedef struct wire_job {
  char address[256], operation[16], sampler[16], board_path[512];
  int64_t tables, elements, first, clients, in_flight, batch, step, shared_memory;
  bench_board board;
} wire_job;

typedef struct wire_worker {
  const wire_job *job;
  int64_t number; /* of the client, over all processes */
  rv_client *client;
  char table[32];
  float *row;
  pthread_t thread;
  rv_error error;
  rv_code code;
} wire_worker;

static const rv_wait patience = {.timeout_ms = 60000};

static bool goes_on(const wire_worker *worker)
{
  return bench_board_phase(&worker->job->board) == BENCH_GO;
}

static rv_code insert_items(rv_writer *writer, wire_worker *worker, int64_t *row, int64_t count)
{
  const wire_job *job = worker->job;
  for (int64_t i = 0; i < count; i++) {
    rv_cell cell = {0, {RV_FLOAT32, 1, &job->elements, worker->row}};
    rv_run run = {.column = 0, .count = 1, .first = *row, .stride = 1};
    rv_item_column column = {.runs = &run, .num_runs = 1};
    rv_code code = rv_writer_append(writer, &cell, 1, false, &worker->error);
    if (code == RV_OK)
      code = rv_writer_create_item(writer, worker->table, 1.0 + (double)(*row & 63), &column, 1, NULL, &worker->error);
    if (code == RV_OK) code = rv_writer_flush(writer, (uint32_t)job->in_flight, &patience, &worker->error);
    if (code != RV_OK) return code;
    ++*row;
  }
  return RV_OK;
}

static rv_code insert(wire_worker *worker)
{
  rv_writer *writer;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 1, .no_validation = true};
  rv_code code = rv_writer_new(worker->client, &config, &writer, &worker->error);
  if (code != RV_OK) return code;
  int64_t row = 0;
  while (code == RV_OK && goes_on(worker)) {
    code = insert_items(writer, worker, &row, worker->job->step);
    bench_board_count(&worker->job->board, worker->number, row);
  }
  if (code == RV_OK) code = rv_writer_flush(writer, 0, &patience, &worker->error);
  rv_writer_free(writer);
  return code;
}

static rv_code look_at(wire_worker *worker, rv_sample *sample)
{
  const volatile unsigned char *bytes = rv_sample_view(sample, 0);
  if (bytes != NULL) { /* in place: no copy to pay for, but the memory must really be there */
    (void)(bytes[0] + bytes[(size_t)worker->job->elements * sizeof(float) - 1]);
    return RV_OK;
  }
  return rv_sample_copy(sample, 0, worker->row, (size_t)worker->job->elements * sizeof(float), &worker->error);
}

static rv_code iterate(wire_worker *worker)
{
  rv_sampler *sampler;
  rv_sampler_config config = {
      .size = sizeof config, .table = worker->table, .max_samples = RV_UNLIMITED, .rate_limiter_timeout_ms = RV_FOREVER};
  rv_code code = rv_sampler_new(worker->client, &config, &sampler, &worker->error);
  if (code != RV_OK) return code;
  int64_t items = 0;
  while (code == RV_OK && goes_on(worker)) {
    for (int64_t i = 0; i < worker->job->step && code == RV_OK; i++) {
      rv_sample *sample;
      code = rv_sampler_next(sampler, &patience, &sample, &worker->error);
      if (code != RV_OK) break;
      code = look_at(worker, sample);
      rv_sample_unref(sample);
      items++;
    }
    bench_board_count(&worker->job->board, worker->number, items);
  }
  rv_sampler_free(sampler);
  return code;
}

/* Where a client's batches land, again and again. */
typedef struct wire_arrays {
  rv_batch_arrays arrays;
  void *column;
} wire_arrays;

static void drop(wire_arrays *into)
{
  rv_layout_unref((rv_layout *)into->arrays.layout);
  free(into->column);
}

/* What the items look like comes with the first batch, which is dropped. */
static rv_code make_room(wire_worker *worker, size_t size, wire_arrays *into)
{
  rv_sample_column column;
  drop(into);
  into->arrays.layout = into->arrays.found;
  into->column = NULL;
  rv_batch_free(into->arrays.drawn);
  rv_code code = rv_layout_get_column(into->arrays.layout, 0, size, &column, &worker->error);
  if (code == RV_OK) into->column = bench_alloc(column.bytes);
  return code;
}

static rv_code take_batch(wire_worker *worker, size_t size, wire_arrays *into)
{
  into->arrays.size = sizeof into->arrays;
  into->arrays.columns = &into->column;
  for (;;) {
    rv_code code = rv_client_sample_into(worker->client, worker->table, size, &into->arrays, &patience, &worker->error);
    if (code != RV_FAILED_PRECONDITION || into->arrays.found == NULL) return code;
    code = make_room(worker, size, into);
    if (code != RV_OK) return code;
  }
}

static rv_code batch(wire_worker *worker)
{
  rv_code code = RV_OK;
  wire_arrays into = {0};
  int64_t items = 0;
  while (code == RV_OK && goes_on(worker)) {
    code = take_batch(worker, (size_t)worker->job->batch, &into);
    items += worker->job->batch;
    bench_board_count(&worker->job->board, worker->number, items);
  }
  drop(&into);
  return code;
}

/* Uses the connection both ways once, and then holds it: for the memory that a client costs the server. */
static rv_code idle(wire_worker *worker)
{
  rv_writer *writer;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = 1, .no_validation = true};
  rv_code code = rv_writer_new(worker->client, &config, &writer, &worker->error);
  if (code != RV_OK) return code;
  int64_t row = 0;
  wire_arrays into = {0};
  code = insert_items(writer, worker, &row, 1);
  if (code == RV_OK) code = rv_writer_flush(writer, 0, &patience, &worker->error);
  if (code == RV_OK) code = take_batch(worker, 1, &into);
  bench_board_count(&worker->job->board, worker->number, 1);
  while (code == RV_OK && goes_on(worker)) usleep(20000);
  drop(&into);
  rv_writer_free(writer);
  return code;
}

static void *work(void *argument)
{
  wire_worker *worker = argument;
  const char *operation = worker->job->operation;
  if (strcmp(operation, "both") == 0) operation = worker->number % 2 == 0 ? "insert" : "iterate";
  if (strcmp(operation, "insert") == 0)
    worker->code = insert(worker);
  else if (strcmp(operation, "iterate") == 0)
    worker->code = iterate(worker);
  else if (strcmp(operation, "batch") == 0)
    worker->code = batch(worker);
  else
    worker->code = idle(worker);
  return NULL;
}

static bool read_job(wire_job *job)
{
  char line[2048];
  if (fgets(line, sizeof line, stdin) == NULL) return false;
  if (sscanf(line, "%255s %15s %15s %ld %ld %ld %ld %ld %ld %ld %511s %ld", job->address, job->operation, job->sampler,
             &job->tables, &job->elements, &job->first, &job->clients, &job->in_flight, &job->batch, &job->step, job->board_path,
             &job->shared_memory) != 12)
    bench_die("not a job: %s", line);
  return true;
}

static void run_job(wire_job *job, rv_io *io)
{
  job->board = bench_board_open(job->board_path);
  wire_worker *workers = bench_alloc((size_t)job->clients * sizeof *workers);
  pthread_attr_t attributes; /* 2,000 clients: small stacks */
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  for (int64_t i = 0; i < job->clients; i++) {
    wire_worker *worker = &workers[i];
    worker->job = job;
    worker->number = job->first + i;
    if (job->tables > 1)
      snprintf(worker->table, sizeof worker->table, "%s%d", job->sampler, (int)(worker->number % job->tables));
    else
      snprintf(worker->table, sizeof worker->table, "%s", job->sampler);
    bench_random random = bench_random_of((uint64_t)worker->number);
    worker->row = bench_alloc((size_t)job->elements * sizeof(float));
    bench_random_floats(&random, worker->row, (size_t)job->elements);
    rv_error error;
    rv_client_config config = {
        .size = sizeof config, .address = job->address, .io = io, .no_shared_memory = job->shared_memory == 0};
    bench_check(rv_client_new(&config, &worker->client, &error), &error);
  }
  printf("{\"ready\": true}\n");
  fflush(stdout);
  bench_board_wait(&job->board); /* here, not in 500 threads that keep the machine busy by asking */
  for (int64_t i = 0; i < job->clients; i++)
    if (pthread_create(&workers[i].thread, &attributes, work, &workers[i]) != 0) bench_die("no thread for client %ld", (long)i);
  pthread_attr_destroy(&attributes);
  const wire_worker *failed = NULL;
  for (int64_t i = 0; i < job->clients; i++) {
    pthread_join(workers[i].thread, NULL);
    if (workers[i].code != RV_OK) failed = &workers[i];
  }
  if (failed != NULL) bench_die("client %ld: %s: %s", (long)failed->number, rv_code_name(failed->code), failed->error.message);
  for (int64_t i = 0; i < job->clients; i++) {
    rv_client_free(workers[i].client);
    free(workers[i].row);
  }
  free(workers);
  printf("{\"done\": true}\n");
  fflush(stdout);
}

int main(void)
{
  bench_die_with_parent();
  wire_job job;
  rv_io *io;
  rv_error error;
  bench_check(rv_io_new(&io, &error), &error);
  while (read_job(&job)) run_job(&job, io);
  rv_io_unref(io);
}
