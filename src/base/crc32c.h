/* CRC-32C (Castagnoli): what TFRecord files are checked with. With the processor's instruction where it has one. */
#ifndef RV_BASE_CRC32C_H
#define RV_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from the checksum of the bytes before; 0 to begin. */
uint32_t rv_crc32c(uint32_t crc, const void *data, size_t size);
/* The same without the instruction. */
uint32_t rv_crc32c_plain(uint32_t crc, const void *data, size_t size);

#endif
