#include "persist/journal_encode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "persist/frame.h"

enum {
  GROUP_BYTES = 4 << 20, /* a group that has so many is closed */
  FLAT_BYTES = 1 << 16,
  MAX_CHUNKS = 1 << 16,
  USUAL_CHUNK_BYTES = 1 << 28, /* a recovery has them in memory beside the tables */
  MOST_CHUNK_BYTES = 16        /* times the usual */
};

/* ---- the group at hand ---- */

static rv_code no_memory(rv_error *err)
{
  return rv_fail_memory(err, GROUP_BYTES);
}

static rv_code open_group(rv_journal_encoder *encoder, rv_error *err)
{
  if (encoder->num_groups == encoder->capacity) {
    size_t capacity = 2 * encoder->capacity + 4;
    rv_journal_group *grown = realloc(encoder->groups, capacity * sizeof *grown);
    if (grown == NULL) return no_memory(err);
    for (size_t i = encoder->capacity; i < capacity; i++) grown[i] = (rv_journal_group){.changes = 0};
    encoder->groups = grown;
    encoder->capacity = capacity;
  }
  rv_journal_group *group = &encoder->groups[encoder->num_groups++];
  rv_pieces_init(&group->records);
  group->changes = 0;
  return RV_OK;
}

static rv_code flush(rv_journal_encoder *encoder, rv_error *err)
{
  rv_writer_buf *flat = &encoder->flat;
  if (flat->failed) return no_memory(err);
  if (flat->size == 0) return RV_OK;
  rv_code code = rv_pieces_copy(&encoder->groups[encoder->num_groups - 1].records, flat->data, flat->size);
  flat->size = 0;
  return code == RV_OK ? RV_OK : no_memory(err);
}

/* The group that the next record joins. */
static rv_code group_for(rv_journal_encoder *encoder, rv_journal_group **out, rv_error *err)
{
  rv_code code = RV_OK;
  rv_journal_group *group = encoder->num_groups == 0 ? NULL : &encoder->groups[encoder->num_groups - 1];
  if (group == NULL || group->records.bytes + encoder->flat.size >= GROUP_BYTES) {
    if (group != NULL) code = flush(encoder, err);
    if (code == RV_OK) code = open_group(encoder, err);
  } else if (encoder->flat.size >= FLAT_BYTES) {
    code = flush(encoder, err);
  }
  if (code == RV_OK) *out = &encoder->groups[encoder->num_groups - 1];
  return code;
}

static rv_code put_head(rv_journal_encoder *encoder, rv_journal_record kind, uint64_t bytes, rv_journal_group **group,
                        rv_error *err)
{
  uint8_t head[11];
  rv_code code = group_for(encoder, group, err);
  if (code == RV_OK) rv_put_raw(&encoder->flat, head, rv_journal_record_head(head, kind, bytes));
  return code;
}

/* A small record, all of it. */
static rv_code put_small(rv_journal_encoder *encoder, rv_journal_record kind, const void *body, size_t bytes, uint32_t changes,
                         rv_error *err)
{
  rv_journal_group *group;
  rv_code code = put_head(encoder, kind, bytes, &group, err);
  if (code != RV_OK) return code;
  rv_put_raw(&encoder->flat, body, bytes);
  group->changes += changes;
  return encoder->flat.failed ? no_memory(err) : RV_OK;
}

/* A chunk, for the chunk log. */
static rv_code put_chunk(void *context, rv_pieces *chunk, rv_error *err)
{
  rv_journal_encoder *encoder = context;
  rv_journal_group *group;
  rv_code code = put_head(encoder, RV_RECORD_CHUNK, chunk->bytes, &group, err);
  if (code == RV_OK) code = flush(encoder, err);
  if (code != RV_OK) return code;
  encoder->chunk_bytes += chunk->bytes;
  return rv_pieces_append(&group->records, chunk) == RV_OK ? RV_OK : no_memory(err);
}

/* ---- life ---- */

