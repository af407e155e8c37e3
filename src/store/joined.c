#include "store/joined.h"

#include "store/chunk_parts.h"
#include "store/memory.h"
#include "store/table_parts.h"

enum {
  MOST_COLUMNS = 64,
  LEAST_ROWS = 8,   /* of a segment, where its table may have as many */
  LEAST_CHUNKS = 4, /* of a run: a segment of fewer takes more than they do by themselves */
  FEW_RUNS = 4,     /* that may have segments of full size each where memory is short */
  TABLE_PART = 8    /* of a table's items: so many rows the streams' open segments of one kind have together */
};

void rv_joined_init(rv_joined *joined, rv_memory *memory, uint64_t seed)
{
  *joined = (rv_joined){.memory = memory};
  rv_random_init(&joined->random, seed);
}

static void free_run(rv_joined_run *run)
{
  rv_chunk_unref(run->kind);
  rv_chunk_unref(run->segment);
  *run = (rv_joined_run){.kind = NULL};
}

void rv_joined_fini(rv_joined *joined)
{
  for (size_t i = 0; i < RV_JOINED_RUNS; i++) free_run(&joined->run[i]);
}

size_t rv_joined_bytes(const rv_joined *joined)
{
  size_t bytes = 0;
  for (size_t i = 0; i < RV_JOINED_RUNS; i++) {
    const rv_joined_run *run = &joined->run[i];
    if (run->kind != NULL) bytes += rv_chunk_memory(run->kind);
    if (run->segment != NULL && *rv_segment_kept(run->segment) == 0) bytes += rv_chunk_memory(run->segment);
  }
  return bytes;
}

static size_t row_bytes_of(const rv_chunk *chunk)
{
  size_t bytes = 0;
  for (uint32_t i = 0; i < chunk->num_columns; i++) bytes += chunk->lanes[i].row_bytes; /* each is in memory */
  return bytes;
}

bool rv_joined_takes(const rv_chunk *like)
{
  if (like->is_segment || like->has_strings || like->num_columns > MOST_COLUMNS) return false;
  if (rv_chunk_memory(like) > RV_JOINED_BYTES) return false; /* a run keeps it, whatever it has besides its rows */
  const int64_t rows = rv_chunk_num_rows(like, 0);
  const size_t most = like->decodes ? RV_JOINED_DECODED_BYTES : RV_JOINED_CHUNK_BYTES;
  const size_t row_bytes = row_bytes_of(like);
  return rows > 0 && row_bytes <= RV_JOINED_ROW_BYTES && row_bytes <= most / (size_t)rows;
}

/* ---- which run ---- */

/* Each row is of a step of its own, in order. */
static bool has_its_steps(const rv_chunk_meta *meta, int64_t rows)
{
  return meta->first_step >= 0 && (int64_t)meta->last_step - meta->first_step == rows - 1 && (!meta->sparse || rows == 1);
}

/* How a chunk goes on where a run is: not at all, as the run has that step, or other columns; with another episode; where steps are left out; where
 * none is. */
typedef enum fit { FITS_NOT, BEGINS_ANEW, LEAVES_OUT, GOES_ON } fit;

static fit fit_of(const rv_joined_run *run, const rv_chunk *like, const rv_chunk_meta *meta)
{
  if (run->kind == NULL || !rv_chunk_same_columns(run->kind, like)) return FITS_NOT;
  if (run->episode != meta->episode_id) return BEGINS_ANEW;
  if (meta->first_step == (int64_t)run->last_step + 1 || meta->episode_id == RV_NO_EPISODE) return GOES_ON;
  return meta->first_step > run->last_step ? LEAVES_OUT : FITS_NOT;
}

/* Free, or else used longest ago. */
static rv_joined_run *take_run(rv_joined *joined, rv_chunk *like)
{
  rv_joined_run *oldest = &joined->run[0];
  for (size_t i = 0; i < RV_JOINED_RUNS && oldest->kind != NULL; i++)
    if (joined->run[i].kind == NULL || joined->run[i].used < oldest->used) oldest = &joined->run[i];
  free_run(oldest);
  oldest->kind = rv_chunk_ref(like);
  rv_chunk_count_new(like, joined->memory); /* it may have no other use */
  return oldest;
}

