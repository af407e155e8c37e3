/* Cache lines that are asked for before they are needed.
 *
 * What is only read goes into the second cache: that may have about twice as many lines on their way as the first, which is what counts where they come
 * from memory, as they may wherever others' work takes the third cache. What is written is fetched to be written, into the first (__builtin_prefetch with 1).
 *
 * Functions that only ask for lines: GCC takes such a function for one without effect, and leaves
 * out calls of it that it does not inline, where it sees what is in it: so a file's own are always a part of their callers. Other files' are
 * called, as long as nothing is optimized at link time. */
#ifndef RV_BASE_FETCHES_H
#define RV_BASE_FETCHES_H

#define RV_FETCH(at) __builtin_prefetch((at), 0, 2)

#define RV_FETCHES static inline __attribute__((always_inline))

#endif
