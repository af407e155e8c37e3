/* Kinds of rows that are inserted without a trajectory, and the segments they go into. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/chunk_parts.h"
#include "store/forms.h"
#include "store/signature.h"

enum {
  FIRST_BYTES = 1 << 14,
  MOST_BYTES = RV_MOST_SEGMENT_BYTES,
  MOST_ROWS = 1 << 17,
  LINE = 64,
  SPARE_BYTES = 2 * RV_HUGE_PAGE,
  SEGMENT_BOOKS = 1024
};

bool rv_form_is_of(const rv_form *form, const rv_rows *rows)
{
  if (form->num_columns != rows->num_columns) return false;
  const rv_tensor *column = rows->columns, *end = column + form->num_columns;
  const rv_spec *spec = form->specs;
  const size_t *bytes = form->column_bytes;
  const int64_t n = (int64_t)rows->n;
  for (; column < end; column++, spec++, bytes++) {
    const int64_t *shape = column->shape, *row = spec->shape;
    uint32_t rank = (uint32_t)spec->rank;
    if (column->dtype != spec->dtype || column->rank != rank + 1 || shape[0] != n || (column->data == NULL && *bytes > 0))
      return false;
    for (uint32_t d = 0; d < rank; d++)
      if (shape[d + 1] != row[d]) return false;
  }
  return true;
}

static rv_code check_columns(const rv_table *table, const rv_rows *rows, size_t *num_sizes, rv_error *err)
{
  if (rows->num_columns == 0 || rows->num_columns > UINT16_MAX + 1)
    return rv_fail(err, RV_INVALID_ARGUMENT, "table \"%s\": rows of %zu columns; 1 to 65,536 are possible", table->name,
                   rows->num_columns);
  *num_sizes = 0;
  for (size_t i = 0; i < rows->num_columns; i++) {
    const rv_tensor *column = &rows->columns[i];
    size_t elements, bytes;
    if (column->rank == 0 || column->rank > RV_MAX_RANK + 1)
      return rv_fail(err, RV_INVALID_ARGUMENT,
                     "table \"%s\": column %zu has %u dimensions; rows are given as [n, ...], 1 to %d dimensions", table->name, i,
                     (unsigned)column->rank, RV_MAX_RANK + 1);
    rv_code code = rv_shape_elements(column->dtype, column->rank, column->shape, &elements, &bytes, err);
    if (code == RV_OK && (uint64_t)column->shape[0] != rows->n)
      code = rv_fail(err, RV_INVALID_ARGUMENT, "its first dimension is %lld, but %zu rows are inserted",
                     (long long)column->shape[0], rows->n);
    if (code == RV_OK && bytes > 0 && column->data == NULL) code = rv_fail(err, RV_INVALID_ARGUMENT, "it has no data");
    if (code != RV_OK) {
      rv_error_prefix(err, "table \"%s\": column %zu", table->name, i);
      return code;
    }
    *num_sizes += column->rank - 1;
  }
  return RV_OK;
}

static void describe(rv_form *form, const rv_rows *rows)
{
  int64_t *sizes = (int64_t *)(void *)(form->column_bytes + form->num_columns);
  for (uint32_t i = 0; i < form->num_columns; i++) {
    const rv_tensor *column = &rows->columns[i];
    form->specs[i] = (rv_spec){.name = "", .dtype = column->dtype, .rank = (int32_t)column->rank - 1, .shape = sizes};
    if (column->rank > 1) memcpy(sizes, column->shape + 1, (column->rank - 1) * sizeof *sizes);
    sizes += column->rank - 1;
  }
}

rv_code rv_form_new(rv_table *table, const rv_rows *rows, rv_form **out, rv_error *err)
{
  size_t num_sizes = 0;
  rv_code code = check_columns(table, rows, &num_sizes, err);
  if (code != RV_OK) return code;
  size_t bytes = sizeof(rv_form) + rows->num_columns * (sizeof(rv_spec) + sizeof(size_t)) + num_sizes * sizeof(int64_t);
  rv_form *form = malloc(bytes);
  if (form == NULL) return rv_fail_memory(err, bytes);
  *form = (rv_form){.refs = 1, .num_columns = (uint32_t)rows->num_columns, .next_bytes = FIRST_BYTES};
  form->specs = (rv_spec *)(void *)(form + 1);
  form->column_bytes = (size_t *)(void *)(form->specs + form->num_columns);
  describe(form, rows);
  code = rv_template_of_rows(table->layouts, form->specs, form->num_columns, &form->template, err);
  if (code == RV_OK) {
    code = rv_signature_fits(table->signature, table->name, form->template->columns, form->num_columns, err);
    if (code != RV_OK) rv_trajectory_unref(form->template);
  }
  if (code != RV_OK) {
    free(form);
    return code;
  }
  for (uint32_t i = 0; i < form->num_columns; i++) {
    form->column_bytes[i] = form->template->columns[i].spec->row_bytes;
    form->row_bytes += form->column_bytes[i];
    if (form->specs[i].dtype == RV_STRING && form->column_bytes[i] > 0) form->has_strings = true;
  }
  if (rv_table_is_bounded(table)) {
    code = rv_table_check_bytes(table, form->row_bytes + form->num_columns * LINE + SEGMENT_BOOKS, "a row", err);
    if (code != RV_OK) {
      rv_trajectory_unref(form->template);
      free(form);
      return code;
    }
  }
  *out = form;
  return RV_OK;
}

/* The segment is full, or nobody will write to it any more. */
static void close_segment(rv_table *table, rv_hold *hold, rv_garbage *garbage)
{
  if (hold != NULL) rv_books_leave(&table->books, hold, garbage);
}

