/* The signals that end the program, and what is saved before it ends. */
#ifndef RV_TOOL_ENDING_H
#define RV_TOOL_ENDING_H

#include "log.h"
#include "reverie/checkpoint.h"
#include "settings.h"

/* The signal that has come to end the program, and that nobody has taken yet; 0: none. All of them are blocked. */
int ending_signal(void);
/* The same for rv_checkpoint_watch: such a signal ends the wait for a large checkpoint, too. */
bool ending_go_on(void *context, const rv_checkpoint_progress *progress);
/* One more checkpoint of a server that has ended, if it saved them by itself; else a line says that none is, as it does where a second signal has given
 * a `status` other than 0 already. With a journal everything is on the disk already. Returns the exit status. */
int ending_save(const settings *all, server_log *log, rv_checkpointer *checkpointer, rv_store *store, int status);

#endif
