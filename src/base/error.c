#include "base/error.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Precisions in formats count bytes, and what is named may have been cut before: neither asks where a character ends. */
rv_code rv_vfail(rv_error *err, rv_code code, const char *format, va_list args)
{
  if (err == NULL) return code;
  char text[RV_ERROR_MESSAGE_MAX]; /* for `err` may be among what is named */
  vsnprintf(text, sizeof text, format, args);
  rv_utf8_repair(text);
  err->code = code;
  memcpy(err->message, text, strlen(text) + 1);
  return code;
}

rv_code rv_fail(rv_error *err, rv_code code, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  rv_vfail(err, code, format, args);
  va_end(args);
  return code;
}

rv_code rv_fail_memory(rv_error *err, size_t bytes)
{
  if (bytes == 0) return rv_fail(err, RV_RESOURCE_EXHAUSTED, "out of memory; lower max_size or the rows' size, or add memory");
  return rv_fail(err, RV_RESOURCE_EXHAUSTED,
                 "out of memory: %zu bytes could not be allocated; lower max_size or the rows' size, or add memory", bytes);
}

rv_code rv_error_copy(rv_error *to, const rv_error *from)
{
  if (to != NULL && to != from) *to = *from;
  return from->code;
}

const char *rv_system_error(int number)
{
#if defined __GLIBC__
  const char *text = strerrordesc_np(number);
  return text != NULL ? text : "unknown error";
#else
  return strerror(number);
#endif
}

void rv_error_prefix(rv_error *err, const char *format, ...)
{
  if (err == NULL) return;
  char context[RV_ERROR_MESSAGE_MAX];
  va_list args;
  va_start(args, format);
  vsnprintf(context, sizeof context, format, args);
  va_end(args);
  rv_error old = *err;
  rv_fail(err, old.code, "%s: %s", context, old.message);
}

static const char *const names[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

const char *rv_code_name(rv_code code)
{
  size_t index = (size_t)code;
  return index < sizeof names / sizeof names[0] ? names[index] : "UNKNOWN";
}