rv_code rv_journal_encoder_init(rv_journal_encoder *encoder, rv_store *store, rv_error *err)
{
  *encoder = (rv_journal_encoder){
      .store = store, .max_chunks = MAX_CHUNKS, .max_chunk_bytes = USUAL_CHUNK_BYTES, .usual_chunk_bytes = USUAL_CHUNK_BYTES};
  rv_writer_buf_init(&encoder->item);
  rv_writer_buf_init(&encoder->flat);
  return rv_chunk_log_new((rv_chunk_sink){put_chunk, encoder}, rv_store_env(store), &encoder->chunks, err);
}

void rv_journal_encoder_clear(rv_journal_encoder *encoder)
{
  for (size_t i = 0; i < encoder->num_groups; i++) rv_pieces_fini(&encoder->groups[i].records);
  encoder->num_groups = 0;
  encoder->flat.size = 0;
  encoder->flat.failed = false;
  encoder->item.failed = false;
}

void rv_journal_encoder_fini(rv_journal_encoder *encoder)
{
  rv_journal_encoder_clear(encoder);
  free(encoder->groups);
  rv_chunk_log_free(encoder->chunks);
  rv_item_scratch_fini(&encoder->scratch);
  rv_writer_buf_fini(&encoder->item);
  rv_writer_buf_fini(&encoder->flat);
}

void rv_journal_encoder_forget_chunks(rv_journal_encoder *encoder)
{
  rv_chunk_log_clear(encoder->chunks);
  encoder->chunk_bytes = 0;
}

/* ---- what is no change ---- */

static void put_id(uint8_t out[RV_JOURNAL_ID], const uint64_t id[2])
{
  rv_frame_put64(out, id[0]);
  rv_frame_put64(out + 8, id[1]);
}

rv_code rv_journal_encode_tables(rv_journal_encoder *encoder, rv_error *err)
{
  rv_code code = RV_OK;
  for (size_t i = 0; i < rv_store_num_tables(encoder->store) && code == RV_OK; i++) {
    const char *name = rv_table_name(rv_store_table(encoder->store, i));
    uint8_t number[10];
    rv_journal_group *group;
    size_t n = rv_put_plain_varint(number, i);
    code = put_head(encoder, RV_RECORD_TABLE, n + strlen(name), &group, err);
    if (code != RV_OK) return code;
    rv_put_raw(&encoder->flat, number, n);
    rv_put_raw(&encoder->flat, name, strlen(name));
  }
  return code == RV_OK ? flush(encoder, err) : code;
}

rv_code rv_journal_encode_forget_chunks(rv_journal_encoder *encoder, rv_error *err)
{
  rv_code code = put_small(encoder, RV_RECORD_FORGET_CHUNKS, "", 0, 0, err);
  return code == RV_OK ? flush(encoder, err) : code;
}

rv_code rv_journal_encode_writer(rv_journal_encoder *encoder, const uint64_t id[2], const rv_done_set *done, rv_error *err)
{
  rv_writer_buf *body = &encoder->item;
  uint8_t bytes[RV_JOURNAL_ID];
  body->size = 0;
  put_id(bytes, id);
  rv_put_raw(body, bytes, sizeof bytes);
  rv_done_place place = {0};
  for (rv_done_run run; done != NULL && rv_done_set_next(done, &place, &run);) {
    rv_put_raw(body, bytes, rv_put_plain_varint(bytes, run.first));
    rv_put_raw(body, bytes, rv_put_plain_varint(bytes, run.last));
  }
  if (body->failed) return no_memory(err);
  rv_code code = put_small(encoder, RV_RECORD_WRITER, body->data, body->size, 0, err);
  return code == RV_OK ? flush(encoder, err) : code;
}

rv_code rv_journal_encode_forget_writer(rv_journal_encoder *encoder, const uint64_t id[2], rv_error *err)
{
  uint8_t bytes[RV_JOURNAL_ID];
  put_id(bytes, id);
  rv_code code = put_small(encoder, RV_RECORD_FORGET_WRITER, bytes, sizeof bytes, 0, err);
  return code == RV_OK ? flush(encoder, err) : code;
}

/* ---- changes ---- */

