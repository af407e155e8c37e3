/* Waiting for an operation on an embedded store's table. */
#ifndef RV_CLIENT_AWAIT_H
#define RV_CLIENT_AWAIT_H

#include "base/error.h"
#include "client/client.h"

/* The table of that name in the client's store; RV_NOT_FOUND lists the names there are, RV_INVALID_ARGUMENT says that this can be none. */
static inline rv_code rv_client_find_table(rv_client *client, const char *name, rv_table **out, rv_error *err)
{
  rv_code code = rv_store_find_named(client->store, name, out, err);
  return code == RV_NOT_FOUND && rv_client_check_name(name, err) != RV_OK ? RV_INVALID_ARGUMENT : code;
}

/* Before submitting: the waiter opens the gate when it completes. `deadline_ns` is for those who look at the table's waiting
 * callers. */
void rv_await_prepare(rv_waiter *waiter, rv_gate *gate, int64_t deadline_ns);

/* Waits for a pending operation, which is complete or cancelled when this returns. RV_OK: it completed (its own result is in
 * waiter->code); otherwise why the caller gave up: what the operation had done by then stands. */
rv_code rv_await(rv_waiter *waiter, rv_gate *gate, rv_patience *patience, rv_error *err);

#endif
