#include "persist/chunk_log.h"

#include "base/env.h"
#include "base/error.h"
#include "persist/chunk_log_parts.h"
#include "persist/stores_testing.h"
#include "store/chunk_parts.h"

static rv_code count_chunk(void *context, rv_pieces *chunk, rv_error *err)
{
  (void)chunk, (void)err;
  ++*(int *)context;
  return RV_OK;
}

static void put(rv_chunk_log *log, rv_chunk *chunk, rv_slice_list *out)
{
  rv_error err;
  const rv_slice slice = {.chunk = chunk, .length = 1};
  must(rv_chunk_log_put(log, &slice, out, &err), &err);
}

/* number 0: one that does not mark. */
static rv_chunk_log *make_log(uint64_t number, const rv_env *env, int *written)
{
  rv_error err;
  rv_chunk_log *log = NULL;
  const rv_chunk_sink sink = {count_chunk, written};
  *written = 0;
  must(number == 0 ? rv_chunk_log_new(sink, env, &log, &err) : rv_chunk_log_new_marking(sink, env, number, &log, &err), &err);
  return log;
}

/* Of one file, which is number 0. */
static rv_chunk_log *make_lasting(rv_chunk_files *files, const rv_env *env)
{
  rv_error err;
  uint32_t number;
  rv_chunk_log *log = NULL;
  must(rv_chunk_files_add(files, "chunks-0", &number, &err), &err);
  assert_int_equal(number, 0);
  must(rv_chunk_log_new_lasting(files, env, &log, &err), &err);
  return log;
}

static void write_what_comes_to_the_same_address(uint64_t number)
{
  int written = 0;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_slice_list slices = {NULL, 0, 0};
  rv_chunk_log *log = make_log(number, &env, &written);
  rv_chunk *first = wire_chunk(7, 1, 10, 1, false, false), *second = wire_chunk(7, 1, 20, 1, false, false);
  const uint8_t *wire;
  size_t wire_size;
  (void)rv_chunk_wire(first, &wire, &wire_size);
  size_t books = rv_encoded_memory(first) - wire_size;
  void *of_first = malloc(books);
  assert_non_null(of_first);
  memcpy(of_first, first, books);
  put(log, first, &slices);
  put(log, first, &slices);
  assert_int_equal(written, 1);
  assert_true(slices.slices[0].chunk_key == slices.slices[1].chunk_key);
  memcpy(first, second, books); /* as if that had been made there, later */
  put(log, first, &slices);
  put(log, first, &slices);
  assert_int_equal(written, 2);
  assert_true(slices.slices[1].chunk_key != slices.slices[2].chunk_key);
  assert_true(slices.slices[2].chunk_key == slices.slices[3].chunk_key);
  memcpy(first, of_first, books);
  free(of_first);
  rv_chunk_unref(first);
  rv_chunk_unref(second);
  free(slices.slices);
  rv_chunk_log_free(log);
}

static void a_chunk_at_the_address_of_one_that_is_gone_is_written_even_with_its_key(void **state)
{
  (void)state;
  write_what_comes_to_the_same_address(0);
  write_what_comes_to_the_same_address(1);
}

/* Which are few: those before the one that is needed are written with it. */
static void rows_that_are_needed_from_the_last_to_the_first_are_one_piece(void **state)
{
  (void)state;
  enum { ROWS = 300 };
  int written = 0;
  rv_env env;
  rv_error err;
  rv_env_fill(&env, NULL);
  rv_slice_list slices = {NULL, 0, 0};
  rv_chunk_log *log = make_log(0, &env, &written);
  rv_chunk *segment;
  const rv_spec spec = {.name = "", .dtype = RV_INT64};
  must(rv_segment_new(&spec, 1, ROWS, &(rv_chunk_meta){.key = 5, .last_step = ROWS - 1}, &segment, &err), &err);
  for (int64_t i = 0; i < ROWS; i++) must(rv_segment_put(segment, 0, i, &(rv_tensor){.dtype = RV_INT64, .data = &i}, &err), &err);
  rv_segment_publish(segment, 0, ROWS);
  for (int32_t i = ROWS - 1; i >= 0; i--) {
    must(rv_chunk_log_put(log, &(rv_slice){.chunk = segment, .offset = i, .length = 1}, &slices, &err), &err);
    assert_true(slices.slices[slices.count - 1].offset == i && slices.slices[slices.count - 1].chunk_key == 5);
  }
  assert_int_equal(written, 1);
  assert_int_equal(slices.count, ROWS);
  rv_chunk_unref(segment);
  free(slices.slices);
  rv_chunk_log_free(log);
}

