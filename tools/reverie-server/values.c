#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "settings.h"

enum { MAX_SECONDS = 1000000000 };

bool parse_int(const char *text, int64_t min, int64_t max, int64_t *out, rv_error *err)
{
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (*text == '\0' || *end != '\0' || errno != 0 || value < min || value > max) {
    rv_fail(err, RV_INVALID_ARGUMENT, "expected a whole number from %" PRId64 " to %" PRId64 ", got \"%s\"", min, max, text);
    return false;
  }
  *out = value;
  return true;
}

bool parse_double(const char *text, double *out, rv_error *err)
{
  char *end;
  double value = strtod(text, &end);
  if (*text == '\0' || *end != '\0' || isnan(value)) {
    rv_fail(err, RV_INVALID_ARGUMENT, "expected a number, got \"%s\"", text);
    return false;
  }
  *out = value;
  return true;
}

bool parse_bytes(const char *text, int64_t min, int64_t *out, rv_error *err)
{
  static const struct unit {
    const char *name;
    int shift;
  } units[] = {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  while (*end == ' ') end++;
  for (size_t i = 0; end != text && errno == 0 && i < sizeof units / sizeof units[0]; i++)
    if (strcmp(end, units[i].name) == 0 && value >= 0 && value <= INT64_MAX >> units[i].shift && value << units[i].shift >= min) {
      *out = value << units[i].shift;
      return true;
    }
  char least[48] = "";
  if (min > 1) snprintf(least, sizeof least, "; it is at least %" PRId64 " bytes", min);
  rv_fail(err, RV_INVALID_ARGUMENT, "expected a size such as 65536, 64KiB, 256MiB or 1GiB%s, got \"%s\"%s",
          min == 0 ? ", or 0 for no bound" : "", text, least);
  return false;
}

bool parse_right(const char *text, unsigned *rights, rv_error *err)
{
  static const char *const names[] = {"read", "insert", "update", "admin"};
  for (unsigned i = 0; i < 4; i++)
    if (strcmp(names[i], text) == 0) {
      *rights |= 1U << i;
      return true;
    }
  rv_fail(err, RV_INVALID_ARGUMENT, "expected read, insert, update or admin, got \"%.64s\"", text);
  return false;
}

bool parse_seconds(const char *text, int64_t *out_ms, rv_error *err)
{
  double seconds;
  if (!parse_double(text, &seconds, err)) return false;
  if (seconds < 0 || seconds > MAX_SECONDS) {
    rv_fail(err, RV_INVALID_ARGUMENT, "expected a number of seconds from 0 to %d, got \"%s\"", MAX_SECONDS, text);
    return false;
  }
  *out_ms = (int64_t)(seconds * 1000);
  return true;
}

bool parse_seed(arena *memory, const char *text, const uint64_t **out, rv_error *err)
{
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) { /* of "-1" it would make the largest */
    rv_fail(err, RV_INVALID_ARGUMENT, "expected a whole number from 0 to %" PRIu64 ", got \"%s\"", UINT64_MAX, text);
    return false;
  }
  uint64_t *seed = arena_alloc(memory, 1, sizeof *seed);
  *seed = value;
  *out = seed;
  return true;
}

bool parse_path(arena *memory, const char *text, const char **out, rv_error *err)
{
  char here[PATH_MAX];
  *out = arena_copy(memory, text, strlen(text));
  if (text[0] == '~' && (text[1] == '/' || text[1] == '\0')) {
    rv_fail(err, RV_INVALID_ARGUMENT, "\"%.100s\" begins with ~, which only a shell knows; write the directory out", text);
    return false;
  }
  if (text[0] == '/' || text[0] == '\0') return true;
  if (getcwd(here, sizeof here) == NULL) {
    rv_fail(err, RV_INVALID_ARGUMENT,
            "\"%.100s\" is relative to the directory that this was started in, which cannot be found: %s", text, strerror(errno));
    return false;
  }
  while (strncmp(text, "./", 2) == 0) text += 2;
  size_t size = strlen(here) + 1 + strlen(text) + 1;
  char *whole = arena_alloc(memory, size, 1);
  snprintf(whole, size, "%s%s%s", here, strcmp(here, "/") == 0 ? "" : "/", text);
  *out = whole;
  return true;
}

/* ---- selectors ---- */

static const char *const kinds[] = {"fifo", "lifo", "uniform", "max_heap", "min_heap", "prioritized", NULL};

bool selector_kind_from_name(const char *name, rv_selector_kind *out)
{
  for (int i = 0; kinds[i] != NULL; i++)
    if (strcmp(kinds[i], name) == 0) {
      *out = (rv_selector_kind)(RV_SELECTOR_FIFO + i);
      return true;
    }
  return false;
}

