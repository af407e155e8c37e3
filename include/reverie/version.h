/* The library's version, at compile time and at run time. */
#ifndef REVERIE_VERSION_H
#define REVERIE_VERSION_H

#include "reverie/status.h"

#define RV_VERSION_MAJOR 0
#define RV_VERSION_MINOR 1
#define RV_VERSION_PATCH 0
#define RV_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* RV_VERSION as the loaded library has it. */
RV_API const char *rv_version(void);

#ifdef __cplusplus
}
#endif
#endif
