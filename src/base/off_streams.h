/* Descriptors that are none of the three streams'. Where a program was started without its stderr, say, or has closed it, the next file that is
 * opened gets the number 2, and whatever anybody prints there is written into that file. */
#ifndef RV_BASE_OFF_STREAMS_H
#define RV_BASE_OFF_STREAMS_H

/* The same open file under a number above 2, where the given one, which is closed then, is not; it is not inherited by other programs. A negative
 * one is returned as it is. -1, with errno: there is no other number, and it was closed. */
int rv_off_streams(int fd);

#endif
