/* What tls.c, tls_dates.c and tls_transport.c share. */
#ifndef RV_NET_TLS_PARTS_H
#define RV_NET_TLS_PARTS_H

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "net/tls.h"

/* Seconds since 1970. */
typedef struct rv_tls_date {
  int64_t notice_s; /* from here on it is worth a warning, */
  int64_t end_s;    /* and from here on an error; INT64_MAX: never */
} rv_tls_date;

/* Of a server's files; of several in one file the earliest. */
typedef struct rv_tls_dates {
  rv_tls_date certificate, authority, revocations;
} rv_tls_dates;

struct rv_tls {
  atomic_uint refs;
  bool server;
  char *certificate_file, *key_file, *authority_file, *server_name, *revocation_file;
  BIO_METHOD *socket_bio; /* OpenSSL's own would raise SIGPIPE */
  rv_mutex lock;          /* guards what follows */
  SSL_CTX *context;
  rv_tls_dates dates; /* a server's */
};

/* The caller frees it (SSL_CTX_free). */
SSL_CTX *rv_tls_context_ref(rv_tls *tls);
/* Of one that nobody else uses yet. */
void rv_tls_note_dates(SSL_CTX *context, rv_tls_dates *out);
/* NULL: out of memory. */
BIO_METHOD *rv_tls_socket_bio_new(void);

#endif
