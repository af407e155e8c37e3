/* Functions that only ask for cache lines before they are needed (__builtin_prefetch). GCC takes such a function for one without effect, and leaves
 * out calls of it that it does not inline, where it sees what is in it: so a file's own are always a part of their callers. Other files' are
 * called, as long as nothing is optimized at link time. */
#ifndef RV_BASE_FETCHES_H
#define RV_BASE_FETCHES_H

#define RV_FETCHES static inline __attribute__((always_inline))

#endif
