/* What the machine can do without any store:
 *
 *   bench-limits loopback tcp|unix IO_BYTES SECONDS   MB/s that one process sends another with plain send and recv of so many bytes
 *   bench-limits pingpong tcp|unix hot|idle SECONDS   microseconds of a round trip of 64 bytes: median and 99th percentile
 *   bench-limits memcpy SECONDS                       MB/s of one core copying 64 MiB
 *
 * Prints one JSON object. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

/* Two connected sockets of that kind. */
static void connect_pair(const char *kind, int pair[2])
{
  if (strcmp(kind, "unix") == 0) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) bench_die("no socket pair");
    return;
  }
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&address, &length) != 0)
    bench_die("loopback cannot be listened on");
  pair[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (pair[0] < 0 || connect(pair[0], (struct sockaddr *)&address, length) != 0) bench_die("loopback cannot be connected to");
  pair[1] = accept(listener, NULL, NULL);
  if (pair[1] < 0) bench_die("loopback does not accept");
  close(listener);
  for (int i = 0; i < 2; i++) setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

static void send_until_closed(int socket, size_t size)
{
  char *data = bench_alloc(size);
  memset(data, 1, size);
  while (send(socket, data, size, MSG_NOSIGNAL) > 0) {
  }
  _exit(0);
}

static double loopback(const char *kind, size_t size, double seconds)
{
  int pair[2];
  connect_pair(kind, pair);
  pid_t child = fork();
  if (child < 0) bench_die("no process");
  if (child == 0) {
    bench_die_with_parent();
    close(pair[0]);
    send_until_closed(pair[1], size);
  }
  close(pair[1]);
  char *buffer = bench_alloc(size);
  int64_t warm = bench_now_ns() + (int64_t)(seconds * 0.2e9), begin = 0, end = 0, received = 0;
  for (;;) {
    ssize_t count = recv(pair[0], buffer, size, 0);
    if (count <= 0) bench_die("the sender ended early");
    int64_t now = bench_now_ns();
    if (begin == 0) {
      if (now < warm) continue;
      begin = now;
      end = now + (int64_t)(seconds * 1e9);
      continue;
    }
    received += count;
    if (now >= end) {
      end = now;
      break;
    }
  }
  close(pair[0]);
  waitpid(child, NULL, 0);
  free(buffer);
  return (double)received * 1e3 / (double)(end - begin);
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
  connect_pair(kind, pair);
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
  printf("{\"p50_us\": %.2f, \"p99_us\": %.2f}\n", (double)trips[count / 2] / 1e3, (double)trips[count * 99 / 100] / 1e3);
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

int main(int argc, char **argv)
{
  bench_die_with_parent();
  if (argc == 5 && strcmp(argv[1], "loopback") == 0)
    printf("{\"MBps\": %.1f}\n", loopback(argv[2], (size_t)atol(argv[3]), atof(argv[4])));
  else if (argc == 5 && strcmp(argv[1], "pingpong") == 0)
    pingpong(argv[2], strcmp(argv[3], "idle") == 0, atof(argv[4]));
  else if (argc == 3 && strcmp(argv[1], "memcpy") == 0)
    printf("{\"MBps\": %.1f}\n", copy_memory(atof(argv[2])));
  else
    bench_die("usage: bench-limits loopback|pingpong|memcpy ... (see limits.c)");
}
