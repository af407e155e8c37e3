#include "common.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void bench_die(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

void bench_check(rv_code code, const rv_error *error)
{
  if (code != RV_OK) bench_die("%s: %s", rv_code_name(code), error->message);
}

void *bench_alloc(size_t size)
{
  void *memory = calloc(1, size);
  if (memory == NULL) bench_die("no memory for %zu bytes", size);
  return memory;
}

void bench_die_with_parent(void)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  FILE *file = fopen("/proc/self/oom_score_adj", "w");
  if (file != NULL) {
    fputs("1000", file);
    fclose(file);
  }
}

int64_t bench_now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bench_random bench_random_of(uint64_t seed)
{
  bench_random random = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1, (seed + 1) * UINT64_C(0xbf58476d1ce4e5b9) + 1};
  for (int i = 0; i < 16; i++) bench_random_next(&random);
  return random;
}

uint64_t bench_random_next(bench_random *random)
{
  uint64_t a = random->a, b = random->b;
  random->a = b;
  a ^= a << 23;
  random->b = a ^ b ^ (a >> 18) ^ (b >> 5);
  return random->b + b;
}

uint64_t bench_random_below(bench_random *random, uint64_t n)
{
  return (bench_random_next(random) >> 32) * n >> 32;
}

void bench_random_fill(bench_random *random, void *out, size_t size)
{
  unsigned char *bytes = out;
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    uint64_t value = bench_random_next(random);
    memcpy(bytes + i, &value, size - i < sizeof value ? size - i : sizeof value);
  }
}

void bench_random_floats(bench_random *random, float *out, size_t count)
{
  for (size_t i = 0; i < count; i++) out[i] = (float)(int32_t)(bench_random_next(random) >> 32) / 2147483648.0f;
}

static int compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double cpu_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

bench_timing bench_time_calls(void (*call)(void *context), void *context, double seconds)
{
  enum { SLICES_MAX = 4096, SLICE_NS = 20000000 };
  double slices[SLICES_MAX];
  int64_t begin = bench_now_ns();
  call(context);
  double once = (double)(bench_now_ns() - begin), cpu = cpu_ns();
  int64_t end = bench_now_ns() + (int64_t)(seconds * 1e9), all_calls = 0;
  int num_slices = 0;
  while (num_slices < 3 || (bench_now_ns() < end && num_slices < SLICES_MAX)) {
    int64_t calls = (int64_t)(SLICE_NS / (once < 10 ? 10 : once));
    if (calls < 1) calls = 1;
    begin = bench_now_ns();
    for (int64_t i = 0; i < calls; i++) call(context);
    once = (double)(bench_now_ns() - begin) / (double)calls;
    slices[num_slices++] = once;
    all_calls += calls;
  }
  cpu = cpu_ns() - cpu;
  qsort(slices, (size_t)num_slices, sizeof *slices, compare);
  return (bench_timing){slices[num_slices / 2], cpu / (double)all_calls};
}

int64_t bench_resident_bytes(void)
{
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) bench_die("/proc/self/statm cannot be read");
  fclose(file);
  return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

int64_t bench_anonymous_bytes(void)
{
  char line[256];
  long kib = -1;
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  while (file != NULL && kib < 0 && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "Anonymous: %ld kB", &kib) != 1) kib = -1;
  if (kib < 0) bench_die("/proc/self/smaps_rollup cannot be read");
  fclose(file);
  return (int64_t)kib * 1024;
}

bench_board bench_board_open(const char *path)
{
  int fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) bench_die("the board %s cannot be opened", path);
  void *memory = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) bench_die("the board %s cannot be mapped", path);
  return (bench_board){memory};
}

void bench_board_wait(const bench_board *board)
{
  while (bench_board_phase(board) == BENCH_HOLD) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
