/* Who calls, and what he may do (docs/security.md). Read by all threads; what changes is which one a server has. */
#ifndef RV_SERVER_ACCESS_H
#define RV_SERVER_ACCESS_H

#include "net/net.h"
#include "reverie/security.h"
#include "wire/proto.h"

typedef struct rv_access rv_access;
typedef struct rv_caller rv_caller; /* one of the identities; lives as long as its access */

/* Copies the identities; one reference. Who has a name that `before` (NULL: nobody did) knows goes on with what is counted for it: open
 * calls and bytes (below) are those of a name. RV_INVALID_ARGUMENT names the identity that is wrong. */
rv_code rv_access_new(const rv_identity *identities, size_t num_identities, const rv_access *before, rv_access **out,
                      rv_error *err);
rv_access *rv_access_ref(rv_access *access); /* NULL is fine */
void rv_access_unref(rv_access *access);     /* NULL is fine */

/* By the call's token, else by the certificate its connection showed. *out is NULL where nobody is asked (`access` is NULL).
 * RV_UNAUTHENTICATED: nobody known. */
rv_code rv_access_find(const rv_access *access, rv_call *call, const rv_caller **out, rv_error *err);
/* RV_PERMISSION_DENIED says what the caller may do. A NULL caller may do everything. `table`: with data NULL, every table is needed. */
rv_code rv_caller_check(const rv_caller *caller, rv_right right, rv_span table, rv_error *err);
/* How much those who call by one identity may have at a time, all together. */
typedef struct rv_caller_limits {
  size_t max_streams;
  size_t max_bytes; /* of chunks that are kept for items to come, and of inserts that wait */
} rv_caller_limits;
/* One more call is open; RV_RESOURCE_EXHAUSTED: it may not be. Nothing is counted for NULL. Any thread. */
rv_code rv_caller_take_stream(const rv_caller *caller, const rv_caller_limits *limits, rv_error *err);
void rv_caller_give_stream(const rv_caller *caller);
/* Bytes that one of its streams has more (modulo 2^N: or less), and how many all have then. */
size_t rv_caller_count_bytes(const rv_caller *caller, size_t more);
size_t rv_caller_bytes(const rv_caller *caller); /* 0 for NULL */
/* On whichever table. */
bool rv_caller_may_somewhere(const rv_caller *caller, rv_right right);
/* It has the identity that the caller was found as, with the same secrets and rights. */
bool rv_access_has(const rv_access *access, const rv_caller *caller);
/* Tells callers apart, also after a restart; 0 for NULL. */
uint64_t rv_caller_id(const rv_caller *caller);
const char *rv_caller_name(const rv_caller *caller); /* "anybody" for NULL */

#endif
