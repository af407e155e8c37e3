/* A few large buffers kept for their next use: memory that is given back to the system and touched again costs more than what is
 * written to it. Thread-safe, without a lock. */
#ifndef RV_BASE_SPARES_H
#define RV_BASE_SPARES_H

#include "base/buf.h"

typedef struct rv_spares rv_spares;

rv_spares *rv_spares_new(void); /* NULL when memory is out */
/* Drops the caller's reference; buffers that are still in use are freed when they go. NULL is fine. */
void rv_spares_unref(rv_spares *spares);
/* As rv_buf_new; comes back by itself at its last unref. */
rv_buf *rv_spares_take(rv_spares *spares, size_t capacity);

#endif
