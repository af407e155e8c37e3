#include "wire/chunk_forms.h"

#include <string.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "wire/messages.h"
#include "wire/parse.h"

enum { PATIENCE_MAX = 1023 };

void rv_chunk_forms_fini(rv_chunk_forms *forms)
{
  for (uint32_t i = 0; i < forms->count; i++) rv_chunk_unref(forms->form[i].model);
  *forms = (rv_chunk_forms){0};
}

/* Tags of the fields that a head has. */
enum { KEY = 0x08, RANGE = 0x12, EPISODE = 0x08, FIRST_STEP = 0x10, LAST_STEP = 0x18, SPARSE = 0x20 };

/* The same as below of a head that has nothing but what writers put there, at a third of the price; false: it may have more, or be none. */
static bool read_plain_head(rv_span message, rv_chunk_meta *meta, rv_span *rest)
{
  const uint8_t *at = message.data, *end = message.size > 0 ? at + message.size : at;
  *meta = (rv_chunk_meta){0};
  if (end - at < 2) return false;
  if (*at == KEY) {
    at++;
    if (!rv_varint_take(&at, end, &meta->key)) return false;
  }
  if (end - at < 2 || at[0] != RANGE || at[1] >= 0x80 || at[1] > end - at - 2) return false;
  const uint8_t *range_end = at + 2 + at[1];
  for (at += 2; at < range_end;) {
    uint8_t tag = *at++;
    uint64_t value;
    if (!rv_varint_take(&at, range_end, &value)) return false;
    switch (tag) {
    case EPISODE: meta->episode_id = value; break;
    case FIRST_STEP: meta->first_step = (int32_t)(uint32_t)value; break;
    case LAST_STEP: meta->last_step = (int32_t)(uint32_t)value; break;
    case SPARSE: meta->sparse = value != 0; break;
    default: return false;
    }
  }
  *rest = (rv_span){at, (size_t)(end - at)};
  return true;
}

bool rv_chunk_head_read(rv_span message, rv_chunk_meta *meta, rv_span *rest)
{
  if (read_plain_head(message, meta, rest)) return true;
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, message);
  *meta = (rv_chunk_meta){0};
  if (!rv_reader_next(&reader, &field)) return false;
  if (rv_field_is(&field, 1, RV_WIRE_VARINT)) { /* a key of 0 is not written */
    meta->key = field.value;
    if (!rv_reader_next(&reader, &field)) return false;
  }
  if (!rv_field_is(&field, 2, RV_WIRE_BYTES)) return false;
  *rest = (rv_span){reader.at, (size_t)(reader.end - reader.at)};
  return rv_sequence_range_parse(field.bytes, meta);
}

/* Of all rows of a tensor. */
static size_t run_bytes(const rv_chunk *chunk, uint32_t i)
{
  return chunk->lanes[i].row_bytes * (size_t)rv_chunk_num_rows(chunk, i);
}

/* All but the rows is the same, byte by byte. */
static bool is_alike(const rv_chunk_form *form, rv_span rest)
{
  if (form->fixed_bytes != rest.size) return false;
  const uint8_t *wire;
  size_t size;
  rv_chunk_wire(form->model, &wire, &size);
  const uint8_t *begin = wire + (size - rest.size), *at = begin;
  for (uint32_t i = 0; i < form->model->num_columns; i++) {
    const rv_lane *lane = &form->model->lanes[i];
    size_t bytes = run_bytes(form->model, i);
    if (bytes == 0) continue; /* then it has no rows there */
    if (memcmp(at, rest.data + (at - begin), (size_t)(lane->base - at)) != 0) return false;
    at = lane->base + bytes;
  }
  return memcmp(at, rest.data + (at - begin), (size_t)(wire + size - at)) == 0;
}

/* A key or a range behind the first would count instead of it. */
static bool says_it_once(rv_span rest)
{
  rv_reader reader;
  rv_field field;
  rv_reader_init(&reader, rest);
  while (rv_reader_next(&reader, &field))
    if (field.number == 1 || field.number == 2) return false;
  return !reader.broken;
}

static void put(rv_chunk_forms *forms, rv_chunk_form form)
{
  if (forms->count < RV_CHUNK_FORMS) {
    forms->form[forms->count++] = form;
    return;
  }
  rv_chunk_form *oldest = &forms->form[forms->hand++ % RV_CHUNK_FORMS];
  if (!oldest->used) {
    forms->patience = forms->patience < PATIENCE_MAX ? 2 * forms->patience + 1 : PATIENCE_MAX;
    forms->to_skip = forms->patience;
  }
  rv_chunk_unref(oldest->model);
  *oldest = form;
}

/* Forms that no chunk had again are not worth another copy: the more of them go, the fewer come. Without memory it is simply not known. */
static void learn(rv_chunk_forms *forms, rv_span message, rv_span rest, rv_chunk *chunk)
{
  if (message.size > RV_CHUNK_FORM_BYTES || !rv_chunk_is_plain_copy(chunk)) return;
  if (forms->to_skip > 0) {
    forms->to_skip--;
    return;
  }
  rv_chunk *model;
  if (!says_it_once(rest)) return;
  if (rv_chunk_new_alike(chunk, rv_chunk_get_meta(chunk), &(rv_bytes){message.data, message.size}, 1, &model, NULL) != RV_OK)
    return;
  put(forms, (rv_chunk_form){.model = model, .fixed_bytes = rest.size, .joins = rv_joined_takes(model)});
}

