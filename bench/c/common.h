/* What the benchmark's C programs share: a clock, a generator, checked calls, and the board over which the benchmark starts, watches and stops
 * its clients. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "reverie/reverie.h"

/* Ends the program with a sentence on standard error. */
_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Dies unless the code is RV_OK. */
void bench_check(rv_code code, const rv_error *error);
void *bench_alloc(size_t size);

/* The program ends with its parent, and before the kernel takes anything else when memory runs out. */
void bench_die_with_parent(void);

int64_t bench_now_ns(void);

/* xorshift128+: fast, and good enough to choose places and fill rows. */
typedef struct bench_random {
  uint64_t a, b;
} bench_random;
bench_random bench_random_of(uint64_t seed);
uint64_t bench_random_next(bench_random *random);
/* [0, n) */
uint64_t bench_random_below(bench_random *random, uint64_t n);
/* Fills with random bytes, which no compressor makes smaller. */
void bench_random_fill(bench_random *random, void *out, size_t size);
/* Fills with random numbers from [-1, 1). */
void bench_random_floats(bench_random *random, float *out, size_t count);

typedef struct bench_timing {
  double ns;     /* a call: the median over slices of about 20 ms */
  double cpu_ns; /* of processor time a call, over all threads */
} bench_timing;
/* Calls again and again for `seconds`, as bench/local/worker.py does it; the first call is not counted. */
bench_timing bench_time_calls(void (*call)(void *context), void *context, double seconds);

/* The resident memory of this process in bytes. */
int64_t bench_resident_bytes(void);
/* Of it, what is no file's: not the program's and its libraries' pages, which become resident when they run for the first time. */
int64_t bench_anonymous_bytes(void);

/* ---- the board: one file of 64-byte lines that the benchmark and all its clients map ---- */

enum { BENCH_HOLD = 0, BENCH_GO = 1, BENCH_STOP = 2, BENCH_LINE_WORDS = 8 };

typedef struct bench_board {
  _Atomic int64_t *words; /* line 0: the phase; line 1 + i: items that client i has moved */
} bench_board;
bench_board bench_board_open(const char *path);
/* Returns once the phase is not BENCH_HOLD. */
void bench_board_wait(const bench_board *board);
static inline int64_t bench_board_phase(const bench_board *board)
{
  return atomic_load_explicit(&board->words[0], memory_order_relaxed);
}
static inline void bench_board_count(const bench_board *board, int64_t client, int64_t items)
{
  atomic_store_explicit(&board->words[(client + 1) * BENCH_LINE_WORDS], items, memory_order_relaxed);
}

#endif
