/* More data than memory: what was spilled reads as before, the file's room is used again, and a full disk makes inserts wait. */
#include "reverie/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "persist/spill_file.h"
#include "store/audit_testing.h"
#include "store/chunk_parts.h"
#include "store/cold.h"
#include "store/memory.h"

enum { MIB = 1 << 20, LIMIT = 4 * MIB, ROWS = 16, WIDTH = 1024, PAYLOAD = ROWS * WIDTH };

static char small_disk[] = "/tmp/reverie-spill-test-XXXXXX"; /* a tmpfs of 8 MiB, of this process alone */
static bool has_small_disk;

/* ---- a disk that loses what it took ---- */

static atomic_bool disk_loses;

#ifdef SYNC_FILE_RANGE_WRITE
int sync_file_range(int fd, off_t from, off_t size, unsigned flags)
{
  if (!atomic_load(&disk_loses)) return (int)syscall(SYS_sync_file_range, fd, from, size, flags);
  errno = EIO;
  return -1;
}
#else
int fsync(int fd)
{
  (void)fd;
  if (!atomic_load(&disk_loses)) return 0;
  errno = EIO;
  return -1;
}
#endif

/* ---- worlds ---- */

typedef struct world {
  rv_store *store;
  rv_table *table;
  rv_spill *spill;
} world;

static world world_of_tables(const rv_table_config *configs, size_t num_tables, const char *path, size_t max_bytes)
{
  rv_error err;
  world w = {.store = NULL};
  rv_store_config store = {.size = sizeof store, .tables = configs, .num_tables = num_tables, .memory_limit = LIMIT};
  must(rv_store_new(&store, &w.store, &err), &err);
  w.table = rv_store_table(w.store, 0);
  rv_spill_config spill = {.size = sizeof spill, .path = path, .max_bytes = max_bytes};
  must(rv_spill_new(&spill, w.store, &w.spill, &err), &err);
  return w;
}

static world world_of_table(const rv_table_config *config, const char *path, size_t max_bytes)
{
  return world_of_tables(config, 1, path, max_bytes);
}

static world world_of(int64_t max_size, const char *path, size_t max_bytes)
{
  rv_table_config config = rv_table_config_default("replay", max_size);
  return world_of_table(&config, path, max_bytes);
}

static void end_world(world *w)
{
  rv_spill_free(w->spill);
  rv_store_unref(w->store);
}

/* What the books count is counted again when nobody moves chunks any more. */
static void end_audited(world *w)
{
  rv_spill_free(w->spill);
  w->spill = NULL;
  audit_holds(w->table);
  end_world(w);
}

static rv_memory_info memory_of(const world *w)
{
  rv_memory_info info;
  rv_store_memory_info(w->store, &info);
  return info;
}

/* Row r of chunk `key` is filled with this byte. */
static uint8_t byte_of(uint64_t key, size_t row)
{
  return (uint8_t)(key * 31 + row * 7 + 1);
}

static rv_chunk *segment_chunk(uint64_t key)
{
  rv_error err;
  rv_chunk *chunk = NULL;
  const int64_t shape = WIDTH;
  rv_spec spec = {.name = "", .dtype = RV_UINT8, .rank = 1, .shape = &shape};
  rv_chunk_meta meta = {.key = key, .episode_id = key, .last_step = ROWS - 1};
  uint8_t bytes[WIDTH];
  rv_tensor cell = {.dtype = RV_UINT8, .rank = 1, .shape = &shape, .data = bytes};
  must(rv_segment_new(&spec, 1, ROWS, &meta, &chunk, &err), &err);
  for (size_t i = 0; i < ROWS; i++) {
    memset(bytes, byte_of(key, i), sizeof bytes);
    must(rv_segment_put(chunk, 0, (int64_t)i, &cell, &err), &err);
  }
  rv_segment_publish(chunk, 0, ROWS);
  return chunk;
}

