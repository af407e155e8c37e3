/* A store with a client of it: in this process, or through a server on loopback. Header only, for tests that hold for both. */
#ifndef RV_TEST_PLACE_H
#define RV_TEST_PLACE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "held_port.h"
#include "reverie/reverie.h"

typedef struct test_place {
  rv_store *store;
  rv_server *server; /* NULL: in process */
  rv_client *client;
  held_port held; /* the server's */
} test_place;

#define OK(call)                                                                                                                 \
  do {                                                                                                                           \
    rv_error ok_error = {.message = ""};                                                                                         \
    rv_error *error = &ok_error;                                                                                                 \
    (void)error;                                                                                                                 \
    rv_code ok_code = (call);                                                                                                    \
    if (ok_code != RV_OK) fail_msg("%s: %s: %s", #call, rv_code_name(ok_code), ok_error.message);                                \
  } while (0)

/* The call fails with that code and a sentence that contains the text. */
#define FAILS(expected, text, call)                                                                                              \
  do {                                                                                                                           \
    rv_error fails_error = {.message = ""};                                                                                      \
    rv_error *error = &fails_error;                                                                                              \
    (void)error;                                                                                                                 \
    rv_code fails_code = (call);                                                                                                 \
    if (fails_code != (expected) || strstr(fails_error.message, (text)) == NULL)                                                 \
      fail_msg("%s: %s: \"%s\", expected %s: \"...%s...\"", #call, rv_code_name(fails_code), fails_error.message,                \
               rv_code_name(expected), (text));                                                                                  \
  } while (0)

/* Again where the one before was. */
static inline uint16_t place_serve(test_place *place)
{
  if (place->held.address[0] == '\0') held_port_open(&place->held);
  const char *addresses[1] = {place->held.address};
  rv_server_config config = {
      .size = sizeof config, .store = place->store, .addresses = addresses, .num_addresses = 1, .io_threads = 2};
  OK(rv_server_new(&config, &place->server, error));
  return rv_server_port(place->server, 0);
}

static inline rv_client *place_connect(const char *address)
{
  rv_client_config config = {.size = sizeof config, .address = address};
  rv_client *client = NULL;
  OK(rv_client_new(&config, &client, error));
  return client;
}

static inline void place_open(test_place *place, bool remote, const rv_table_config *tables, size_t num_tables)
{
  memset(place, 0, sizeof *place);
  rv_store_config store = {.size = sizeof store, .tables = tables, .num_tables = num_tables};
  OK(rv_store_new(&store, &place->store, error));
  if (remote) {
    place_serve(place);
    place->client = place_connect(place->held.address);
  } else {
    rv_client_config config = {.size = sizeof config, .store = place->store};
    OK(rv_client_new(&config, &place->client, error));
  }
}

static inline void place_close(test_place *place)
{
  rv_client_free(place->client);
  rv_server_free(place->server);
  rv_store_unref(place->store);
  held_port_close(&place->held);
}

static inline rv_table_config place_queue_like(const char *name, int64_t max_size)
{
  rv_table_config config = rv_table_config_default(name, max_size);
  config.sampler = (rv_selector_config){.kind = RV_SELECTOR_FIFO};
  return config;
}

/* Inserts wait once `size` items wait to be sampled. */
static inline rv_table_config place_queue(const char *name, int64_t size)
{
  rv_table_config config = place_queue_like(name, size);
  config.max_times_sampled = 1;
  config.rate_limiter = rv_rate_limiter_queue(size);
  return config;
}

static inline rv_table_info place_info(test_place *place, rv_server_info **info, const char *table)
{
  OK(rv_client_server_info(place->client, NULL, info, error));
  for (size_t i = 0; i < (*info)->num_tables; i++)
    if (strcmp((*info)->tables[i].name, table) == 0) return (*info)->tables[i];
  fail_msg("no table %s", table);
  return (rv_table_info){0};
}

static inline int64_t place_size(test_place *place, const char *table)
{
  rv_server_info *info;
  int64_t size = place_info(place, &info, table).current_size;
  rv_server_info_free(info);
  return size;
}

static inline rv_writer *place_writer(test_place *place, rv_writer_config config)
{
  rv_writer *writer = NULL;
  config.size = sizeof config;
  if (config.num_keep_alive_refs == 0) config.num_keep_alive_refs = 16;
  OK(rv_writer_new(place->client, &config, &writer, error));
  return writer;
}

/* A whole step of one int32 scalar in column 0. */
static inline void append_number(rv_writer *writer, int32_t number)
{
  rv_cell cell = {.column = 0, .value = {.dtype = RV_INT32, .data = &number}};
  OK(rv_writer_append(writer, &cell, 1, false, error));
}

static inline rv_code item_of_rows(rv_writer *writer, const char *table, int64_t first, uint32_t count, int64_t stride,
                                   double priority, uint64_t *key, rv_error *error)
{
  rv_run run = {.column = 0, .count = count, .first = first, .stride = stride};
  rv_item_column column = {.runs = &run, .num_runs = 1};
  return rv_writer_create_item(writer, table, priority, &column, 1, key, error);
}

/* Behind `static void NAME(bool remote)`: BOTH(NAME) makes two tests of it, and BOTH_TESTS(NAME) lists them. */
#define BOTH(name)                                                                                                               \
  static void name##__in_process(void **state)                                                                                   \
  {                                                                                                                              \
    (void)state;                                                                                                                 \
    name(false);                                                                                                                 \
  }                                                                                                                              \
  static void name##__remote(void **state)                                                                                       \
  {                                                                                                                              \
    (void)state;                                                                                                                 \
    name(true);                                                                                                                  \
  }
#define BOTH_TESTS(name) cmocka_unit_test(name##__in_process), cmocka_unit_test(name##__remote)

#endif
