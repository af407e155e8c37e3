/* The client behind the opaque rv_client: an embedded store, or a channel to a server that is opened when it is first needed.
 *
 * `store` and `address` never change after rv_client_new; exactly one is set. The loop and the channel are made by the first call
 * that needs them (rv_client_connect) and stay until rv_client_free. Calls are opened on the loop's thread (rv_loop_post),
 * results reach the caller through a gate (wait.h). Keys, ids and seeds come from the client's random source. */
#ifndef RV_CLIENT_CLIENT_H
#define RV_CLIENT_CLIENT_H

#include <stdatomic.h>

#include "base/crew.h"
#include "base/lock.h"
#include "base/maker.h"
#include "base/random.h"
#include "client/idle_calls.h"
#include "client/tables.h"
#include "client/wait.h"
#include "net/net.h"
#include "reverie/sampler.h"
#include "store/store.h"
#include "wire/proto.h"

typedef struct rv_untold rv_untold;

struct rv_client {
  rv_env env;
  rv_store *store;     /* embedded; one reference; NULL: remote */
  char *address;       /* remote; NULL: embedded */
  rv_tls *tls;         /* remote: one reference; NULL: none */
  char *authorization; /* remote: the header for its token; NULL: none */
  rv_io *io;           /* remote: where the loop is from; one reference; NULL: it is its own */
  size_t max_message_bytes;
  int64_t peer_timeout_ms;
  bool no_shared_memory;
  rv_maker maker;
  rv_layouts *layouts;           /* the store's, or a remote client's own; one reference */
  rv_decode_cache *decode_cache; /* likewise */
  rv_crew *crew;                 /* a remote client's own; NULL: the store's */

  atomic_uint_least64_t changes; /* made through this client and confirmed by its server */
  atomic_bool closed;            /* rv_client_close was called; set under the mutex */

  rv_mutex mutex; /* RV_RANK_CLIENT: what follows. Never held while waiting, nor together with a writer's or sampler's */
  rv_random random;
  rv_loop *loop; /* NULL until connected; then never changes */
  rv_channel *channel;
  atomic_bool connected;              /* both are there */
  rv_tables *tables;                  /* the latest known; NULL: not fetched yet */
  uint64_t tables_forgets;            /* rv_client_forget_tables */
  int64_t tables_ask_at_ns;           /* not before that does rv_client_recent_tables ask again */
  bool looks_at_tables;               /* it waits for an answer */
  rv_link batch_streams, add_streams; /* streams that stay open between batches and adds, while nobody uses them */
  size_t num_batch_streams, num_add_streams;
  rv_untold *untold;      /* client/untold.h; NULL: nothing is */
  rv_batch *free_batches; /* memory for the next batch */
  size_t num_free_batches;
  /* ---- the loop's ---- */
  rv_idle_calls sample_calls;
};

/* The client is not that of a process which forked this one, and what is its own may be freed and locked. Costs a load. */
static inline bool rv_client_is_here(const rv_client *client)
{
  return rv_maker_is_this_process(&client->maker);
}
static inline bool rv_client_is_closed(const rv_client *client)
{
  return atomic_load_explicit(&client->closed, memory_order_relaxed);
}
/* Says which of the two it is. */
rv_code rv_client_fail_gone(const rv_client *client, rv_error *err);
/* RV_FAILED_PRECONDITION in a forked child, and once the client was closed. Costs two loads. Every public call begins with it. */
static inline rv_code rv_client_check(const rv_client *client, rv_error *err)
{
  return rv_client_is_here(client) && !rv_client_is_closed(client) ? RV_OK : rv_client_fail_gone(client, err);
}
/* The same, and that a table was named; of a client elsewhere also that it may be called so. */
rv_code rv_client_check_table(const rv_client *client, const char *table, rv_error *err);
/* RV_INVALID_ARGUMENT: the name is not UTF-8. A server refuses a message that has it, and all else that is in it. */
rv_code rv_client_check_name(const char *table, rv_error *err);
/* Starts loop and channel if they are not there (client->loop and client->channel may be read without a lock afterwards).
 * Connects to nothing yet. Remote clients only. */
rv_code rv_client_connect(rv_client *client, rv_error *err);
/* For those who cannot free it yet: its connections end now, calls that wait end with RV_CANCELLED within half a second (100 ms where they
 * ask whether they are interrupted), and later ones fail. Writers keep what they have not had confirmed, and tell of it when they are closed; to flush, settle or close one of
 * which everything was confirmed is no failure. Any thread, but not a loop's; calling it again does nothing. */
void rv_client_close(rv_client *client);
/* The caller's patience, which ends when the client is closed. As rv_patience_begin. */
void rv_client_begin_patience(rv_client *client, rv_patience *patience, const rv_wait *wait,
                              void (*describe)(void *context, char *out, size_t capacity), void *context);
/* Something in a table has changed, and the caller is about to hear of it: what was drawn before is not given out any more. */
static inline void rv_client_note_change(rv_client *client)
{
  atomic_fetch_add_explicit(&client->changes, 1, memory_order_release);
}
/* Who helps with large batches. */
rv_crew *rv_client_crew(rv_client *client);
/* Who helps with a large copy that the loop makes; asked before each, by whoever has its turn. NULL: nobody. */
rv_crew *rv_client_loop_crew(rv_client *client);
/* 64 random bits that are nobody else's: keys of items and chunks, episode ids, seeds. Any thread; those who need many seed a
 * generator of their own with it. */
uint64_t rv_client_random(rv_client *client);
/* "connected to ..., in process": the channel's state, for sentences. */
void rv_client_state(rv_client *client, char *out, size_t capacity);

/* "waits for localhost:8000 to answer SampleStream", or for a server to be there and why it is not: for patience's describe. */
void rv_describe_server(rv_client *client, const char *call, char *out, size_t capacity);

typedef enum rv_unary_mode {
  RV_UNARY_ONCE = 0,     /* waits for the server to be there, sends the request once */
  RV_UNARY_REPEAT = 1,   /* the same, and repeats it while it ends with UNAVAILABLE: for requests that may be carried out twice */
  RV_UNARY_FAIL_FAST = 2 /* UNAVAILABLE when the server is not there now */
} rv_unary_mode;

/* One unary call: sends `request` (emptied in any case), waits for the answer while the patience lasts. *out is the response
 * message inside *owner, of which the caller gets one reference. */
rv_code rv_client_unary(rv_client *client, const char *path, rv_writer_buf *request, rv_unary_mode mode, rv_patience *patience,
                        rv_buf **owner, rv_span *out, rv_error *err);

#endif