/* As it comes over the wire, of one tensor, whose content the pieces are. */
static rv_chunk *chunk_of_pieces(uint64_t key, rv_dtype dtype, uint32_t rank, const int64_t *shape, rv_pieces *owned_pieces)
{
  rv_error err;
  rv_chunk *chunk = NULL;
  rv_buf *buf = rv_buf_new(owned_pieces->bytes);
  for (size_t i = 0; i < owned_pieces->count; buf->size += owned_pieces->piece[i++].size)
    memcpy(buf->data + buf->size, owned_pieces->piece[i].data, owned_pieces->piece[i].size);
  rv_encoded tensor = {.dtype = dtype, .rank = rank, .shape = shape, .content = buf->data, .content_size = buf->size};
  rv_chunk_meta meta = {.key = key, .episode_id = key, .last_step = ROWS - 1};
  must(rv_chunk_new_encoded(&meta, &tensor, 1, buf, buf->data, buf->size, &chunk, &err), &err);
  rv_pieces_fini(owned_pieces);
  rv_buf_unref(buf);
  return chunk;
}

/* Rows as they are, or compressed. */
static rv_chunk *wire_chunk(uint64_t key, bool compress)
{
  rv_error err;
  const int64_t shape[] = {ROWS, WIDTH};
  static uint8_t rows[PAYLOAD];
  for (size_t i = 0; i < ROWS; i++) memset(rows + i * WIDTH, byte_of(key, i), WIDTH);
  if (compress) /* not too well */
    for (size_t i = 0; i < PAYLOAD; i += 2) rows[i] = (uint8_t)(i * 2654435761U >> 13);
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  must(rv_encode(&pieces, RV_UINT8, 1, shape + 1, rows, WIDTH, ROWS, false, compress, &err), &err);
  return chunk_of_pieces(key, RV_UINT8, 2, shape, &pieces);
}

/* The same bytes, each row one string of them. */
static rv_chunk *string_chunk(uint64_t key)
{
  rv_error err;
  const int64_t rows = ROWS;
  static uint8_t bytes[PAYLOAD];
  rv_bytes strings[ROWS];
  for (size_t i = 0; i < ROWS; i++) {
    memset(bytes + i * WIDTH, byte_of(key, i), WIDTH);
    strings[i] = (rv_bytes){bytes + i * WIDTH, WIDTH};
  }
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  must(rv_encode(&pieces, RV_STRING, 0, NULL, strings, sizeof *strings, ROWS, false, false, &err), &err);
  return chunk_of_pieces(key, RV_STRING, 1, &rows, &pieces);
}

typedef struct offer {
  rv_insert insert;
  atomic_int completed;
} offer;

static void on_complete(rv_waiter *waiter)
{
  atomic_fetch_add(&((offer *)waiter->context)->completed, 1);
}

/* An item over all rows of the chunk. */
static rv_submitted offer_chunk(world *w, offer *o, uint64_t key, rv_chunk *owned_chunk)
{
  o->insert = (rv_insert){.key = key, .priority = 1, .trajectory = trajectory_of(w->store, owned_chunk, 0, ROWS)};
  o->insert.waiter = (rv_waiter){.complete = on_complete, .context = o, .deadline_ns = INT64_MAX};
  atomic_init(&o->completed, 0);
  rv_chunk_unref(owned_chunk);
  rv_submitted submitted = rv_table_insert(w->table, &o->insert);
  if (submitted == RV_SUBMIT_DONE) rv_trajectory_unref(o->insert.trajectory);
  return submitted;
}

/* Of a chunk of its own, whose key is the item's. */
static rv_submitted offer_item(world *w, offer *o, uint64_t key)
{
  return offer_chunk(w, o, key, key % 3 == 0 ? segment_chunk(key) : wire_chunk(key, key % 3 == 1));
}

static int64_t now_ns(void)
{
  rv_env env;
  rv_env_fill(&env, NULL);
  return rv_monotonic_ns(&env);
}

/* While it waits for the spill; `serves`: who waits is served meanwhile. */
static void wait_for(world *w, const offer *o, bool serves)
{
  const int64_t give_up = now_ns() + INT64_C(60000000000);
  while (atomic_load(&o->completed) == 0) {
    if (now_ns() > give_up)
      fail_msg("an insert waits, with %lld bytes in use and %lld spilled", (long long)memory_of(w).used_bytes,
               (long long)memory_of(w).spilled_bytes);
    if (serves) rv_memory_serve(rv_store_memory(w->store));
    sched_yield();
  }
}

static void insert(world *w, uint64_t key)
{
  offer o;
  if (offer_item(w, &o, key) == RV_SUBMIT_PENDING) {
    wait_for(w, &o, false);
    rv_trajectory_unref(o.insert.trajectory);
  }
  assert_int_equal(o.insert.waiter.code, RV_OK);
}

