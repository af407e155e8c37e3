/* What gRPC's specification says about numbers: which status an HTTP status or a reset stands for, and how timeouts are written.
 */
#ifndef RV_NET_GRPC_H
#define RV_NET_GRPC_H

#include "reverie/status.h"

/* The status of a response that has an HTTP status but no grpc-status. */
rv_code rv_grpc_code_of_http(int http_status);
/* The status of a stream that was reset with this HTTP/2 error code. */
rv_code rv_grpc_code_of_reset(uint32_t error_code);
/* A grpc-status value; RV_UNKNOWN when it is no number or not one of gRPC's. */
rv_code rv_grpc_code_parse(const char *text);

/* "5S", "100m" ... in nanoseconds, at most INT64_MAX / 2. false: it is not a timeout. */
bool rv_grpc_timeout_parse(const char *text, int64_t *out_ns);

enum { RV_GRPC_TIMEOUT_CAPACITY = 10 };
/* The finest unit in which it fits into eight digits, rounded up. Negative is 0. */
void rv_grpc_timeout_format(int64_t ns, char out[RV_GRPC_TIMEOUT_CAPACITY]);

/* "application/grpc", alone or followed by '+' or ';'. */
bool rv_grpc_is_content_type(const char *text);

#endif
