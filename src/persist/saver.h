/* The thread that saves a store's checkpoints: as often as configured (reverie/checkpoint.h), and when somebody asks. It sleeps in
 * between, holds no lock while it saves, and is on Linux 10 nicer than the thread that made it. Whoever asks while one is being saved
 * waits for the next: theirs must hold what was there when they asked. */
#ifndef RV_PERSIST_SAVER_H
#define RV_PERSIST_SAVER_H

#include "base/list.h"
#include "reverie/checkpoint.h"

/* The memory is the asker's until `done`, which comes exactly once, on the saver's thread, without locks: as soon as the checkpoint is on the
 * disk. Older ones are none any more by then; their files go after it. */
typedef struct rv_saver_request {
  void (*done)(struct rv_saver_request *request, rv_code code, const char *path_or_message);
  rv_link link;
} rv_saver_request;

void rv_saver_ask(rv_saver *saver, rv_saver_request *request);
/* Ends what is being saved with RV_CANCELLED, answers all who asked, and waits for the thread. Idempotent, by one thread. */
void rv_saver_stop(rv_saver *saver);

#endif
