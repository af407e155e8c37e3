/* TFRecord's frame around a record: a header of length and its checksum, a footer of the bytes' checksum; little endian. */
#ifndef RV_PERSIST_FRAME_H
#define RV_PERSIST_FRAME_H

#include <stdint.h>

enum { RV_FRAME_HEADER = 12, RV_FRAME_FOOTER = 4 };

/* A checksum over bytes that hold checksums would be weak: those that are stored are masked. */
static inline uint32_t rv_frame_mask(uint32_t crc)
{
  return ((crc >> 15) | (crc << 17)) + UINT32_C(0xA282EAD8);
}

static inline void rv_frame_put32(uint8_t *out, uint32_t value)
{
  for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> 8 * i);
}
static inline void rv_frame_put64(uint8_t *out, uint64_t value)
{
  for (int i = 0; i < 8; i++) out[i] = (uint8_t)(value >> 8 * i);
}
static inline uint32_t rv_frame_get32(const uint8_t *in)
{
  return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}
static inline uint64_t rv_frame_get64(const uint8_t *in)
{
  return rv_frame_get32(in) | (uint64_t)rv_frame_get32(in + 4) << 32;
}

#endif
