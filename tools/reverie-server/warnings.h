/* What may be as it is, and hardly is as it was meant: lines of the log. */
#ifndef RV_TOOL_WARNINGS_H
#define RV_TOOL_WARNINGS_H

#include "log.h"
#include "settings.h"

/* Rights to tables that `served` has not, identities without any right, those known by certificates that nobody is asked for, and an empty list
 * of them. `given` has the identities: of `served` itself, or of the files as they were read again. */
void warn_of_rights(server_log *log, const settings *given, const settings *served);
/* Addresses that others than this machine reach, without TLS or without anything that asks who calls. */
void warn_of_open_addresses(server_log *log, const settings *served);
/* A limit of memory that holds hardly anything, more than the machine has, or less than one and a half times the bounds of all tables,
 * and a table's bound that holds hardly anything. */
void warn_of_memory(server_log *log, const settings *served);
/* A timeout of 0, which is the default. */
void warn_of_timeouts(server_log *log, const settings *served);
/* A fallback that is no checkpoint: a start looks at it only where it finds no other. */
void warn_of_fallback(server_log *log, const settings *served);

#endif
