/* Copies of pieces that lie anywhere, one after another: the processor fetches ahead by itself inside a piece, but not past its end. */
#ifndef RV_BASE_COPY_AHEAD_H
#define RV_BASE_COPY_AHEAD_H

#include <stddef.h>
#include <stdint.h>

enum { RV_COPY_AHEAD_LEAST = 1 << 10 /* bytes of a piece from which on it pays */ };

/* As memcpy, with the first `next_size` bytes of what is copied after it on their way; NULL: it is not known. */
void rv_copy_ahead(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *next, size_t next_size);
/* The same without what only some processors have. */
void rv_copy_ahead_narrow(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *next, size_t next_size);

#endif
