#include "base/crc32c.h"

#include <string.h>

#include "base/linux.h"

#if defined(__aarch64__) && defined(RV_LINUX)
#include <sys/auxv.h>
#define RV_HWCAP_CRC32 (1UL << 7)
#endif

/* Of each half byte, by the reflected polynomial 0x82F63B78: 64 bytes that stay in the cache where a table of bytes would not. */
static const uint32_t of_nibble[16] = {0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3,
                                       0x61C69362, 0x7198540D, 0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9,
                                       0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75};

uint32_t rv_crc32c_plain(uint32_t crc, const void *data, size_t size)
{
  const uint8_t *at = data, *end = size > 0 ? at + size : at;
  crc = ~crc;
  for (; at != end; at++) {
    crc ^= *at;
    crc = crc >> 4 ^ of_nibble[crc & 15U];
    crc = crc >> 4 ^ of_nibble[crc & 15U];
  }
  return ~crc;
}

#if defined(__x86_64__)

#include <immintrin.h>

enum { LONG_LANE = 1024, SHORT_LANE = 128 };

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t word_at(const uint8_t *at)
{
  uint64_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

/* What a checksum is once so many zero bytes came after it, without the division: that is left to the instruction. `power` is x^(8 bytes - 33)
 * modulo the polynomial, reflected. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t moved(uint64_t crc, uint32_t power)
{
  return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128((int64_t)power), 0));
}

/* The instruction takes three cycles, and one may begin in each: three lanes side by side, of `lane` bytes each. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t three_lanes(uint64_t crc, const uint8_t *at, size_t lane,
                                                                            uint32_t one_lane, uint32_t two_lanes)
{
  const uint8_t *middle = at + lane, *last = middle + lane;
  uint64_t second = 0, third = 0;
  size_t i = 0;
  for (; i < lane - 8; i += 8) {
    crc = _mm_crc32_u64(crc, word_at(at + i));
    second = _mm_crc32_u64(second, word_at(middle + i));
    third = _mm_crc32_u64(third, word_at(last + i));
  }
  crc = _mm_crc32_u64(crc, word_at(at + i));
  second = _mm_crc32_u64(second, word_at(middle + i));
  return _mm_crc32_u64(third, word_at(last + i) ^ moved(crc, two_lanes) ^ moved(second, one_lane));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t with_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
  uint64_t wide = ~crc;
  for (; size >= 3 * LONG_LANE; at += 3 * LONG_LANE, size -= 3 * LONG_LANE)
    wide = three_lanes(wide, at, LONG_LANE, 0x170076FA, 0xA51B6135);
  for (; size >= 3 * SHORT_LANE; at += 3 * SHORT_LANE, size -= 3 * SHORT_LANE)
    wide = three_lanes(wide, at, SHORT_LANE, 0x0D3B6092, 0xB9E02B86);
  for (; size >= 8; at += 8, size -= 8) wide = _mm_crc32_u64(wide, word_at(at));
  uint32_t narrow = (uint32_t)wide;
  for (; size > 0; at++, size--) narrow = _mm_crc32_u8(narrow, *at);
  return ~narrow;
}

static int has_instruction(void)
{
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

#elif defined(__aarch64__) && defined(RV_LINUX)

__attribute__((target("+crc"))) static uint32_t with_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
  crc = ~crc;
  for (; size >= 8; at += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    __asm__("crc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  }
  for (; size > 0; at++, size--) __asm__("crc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*at));
  return ~crc;
}

static int has_instruction(void)
{
  return (getauxval(AT_HWCAP) & RV_HWCAP_CRC32) != 0;
}

#else

static uint32_t with_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
  return rv_crc32c_plain(crc, at, size);
}

static int has_instruction(void)
{
  return 0;
}

#endif

uint32_t rv_crc32c(uint32_t crc, const void *data, size_t size)
{
  return has_instruction() ? with_instruction(crc, data, size) : rv_crc32c_plain(crc, data, size);
}
