/* Raw snappy blocks whose bytes are all one literal: the form in which nothing is compressed, and nothing needs to be decoded.
 *
 * A raw block is the uncompressed length as a varint and then elements; a literal's element is a tag byte with, from 60
 * bytes on, its length in 1 to 4 bytes behind it. So one literal holds up to 2^32 bytes, and a block 2^32 - 1. */
#ifndef RV_TENSOR_LITERAL_H
#define RV_TENSOR_LITERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RV_BLOCK_MAX_BYTES ((size_t)UINT32_MAX)
#define RV_LITERAL_HEADER_MAX 10

/* What stands before `bytes` (<= RV_BLOCK_MAX_BYTES) literal bytes; returns its length. An empty block is the single byte 00. */
size_t rv_literal_header(uint8_t out[RV_LITERAL_HEADER_MAX], size_t bytes);
/* Header and bytes. */
size_t rv_literal_size(size_t bytes);
/* The bytes in place if the block is one literal of all `bytes` bytes; NULL otherwise. */
const uint8_t *rv_literal_find(const uint8_t *block, size_t block_size, size_t bytes);
/* Does the block announce `bytes` bytes, and can its size possibly hold them? No element gives more than 64 bytes for 3. */
bool rv_block_announces(const uint8_t *block, size_t block_size, size_t bytes);

#endif
