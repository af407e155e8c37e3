/* Sleeping until a word changes, for states that are a word already: no mutex stands between the one who sleeps and the one who
 * wakes, so a thread that is woken at once does not run into its waker's lock.
 *
 *   while (atomic_load(&word) == CLOSED) rv_park(&word, CLOSED, ns);          // sleeper
 *   atomic_store(&word, OPEN); rv_unpark(&word);                              // waker
 *
 * Linux's futex; elsewhere the sleeper looks again every millisecond. */
#ifndef RV_BASE_PARK_H
#define RV_BASE_PARK_H

#include <stdatomic.h>
#include <stdint.h>

/* Returns when the word is not `expected`, when it was unparked, after ns (INT64_MAX: never), or for no reason. */
void rv_park(const atomic_int *word, int expected, int64_t ns);
/* Wakes a thread that is parked there. After the word was changed: whoever sleeps may then see that, and free the word, before this
 * is called; it is not read. */
void rv_unpark(const atomic_int *word);

#endif