/* Columns of one dtype and shape are told apart by the steps that they have. */
static rv_joined_run *find_run(rv_joined *joined, rv_chunk *like, const rv_chunk_meta *meta)
{
  rv_joined_run *found = NULL;
  fit best = FITS_NOT;
  const uint32_t expected = joined->run[joined->next].kind == NULL ? 0 : joined->next;
  for (uint32_t i = 0; i < RV_JOINED_RUNS && best < GOES_ON; i++) {
    rv_joined_run *run = &joined->run[(expected + i) % RV_JOINED_RUNS];
    const fit this = fit_of(run, like, meta);
    if (this <= best) continue;
    best = this;
    found = run;
  }
  if (found == NULL) found = take_run(joined, like);
  found->used = ++joined->chunks;
  joined->next = (uint32_t)(found - joined->run + 1) % RV_JOINED_RUNS;
  return found;
}

/* The chunk is the run's next, or the first of another. */
static void note_chunk(rv_joined_run *run, const rv_chunk_meta *meta, int64_t rows)
{
  if (run->episode != meta->episode_id && run->seen > 0) {
    run->before = run->seen;
    run->seen = 0;
  }
  run->seen += rows;
  run->episode = meta->episode_id;
  run->last_step = meta->last_step;
}

/* Do the chunk's rows come behind the segment's? */
static bool has_room(rv_joined_run *run, const rv_chunk_meta *meta, int64_t rows)
{
  if (run->segment == NULL || run->seen <= rows || rv_segment_capacity(run->segment) - run->rows < rows) return false;
  const rv_chunk_meta *have = &run->segment->meta;
  if (have->episode_id != meta->episode_id) return false;
  if (meta->first_step == (int64_t)have->last_step + 1) return true;
  run->gaps = true;
  return run->segment->steps != NULL && (meta->first_step > have->last_step || meta->episode_id == RV_NO_EPISODE);
}

/* ---- segments ---- */

static size_t runs_in_use(const rv_joined *joined)
{
  size_t n = 0;
  for (size_t i = 0; i < RV_JOINED_RUNS; i++) n += joined->run[i].kind != NULL;
  return n;
}

/* How many rows the streams' segments may have each, so that all together they keep little from being used, and a stream that keeps one of each run
 * keeps what it may. An item takes its segments along, of which it may need several, into whichever table it is for. */
static size_t most_rows(const rv_joined *joined, size_t row_bytes)
{
  const size_t streams = joined->streams > 0 ? joined->streams : 1;
  rv_turn turn;
  rv_turn_begin(&turn, joined->table);
  size_t rows = (size_t)joined->table->config.max_size / TABLE_PART / streams;
  rv_turn_end_look(&turn);
  const size_t runs = runs_in_use(joined);
  size_t bytes = rv_memory_most_at_once(joined->memory) / streams;
  if (runs > FEW_RUNS) bytes = bytes * FEW_RUNS / runs;
  if (bytes > RV_JOINED_BYTES) bytes = RV_JOINED_BYTES;
  const size_t within = bytes / (row_bytes > 0 ? row_bytes : 1);
  return rows < within ? rows : within;
}

/* Those that a pack has are believed to be of the run where nothing speaks against it: it has some of them, and there was none before it. */
static bool is_believed(const rv_joined *joined, const rv_joined_run *run, int64_t rows)
{
  return joined->coming >= LEAST_CHUNKS && run->before == 0 && run->seen > rows;
}

/* Will it have more than a few chunks? */
static bool is_worth_it(const rv_joined *joined, const rv_joined_run *run, int64_t rows)
{
  return run->before >= LEAST_CHUNKS * rows || run->seen > LEAST_CHUNKS * rows || is_believed(joined, run, rows);
}

/* As many as are still to come where the run is as long as the one before it, or else becomes twice as long as it is; what a pack has is believed up to
 * four times that. */
static size_t rows_wanted(const rv_joined *joined, const rv_joined_run *run, int64_t rows)
{
  const int64_t had = run->seen - rows, guess = run->before > had ? run->before - had : had;
  const size_t wanted = guess > LEAST_ROWS ? (size_t)guess : LEAST_ROWS, known = (joined->coming + 1) * (size_t)rows;
  if (!is_believed(joined, run, rows) || known <= wanted) return wanted;
  return known < 4 * wanted ? known : 4 * wanted;
}

