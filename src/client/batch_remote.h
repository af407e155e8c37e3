/* Batches from a server: a SampleStream that stays open from batch to batch, one request a batch.
 *
 * A stream serves one call at a time; those that nobody uses wait in the client's list. The server is told how long it may wait,
 * so that it answers with what it could draw; this side waits a little longer for that answer, because what was drawn is counted.
 */
#ifndef RV_CLIENT_BATCH_REMOTE_H
#define RV_CLIENT_BATCH_REMOTE_H

#include "client/client.h"

/* Takes what arrives, on the loop's thread, as it arrives: the rows of a large batch then need no memory of their own. */
typedef struct rv_batch_sink {
  const rv_layout *layout; /* of the items that it takes. If the first one looks otherwise, it gets none */
  /* Draws number `first` and following, which are released afterwards. */
  rv_code (*take)(struct rv_batch_sink *sink, const rv_draw *draws, size_t n, size_t first, rv_error *err);
  size_t taken;       /* out: so far */
  int64_t table_size; /* out: at the last of them */
  uint64_t naming;    /* out: that all of them have; 0: none */
} rv_batch_sink;

/* Draws up to `want` items. RV_OK: *count >= 1 of them are in draws, the caller's to release; fewer than wanted when the time ran
 * out. With a sink (may be NULL) that took any, all of them went there, and none is left in draws. */
rv_code rv_sample_remote(rv_client *client, const char *table, size_t want, bool same_layout, rv_batch_sink *sink,
                         rv_patience *patience, rv_draw *draws, size_t *count, rv_error *err);
void rv_batch_streams_free(rv_client *client);

#endif
