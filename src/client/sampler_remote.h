/* The parts of a sampler over a server: the state its consumer and the loop share, and its streams, which are the loop's.
 *
 * In flight is what was asked for and not yet handed out: outstanding at the server, or ready here. It never exceeds the window
 * (one sample, or as many as configured, a stream), so what was drawn ahead is bounded. max_samples is exact while the connection
 * lasts; samples that were on their way when it broke are asked for again. */
#ifndef RV_CLIENT_SAMPLER_REMOTE_H
#define RV_CLIENT_SAMPLER_REMOTE_H

#include "client/ask_log.h"
#include "client/check_received.h"
#include "client/receive.h"
#include "client/sampler.h"

typedef struct rv_remote_sampler rv_remote_sampler;

/* A consumer who waits until samples are where he wants them, and sleeps until all are, or copies those that were ready meanwhile. On his
 * stack. */
typedef struct rv_pour {
  rv_sink *sink;  /* the consumer's */
  rv_sink beside; /* the same, as if it had taken what he copies just now */
  rv_sink *into;  /* what comes goes there: one of these two */
  size_t until;   /* what the sink shall have taken */
  rv_code code;   /* of copying */
  rv_error error;
} rv_pour;

typedef struct rv_sample_stream {
  rv_remote_sampler *sampler;
  rv_call *call; /* NULL: none is open */
  rv_receiver receiver;
  rv_timer retry;
  int64_t retry_at_ns; /* 0: not waiting to try again */
  int64_t backoff_ns;
  int64_t requested;   /* on this call */
  int64_t outstanding; /* asked for and not received */
  int64_t asked_ns;    /* when the last request went out */
  bool half_closed;
  bool timed_out;  /* the limiter let nothing through; not asked again yet */
  bool conclusive; /* and the consumer waited when that came */
} rv_sample_stream;

struct rv_remote_sampler {
  rv_sampler common;
  atomic_uint refs; /* its owner, each open call */

  rv_mutex mutex; /* RV_RANK_CLIENT: what consumer and loop share */
  rv_gate gate;
  rv_draw *ready; /* a ring of samples; capacity is a power of two */
  size_t capacity, head, count;
  int64_t handed_out;
  struct { /* which connection samples came on, by rv_client_losses */
    uint64_t before, now;
    int64_t since; /* number of the first sample of `now` */
  } losses;
  rv_ask_log asks;    /* when what is in flight was asked for */
  int64_t consumed;   /* since the loop was last told */
  int64_t window;     /* of a stream, as the loop last set it */
  int64_t batches;    /* the window that whoever takes many at once wishes; 0: as the others */
  bool waiting;       /* the consumer is in `next` or `take_into`, and nothing is ready */
  bool wanted;        /* he looked for a sample since the loop last looked for him, and nothing was ready */
  rv_pour *pour;      /* of who is in `take_into`, while nothing is ready: what comes is copied there; NULL: it becomes ready */
  int64_t starved_ns; /* since when nothing was ready when it was asked for; 0: not so */
  bool told;          /* the pump task is posted */
  bool resumes;       /* it has been asked for no more, and shall be again: the loop has not seen that yet */
  bool cancelled, ended;
  rv_error end_error;

  /* the loop's */
  rv_task pump, close;
  bool closed;                    /* the owner is gone */
  bool may_grow;                  /* nobody can tell what is fetched ahead, lately */
  bool fetches;                   /* its streams count as such (rv_loop_count_fetching), until it is closed */
  int64_t look_at_ns;             /* and this is looked at again not before, */
  uint64_t looked_losses;         /* but where a connection has been lost since: rv_client_losses */
  int64_t asked;                  /* for max_samples: handed out, ready or outstanding */
  struct {                        /* how fast samples are taken */
    int64_t since_ns, handed_out; /* when it was last looked at, and how many there were then */
    int64_t lately;               /* taken in PACE_NS */
  } pace;
  size_t bytes_received, samples_received;

  /* the consumer's */
  bool ask_server;    /* there is time for it, and somebody reads the answer */
  bool has_unchecked; /* a sample was taken and could not be checked in time: it is the next */
  rv_draw unchecked;
  rv_received_check check;

  rv_sample_stream streams[]; /* common.num_streams */
};

void rv_remote_sampler_ref(rv_remote_sampler *sampler);
void rv_remote_sampler_unref(rv_remote_sampler *sampler);

/* ---- on the loop (sample_streams.c) ---- */

void rv_sample_streams_init(rv_remote_sampler *sampler); /* before that, by its maker */
/* Asks for as much as the window allows, on calls that it opens as needed; cancels the calls of a sampler that is over. */
void rv_sample_streams_pump(rv_remote_sampler *sampler);
void rv_sample_streams_close(rv_remote_sampler *sampler); /* for good */

/* ---- between loop and consumer (sampler_remote.c) ---- */