void rv_form_unref(rv_table *table, rv_form *form, rv_garbage *garbage)
{
  if (--form->refs > 0) return;
  if (form->epoch == table->books.epoch) close_segment(table, form->hold, garbage);
  if (form->large_epoch == table->books.epoch) close_segment(table, form->large, garbage);
  rv_trajectory_unref(form->template);
  free(form);
}

size_t rv_form_bytes_of_row(const rv_form *form, const rv_rows *rows, size_t row)
{
  size_t bytes = form->row_bytes;
  if (!form->has_strings) return bytes;
  for (uint32_t c = 0; c < form->num_columns; c++) {
    if (form->specs[c].dtype != RV_STRING) continue;
    size_t n = form->column_bytes[c] / sizeof(rv_bytes);
    const rv_bytes *strings = (const rv_bytes *)rows->columns[c].data + row * n;
    for (size_t i = 0; i < n; i++) bytes += strings[i].size;
  }
  return bytes;
}

size_t rv_form_rows_within(const rv_form *form, const rv_rows *rows, size_t first, size_t most_rows, size_t most_bytes,
                           size_t *bytes)
{
  size_t n = 0;
  for (*bytes = 0; n < most_rows; n++) {
    size_t row = rv_form_bytes_of_row(form, rows, first + n);
    if (n > 0 && (*bytes > most_bytes || row > most_bytes - *bytes)) break;
    *bytes += row;
  }
  return n;
}

rv_form *rv_forms_find(rv_table *table, const rv_rows *rows)
{
  for (size_t i = 0; i < RV_MAX_FORMS && table->forms[i] != NULL; i++) {
    rv_form *form = table->forms[i];
    if (!rv_form_is_of(form, rows)) continue;
    for (; i > 0; i--) table->forms[i] = table->forms[i - 1];
    table->forms[0] = form;
    form->refs++;
    return form;
  }
  return NULL;
}

void rv_forms_add(rv_turn *turn, rv_form *form)
{
  rv_table *table = turn->table;
  rv_form *oldest = table->forms[RV_MAX_FORMS - 1];
  for (size_t i = RV_MAX_FORMS - 1; i > 0; i--) table->forms[i] = table->forms[i - 1];
  table->forms[0] = form;
  form->refs++;
  if (oldest != NULL)
    rv_form_unref(table, oldest, &turn->garbage);
  else
    rv_table_add_streams(turn, 1);
}

void rv_forms_free(rv_table *table)
{
  rv_garbage garbage = {.holds = NULL};
  for (size_t i = 0; i < RV_MAX_FORMS; i++)
    if (table->forms[i] != NULL) rv_form_unref(table, table->forms[i], &garbage);
  rv_garbage_free(&garbage);
}

