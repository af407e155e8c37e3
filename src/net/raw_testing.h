/* For net's tests: a peer that speaks in bytes of its own choice, be they right or wrong. */
#ifndef RV_NET_RAW_TESTING_H
#define RV_NET_RAW_TESTING_H

#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- sending and receiving ---- */

static inline int connect_port(uint16_t port)
{
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
  assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
  return fd;
}

/* Sends while reading nothing back into memory; false: the server has closed. */
static inline bool send_raw(int fd, const void *data, size_t size)
{
  const char *at = data;
  while (size > 0) {
    ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

/* Reads to the end; the error code of the last GOAWAY, or -1. */
static inline int64_t read_to_end(int fd)
{
  uint8_t *data = malloc(1 << 20);
  size_t have = 0;
  int64_t code = -1;
  for (;;) {
    ssize_t n = recv(fd, data + have, (1 << 20) - have, 0);
    if (n <= 0) break;
    have += (size_t)n;
    size_t at = 0;
    while (have - at >= 9) {
      size_t length = (size_t)data[at] << 16 | (size_t)data[at + 1] << 8 | data[at + 2];
      if (have - at < 9 + length) break;
      if (data[at + 3] == NGHTTP2_GOAWAY)
        code = (int64_t)data[at + 13] << 24 | (int64_t)data[at + 14] << 16 | (int64_t)data[at + 15] << 8 | data[at + 16];
      at += 9 + length;
    }
    memmove(data, data + at, have - at);
    have -= at;
  }
  free(data);
  return code;
}

static inline int64_t end_raw(int fd)
{
  shutdown(fd, SHUT_WR);
  int64_t code = read_to_end(fd);
  close(fd);
  return code;
}

/* One whole frame: its head and its payload, whose size is the answer. -1: the connection has ended, or the payload is larger. */
static inline int64_t read_frame(int fd, uint8_t head[9], uint8_t *payload, size_t capacity)
{
  if (recv(fd, head, 9, MSG_WAITALL) != 9) return -1;
  size_t size = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
  if (size > capacity || (size > 0 && recv(fd, payload, size, MSG_WAITALL) != (ssize_t)size)) return -1;
  return (int64_t)size;
}

/* ---- frames ---- */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
enum { PREFACE = sizeof preface - 1 };

static inline size_t frame(uint8_t *to, size_t length, uint8_t type, uint8_t flags, uint32_t stream)
{
  to[0] = (uint8_t)(length >> 16);
  to[1] = (uint8_t)(length >> 8);
  to[2] = (uint8_t)length;
  to[3] = type;
  to[4] = flags;
  to[5] = (uint8_t)(stream >> 24);
  to[6] = (uint8_t)(stream >> 16);
  to[7] = (uint8_t)(stream >> 8);
  to[8] = (uint8_t)stream;
  return 9;
}

static inline size_t header(uint8_t *to, const char *name, const char *value)
{
  size_t n = 0;
  to[n++] = 0; /* a literal, not indexed */
  to[n++] = (uint8_t)strlen(name);
  memcpy(to + n, name, strlen(name));
  n += strlen(name);
  to[n++] = (uint8_t)strlen(value);
  memcpy(to + n, value, strlen(value));
  return n + strlen(value);
}

static inline size_t request(uint8_t *to, const char *path, uint32_t stream, uint8_t flags)
{
  size_t n = 9;
  n += header(to + n, ":method", "POST");
  n += header(to + n, ":scheme", "http");
  n += header(to + n, ":path", path);
  n += header(to + n, ":authority", "x");
  n += header(to + n, "te", "trailers");
  n += header(to + n, "content-type", "application/grpc");
  frame(to, n - 9, NGHTTP2_HEADERS, flags, stream);
  return n;
}

#endif
