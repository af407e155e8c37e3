/* A learner: samples batches of trajectories from a server; see actor.c for how to run both. */
#include <reverie/reverie.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCHES = 50, BATCH = 32 };

static void check(rv_code code, const rv_error *error)
{
  if (code == RV_OK) return;
  fprintf(stderr, "learner: %s: %s\n", rv_code_name(code), error->message);
  exit(1);
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: %s HOST:PORT\n", argv[0]);
    return 2;
  }
  rv_error error;
  rv_client *client;
  check(rv_client_new(&(rv_client_config){.size = sizeof(rv_client_config), .address = argv[1]}, &client, &error), &error);

  const rv_wait wait = {.timeout_ms = 30000};
  double sum = 0;
  size_t items = 0;
  for (int i = 0; i < BATCHES; i++) {
    rv_batch *batch;
    check(rv_client_sample_batch(client, "replay", BATCH, RV_UNEQUAL_ERROR, &wait, &batch, &error), &error);
    rv_sample_column rewards;
    check(rv_batch_column(batch, 1, &rewards, &error), &error);
    float *values = malloc(rewards.bytes);
    if (values == NULL) return 1;
    check(rv_batch_gather(batch, 1, values, rewards.bytes, &error), &error);
    for (size_t k = 0; k < rewards.bytes / sizeof *values; k++) sum += values[k];
    items += rv_batch_size(batch);
    free(values);
    rv_batch_free(batch);
  }
  printf("learner: sampled %zu trajectories, rewards sum to %.0f\n", items, sum);
  rv_client_free(client);
}
