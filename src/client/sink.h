/* Arrays that drawn items are copied into as they arrive, on the loop's thread: the rows of a large batch then need no memory of their
 * own, and are read while a cache still has them. */
#ifndef RV_CLIENT_SINK_H
#define RV_CLIENT_SINK_H

#include "base/crew.h"
#include "base/gaps.h"
#include "reverie/client.h"
#include "store/fill.h"

typedef struct rv_sink {
  rv_fill fill;     /* what its items look like, and where they go; of what comes out of a fill only sizes */
  bool past_caches; /* rows are copied past them: see rv_sink_expect */
  size_t awaited;   /* bytes that count as such (rv_loop_count_awaited), until it is said that they are there */
  size_t taken;     /* out: items so far */
  bool failed;      /* out: some were drawn and could not be copied */
  uint64_t naming;  /* out: that all of them have; 0: none */
} rv_sink;

/* So many items are to go into it in all. Of many large ones no cache has the first when the last is there, nor of what many callers of a loop wait
 * for together (those for whom nothing comes just now included): there rows need not go through one. */
void rv_sink_expect(rv_sink *sink, rv_client *client, size_t n);
/* They are, or will not be waited for any more. */
void rv_sink_expect_no_more(rv_sink *sink, rv_client *client);
/* How many of the n draws, from the first on, look as the sink's items do. */
size_t rv_sink_count_fitting(const rv_sink *sink, const rv_draw *draws, size_t n);
/* Copies n draws that do behind those that it took before. Of what failed it takes none. */
rv_code rv_sink_take(rv_sink *sink, const rv_draw *draws, size_t n, rv_error *err);
/* The same of a run (store/run.h) in a message with gaps, in two steps, for whoever must look between them whether what was copied is good. */
void rv_sink_copy_run(const rv_sink *sink, rv_client *client, const rv_draw *draws, size_t n, const rv_gaps *gaps);
void rv_sink_note_run(rv_sink *sink, const rv_draw *draws, size_t n);
/* Goes behind n draws that somebody else copies: as if it had taken them. */
void rv_sink_pass(rv_sink *sink, const rv_draw *draws, size_t n);

/* n draws, all of the fill's layout, as its items number `first` and following. */
rv_code rv_fill_copy(rv_crew *crew, const rv_fill *fill, const rv_draw *draws, size_t n, size_t first, rv_error *err);

#endif
