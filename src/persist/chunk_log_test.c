#include "persist/chunk_log.h"

#include "base/env.h"
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

static void a_chunk_at_the_address_of_one_that_is_gone_is_written_even_with_its_key(void **state)
{
  (void)state;
  int written = 0;
  rv_error err;
  rv_env env;
  rv_env_fill(&env, NULL);
  rv_chunk_log *log = NULL;
  rv_slice_list slices = {NULL, 0, 0};
  must(rv_chunk_log_new((rv_chunk_sink){count_chunk, &written}, &env, &log, &err), &err);
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chunk_at_the_address_of_one_that_is_gone_is_written_even_with_its_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