/* ---- segments ---- */

/* The largest of the form's segments. Large enough that books cost little, small enough that the newest and the oldest segment of a
 * full table weigh little against the others. */
static size_t most_bytes(const rv_table *table, const rv_form *form)
{
  size_t row = form->row_bytes == 0 ? 1 : form->row_bytes;
  size_t most = (size_t)table->config.max_size > SIZE_MAX / row ? MOST_BYTES : (size_t)table->config.max_size * row / 16;
  if (most > MOST_BYTES) most = MOST_BYTES;
  if (most < FIRST_BYTES) most = FIRST_BYTES;
  size_t share = rv_table_share(table);
  if (form->has_strings) share /= 2; /* the other half is for what the strings are */
  return most < share ? most : share;
}

size_t rv_form_comes(const rv_table *table, const rv_form *form)
{
  if (form->epoch == table->books.epoch && form->hold != NULL && form->fill < form->capacity) return 0;
  size_t most = most_bytes(table, form), bytes = form->next_bytes < most ? form->next_bytes : most;
  size_t least = form->row_bytes + form->num_columns * LINE;
  return (bytes > least ? bytes : least) + SEGMENT_BOOKS;
}

/* How many rows a segment of so many bytes has. */
static size_t rows_of(const rv_table *table, const rv_form *form, size_t bytes)
{
  size_t row = form->row_bytes == 0 ? 1 : form->row_bytes;
  size_t margin = (size_t)form->num_columns * LINE; /* columns begin on cache lines of their own */
  size_t fits = (bytes > margin ? bytes - margin : 0) / row;
  if (fits > MOST_ROWS) fits = MOST_ROWS;
  if (fits > (size_t)table->config.max_size + 1) fits = (size_t)table->config.max_size + 1;
  return fits == 0 ? 1 : fits;
}

size_t rv_form_most_rows(const rv_table *table, const rv_form *form)
{
  return rows_of(table, form, most_bytes(table, form));
}

size_t rv_form_next_rows(const rv_table *table, const rv_form *form)
{
  size_t most = most_bytes(table, form);
  return rows_of(table, form, form->next_bytes < most ? form->next_bytes : most);
}

/* How many rows the form's next segment has, which is made now. */
static size_t segment_rows(const rv_table *table, rv_form *form)
{
  size_t rows = rv_form_next_rows(table, form);
  if (form->next_bytes < most_bytes(table, form)) form->next_bytes *= 2;
  return rows;
}

static bool fits_form(const rv_chunk *chunk, const rv_form *form)
{
  if (chunk->num_columns != form->num_columns) return false;
  for (uint32_t i = 0; i < form->num_columns; i++) {
    const rv_chunk_column *column = &chunk->columns[i];
    const rv_spec *spec = &form->specs[i];
    if (column->dtype != spec->dtype || column->rank != (uint32_t)spec->rank) return false;
    if (column->rank > 0 && memcmp(column->shape, spec->shape, column->rank * sizeof *spec->shape) != 0) return false;
  }
  return true;
}

rv_chunk_meta rv_rows_meta(rv_table *table, int64_t rows)
{
  return (rv_chunk_meta){.key = rv_random_next(&table->unseeded),
                         .episode_id = RV_NO_EPISODE,
                         .last_step = rows == 0 ? 0 : (int32_t)rows - 1,
                         .sparse = true};
}

/* ---- segments that were used before ---- */

static bool has_enough(const rv_chunk *segment, size_t rows)
{
  return (size_t)rv_segment_capacity(segment) >= (rows + 1) / 2;
}

/* One of the form's first ones, which are small: it would keep a large one from being kept. */
static bool is_too_small(const rv_table *table, const rv_chunk *chunk)
{
  for (size_t i = 0; i < RV_MAX_FORMS && table->forms[i] != NULL && chunk->is_segment; i++)
    if (fits_form(chunk, table->forms[i])) return !has_enough(chunk, rv_form_next_rows(table, table->forms[i]));
  return false;
}

static bool is_of_use(const rv_table *table, const rv_chunk *spare, const rv_form *form)
{
  return has_enough(spare, rv_form_next_rows(table, form)) && fits_form(spare, form);
}

