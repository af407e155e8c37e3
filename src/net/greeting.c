#include "net/greeting.h"

#include <nghttp2/nghttp2.h>

void rv_greeting_init(rv_greeting *greeting, bool from_client)
{
  *greeting = (rv_greeting){.preface_left = from_client ? NGHTTP2_CLIENT_MAGIC_LEN : 0};
}

/* A frame of that type, on stream 0, not an acknowledgement; nobody's is longer than 64 KiB. */
static bool may_be_settings(const rv_greeting *greeting)
{
  const uint8_t *head = greeting->head;
  if (greeting->have > 0 && head[0] != 0) return false;
  if (greeting->have > 3 && head[3] != NGHTTP2_SETTINGS) return false;
  return greeting->have < 9 || ((head[4] & NGHTTP2_FLAG_ACK) == 0 && (head[5] | head[6] | head[7] | head[8]) == 0);
}

static void take_entry(rv_greeting *greeting)
{
  const uint8_t *entry = greeting->entry;
  greeting->entry_have = 0;
  if ((entry[0] << 8 | entry[1]) == RV_SETTING_SIGNS_OF_LIFE) greeting->answers_pings = entry[5] == 1;
}

static bool take_head(rv_greeting *greeting, uint8_t byte)
{
  greeting->head[greeting->have++] = byte;
  if (greeting->have == 9) greeting->body_left = (size_t)greeting->head[1] << 8 | greeting->head[2];
  bool fine = may_be_settings(greeting);
  greeting->over = greeting->have == 9 && (!fine || greeting->body_left == 0);
  return fine;
}

bool rv_greeting_take(rv_greeting *greeting, const uint8_t *data, size_t size)
{
  bool fine = true;
  for (; size > 0 && !greeting->over; data++, size--) {
    if (greeting->preface_left > 0) {
      greeting->preface_left--;
    } else if (greeting->have < 9) {
      fine = take_head(greeting, *data);
    } else {
      greeting->entry[greeting->entry_have++] = *data;
      if (greeting->entry_have == sizeof greeting->entry) take_entry(greeting);
      greeting->over = --greeting->body_left == 0;
    }
  }
  return fine && may_be_settings(greeting);
}
