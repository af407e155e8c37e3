/* Copies into memory that nobody reads soon. An ordinary store first fetches the line that it changes, and pushes out of the caches what
 * somebody may still want; this one writes whole lines straight to memory, where the processor can (x86-64; elsewhere it is memcpy). */
#ifndef RV_BASE_PAST_CACHES_H
#define RV_BASE_PAST_CACHES_H

#include <stddef.h>

enum {
  RV_PAST_CACHES_LEAST = 1024,   /* bytes at a time from which on it pays */
  RV_PAST_CACHES_FROM = 32 << 20 /* memory that is larger than this is not expected to stay in caches */
};

/* The blocks do not overlap. Such stores are not ordered before others: after all that are to be seen together, and before anybody is told, comes
 * rv_past_caches_settle(). It waits for memory, so there is one for several rows: with one each, rows of 3 KiB take twice as long. */
void rv_stream_past_caches(void *to, const void *from, size_t size);
/* The same, and a copy that is read soon, written as usual. */
void rv_stream_past_caches_and_to(void *to, void *near, const void *from, size_t size);
void rv_past_caches_settle(void);
/* Both at once. Done, for other threads too, when it returns and they have synchronised as they would after memcpy. */
void rv_copy_past_caches(void *to, const void *from, size_t size);
/* As above, without what only some processors have. */
void rv_stream_past_caches_narrow(void *to, const void *from, size_t size);
void rv_stream_past_caches_and_to_narrow(void *to, void *near, const void *from, size_t size);

#endif
