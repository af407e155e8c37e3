/* What may be as it is, and hardly is as it was meant: lines on stderr, unless only errors are logged. */
#ifndef RV_TOOL_WARNINGS_H
#define RV_TOOL_WARNINGS_H

#include "settings.h"

/* Rights to tables that `served` has not, and identities without any right. `given` has the identities: of `served` itself, or of the
 * files as they were read again. */
void warn_of_rights(const settings *given, const settings *served);
/* Addresses that others than this machine reach, without TLS or without anything that asks who calls. */
void warn_of_open_addresses(const settings *served);

#endif