static void check_draw(const rv_draw *draw)
{
  uint8_t rows[PAYLOAD];
  rv_error err;
  must(rv_draw_copy_column(draw, 0, rows, &err), &err);
  size_t first = draw->key % 3 == 1 ? 1 : 0;
  for (size_t i = 0; i < ROWS; i++)
    for (size_t k = first; k < WIDTH; k += first + 1) assert_int_equal(rows[i * WIDTH + k], byte_of(draw->key, i));
}

static void sample_and_check(world *w, size_t n)
{
  rv_draw draws[16];
  while (n > 0) {
    size_t want = n < 16 ? n : 16;
    rv_sampling ask = {.want = want, .draws = draws};
    ask.waiter.deadline_ns = INT64_MAX;
    assert_int_equal(rv_table_sample(w->table, &ask), RV_SUBMIT_DONE);
    assert_int_equal(ask.waiter.code, RV_OK);
    for (size_t i = 0; i < ask.count; i++) check_draw(&draws[i]);
    rv_draws_release(draws, ask.count);
    n -= want;
  }
}

/* Rows of a byte each; `by_key`: that of the chunk and the row that the key names. */
static void sample_rows(world *w, size_t bytes, bool by_key)
{
  static uint8_t row[4096];
  rv_error err;
  rv_draw draws[256];
  rv_sampling ask = {.want = 256, .draws = draws};
  ask.waiter.deadline_ns = INT64_MAX;
  assert_true(bytes <= sizeof row);
  assert_int_equal(rv_table_sample(w->table, &ask), RV_SUBMIT_DONE);
  for (size_t i = 0; i < ask.count; i++) {
    must(rv_draw_copy_column(&draws[i], 0, row, &err), &err);
    if (by_key) assert_int_equal(row[0], byte_of(draws[i].key / ROWS, draws[i].key % ROWS));
    for (size_t k = 1; k < bytes; k++) assert_int_equal(row[k], row[0]);
  }
  rv_draws_release(draws, ask.count);
}

/* ---- promises ---- */

static void what_lies_in_the_file_is_sampled_as_it_came(void **state)
{
  (void)state;
  enum { N = 4 * LIMIT / PAYLOAD };
  world w = world_of(1000000, "/tmp", 0);
  for (uint64_t key = 1; key <= N; key++) {
    insert(&w, key);
    assert_true(memory_of(&w).used_bytes <= LIMIT);
    if (key % 50 == 0) sample_and_check(&w, 64);
  }
  rv_memory_info memory = memory_of(&w);
  assert_true(memory.spilled_bytes > LIMIT);
  sample_and_check(&w, 1000);
  rv_table_info info = info_of(w.table);
  assert_int_equal(info.current_size, N);
  rv_table_info_fini(&info);
  rv_draw held;
  rv_error err;
  must(rv_table_get(w.table, 1, &held, &err), &err);
  end_world(&w);
  check_draw(&held); /* the file stays for those who still read */
  rv_draw_release(&held);
}

/* Reads the item's strings, which lie in its chunk wherever that is; has it moved? */
static bool read_strings(world *w, uint64_t key)
{
  rv_draw draw;
  rv_error err;
  rv_bytes strings[ROWS];
  const uint8_t *wire;
  size_t size;
  must(rv_table_get(w->table, key, &draw, &err), &err);
  must(rv_draw_copy_column(&draw, 0, strings, &err), &err);
  assert_non_null(rv_chunk_wire(draw.chunk, &wire, &size));
  for (size_t i = 0; i < ROWS; i++) {
    const uint8_t *bytes = strings[i].data;
    assert_int_equal(strings[i].size, WIDTH);
    assert_true(bytes >= wire && bytes + WIDTH <= wire + size);
    for (size_t k = 0; k < WIDTH; k++) assert_int_equal(bytes[k], byte_of(key, i));
  }
  bool moved = rv_chunk_is_spilled(draw.chunk);
  rv_draw_release(&draw);
  return moved;
}

static void strings_that_were_read_before_they_moved_read_as_before(void **state)
{
  (void)state;
  enum { FIRST = 1000000, N = 16 };
  world w = world_of(1000000, "/tmp", 0);
  for (uint64_t key = FIRST; key < FIRST + N; key++) {
    rv_chunk *chunk = string_chunk(key);
    offer o;
    rv_chunk_attach_cache(chunk, rv_store_decode_cache(w.store));
    assert_int_equal(offer_chunk(&w, &o, key, chunk), RV_SUBMIT_DONE);
    assert_int_equal(o.insert.waiter.code, RV_OK);
    assert_false(read_strings(&w, key)); /* decoded, and kept so */
  }
  for (uint64_t key = 1; key <= 2 * LIMIT / PAYLOAD; key++) insert(&w, key);
  for (uint64_t key = FIRST; key < FIRST + N; key++) assert_true(read_strings(&w, key)); /* the oldest: they went first */
  end_world(&w);
}

