/* More data than memory comes from the disk, too: where a store is restored its spill takes what there is no room for meanwhile. */
#include <time.h>

#include "base/error.h"
#include "persist/checkpoint_files.h"
#include "store/memory.h"
#include "store/store.h"

enum { LOOK_NS = 1000000 };

static bool is_wanted(const rv_checkpoint_watch *watch)
{
  return watch != NULL && watch->size >= sizeof *watch && watch->spill != NULL;
}

rv_code rv_checkpoint_expect_spill(const rv_checkpoint_watch *watch, rv_error *err)
{
  if (!is_wanted(watch)) return RV_OK;
  if (watch->spilled == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "a spill is asked for, but not where it goes: give rv_checkpoint_watch.spilled, too");
  *watch->spilled = NULL;
  return rv_spill_check(watch->spill, err);
}

void rv_checkpoint_drop_spill(const rv_checkpoint_watch *watch)
{
  if (!is_wanted(watch)) return;
  rv_spill_free(*watch->spilled);
  *watch->spilled = NULL;
}

rv_code rv_checkpoint_begin_spill(const rv_checkpoint_watch *watch, rv_store *store, rv_error *err)
{
  if (!is_wanted(watch)) return RV_OK;
  rv_checkpoint_drop_spill(watch);
  return rv_spill_new(watch->spill, store, watch->spilled, err);
}

rv_code rv_checkpoint_await_spill(const rv_checkpoint_watch *watch, const rv_checkpoint_progress *progress, rv_store *store,
                                  rv_error *err)
{
  const struct timespec pause = {.tv_nsec = LOOK_NS};
  rv_code code = RV_OK;
  if (!is_wanted(watch)) return RV_OK;
  while (code == RV_OK && rv_memory_awaits_spill(rv_store_memory(store))) {
    nanosleep(&pause, NULL);
    code = rv_checkpoint_ask(watch, progress, err);
  }
  return code;
}
