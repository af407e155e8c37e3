/* The batch behind the opaque rv_batch: drawn items, and the memory for them, which goes from batch to batch. */
#ifndef RV_CLIENT_BATCH_H
#define RV_CLIENT_BATCH_H

#include "client/batch_remote.h"

struct rv_batch {
  rv_client *client;
  rv_draw *draws; /* room for `capacity` */
  rv_sample_info *infos;
  size_t size, capacity;
  bool one_layout; /* all items look alike */
  int64_t *shapes; /* of the columns' rows, RV_MAX_RANK of each, for those that padding makes alike; NULL: none are to be */
  rv_batch *next;  /* in the client's list of free ones */
};

void rv_batches_free(rv_batch *list);
/* An empty batch with room for so many; rv_batch_free gives it back. */
rv_code rv_batch_take(rv_client *client, size_t capacity, rv_batch **out, rv_error *err);
/* Draws into batch->draws from an embedded store, with a fill (may be NULL) beside them; batch->size counts both. What was drawn
 * before the time ran out, or the table was closed, is kept. */
rv_code rv_batch_draw_local(rv_batch *batch, const char *table, size_t want, bool same_layout, rv_fill *fill,
                            rv_patience *patience, rv_error *err);

/* The same from a server. With a sink, its items are gone when this returns, and batch->size is 0. */
rv_code rv_batch_draw_remote(rv_batch *batch, const char *table, size_t want, bool same_layout, rv_sink *sink,
                             rv_patience *patience, rv_error *err);
/* Infos, and whether all draws look alike, which for RV_UNEQUAL_ERROR they must. */
rv_code rv_batch_finish(rv_batch *batch, const char *table, rv_unequal unequal, rv_error *err);

#endif
