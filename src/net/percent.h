/* What peers say in words. Percent coding of grpc-message: printable ASCII stays, all else travels as %XX. */
#ifndef RV_NET_PERCENT_H
#define RV_NET_PERCENT_H

#include <stddef.h>

/* Writes the coded text, always terminated; what does not fit into `capacity` is cut between characters. Returns its length. */
size_t rv_percent_encode(const char *text, char *out, size_t capacity);
/* The way back. Lenient, as gRPC asks: a `%` that begins no valid code stays as it is. The result is UTF-8 without control
 * characters: what is neither becomes '?', since it ends in logs and exceptions. Returns its length. */
size_t rv_percent_decode(const char *text, char *out, size_t capacity);
/* The same of a text that a peer sent as it is. */
void rv_make_readable(char *text);

#endif