/* Of a segment the key is shown to whoever samples its items, and a chunk may be sent with it. */
static void a_chunk_at_the_address_of_a_segment_that_is_gone_is_written_even_with_its_key(void **state)
{
  (void)state;
  int written = 0;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_slice_list slices = {NULL, 0, 0};
  rv_chunk_log *log = make_log(0, &env, &written);
  rv_chunk *chunk = wire_chunk(7, 1, 10, 1, false, false);
  uint32_t number;
  chunk->is_segment = true; /* as if one had been made there, and put, before */
  assert_int_equal(rv_chunk_log_add(log, chunk, &number, NULL), RV_OK);
  chunk->is_segment = false;
  put(log, chunk, &slices);
  put(log, chunk, &slices);
  assert_int_equal(written, 1);
  assert_true(slices.slices[0].chunk_key == 7 && slices.slices[1].chunk_key == 7);
  rv_chunk_unref(chunk);
  free(slices.slices);
  rv_chunk_log_free(log);
}

/* ---- marks ---- */

static void a_log_that_marks_writes_each_chunk_once_and_remembers_none(void **state)
{
  (void)state;
  enum { CHUNKS = 100 };
  int written;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_slice_list slices = {NULL, 0, 0};
  rv_chunk *chunks[CHUNKS];
  for (int i = 0; i < CHUNKS; i++) chunks[i] = wire_chunk((uint64_t)i, 1, i, 1, false, false);
  static const uint64_t numbers[] = {1, 2, 3, (uint64_t)1 << 31, ((uint64_t)1 << 31) + 1, UINT32_MAX, (uint64_t)1 << 32};
  for (size_t round = 0; round < sizeof numbers / sizeof *numbers; round++) { /* a checkpoint after another */
    rv_chunk_log *log = make_log(numbers[round], &env, &written);
    slices.count = 0;
    for (int i = 0; i < 3 * CHUNKS; i++) put(log, chunks[i % CHUNKS], &slices);
    assert_int_equal(written, CHUNKS);
    assert_int_equal(rv_chunk_log_count(log), 0);
    for (size_t i = 0; i < slices.count; i++) assert_true(slices.slices[i].chunk_key == i % CHUNKS);
    rv_chunk_log_free(log);
  }
  for (int i = 0; i < CHUNKS; i++) rv_chunk_unref(chunks[i]);
  free(slices.slices);
}

static void of_two_chunks_with_one_key_the_second_gets_another_key(void **state)
{
  (void)state;
  int written;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_slice_list slices = {NULL, 0, 0};
  rv_chunk *first = wire_chunk(7, 1, 10, 1, false, false), *second = wire_chunk(7, 1, 20, 1, false, false);
  rv_chunk_log *log = make_log(1, &env, &written);
  for (int i = 0; i < 4; i++) put(log, i % 2 == 0 ? first : second, &slices);
  assert_int_equal(written, 2);
  assert_true(slices.slices[0].chunk_key == 7 && slices.slices[2].chunk_key == 7);
  assert_true(slices.slices[1].chunk_key != 7 && slices.slices[1].chunk_key == slices.slices[3].chunk_key);
  rv_chunk_log_free(log);
  rv_chunk_unref(first);
  rv_chunk_unref(second);
  free(slices.slices);
}

static void two_logs_that_mark_at_a_time_write_a_chunk_twice_at_most(void **state)
{
  (void)state;
  int written, by_other;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_slice_list slices = {NULL, 0, 0}, others = {NULL, 0, 0};
  rv_chunk *chunk = wire_chunk(7, 1, 10, 1, false, false);
  rv_chunk_log *log = make_log(1, &env, &written);
  rv_chunk_log *other = make_log(2, &env, &by_other);
  for (int i = 0; i < 5; i++) {
    put(log, chunk, &slices);
    put(other, chunk, &others);
  }
  assert_int_equal(written, 2); /* the other's mark stands where its own did */
  assert_int_equal(by_other, 1);
  assert_true(slices.slices[0].chunk_key == 7 && slices.slices[1].chunk_key != 7);
  for (size_t i = 2; i < slices.count; i++) assert_true(slices.slices[i].chunk_key == slices.slices[1].chunk_key);
  for (size_t i = 0; i < others.count; i++) assert_true(others.slices[i].chunk_key == 7);
  rv_chunk_log_free(log);
  rv_chunk_log_free(other);
  rv_chunk_unref(chunk);
  free(slices.slices);
  free(others.slices);
}

