/* The thread that saves a server's checkpoints: when somebody asks, and as often as configured. It is made with the server, sleeps in
 * between, and holds no lock while it saves. Whoever asks while one is being saved waits for the next: theirs must hold what was there
 * when they asked. */
#ifndef RV_SERVER_SAVER_H
#define RV_SERVER_SAVER_H

#include "base/list.h"
#include "reverie/checkpoint.h"

typedef struct rv_saver rv_saver;

typedef struct rv_saver_config {
  rv_store *store; /* a reference is taken, and of this one: */
  rv_checkpointer *checkpointer;
  const rv_env *env;     /* copied */
  int64_t every_ms;      /* 0: never by itself */
  int64_t every_inserts; /* into all tables together; 0: never */
} rv_saver_config;

/* The memory is the asker's until `done`, which comes exactly once, on the saver's thread, without locks. */
typedef struct rv_saver_request {
  void (*done)(struct rv_saver_request *request, rv_code code, const char *path_or_message);
  rv_link link;
} rv_saver_request;

rv_code rv_saver_new(const rv_saver_config *config, rv_saver **out, rv_error *err);
void rv_saver_ask(rv_saver *saver, rv_saver_request *request);
/* Ends what is being saved with RV_CANCELLED, answers all who asked, and waits for the thread. Idempotent, by one thread. */
void rv_saver_stop(rv_saver *saver);
void rv_saver_free(rv_saver *saver); /* stops it; NULL is fine */

#endif