/* A writer of whom not everything can be remembered is lost: when it comes back it is told so. */
static rv_code note_done(rv_journal_encoder *encoder, rv_journal_writers *writers, const rv_change_extra *extra, rv_error *err)
{
  if (extra->number == 0) return RV_OK;
  rv_journal_writer *writer = rv_journal_writers_get(writers, extra->writer);
  if (writer != NULL && (writer->lost || rv_done_set_add(&writer->done, extra->number, NULL) == RV_OK)) return RV_OK;
  if (writer == NULL || !rv_done_set_is_full(&writer->done)) return no_memory(err);
  rv_journal_writer_lose(writer, false);
  return rv_journal_encode_forget_writer(encoder, extra->writer, err);
}

/* Whatever items still need of the chunks that are forgotten is written again: where that is most of what is written, more are remembered. */
static void adapt_bound(rv_journal_encoder *encoder)
{
  size_t again = rv_chunk_log_bytes_again(encoder->chunks), usual = encoder->usual_chunk_bytes,
         *bound = &encoder->max_chunk_bytes;
  if (encoder->chunk_bytes >= *bound && again > encoder->chunk_bytes / 2 && *bound / MOST_CHUNK_BYTES < usual)
    *bound *= 2;
  else if (again < encoder->chunk_bytes / 8 && *bound > usual)
    *bound /= 2;
}

static rv_code put_insert(rv_journal_encoder *encoder, uint32_t table, const rv_change_extra *extra, rv_error *err)
{
  rv_journal_group *group;
  uint8_t head[10 + RV_JOURNAL_ID + 10];
  if (rv_chunk_log_count(encoder->chunks) >= encoder->max_chunks || encoder->chunk_bytes >= encoder->max_chunk_bytes) {
    adapt_bound(encoder);
    rv_journal_encoder_forget_chunks(encoder);
    rv_code code = rv_journal_encode_forget_chunks(encoder, err);
    if (code != RV_OK) return code;
  }
  encoder->item.size = 0;
  rv_code code =
      rv_item_record_put(&encoder->scratch, encoder->chunks, "", extra->draw.naming, &extra->draw, &encoder->item, err);
  if (code == RV_INVALID_ARGUMENT) {
    rv_log(rv_store_env(encoder->store), RV_LOG_ERROR, "journal: item %" PRIu64 " of table \"%s\" cannot be written: %s",
           extra->draw.key, rv_table_name(rv_store_table(encoder->store, table)), err->message);
    return RV_OK;
  }
  if (code != RV_OK) return code;
  size_t n = rv_put_plain_varint(head, table);
  put_id(head + n, extra->writer);
  n += RV_JOURNAL_ID;
  n += rv_put_plain_varint(head + n, extra->number);
  code = put_head(encoder, RV_RECORD_INSERT, n + encoder->item.size, &group, err);
  if (code != RV_OK) return code;
  rv_put_raw(&encoder->flat, head, n);
  rv_put_raw(&encoder->flat, encoder->item.data, encoder->item.size);
  group->changes++;
  return encoder->flat.failed ? no_memory(err) : RV_OK;
}

static rv_code put_limiter(rv_journal_encoder *encoder, uint32_t table, const rv_rate_limiter_config *limiter, rv_error *err)
{
  uint8_t body[10 + 32];
  const double numbers[3] = {limiter->samples_per_insert, limiter->min_diff, limiter->max_diff};
  size_t n = rv_put_plain_varint(body, table);
  for (size_t i = 0; i < 3; i++, n += 8) {
    uint64_t bits;
    memcpy(&bits, &numbers[i], sizeof bits);
    rv_frame_put64(body + n, bits);
  }
  rv_frame_put64(body + n, (uint64_t)limiter->min_size_to_sample);
  return put_small(encoder, RV_RECORD_LIMITER, body, n + 8, 1, err);
}

static rv_code put_done(rv_journal_encoder *encoder, const rv_change_extra *extra, rv_error *err)
{
  uint8_t body[RV_JOURNAL_ID + 10];
  put_id(body, extra->writer);
  size_t n = RV_JOURNAL_ID + rv_put_plain_varint(body + RV_JOURNAL_ID, extra->number);
  return put_small(encoder, RV_RECORD_DONE, body, n, 1, err);
}

