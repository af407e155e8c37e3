/* An embedded replay buffer: transitions in, prioritized batches out, priorities back. */
#include <reverie/reverie.h>
#include <stdio.h>
#include <stdlib.h>

static void check(rv_code code, const rv_error *error)
{
  if (code == RV_OK) return;
  fprintf(stderr, "%s: %s\n", rv_code_name(code), error->message);
  exit(1);
}

int main(void)
{
  rv_error error;
  rv_table_config table = rv_table_config_default("replay", 100000);
  table.sampler = (rv_selector_config){.kind = RV_SELECTOR_PRIORITIZED, .priority_exponent = 0.6};
  rv_store *store;
  check(rv_store_new(&(rv_store_config){.size = sizeof(rv_store_config), .tables = &table, .num_tables = 1}, &store, &error),
        &error);
  rv_client *client;
  check(rv_client_new(&(rv_client_config){.size = sizeof(rv_client_config), .store = store}, &client, &error), &error);

  for (int step = 0; step < 1000; step++) {
    float observation[4] = {(float)step, 0, 0, 0}, reward = (float)(step % 10);
    int64_t shape[] = {4};
    rv_tensor row[] = {{RV_FLOAT32, 1, shape, observation}, {RV_FLOAT32, 0, NULL, &reward}};
    check(rv_client_add(client, "replay", row, 2, 1.0, NULL, NULL, &error), &error);
  }
  rv_batch *batch;
  check(rv_client_sample_batch(client, "replay", 32, RV_UNEQUAL_ERROR, NULL, &batch, &error), &error);
  float observations[32][4], rewards[32];
  check(rv_batch_gather(batch, 0, observations, sizeof observations, &error), &error);
  check(rv_batch_gather(batch, 1, rewards, sizeof rewards, &error), &error);
  for (size_t i = 0; i < rv_batch_size(batch); i++) {
    uint64_t key = rv_batch_info(batch, i)->key;
    double priority = rewards[i] + 0.1;
    check(rv_client_update_priorities(client, "replay", &key, &priority, 1, NULL, NULL, NULL, &error), &error);
  }
  printf("sampled %zu of 1000; the first is step %.0f with reward %.0f\n", rv_batch_size(batch), observations[0][0], rewards[0]);
  rv_batch_free(batch);
  rv_client_free(client);
  rv_store_unref(store);
}
