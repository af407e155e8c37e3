/* ServerInfoResponse as a client reads it, written again and read once more. */
#include "fuzz.h"
#include "wire/unary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_server_info *info = NULL, *back = NULL;
  rv_error err;
  rv_code code = rv_server_info_parse((rv_span){data, size}, &info, &err);
  rv_fuzz_check_failure(code, &err);
  if (code != RV_OK) return 0;
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_server_info_serialize(&out, info);
  RV_FUZZ_CHECK(out.failed || rv_server_info_parse((rv_span){out.data, out.size}, &back, &err) == RV_OK);
  if (back != NULL) RV_FUZZ_CHECK(back->num_tables == info->num_tables);
  rv_writer_buf_fini(&out);
  rv_server_info_free(back);
  rv_server_info_free(info);
  return 0;
}
