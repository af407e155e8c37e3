/* How fast one process can send another over loopback, without any store: the benchmark's upper bounds. */
#ifndef BENCH_LOOPBACK_H
#define BENCH_LOOPBACK_H

#include <stddef.h>

typedef enum bench_flow {
  BENCH_FLOW_PLAIN, /* one buffer sent again and again into another */
  BENCH_FLOW_INSERT, /* what no store can spare an insert: the row is copied when it is given, since its owner may change it, and goes to
                        a place of its own in a table that no cache holds */
  BENCH_FLOW_SAMPLE, /* what none can spare a sample: rows from random places of such a table, into a batch that stays the caller's
                        while the next one comes */
} bench_flow;

typedef struct bench_stream {
  double mbps;
  double cpu_s_per_gb; /* processor time of both processes, the kernel's included */
} bench_stream;

/* Two connected sockets, "tcp" or "unix". */
void bench_connect_pair(const char *kind, int pair[2]);
/* Sends and receives of `io` bytes, each a row. */
bench_stream bench_loopback(const char *kind, bench_flow flow, size_t io, double seconds);

#endif
