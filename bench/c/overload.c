/* Calls that arrive at a fixed rate, whatever becomes of those before: an open loop.
 *
 *   bench-overload CONNECTIONS WORK_US SECONDS DEADLINE_MS TIMES...
 *
 * A server here, with one I/O thread, and a table whose selector takes WORK_US of processor time for an update. First as many updates as the
 * server can take, a few at a time on each connection: its peak. Then, for each of TIMES, so many times as many: none waits for another and none is made
 * again. A line each: {"times": 0 (the peak), ..., "seconds": ..., "offered": ..., "ok": ..., "exhausted": ..., "late": ..., "other": ..., "server_cpu_s": ..., "p50_us": ..., "p99_us": ...,
 * "max_us": ..., "said": "..."}: times from a call's arrival to its answer, where it was RV_OK; what the last one heard that was refused. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "net/net.h"
#include "reverie/server.h"
#include "store/idle_selector_testing.h"
#include "wire/unary.h"

enum { AT_ONCE = 4, TICK_NS = 1000000, MOST_CALLS = 8000000 };

typedef struct crowd {
  rv_loop *loop;
  rv_channel **channels;
  size_t connections, next;
  rv_writer_buf request;
  double rate;
  int64_t deadline_ns, begin, end, arrived, open;
  int64_t own_ns; /* processor time of the loop's thread, less what it was before */
  int64_t ok, exhausted, late, other;
  float *trips; /* us */
  char said[RV_ERROR_MESSAGE_MAX];
  rv_timer timer;
  atomic_bool over;
} crowd;

typedef struct arrival {
  crowd *all;
  rv_channel *channel;
  int64_t at;
} arrival;

static void arrive(crowd *all, rv_channel *channel, int64_t at);

static void on_close(rv_call *call, void *user, rv_code code, const char *message)
{
  (void)call;
  arrival *self = user;
  crowd *all = self->all;
  rv_channel *channel = self->channel;
  int64_t now = bench_now_ns();
  float us = (float)(now - self->at) / 1000;
  free(self);
  all->open--;
  if (code == RV_OK)
    all->trips[all->ok++] = us;
  else if (code == RV_RESOURCE_EXHAUSTED)
    all->exhausted++;
  else if (code == RV_DEADLINE_EXCEEDED)
    all->late++;
  else
    all->other++;
  if (code != RV_OK && code != RV_DEADLINE_EXCEEDED) snprintf(all->said, sizeof all->said, "%s", message);
  if (all->rate <= 0 && now < all->end) arrive(all, channel, now);
}

static void on_message(rv_call *call, void *user, rv_buf *buf, const uint8_t *data, size_t size)
{
  (void)call, (void)user, (void)buf, (void)data, (void)size;
}

static const rv_call_events events = {.on_message = on_message, .on_close = on_close};

static void arrive(crowd *all, rv_channel *channel, int64_t at)
{
  arrival *self = bench_alloc(sizeof *self);
  *self = (arrival){all, channel, at};
  const rv_call_config config = {
      .path = "/deepmind.reverb.ReverbService/MutatePriorities", .deadline_ns = at + all->deadline_ns, .wait_for_ready = true};
  rv_pieces body;
  rv_pieces_init(&body);
  if (all->arrived++ == MOST_CALLS || rv_pieces_copy(&body, all->request.data, all->request.size) != RV_OK)
    bench_die("too many calls");
  all->open++;
  rv_call *call = rv_channel_call(channel, &config, &events, self);
  if (call == NULL) bench_die("no memory for a call");
  rv_call_send(call, &body);
  rv_call_half_close(call);
}

/* Those that are due by now. */
static void on_tick(rv_timer *timer)
{
  crowd *all = RV_CONTAINER(timer, crowd, timer);
  int64_t now = bench_now_ns(), until = now < all->end ? now : all->end;
  int64_t due = (int64_t)((double)(until - all->begin) * all->rate / 1e9);
  while (all->rate > 0 && all->arrived < due) {
    int64_t at = all->begin + (int64_t)((double)all->arrived * 1e9 / all->rate);
    arrive(all, all->channels[all->next++ % all->connections], at);
  }
  if (now >= all->end && all->open == 0)
    atomic_store(&all->over, true);
  else
    rv_timer_start(timer, now + TICK_NS);
}

