#include <stdio.h>
#include <string.h>
#include <time.h>

#include "persist/checkpoint_dir.h"

/* Years of which every moment has a number of nanoseconds. A clock that was never set is in 1970, which west of Greenwich is 1969. */
enum { NS_PER_S = 1000000000, FIRST_YEAR = 1678, LAST_YEAR = 2261 };

void rv_checkpoint_name(int64_t wall_ns, char out[RV_CHECKPOINT_NAME_MAX])
{
  int64_t seconds = wall_ns / NS_PER_S, fraction = wall_ns % NS_PER_S;
  if (fraction < 0) {
    seconds--;
    fraction += NS_PER_S;
  }
  time_t time = (time_t)seconds;
  struct tm local;
  char digits[16] = "";
  if (localtime_r(&time, &local) == NULL) gmtime_r(&time, &local);
  size_t at = strftime(out, RV_CHECKPOINT_NAME_MAX, "%Y-%m-%dT%H:%M:%S", &local);
  if (fraction > 0) {
    snprintf(digits, sizeof digits, ".%09lld", (long long)fraction);
    for (char *last = digits + 9; *last == '0'; last--) *last = '\0';
  }
  long offset = local.tm_gmtoff / 60, minutes = offset < 0 ? -offset : offset;
  snprintf(out + at, RV_CHECKPOINT_NAME_MAX - at, "%s%c%02ld:%02ld", digits, offset < 0 ? '-' : '+', minutes / 60, minutes % 60);
}

static bool number(const char **at, size_t digits, int *out)
{
  *out = 0;
  for (; digits > 0; digits--, ++*at) {
    if (**at < '0' || **at > '9') return false;
    *out = *out * 10 + (**at - '0');
  }
  return true;
}

static bool skip(const char **at, char c)
{
  return *(*at)++ == c;
}

bool rv_checkpoint_name_parse(const char *name, int64_t *wall_ns)
{
  const char *at = name;
  struct tm tm = {0};
  int fraction = 0, hours = 0, minutes = 0;
  if (strlen(name) >= RV_CHECKPOINT_NAME_MAX) return false;
  if (!number(&at, 4, &tm.tm_year) || !skip(&at, '-') || !number(&at, 2, &tm.tm_mon) || !skip(&at, '-') ||
      !number(&at, 2, &tm.tm_mday) || !skip(&at, 'T') || !number(&at, 2, &tm.tm_hour) || !skip(&at, ':') ||
      !number(&at, 2, &tm.tm_min) || !skip(&at, ':') || !number(&at, 2, &tm.tm_sec))
    return false;
  if (tm.tm_year < FIRST_YEAR || tm.tm_year > LAST_YEAR || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
      tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
    return false;
  if (*at == '.') {
    int scale = NS_PER_S, digit;
    at++;
    if (*at < '0' || *at > '9') return false;
    for (; *at >= '0' && *at <= '9'; at++) {
      digit = *at - '0';
      scale /= 10;
      fraction += digit * scale; /* digits beyond the ninth count nothing */
    }
  }
  if (*at == 'Z') {
    at++;
  } else {
    int sign = *at == '-' ? -1 : 1;
    if (*at != '-' && *at != '+') return false;
    at++;
    if (!number(&at, 2, &hours) || !skip(&at, ':') || !number(&at, 2, &minutes)) return false;
    hours *= sign;
    minutes *= sign;
  }
  if (*at != '\0') return false;
  tm.tm_year -= 1900;
  tm.tm_mon -= 1;
  *wall_ns = ((int64_t)timegm(&tm) - hours * 3600 - minutes * 60) * NS_PER_S + fraction;
  return true;
}
