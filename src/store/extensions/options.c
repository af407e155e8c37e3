#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/extensions/extension.h"

rv_code rv_option_next(const char **at, rv_option *option, bool *found, rv_error *err)
{
  *found = false;
  if (*at == NULL || **at == '\0') return RV_OK;
  size_t length = strcspn(*at, ",");
  const char *equals = memchr(*at, '=', length);
  size_t name = equals != NULL ? (size_t)(equals - *at) : 0;
  size_t value = equals != NULL ? length - name - 1 : 0;
  bool more = (*at)[length] == ',';
  if (name == 0 || value == 0 || name >= sizeof option->name || value >= sizeof option->value ||
      (more && (*at)[length + 1] == '\0'))
    return rv_fail(err, RV_INVALID_ARGUMENT, "options \"%.100s\": expected \"name=value,name=value\"", *at);
  *option = (rv_option){0};
  memcpy(option->name, *at, name);
  memcpy(option->value, equals + 1, value);
  *at += length + more;
  *found = true;
  return RV_OK;
}

rv_code rv_option_int(const rv_option *option, int64_t min, int64_t max, int64_t *out, rv_error *err)
{
  char *end;
  errno = 0;
  long long value = strtoll(option->value, &end, 10);
  bool number = end != option->value && *end == '\0' && !isspace((unsigned char)option->value[0]);
  if (!number || errno != 0 || value < min || value > max)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s=%s: expected a whole number from %lld to %lld", option->name, option->value,
                   (long long)min, (long long)max);
  *out = value;
  return RV_OK;
}

/* Not strtod, whose decimal point the process's locale decides. */
static bool parse_double(const char *at, double *out)
{
  bool negative = *at == '-';
  if (negative) at++;
  double value = 0;
  int digits = 0, exponent = 0;
  for (bool fraction = false; isdigit((unsigned char)*at) || (*at == '.' && !fraction); at++) {
    if (*at == '.') {
      fraction = true;
      continue;
    }
    value = value * 10 + (*at - '0');
    digits++;
    exponent -= fraction;
  }
  if (digits == 0) return false;
  if (*at == 'e' || *at == 'E') {
    char *end;
    long written = strtol(++at, &end, 10);
    if (end == at || isspace((unsigned char)*at) || written < -400 || written > 400) return false;
    exponent += (int)written;
    at = end;
  }
  double scale = pow(10, abs(exponent));
  *out = (negative ? -value : value) * (exponent > 0 ? scale : 1) / (exponent < 0 ? scale : 1);
  return *at == '\0' && isfinite(*out);
}

rv_code rv_option_double(const rv_option *option, double min, double max, double *out, rv_error *err)
{
  double value;
  if (!parse_double(option->value, &value) || value < min || value > max)
    return rv_fail(err, RV_INVALID_ARGUMENT, "%s=%s: expected a number from %g to %g", option->name, option->value, min, max);
  *out = value;
  return RV_OK;
}
