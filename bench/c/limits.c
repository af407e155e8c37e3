/* What the machine can do without any store:
 *
 *   bench-limits loopback tcp|unix plain|insert|sample IO_BYTES SECONDS
 *                              MB/s that one process sends another with sends and receives of so many bytes, and processor seconds of
 *                              both for a GB: one buffer again and again, or with the memory that an insert or a sample needs (loopback.h)
 *   bench-limits pingpong tcp|unix hot|idle SECONDS
 *                              microseconds of a round trip of 64 bytes: 50th, 90th, 99th and 99.9th percentile
 *   bench-limits memcpy SECONDS
 *                              MB/s of one core copying 64 MiB
 *   bench-limits late RATE SECONDS
 *                              nanoseconds by which a thread of the highest real-time priority, on each core, is woken later than it asked
 *                              for, RATE times a second: what no program of this machine can do anything about. Needs CAP_SYS_NICE
 *
 * Prints one JSON object. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "loopback.h"

static void loopback(const char *kind, const char *flow, size_t io, double seconds)
{
  bench_flow chosen = strcmp(flow, "insert") == 0   ? BENCH_FLOW_INSERT
                      : strcmp(flow, "sample") == 0 ? BENCH_FLOW_SAMPLE
                                                    : BENCH_FLOW_PLAIN;
  bench_stream moved = bench_loopback(kind, chosen, io, seconds);
  printf("{\"MBps\": %.1f, \"cpu_s_per_gb\": %.4f}\n", moved.mbps, moved.cpu_s_per_gb);
}

enum { PING_BYTES = 64, TRIPS_MAX = 1 << 20 };

static void answer_until_closed(int socket)
{
  char data[PING_BYTES];
  while (recv(socket, data, sizeof data, MSG_WAITALL) == sizeof data && send(socket, data, sizeof data, MSG_NOSIGNAL) > 0) {
  }
  _exit(0);
}

static int compare(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void pingpong(const char *kind, bool idle, double seconds)
{
  int pair[2];
  bench_connect_pair(kind, pair);
  pid_t child = fork();
  if (child < 0) bench_die("no process");
  if (child == 0) {
    bench_die_with_parent();
    close(pair[0]);
    answer_until_closed(pair[1]);
  }
  close(pair[1]);
  int64_t *trips = bench_alloc(TRIPS_MAX * sizeof *trips), end = bench_now_ns() + (int64_t)(seconds * 1e9);
  size_t count = 0;
  char data[PING_BYTES] = {0};
  while (bench_now_ns() < end && count < TRIPS_MAX) {
    if (idle) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    int64_t begin = bench_now_ns();
    if (send(pair[0], data, sizeof data, MSG_NOSIGNAL) != sizeof data ||
        recv(pair[0], data, sizeof data, MSG_WAITALL) != sizeof data)
      bench_die("the other end is gone");
    trips[count++] = bench_now_ns() - begin;
  }
  close(pair[0]);
  waitpid(child, NULL, 0);
  qsort(trips, count, sizeof *trips, compare);
  printf("{\"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f, \"p99.9_us\": %.2f}\n", (double)trips[count / 2] / 1e3,
         (double)trips[count * 90 / 100] / 1e3, (double)trips[count * 99 / 100] / 1e3, (double)trips[count * 999 / 1000] / 1e3);
  free(trips);
}

static double copy_memory(double seconds)
{
  size_t size = 64 << 20;
  char *source = bench_alloc(size), *target = bench_alloc(size);
  memset(source, 1, size);
  memset(target, 1, size);
  int64_t begin = bench_now_ns(), now = begin, copies = 0;
  while ((double)(now - begin) < seconds * 1e9) {
    memcpy(target, source, size);
    source[copies % 100] = target[copies % 99]; /* so that the copies are not thought useless */
    copies++;
    now = bench_now_ns();
  }
  free(source);
  free(target);
  return (double)copies * (double)size * 1e3 / (double)(now - begin);
}

typedef struct sleeper {
  pthread_t thread;
  int core;
  int64_t interval, end;
  int64_t *late;
  size_t count, capacity;
} sleeper;

static void *sleep_on_core(void *context)
{
  sleeper *own = context;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)own->core, &set);
  struct sched_param param = {.sched_priority = sched_get_priority_max(SCHED_FIFO)};
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) return NULL;
  if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) != 0) return NULL;
  for (int64_t due = bench_now_ns() + own->interval; due < own->end && own->count < own->capacity; due += own->interval) {
    struct timespec until = {due / 1000000000, due % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    own->late[own->count++] = bench_now_ns() - due;
  }
  return own;
}

static void wake_late(double rate, double seconds)
{
  int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  sleeper *sleepers = bench_alloc((size_t)cores * sizeof *sleepers);
  for (int i = 0; i < cores; i++) {
    sleepers[i] = (sleeper){.core = i, .interval = (int64_t)(1e9 / rate), .capacity = (size_t)(rate * seconds) + 1};
    sleepers[i].end = bench_now_ns() + (int64_t)(seconds * 1e9);
    sleepers[i].late = bench_alloc(sleepers[i].capacity * sizeof *sleepers[i].late);
    if (pthread_create(&sleepers[i].thread, NULL, sleep_on_core, &sleepers[i]) != 0) bench_die("no thread");
  }
  bool allowed = true;
  const char *separator = "{\"late_ns\": [";
  for (int i = 0; i < cores; i++) {
    void *ran;
    pthread_join(sleepers[i].thread, &ran);
    allowed = allowed && ran != NULL;
  }
  if (!allowed) bench_die("this user may not have a thread of a real-time priority (CAP_SYS_NICE)");
  for (int i = 0; i < cores; i++) {
    for (size_t k = 0; k < sleepers[i].count; k++, separator = ",") printf("%s%lld", separator, (long long)sleepers[i].late[k]);
    free(sleepers[i].late);
  }
  printf("%s]}\n", separator[0] == ',' ? "" : separator);
  free(sleepers);
}

int main(int argc, char **argv)
{
  bench_die_with_parent();
  if (argc == 6 && strcmp(argv[1], "loopback") == 0)
    loopback(argv[2], argv[3], (size_t)atol(argv[4]), atof(argv[5]));
  else if (argc == 5 && strcmp(argv[1], "pingpong") == 0)
    pingpong(argv[2], strcmp(argv[3], "idle") == 0, atof(argv[4]));
  else if (argc == 3 && strcmp(argv[1], "memcpy") == 0)
    printf("{\"MBps\": %.1f}\n", copy_memory(atof(argv[2])));
  else if (argc == 4 && strcmp(argv[1], "late") == 0)
    wake_late(atof(argv[2]), atof(argv[3]));
  else
    bench_die("usage: bench-limits loopback|pingpong|memcpy|late ... (see limits.c)");
}
