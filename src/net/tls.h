/* TLS (OpenSSL): the certificates of a server or a client, and the transport of a connection that uses them. */
#ifndef RV_NET_TLS_H
#define RV_NET_TLS_H

#include "base/env.h"
#include "net/transport.h"
#include "reverie/security.h"

/* Reference counted, thread-safe. */
typedef struct rv_tls rv_tls;

/* Reads the files. RV_INVALID_ARGUMENT names the file and what is wrong with it. */
rv_code rv_tls_new(const rv_tls_config *config, bool server, rv_tls **out, rv_error *err);
rv_tls *rv_tls_ref(rv_tls *tls);
void rv_tls_unref(rv_tls *tls); /* NULL is fine */
/* Reads the files again, for connections that begin from now on. After an error all is as before. */
rv_code rv_tls_reload(rv_tls *tls, rv_error *err);
/* A server's, after it was made: lines for the log about certificates and revocation lists that expire in at most two weeks (or, where they do
 * not last six, a third of their time), and about those that have. Only about what was in another state at `before_s`; 0: about all. Seconds
 * since 1970. */
void rv_tls_log_dates(rv_tls *tls, const rv_env *env, int64_t before_s, int64_t now_s);

/* Takes the socket; on an error it is left to the caller. `host`: where a client's server is, to be found in its certificate. The handshake
 * happens in the first reads and writes. */
rv_code rv_transport_init_tls(rv_transport *transport, int fd, rv_tls *tls, const char *host, rv_error *err);

#endif
