/* SampleStreamResponse as a client reads it; InsertStreamResponse and SampleStreamRequest by the way. */
#include "fuzz.h"

static void read_entry(rv_buf *owner, const rv_sample_entry *entry)
{
  for (size_t i = 0; i < entry->num_chunks; i++) {
    rv_chunk *chunk = NULL;
    rv_error err;
    rv_code code = rv_chunk_parse(owner, entry->chunks[i], false, &chunk, &err);
    rv_fuzz_check_failure(code, &err);
    if (code != RV_OK) continue;
    rv_fuzz_read_chunk(chunk);
    rv_chunk_unref(chunk);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_error err;
  rv_buf *owner = rv_buf_copy(data, size);
  if (owner == NULL) return 0;
  rv_span message = {owner->data, size};
  rv_sample_response response;
  rv_code code = rv_sample_response_parse(message, &response, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) {
    for (size_t i = 0; i < response.num_entries; i++) read_entry(owner, &response.entries[i]);
    rv_sample_response_fini(&response);
  }
  rv_insert_response inserted;
  code = rv_insert_response_parse(message, &inserted, &err);
  rv_fuzz_check_failure(code, &err);
  if (code == RV_OK) rv_insert_response_fini(&inserted);
  rv_sample_request request;
  rv_fuzz_check_failure(rv_sample_request_parse(message, &request, &err), &err);
  rv_buf_unref(owner);
  return 0;
}