/* NULL: none of them. */
static rv_chunk_form *find_alike(rv_chunk_forms *forms, rv_span rest)
{
  for (uint32_t tried = 0; tried < forms->count; tried++) {
    rv_chunk_form *form = &forms->form[forms->next];
    forms->next = forms->next + 1 < forms->count ? forms->next + 1 : 0;
    if (!is_alike(form, rest)) continue;
    form->used = true;
    forms->patience = 0;
    return form;
  }
  return NULL;
}

/* ---- joining ---- */

/* A chunk's own rows, decoded where they do not lie in it as they are; what cannot be decoded stays a chunk. */
static bool join_whole(rv_joined *joined, rv_chunk *chunk, rv_chunk_place *out)
{
  const uint8_t *columns[RV_CHUNK_FORM_TENSORS];
  rv_buf *decoded[RV_CHUNK_FORM_TENSORS] = {NULL};
  bool fine = true;
  for (uint32_t i = 0; i < chunk->num_columns && fine; i++) {
    columns[i] = chunk->lanes[i].base;
    if (columns[i] != NULL) continue;
    fine = rv_chunk_decode(chunk, i, &decoded[i], NULL) == RV_OK;
    columns[i] = fine ? decoded[i]->data : NULL;
  }
  fine = fine && rv_joined_put(joined, chunk, &chunk->meta, columns, out);
  for (uint32_t i = 0; i < chunk->num_columns && chunk->decodes; i++) rv_buf_unref(decoded[i]);
  return fine;
}

/* The rows of a message of the form, which ends with `rest`. */
static bool join_alike(rv_joined *joined, const rv_chunk_form *form, const rv_chunk_meta *meta, rv_span rest, rv_chunk_place *out)
{
  const uint8_t *columns[RV_CHUNK_FORM_TENSORS], *wire;
  size_t size;
  rv_chunk_wire(form->model, &wire, &size);
  const uint8_t *begin = wire + (size - rest.size);
  for (uint32_t i = 0; i < form->model->num_columns; i++)
    columns[i] = run_bytes(form->model, i) == 0 ? rest.data : rest.data + (form->model->lanes[i].base - begin);
  return rv_joined_put(joined, form->model, meta, columns, out);
}

rv_code rv_chunk_parse_alike(rv_chunk_forms *forms, rv_joined *joined, rv_span message, rv_chunk_place *out, rv_error *err)
{
  rv_chunk_meta meta;
  rv_span rest;
  rv_chunk *chunk;
  const bool has_head = rv_chunk_head_read(message, &meta, &rest);
  const rv_chunk_form *form = has_head ? find_alike(forms, rest) : NULL;
  if (joined != NULL && form != NULL && form->joins && join_alike(joined, form, &meta, rest, out)) return RV_OK;
  rv_code code = form != NULL ? rv_chunk_new_alike(form->model, &meta, &(rv_bytes){message.data, message.size}, 1, &chunk, err)
                              : rv_chunk_parse(NULL, message, true, &chunk, err);
  if (code != RV_OK) return code;
  if (has_head && form == NULL) learn(forms, message, rest, chunk);
  if (joined != NULL && form == NULL && rv_joined_takes(chunk) && join_whole(joined, chunk, out))
    rv_chunk_unref(chunk);
  else
    *out = rv_chunk_place_whole(chunk);
  return RV_OK;
}

/* ---- one form by itself ---- */

static size_t row_bytes_of(const rv_chunk *chunk)
{
  size_t bytes = 0;
  for (uint32_t i = 0; i < chunk->num_columns; i++) bytes += run_bytes(chunk, i);
  return bytes;
}

/* Each tensor's rows stand behind those of the one before it, all behind the first bytes. */
static bool are_in_order(const rv_chunk *chunk, const uint8_t *behind)
{
  for (uint32_t i = 0; i < chunk->num_columns; i++) {
    const size_t bytes = run_bytes(chunk, i);
    if (bytes == 0) continue;
    if (chunk->lanes[i].base < behind) return false;
    behind = chunk->lanes[i].base + bytes;
  }
  return true;
}

rv_code rv_chunk_form_check_besides(const rv_chunk_meta *meta, size_t besides, size_t num_tensors, rv_error *err)
{
  const size_t most = RV_CHUNK_FORM_BESIDES + (num_tensors - 1) * RV_CHUNK_FORM_BESIDES_EACH;
  if (besides <= most) return RV_OK;
  return rv_fail(err, RV_INVALID_ARGUMENT,
                 "chunk %llu, of which others are to have the form, has %zu bytes besides key, range and rows; at most %zu are "
                 "possible: send items of such chunks by themselves",
                 (unsigned long long)meta->key, besides, most);
}

