/* What writing and reading share. */
#include "persist/record_file.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

static rv_code code_of(int number)
{
  switch (number) {
  case ENOSPC:
  case EDQUOT:
  case EFBIG:
  case ENOMEM:
  case EMFILE:
  case ENFILE: return RV_RESOURCE_EXHAUSTED;
  case EACCES:
  case EPERM:
  case EROFS: return RV_PERMISSION_DENIED;
  case ENOENT: return RV_NOT_FOUND;
  default: return RV_UNKNOWN;
  }
}

rv_code rv_fail_system(rv_error *err, int number, const char *what, const char *path)
{
  return rv_fail(err, code_of(number), "cannot %s %s: %s", what, path, rv_system_error(number));
}
