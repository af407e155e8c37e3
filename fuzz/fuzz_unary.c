/* The messages of the unary calls, all of them on the same bytes. */
#include "fuzz.h"
#include "wire/unary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  enum { CAPACITY = 8 };
  rv_span message = {data, size}, text;
  rv_error err;
  rv_mutate_request mutation;
  rv_mutate_reader reader;
  rv_key_priority change;
  rv_mutate_reader_init(&reader, message);
  while (rv_mutate_reader_next(&reader, &change) != RV_MUTATE_END) continue;
  rv_code in_parts = rv_mutate_reader_check(&reader, &err);
  rv_code code = rv_mutate_request_parse(message, &mutation, &err);
  RV_FUZZ_CHECK(in_parts != RV_OK || code == RV_OK);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) rv_mutate_request_fini(&mutation);
  uint64_t keys[CAPACITY], number = 0;
  size_t count = 0;
  rv_fuzz_check_failure(rv_mutate_response_parse(message, keys, CAPACITY, &count, &err), &err);
  rv_fuzz_check_failure(rv_reset_request_parse(message, &text, &err), &err);
  int64_t pid = 0;
  rv_fuzz_check_failure(rv_initialize_connection_parse(message, &pid, &text, &err), &err);
  rv_items_request items;
  rv_fuzz_check_failure(rv_items_request_parse(message, &items, &err), &err);
  rv_item_info infos[CAPACITY];
  code = rv_items_response_parse(message, &number, infos, CAPACITY, &count, &err);
  rv_fuzz_check_failure(code, &err);
  RV_FUZZ_CHECK(count <= CAPACITY);
  rv_fuzz_check_failure(rv_get_request_parse(message, &text, &number, &err), &err);
  rv_rate_limiter_config limiter;
  rv_fuzz_check_failure(rv_set_rate_limiter_parse(message, &text, &limiter, &err), &err);
  rv_table_bounds bounds;
  rv_fuzz_check_failure(rv_set_bounds_parse(message, &text, &bounds, &err), &err);
  rv_fuzz_check_failure(rv_set_memory_limit_parse(message, &number, &err), &err);
  rv_fuzz_check_failure(rv_checkpoint_response_parse(message, &text, &err), &err);
  return 0;
}
