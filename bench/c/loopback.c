#include "loopback.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

/* As bench/wire/job.py has them: bytes of a table, rows that a writer has on their way, rows of a batch. */
static const size_t TABLE_BYTES = 400000000, IN_FLIGHT_BYTES_MAX = 32000000;
enum { IN_FLIGHT = 200, BATCH = 64 };

void bench_connect_pair(const char *kind, int pair[2])
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

/* Places of `io` bytes each, in memory that is there already. */
typedef struct places {
  char *bytes;
  size_t count;
} places;

static places places_of(size_t count, size_t io)
{
  places made = {.count = count};
  size_t size = count * io;
  made.bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made.bytes == MAP_FAILED) bench_die("no memory for %zu bytes", size);
  madvise(made.bytes, size, MADV_HUGEPAGE);
  memset(made.bytes, 1, size);
  return made;
}

static size_t rows_in(size_t bytes, size_t io, size_t most)
{
  size_t rows = bytes / io;
  if (rows > most) rows = most;
  return rows > 0 ? rows : 1;
}

/* Where the sender's next row is. */
static const char *next_row(bench_flow flow, const places *from, size_t number, const char *row, size_t io, bench_random *random)
{
  if (flow == BENCH_FLOW_SAMPLE) return from->bytes + (size_t)bench_random_below(random, from->count) * io;
  if (flow == BENCH_FLOW_PLAIN) return row;
  char *copy = from->bytes + number % from->count * io;
  memcpy(copy, row, io);
  return copy;
}

/* Sends until nobody receives any more. */
static _Noreturn void send_rows(int socket, bench_flow flow, size_t io, const places *from)
{
  bench_random random = bench_random_of(1);
  char *row = bench_alloc(io);
  memset(row, 1, io);
  for (size_t number = 0;; number++) {
    const char *data = next_row(flow, from, number, row, io, &random);
    for (size_t sent = 0; sent < io;) {
      ssize_t count = send(socket, data + sent, io - sent, MSG_NOSIGNAL);
      if (count <= 0) _exit(0);
      sent += (size_t)count;
    }
  }
}

static size_t sender_rows(bench_flow flow, size_t io)
{
  if (flow == BENCH_FLOW_PLAIN) return 1;
  return flow == BENCH_FLOW_SAMPLE ? rows_in(TABLE_BYTES, io, SIZE_MAX) : rows_in(IN_FLIGHT_BYTES_MAX, io, IN_FLIGHT);
}

static size_t receiver_rows(bench_flow flow, size_t io)
{
  if (flow == BENCH_FLOW_PLAIN) return 1;
  return flow == BENCH_FLOW_INSERT ? rows_in(TABLE_BYTES, io, SIZE_MAX) : (size_t)2 * BATCH;
}

/* Processor time that both ends have used. */
static double cpu_s(clockid_t sender)
{
  struct timespec theirs, ours;
  if (clock_gettime(sender, &theirs) != 0 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ours) != 0) bench_die("no processor clock");
  return (double)(theirs.tv_sec + ours.tv_sec) + (double)(theirs.tv_nsec + ours.tv_nsec) * 1e-9;
}

static void receive_row(int socket, char *place, size_t io)
{
  for (size_t filled = 0; filled < io;) {
    ssize_t count = recv(socket, place + filled, io - filled, 0);
    if (count <= 0) bench_die("the sender ended early");
    filled += (size_t)count;
  }
}

static size_t receive_for(int socket, size_t io, const places *into, int64_t nanoseconds)
{
  size_t rows = 0;
  for (int64_t end = bench_now_ns() + nanoseconds; bench_now_ns() < end; rows++)
    receive_row(socket, into->bytes + rows % into->count * io, io);
  return rows;
}

bench_stream bench_loopback(const char *kind, bench_flow flow, size_t io, double seconds)
{
  int pair[2];
  bench_connect_pair(kind, pair);
  pid_t child = fork();
  if (child < 0) bench_die("no process");
  if (child == 0) {
    bench_die_with_parent();
    close(pair[0]);
    places from = places_of(sender_rows(flow, io), io);
    send_rows(pair[1], flow, io, &from);
  }
  close(pair[1]);
  clockid_t sender;
  if (clock_getcpuclockid(child, &sender) != 0) bench_die("no processor clock of the sender");
  places into = places_of(receiver_rows(flow, io), io);
  receive_row(pair[0], into.bytes, io); /* the sender has made its memory */
  receive_for(pair[0], io, &into, (int64_t)(seconds * 0.2e9));
  int64_t begin = bench_now_ns();
  double cpu = cpu_s(sender);
  double bytes = (double)(receive_for(pair[0], io, &into, (int64_t)(seconds * 1e9)) * io);
  bench_stream moved = {bytes * 1e3 / (double)(bench_now_ns() - begin), (cpu_s(sender) - cpu) * 1e9 / bytes};
  close(pair[0]);
  waitpid(child, NULL, 0);
  munmap(into.bytes, into.count * io);
  return moved;
}
