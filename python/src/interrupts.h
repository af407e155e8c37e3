/* Ctrl-C where Python cannot see it: TensorFlow runs a graph on threads of its own while Python's main thread waits for it inside
 * TensorFlow, and Python runs its signal handlers on the main thread only, between two instructions. So while a graph can call us SIGINTs are
 * counted, before Python's handler gets them. A thread that waits asks whether the main thread has not come to handle one; then it gives up,
 * the main thread returns from TensorFlow, and Python raises KeyboardInterrupt.
 *
 * Whoever set SIGINT to something else than Python's handler (SIG_IGN, the system's default, another library's) is left alone. */
#ifndef RV_PYTHON_INTERRUPTS_H
#define RV_PYTHON_INTERRUPTS_H

#include <stdbool.h>
#include <stdint.h>

/* From here to interrupts_end SIGINTs are counted. Nests; any thread, without the GIL or with it. Returns when that was, monotonic. */
int64_t interrupts_begin(void);
void interrupts_end(void);
/* Has one come since 200 ms before then that the main thread has not handled in 50 ms? The first time that it is asked it cannot say yes: for
 * who asks now and then. */
bool interrupts_stuck(int64_t since_ns);

#endif
