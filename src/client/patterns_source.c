/* Columns that somebody refers to: which rows there are, and the few values that conditions and priorities read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/patterns.h"
#include "store/signature.h"

rv_code rv_pattern_source_begin(rv_pattern_source *source, rv_error *err)
{
  uint32_t size = 1;
  while (size < source->window) size *= 2;
  source->mask = size - 1;
  source->last_missing = source->missing_before = -1;
  source->present = calloc(size, sizeof *source->present);
  if (source->present == NULL) return rv_fail_memory(err, size);
  if (!source->read_number) return RV_OK;
  source->numbers = calloc(size, sizeof *source->numbers);
  return source->numbers == NULL ? rv_fail_memory(err, size * sizeof *source->numbers) : RV_OK;
}

void rv_pattern_source_fini(rv_pattern_source *source)
{
  free(source->name);
  free(source->present);
  free(source->numbers);
}

/* ---- rows ---- */

void rv_pattern_source_add_row(rv_pattern_source *source, int64_t row)
{
  source->present[(uint64_t)row & source->mask] = 0;
  source->missing_before = source->last_missing;
  source->last_missing = row;
  source->has_integer = false;
}

bool rv_pattern_source_has(const rv_pattern_source *source, const rv_pattern_span *rows, int64_t first)
{
  if (first < 0) return false;
  if (first > source->last_missing) return true;
  for (uint32_t i = 0; i < rows->count; i++) {
    if (source->present[((uint64_t)first + (uint64_t)i * rows->step) & source->mask] == 0) return false;
  }
  return true;
}

/* ---- values ---- */

static bool integer_of(const rv_tensor *value, int64_t *out)
{
#define READ(dtype_number, type)                                                                                                 \
  case dtype_number: {                                                                                                           \
    type read;                                                                                                                   \
    memcpy(&read, value->data, sizeof read);                                                                                     \
    *out = (int64_t)read;                                                                                                        \
    return true;                                                                                                                 \
  }
  switch (value->dtype) {
    READ(RV_INT8, int8_t)
    READ(RV_INT16, int16_t)
    READ(RV_INT32, int32_t)
    READ(RV_INT64, int64_t)
    READ(RV_UINT8, uint8_t)
    READ(RV_UINT16, uint16_t)
    READ(RV_UINT32, uint32_t)
  case RV_BOOL: *out = *(const uint8_t *)value->data != 0; return true;
  case RV_UINT64: {
    uint64_t read;
    memcpy(&read, value->data, sizeof read);
    *out = read > INT64_MAX ? INT64_MAX : (int64_t)read;
    return true;
  }
  default: return false;
  }
#undef READ
}

static double number_of(const rv_tensor *value)
{
  union {
    float f;
    double d;
    int32_t i;
    int64_t l;
  } read;
  memcpy(&read, value->data, rv_dtype_size(value->dtype));
  switch (value->dtype) {
  case RV_FLOAT32: return (double)read.f;
  case RV_FLOAT64: return read.d;
  case RV_INT32: return (double)read.i;
  default: return (double)read.l;
  }
}

static bool is_one_element(const rv_tensor *value)
{
  for (uint32_t d = 0; d < value->rank; d++) {
    if (value->shape[d] != 1) return false;
  }
  return true;
}

static void learn(rv_pattern_source *source, const rv_tensor *value)
{
  source->known = true;
  source->dtype = value->dtype;
  source->rank = value->rank;
  if (value->rank > 0) memcpy(source->shape, value->shape, value->rank * sizeof *value->shape);
}

static void complain(rv_patterns *patterns, const rv_pattern_source *source)
{
  rv_error said;
  char kind[64];
  rv_fail(&said, RV_INVALID_ARGUMENT,
          "conditions on the value of column %u%s%.80s%s never hold: it is %s, and they need one integer or bool a step",
          (unsigned)source->column, source->name == NULL ? "" : " (path=", source->name == NULL ? "" : source->name,
          source->name == NULL ? "" : ")",
          rv_format_spec(kind, sizeof kind, source->dtype, (int32_t)source->rank, source->shape));
  snprintf(patterns->complaint, sizeof patterns->complaint, "%.255s", said.message);
}

void rv_pattern_source_put(rv_patterns *patterns, rv_pattern_source *source, const rv_tensor *value, int64_t row)
{
  uint64_t at = (uint64_t)row & source->mask;
  source->present[at] = 1;
  source->last_missing = source->missing_before;
  bool first = !source->known;
  if (first) learn(source, value);
  if (source->read_integer) {
    source->has_integer = is_one_element(value) && integer_of(value, &source->integer);
    if (first && !source->has_integer) complain(patterns, source);
  }
  if (source->read_number) source->numbers[at] = number_of(value);
}

double rv_pattern_source_td_error(const rv_pattern_source *source, const rv_pattern_span *rows, int64_t first, double weight)
{
  double sum = 0, greatest = 0;
  for (uint32_t i = 0; i < rows->count; i++) {
    double error = fabs(source->numbers[((uint64_t)first + (uint64_t)i * rows->step) & source->mask]);
    sum += error;
    if (error > greatest || isnan(error)) greatest = error;
  }
  return weight * greatest + (1 - weight) * sum / (double)rows->count;
}
