/* The batch behind the opaque rv_batch: drawn items, and the memory for them, which goes from batch to batch. */
#ifndef RV_CLIENT_BATCH_H
#define RV_CLIENT_BATCH_H

#include "client/client.h"

struct rv_batch {
  rv_client *client;
  rv_draw *draws; /* room for `capacity` */
  rv_sample_info *infos;
  size_t size, capacity;
  bool one_layout; /* all items look alike */
  rv_batch *next;  /* in the client's list of free ones */
};

void rv_batches_free(rv_batch *list);

#endif