/* A whole checkpoint between two incremental ones makes the second no larger. */
static void a_log_that_marks_leaves_the_marks_of_one_that_lasts(void **state)
{
  (void)state;
  int written, by_lasting = 0;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_chunk_files files = {0};
  rv_chunk_log *lasting = make_lasting(&files, &env);
  rv_slice_list slices = {NULL, 0, 0};
  rv_chunk *chunk = wire_chunk(7, 1, 10, 1, false, false);
  for (int round = 0; round < 3; round++) {
    rv_chunk_log_begin(lasting, (rv_chunk_sink){count_chunk, &by_lasting}, 0);
    put(lasting, chunk, &slices);
    rv_chunk_log_end(lasting, true);
    rv_chunk_log *log = make_log((uint64_t)round + 1, &env, &written);
    for (int i = 0; i < 3; i++) put(log, chunk, &slices);
    assert_int_equal(written, 1);
    rv_chunk_log_free(log);
  }
  assert_int_equal(by_lasting, 1);
  for (size_t i = 0; i < slices.count; i++) assert_true(slices.slices[i].chunk_key == 7);
  rv_chunk_log_free(lasting);
  rv_chunk_files_fini(&files);
  rv_chunk_unref(chunk);
  free(slices.slices);
}

/* And one that lasts may come to a chunk while another is at work: that one writes it once more, under another key. */
static void a_log_that_lasts_takes_a_chunk_over(void **state)
{
  (void)state;
  int written, by_lasting = 0;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_chunk_files files = {0};
  rv_chunk_log *lasting = make_lasting(&files, &env);
  rv_slice_list slices = {NULL, 0, 0}, lastings = {NULL, 0, 0};
  rv_chunk *chunk = wire_chunk(7, 1, 10, 1, false, false);
  rv_chunk_log_begin(lasting, (rv_chunk_sink){count_chunk, &by_lasting}, 0);
  rv_chunk_log *log = make_log(1, &env, &written);
  for (int i = 0; i < 4; i++) {
    put(log, chunk, &slices);
    put(lasting, chunk, &lastings);
  }
  assert_int_equal(written, 2);
  assert_int_equal(by_lasting, 1);
  assert_true(slices.slices[0].chunk_key == 7 && slices.slices[1].chunk_key != 7);
  for (size_t i = 2; i < slices.count; i++) assert_true(slices.slices[i].chunk_key == slices.slices[1].chunk_key);
  for (size_t i = 0; i < lastings.count; i++) assert_true(lastings.slices[i].chunk_key == 7);
  rv_chunk_log_free(log);
  rv_chunk_log_free(lasting);
  rv_chunk_files_fini(&files);
  rv_chunk_unref(chunk);
  free(slices.slices);
  free(lastings.slices);
}

static rv_code refuse_third(void *context, rv_pieces *chunk, rv_error *err)
{
  (void)chunk;
  return ++*(int *)context == 3 ? rv_fail(err, RV_RESOURCE_EXHAUSTED, "the disk is full") : RV_OK;
}

/* Of a checkpoint that failed nothing stays, so what it had written and marked is written by the next. */
static void after_a_write_that_failed_another_log_writes_all(void **state)
{
  (void)state;
  enum { CHUNKS = 5 };
  int written = 0;
  rv_error err;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_slice_list slices = {NULL, 0, 0};
  rv_chunk *chunks[CHUNKS];
  rv_chunk_log *log = NULL;
  for (int i = 0; i < CHUNKS; i++) chunks[i] = wire_chunk((uint64_t)i, 1, i, 1, false, false);
  must(rv_chunk_log_new_marking((rv_chunk_sink){refuse_third, &written}, &env, 1, &log, &err), &err);
  for (int i = 0; i < CHUNKS && written < 3; i++) {
    const rv_slice slice = {.chunk = chunks[i], .length = 1};
    assert_int_equal(rv_chunk_log_put(log, &slice, &slices, &err), i < 2 ? RV_OK : RV_RESOURCE_EXHAUSTED);
  }
  rv_chunk_log_free(log);
  log = make_log(2, &env, &written);
  for (int i = 0; i < CHUNKS; i++) put(log, chunks[i], &slices);
  assert_int_equal(written, CHUNKS);
  rv_chunk_log_free(log);
  for (int i = 0; i < CHUNKS; i++) rv_chunk_unref(chunks[i]);
  free(slices.slices);
}

