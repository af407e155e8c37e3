/* An actor: writes overlapping trajectories of three steps to a server. Run: reverie-server --port 8000 --table name=replay,
 * then ./actor 127.0.0.1:8000, and ./learner 127.0.0.1:8000 beside it. */
#include <reverie/reverie.h>
#include <stdio.h>
#include <stdlib.h>

enum { EPISODES = 20, STEPS = 50, LENGTH = 3 };

static void check(rv_code code, const rv_error *error)
{
  if (code == RV_OK) return;
  fprintf(stderr, "actor: %s: %s\n", rv_code_name(code), error->message);
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
  rv_writer *writer;
  rv_writer_config config = {.size = sizeof config, .num_keep_alive_refs = LENGTH};
  check(rv_writer_new(client, &config, &writer, &error), &error);

  const rv_wait wait = {.timeout_ms = 10000};
  for (int episode = 0; episode < EPISODES; episode++) {
    for (int step = 0; step < STEPS; step++) {
      float observation[4] = {(float)episode, (float)step, 0, 0}, reward = 1;
      int64_t shape[] = {4};
      rv_cell cells[] = {{0, {RV_FLOAT32, 1, shape, observation}}, {1, {RV_FLOAT32, 0, NULL, &reward}}};
      check(rv_writer_append(writer, cells, 2, false, &error), &error);
      if (step + 1 < LENGTH) continue;
      rv_run observations = {.column = 0, .count = LENGTH, .first = step + 1 - LENGTH, .stride = 1};
      rv_run rewards = {.column = 1, .count = LENGTH, .first = step + 1 - LENGTH, .stride = 1};
      rv_item_column trajectory[] = {{&observations, 1, false}, {&rewards, 1, false}};
      check(rv_writer_create_item(writer, "replay", 1.0, trajectory, 2, NULL, &error), &error);
      check(rv_writer_flush(writer, 100, &wait, &error), &error); /* at most 100 unconfirmed */
    }
    check(rv_writer_end_episode(writer, true, &wait, &error), &error);
  }
  printf("actor: wrote %d episodes of %d steps\n", EPISODES, STEPS);
  rv_writer_free(writer);
  rv_client_free(client);
}