static void the_file_has_no_name(void **state)
{
  (void)state;
  char path[] = "/tmp/reverie-spill-names-XXXXXX";
  assert_non_null(mkdtemp(path));
  world w = world_of(1000000, path, 0);
  for (uint64_t key = 1; key <= 2 * LIMIT / PAYLOAD; key++) insert(&w, key);
  assert_true(memory_of(&w).spilled_bytes > 0);
  assert_int_equal(rmdir(path), 0); /* it is empty */
  sample_and_check(&w, 100);
  end_world(&w);
}

static void room_in_the_file_is_used_again(void **state)
{
  (void)state;
  enum { FITS = 3 * RV_SPILL_PIECE, RING = (LIMIT + FITS / 2) / PAYLOAD };
  world w = world_of(RING, "/tmp", FITS);
  for (uint64_t key = 1; key <= 8 * RING; key++) insert(&w, key);
  sample_and_check(&w, 200);
  rv_memory_info memory = memory_of(&w);
  assert_true(memory.spilled_bytes > 0 && memory.spilled_bytes <= FITS);
  end_world(&w);
}

/* Until one waits for a file that takes no more, since `why_not`. */
static uint64_t fill_until(world *w, offer *waiting, const char *why_not)
{
  int64_t give_up = now_ns() + INT64_C(60000000000);
  for (uint64_t key = 1;; key++) {
    if (offer_item(w, waiting, key) == RV_SUBMIT_DONE) {
      assert_int_equal(waiting->insert.waiter.code, RV_OK);
      continue;
    }
    char why[256] = "";
    while (atomic_load(&waiting->completed) == 0) {
      rv_waiter_explain(&waiting->insert.waiter, why, sizeof why);
      const char *since = strstr(why, "takes no more: ");
      if (since != NULL && strstr(since, why_not) != NULL) return key;
      if (now_ns() > give_up) fail_msg("%s", why);
      sched_yield();
    }
    rv_trajectory_unref(waiting->insert.trajectory); /* it only had to wait for the disk */
  }
}

static uint64_t fill(world *w, offer *waiting)
{
  return fill_until(w, waiting, "No space left on device");
}

static void a_full_file_makes_inserts_wait_and_loses_nothing(void **state)
{
  (void)state;
  for (int on_small_disk = 0; on_small_disk < 2; on_small_disk++) {
    if (on_small_disk && !has_small_disk) {
      print_message("no small disk: a tmpfs could not be mounted\n");
      continue;
    }
    world w = world_of(1000000, on_small_disk ? small_disk : "/tmp", on_small_disk ? 0 : 2 * RV_SPILL_PIECE);
    offer waiting;
    uint64_t last = fill(&w, &waiting);
    assert_true(last > (LIMIT + RV_SPILL_PIECE) / PAYLOAD);
    sample_and_check(&w, 200);
    for (uint64_t key = 1; key < last && atomic_load(&waiting.completed) == 0; key++) {
      size_t unknown;
      assert_int_equal(rv_table_mutate(w.table, NULL, 0, &key, 1, NULL, &unknown, NULL), RV_OK);
    }
    int64_t give_up = now_ns() + INT64_C(30000000000);
    while (atomic_load(&waiting.completed) == 0) {
      if (now_ns() > give_up) fail_msg("it waits although everything went");
      rv_memory_serve(rv_store_memory(w.store));
      sched_yield();
    }
    assert_int_equal(waiting.insert.waiter.code, RV_OK);
    rv_trajectory_unref(waiting.insert.trajectory);
    sample_and_check(&w, 50);
    end_world(&w);
  }
}

