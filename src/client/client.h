/* The client behind the opaque rv_client: an embedded store, or a channel to a server that is opened when it is first needed.
 *
 * `store` and `address` never change after rv_client_new; exactly one is set. The loop and the channel are made by the first call that
 * needs them (rv_client_connect) and stay until rv_client_free. Calls are opened on the loop's thread (rv_loop_post), results
 * reach the caller through a gate (wait.h). Keys, ids and seeds come from the client's random source. */
#ifndef RV_CLIENT_CLIENT_H
#define RV_CLIENT_CLIENT_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/random.h"
#include "client/tables.h"
#include "client/wait.h"
#include "net/net.h"
#include "store/store.h"

typedef struct rv_batch_streams rv_batch_streams; /* sample streams that stay open between batches (batch_remote.c) */
typedef struct rv_add_writers rv_add_writers;     /* writers that add uses, kept between calls (add_remote.c) */

struct rv_client {
  rv_env env;
  rv_store *store; /* embedded; one reference; NULL: remote */
  char *address;   /* remote; NULL: embedded */
  size_t max_message_bytes;
  volatile unsigned char *alive; /* a page that reads 1 here and 0 in a forked child */
  pid_t pid;                     /* of the process that made it */
  rv_layouts *layouts;           /* the store's, or a remote client's own; one reference */
  rv_decode_cache *decode_cache; /* likewise */

  rv_mutex mutex; /* RV_RANK_CLIENT: what follows. Never held while waiting, nor together with a writer's or sampler's */
  rv_random random;
  rv_loop *loop;       /* NULL until connected; then never changes */
  rv_channel *channel;
  rv_tables *tables;   /* the latest known; NULL: not fetched yet */
  rv_batch_streams *batch_streams;
  rv_add_writers *add_writers;
};

/* RV_FAILED_PRECONDITION in a forked child. Costs one load. Every public call begins with it. */
rv_code rv_client_check(const rv_client *client, rv_error *err);
/* Starts loop and channel if they are not there (client->loop and client->channel may be read without a lock afterwards). Connects to nothing
 * yet. Remote clients only. */
rv_code rv_client_connect(rv_client *client, rv_error *err);
/* 64 random bits that are nobody else's: keys of items and chunks, episode ids, seeds. Any thread; those who need many seed a generator of their
 * own with it. */
uint64_t rv_client_random(rv_client *client);
/* "connected to ..., in process": the channel's state, for sentences. */
void rv_client_state(rv_client *client, char *out, size_t capacity);

/* One unary call: sends `request` (emptied), waits for the answer. Waits for the server to be there while the patience lasts. With `idempotent` it
 * is repeated while it ends with UNAVAILABLE. *out is the response message inside *owner, of which the caller gets one reference. */
rv_code rv_client_unary(rv_client *client, const char *path, rv_pieces *request, bool idempotent, rv_patience *patience,
                        rv_buf **owner, const uint8_t **out, size_t *out_size, rv_error *err);

#endif
