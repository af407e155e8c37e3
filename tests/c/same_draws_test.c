/* A seed gives the same keys and draws the same items, with the same probabilities, on every processor and from every build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "reverie/reverie.h"

enum { ROWS = 700, CAPACITY = 500, BATCH = 256, ROUNDS = 4 };

static void must(rv_code code, const rv_error *err)
{
  if (code != RV_OK) fail_msg("%s", err->message);
}

/* A priority that any processor computes alike: exact, of 40 binary orders of magnitude. */
static double priority_of(int64_t number)
{
  uint64_t bits = (uint64_t)number * UINT64_C(0x9E3779B97F4A7C15);
  double small = (double)(1 + (bits >> 40)) / (double)(UINT64_C(1) << 24);
  return small * (double)(UINT64_C(1) << (bits & 31)) / 256;
}

static void add_rows(rv_client *client, const char *table, int64_t first)
{
  int64_t values[ROWS];
  double priorities[ROWS];
  const int64_t shape = ROWS;
  for (int64_t i = 0; i < ROWS; i++) {
    values[i] = first + i;
    priorities[i] = priority_of(first + i);
  }
  rv_error err;
  size_t added;
  rv_tensor column = {RV_INT64, 1, &shape, values};
  must(rv_client_add_batch(client, table, &column, 1, ROWS, priorities, NULL, &added, NULL, &err), &err);
  assert_int_equal(added, ROWS);
}

/* Draws a batch, gives what was drawn other priorities, and goes on with the account of all that was seen. */
static uint64_t draw(rv_client *client, const char *table, uint64_t account)
{
  rv_error err;
  rv_batch *batch;
  must(rv_client_sample_batch(client, table, BATCH, RV_UNEQUAL_ERROR, NULL, &batch, &err), &err);
  assert_int_equal(rv_batch_size(batch), BATCH);
  int64_t values[BATCH];
  uint64_t keys[BATCH];
  double priorities[BATCH];
  must(rv_batch_gather(batch, 0, values, sizeof values, &err), &err);
  for (size_t i = 0; i < BATCH; i++) {
    const rv_sample_info *info = rv_batch_info(batch, i);
    uint64_t bits;
    memcpy(&bits, &info->probability, sizeof bits);
    account = (account ^ bits ^ info->key ^ (uint64_t)values[i]) * UINT64_C(0x9E3779B97F4A7C15);
    account ^= account >> 29;
    keys[i] = info->key;
    priorities[i] = priority_of(values[i] + (int64_t)i);
  }
  rv_batch_free(batch);
  must(rv_client_update_priorities(client, table, keys, priorities, BATCH, NULL, NULL, NULL, &err), &err);
  return account;
}

static uint64_t account_of(rv_selector_config sampler, rv_selector_config remover)
{
  rv_error err;
  rv_store *store;
  rv_client *client;
  const uint64_t seed = 5;
  rv_table_config table = rv_table_config_default("t", CAPACITY);
  table.sampler = sampler;
  table.remover = remover;
  const rv_store_config config = {.size = sizeof config, .tables = &table, .num_tables = 1, .seed = &seed};
  must(rv_store_new(&config, &store, &err), &err);
  const rv_client_config client_config = {.size = sizeof client_config, .store = store};
  must(rv_client_new(&client_config, &client, &err), &err);
  uint64_t account = 0;
  for (int64_t round = 0; round < ROUNDS; round++) {
    add_rows(client, "t", round * ROWS);
    account = draw(client, "t", account);
  }
  rv_client_free(client);
  rv_store_unref(store);
  return account;
}

static void a_seed_draws_the_same_everywhere(void **state)
{
  (void)state;
  const rv_selector_config uniform = {.kind = RV_SELECTOR_UNIFORM}, oldest = {.kind = RV_SELECTOR_FIFO},
                           lowest = {.kind = RV_SELECTOR_MIN_HEAP};
  const rv_selector_config weighted = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6},
                           proportional = {.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 1};
  assert_int_equal(account_of(uniform, oldest), UINT64_C(0xaae85f5eb6e90bb5));
  assert_int_equal(account_of(weighted, oldest), UINT64_C(0x6b37659d7ac3fbdf));
  assert_int_equal(account_of(proportional, lowest), UINT64_C(0xdd447fce139f6ac1));
  assert_int_equal(account_of(weighted, uniform), UINT64_C(0x85deb8b5bfa7826c));
  assert_int_equal(account_of(uniform, weighted), UINT64_C(0x56f1fa345a7c98f1));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_seed_draws_the_same_everywhere)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