/* What it took it may not have yet; it says so when it is asked. */
static void a_disk_that_loses_what_it_took_makes_inserts_wait_until_it_does_not(void **state)
{
  (void)state;
  world w = world_of(1000000, "/tmp", 0);
  offer waiting;
  atomic_store(&disk_loses, true);
  uint64_t last = fill_until(&w, &waiting, "Input/output error");
  assert_true(last < LIMIT / (PAYLOAD / 2));
  assert_int_equal(memory_of(&w).spilled_bytes, 0);
  atomic_store(&disk_loses, false);
  wait_for(&w, &waiting, false);
  assert_int_equal(waiting.insert.waiter.code, RV_OK);
  rv_trajectory_unref(waiting.insert.trajectory);
  for (uint64_t key = last + 1; key <= last + LIMIT / PAYLOAD; key++) insert(&w, key);
  assert_true(memory_of(&w).spilled_bytes > 0);
  sample_and_check(&w, 200);
  end_audited(&w);
}

static rv_chunk *tiny_chunk(uint64_t key)
{
  rv_error err;
  const int64_t shape[] = {ROWS, 1};
  const uint8_t rows[ROWS] = {1};
  rv_pieces pieces;
  rv_pieces_init(&pieces);
  must(rv_encode(&pieces, RV_UINT8, 1, shape + 1, rows, 1, ROWS, false, false, &err), &err);
  return chunk_of_pieces(key, RV_UINT8, 2, shape, &pieces);
}

/* Whether it went on waiting until it was told so; else it is in the table now. */
static bool is_told(offer *waiting, const char *words)
{
  char why[256] = "";
  int64_t give_up = now_ns() + INT64_C(60000000000);
  while (atomic_load(&waiting->completed) == 0 && strstr(why, words) == NULL) {
    rv_waiter_explain(&waiting->insert.waiter, why, sizeof why);
    if (now_ns() > give_up) fail_msg("%s", why);
    sched_yield();
  }
  return rv_waiter_cancel(&waiting->insert.waiter);
}

static void what_cannot_go_to_the_file_is_told_to_who_waits(void **state)
{
  (void)state;
  world w = world_of(1000000, "/tmp", 0);
  uint64_t key = 1;
  for (; key <= 2 * LIMIT / PAYLOAD; key++) insert(&w, key);
  for (bool told = false; !told; key++) {
    offer waiting;
    if (offer_chunk(&w, &waiting, key, tiny_chunk(key)) == RV_SUBMIT_DONE) continue;
    told = is_told(&waiting, " and takes no more: the rest is books and what cannot go there)");
    rv_trajectory_unref(waiting.insert.trajectory);
  }
  end_world(&w);
}

static void who_waits_after_the_spill_ended_hears_of_memory_alone(void **state)
{
  (void)state;
  world w = world_of(1000000, "/tmp", 2 * RV_SPILL_PIECE);
  offer waiting;
  uint64_t last = fill(&w, &waiting);
  char why[256];
  rv_spill_free(w.spill);
  w.spill = NULL;
  if (atomic_load(&waiting.completed) > 0) { /* what was on its way to the file has made room for it; another waits */
    rv_trajectory_unref(waiting.insert.trajectory);
    while (offer_item(&w, &waiting, ++last) == RV_SUBMIT_DONE) continue;
  }
  assert_int_equal(rv_waiter_explain(&waiting.insert.waiter, why, sizeof why), RV_WAIT_MEMORY);
  if (strstr(why, "MiB used)") == NULL) fail_msg("%s", why);
  assert_true(rv_waiter_cancel(&waiting.insert.waiter));
  rv_trajectory_unref(waiting.insert.trajectory);
  end_world(&w);
}

static void insert_rows(world *w, const rv_tensor *column)
{
  rv_rows rows = {.columns = column, .num_columns = 1, .n = (size_t)column->shape[0]};
  offer o; /* for its counter */
  atomic_init(&o.completed, 0);
  rows.waiter = (rv_waiter){.complete = on_complete, .context = &o, .deadline_ns = INT64_MAX};
  if (rv_table_insert_rows(w->table, &rows) == RV_SUBMIT_PENDING) wait_for(w, &o, true);
  assert_int_equal(rows.waiter.code, RV_OK);
}

static void rows_and_resets_go_on_with_a_spill(void **state)
{
  (void)state;
  enum { N = 40, BYTES = 4096 };
  world w = world_of(1000000, "/tmp", 0);
  static uint8_t bytes[N * BYTES];
  const int64_t shape[] = {N, BYTES};
  rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
  rv_error err;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 3 * LIMIT / (N * BYTES); i++) {
      for (size_t k = 0; k < N; k++) memset(bytes + k * BYTES, i + (int)k, BYTES);
      insert_rows(&w, &column);
    }
    assert_true(memory_of(&w).spilled_bytes > 0);
    sample_rows(&w, BYTES, false);
    must(rv_table_reset(w.table, &err), &err);
  }
  end_world(&w);
}

