/* What a remote client knows of the server's tables: their signatures and options, fetched by ServerInfo and shared until the
 * server's state id changes.
 *
 * Embedded clients ask the store instead (rv_store_find, rv_table_signature, rv_table_check_layout). */
#ifndef RV_CLIENT_TABLES_H
#define RV_CLIENT_TABLES_H

#include "client/wait.h"
#include "reverie/client.h"
#include "store/trajectory.h"

/* A snapshot, refcounted and immutable. */
typedef struct rv_tables rv_tables;
rv_tables *rv_tables_ref(rv_tables *tables);
void rv_tables_unref(rv_tables *tables);

/* The client's snapshot, fetched if there is none yet or if `refresh`; the caller gets one reference. With an unchanged state id a refresh gives the
 * old snapshot again. */
rv_code rv_client_tables(rv_client *client, bool refresh, rv_patience *patience, rv_tables **out, rv_error *err);
/* The snapshot if there is one already, without asking anybody; else NULL. One reference. */
rv_tables *rv_client_known_tables(rv_client *client);

/* RV_NOT_FOUND: the sentence lists the tables there are. *out is valid while the snapshot is held; numbers in it are of when it was
 * fetched. */
rv_code rv_tables_find(const rv_tables *tables, const char *table, const rv_table_info **out, rv_error *err);

/* Would an item of these columns fit the signature? Of each column `spec`, `length` and `squeeze` are read. Any item fits a
 * signature without specs. RV_INVALID_ARGUMENT: the sentence names table, column and what was expected, as rv_table_check_layout's does. */
rv_code rv_signature_check_columns(const rv_signature *signature, const char *table, const rv_trajectory_column *columns,
                                   uint32_t num_columns, rv_error *err);

#endif
