#include "ending.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

int ending_signal(void)
{
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 ? SIGTERM : sigismember(&pending, SIGINT) == 1 ? SIGINT : 0;
}

bool ending_go_on(void *context, const rv_checkpoint_progress *progress)
{
  (void)context, (void)progress;
  return ending_signal() == 0;
}

int ending_save(const settings *all, server_log *log, rv_checkpointer *checkpointer, rv_store *store, int status)
{
  if (checkpointer == NULL || all->journal_path != NULL) return status;
  if (all->checkpoint_every_ms == 0 && all->checkpoint_every_inserts == 0) {
    log_say(
        log, RV_LOG_INFO,
        "nothing is saved at the end, as checkpoints are saved only when asked for; give checkpoint_every_seconds to have one");
    return status;
  }
  if (status != 0) {
    log_say(log, RV_LOG_WARNING, "a second signal came: the last checkpoint is not saved");
    return status;
  }
  log_say(log, RV_LOG_INFO, "saving a last checkpoint; a second signal ends that, and the one before it stays");
  const rv_checkpoint_watch watch = {.size = sizeof watch, .go_on = ending_go_on};
  rv_error err;
  char *path = NULL;
  rv_code code = rv_checkpointer_save(checkpointer, store, &watch, &path, &err);
  if (code == RV_OK) {
    log_say(log, RV_LOG_INFO, "saved %s", path);
    free(path);
    return 0;
  }
  int signal_number = ending_signal();
  if (code == RV_CANCELLED && signal_number != 0) {
    log_say(log, RV_LOG_WARNING, "%s: the last checkpoint is not saved", strsignal(signal_number));
    return 128 + signal_number;
  }
  log_say(log, RV_LOG_ERROR, "the last checkpoint is not saved: %s", err.message);
  return 1;
}
