/* Asking the server what its tables expect, without making anybody wait. */
#include <stdlib.h>

#include "base/error.h"
#include "client/paths.h"
#include "client/unary_call.h"
#include "client/writer.h"

#define AGAIN_AFTER_NS INT64_C(100000000)
enum { EXHAUSTED_MOST = 20 }; /* memory may be there again by then; an answer that is larger than this client takes never is */

struct rv_tables_fetch {
  rv_unary_call call; /* first: `done` is given it */
  rv_writer *writer;  /* the loop's; NULL: nobody wants to know any more */
  rv_client *client;
  rv_tables_asked asked;
  rv_task task;
  rv_timer again;
  bool running;
  int exhausted; /* answers that were lost for want of room, one after another */
};

static void start(rv_tables_fetch *fetch)
{
  fetch->running = true;
  fetch->asked = rv_client_before_asking(fetch->client);
  rv_unary_call_start(&fetch->call);
}

static void on_task(rv_task *task)
{
  start(RV_CONTAINER(task, rv_tables_fetch, task));
}

static void on_again(rv_timer *timer)
{
  start(RV_CONTAINER(timer, rv_tables_fetch, again));
}

static void end(rv_tables_fetch *fetch, const rv_tables *tables)
{
  rv_writer *writer = fetch->writer;
  rv_timer_stop(&fetch->again);
  if (tables == NULL) {
    rv_log(&fetch->client->env, RV_LOG_WARNING,
           "a writer does not check its items: the server does not say what its tables expect (%s)", fetch->call.error.message);
  }
  rv_mutex_lock(&writer->mutex);
  writer->fetch = NULL;
  if (tables == NULL) writer->tables_error = fetch->call.error;
  rv_mutex_unlock(&writer->mutex);
  rv_writer_release_unchecked(writer, tables);
  rv_mutex_lock(&writer->mutex);
  rv_gate_open(&writer->gate);
  rv_mutex_unlock(&writer->mutex);
  free(fetch);
}

/* Nothing was learnt, and may be when it is asked again. */
static bool is_transient(rv_tables_fetch *fetch)
{
  const rv_unary_call *call = &fetch->call;
  if (call->code == RV_RESOURCE_EXHAUSTED) return call->again_ns > 0 || ++fetch->exhausted < EXHAUSTED_MOST;
  fetch->exhausted = 0;
  return call->code == RV_UNAVAILABLE || call->code == RV_CANCELLED;
}

static void on_done(rv_unary_call *call)
{
  rv_tables_fetch *fetch = (rv_tables_fetch *)call;
  fetch->running = false;
  rv_tables *tables = NULL;
  if (call->code == RV_OK) {
    if (fetch->writer != NULL)
      call->code = rv_client_learn_tables(fetch->client, fetch->asked, call->response, &tables, &call->error);
    rv_buf_unref(call->owner);
  }
  if (fetch->writer == NULL) {
    free(fetch);
  } else if (is_transient(fetch)) {
    rv_timer_start(&fetch->again, rv_monotonic_ns(&fetch->client->env) + (call->again_ns > 0 ? call->again_ns : AGAIN_AFTER_NS));
  } else {
    end(fetch, tables);
    rv_tables_unref(tables);
  }
}

rv_code rv_writer_fetch_tables(rv_writer *writer, rv_error *err)
{
  rv_tables_fetch *fetch = calloc(1, sizeof *fetch);
  if (fetch == NULL) return rv_fail_memory(err, sizeof *fetch);
  rv_client *client = writer->client;
  fetch->call = (rv_unary_call){
      .channel = client->channel, .path = RV_PATH_SERVER_INFO, .deadline_ns = INT64_MAX, .wait_for_ready = true, .done = on_done};
  rv_pieces_init(&fetch->call.request); /* the request is empty, also when it is made again */
  fetch->writer = writer;
  fetch->client = client;
  fetch->task.run = on_task;
  rv_timer_init(&fetch->again, client->loop, on_again);
  rv_mutex_lock(&writer->mutex);
  writer->fetch = fetch;
  writer->tables_error.code = RV_OK;
  atomic_store_explicit(&writer->tables_known, false, memory_order_relaxed);
  rv_mutex_unlock(&writer->mutex);
  rv_loop_post(client->loop, &fetch->task);
  return RV_OK;
}

/* Behind the task, which has then run. */
void rv_writer_stop_fetching(rv_writer *writer)
{
  rv_tables_fetch *fetch = writer->fetch;
  writer->fetch = NULL;
  if (fetch == NULL) return;
  fetch->writer = NULL;
  rv_timer_stop(&fetch->again);
  if (fetch->running) {
    rv_unary_call_stop(&fetch->call); /* on_done frees it */
  } else {
    free(fetch);
  }
}
