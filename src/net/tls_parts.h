/* What tls.c and tls_transport.c share. */
#ifndef RV_NET_TLS_PARTS_H
#define RV_NET_TLS_PARTS_H

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "net/tls.h"

struct rv_tls {
  atomic_uint refs;
  bool server;
  char *certificate_file, *key_file, *authority_file, *server_name, *revocation_file;
  BIO_METHOD *socket_bio; /* OpenSSL's own would raise SIGPIPE */
  rv_mutex lock;          /* guards context */
  SSL_CTX *context;
};

/* The caller frees it (SSL_CTX_free). */
SSL_CTX *rv_tls_context_ref(rv_tls *tls);
/* NULL: out of memory. */
BIO_METHOD *rv_tls_socket_bio_new(void);

#endif
