/* The limit of open files, of which each connection takes one. */
#ifndef RV_TOOL_OPEN_FILES_H
#define RV_TOOL_OPEN_FILES_H

#include "log.h"
#include "settings.h"

/* Raises the process's limit as far as it may, and says how many connections the server is to take: as many as configured, or, with a
 * warning, fewer, so that what the limit allows is also enough for its own files, those of journal and checkpoints above all. */
size_t open_files_bound_connections(server_log *log, const settings *all);

#endif
