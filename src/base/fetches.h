/* Functions that only ask for cache lines before they are needed (__builtin_prefetch). GCC takes such a function for one without effect, and leaves
 * out calls of it that it does not inline: so those of a file's own are always a part of their callers. */
#ifndef RV_BASE_FETCHES_H
#define RV_BASE_FETCHES_H

#define RV_FETCHES static inline __attribute__((always_inline))

#endif