/* Items go by chance, so that of each chunk some stay for long. */
static world world_in_no_order(int64_t max_size, size_t max_bytes)
{
  rv_table_config config = rv_table_config_default("replay", max_size);
  config.remover = (rv_selector_config){.kind = RV_SELECTOR_UNIFORM};
  return world_of_table(&config, "/tmp", max_bytes);
}

static void rows_that_go_in_no_order_need_twice_their_room(void **state)
{
  (void)state;
  enum { N = 32, BYTES = 1024, LIVE = 4 * LIMIT, FITS = 2 * LIVE, GENERATIONS = 8 };
  world w = world_in_no_order(LIVE / BYTES, FITS);
  static uint8_t bytes[N * BYTES];
  const int64_t shape[] = {N, BYTES};
  rv_tensor column = {.dtype = RV_UINT8, .rank = 2, .shape = shape, .data = bytes};
  for (uint64_t i = 0; i < (uint64_t)GENERATIONS * LIVE / (N * BYTES); i++) {
    for (size_t k = 0; k < N; k++) memset(bytes + k * BYTES, byte_of(i, k), BYTES);
    insert_rows(&w, &column);
    assert_true(memory_of(&w).spilled_bytes <= FITS);
  }
  sample_rows(&w, BYTES, false);
  end_audited(&w);
}

/* An item over one row of the chunk. */
static void insert_row(world *w, rv_chunk *chunk, uint64_t key, int32_t row)
{
  offer o = {.insert = {.key = key, .priority = 1, .trajectory = trajectory_of(w->store, chunk, row, 1)}};
  atomic_init(&o.completed, 0);
  o.insert.waiter = (rv_waiter){.complete = on_complete, .context = &o, .deadline_ns = INT64_MAX};
  if (rv_table_insert(w->table, &o.insert) == RV_SUBMIT_PENDING) wait_for(w, &o, false);
  assert_int_equal(o.insert.waiter.code, RV_OK);
  rv_trajectory_unref(o.insert.trajectory);
}

static void rows_of_others_chunks_do_too(void **state)
{
  (void)state;
  enum { LIVE = 4 * LIMIT, FITS = 2 * LIVE, GENERATIONS = 6 };
  world w = world_in_no_order(LIVE / WIDTH, FITS);
  for (uint64_t i = 1; i < (uint64_t)GENERATIONS * LIVE / PAYLOAD; i++) {
    rv_chunk *chunk = i % 2 == 0 ? segment_chunk(i) : wire_chunk(i, false);
    for (int32_t row = 0; row < ROWS; row++) insert_row(&w, chunk, i * ROWS + (uint64_t)row, row);
    rv_chunk_unref(chunk);
    assert_true(memory_of(&w).spilled_bytes <= FITS);
  }
  sample_rows(&w, WIDTH, true);
  end_audited(&w);
}

/* An item over the rows of two chunks, of which the one before it has the first. */
static void insert_pair(world *w, rv_chunk *a, rv_chunk *b, uint64_t key)
{
  rv_error err;
  rv_slice slices[2] = {{.chunk = a, .length = ROWS}, {.chunk = b, .length = ROWS}};
  uint32_t num_slices = 2;
  bool squeeze = false;
  rv_trajectory_desc desc = {.slices = slices, .num_slices = &num_slices, .squeeze = &squeeze, .num_columns = 1};
  offer o = {.insert = {.key = key, .priority = 1}};
  atomic_init(&o.completed, 0);
  must(rv_trajectory_new(rv_store_layouts(w->store), &desc, &o.insert.trajectory, &err), &err);
  o.insert.waiter = (rv_waiter){.complete = on_complete, .context = &o, .deadline_ns = INT64_MAX};
  if (rv_table_insert(w->table, &o.insert) == RV_SUBMIT_PENDING) wait_for(w, &o, false);
  assert_int_equal(o.insert.waiter.code, RV_OK);
  rv_trajectory_unref(o.insert.trajectory);
}