rv_code rv_chunk_form_init(rv_chunk_form *form, rv_chunk *chunk, rv_error *err)
{
  const uint8_t *wire = NULL;
  size_t size = 0;
  rv_chunk_meta meta;
  rv_span rest;
  rv_chunk_wire(chunk, &wire, &size);
  if (chunk->num_columns == 0 || chunk->num_columns > RV_CHUNK_FORM_TENSORS || !rv_chunk_is_plain_copy(chunk) ||
      !rv_chunk_head_read((rv_span){wire, size}, &meta, &rest) || !says_it_once(rest) || !are_in_order(chunk, rest.data))
    return rv_fail(
        err, RV_INVALID_ARGUMENT,
        "chunk %llu, of which others are to have the form, must be one to %d tensors that are not compressed, one behind the "
        "other, behind its key and its range",
        (unsigned long long)chunk->meta.key, RV_CHUNK_FORM_TENSORS);
  const size_t row_bytes = row_bytes_of(chunk), besides = rest.size - row_bytes;
  rv_code code = rv_chunk_form_check_besides(&chunk->meta, besides, chunk->num_columns, err);
  if (code != RV_OK) return code;
  *form = (rv_chunk_form){
      .model = rv_chunk_ref(chunk), .fixed_bytes = rest.size, .row_bytes = row_bytes, .joins = rv_joined_takes(chunk)};
  return RV_OK;
}

void rv_chunk_form_fini(rv_chunk_form *form)
{
  if (form->model != NULL) rv_chunk_unref(form->model);
  form->model = NULL;
}

/* It is read anew: where bytes may have to move there is more to do than to parse. */
static rv_code join_apart(const rv_bytes *parts, size_t num_parts, size_t size, rv_chunk **out, rv_error *err)
{
  rv_buf *own = rv_buf_new(size);
  if (own == NULL) return rv_fail_memory(err, size);
  for (size_t i = 0; i < num_parts; own->size += parts[i++].size)
    if (parts[i].size > 0) memcpy(own->data + own->size, parts[i].data, parts[i].size);
  rv_code code = rv_chunk_parse(own, (rv_span){own->data, own->size}, false, out, err);
  rv_buf_unref(own);
  return code;
}

/* The model's bytes behind key and range, with these rows in place of its own. Returns the number of parts. */
static size_t put_parts(const rv_chunk_form *form, const uint8_t *rows, rv_bytes *parts)
{
  const rv_chunk *model = form->model;
  const uint8_t *wire = NULL;
  size_t size = 0, n = 0;
  rv_chunk_wire(model, &wire, &size);
  const uint8_t *at = wire + (size - form->fixed_bytes), *end = wire + size;
  for (uint32_t i = 0; i < model->num_columns; i++) {
    const size_t bytes = run_bytes(model, i);
    if (bytes == 0) continue;
    parts[n++] = (rv_bytes){at, (size_t)(model->lanes[i].base - at)};
    parts[n++] = (rv_bytes){rows, bytes};
    rows += bytes;
    at = model->lanes[i].base + bytes;
  }
  parts[n++] = (rv_bytes){at, (size_t)(end - at)};
  return n;
}

rv_code rv_chunk_form_take(const rv_chunk_form *form, rv_span *bytes, rv_chunk_own *out, rv_error *err)
{
  rv_span rest;
  if (!rv_chunk_head_read(*bytes, &out->meta, &rest) || rest.size < form->row_bytes)
    return rv_fail(err, RV_INVALID_ARGUMENT, "key, range and %zu bytes of rows of a chunk are not there", form->row_bytes);
  out->head = (rv_span){bytes->data, bytes->size - rest.size};
  out->rows = rest.data;
  *bytes = (rv_span){rest.data + form->row_bytes, rest.size - form->row_bytes};
  return RV_OK;
}

rv_code rv_chunk_form_make(const rv_chunk_form *form, const rv_chunk_own *own, bool apart, rv_chunk **out, rv_error *err)
{
  rv_bytes parts[2 + 2 * RV_CHUNK_FORM_TENSORS];
  parts[0] = (rv_bytes){own->head.data, own->head.size};
  const size_t num_parts = 1 + put_parts(form, own->rows, parts + 1);
  const size_t size = own->head.size + form->fixed_bytes;
  if (apart && size >= RV_COLD_LEAST) return join_apart(parts, num_parts, size, out, err);
  return rv_chunk_new_alike(form->model, &own->meta, parts, num_parts, out, err);
}

bool rv_chunk_form_join(const rv_chunk_form *form, rv_joined *joined, const rv_chunk_own *own, rv_chunk_place *out)
{
  if (!form->joins) return false;
  if (own == NULL) return join_whole(joined, form->model, out);
  const uint8_t *columns[RV_CHUNK_FORM_TENSORS], *rows = own->rows;
  for (uint32_t i = 0; i < form->model->num_columns; i++) {
    columns[i] = rows;
    rows += run_bytes(form->model, i);
  }
  return rv_joined_put(joined, form->model, &own->meta, columns, out);
}
