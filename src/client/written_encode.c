/* Chunks as they are sent: serialized, or written after the pattern of the one before. */
#include <stdlib.h>

#include "base/error.h"
#include "client/column.h"
#include "client/written.h"
#include "store/chunk_parts.h"
#include "wire/cut.h"
#include "wire/messages.h"

enum { CHUNKS_BETWEEN_TRIALS = 64 };
#define TRIAL_BYTES ((size_t)64 << 10) /* so much of a chunk is compressed to see whether it pays */
#define SAVES_LEAST ((size_t)256)      /* bytes a chunk: one that stands by itself for that costs more */

/* Encodes the beginning of a column as it would be sent, and sees whether that saves enough: a fifth. */
static bool trial_pays(const rv_written *written, uint32_t tensor, bool delta)
{
  const rv_chunk_column *spec = &written->columns[tensor]->spec;
  if (spec->dtype == RV_STRING || spec->row_bytes == 0) return false;
  int64_t rows = rv_chunk_num_rows(written->segment, tensor);
  if ((size_t)rows <= SAVES_LEAST / spec->row_bytes) return false;
  if ((size_t)rows > TRIAL_BYTES / spec->row_bytes) rows = (int64_t)(TRIAL_BYTES / spec->row_bytes);
  if (rows == 0) rows = 1;
  size_t stride;
  const void *at = rv_chunk_rows_in_place(written->segment, tensor, 0, rows, &stride);
  if (at == NULL) return false;
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  rv_code code = rv_encode(&pieces, spec->dtype, spec->rank, spec->shape, at, stride, (size_t)rows, delta, true, NULL);
  const size_t bytes = (size_t)rows * spec->row_bytes;
  bool pays = code == RV_OK && pieces.bytes <= bytes / 5 * 4 && pieces.bytes + SAVES_LEAST <= bytes;
  rv_pieces_fini(&pieces);
  return pays;
}

static bool compresses(const rv_written *written, uint32_t tensor, bool delta, rv_compression compression)
{
  if (compression != RV_COMPRESSION_AUTO) return compression == RV_COMPRESSION_SNAPPY;
  rv_trial *trial = &written->columns[tensor]->trial;
  if (trial->chunks_left == 0) {
    trial->snappy = trial_pays(written, tensor, delta);
    trial->in_a_row = trial->snappy ? trial->in_a_row + 1 : 0;
    trial->chunks_left = CHUNKS_BETWEEN_TRIALS;
  }
  trial->chunks_left--;
  return trial->snappy && !written->as_is;
}

void rv_encode_room_init(rv_encode_room *room)
{
  rv_pieces_init(&room->pieces);
  rv_writer_buf_init(&room->scratch);
  rv_stream_spares_init(&room->spares);
  room->forms = 0;
}

void rv_encode_room_fini(rv_encode_room *room)
{
  rv_pieces_fini(&room->pieces);
  rv_writer_buf_fini(&room->scratch);
  rv_stream_spares_fini(&room->spares);
}

/* Does it differ from others of these columns and as many rows in nothing but key, range and rows? Else its size does. */
static bool can_stamp(const rv_written *written, bool delta, const uint8_t *snappy)
{
  if (!rv_written_has_likes(written) || written->num_columns > RV_CHUNK_STAMP_RUNS) return false;
  if (written->rows == 0 || (delta && written->rows > 1)) return false;
  for (uint32_t i = 0; i < written->num_columns; i++)
    if (snappy[i] != 0 || written->columns[i]->spec.dtype == RV_STRING) return false;
  return true;
}

static rv_chunk_meta meta_of(const rv_written *written)
{
  rv_chunk_meta meta = rv_chunk_meta_of_rows(written->segment, 0, written->rows);
  meta.key = written->key;
  return meta;
}

static void note_form(const rv_written *written, size_t own_size)
{
  const rv_column *column = written->columns[0];
  rv_stream_chunk_set_form(written->encoded, column->stamp_form, own_size, &column->stamp);
}

