#include "net/grpc.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

rv_code rv_grpc_code_of_http(int http_status)
{
  switch (http_status) {
  case 400: return RV_INTERNAL;
  case 401: return RV_UNAUTHENTICATED;
  case 403: return RV_PERMISSION_DENIED;
  case 404: return RV_UNIMPLEMENTED;
  case 429:
  case 502:
  case 503:
  case 504: return RV_UNAVAILABLE;
  default: return RV_UNKNOWN;
  }
}

rv_code rv_grpc_code_of_reset(uint32_t error_code)
{
  switch (error_code) {
  case NGHTTP2_REFUSED_STREAM: return RV_UNAVAILABLE;
  case NGHTTP2_CANCEL: return RV_CANCELLED;
  case NGHTTP2_ENHANCE_YOUR_CALM: return RV_RESOURCE_EXHAUSTED;
  case NGHTTP2_INADEQUATE_SECURITY: return RV_PERMISSION_DENIED;
  default: return RV_INTERNAL;
  }
}

rv_code rv_grpc_code_parse(const char *text)
{
  size_t length = strlen(text);
  if (length == 0 || length > 2 || strspn(text, "0123456789") != length) return RV_UNKNOWN;
  int value = length == 1 ? text[0] - '0' : (text[0] - '0') * 10 + (text[1] - '0');
  return value <= RV_UNAUTHENTICATED ? (rv_code)value : RV_UNKNOWN;
}

static const struct unit {
  char name;
  int64_t ns;
} units[] = {
    {'n', 1}, {'u', 1000}, {'m', 1000000}, {'S', 1000000000}, {'M', 60 * INT64_C(1000000000)}, {'H', 3600 * INT64_C(1000000000)}};
enum { NUM_UNITS = sizeof units / sizeof units[0] };

bool rv_grpc_timeout_parse(const char *text, int64_t *out_ns)
{
  size_t digits = strspn(text, "0123456789");
  if (digits < 1 || digits > 8 || text[digits] == '\0' || text[digits + 1] != '\0') return false;
  int64_t value = 0;
  for (size_t i = 0; i < digits; i++) value = value * 10 + (text[i] - '0');
  for (size_t i = 0; i < NUM_UNITS; i++)
    if (units[i].name == text[digits]) {
      *out_ns = value > INT64_MAX / 2 / units[i].ns ? INT64_MAX / 2 : value * units[i].ns;
      return true;
    }
  return false;
}

void rv_grpc_timeout_format(int64_t ns, char out[RV_GRPC_TIMEOUT_CAPACITY])
{
  if (ns < 0) ns = 0;
  for (size_t i = 0; i < NUM_UNITS; i++) {
    int64_t value = ns / units[i].ns + (ns % units[i].ns != 0);
    if (value <= 99999999) {
      snprintf(out, RV_GRPC_TIMEOUT_CAPACITY, "%d%c", (int)value, units[i].name);
      return;
    }
  }
  snprintf(out, RV_GRPC_TIMEOUT_CAPACITY, "99999999H"); /* not reached: 2^63 ns are 2.6 million hours */
}

bool rv_grpc_is_content_type(const char *text)
{
  static const char prefix[] = "application/grpc";
  size_t n = sizeof prefix - 1;
  return strncmp(text, prefix, n) == 0 && (text[n] == '\0' || text[n] == '+' || text[n] == ';');
}