/* On the loop: is somebody there who may take samples from a message with gaps? */
bool rv_remote_sampler_pours(rv_remote_sampler *sampler);
/* Hands samples over (takes the draws); RV_RESOURCE_EXHAUSTED: they are released. *due: so many were taken that it is time to pump.
 * `gapped`: the call, where their message has gaps, of which none is left then, and they are a run (store/run.h); NULL: it has none. RV_UNAVAILABLE:
 * what they were read from is not lent any more, and they are released. */
rv_code rv_remote_sampler_deliver(rv_remote_sampler *sampler, rv_draw *draws, size_t n, rv_call *gapped, bool *due);
/* Instead of `next`: takes up to `want` samples, waiting for them until `until_ns` while patience lasts; returns how many. From now on
 * `window` samples are on their way or ready, while it is known that nobody can see that; else it gives out what was on its way, and then rests
 * (*rests), until that is known and it is told to resume. They are not checked against the table's signature. */
size_t rv_remote_sampler_take_many(rv_sampler *common, int64_t window, size_t want, rv_draw *draws, rv_patience *patience,
                                   int64_t until_ns, bool *rests);
/* It does. Else *next_asked_ns is when what it hands out next was asked for; INT64_MAX: nothing is in flight. */
bool rv_remote_sampler_rests(rv_sampler *common, int64_t *next_asked_ns);
void rv_remote_sampler_resume(rv_sampler *common);
/* On the loop, of one that many are taken from: as many as there are; false: nothing more than what was asked for by now. */
void rv_remote_sampler_ask_on(rv_remote_sampler *sampler, bool on);
/* On the loop: all that has been asked for by now, and not before, was at that moment; of one that many are taken from. */
void rv_remote_sampler_note_ask(rv_remote_sampler *sampler, int64_t now_ns);
/* Every later `next` that finds nothing ready gets this. */
void rv_remote_sampler_end(rv_remote_sampler *sampler, const rv_error *error);

/* ---- the consumer's steps; those but the last two under the mutex ---- */

/* Takes ready samples, at most `want`, and none from the first on that looks otherwise than the sink's items; NULL: any. */
size_t rv_remote_sampler_take_ready(rv_remote_sampler *sampler, const rv_sink *sink, rv_draw *out, size_t want);
/* How many it would take. */
size_t rv_remote_sampler_count_ready(const rv_remote_sampler *sampler, const rv_sink *sink, size_t want);
/* Ready ones, number `first` and following, which are there: what is written to `out` stays the sampler's until they are taken. */
void rv_remote_sampler_look_at_ready(const rv_remote_sampler *sampler, size_t first, rv_draw *out, size_t n);
/* Nothing is ready: RV_OK, or why nothing will be. */
rv_code rv_remote_sampler_check_over(const rv_remote_sampler *sampler, rv_error *err);
/* From now on the consumer waits, or, where he does not want to, has looked in; `pour` may be NULL. */
void rv_remote_sampler_begin_waiting(rv_remote_sampler *sampler, const rv_patience *patience, rv_pour *pour);
void rv_remote_sampler_end_waiting(rv_remote_sampler *sampler);
/* Is it time to tell the loop what was taken? */
bool rv_remote_sampler_must_tell(rv_remote_sampler *sampler);
void rv_remote_sampler_tell(rv_remote_sampler *sampler, bool must);
void rv_remote_sampler_begin_patience(rv_remote_sampler *sampler, const rv_wait *wait, rv_patience *patience);

/* ---- straight into arrays (sampler_into.c) ---- */

rv_code rv_remote_sampler_take_into(rv_sampler *common, rv_sink *sink, size_t each, size_t most, const rv_wait *wait,
                                    bool *unlike, rv_error *err);
/* Under the mutex, with a pour: copies those of the n draws that it is for, and that are copied as they lie; returns how many. What must be decoded
 * is left to the consumer's thread. */
size_t rv_remote_sampler_pour(rv_remote_sampler *sampler, const rv_draw *draws, size_t n);
/* The same of a run in a message with gaps, of which none is left then. False: they were not lent any more, and nothing was poured. */
bool rv_remote_sampler_pour_run(rv_remote_sampler *sampler, const rv_draw *draws, size_t n, rv_call *gapped, size_t *poured);
/* All is there, or all that will be. */
static inline bool rv_is_poured(const rv_remote_sampler *sampler)
{
  const rv_pour *pour = sampler->pour;
  return pour->code != RV_OK || pour->into->taken == pour->until || sampler->handed_out >= sampler->common.max_samples;
}

/* ---- how far ahead (sampler_window.c) ---- */

/* Nobody can tell that samples were drawn which nobody took. */
bool rv_fetching_ahead_is_invisible(const rv_table_info *info);

/* On the loop: the window of a stream after `handed_out` samples; `batches`: as rv_remote_sampler_take_many wishes, or 0. Looks at what is known
 * of the table, and asks for that, when it matters. */
int64_t rv_remote_sampler_window(rv_remote_sampler *sampler, int64_t handed_out, int64_t batches);
/* On the loop: it fetches no more, and others may have its share. */
void rv_remote_sampler_leave_share(rv_remote_sampler *sampler);

#endif
