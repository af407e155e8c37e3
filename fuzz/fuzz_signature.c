/* StructuredValue, as signatures are made of it. */
#include "fuzz.h"
#include "wire/unary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  rv_signature signature;
  rv_error err;
  rv_code code = rv_signature_parse((rv_span){data, size}, &signature, &err);
  rv_fuzz_check_failure(code, &err);
  if (code != RV_OK) return 0;
  for (size_t i = 0; i < signature.num_specs; i++) {
    const rv_spec *spec = &signature.specs[i];
    RV_FUZZ_CHECK(rv_dtype_size(spec->dtype) > 0 && spec->rank >= -1);
    for (int32_t j = 0; j < spec->rank; j++) RV_FUZZ_CHECK(spec->shape[j] >= -1);
    RV_FUZZ_CHECK(rv_utf8_valid((rv_span){(const uint8_t *)spec->name, strlen(spec->name)}));
  }
  rv_writer_buf out;
  rv_writer_buf_init(&out);
  rv_signature_serialize(&out, &signature);
  rv_signature flat;
  RV_FUZZ_CHECK(out.failed || rv_signature_parse((rv_span){out.data, out.size}, &flat, &err) == RV_OK);
  if (!out.failed) {
    RV_FUZZ_CHECK(flat.num_specs == signature.num_specs);
    rv_signature_fini(&flat);
  }
  rv_writer_buf_fini(&out);
  rv_signature_fini(&signature);
  return 0;
}
