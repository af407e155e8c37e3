/* Rows to a server: each add is a chunk or a few, an item a row, and the wait for their confirmation.
 *
 * An add has an insert stream to itself while it lasts, so that it can take back what the server has not let in when its time is
 * up; streams that nobody uses wait in the client's list, connected. */
#ifndef RV_CLIENT_ADD_REMOTE_H
#define RV_CLIENT_ADD_REMOTE_H

#include "client/client.h"

enum { RV_MAX_COLUMNS = 65535 };

typedef struct rv_add {
  const char *table;
  const rv_tensor *columns; /* [n, ...] */
  size_t num_columns, n;
  const double *priorities; /* n, or NULL: 1.0 */
  uint64_t *keys;           /* n, or NULL */
  uint64_t naming;          /* 0: not said */
} rv_add;

/* *added rows are confirmed. At the timeout the others will not be inserted any more, but for those whose confirmation was on its
 * way in that moment. (A plain Reverb lets in what it was sent, however late.) */
rv_code rv_add_remote(rv_client *client, const rv_add *add, size_t *added, const rv_wait *wait, rv_error *err);
void rv_add_streams_free(rv_client *client);

#endif
