#include "persist/journal_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "persist/frame.h"

#define SUFFIX ".journal"

static const uint8_t segment_magic[8] = {'R', 'V', 'J', 'O', 'U', 'R', 'N', '1'}, group_magic[8] = "RVGROUP";

/* ---- segments ---- */

void rv_segment_name(uint64_t segment, char out[RV_JOURNAL_NAME_MAX])
{
  snprintf(out, RV_JOURNAL_NAME_MAX, "%020" PRIu64 SUFFIX, segment);
}

bool rv_segment_name_parse(const char *name, uint64_t *segment)
{
  char again[RV_JOURNAL_NAME_MAX];
  if (strlen(name) != 20 + strlen(SUFFIX) || strspn(name, "0123456789") != 20) return false;
  *segment = strtoull(name, NULL, 10);
  rv_segment_name(*segment, again);
  return strcmp(name, again) == 0;
}

void rv_segment_header_put(const rv_segment_header *header, uint8_t out[RV_JOURNAL_SEGMENT_HEADER])
{
  memset(out, 0, RV_JOURNAL_SEGMENT_HEADER);
  memcpy(out, segment_magic, sizeof segment_magic);
  rv_frame_put64(out + 8, header->segment);
  rv_frame_put64(out + 16, header->first_group);
  rv_frame_put64(out + 24, header->generation);
  rv_frame_put64(out + 32, header->id[0]);
  rv_frame_put64(out + 40, header->id[1]);
  rv_frame_put64(out + 48, (uint64_t)header->wall_ns);
  rv_frame_put32(out + 56, header->salt);
  rv_frame_put32(out + 60, rv_frame_mask(rv_crc32c(0, out, 60)));
}

bool rv_segment_header_get(const uint8_t *in, size_t size, rv_segment_header *out)
{
  if (size < RV_JOURNAL_SEGMENT_HEADER || memcmp(in, segment_magic, sizeof segment_magic) != 0 ||
      rv_frame_get32(in + 60) != rv_frame_mask(rv_crc32c(0, in, 60)))
    return false;
  *out = (rv_segment_header){.segment = rv_frame_get64(in + 8),
                             .first_group = rv_frame_get64(in + 16),
                             .generation = rv_frame_get64(in + 24),
                             .id = {rv_frame_get64(in + 32), rv_frame_get64(in + 40)},
                             .wall_ns = (int64_t)rv_frame_get64(in + 48),
                             .salt = rv_frame_get32(in + 56)};
  return out->first_group > 0;
}

/* ---- groups ---- */

void rv_group_header_put(const rv_group_header *header, uint8_t out[RV_JOURNAL_GROUP_HEADER])
{
  memset(out, 0, RV_JOURNAL_GROUP_HEADER);
  memcpy(out, group_magic, sizeof group_magic);
  rv_frame_put64(out + 8, header->number);
  rv_frame_put64(out + 16, header->synced);
  rv_frame_put64(out + 24, header->bytes);
  rv_frame_put32(out + 32, header->changes);
  rv_frame_put32(out + 36, rv_frame_mask(header->crc));
  rv_frame_put32(out + 40, header->salt);
  rv_frame_put32(out + 44, rv_frame_mask(rv_crc32c(0, out, 44)));
}

bool rv_group_header_get(const uint8_t *in, size_t size, rv_group_header *out)
{
  if (size < RV_JOURNAL_GROUP_HEADER || memcmp(in, group_magic, sizeof group_magic) != 0 ||
      rv_frame_get32(in + 44) != rv_frame_mask(rv_crc32c(0, in, 44)))
    return false;
  *out = (rv_group_header){.number = rv_frame_get64(in + 8),
                           .synced = rv_frame_get64(in + 16),
                           .bytes = rv_frame_get64(in + 24),
                           .changes = rv_frame_get32(in + 32),
                           .salt = rv_frame_get32(in + 40)};
  uint32_t masked = rv_frame_get32(in + 36) - UINT32_C(0xA282EAD8);
  out->crc = masked >> 17 | masked << 15;
  return out->number > out->synced; /* which it is not itself, when it is written */
}

/* ---- records ---- */

bool rv_take_varint(rv_span *body, uint64_t *out)
{
  uint64_t value = 0;
  for (size_t i = 0; i < body->size && i < 10; i++) {
    value |= (uint64_t)(body->data[i] & 0x7F) << 7 * i;
    if (body->data[i] >= 0x80) continue;
    *out = value;
    body->data += i + 1;
    body->size -= i + 1;
    return true;
  }
  return false;
}

bool rv_take_fixed64(rv_span *body, uint64_t *out)
{
  if (body->size < 8) return false;
  *out = rv_frame_get64(body->data);
  body->data += 8;
  body->size -= 8;
  return true;
}

bool rv_take_fixed32(rv_span *body, uint32_t *out)
{
  if (body->size < 4) return false;
  *out = rv_frame_get32(body->data);
  body->data += 4;
  body->size -= 4;
  return true;
}

bool rv_journal_record_next(rv_span *records, uint8_t *kind, rv_span *body, bool *broken)
{
  uint64_t size;
  if (records->size == 0) return false;
  *kind = records->data[0];
  rv_span rest = {records->data + 1, records->size - 1};
  *broken = !rv_take_varint(&rest, &size) || size > rest.size;
  if (*broken) return false;
  *body = (rv_span){rest.data, (size_t)size};
  *records = (rv_span){rest.data + size, rest.size - (size_t)size};
  return true;
}

size_t rv_put_plain_varint(uint8_t out[10], uint64_t value)
{
  size_t n = 0;
  for (; value >= 0x80; value >>= 7) out[n++] = (uint8_t)(value | 0x80);
  out[n++] = (uint8_t)value;
  return n;
}

size_t rv_journal_record_head(uint8_t out[11], rv_journal_record kind, uint64_t bytes)
{
  out[0] = (uint8_t)kind;
  return 1 + rv_put_plain_varint(out + 1, bytes);
}
