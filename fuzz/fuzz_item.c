/* PrioritizedItem: what is read and written again is read the same. */
#include "fuzz.h"

static void check_same(const rv_wire_item *a, const rv_wire_item *b)
{
  RV_FUZZ_CHECK(a->key == b->key && a->sequence == b->sequence && a->naming == b->naming && a->times_sampled == b->times_sampled);
  RV_FUZZ_CHECK(a->inserted_at_ns == b->inserted_at_ns && memcmp(&a->priority, &b->priority, sizeof a->priority) == 0);
  RV_FUZZ_CHECK(a->num_columns == b->num_columns && a->total_slices == b->total_slices);
  for (uint32_t i = 0; i < a->num_columns; i++)
    RV_FUZZ_CHECK(a->num_slices[i] == b->num_slices[i] && a->squeeze[i] == b->squeeze[i]);
  for (uint32_t i = 0; i < a->total_slices; i++)
    RV_FUZZ_CHECK(a->slices[i].chunk_key == b->slices[i].chunk_key && a->slices[i].offset == b->slices[i].offset &&
                  a->slices[i].length == b->slices[i].length && a->slices[i].index == b->slices[i].index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_wire_item item, back;
  rv_error err;
  rv_code code = rv_wire_item_parse((rv_span){data, size}, &item, &err);
  rv_fuzz_check_failure(code, &err);
  if (code != RV_OK) return 0;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_wire_item_serialize(&out, &item);
  RV_FUZZ_CHECK(out.failed || rv_wire_item_parse((rv_span){out.data, out.size}, &back, &err) == RV_OK);
  if (!out.failed) {
    check_same(&item, &back);
    rv_wire_item_fini(&back);
  }
  rv_writer_buf_fini(&out);
  rv_wire_item_fini(&item);
  return 0;
}
