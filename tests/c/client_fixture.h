/* A store, and a client of it: in process, through a server on loopback, or through one on a unix socket. The tests that include
 * this run their bodies all three ways: the verbs promise the same. */
#ifndef RV_TESTS_CLIENT_FIXTURE_H
#define RV_TESTS_CLIENT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs those before it */
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reverie/client.h"
#include "reverie/sampler.h"
#include "reverie/server.h"
#include "store/store.h"
#include "support/held_port.h"

typedef enum transport { IN_PROCESS, LOOPBACK, UNIX_SOCKET } transport;

typedef struct fixture {
  transport way;
  rv_store *store;
  rv_server *server;
  rv_client *client;
  char address[160];
  uint16_t port;
  held_port held; /* the server's, on loopback */
  char directory[64];
  bool anything_goes; /* the table "signed" has no signature */
} fixture;

#define assert_ok(expression)                                                                                                    \
  do {                                                                                                                           \
    rv_code code_ = (expression);                                                                                                \
    if (code_ != RV_OK) fail_msg("%s: %s: %s", #expression, rv_code_name(code_), err.message);                                   \
  } while (0)
#define assert_code(expression, expected)                                                                                        \
  do {                                                                                                                           \
    rv_code code_ = (expression);                                                                                                \
    if (code_ != (expected))                                                                                                     \
      fail_msg("%s: %s (%s), not %s", #expression, rv_code_name(code_), code_ == RV_OK ? "" : err.message,                       \
               rv_code_name(expected));                                                                                          \
  } while (0)
#define assert_says(text)                                                                                                        \
  do {                                                                                                                           \
    if (strstr(err.message, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.message, text);                            \
  } while (0)

static inline void start_server(fixture *f)
{
  rv_error err;
  const char *address = f->address;
  rv_server_config config = {
      .size = sizeof config, .store = f->store, .addresses = &address, .num_addresses = 1, .io_threads = 2};
  assert_ok(rv_server_new(&config, &f->server, &err));
  f->port = rv_server_port(f->server, 0);
}

static inline void stop_server(fixture *f)
{
  rv_server_stop(f->server, 0);
  rv_server_free(f->server);
  f->server = NULL;
}

static inline void new_store(fixture *f)
{
  rv_error err;
  static const int64_t three[] = {3};
  static const rv_spec specs[] = {{.name = "obs", .dtype = RV_FLOAT32, .rank = 1, .shape = three},
                                  {.name = "action", .dtype = RV_INT64, .rank = 0}};
  static const rv_signature signature = {.specs = specs, .num_specs = 2};
  rv_table_config tables[] = {rv_table_config_default("replay", 1000), rv_table_config_default("queue", 4),
                              rv_table_config_default("per", 1000),    rv_table_config_default("signed", 1000),
                              rv_table_config_default("five", 1000),   rv_table_config_default("fifo", 1000)};
  tables[1].sampler.kind = tables[1].remover.kind = RV_SELECTOR_FIFO;
  tables[1].max_times_sampled = 1;
  tables[1].rate_limiter = rv_rate_limiter_queue(4);
  tables[2].sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1.0};
  if (!f->anything_goes) tables[3].signature = &signature;
  tables[4].rate_limiter = rv_rate_limiter_min_size(5);
  tables[5].sampler.kind = RV_SELECTOR_FIFO;
  rv_store_config config = {.size = sizeof config, .tables = tables, .num_tables = sizeof tables / sizeof tables[0]};
  assert_ok(rv_store_new(&config, &f->store, &err));
}

static inline rv_client *new_client(fixture *f)
{
  rv_error err;
  rv_client_config config = {.size = sizeof config};
  if (f->way == IN_PROCESS)
    config.store = f->store;
  else
    config.address = f->address;
  rv_client *client;
  assert_ok(rv_client_new(&config, &client, &err));
  return client;
}

static inline void set_up(fixture *f, transport way)
{
  *f = (fixture){.way = way};
  new_store(f);
  snprintf(f->directory, sizeof f->directory, "/tmp/rv-test-XXXXXX");
  assert_non_null(mkdtemp(f->directory));
  if (way == LOOPBACK) held_port_open(&f->held);
  if (way == LOOPBACK)
    snprintf(f->address, sizeof f->address, "%s", f->held.address);
  else
    snprintf(f->address, sizeof f->address, "unix:%s/socket", f->directory);
  if (way != IN_PROCESS) start_server(f);
  f->client = new_client(f);
}

static inline void tear_down(fixture *f)
{
  rv_client_free(f->client);
  if (f->server != NULL) stop_server(f);
  rv_store_unref(f->store);
  held_port_close(&f->held);
  char path[96];
  snprintf(path, sizeof path, "%s/socket", f->directory);
  unlink(path);
  rmdir(f->directory);
}

/* A test's body as a test over one of the ways. */
#define OVER(name, suffix, way)                                                                                                  \
  static void name##_##suffix(void **state)                                                                                      \
  {                                                                                                                              \
    (void)state;                                                                                                                 \
    fixture f;                                                                                                                   \
    set_up(&f, way);                                                                                                             \
    name##_body(&f);                                                                                                             \
    tear_down(&f);                                                                                                               \
  }

/* A test `name` as two, over both ways to a server elsewhere: EVERY_REMOTE_WAY(name) lists them. */
#define REMOTE_TEST(name)                                                                                                        \
  static void name##_body(fixture *f);                                                                                           \
  OVER(name, over_loopback, LOOPBACK)                                                                                            \
  OVER(name, over_a_unix_socket, UNIX_SOCKET)                                                                                    \
  static void name##_body(fixture *f)

/* And as three, in process too: EVERY_WAY(name). */
#define TEST(name)                                                                                                               \
  static void name##_body(fixture *f);                                                                                           \
  OVER(name, in_process, IN_PROCESS)                                                                                             \
  REMOTE_TEST(name)

#define EVERY_WAY(name) cmocka_unit_test(name##_in_process), EVERY_REMOTE_WAY(name)
#define EVERY_REMOTE_WAY(name) cmocka_unit_test(name##_over_loopback), cmocka_unit_test(name##_over_a_unix_socket)

static const rv_wait at_once __attribute__((unused)) = {.timeout_ms = 0};
static const rv_wait shortly __attribute__((unused)) = {.timeout_ms = 100};
static const rv_wait long_enough __attribute__((unused)) = {.timeout_ms = 30000};
/* One after the other, for what is seen when a deadline has passed: on a busy machine a short one passes before it could happen. */
enum { GROWING = 6 };
static const rv_wait growing[GROWING]
    __attribute__((unused)) = {{.timeout_ms = 100},  {.timeout_ms = 300},   {.timeout_ms = 1000},
                               {.timeout_ms = 3000}, {.timeout_ms = 10000}, {.timeout_ms = 30000}};

/* ---- rows of one column: float32[2], {value, value + 0.5} ---- */

static inline rv_code add_value(rv_client *client, const char *table, float value, double priority, uint64_t *key,
                                const rv_wait *wait, rv_error *err)
{
  static const int64_t two[] = {2};
  float data[2] = {value, value + 0.5f};
  rv_tensor column = {.dtype = RV_FLOAT32, .rank = 1, .shape = two, .data = data};
  return rv_client_add(client, table, &column, 1, priority, key, wait, err);
}

static inline void add_values(rv_client *client, const char *table, int n)
{
  rv_error err;
  for (int i = 0; i < n; i++) assert_ok(add_value(client, table, (float)i, 1.0, NULL, &long_enough, &err));
}

static inline float sample_value(rv_sample *sample)
{
  rv_error err;
  float data[2];
  assert_ok(rv_sample_copy(sample, 0, data, sizeof data, &err));
  assert_true(data[1] == data[0] + 0.5f);
  return data[0];
}

/* ---- items of one column of `length` rows: int64[], {base, base + 1, ...}; put into the store itself ---- */

static inline void put_sequence(fixture *f, const char *table, int64_t base, int32_t length)
{
  rv_error err;
  rv_table *found;
  assert_ok(rv_store_find(f->store, table, strlen(table), &found, &err));
  rv_spec spec = {.name = "", .dtype = RV_INT64, .rank = 0};
  rv_chunk_meta meta = {.key = (uint64_t)base + 1, .last_step = length};
  rv_chunk *chunk;
  assert_ok(rv_segment_new(&spec, 1, (size_t)length + 1, &meta, &chunk, &err));
  for (int32_t i = 0; i < length; i++) {
    int64_t value = base + i;
    rv_tensor row = {.dtype = RV_INT64, .data = &value};
    assert_ok(rv_segment_put(chunk, 0, i, &row, &err));
  }
  rv_segment_publish(chunk, 0, length);
  rv_slice slice = {.chunk = chunk, .length = length};
  uint32_t one = 1;
  bool squeeze = false;
  rv_trajectory_desc desc = {.slices = &slice, .num_slices = &one, .squeeze = &squeeze, .num_columns = 1};
  rv_trajectory *trajectory;
  assert_ok(rv_trajectory_new(rv_store_layouts(f->store), &desc, &trajectory, &err));
  rv_insert insert = {.choose_key = true, .priority = 1.0, .trajectory = trajectory, .waiter = {.deadline_ns = INT64_MAX}};
  assert_int_equal(rv_table_insert(found, &insert), RV_SUBMIT_DONE);
  assert_int_equal(insert.waiter.code, RV_OK);
  rv_trajectory_unref(trajectory);
  rv_chunk_unref(chunk);
}

/* ---- what others see ---- */

/* Until that many callers wait on the table. */
static inline void wait_for_waiting(fixture *f, const char *table, int64_t inserts, int64_t samples)
{
  rv_error err;
  rv_table *found;
  assert_ok(rv_store_find(f->store, table, strlen(table), &found, &err));
  for (;;) {
    rv_table_info info = {.size = sizeof info};
    assert_ok(rv_table_get_info(found, &info, &err));
    bool there = info.num_waiting_inserts == inserts && info.num_waiting_samples == samples;
    rv_table_info_fini(&info);
    if (there) return;
    usleep(1000);
  }
}

static inline int64_t table_size(fixture *f, const char *table)
{
  rv_error err;
  rv_table *found;
  assert_ok(rv_store_find(f->store, table, strlen(table), &found, &err));
  rv_table_info info = {.size = sizeof info};
  assert_ok(rv_table_get_info(found, &info, &err));
  int64_t size = info.current_size;
  rv_table_info_fini(&info);
  return size;
}

#endif