static void check_pair(const rv_draw *draw)
{
  static uint8_t rows[2 * PAYLOAD];
  rv_error err;
  must(rv_draw_copy_column(draw, 0, rows, &err), &err);
  for (size_t i = 0; i < 2 * ROWS; i++)
    for (size_t k = 0; k < WIDTH; k += 97) assert_int_equal(rows[i * WIDTH + k], byte_of(draw->key + i / ROWS, i % ROWS));
}

static void what_is_held_while_others_move_reads_as_before(void **state)
{
  (void)state;
  enum { N = 3 * LIMIT / PAYLOAD, HELD = 5 };
  world w = world_of(1000000, "/tmp", 0);
  rv_draw held[HELD], draw;
  rv_error err;
  rv_chunk *before = segment_chunk(3);
  for (uint64_t i = 1; i <= N; i++) {
    rv_chunk *chunk = segment_chunk(2 + i + 1);
    insert_pair(&w, before, chunk, 2 + i);
    rv_chunk_unref(before);
    before = chunk;
    if (i <= HELD) must(rv_table_get(w.table, 2 + i, &held[i - 1], &err), &err);
    if (i % 20 != 0) continue;
    must(rv_table_get(w.table, 2 + i / 2, &draw, &err), &err);
    check_pair(&draw);
    rv_draw_release(&draw);
  }
  rv_chunk_unref(before);
  assert_true(memory_of(&w).spilled_bytes > LIMIT);
  for (size_t i = 0; i < HELD; i++) {
    check_pair(&held[i]);
    rv_draw_release(&held[i]);
  }
  for (uint64_t i = 1; i <= N; i++) {
    must(rv_table_get(w.table, 2 + i, &draw, &err), &err);
    check_pair(&draw);
    rv_draw_release(&draw);
  }
  end_world(&w);
}

static void insert_shared(world *w, size_t table, uint64_t key, rv_chunk *chunk)
{
  offer o;
  w->table = rv_store_table(w->store, table);
  if (offer_chunk(w, &o, key, rv_chunk_ref(chunk)) == RV_SUBMIT_PENDING) {
    wait_for(w, &o, false);
    rv_trajectory_unref(o.insert.trajectory);
  }
  assert_int_equal(o.insert.waiter.code, RV_OK);
}

typedef struct reader {
  world w;
  atomic_bool ends;
  pthread_t thread;
} reader;

static void *read_on(void *context)
{
  reader *r = context;
  while (!atomic_load(&r->ends)) sample_and_check(&r->w, 16);
  return NULL;
}

static void begin_reading(reader *r, const world *w, size_t table)
{
  r->w = (world){.store = w->store, .table = rv_store_table(w->store, table)};
  atomic_init(&r->ends, false);
  assert_int_equal(pthread_create(&r->thread, NULL, read_on, r), 0);
}

static void end_reading(reader *r)
{
  atomic_store(&r->ends, true);
  pthread_join(r->thread, NULL);
}

static size_t num_spilled(const world *w, size_t table, uint64_t first, uint64_t last)
{
  size_t spilled = 0;
  for (uint64_t key = first; key <= last; key++) {
    rv_error err;
    rv_draw draw;
    if (rv_table_get(rv_store_table(w->store, table), key, &draw, &err) != RV_OK) continue;
    spilled += rv_chunk_is_spilled(draw.chunk);
    check_draw(&draw);
    rv_draw_release(&draw);
  }
  return spilled;
}

/* Of the second table every item is an item of the first and the third, too, in which some have gone and some never came. */
static void chunks_that_several_tables_hold_go_there_too_while_all_are_read(void **state)
{
  (void)state;
  enum { N = 4 * LIMIT / PAYLOAD, TABLES = 3 };
  const rv_table_config configs[TABLES] = {rv_table_config_default("half", N / 2), rv_table_config_default("all", N),
                                           rv_table_config_default("few", N)};
  world w = world_of_tables(configs, TABLES, "/tmp", 0);
  reader readers[2];
  for (uint64_t key = 1; key <= N; key++) {
    rv_chunk *chunk = key % 3 == 0 ? segment_chunk(key) : wire_chunk(key, key % 3 == 1);
    for (size_t t = 0; t < TABLES; t++)
      if (t != 2 || key % 7 == 1) insert_shared(&w, t, key, chunk);
    rv_chunk_unref(chunk);
    if (key == 1) begin_reading(&readers[0], &w, 0);
    if (key == 1) begin_reading(&readers[1], &w, 2);
  }
  for (size_t i = 0; i < 2; i++) end_reading(&readers[i]);
  for (size_t t = 0; t < TABLES; t++) assert_true(num_spilled(&w, t, 1, N) > 0);
  assert_true(memory_of(&w).spilled_bytes > 2 * LIMIT);
  w.table = rv_store_table(w.store, 1);
  end_audited(&w);
}

