/* The program's lines on stderr: the library's, which come from any thread under any lock, and its own.
 *
 * A thread writes them, in their order, so that nobody else waits for a stderr that takes nothing (a pipe that is not read, a terminal
 * that is held). At most 4 MiB wait for it; of what comes beyond that a line says how many were left out, where they would stand. */
#ifndef RV_TOOL_LOG_H
#define RV_TOOL_LOG_H

#include "reverie/reverie.h"

typedef struct server_log server_log;

/* Lines of all levels, until log_set_level. NULL: memory is out. */
server_log *log_begin(void);
/* Waits for what is left, and no longer than a second where stderr takes nothing. NULL is fine. */
void log_end(server_log *owned_log);

/* Before there are other threads. Lines below it are not written. */
void log_set_level(server_log *log, rv_log_level level);
void log_say(server_log *log, rv_log_level level, const char *format, ...) RV_PRINTF(3, 4);
/* An rv_env's `log`, with the log as its `context`. */
void log_line(void *log, rv_log_level level, const char *line);

#endif