static int64_t cpu_ns(clockid_t clock)
{
  struct timespec used;
  clock_gettime(clock, &used);
  return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static void begin(void *argument)
{
  crowd *all = argument;
  all->own_ns = -cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  all->end += (all->begin = bench_now_ns());
  for (size_t i = 0; all->rate <= 0 && i < all->connections * AT_ONCE; i++)
    arrive(all, all->channels[i % all->connections], all->begin);
  rv_timer_init(&all->timer, all->loop, on_tick);
  on_tick(&all->timer);
}

static void stop(void *argument)
{
  crowd *all = argument;
  all->own_ns += cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  rv_timer_stop(&all->timer);
}

static int compare(const void *a, const void *b)
{
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

static double percentile(float *sorted, int64_t n, double part)
{
  return n == 0 ? 0 : (double)sorted[(int64_t)((double)(n - 1) * part)];
}

/* ---- the server ---- */

static int64_t work_ns;

static rv_code update(void *selector, uint32_t slot, uint64_t key, double priority, rv_error *err)
{
  (void)selector, (void)slot, (void)key, (void)priority, (void)err;
  for (int64_t until = cpu_ns(CLOCK_THREAD_CPUTIME_ID) + work_ns; cpu_ns(CLOCK_THREAD_CPUTIME_ID) < until;) continue;
  return RV_OK;
}

static const rv_selector_ops slow = IDLE_SELECTOR_OPS(update);

typedef struct served {
  rv_registry *registry;
  rv_store *store;
  rv_server *server;
  char address[32];
  uint64_t key; /* of the item that is updated */
} served;

static void serve(served *self)
{
  rv_error error;
  bench_check(rv_registry_new(&self->registry, &error), &error);
  bench_check(rv_registry_add_selector(self->registry, "slow", &slow, &error), &error);
  rv_table_config table = rv_table_config_default("t", 10);
  table.sampler = (rv_selector_config){.kind = RV_SELECTOR_CUSTOM, .name = "slow"};
  const rv_store_config store = {.size = sizeof store, .registry = self->registry, .tables = &table, .num_tables = 1};
  bench_check(rv_store_new(&store, &self->store, &error), &error);
  const char *const addresses[] = {"127.0.0.1:0"};
  const rv_server_config config = {
      .size = sizeof config, .store = self->store, .addresses = addresses, .num_addresses = 1, .io_threads = 1};
  bench_check(rv_server_new(&config, &self->server, &error), &error);
  snprintf(self->address, sizeof self->address, "127.0.0.1:%u", (unsigned)rv_server_port(self->server, 0));
  const rv_client_config here = {.size = sizeof here, .store = self->store};
  rv_client *client;
  float value = 0;
  const rv_tensor row = {.dtype = RV_FLOAT32, .data = &value};
  bench_check(rv_client_new(&here, &client, &error), &error);
  bench_check(rv_client_add(client, "t", &row, 1, 1, &self->key, NULL, &error), &error);
  rv_client_free(client);
}

/* ---- runs ---- */

/* `rate` 0: the peak. How many were answered a second. */
static double run(const served *server, crowd all, double times, double rate)
{
  rv_error error;
  rv_env env;
  rv_env_fill(&env, NULL);
  all.rate = rate;
  bench_check(rv_loop_new(&env, "overload", &all.loop, &error), &error);
  all.channels = bench_alloc(all.connections * sizeof *all.channels);
  all.trips = bench_alloc(MOST_CALLS * sizeof *all.trips);
  const rv_channel_config config = {
      .env = &env, .loop = all.loop, .address = server->address, .max_message_bytes = (size_t)1 << 26};
  for (size_t i = 0; i < all.connections; i++) bench_check(rv_channel_new(&config, &all.channels[i], &error), &error);
  const rv_key_priority change = {.key = server->key, .priority = 1};
  rv_writer_buf_init(&all.request);
  rv_mutate_request_serialize(&all.request, "t", &change, 1, NULL, 0);
  int64_t used = -cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
  rv_loop_call(all.loop, begin, &all);
  while (!atomic_load(&all.over)) nanosleep(&(struct timespec){.tv_nsec = 10 * TICK_NS}, NULL);
  double seconds = (double)(bench_now_ns() - all.begin) / 1e9;
  rv_loop_call(all.loop, stop, &all);
  used += cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - all.own_ns;
  for (size_t i = 0; i < all.connections; i++) rv_channel_free(all.channels[i]);
  rv_loop_free(all.loop);
  qsort(all.trips, (size_t)all.ok, sizeof *all.trips, compare);
  printf("{\"times\": %g, \"seconds\": %.3f, \"offered\": %lld, \"ok\": %lld, \"exhausted\": %lld, \"late\": %lld, \"other\": "
         "%lld, ",
         times, seconds, (long long)all.arrived, (long long)all.ok, (long long)all.exhausted, (long long)all.late,
         (long long)all.other);
  printf("\"server_cpu_s\": %.6f, ", (double)used / 1e9);
  printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"said\": \"%s\"}\n", percentile(all.trips, all.ok, 0.5),
         percentile(all.trips, all.ok, 0.99), percentile(all.trips, all.ok, 1), all.said);
  fflush(stdout);
  rv_writer_buf_fini(&all.request);
  free(all.channels);
  free(all.trips);
  return (double)all.ok / seconds;
}

int main(int argc, char **argv)
{
  bench_die_with_parent();
  if (argc < 6) bench_die("see the head of bench/c/overload.c");
  served server = {.key = 0};
  work_ns = strtol(argv[2], NULL, 10) * 1000;
  serve(&server);
  const crowd all = {.connections = (size_t)strtol(argv[1], NULL, 10),
                     .end = (int64_t)(strtod(argv[3], NULL) * 1e9),
                     .deadline_ns = strtol(argv[4], NULL, 10) * 1000000};
  double peak = run(&server, all, 0, 0);
  for (int i = 5; i < argc; i++) run(&server, all, strtod(argv[i], NULL), strtod(argv[i], NULL) * peak);
  rv_server_free(server.server);
  rv_store_unref(server.store);
  rv_registry_free(server.registry);
  return 0;
}
