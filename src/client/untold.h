/* What made a batch short other than the time. What had been drawn is counted, so it is given out, and the next call for that table
 * begins with the failure instead of drawing: else one that lasts would never be heard of. One that no call has raised is logged when
 * the client goes. One for each table; a second one, of another thread's call, is the same mostly and is dropped. */
#ifndef RV_CLIENT_UNTOLD_H
#define RV_CLIENT_UNTOLD_H

#include "client/client.h"

/* `drawn` of the `wanted` items of that table were given out, and then came the failure. Out of memory: it is logged at once. */
void rv_untold_note(rv_client *client, const char *table, size_t drawn, size_t wanted, const rv_error *failure);
/* Under the client's mutex: the table's, taken out; NULL: none. */
rv_untold *rv_untold_take(rv_client *client, const char *table);
rv_code rv_untold_tell(rv_untold *owned, rv_error *err);
/* Logs those that are left. */
void rv_untold_fini(rv_client *client);

#endif
