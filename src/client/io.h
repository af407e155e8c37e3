/* I/O threads that clients share (rv_io of client.h): one runs while somebody uses it. */
#ifndef RV_CLIENT_IO_H
#define RV_CLIENT_IO_H

#include "net/net.h"
#include "reverie/client.h"

rv_io *rv_io_ref(rv_io *io);
/* The loop that fewest use, started if need be. */
rv_code rv_io_take_loop(rv_io *io, rv_loop **out, rv_error *err);
/* The last to give a loop back waits for its thread to end: not on that thread. */
void rv_io_give_loop(rv_io *io, rv_loop *loop);

#endif
