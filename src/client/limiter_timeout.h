/* How a server says that its limiter let nothing through in time: DEADLINE_EXCEEDED with Reverb's sentence, to which a Reverie
 * server adds what it waited for. Any other DEADLINE_EXCEEDED is an error like others. */
#ifndef RV_CLIENT_LIMITER_TIMEOUT_H
#define RV_CLIENT_LIMITER_TIMEOUT_H

#include <stdbool.h>

#include "reverie/status.h"

#define RV_LIMITER_TIMEOUT_TEXT "Rate Limiter: Timeout exceeded before the right to insert was acquired."

bool rv_is_limiter_timeout(rv_code code, const char *message);
/* "table "replay": sampling waits for 10 items, has 7 (min_size_to_sample)", if the server said so; else "". Points into message. */
const char *rv_limiter_timeout_reason(const char *message);

/* Is the stream to be opened again? The server went away, or its table was closed, or a plain Reverb's own way of saying so. */
bool rv_is_lost_connection(rv_code code, const char *message);

#endif
