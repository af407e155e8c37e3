/* What an end of an HTTP/2 connection says, made from an input of a fuzz target: mostly right frames, so that what stands behind the
 * frames is reached, and wrong ones where the input says so.
 *
 * An input is records. The first byte of each has the kind in its upper half, and in its lower one a number n that chooses a stream
 * (2n + 1): 0 a request's headers, of the method that the next byte chooses; 1 a message of gRPC, its size before it in two bytes; 2 the
 * same without gRPC's prefix; 3 the stream's end; 4 a reset; 5 bytes as they are, their number before them; 6 a response's headers; 7
 * trailers with the status of the next byte; 8 a window update of the next four bytes; 9 any frame: type, flags, size, bytes. */
#ifndef RV_FUZZ_FRAMES_H
#define RV_FUZZ_FRAMES_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>

#include "fuzz.h"

enum {
  FRAMES_MOST = 1 << 20,
  FRAME_DATA = 0,
  FRAME_HEADERS = 1,
  FRAME_RESET = 3,
  FRAME_WINDOW = 8,
  END_STREAM = 1,
  END_HEADERS = 4
};

/* False: not within 20 s. */
static inline bool frames_wait(int fd, short events)
{
  struct pollfd waits = {.fd = fd, .events = events};
  int ready;
  do ready = poll(&waits, 1, 20000);
  while (ready < 0 && errno == EINTR); /* libFuzzer looks at its clock by a signal */
  return ready > 0;
}

typedef struct frames {
  uint8_t *bytes;
  size_t size;
  const uint8_t *in; /* what of the input is left */
  size_t left;
} frames;

static inline void frames_put(frames *to, const void *bytes, size_t size)
{
  if (to->size + size > FRAMES_MOST) return;
  memcpy(to->bytes + to->size, bytes, size);
  to->size += size;
}

static inline uint8_t frames_byte(frames *to)
{
  if (to->left == 0) return 0;
  to->left--;
  return *to->in++;
}

/* At most `size` bytes of the input. */
static inline const uint8_t *frames_take(frames *to, size_t *size)
{
  const uint8_t *taken = to->in;
  if (*size > to->left) *size = to->left;
  to->in += *size;
  to->left -= *size;
  return taken;
}

static inline void frames_head(frames *to, size_t size, uint8_t type, uint8_t flags, uint32_t stream)
{
  const uint8_t head[9] = {(uint8_t)(size >> 16),   (uint8_t)(size >> 8),    (uint8_t)size,          type,           flags,
                           (uint8_t)(stream >> 24), (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
  frames_put(to, head, sizeof head);
}

/* As a literal without Huffman code, which no table remembers. */
static inline void frames_header(frames *block, const char *name, const char *value)
{
  const uint8_t literal = 0, sizes[2] = {(uint8_t)strlen(name), (uint8_t)strlen(value)};
  frames_put(block, &literal, 1);
  frames_put(block, &sizes[0], 1);
  frames_put(block, name, sizes[0]);
  frames_put(block, &sizes[1], 1);
  frames_put(block, value, sizes[1]);
}

static inline void frames_headers(frames *to, uint32_t stream, bool last, const frames *block)
{
  frames_head(to, block->size, FRAME_HEADERS, (uint8_t)(END_HEADERS | (last ? END_STREAM : 0)), stream);
  frames_put(to, block->bytes, block->size);
}

static inline void frames_request(frames *to, uint32_t stream, const char *const *methods, size_t num_methods)
{
  uint8_t room[1024], chosen = frames_byte(to);
  frames block = {.bytes = room};
  frames_header(&block, ":method", "POST");
  frames_header(&block, ":scheme", "http");
  frames_header(&block, ":path", methods[chosen % num_methods]);
  frames_header(&block, ":authority", "localhost");
  frames_header(&block, "te", "trailers");
  frames_header(&block, "content-type", "application/grpc");
  if ((chosen & 0x80) != 0) frames_header(&block, "reverie-version", "1");
  if ((chosen & 0x40) != 0)
    frames_header(&block, "reverie-writer",
                  (chosen & 0x20) != 0 ? "00112233445566778899aabbccddeeff" : "ffeeddccbbaa99887766554433221100");
  if ((chosen & 0x10) != 0) frames_header(&block, "grpc-timeout", "1m");
  frames_headers(to, stream, false, &block);
}

static inline void frames_response(frames *to, uint32_t stream)
{
  uint8_t room[256];
  frames block = {.bytes = room};
  frames_header(&block, ":status", "200");
  frames_header(&block, "content-type", "application/grpc");
  frames_headers(to, stream, false, &block);
}

static inline void frames_trailers(frames *to, uint32_t stream)
{
  uint8_t room[256];
  char status[8];
  frames block = {.bytes = room};
  snprintf(status, sizeof status, "%u", frames_byte(to) % 32U);
  frames_header(&block, "grpc-status", status);
  frames_header(&block, "grpc-message", "what%20went%20wrong");
  frames_headers(to, stream, true, &block);
}

static inline void frames_message(frames *to, uint32_t stream, bool prefixed)
{
  size_t size = frames_byte(to);
  size |= (size_t)frames_byte(to) << 8;
  const uint8_t *bytes = frames_take(to, &size);
  const uint8_t prefix[5] = {0, 0, (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
  frames_head(to, size + (prefixed ? sizeof prefix : 0), FRAME_DATA, 0, stream);
  if (prefixed) frames_put(to, prefix, sizeof prefix);
  frames_put(to, bytes, size);
}

static inline void frames_small(frames *to, uint32_t stream, uint8_t type, uint8_t flags, size_t size)
{
  const uint8_t *bytes = frames_take(to, &size);
  frames_head(to, size, type, flags, stream);
  frames_put(to, bytes, size);
}

/* Appends the next record's bytes; false: there is none. */
static inline bool frames_next(frames *to, const char *const *methods, size_t num_methods)
{
  if (to->left == 0 || to->size > FRAMES_MOST / 2) return false;
  uint8_t first = frames_byte(to);
  uint32_t stream = 2U * (first & 15) + 1;
  switch (first >> 4) {
  case 0: frames_request(to, stream, methods, num_methods); break;
  case 1: frames_message(to, stream, true); break;
  case 2: frames_message(to, stream, false); break;
  case 3: frames_head(to, 0, FRAME_DATA, END_STREAM, stream); break;
  case 4: frames_small(to, stream, FRAME_RESET, 0, 4); break;
  case 6: frames_response(to, stream); break;
  case 7: frames_trailers(to, stream); break;
  case 8: frames_small(to, (first & 15) == 15 ? 0 : stream, FRAME_WINDOW, 0, 4); break;
  case 9: {
    uint8_t type = frames_byte(to), flags = frames_byte(to);
    frames_small(to, (first & 15) == 15 ? 0 : stream, type, flags, frames_byte(to));
    break;
  }
  default: {
    size_t size = frames_byte(to);
    const uint8_t *bytes = frames_take(to, &size);
    frames_put(to, bytes, size);
  }
  }
  return true;
}

#endif
