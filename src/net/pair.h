/* One header for nghttp2. */
#ifndef RV_NET_PAIR_H
#define RV_NET_PAIR_H

#include <nghttp2/nghttp2.h>
#include <string.h>

/* Name and value outlive the frame: they are constants. */
#define RV_PAIR_CONSTANT ((uint8_t)(NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE))

static inline nghttp2_nv rv_pair(const char *name, const char *value, uint8_t flags)
{
  return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                      .value = (uint8_t *)(uintptr_t)value,
                      .namelen = strlen(name),
                      .valuelen = strlen(value),
                      .flags = flags};
}

#endif
