/* Rows that a message names by their place (landing.h): 4 bytes of the slot, 4 of the turn, 8 of the offset. */
#include <string.h>

#include "base/error.h"
#include "net/call.h"

_Static_assert(sizeof(rv_landing_place) == RV_PLACE_BYTES, "both ends are of one machine, and of one version");

bool rv_call_name_place(const rv_call *call, const uint8_t *row, size_t size, uint8_t out[RV_PLACE_BYTES])
{
  rv_landing *landing = call->session != NULL ? call->session->transport.landing : NULL;
  rv_landing_place place;
  if (landing == NULL || rv_landing_find(landing, row, size, &place) == NULL) return false;
  memcpy(out, &place, sizeof place);
  return true;
}

static rv_landing_end *blocks_of(const rv_call *call)
{
  return call->session != NULL ? call->session->transport.blocks : NULL;
}

static rv_landing_place place_of(const uint8_t bytes[RV_PLACE_BYTES])
{
  rv_landing_place place;
  memcpy(&place, bytes, sizeof place);
  return place;
}

void rv_call_fetch_place(const rv_call *call, const uint8_t place[RV_PLACE_BYTES], size_t size)
{
  const rv_landing_end *blocks = blocks_of(call);
  rv_landing_place at = place_of(place);
  if (blocks != NULL) rv_landing_end_fetch(blocks, at.slot, at.offset, size);
}

/* NULL: out of memory. */
static rv_buf *copy_row(rv_spares *spares, const uint8_t *row, size_t before, size_t size, size_t behind)
{
  rv_buf *copy = rv_spares_take_lendable(spares, before + size + behind);
  if (copy != NULL) memcpy(copy->data + before, row, size);
  return copy;
}

rv_code rv_call_take_place(rv_call *call, const uint8_t place[RV_PLACE_BYTES], size_t before, size_t size, size_t behind,
                           rv_buf **out, rv_error *err)
{
  rv_landing_end *blocks = blocks_of(call);
  rv_landing_place at = place_of(place);
  const uint8_t *row = NULL;
  if (blocks != NULL && rv_landing_end_has(blocks, &at)) row = rv_landing_end_at(blocks, at.slot, at.offset, size);
  if (row == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "a row of %zu bytes is said to lie in block %u of its connection, which has none there", size, at.slot);
  rv_buf *buf = rv_landing_end_land(blocks, at.slot, at.offset, before, size + behind);
  if (buf == NULL) buf = copy_row(rv_loop_spares(call->loop), row, before, size, behind);
  if (buf == NULL) return rv_fail_memory(err, before + size + behind);
  buf->size = before + size + behind;
  *out = buf;
  return RV_OK;
}