static bool is_of_use_for_any(const rv_table *table, const rv_chunk *spare)
{
  for (size_t i = 0; i < RV_MAX_FORMS && table->forms[i] != NULL; i++)
    if (is_of_use(table, spare, table->forms[i])) return true;
  return false;
}

static size_t count_spares(const rv_table *table)
{
  size_t n = 0;
  while (n < RV_MAX_SPARES && table->spares[n] != NULL) n++;
  return n;
}

void rv_spares_keep(rv_table *table, rv_garbage *garbage)
{
  if (rv_memory_is_awaited(table->memory)) return;
  size_t num_spares = count_spares(table), bytes = rv_spares_memory(table), most = table->books.chunk_memory / 32,
         once = rv_table_most_at_once(table);
  for (rv_hold *hold = garbage->holds; hold != NULL && num_spares < RV_MAX_SPARES; hold = hold->next_garbage) {
    rv_chunk *chunk = hold->chunk;
    if (chunk == NULL || !hold->own || chunk->has_strings || rv_chunk_is_spilled(chunk) || rv_chunk_refs(chunk) != 1) continue;
    size_t size = rv_chunk_memory(chunk);
    if (size / 2 > once || (bytes + size > most && (num_spares > 0 || size > SPARE_BYTES)) || is_too_small(table, chunk))
      continue;
    bytes += size;
    table->spares[num_spares++] = chunk;
    hold->chunk = NULL;
  }
}

bool rv_spares_put(rv_table *table, rv_chunk *owned_segment)
{
  size_t n = count_spares(table);
  if (n == RV_MAX_SPARES || table->closed || rv_table_is_large(table, owned_segment)) return false;
  rv_chunk_count_new(owned_segment, table->memory);
  table->spares[n] = owned_segment;
  return true;
}

size_t rv_spares_memory(const rv_table *table)
{
  size_t bytes = 0;
  for (size_t i = 0; i < RV_MAX_SPARES && table->spares[i] != NULL; i++) bytes += rv_chunk_memory(table->spares[i]);
  return bytes;
}

static rv_chunk *take_spare(rv_table *table, size_t i)
{
  rv_chunk *spare = table->spares[i];
  for (; i + 1 < RV_MAX_SPARES; i++) table->spares[i] = table->spares[i + 1];
  table->spares[RV_MAX_SPARES - 1] = NULL;
  return spare;
}

static rv_chunk *take_large_spare(rv_table *table)
{
  for (size_t i = 0; i < RV_MAX_SPARES && table->spares[i] != NULL; i++)
    if (rv_table_is_large(table, table->spares[i])) return take_spare(table, i);
  return NULL;
}

/* As many as there can be: others die meanwhile. */
void rv_spares_leave_large(rv_turn *turn)
{
  for (int left = 0; left < RV_MAX_SPARES; left++) {
    if (turn->garbage.chunk != NULL) rv_turn_pause(turn);
    rv_chunk *spare = take_large_spare(turn->table);
    if (spare == NULL) return;
    rv_garbage_put_chunk(&turn->garbage, spare);
    rv_turn_pause(turn);
  }
}

void rv_spares_free(rv_table *table)
{
  for (size_t i = 0; i < RV_MAX_SPARES; i++) {
    rv_chunk_unref(table->spares[i]);
    table->spares[i] = NULL;
  }
}

/* One in a hold of the lock, for it is freed after it. */
static void drop_spare(rv_table *table, rv_garbage *garbage, size_t i)
{
  if (garbage->chunk == NULL) rv_garbage_put_chunk(garbage, take_spare(table, i));
}

rv_chunk *rv_form_take_spare(rv_table *table, const rv_form *form, rv_garbage *garbage, size_t capacity)
{
  size_t share = rv_table_share(table);
  for (size_t i = 0; i < RV_MAX_SPARES && table->spares[i] != NULL; i++) {
    rv_chunk *spare = table->spares[i];
    size_t has = (size_t)rv_segment_capacity(spare);
    if (!has_enough(spare, capacity) || (has > capacity && rv_chunk_memory(spare) > share) || !fits_form(spare, form)) continue;
    rv_chunk_meta meta = rv_rows_meta(table, rv_segment_capacity(spare));
    if (rv_segment_reuse(spare, &meta)) return take_spare(table, i);
    drop_spare(table, garbage, i);
    return NULL;
  }
  for (size_t i = 0; i < RV_MAX_SPARES && table->spares[i] != NULL; i++) { /* what is of no use makes room */
    if (is_of_use_for_any(table, table->spares[i])) continue;
    drop_spare(table, garbage, i);
    break;
  }
  return NULL;
}

