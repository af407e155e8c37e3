/* Ctrl-C where Python cannot see it: TensorFlow runs a graph on threads of its own while Python's main thread waits for it inside
 * TensorFlow, and Python runs its signal handlers on the main thread only, between two instructions. So while a graph can call us SIGINTs are
 * counted, before Python's handler gets them. A thread that waits asks whether the main thread has not come to handle one; then it gives up,
 * the main thread returns from TensorFlow, and Python raises KeyboardInterrupt.
 *
 * This is so while Python's own handler is the one installed, which it is where signal.getsignal(SIGINT) is callable and nobody put another in its
 * place: SIG_IGN, the system's default and handlers of other libraries are left alone, and Ctrl-C ends no wait then. Where Python calls a function
 * that raises nothing, the wait ends all the same, with CANCELLED.
 *
 * A SIGINT that Python handled shortly before a wait began counts as handled if a pending call or interrupts_settle told us so. */
#ifndef RV_PYTHON_INTERRUPTS_H
#define RV_PYTHON_INTERRUPTS_H

#include <stdbool.h>
#include <stdint.h>

/* From here to interrupts_end SIGINTs are counted. Nests; any thread, with the GIL. Returns when that was, monotonic. */
int64_t interrupts_begin(void);
void interrupts_end(void); /* without the GIL or with it, as the others */
/* A wait begins; Python's handler may have been set anew since interrupts_begin. Returns when that was. */
int64_t interrupts_await(void);
/* By Python code that is about to enter TensorFlow: what came until now Python handles before. */
void interrupts_settle(void);
/* Has one come since 200 ms before then that the main thread has not handled in 50 ms? The first time that it is asked it cannot say yes: for
 * who asks now and then. */
bool interrupts_stuck(int64_t since_ns);

#endif
