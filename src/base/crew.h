/* A few threads that help with one large piece of work: a loop whose steps do not depend on each other, such as copying a batch.
 *
 * A crew costs nothing until its first loop: then its threads are started, with all signals masked. They sleep when there is nothing
 * to do; where loops follow each other at once they stay awake between them, since being woken takes a good part of what a loop does.
 * The caller takes part itself and never waits for a helper that has not woken yet, so a loop takes at most as long as without help,
 * and a little for the waking. Where the other cores are busy, help costs time: a helper takes the caller's core, or is stopped in the
 * middle of a step. So the crew compares: after loops that were slower with help (three in a row, or one by twice) than loops are
 * without, the next ones go without, twice as many each time, 63 at most. One loop runs at a time; a caller who finds the crew at work
 * does without. */
#ifndef RV_BASE_CREW_H
#define RV_BASE_CREW_H

#include "reverie/status.h"

typedef struct rv_crew rv_crew;

/* `max_threads` counts the caller: 1 means no help at all, 0 as many as this process may use cores, at most 4. */
rv_code rv_crew_new(uint32_t max_threads, rv_crew **out, rv_error *err);
/* Joins its threads; no loop may be running. In a forked child, which has no threads of its parent's, it leaves everything alone.
 * NULL is fine. */
void rv_crew_free(rv_crew *crew);
uint32_t rv_crew_max_threads(const rv_crew *crew);

/* Calls step(context, i) for every i below n < 2^32, each once, on any of the threads; returns when all have returned. The caller goes
 * upwards from 0 and its helpers downwards from n. `amount` measures the whole loop, in bytes, say, so that loops can be compared. With a
 * NULL crew, in a forked child, or where no thread can be started, the caller does them all. Any thread, with no lock of rank WAIT
 * held. */
void rv_crew_run(rv_crew *crew, size_t n, size_t amount, void (*step)(void *context, size_t i), void *context);

#endif
