/* What a remote client knows of the server's tables: their signatures and options, fetched by ServerInfo and shared until the
 * server's state id changes.
 *
 * What is known was so when it was asked, and another server may be there by now: it is for its user to ask for what is good enough for him.
 * Whether an item fits is asked of store/signature.h (rv_signature_fits). Embedded clients ask the store for all of it. */
#ifndef RV_CLIENT_TABLES_H
#define RV_CLIENT_TABLES_H

#include "client/wait.h"
#include "reverie/client.h"
#include "wire/proto.h"

/* A snapshot, refcounted and immutable. */
typedef struct rv_tables rv_tables;
void rv_tables_unref(rv_tables *tables); /* NULL is fine */

/* Asks the server, and gives the client's snapshot, the caller's to unref. Where neither the state id nor anything of a table that
 * is looked at has changed, that is the old one again. */
rv_code rv_client_tables(rv_client *client, rv_patience *patience, rv_tables **out, rv_error *err);

/* These three ask nobody, and give one reference, or NULL. */
/* The snapshot, however old. */
rv_tables *rv_client_known_tables(rv_client *client);
/* If it is of the server that is connected now. */
rv_tables *rv_client_present_tables(rv_client *client);
/* If it is also of the last second, and of after all changes that this client made to tables' settings. Before that second is over, or where
 * it is, the server is asked anew, and nobody waits for the answer: whoever comes again in a while gets it. Connected clients only. */
rv_tables *rv_client_recent_tables(rv_client *client);
/* How many connections were lost: whatever was heard before another number is perhaps another server's. A load or two; 0 in process. */
uint64_t rv_client_losses(const rv_client *client);
/* The snapshot is of the server that is connected now. */
bool rv_tables_are_present(const rv_tables *tables, const rv_client *client);

/* What the tables' settings are is to be asked again. */
void rv_client_forget_tables(rv_client *client);

/* What is to be noted before a server is asked for its tables, and handed in with its answer. */
typedef struct rv_tables_asked {
  uint64_t losses;  /* rv_client_losses */
  uint64_t forgets; /* rv_client_forget_tables */
  int64_t at_ns;    /* what it says is of no time before that */
} rv_tables_asked;
rv_tables_asked rv_client_before_asking(rv_client *client);
/* Takes in a serialized ServerInfoResponse. *out (may be NULL) is as rv_client_tables gives it. */
rv_code rv_client_learn_tables(rv_client *client, rv_tables_asked asked, rv_span server_info, rv_tables **out, rv_error *err);

/* RV_NOT_FOUND: the sentence lists the tables there are. *out is valid while the snapshot is held, and NULL on failure; numbers in it are of
 * when it was fetched. */
rv_code rv_tables_find(const rv_tables *tables, const char *table, const rv_table_info **out, rv_error *err);

#endif
