/* Parts that several messages are written with. */
#ifndef RV_WIRE_PUT_H
#define RV_WIRE_PUT_H

#include "wire/messages.h"

void rv_put_int32(rv_writer_buf *out, uint32_t field, int32_t value); /* negative ones take ten bytes, as protobuf has it */
void rv_put_time(rv_writer_buf *out, uint32_t field, int64_t ns);     /* google.protobuf.Timestamp; 0: left out */
void rv_put_slice(rv_writer_buf *out, const rv_wire_slice *slice);    /* as field 1 of a Column */

#endif