rv_chunk *rv_form_take_segment(rv_table *table, rv_form *form, rv_garbage *garbage, size_t *capacity)
{
  *capacity = segment_rows(table, form);
  return rv_form_take_spare(table, form, garbage, *capacity);
}

/* Will there be another large one after the one that was opened just now, and none that dies before? */
static bool wants_ahead(const rv_table *table, const rv_form *form)
{
  const rv_slab *slab = &table->books.slab;
  if (form->next_bytes < RV_HUGE_PAGE || most_bytes(table, form) < RV_HUGE_PAGE || form->has_strings) return false;
  for (size_t i = 0; i < RV_MAX_SPARES && table->spares[i] != NULL; i++)
    if (is_of_use(table, table->spares[i], form)) return false;
  if ((int64_t)slab->count < table->config.max_size) return true;
  const rv_item *oldest = rv_slab_at(slab, slab->oldest);
  return oldest->template_number < RV_MAX_TEMPLATES && is_too_small(table, ((const rv_hold *)oldest->data)->chunk);
}

static rv_code new_segment(rv_table *table, rv_form *form, rv_garbage *garbage, rv_chunk **out, rv_error *err)
{
  size_t capacity;
  *out = rv_form_take_segment(table, form, garbage, &capacity);
  if (*out != NULL) return RV_OK;
  rv_chunk_meta meta = rv_rows_meta(table, (int64_t)capacity);
  return rv_segment_new(form->specs, form->num_columns, capacity, &meta, out, err);
}

rv_code rv_form_open(rv_table *table, rv_form *form, rv_garbage *garbage, rv_error *err)
{
  if (form->epoch == table->books.epoch && form->hold != NULL) {
    if (form->fill < form->capacity) return RV_OK;
    close_segment(table, form->hold, garbage);
  }
  form->hold = NULL;
  rv_chunk *segment;
  rv_code code = new_segment(table, form, garbage, &segment, err);
  if (code != RV_OK) return code;
  code = rv_books_hold(&table->books, segment, &form->hold, err);
  form->capacity = rv_segment_capacity(segment);
  rv_chunk_unref(segment);
  if (code != RV_OK) {
    form->hold = NULL;
    return code;
  }
  rv_books_open(&table->books, form->hold);
  form->hold->own = true;
  form->epoch = table->books.epoch;
  form->fill = 0;
  if (wants_ahead(table, form)) table->ahead_for = form;
  return RV_OK;
}

void rv_form_leave(rv_table *table, rv_form *form, rv_garbage *garbage)
{
  form->next_bytes = (size_t)form->fill * form->row_bytes + form->num_columns * LINE; /* about as many fit into the next */
  close_segment(table, form->hold, garbage);
  form->hold = NULL;
}

rv_code rv_form_use_template(rv_table *table, rv_form *form, uint32_t items, rv_error *err)
{
  rv_books *books = &table->books;
  if (books->templates.entry[form->number].trajectory != form->template) {
    rv_code code = rv_books_template(books, form->template, 0, true, &form->number, err);
    if (code == RV_OUT_OF_RANGE)
      return rv_fail(
          err, RV_RESOURCE_EXHAUSTED,
          "the items present have %d different shapes of trajectory, and rows need one more; put them into another table",
          RV_MAX_TEMPLATES);
    if (code != RV_OK) return code;
    /* an equal template may have been there already */
    if (books->templates.entry[form->number].trajectory != form->template) {
      rv_trajectory_unref(form->template);
      form->template = rv_trajectory_ref(books->templates.entry[form->number].trajectory);
    }
  }
  rv_template *template = &books->templates.entry[form->number];
  if (template->items == 0) return rv_books_use_template(books, form->number, items, err);
  template->items += items;
  return RV_OK;
}
