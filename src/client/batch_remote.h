/* Batches from a server: a SampleStream that stays open from batch to batch, one request a batch.
 *
 * A stream serves one call at a time; those that nobody uses wait in the client's list. The server is told how long it may wait,
 * so that it answers with what it could draw; this side waits a little longer for that answer, because what was drawn is counted.
 */
#ifndef RV_CLIENT_BATCH_REMOTE_H
#define RV_CLIENT_BATCH_REMOTE_H

#include "client/client.h"
#include "client/sink.h"

/* Draws up to `want` items. RV_OK: *count >= 1 of them are in draws, the caller's to release; fewer than wanted when the time ran
 * out or something failed, which the next call says (client/untold.h). With a sink (may be NULL) that took any, all of them went there, and none is left in draws. */
rv_code rv_sample_remote(rv_client *client, const char *table, size_t want, bool same_layout, rv_sink *sink,
                         rv_patience *patience, rv_draw *draws, size_t *count, rv_error *err);
void rv_batch_streams_free(rv_client *client);

#endif
