/* Does what a server sent fit the signature that its table is known to have? */
#ifndef RV_CLIENT_CHECK_RECEIVED_H
#define RV_CLIENT_CHECK_RECEIVED_H

#include "client/client.h"

/* The layout that was checked last, which most samples share. {0} to begin with. */
typedef struct rv_received_check {
  rv_trajectory *fits; /* one reference, which keeps its layout's address from being used again */
} rv_received_check;

void rv_received_check_fini(rv_received_check *check);
/* Nothing needs to be looked up for this one. */
static inline bool rv_is_checked(const rv_received_check *check, const rv_draw *draw)
{
  return check->fits != NULL && check->fits->layout == draw->trajectory->layout;
}
/* Nothing needs to be looked up for any sample of this layout, now. */
bool rv_is_layout_checked(const rv_received_check *check, rv_client *client, const rv_layout *layout);
/* RV_OK also where no signature is known. Before it says no, the signature is fetched anew: the server may have been restarted
 * with other tables. RV_INVALID_ARGUMENT names the column. */
rv_code rv_check_received(rv_received_check *check, rv_client *client, const char *table, const rv_draw *draw,
                          rv_patience *patience, rv_error *err);

#endif
