#include "client/limiter_timeout.h"

#include <string.h>

bool rv_is_limiter_timeout(rv_code code, const char *message)
{
  return code == RV_DEADLINE_EXCEEDED && message != NULL && strstr(message, RV_LIMITER_TIMEOUT_TEXT) != NULL;
}

const char *rv_limiter_timeout_reason(const char *message)
{
  const char *at = strstr(message, RV_LIMITER_TIMEOUT_TEXT);
  if (at == NULL) return "";
  at += sizeof RV_LIMITER_TIMEOUT_TEXT - 1;
  return *at == ' ' ? at + 1 : at;
}

bool rv_is_lost_connection(rv_code code, const char *message)
{
  if (code == RV_UNAVAILABLE || code == RV_CANCELLED) return true;
  return code == RV_UNKNOWN && message != NULL && strcmp(message, "Stream removed") == 0;
}
