/* What a call waits for at a table of a server elsewhere. */
#ifndef RV_CLIENT_EXPLAIN_H
#define RV_CLIENT_EXPLAIN_H

#include "client/client.h"

/* "table "replay": sampling waits for 1,000 items, has 12": what an insert, or else a sample, would wait for now. The server is asked, and
 * given a moment to answer: for callers who have run out of time. false, and out is "": it does not say, or they would not wait. */
bool rv_explain_table(rv_client *client, const char *table, bool insert, char *out, size_t capacity);

/* What keeps the server's journal from writing: "cannot write /data/journal/...: No space left on device". Asked and answered likewise;
 * false: nothing, as far as it says. */
bool rv_explain_journal(rv_client *client, char *out, size_t capacity);

/* Of a server that ended a stream with UNIMPLEMENTED, whose own words say little: "the server does not know InsertStream (Method not found!); is it
 * a Reverie or Reverb server?" */
enum { RV_EXPLAINED_UNKNOWN = 256 };
void rv_explain_unknown(const char *path, const char *said, char *out, size_t capacity);

#endif
