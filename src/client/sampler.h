/* The sampler behind the opaque rv_sampler: what is common to the one over a store in process and the one over a server. */
#ifndef RV_CLIENT_SAMPLER_H
#define RV_CLIENT_SAMPLER_H

#include "client/client.h"
#include "client/sink.h"

typedef struct rv_sampler_ops {
  rv_code (*next)(rv_sampler *sampler, const rv_wait *wait, rv_sample **out, rv_error *err);
  rv_code (*take_into)(rv_sampler *sampler, rv_sink *sink, size_t each, size_t most, const rv_wait *wait, bool *unlike,
                       rv_error *err); /* NULL: every sample is taken with `next` */
  int64_t (*window)(rv_sampler *sampler);
  uint64_t (*losses)(rv_sampler *sampler); /* rv_sampler_losses */
  void (*cancel)(rv_sampler *sampler);     /* any thread */
  void (*free)(rv_sampler *sampler);
} rv_sampler_ops;

/* The first member of either kind. */
struct rv_sampler {
  const rv_sampler_ops *ops;
  rv_client *client;
  char *table;
  int64_t
      max_samples; /* INT64_MAX: no bound. Of a remote one only its loop changes it, under the mutex: so that may read it without */
  uint32_t max_in_flight_samples; /* 0: 1, and more where that cannot be seen */
  uint32_t num_streams;
  int64_t max_samples_per_stream;
  int64_t rate_limiter_timeout_ns; /* INT64_MAX: for ever */
  bool goes_on_waiting;            /* the consumer's: he comes again when a call has timed out, and does not read what it says */
  struct {                         /* the consumer's: the wait for this sample, if `next` gave it up before */
    int64_t begun_ns, log_ns;      /* as in rv_patience; begun_ns 0: it did not */
    int64_t until_ns;
  } waited;
};

/* `common` is filled in; its table is taken over, on failure too. */
rv_code rv_sampler_new_local(const rv_sampler *owned_common, rv_sampler **out, rv_error *err);
rv_code rv_sampler_new_remote(const rv_sampler *owned_common, rv_sampler **out, rv_error *err);

/* Whoever waits for a sample in many short calls, one within a second of the other, is told of in the log as if it were one call. Before a
 * call waits: */
void rv_sampler_wait_on(const rv_sampler *sampler, rv_patience *patience);
/* and when it has given up. */
void rv_sampler_has_waited(rv_sampler *sampler, const rv_patience *patience);

/* Instead of `next` again and again: samples that look as the sink's items do are copied into its arrays, those that have not come yet
 * as they arrive. Waits until the sink, which comes with at most `each`, has taken `each`, then goes on with what is there, in multiples of
 * `each` and up to `most`. RV_OK: so it did, or, with *unlike, the next sample is one for rv_sampler_next: it looks otherwise, or (where the
 * sink has none yet) its kind is to be checked, or this sampler draws in process. Otherwise as rv_sampler_next; what the sink took before
 * counts as given, and is never more than `each`. */
rv_code rv_sampler_take_into(rv_sampler *sampler, rv_sink *sink, size_t each, size_t most, const rv_wait *wait, bool *unlike,
                             rv_error *err);

/* The rv_client_losses of when the sample that `next` gave last came, which may have been a while ago. The consumer's. */
uint64_t rv_sampler_losses(rv_sampler *sampler);

/* Those over a server can. */
static inline bool rv_sampler_can_take_into(const rv_sampler *sampler)
{
  return sampler->ops->take_into != NULL;
}

/* The sentences of both kinds. */
rv_code rv_sampler_end_by_count(const rv_sampler *sampler, rv_error *err);
rv_code rv_sampler_end_by_limiter(const rv_sampler *sampler, const char *reason, rv_error *err);
rv_code rv_sampler_end_by_cancel(const rv_sampler *sampler, rv_error *err);

#endif
