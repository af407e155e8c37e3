#include <stdlib.h>

#include "base/error.h"
#include "wire/messages.h"

enum { FEW = 32 };

static rv_code find(const rv_wire_item *item, const rv_wire_slice *wire, rv_find_chunk find_chunk, void *context,
                    rv_chunk_place *out, rv_error *err)
{
  if (find_chunk(context, wire->chunk_key, out)) return RV_OK;
  return rv_fail(err, RV_INTERNAL,
                 "item %llu refers to chunk %llu, which is not there: send a chunk before the items that use it",
                 (unsigned long long)item->key, (unsigned long long)wire->chunk_key);
}

static bool is_within(const rv_wire_slice *wire, const rv_chunk_place *place)
{
  return wire->offset >= 0 && wire->length >= 0 && (int64_t)wire->offset + wire->length <= place->rows;
}

/* Of a joined chunk, whose rows have others on both sides. Of others rv_trajectory_new finds it, and says so. */
static rv_code check_rows(const rv_wire_slice *wire, const rv_chunk_place *place, uint32_t column, rv_error *err)
{
  if (!place->is_joined || is_within(wire, place)) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT, "column %u: %d rows from row %d of a chunk that has %lld", (unsigned)column,
                 (int)wire->length, (int)wire->offset, (long long)place->rows);
}

/* The item's slices over the chunks where they are. *may_go_on: some may have become one with the one before it, and none is wrong. */
static rv_code resolve(const rv_wire_item *item, rv_find_chunk find_chunk, void *context, rv_slice *slices, bool *may_go_on,
                       rv_error *err)
{
  const rv_wire_slice *wire = item->slices, *last = NULL;
  rv_chunk_place place;
  bool any_joined = false, all_within = true;
  for (uint32_t column = 0; column < item->num_columns; column++) {
    for (uint32_t i = 0; i < item->num_slices[column]; i++, last = wire++, slices++) {
      rv_code code = RV_OK;
      if (last == NULL || last->chunk_key != wire->chunk_key) code = find(item, wire, find_chunk, context, &place, err);
      if (code == RV_OK) code = check_rows(wire, &place, column, err);
      if (code != RV_OK) return code;
      *slices = (rv_slice){.chunk = place.chunk, .tensor = (uint32_t)wire->index, .offset = wire->offset, .length = wire->length};
      if (place.is_joined) slices->offset += (int32_t)place.first;
      any_joined |= place.is_joined;
      all_within &= is_within(wire, &place);
    }
  }
  *may_go_on = any_joined && all_within;
  return RV_OK;
}

/* ---- slices that go on ---- */

/* Does it go on where the one before it ends? */
static bool goes_on(const rv_slice *slice)
{
  const rv_slice *before = slice - 1;
  return slice->chunk == before->chunk && slice->tensor == before->tensor && slice->offset == before->offset + before->length;
}

static int64_t rows_of(const rv_slice *slices, uint32_t n)
{
  int64_t rows = 0;
  for (uint32_t i = 0; i < n; i++) rows += slices[i].length;
  return rows;
}

/* How the columns are cut: into slices of the same lengths; otherwise, but they have as many rows; they have not. */
typedef enum cuts { CUT_ALIKE, CUT_OTHERWISE, OF_OTHER_ROWS } cuts;

static cuts cuts_of(const rv_wire_item *item, const rv_slice *slices)
{
  const uint32_t n = item->num_slices[0];
  const int64_t rows = rows_of(slices, n);
  const rv_slice *column = slices;
  cuts found = CUT_ALIKE;
  for (uint32_t c = 0; c < item->num_columns; column += item->num_slices[c++]) {
    if (rows_of(column, item->num_slices[c]) != rows) return OF_OTHER_ROWS;
    if (item->num_slices[c] != n) found = CUT_OTHERWISE;
    for (uint32_t i = 0; i < n && found == CUT_ALIKE; i++)
      if (column[i].length != slices[i].length) found = CUT_OTHERWISE;
  }
  return found;
}

