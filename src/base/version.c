#include "reverie/version.h"

const char *rv_version(void)
{
  return RV_VERSION;
}
