/* A load in C: a trajectory writer to the table "best", which keeps a ledger as the loads in Python do (ledger.py).
 *
 *     writer ADDRESS STREAM LEDGER
 *
 * A line "stop" on the standard input ends it with status 0 once all is confirmed; the input's end at once. What must not be
 * (an error that no fault explains, a call that lasts longer than it may) it says on stderr, and ends with status 1. */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "reverie/reverie.h"

enum {
  WIDTH = 56,
  SEQUENCE_BITS = 28,
  ID_BITS = 38,
  PATIENCE_MS = 8000,
  SLACK_MS = 1500,
  MAX_AT_ONCE = 200,
  ID_COLUMN = 0,
  PAYLOAD_COLUMN = 1
};

static const uint64_t scramble = 0x9E3779B97; /* items.py has the same */

static double seconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* How long this process got no processor, or was stopped: seen by a thread that looks at the clock, as in loads/load.py. */
typedef struct watch {
  pthread_mutex_t lock;
  double starved, at;
} watch;

static const double look_every = 0.05;

/* Until `now`, also what the thread does not know yet. */
static double starved_at(watch *one, double now, bool looks)
{
  pthread_mutex_lock(&one->lock);
  double gap = now - one->at, starved = one->starved + (gap > 3 * look_every ? gap - look_every : 0);
  if (looks) {
    one->starved = starved;
    one->at = now;
  }
  pthread_mutex_unlock(&one->lock);
  return starved;
}

static void *look(void *argument)
{
  const struct timespec pause = {.tv_nsec = (long)(look_every * 1e9)};
  for (;;) {
    nanosleep(&pause, NULL);
    starved_at(argument, seconds(), true);
  }
  return NULL;
}

static void put(int ledger, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(int ledger, const char *format, ...)
{
  char line[128];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (write(ledger, line, (size_t)n) != n) abort();
}

static void fail(const char *what, rv_code code, const rv_error *err)
{
  fprintf(stderr, "%s: %s: %s\n", what, rv_code_name(code), err->message);
  exit(1);
}

static void fill(int64_t id, uint8_t *row)
{
  for (uint64_t i = 1; i <= WIDTH; i++) row[i - 1] = (uint8_t)((uint64_t)id * (i * UINT64_C(0x9E3779B97F4A7C15)) >> 56);
}

/* Is there a line? The input's end ends the program. */
static bool shall_stop(void)
{
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  char line[16];
  if (poll(&input, 1, 0) <= 0) return false;
  if (read(STDIN_FILENO, line, sizeof line) <= 0) _exit(0);
  return true;
}

static void append(rv_writer *writer, int64_t id, int64_t step)
{
  rv_error err;
  uint8_t payload[WIDTH];
  const int64_t shape[] = {WIDTH};
  fill(id, payload);
  const rv_cell cells[] = {
      {.column = ID_COLUMN, .value = {.dtype = RV_INT64, .data = &id}},
      {.column = PAYLOAD_COLUMN, .value = {.dtype = RV_UINT8, .rank = 1, .shape = shape, .data = payload}},
  };
  rv_code code = rv_writer_append(writer, cells, 2, false, &err);
  if (code != RV_OK) fail("append", code, &err);
  const uint32_t length = step < 1 ? 1 : 2;
  const rv_run runs[] = {{.column = ID_COLUMN, .count = length, .first = step + 1 - length, .stride = 1},
                         {.column = PAYLOAD_COLUMN, .count = length, .first = step + 1 - length, .stride = 1}};
  const rv_item_column columns[] = {{.runs = &runs[0], .num_runs = 1}, {.runs = &runs[1], .num_runs = 1}};
  double priority = (double)((uint64_t)id * scramble & ((UINT64_C(1) << ID_BITS) - 1));
  code = rv_writer_create_item(writer, "best", priority, columns, 2, NULL, &err);
  if (code != RV_OK) fail("create_item", code, &err);
}

static void flush(rv_writer *writer, watch *watched)
{
  const rv_wait wait = {.timeout_ms = PATIENCE_MS};
  for (;;) {
    rv_error err;
    double began = seconds(), starved = starved_at(watched, began, false);
    rv_code code = rv_writer_flush(writer, 0, &wait, &err);
    double ended = seconds(), waited = ended - began - (starved_at(watched, ended, false) - starved);
    if (waited * 1000 > PATIENCE_MS + SLACK_MS) fprintf(stderr, "late: flush took %.1f s\n", waited);
    if (code == RV_OK) return;
    if (code != RV_DEADLINE_EXCEEDED && code != RV_UNAVAILABLE) fail("flush", code, &err);
  }
}

int main(int argc, char **argv)
{
  if (argc != 4) {
    fprintf(stderr, "usage: %s ADDRESS STREAM LEDGER\n", argv[0]);
    return 2;
  }
  rv_error err;
  int64_t stream = atoll(argv[2]), next = 1, step = 0;
  int ledger = open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (ledger < 0) return 2;
  const rv_client_config config = {.size = sizeof config, .address = argv[1]};
  const rv_writer_config writing = {.size = sizeof writing, .num_keep_alive_refs = 4};
  rv_client *client;
  rv_writer *writer;
  rv_code code = rv_client_new(&config, &client, &err);
  if (code != RV_OK) fail("client", code, &err);
  code = rv_writer_new(client, &writing, &writer, &err);
  if (code != RV_OK) fail("writer", code, &err);
  watch watched = {.lock = PTHREAD_MUTEX_INITIALIZER, .at = seconds()};
  pthread_t watcher;
  if (pthread_create(&watcher, NULL, look, &watched) != 0) return 2;
  rv_random random;
  rv_random_init(&random, (uint64_t)stream);
  while (!shall_stop()) {
    int64_t n = 1 + (int64_t)rv_random_below(&random, MAX_AT_ONCE);
    double since = seconds();
    put(ledger, "I %.6f %" PRId64 " %" PRId64 "\n", since, next, next + n - 1);
    for (int64_t i = 0; i < n; i++, step++) append(writer, (stream << SEQUENCE_BITS) + next + i, step);
    flush(writer, &watched);
    put(ledger, "C %.6f %" PRId64 " %" PRId64 " %.6f\n", seconds(), next, next + n - 1, since);
    next += n;
  }
  pthread_cancel(watcher);
  pthread_join(watcher, NULL);
  rv_writer_free(writer);
  rv_client_free(client);
  close(ledger);
  return 0;
}
