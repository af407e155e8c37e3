/* What a remote client knows of the server's tables: their signatures and options, fetched by ServerInfo and shared until the
 * server's state id changes.
 *
 * Whether an item fits is asked of store/signature.h (rv_signature_fits). Embedded clients ask the store for all of it. */
#ifndef RV_CLIENT_TABLES_H
#define RV_CLIENT_TABLES_H

#include "client/wait.h"
#include "reverie/client.h"
#include "wire/proto.h"

/* A snapshot, refcounted and immutable. */
typedef struct rv_tables rv_tables;
rv_tables *rv_tables_ref(rv_tables *tables);
void rv_tables_unref(rv_tables *tables);

/* The client's snapshot, fetched if there is none yet or if `refresh`; the caller gets one reference. Where neither the
 * state id nor a table's limiter or bounds have changed, a refresh gives the old snapshot again. */
rv_code rv_client_tables(rv_client *client, bool refresh, rv_patience *patience, rv_tables **out, rv_error *err);
/* The snapshot if there is one already, without asking anybody; else NULL. One reference. */
rv_tables *rv_client_known_tables(rv_client *client);

/* What the tables' settings are is to be asked again. */
void rv_client_forget_tables(rv_client *client);

/* Takes in a serialized ServerInfoResponse. *out (may be NULL) is as rv_client_tables gives it. */
rv_code rv_client_learn_tables(rv_client *client, rv_span server_info, rv_tables **out, rv_error *err);

/* RV_NOT_FOUND: the sentence lists the tables there are. *out is valid while the snapshot is held; numbers in it are of when it
 * was fetched. */
rv_code rv_tables_find(const rv_tables *tables, const char *table, const rv_table_info **out, rv_error *err);

#endif
