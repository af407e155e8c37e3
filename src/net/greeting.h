/* A peer's first frame, looked at as its bytes come, beside nghttp2: is it SETTINGS, and what does it say that nghttp2 keeps to itself?
 *
 * Reverie's own ends say with RV_SETTING_SIGNS_OF_LIFE that they answer PINGs, however many come and whenever they do, so that either may
 * ask whether the other is still there. grpc-core closes connections whose idle PINGs it gets too many of, so nobody else is asked. A
 * setting that is not known is ignored by every HTTP/2 endpoint (RFC 9113, 6.5.2). */
#ifndef RV_NET_GREETING_H
#define RV_NET_GREETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0xf000 to 0xffff are for experiments (RFC 9113, 11.3). */
#define RV_SETTING_SIGNS_OF_LIFE 0xF5E1

typedef struct rv_greeting {
  uint8_t head[9], entry[6];
  size_t preface_left; /* of what a client says before its first frame: nghttp2 checks it */
  size_t have, entry_have;
  size_t body_left; /* once `have` is 9 */
  bool over;        /* nothing more is looked at */
  bool answers_pings;
} rv_greeting;

void rv_greeting_init(rv_greeting *greeting, bool from_client);
/* The next bytes. false: the first frame is no SETTINGS frame, as far as it is known; once five bytes of its head are there, it is
 * certain that the peer speaks something else. */
bool rv_greeting_take(rv_greeting *greeting, const uint8_t *data, size_t size);

#endif