static rv_code stamp_short(rv_written *written, const rv_chunk_meta *meta, size_t size, const rv_run_rows *rows,
                           rv_encode_room *room, rv_error *err)
{
  const rv_chunk_stamp *stamp = &written->columns[0]->stamp;
  rv_code code = rv_stream_chunk_new_flat(written->key, size, written->num_columns, &room->spares, &written->encoded, err);
  if (code == RV_OK) note_form(written, rv_chunk_stamp_write(stamp, meta, rows, written->encoded->flat));
  return code;
}

/* Its rows stay where they are. */
static rv_code stamp_long(rv_written *written, const rv_chunk_meta *meta, size_t size, const void *rows, rv_encode_room *room,
                          rv_error *err)
{
  const rv_chunk_stamp *stamp = &written->columns[0]->stamp;
  rv_code code = rv_stream_chunk_new_flat(written->key, size - stamp->row_bytes, 1, &room->spares, &written->encoded, err);
  if (code != RV_OK) return code;
  rv_stream_chunk *encoded = written->encoded;
  note_form(written, rv_chunk_stamp_write_around(stamp, meta, encoded->flat) - stamp->runs[0].at);
  encoded->rows = (rv_piece){.data = rows, .size = stamp->row_bytes, .owner = rv_chunk_hold(written->segment)};
  if (encoded->rows.owner != NULL) return RV_OK;
  rv_stream_chunk_unref(encoded);
  written->encoded = NULL;
  return rv_fail_memory(err, sizeof(rv_buf));
}

/* Where the rows of each column are; false: not as they would be sent. */
static bool find_rows(const rv_written *written, rv_run_rows *rows)
{
  for (uint32_t i = 0; i < written->num_columns; i++) {
    rows[i].row_bytes = written->columns[i]->spec.row_bytes;
    rows[i].data = rv_chunk_rows_in_place(written->segment, i, 0, written->rows, &rows[i].stride);
    if (rows[i].data == NULL) return false;
  }
  return true;
}

/* *done: it was. */
static rv_code stamp(rv_written *written, rv_encode_room *room, bool *done, rv_error *err)
{
  const rv_column *column = written->columns[0];
  const rv_chunk_stamp *stamp = &column->stamp;
  rv_run_rows rows[RV_CHUNK_STAMP_RUNS];
  *done = false;
  if (stamp->num_rows != written->rows || column->stamp_group != written->group) return RV_OK;
  if (!find_rows(written, rows)) return RV_OK;
  rv_chunk_meta meta = meta_of(written);
  size_t size = rv_chunk_stamp_size(stamp, &meta);
  bool is_short = size <= RV_STREAM_COPY_BYTES;
  bool is_run = written->num_columns == 1 && (rows[0].stride == rows[0].row_bytes || written->rows == 1);
  if (!is_short && !is_run) return RV_OK;
  rv_code code =
      is_short ? stamp_short(written, &meta, size, rows, room, err) : stamp_long(written, &meta, size, rows[0].data, room, err);
  *done = code == RV_OK;
  return code;
}

/* What stands around the rows of a chunk that has one column. */
static bool cut_one(const rv_written *written, rv_span *fixed, size_t *sizes)
{
  const rv_stream_chunk *encoded = written->encoded;
  const rv_piece *piece = encoded->data.piece;
  size_t row_bytes = written->columns[0]->spec.row_bytes * written->rows, tail = rv_chunk_stamp_tail_size(row_bytes);
  sizes[0] = row_bytes;
  if (encoded->flat_size >= row_bytes + tail) {
    fixed[0] = (rv_span){encoded->flat, encoded->flat_size - row_bytes - tail};
    fixed[1] = (rv_span){encoded->flat + encoded->flat_size - tail, tail};
    return true;
  }
  if (encoded->data.count != 3 || piece[1].size != row_bytes || piece[2].size != tail) return false;
  fixed[0] = (rv_span){piece[0].data, piece[0].size};
  fixed[1] = (rv_span){piece[2].data, piece[2].size};
  return true;
}

