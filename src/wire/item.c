#include <stdlib.h>

#include "base/error.h"
#include "wire/messages.h"
#include "wire/parse.h"
#include "wire/put.h"

enum { NS_PER_S = 1000000000 };

static bool parse_slice(rv_span message, rv_wire_slice *out)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  *out = (rv_wire_slice){0};
  while (rv_reader_next(&reader, &field)) {
    if (field.type != RV_WIRE_VARINT) continue;
    switch (field.number) {
    case 1: out->chunk_key = field.value; break;
    case 2: out->offset = rv_field_int32(&field); break;
    case 3: out->length = rv_field_int32(&field); break;
    case 4: out->index = rv_field_int32(&field); break;
    default: break;
    }
  }
  return !reader.broken;
}

/* What an item has, as far as it was counted: more than there is room for is counted all the same. */
typedef struct rv_item_counts {
  uint64_t columns, slices;
} rv_item_counts;

static bool parse_column(rv_span message, const rv_item_room *room, rv_item_counts *counts)
{
  uint64_t first = counts->slices;
  bool squeeze = false;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_BYTES)) {
      rv_wire_slice beyond;
      if (!parse_slice(field.bytes, counts->slices < room->num_slices ? &room->slices[counts->slices] : &beyond)) return false;
      counts->slices++;
    } else if (rv_field_is(&field, 2, RV_WIRE_VARINT)) {
      squeeze = field.value != 0;
    }
  }
  if (counts->columns < room->num_columns) {
    room->slices_of[counts->columns] = (uint32_t)(counts->slices - first);
    room->squeeze[counts->columns] = squeeze;
  }
  counts->columns++;
  return !reader.broken;
}

static bool parse_trajectory(rv_span message, const rv_item_room *room, rv_item_counts *counts)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field))
    if (rv_field_is(&field, 1, RV_WIRE_BYTES) && !parse_column(field.bytes, room, counts)) return false;
  return !reader.broken;
}

static bool parse_timestamp(rv_span message, int64_t *seconds, int64_t *nanos)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  while (rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT)) *seconds = (int64_t)field.value;
    if (rv_field_is(&field, 2, RV_WIRE_VARINT)) *nanos = rv_field_int32(&field);
  }
  return !reader.broken;
}

/* Times that nanoseconds in 63 bits do not reach are cut to the nearest that they do. */
static int64_t join_time(int64_t seconds, int64_t nanos)
{
  int64_t ns = 0;
  if (__builtin_mul_overflow(seconds, NS_PER_S, &ns) || __builtin_add_overflow(ns, nanos, &ns))
    return seconds < 0 ? INT64_MIN : INT64_MAX;
  return ns;
}

/* One block: slices, then the counts, then the flags. */
static rv_code make_room(rv_item_room *room, const rv_item_counts *counts, rv_error *err)
{
  if (counts->columns > RV_ITEM_SLICES_MAX || counts->slices > RV_ITEM_SLICES_MAX)
    return rv_fail(err, RV_INVALID_ARGUMENT, "an item of %llu columns and %llu slices; at most %d of either are possible",
                   (unsigned long long)counts->columns, (unsigned long long)counts->slices, RV_ITEM_SLICES_MAX);
  size_t slices = counts->slices > room->num_slices ? (size_t)counts->slices : room->num_slices;
  size_t columns = counts->columns > room->num_columns ? (size_t)counts->columns : room->num_columns;
  size_t size = slices * sizeof *room->slices + columns * (sizeof *room->slices_of + sizeof *room->squeeze);
  rv_wire_slice *block = malloc(size);
  if (block == NULL) return rv_fail_memory(err, size);
  rv_item_room_fini(room);
  uint32_t *slices_of = (uint32_t *)(void *)(block + slices);
  *room = (rv_item_room){.slices = block,
                         .slices_of = slices_of,
                         .squeeze = (bool *)(slices_of + columns),
                         .num_slices = slices,
                         .num_columns = columns};
  return RV_OK;
}

void rv_item_room_fini(rv_item_room *room)
{
  free(room->slices);
  *room = (rv_item_room){0};
}

