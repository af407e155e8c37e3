/* The writer under a structured writer, for those who wait with it. */
#ifndef RV_CLIENT_STRUCTURED_WRITER_H
#define RV_CLIENT_STRUCTURED_WRITER_H

#include "reverie/structured_writer.h"

/* It stays the structured writer's. */
rv_writer *rv_structured_writer_inner(const rv_structured_writer *structured);

#endif
