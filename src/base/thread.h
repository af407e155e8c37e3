/* Threads of the library's own. */
#ifndef RV_BASE_THREAD_H
#define RV_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread that takes no signals: those are for the program's own threads. `name` is what the system shows for it, of which it may know
 * 15 bytes. 0, or the error's number, with which *out is as it was. */
int rv_thread_start(pthread_t *out, const char *name, void *(*run)(void *context), void *context);

#endif