/* In every column, each of which has n slices. */
static bool all_go_on(const rv_wire_item *item, const rv_slice *slices, uint32_t n, uint32_t i)
{
  for (uint32_t c = 0; c < item->num_columns; c++)
    if (!goes_on(&slices[(size_t)c * n + i])) return false;
  return true;
}

/* Which slices join the one before them. Reverb's timestep reader takes apart only items whose columns are cut alike: those stay so, and of those that
 * have as many rows in every column, but are cut otherwise, none joins. */
static void find_joins(const rv_wire_item *item, const rv_slice *slices, bool *joins)
{
  const cuts cut = cuts_of(item, slices);
  const uint32_t n = item->num_slices[0];
  size_t k = 0;
  for (uint32_t c = 0; c < item->num_columns; c++)
    for (uint32_t i = 0; i < item->num_slices[c]; i++, k++) {
      if (i == 0 || cut == CUT_OTHERWISE)
        joins[k] = false;
      else if (cut == OF_OTHER_ROWS)
        joins[k] = goes_on(&slices[k]);
      else
        joins[k] = c == 0 ? all_go_on(item, slices, n, i) : joins[i];
    }
}

/* *num_slices of each column: how many are left. */
static void join_slices(const rv_wire_item *item, const bool *joins, rv_slice *slices, uint32_t *num_slices)
{
  rv_slice *to = slices;
  size_t k = 0;
  for (uint32_t c = 0; c < item->num_columns; c++) {
    const rv_slice *first = to;
    for (uint32_t i = 0; i < item->num_slices[c]; i++, k++) {
      if (joins[k])
        to[-1].length += slices[k].length;
      else
        *to++ = slices[k];
    }
    num_slices[c] = (uint32_t)(to - first);
  }
}

/* ---- the trajectory ---- */

/* Room for what becomes of an item's slices. */
typedef struct slice_room {
  rv_slice *slices;
  uint32_t *num_slices; /* of each column */
  bool *joins;          /* of each slice */
} slice_room;

static rv_code make(const rv_wire_item *item, const slice_room *room, rv_layouts *layouts, rv_layout *like,
                    rv_find_chunk find_chunk, void *context, rv_trajectory **out, rv_error *err)
{
  bool may_go_on;
  rv_code code = resolve(item, find_chunk, context, room->slices, &may_go_on, err);
  if (code != RV_OK) return code;
  rv_trajectory_desc desc = {.slices = room->slices,
                             .num_slices = item->num_slices,
                             .squeeze = item->squeeze,
                             .num_columns = item->num_columns,
                             .like = like};
  if (may_go_on) {
    find_joins(item, room->slices, room->joins);
    join_slices(item, room->joins, room->slices, room->num_slices);
    desc.num_slices = room->num_slices;
  }
  return rv_trajectory_new(layouts, &desc, out, err);
}

rv_code rv_wire_item_trajectory(const rv_wire_item *item, rv_layouts *layouts, rv_layout *like, rv_find_chunk find_chunk,
                                void *context, rv_trajectory **out, rv_error *err)
{
  rv_slice slices[FEW];
  uint32_t num_slices[FEW];
  bool joins[FEW];
  if (item->total_slices <= FEW && item->num_columns <= FEW)
    return make(item, &(slice_room){slices, num_slices, joins}, layouts, like, find_chunk, context, out, err);
  size_t bytes = item->total_slices * (sizeof *slices + sizeof *joins) + item->num_columns * sizeof *num_slices;
  rv_slice *many = malloc(bytes);
  if (many == NULL) return rv_fail_memory(err, bytes);
  uint32_t *numbers = (uint32_t *)(void *)(many + item->total_slices);
  rv_code code = make(item, &(slice_room){many, numbers, (bool *)(numbers + item->num_columns)}, layouts, like, find_chunk,
                      context, out, err);
  free(many);
  return code;
}