static void a_directory_that_is_not_there_and_a_store_without_a_limit_are_refused(void **state)
{
  (void)state;
  rv_error err;
  rv_spill *spill = NULL;
  rv_table_config config = rv_table_config_default("replay", 10);
  rv_store *store = store_of(&config);
  rv_spill_config given = {.size = sizeof given, .path = "/tmp"};
  assert_int_equal(rv_spill_new(&given, store, &spill, &err), RV_FAILED_PRECONDITION);
  rv_store_unref(store);
  rv_store_config limited = {.size = sizeof limited, .tables = &config, .num_tables = 1, .memory_limit = LIMIT};
  must(rv_store_new(&limited, &store, &err), &err);
  given.path = "/tmp/there/is/no/such/directory";
  assert_int_equal(rv_spill_new(&given, store, &spill, &err), RV_NOT_FOUND);
  assert_non_null(strstr(err.message, "/tmp/there/is/no/such/directory"));
  given.path = "/tmp";
  given.max_bytes = 1;
  assert_int_equal(rv_spill_new(&given, store, &spill, &err), RV_INVALID_ARGUMENT);
  rv_store_unref(store);
}

/* ---- the file ---- */

/* Each would take what the other has taken, and tell of the file of which it knows. */
static void a_store_has_one_spill_at_a_time(void **state)
{
  (void)state;
  rv_error err;
  rv_table_config table = rv_table_config_default("t", 10);
  rv_store_config config = {.size = sizeof config, .tables = &table, .num_tables = 1, .memory_limit = (size_t)1 << 28};
  rv_store *store;
  rv_spill *first, *second;
  rv_spill_config spill = {.size = sizeof spill, .path = "/tmp"};
  must(rv_store_new(&config, &store, &err), &err);
  must(rv_spill_new(&spill, store, &first, &err), &err);
  assert_int_equal(rv_spill_new(&spill, store, &second, &err), RV_ALREADY_EXISTS);
  assert_non_null(strstr(err.message, "the store has a spill already"));
  rv_spill_free(first);
  spill.path = "/there/is/no/such/directory";
  assert_int_not_equal(rv_spill_new(&spill, store, &second, &err), RV_OK); /* one that did not begin is none */
  spill.path = "/tmp";
  must(rv_spill_new(&spill, store, &second, &err), &err);
  rv_spill_free(second);
  rv_store_unref(store);
}

/* In a namespace of this process's own, where that is allowed. */
static void mount_small_disk(void)
{
  if (mkdtemp(small_disk) == NULL || getuid() != 0 || unshare(CLONE_NEWNS) != 0) return;
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return;
  has_small_disk = mount("none", small_disk, "tmpfs", 0, "size=8m") == 0;
}

int main(void)
{
  mount_small_disk();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_lies_in_the_file_is_sampled_as_it_came),
      cmocka_unit_test(strings_that_were_read_before_they_moved_read_as_before),
      cmocka_unit_test(the_file_has_no_name),
      cmocka_unit_test(room_in_the_file_is_used_again),
      cmocka_unit_test(a_full_file_makes_inserts_wait_and_loses_nothing),
      cmocka_unit_test(a_disk_that_loses_what_it_took_makes_inserts_wait_until_it_does_not),
      cmocka_unit_test(what_cannot_go_to_the_file_is_told_to_who_waits),
      cmocka_unit_test(who_waits_after_the_spill_ended_hears_of_memory_alone),
      cmocka_unit_test(rows_and_resets_go_on_with_a_spill),
      cmocka_unit_test(rows_that_go_in_no_order_need_twice_their_room),
      cmocka_unit_test(rows_of_others_chunks_do_too),
      cmocka_unit_test(what_is_held_while_others_move_reads_as_before),
      cmocka_unit_test(chunks_that_several_tables_hold_go_there_too_while_all_are_read),
      cmocka_unit_test(a_directory_that_is_not_there_and_a_store_without_a_limit_are_refused),
      cmocka_unit_test(a_store_has_one_spill_at_a_time),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (has_small_disk) umount2(small_disk, MNT_DETACH);
  rmdir(small_disk);
  return failed;
}
