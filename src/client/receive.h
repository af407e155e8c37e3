/* From the messages of a SampleStream to drawn items: collects each sample's entries and chunks, then resolves its slices.
 *
 * One receiver serves one stream, on one thread. Nothing that arrives is trusted: what does not fit ends in RV_DATA_LOSS that
 * names the item. */
#ifndef RV_CLIENT_RECEIVE_H
#define RV_CLIENT_RECEIVE_H

#include "base/map.h"
#include "client/client.h"
#include "net/net.h"
#include "wire/messages.h"

typedef struct rv_receiver {
  rv_layouts *layouts; /* borrowed from the client, as is the cache */
  rv_decode_cache *decode_cache;
  size_t max_bytes; /* of the chunks of one sample */
  bool copy_small;  /* small chunks get memory of their own, so that they do not pin the message */
  /* the sample that is not complete yet */
  bool open;
  rv_wire_sample_info info;
  rv_chunk **chunks;
  uint32_t num_chunks, capacity, last_found;
  size_t bytes;
  rv_map numbers; /* of the chunks, by key, once there are many */
} rv_receiver;

/* `copy_small`: the samples are handed on one by one, and some may be held for long. */
void rv_receiver_init(rv_receiver *receiver, rv_client *client, bool copy_small);
void rv_receiver_fini(rv_receiver *receiver);
/* Forgets the sample that is not complete: the stream begins anew. */
void rv_receiver_clear(rv_receiver *receiver);

/* Takes in a SampleStreamResponse that lies inside `owner`, and writes the samples that it completes to out[*count], ...: they
 * are the caller's, also those that were complete before an error was found. More than `capacity` in all are RV_DATA_LOSS. */
rv_code rv_receiver_take(rv_receiver *receiver, rv_buf *owner, rv_span message, rv_draw *out, size_t capacity, size_t *count,
                         rv_error *err);

/* The same within on_message of a call that takes gaps. Where somebody `pours`, the message may keep them: *gapped says so, and what came is a run
 * then (store/run.h), whose rows are to be copied from where they are lent; else they are filled. RV_UNAVAILABLE: what the message was to have is not
 * lent any more, and nothing was taken. */
rv_code rv_receiver_take_lent(rv_receiver *receiver, rv_call *call, bool pours, rv_buf *owner, rv_span message, rv_draw *out,
                              size_t capacity, size_t *count, bool *gapped, rv_error *err);

/* The one sample of an answer that is whole by itself; *out is the caller's only with RV_OK. */
rv_code rv_receive_one(rv_client *client, rv_buf *owner, rv_span message, rv_draw *out, rv_error *err);

#endif
