#include "rig.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

rv_table_config rig_table(const char *name)
{
  return rv_table_config_default(name, 1000);
}

static void start(test_rig *rig, const rv_table_config *tables, size_t num_tables, size_t memory_limit, rv_server_config config)
{
  rv_error err = {.message = ""};
  rv_store_config store = {
      .size = sizeof store, .tables = tables, .num_tables = num_tables, .env = config.env, .memory_limit = memory_limit};
  if (rv_store_new(&store, &rig->store, &err) != RV_OK) fail_msg("store: %s", err.message);
  config.size = sizeof config;
  config.store = rig->store;
  held_port_open(&rig->held);
  const char *address = rig->held.address;
  config.addresses = &address;
  config.num_addresses = 1;
  if (config.io_threads == 0) config.io_threads = 2;
  if (rv_server_new(&config, &rig->server, &err) != RV_OK) fail_msg("server: %s", err.message);
  snprintf(rig->address, sizeof rig->address, "%s", address);
}

void rig_start_with(test_rig *rig, const rv_table_config *tables, size_t num_tables, rv_server_config config)
{
  start(rig, tables, num_tables, 0, config);
}

void rig_start_limited(test_rig *rig, const rv_table_config *tables, size_t num_tables, size_t memory_limit)
{
  start(rig, tables, num_tables, memory_limit, (rv_server_config){0});
}

void rig_start(test_rig *rig, const rv_table_config *tables, size_t num_tables)
{
  rig_start_with(rig, tables, num_tables, (rv_server_config){0});
}

void rig_stop(test_rig *rig)
{
  rv_server_free(rig->server);
  rv_store_unref(rig->store);
  held_port_close(&rig->held);
}

rv_table *rig_find(test_rig *rig, const char *name)
{
  rv_table *table = NULL;
  assert_int_equal(rv_store_find(rig->store, name, strlen(name), &table, NULL), RV_OK);
  return table;
}

static void read_info(test_rig *rig, const char *table, rv_table_info *info)
{
  *info = (rv_table_info){.size = sizeof *info};
  assert_int_equal(rv_table_get_info(rig_find(rig, table), info, NULL), RV_OK);
}

int64_t rig_size(test_rig *rig, const char *table)
{
  rv_table_info info;
  read_info(rig, table, &info);
  int64_t size = info.current_size;
  rv_table_info_fini(&info);
  return size;
}

/* The table has nobody to tell us: this looks, yields, and looks again. */
void rig_wait_for_waiting(test_rig *rig, const char *table, int64_t inserts, int64_t samples)
{
  rv_env env;
  rv_env_fill(&env, NULL);
  int64_t give_up = rv_monotonic_ns(&env) + INT64_C(30000000000);
  for (;;) {
    rv_table_info info;
    read_info(rig, table, &info);
    bool reached = info.num_waiting_inserts == inserts && info.num_waiting_samples == samples;
    long long waiting_inserts = info.num_waiting_inserts, waiting_samples = info.num_waiting_samples;
    rv_table_info_fini(&info);
    if (reached) return;
    if (rv_monotonic_ns(&env) > give_up)
      fail_msg("table %s: %lld inserts and %lld samples wait, expected %lld and %lld", table, waiting_inserts, waiting_samples,
               (long long)inserts, (long long)samples);
    sched_yield();
  }
}