/* ---- strings ---- */

enum { TEXTS = 200 };
static const size_t TEXT_BYTES = 1 << 20, RECORD_BYTES_MAX = 80 << 20;

static rv_code note_largest(void *context, rv_pieces *chunk, rv_error *err)
{
  (void)err;
  size_t *largest = context;
  if (chunk->bytes > *largest) *largest = chunk->bytes;
  return RV_OK;
}

/* A segment of numbers and long strings: the first text again and again, which takes less memory than so many would. */
static rv_chunk *texts_of(char *text)
{
  rv_error err;
  rv_chunk *segment;
  rv_spec specs[2] = {{.name = "", .dtype = RV_INT64}, {.name = "", .dtype = RV_STRING}};
  rv_chunk_meta meta = {.key = 7, .episode_id = 1, .last_step = TEXTS - 1};
  must(rv_segment_new(specs, 2, TEXTS, &meta, &segment, &err), &err);
  for (int64_t i = 0; i < TEXTS; i++) {
    rv_bytes bytes = {text, i == 0 ? TEXT_BYTES : 0};
    rv_tensor number = {.dtype = RV_INT64, .data = &i}, string = {.dtype = RV_STRING, .data = &bytes};
    must(rv_segment_put(segment, 0, i, &number, &err), &err);
    must(rv_segment_put(segment, 1, i, &string, &err), &err);
  }
  const rv_lane *lane = &segment->lanes[1];
  for (size_t i = 1; i < TEXTS; i++) memcpy((uint8_t *)(uintptr_t)lane->base + i * lane->stride, lane->base, sizeof(rv_bytes));
  rv_segment_publish(segment, 0, TEXTS);
  rv_segment_publish(segment, 1, TEXTS);
  return segment;
}

static void rows_with_long_strings_are_written_in_records_of_the_usual_size(void **state)
{
  (void)state;
  size_t largest = 0;
  rv_error err;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_chunk_log *log = NULL;
  rv_slice_list slices = {NULL, 0, 0};
  char *text = calloc(1, TEXT_BYTES);
  rv_chunk *segment = texts_of(text);
  must(rv_chunk_log_new((rv_chunk_sink){note_largest, &largest}, &env, &log, &err), &err);
  const rv_slice all = {.chunk = segment, .tensor = 1, .length = TEXTS};
  must(rv_chunk_log_put(log, &all, &slices, &err), &err);
  assert_in_range(largest, TEXT_BYTES, RECORD_BYTES_MAX);
  int64_t rows = 0;
  for (size_t i = 0; i < slices.count; i++) rows += slices.slices[i].length;
  assert_int_equal(rows, TEXTS);
  assert_true(slices.count >= TEXTS * TEXT_BYTES / RECORD_BYTES_MAX);
  free(slices.slices);
  rv_chunk_log_free(log);
  rv_chunk_unref(segment);
  free(text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_with_long_strings_are_written_in_records_of_the_usual_size),
      cmocka_unit_test(a_log_that_marks_writes_each_chunk_once_and_remembers_none),
      cmocka_unit_test(of_two_chunks_with_one_key_the_second_gets_another_key),
      cmocka_unit_test(two_logs_that_mark_at_a_time_write_a_chunk_twice_at_most),
      cmocka_unit_test(a_log_that_marks_leaves_the_marks_of_one_that_lasts),
      cmocka_unit_test(a_log_that_lasts_takes_a_chunk_over),
      cmocka_unit_test(after_a_write_that_failed_another_log_writes_all),
      cmocka_unit_test(a_chunk_at_the_address_of_one_that_is_gone_is_written_even_with_its_key),
      cmocka_unit_test(rows_that_are_needed_from_the_last_to_the_first_are_one_piece),
      cmocka_unit_test(a_chunk_at_the_address_of_a_segment_that_is_gone_is_written_even_with_its_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