/* The same of one that is short, and has several: where their rows stand in it is what reading it finds. */
static bool cut_several(const rv_written *written, rv_span *fixed, size_t *sizes)
{
  const rv_stream_chunk *encoded = written->encoded;
  const uint8_t *wire = NULL;
  size_t size = 0, at = 0;
  rv_chunk *read;
  if (encoded->flat_size == 0) return false;
  if (rv_chunk_parse(NULL, (rv_span){encoded->flat, encoded->flat_size}, true, &read, NULL) != RV_OK) return false;
  rv_chunk_wire(read, &wire, &size);
  bool plain = rv_chunk_is_plain_copy(read) && read->num_columns == written->num_columns && size == encoded->flat_size;
  for (uint32_t i = 0; i < written->num_columns && plain; i++) {
    size_t begin = (size_t)(read->lanes[i].base - wire);
    sizes[i] = written->columns[i]->spec.row_bytes * written->rows;
    plain = sizes[i] > 0 && begin >= at && begin <= size && sizes[i] <= size - begin;
    if (plain) fixed[i] = (rv_span){encoded->flat + at, begin - at};
    at = begin + sizes[i];
  }
  if (plain) fixed[written->num_columns] = (rv_span){encoded->flat + at, size - at};
  rv_chunk_unref(read);
  return plain;
}

/* From what has been serialized. */
static void learn_stamp(const rv_written *written, rv_encode_room *room)
{
  rv_column *column = written->columns[0];
  const uint32_t n = written->num_columns;
  rv_span fixed[RV_CHUNK_STAMP_RUNS + 1];
  size_t sizes[RV_CHUNK_STAMP_RUNS];
  if (!(n == 1 ? cut_one(written, fixed, sizes) : cut_several(written, fixed, sizes))) return;
  rv_chunk_meta meta = meta_of(written);
  rv_chunk_stamp_learn(&column->stamp, fixed, sizes, n, &meta, written->rows);
  if (column->stamp.num_rows == 0) return;
  column->stamp_form = ++room->forms;
  column->stamp_group = written->group;
  if (written->encoded->flat_size > 0) note_form(written, rv_chunk_stamp_own_size(&meta));
}

static rv_code serialize(rv_written *written, bool delta, rv_span snappy, rv_encode_room *room, rv_error *err)
{
  rv_chunk_encoding encoding = {.key = written->key,
                                .column = SIZE_MAX,
                                .first = 0,
                                .count = written->rows,
                                .delta = delta,
                                .snappy = snappy,
                                .scratch = &room->scratch};
  rv_code code = rv_chunk_serialize(&room->pieces, written->segment, &encoding, err);
  if (code == RV_OK)
    return rv_stream_chunk_new(written->key, &room->pieces, written->num_columns, &room->spares, &written->encoded, err);
  rv_pieces_clear(&room->pieces);
  return code;
}

rv_code rv_written_encode(rv_written *written, bool delta, int compression, rv_encode_room *room, rv_error *err)
{
  if (written->encoded != NULL) return RV_OK;
  uint8_t few[16], *snappy = few;
  if (written->num_columns > sizeof few) {
    snappy = malloc(written->num_columns);
    if (snappy == NULL) return rv_fail_memory(err, written->num_columns);
  }
  for (uint32_t i = 0; i < written->num_columns; i++) snappy[i] = compresses(written, i, delta, (rv_compression)compression);
  bool can = can_stamp(written, delta, snappy), done = false;
  rv_code code = can ? stamp(written, room, &done, err) : RV_OK;
  if (code == RV_OK && !done) {
    code = serialize(written, delta, (rv_span){snappy, written->num_columns}, room, err);
    if (code == RV_OK && can) learn_stamp(written, room);
  }
  if (snappy != few) free(snappy);
  return code;
}
