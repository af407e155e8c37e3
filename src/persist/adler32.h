/* Adler's checksum (RFC 1950, 8.2), which ends every zlib stream: zlib's own reads 2 to 3 GB/s, less than a disk takes. */
#ifndef RV_PERSIST_ADLER32_H
#define RV_PERSIST_ADLER32_H

#include <stddef.h>
#include <stdint.h>

/* The sum of what `sum` is the sum of, with `size` bytes behind it; of nothing it is 1. */
uint32_t rv_adler32(uint32_t sum, const void *data, size_t size);
uint32_t rv_adler32_plain(uint32_t sum, const void *data, size_t size); /* without the processor's vectors, for tests */

#endif
