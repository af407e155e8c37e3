/* Status codes and error sentences.
 *
 * Every function that can fail returns an rv_code: gRPC's codes, so that one error means one thing from C to the wire to
 * Python. Where a function takes an rv_error, it fills it with a sentence that names the thing and the remedy; the caller
 * owns the rv_error and may pass NULL. On RV_OK the rv_error is left as it was. */
#ifndef REVERIE_STATUS_H
#define REVERIE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RV_API __attribute__((visibility("default")))
#define RV_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#else
#define RV_API
#define RV_PRINTF(format_index, first_argument)
#endif

typedef enum rv_code {
  RV_OK = 0,
  RV_CANCELLED = 1,
  RV_UNKNOWN = 2,
  RV_INVALID_ARGUMENT = 3,
  RV_DEADLINE_EXCEEDED = 4,
  RV_NOT_FOUND = 5,
  RV_ALREADY_EXISTS = 6,
  RV_PERMISSION_DENIED = 7,
  RV_RESOURCE_EXHAUSTED = 8,
  RV_FAILED_PRECONDITION = 9,
  RV_ABORTED = 10,
  RV_OUT_OF_RANGE = 11,
  RV_UNIMPLEMENTED = 12,
  RV_INTERNAL = 13,
  RV_UNAVAILABLE = 14,
  RV_DATA_LOSS = 15,
  RV_UNAUTHENTICATED = 16
} rv_code;

#define RV_ERROR_MESSAGE_MAX 512

typedef struct rv_error {
  rv_code code;
  char message[RV_ERROR_MESSAGE_MAX]; /* NUL-terminated UTF-8; cut at a character border if it would not fit */
} rv_error;

/* The code's name as gRPC spells it, "INVALID_ARGUMENT"; "UNKNOWN" for a number that is no code. Static storage. */
RV_API const char *rv_code_name(rv_code code);

#ifdef __cplusplus
}
#endif
#endif