static rv_code read_item(const rv_item_room *room, rv_span message, rv_wire_item *out, rv_item_counts *counts, rv_error *err)
{
  *out = (rv_wire_item){0};
  *counts = (rv_item_counts){0};
  int64_t seconds = 0, nanos = 0;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  bool good = true;
  while (good && rv_reader_next(&reader, &field)) {
    if (rv_field_is(&field, 1, RV_WIRE_VARINT))
      out->key = field.value;
    else if (rv_field_is(&field, 2, RV_WIRE_BYTES))
      out->table = field.bytes;
    else if (rv_field_is(&field, 5, RV_WIRE_FIXED64))
      out->priority = rv_field_double(&field);
    else if (rv_field_is(&field, 6, RV_WIRE_VARINT))
      out->times_sampled = rv_field_int32(&field);
    else if (rv_field_is(&field, 7, RV_WIRE_BYTES))
      good = parse_timestamp(field.bytes, &seconds, &nanos);
    else if (rv_field_is(&field, 8, RV_WIRE_BYTES))
      good = parse_trajectory(field.bytes, room, counts);
    else if (rv_field_is(&field, 1000, RV_WIRE_VARINT))
      out->sequence = field.value;
    else if (rv_field_is(&field, 1001, RV_WIRE_FIXED64))
      out->naming = field.value;
  }
  if (!good || reader.broken) return rv_fail_parse(err, "PrioritizedItem");
  out->inserted_at_ns = join_time(seconds, nanos);
  return rv_check_text(out->table, "the table name of an item", err);
}

rv_code rv_wire_item_parse_in(rv_item_room *room, rv_span message, rv_wire_item *out, rv_error *err)
{
  rv_item_counts counts;
  rv_code code = read_item(room, message, out, &counts, err);
  if (code == RV_OK && (counts.columns > room->num_columns || counts.slices > room->num_slices)) {
    code = make_room(room, &counts, err);
    if (code == RV_OK) code = read_item(room, message, out, &counts, err);
    bool changed = counts.columns > room->num_columns || counts.slices > room->num_slices; /* by somebody, since it was counted */
    if (code == RV_OK && changed) code = rv_fail_parse(err, "PrioritizedItem");
  }
  if (code != RV_OK || counts.columns == 0) return code;
  out->slices = room->slices;
  out->num_slices = room->slices_of;
  out->squeeze = room->squeeze;
  out->num_columns = (uint32_t)counts.columns;
  out->total_slices = (uint32_t)counts.slices;
  return RV_OK;
}

rv_code rv_wire_item_parse(rv_span message, rv_wire_item *out, rv_error *err)
{
  rv_item_room own = {0};
  rv_code code = rv_wire_item_parse_in(&own, message, out, err);
  if (code != RV_OK) rv_item_room_fini(&own);
  return code;
}

void rv_wire_item_fini(rv_wire_item *item)
{
  free(item->slices);
  *item = (rv_wire_item){0};
}

void rv_put_int32(rv_writer_buf *out, uint32_t field, int32_t value)
{
  rv_put_varint(out, field, (uint64_t)(int64_t)value);
}

void rv_put_time(rv_writer_buf *out, uint32_t field, int64_t ns)
{
  if (ns == 0) return;
  int64_t seconds = ns / NS_PER_S, nanos = ns % NS_PER_S;
  if (nanos < 0) {
    seconds--;
    nanos += NS_PER_S;
  }
  size_t mark = rv_put_open(out, field);
  rv_put_varint(out, 1, (uint64_t)seconds);
  rv_put_varint(out, 2, (uint64_t)nanos);
  rv_put_close(out, mark);
}

void rv_put_slice(rv_writer_buf *out, const rv_wire_slice *slice)
{
  size_t mark = rv_put_open(out, 1);
  rv_put_varint(out, 1, slice->chunk_key);
  rv_put_int32(out, 2, slice->offset);
  rv_put_int32(out, 3, slice->length);
  rv_put_int32(out, 4, slice->index);
  rv_put_close(out, mark);
}

void rv_wire_item_serialize(rv_writer_buf *out, const rv_wire_item *item)
{
  rv_put_varint(out, 1, item->key);
  rv_put_bytes(out, 2, item->table.data, item->table.size);
  rv_put_double(out, 5, item->priority);
  rv_put_int32(out, 6, item->times_sampled);
  rv_put_time(out, 7, item->inserted_at_ns);
  if (item->num_columns > 0) {
    size_t trajectory = rv_put_open(out, 8);
    const rv_wire_slice *slice = item->slices;
    for (uint32_t i = 0; i < item->num_columns; i++) {
      size_t column = rv_put_open(out, 1);
      for (uint32_t n = item->num_slices[i]; n > 0; n--) rv_put_slice(out, slice++);
      rv_put_varint(out, 2, item->squeeze[i]);
      rv_put_close(out, column);
    }
    rv_put_close(out, trajectory);
  }
  rv_put_varint(out, 1000, item->sequence);
  rv_put_fixed64(out, 1001, item->naming);
}
