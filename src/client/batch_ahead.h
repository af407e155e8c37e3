/* Batches ahead: when one caller asks for batches of one table again and again, the next ones are on their way before he asks.
 *
 * A batch from a server is a chain of wake-ups: caller, the loop's thread, the server, the loop's thread, caller. Who draws batches in
 * a row gets them from a sampler (sampler_remote.h), whose samples arrive while he works, many in one message. This is done only
 * where nobody can tell (rv_fetching_ahead_is_invisible), and for batches that are small. What was drawn before the client changed
 * something itself, or long ago, is not given out: see rv_batch_ahead_fetch. Whatever is unusual, a wait or a failure or another
 * kind of item, is left to a request of one's own (batch_remote.c).
 *
 * It belongs to whoever has the batch stream it is part of. */
#ifndef RV_CLIENT_BATCH_AHEAD_H
#define RV_CLIENT_BATCH_AHEAD_H

#include "client/sampler_remote.h"

typedef struct rv_batch_ahead {
  char *table; /* what was asked for last; NULL: nothing yet */
  size_t want;
  unsigned in_a_row;
  uint64_t changes;    /* the client's, when the last batch was given out */
  uint64_t losses;     /* rv_client_losses, when the sampler was made */
  int64_t asked_ns;    /* when it was asked for */
  int64_t interval_ns; /* from one to the next, about */
  int64_t given_ns;    /* when the last one was given out */
  int64_t own_ns;      /* from then to the next, about: what the caller does in between */
  int64_t timed;       /* batches that the two are means of, SMOOTHED at most */
  size_t item_bytes;   /* about, as they come over the wire */
  rv_sampler *sampler; /* NULL: none is drawn ahead. It rests while it is not known that nobody can tell (sampler_remote.h) */
  int64_t handed_out;  /* samples, since the row began, also by samplers before this one */
} rv_batch_ahead;

/* Batches were last asked for from that table. */
bool rv_batch_ahead_is_for(const rv_batch_ahead *ahead, const char *table);
/* Takes what was drawn ahead, at most `want`, and waits for the rest while that is promising; returns how many there are, the
 * caller's to release. Fewer than `want`: the others need a request of their own. Nothing is given out that was drawn before a change that
 * this client made and that has been confirmed, or longer ago than a second, or on a connection that is lost. */
size_t rv_batch_ahead_fetch(rv_batch_ahead *ahead, const char *table, size_t want, rv_patience *patience, rv_draw *draws);
/* A batch of so many items of that table was drawn by a request of its own, begun with `patience`, and took so many bytes. */
void rv_batch_ahead_note(rv_batch_ahead *ahead, rv_client *client, const char *table, size_t count, size_t bytes,
                         rv_patience *patience);
/* Forgets what was drawn ahead. */
void rv_batch_ahead_stop(rv_batch_ahead *ahead);
void rv_batch_ahead_fini(rv_batch_ahead *ahead);

#endif