/* Changes of one kind that follow one another are one record. */
static rv_code put_run(rv_journal_encoder *encoder, uint32_t table, const rv_change *changes, size_t n, rv_error *err)
{
  static const rv_journal_record kinds[] = {
      [RV_CHANGE_DELETE] = RV_RECORD_DELETE, [RV_CHANGE_UPDATE] = RV_RECORD_UPDATE, [RV_CHANGE_SAMPLE] = RV_RECORD_SAMPLE};
  uint32_t kind = changes[0].kind;
  size_t each = kind == RV_CHANGE_DELETE ? 8 : kind == RV_CHANGE_UPDATE ? 16 : 12;
  uint8_t bytes[16];
  rv_journal_group *group;
  size_t first = rv_put_plain_varint(bytes, table);
  rv_code code = put_head(encoder, kinds[kind], first + each * n, &group, err);
  if (code != RV_OK) return code;
  rv_put_raw(&encoder->flat, bytes, first);
  for (size_t i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, &changes[i].priority, sizeof bits);
    rv_frame_put64(bytes, changes[i].key);
    if (kind == RV_CHANGE_UPDATE) rv_frame_put64(bytes + 8, bits);
    if (kind == RV_CHANGE_SAMPLE) rv_frame_put32(bytes + 8, (uint32_t)changes[i].times_sampled);
    rv_put_raw(&encoder->flat, bytes, each);
  }
  group->changes += (uint32_t)n;
  return encoder->flat.failed ? no_memory(err) : RV_OK;
}

static rv_code put_alone(rv_journal_encoder *encoder, uint32_t table, const rv_change *change, const rv_change_extra *extra,
                         rv_error *err)
{
  uint8_t body[22];
  size_t n = rv_put_plain_varint(body, table);
  rv_frame_put64(body + n, change->key);
  switch ((rv_change_kind)change->kind) {
  case RV_CHANGE_INSERT: return put_insert(encoder, table, extra, err);
  case RV_CHANGE_LIMITER: return put_limiter(encoder, table, &extra->limiter, err);
  case RV_CHANGE_DONE: return put_done(encoder, extra, err);
  case RV_CHANGE_BOUNDS:
    rv_frame_put32(body + n + 8, (uint32_t)change->times_sampled);
    return put_small(encoder, RV_RECORD_BOUNDS, body, n + 12, 1, err);
  case RV_CHANGE_MAX_BYTES: return put_small(encoder, RV_RECORD_TABLE_BYTES, body, n + 8, 1, err);
  case RV_CHANGE_RESET: return put_small(encoder, RV_RECORD_RESET, body, n, 1, err);
  case RV_CHANGE_SNAPSHOT: return put_small(encoder, RV_RECORD_SNAPSHOT, body, n + 8, 0, err);
  case RV_CHANGE_DELETE:
  case RV_CHANGE_UPDATE:
  case RV_CHANGE_SAMPLE: break;
  }
  return RV_OK;
}

static bool has_extra(const rv_change *change)
{
  return change->kind == RV_CHANGE_INSERT || change->kind == RV_CHANGE_LIMITER || change->kind == RV_CHANGE_DONE;
}

static bool joins_others(const rv_change *change)
{
  return change->kind == RV_CHANGE_DELETE || change->kind == RV_CHANGE_UPDATE || change->kind == RV_CHANGE_SAMPLE;
}

rv_code rv_journal_encode_changes(rv_journal_encoder *encoder, uint32_t table, const rv_change_list *list,
                                  rv_journal_writers *writers, rv_error *err)
{
  const rv_extra_block *extras = list->extras;
  size_t at = 0;
  rv_code code = RV_OK;
  for (const rv_change_block *block = list->blocks; block != NULL && code == RV_OK; block = block->next) {
    for (size_t i = 0, n; i < block->count && code == RV_OK; i += n) {
      const rv_change *change = &block->changes[i];
      n = 1;
      if (joins_others(change)) {
        while (i + n < block->count && block->changes[i + n].kind == change->kind) n++;
        code = put_run(encoder, table, change, n, err);
        continue;
      }
      const rv_change_extra *extra = NULL;
      if (has_extra(change)) {
        if (at == extras->count) {
          extras = extras->next;
          at = 0;
        }
        extra = &extras->extras[at++];
        code = note_done(encoder, writers, extra, err);
      }
      if (code == RV_OK) code = put_alone(encoder, table, change, extra, err);
    }
  }
  return code == RV_OK && encoder->num_groups > 0 ? flush(encoder, err) : code;
}