/* NULL: it is not worth one, there is no room for two such chunks, or no memory. */
static rv_chunk *new_segment(rv_joined *joined, const rv_joined_run *run, const rv_chunk *like, const rv_chunk_meta *meta)
{
  const int64_t rows = rv_chunk_num_rows(like, 0);
  if (!is_worth_it(joined, run, rows)) return NULL;
  const size_t two = 2 * (size_t)rows, most = most_rows(joined, row_bytes_of(like));
  size_t capacity = rows_wanted(joined, run, rows);
  if (capacity < two) capacity = two;
  if (capacity > most) capacity = most;
  if (capacity < two) return NULL;
  rv_spec specs[MOST_COLUMNS];
  for (uint32_t i = 0; i < like->num_columns; i++) {
    const rv_chunk_column *column = &like->columns[i];
    specs[i] = (rv_spec){.name = "", .dtype = column->dtype, .rank = (int32_t)column->rank, .shape = column->shape};
  }
  rv_chunk_meta own = *meta;
  own.key = rv_random_next(&joined->random);
  own.sparse = false;
  if (own.episode_id == RV_NO_EPISODE) own.first_step = 0; /* its rows' steps come in any order */
  rv_chunk *segment;
  const rv_segment_source source = {.by_rows = rows == 1};
  if (rv_segment_new_from(specs, like->num_columns, capacity, &own, &source, &segment, NULL) != RV_OK) return NULL;
  if ((run->gaps || own.episode_id == RV_NO_EPISODE) && rv_segment_keep_steps(segment, NULL) != RV_OK) {
    rv_chunk_unref(segment);
    return NULL;
  }
  rv_segment_set_joined(segment);
  rv_chunk_count_new(segment, joined->memory);
  return segment;
}

static bool open_anew(rv_joined *joined, rv_joined_run *run, const rv_chunk *like, const rv_chunk_meta *meta)
{
  rv_chunk *segment = new_segment(joined, run, like, meta);
  const bool is_over = run->segment != NULL && run->segment->meta.episode_id != meta->episode_id;
  if (segment == NULL && !is_over) return false;
  rv_chunk_unref(run->segment);
  run->segment = segment;
  run->rows = 0;
  return segment != NULL;
}

/* ---- putting ---- */

static void put_steps(rv_joined_run *run, const rv_chunk_meta *meta, int64_t rows)
{
  rv_chunk *segment = run->segment;
  const int32_t last = segment->meta.last_step;
  const bool goes_on = run->rows == 0 || meta->first_step == (int64_t)last + 1;
  if (segment->steps != NULL)
    for (int64_t i = 0; i < rows; i++) segment->steps[run->rows + i] = meta->first_step + (int32_t)i;
  rv_chunk_set_last_step(segment, meta->last_step > last ? meta->last_step : last, segment->meta.sparse || !goes_on);
}

bool rv_joined_put(rv_joined *joined, rv_chunk *like, const rv_chunk_meta *meta, const uint8_t *const *columns,
                   rv_chunk_place *out)
{
  const int64_t rows = rv_chunk_num_rows(like, 0);
  if (joined->table == NULL || !has_its_steps(meta, rows)) return false;
  rv_joined_run *run = find_run(joined, like, meta);
  note_chunk(run, meta, rows);
  if (!has_room(run, meta, rows) && !open_anew(joined, run, like, meta)) return false;
  rv_chunk *segment = run->segment;
  for (uint32_t i = 0; i < like->num_columns; i++)
    (void)rv_segment_fill(segment, i, run->rows, columns[i], (size_t)rows, NULL); /* numbers need no memory */
  put_steps(run, meta, rows);
  *out = (rv_chunk_place){.key = meta->key, .chunk = rv_chunk_ref(segment), .first = run->rows, .rows = rows, .is_joined = true};
  run->rows += rows;
  for (uint32_t i = 0; i < like->num_columns; i++) rv_segment_publish(segment, i, run->rows);
  return true;
}

/* ---- keeping ---- */

bool rv_joined_keep(rv_chunk *segment)
{
  return (*rv_segment_kept(segment))++ == 0;
}

bool rv_joined_let_go(rv_chunk *segment)
{
  return --*rv_segment_kept(segment) == 0;
}
