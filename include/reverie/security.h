/* Who may connect, and what they may do: TLS, and identities with rights.
 *
 * Without any of it a server answers everybody who reaches it, and everything is sent in the clear: right on one machine or in a closed
 * network only. What is in the same process (a client made with a store) is never asked. */
#ifndef REVERIE_SECURITY_H
#define REVERIE_SECURITY_H

#include "reverie/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- TLS ---- */

/* Files in PEM, read when the server or client is made; strings are copied. TLS 1.2 and 1.3. */
typedef struct rv_tls_config {
  size_t size; /* sizeof(rv_tls_config) */
  const char
      *certificate_file; /* one's own, followed by those that link it to its authority. A server needs it; a client shows it to a
                                   server that asks (mutual TLS). NULL: none */
  const char *key_file;  /* of the certificate; NULL: it is in certificate_file */
  const char
      *authority_file;     /* whom to trust. A server: clients must show a certificate that one of these has signed; NULL: none is
                                   asked for. A client: NULL: the system's authorities */
  const char *server_name; /* a client's: the name that the server's certificate must have; NULL: the host of the address */
  /* Lists of revoked certificates (CRL), in PEM: one of each authority between a peer's certificate and the one that is trusted, that included.
   * A peer whose certificate, or an authority's on the way, is in them is refused; so is every peer when one is missing or out of date. With an
   * authority_file. NULL: none are looked at. */
  const char *revocation_file;
} rv_tls_config;

/* ---- identities ---- */

typedef enum rv_right {
  RV_RIGHT_READ = 1, /* sample, get and list items */
  /* insert items. One that is in already, sent again by a client without Reverie's sessions because it was cut off before the
   * confirmation, is RV_PERMISSION_DENIED if its priority was changed meanwhile, which takes RV_RIGHT_UPDATE to undo */
  RV_RIGHT_INSERT = 2,
  RV_RIGHT_UPDATE = 4, /* change priorities, delete items */
  RV_RIGHT_ADMIN = 8   /* reset, change the rate limiter; with every table: save checkpoints. Written to the log */
} rv_right;

typedef struct rv_grant {
  const char *table; /* NULL: every table */
  unsigned rights;   /* rv_right, added up */
} rv_grant;

/* Who a caller is: by the token it sends ("authorization: Bearer TOKEN"), or by the certificate it showed. */
typedef struct rv_identity {
  const char *name;  /* for people: errors and the log */
  const char *token; /* at least 16 characters, none of them a space; NULL: it has none */
  const char
      *certificate_name; /* the common name in its certificate, or the first DNS name where that is missing; NULL: it has none */
  const rv_grant *grants;
  size_t num_grants;
} rv_identity;

#ifdef __cplusplus
}
#endif
#endif