bool parse_selector(arena *memory, const char *text, rv_selector_config *out, rv_error *err)
{
  size_t length = strcspn(text, ":");
  const char *rest = text[length] == ':' ? text + length + 1 : NULL;
  rv_selector_config config = {0};
  if (!selector_kind_from_name(arena_copy(memory, text, length), &config.kind)) {
    rv_fail(err, RV_INVALID_ARGUMENT,
            "\"%s\" is no selector; there are fifo, lifo, uniform, max_heap, min_heap and prioritized:EXPONENT", text);
    return false;
  }
  if (config.kind == RV_SELECTOR_PRIORITIZED) {
    if (rest == NULL) {
      rv_fail(err, RV_INVALID_ARGUMENT, "a prioritized selector needs its exponent: prioritized:0.6");
      return false;
    }
    if (!parse_double(rest, &config.priority_exponent, err)) return false;
  } else if (rest != NULL) {
    rv_fail(err, RV_INVALID_ARGUMENT, "selector %.*s takes no parameter, got \"%s\"", (int)length, text, rest);
    return false;
  }
  *out = config;
  return true;
}

/* ---- rate limiters ---- */

static rv_rate_limiter_config make_min_size(const double *n)
{
  return rv_rate_limiter_min_size((int64_t)n[0]);
}
static rv_rate_limiter_config make_ratio(const double *n)
{
  return rv_rate_limiter_sample_to_insert_ratio(n[0], (int64_t)n[1], n[2]);
}
static rv_rate_limiter_config make_queue(const double *n)
{
  return rv_rate_limiter_queue((int64_t)n[0]);
}
static rv_rate_limiter_config make_stack(const double *n)
{
  return rv_rate_limiter_stack((int64_t)n[0]);
}
static rv_rate_limiter_config make_general(const double *n)
{
  return (rv_rate_limiter_config){
      .samples_per_insert = n[0], .min_size_to_sample = (int64_t)n[1], .min_diff = n[2], .max_diff = n[3]};
}

static const limiter_kind limiters[] = {
    {"min_size", {"min_size", NULL}, make_min_size},
    {"sample_to_insert_ratio", {"samples_per_insert", "min_size", "error_buffer", NULL}, make_ratio},
    {"queue", {"size", NULL}, make_queue},
    {"stack", {"size", NULL}, make_stack},
    {"general", {"samples_per_insert", "min_size", "min_diff", "max_diff", NULL}, make_general},
    {NULL, {NULL}, NULL},
};

const limiter_kind *limiter_kinds(void)
{
  return limiters;
}

const limiter_kind *limiter_kind_find(const char *name)
{
  for (const limiter_kind *kind = limiters; kind->name != NULL; kind++)
    if (strcmp(kind->name, name) == 0) return kind;
  return NULL;
}

/* Sizes are whole numbers: 2^53 is far beyond max_size. */
static bool check_number(const char *name, double value, rv_error *err)
{
  bool is_size = strcmp(name, "min_size") == 0 || strcmp(name, "size") == 0;
  if (!is_size || (value == floor(value) && fabs(value) < 9e15)) return true;
  rv_fail(err, RV_INVALID_ARGUMENT, "%s must be a whole number, got %g", name, value);
  return false;
}

/* In the words of who gave an error buffer, and no bounds. */
static void explain_ratio(const double *numbers, rv_error *err)
{
  double ratio = numbers[0], least = ratio > 1 ? ratio : 1, buffer = numbers[2];
  if (!(ratio > 0) || numbers[1] < 1 || buffer >= least) return;
  rv_fail(
      err, RV_INVALID_ARGUMENT,
      "error_buffer is %g; give at least max(1, samples_per_insert) = %g: with less, inserts and samples come to wait for each "
      "other for ever",
      buffer, least);
}

bool parse_rate_limiter(const char *text, rv_rate_limiter_config *out, rv_error *err)
{
  char copy[256];
  double numbers[4];
  size_t count = 0, length = strlen(text);
  if (length >= sizeof copy) {
    rv_fail(err, RV_INVALID_ARGUMENT, "\"%.32s...\" is too long for a rate limiter", text);
    return false;
  }
  memcpy(copy, text, length + 1);
  char *rest = copy, *name = strsep(&rest, ":");
  const limiter_kind *kind = limiter_kind_find(name);
  if (kind == NULL) {
    rv_fail(err, RV_INVALID_ARGUMENT,
            "\"%s\" is no rate limiter; there are min_size:N, sample_to_insert_ratio:RATIO:MIN_SIZE:ERROR_BUFFER, queue:N, "
            "stack:N and "
            "general:SAMPLES_PER_INSERT:MIN_SIZE:MIN_DIFF:MAX_DIFF",
            text);
    return false;
  }
  while (rest != NULL) {
    const char *part = strsep(&rest, ":");
    if (kind->numbers[count] == NULL) {
      rv_fail(err, RV_INVALID_ARGUMENT, "rate limiter %s takes %zu parameters, got more: \"%s\"", kind->name, count, text);
      return false;
    }
    if (!parse_double(part, &numbers[count], err) || !check_number(kind->numbers[count], numbers[count], err)) return false;
    count++;
  }
  if (kind->numbers[count] != NULL) {
    rv_fail(err, RV_INVALID_ARGUMENT, "rate limiter %s lacks its %s, in \"%s\"", kind->name, kind->numbers[count], text);
    return false;
  }
  *out = kind->make(numbers);
  if (rv_rate_limiter_check(out, err) == RV_OK) return true;
  if (kind->make == make_ratio) explain_ratio(numbers, err);
  return false;
}
