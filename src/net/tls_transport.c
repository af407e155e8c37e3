/* A connection in TLS. Records go out as large as they may be, small pieces copied together; what OpenSSL has decrypted and nobody has asked
 * for yet is told by `pending`, since the socket does not know of it any more. */
#include <errno.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "net/socket.h"
#include "net/tls_parts.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum { RECORD = 16384, PEER_NAME = 256 };
enum { SMALL_RECORDS = 64, FEW_BYTES = 1024 /* of a record, which takes as long as so many */ };

typedef struct tls_state {
  rv_tls *tls; /* one reference */
  SSL *ssl;
  int fd;
  bool ended;       /* the socket's */
  bool heard;       /* a byte came */
  bool agreed;      /* the handshake is over, and what came out of it is right */
  bool has_outcome; /* the next read's, `outcome`: what ended this one came behind bytes */
  ssize_t outcome;
  int error;  /* the socket's last; 0: none */
  char *host; /* a client's; NULL at a server */
  char peer_name[PEER_NAME];
  char problem[256];
} tls_state;

/* ---- the socket under it ---- */

static int moved(BIO *bio, tls_state *state, ssize_t n, int flag)
{
  BIO_clear_retry_flags(bio);
  if (n >= 0) return (int)n;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
    BIO_set_flags(bio, flag | BIO_FLAGS_SHOULD_RETRY);
  else
    state->error = errno;
  return -1;
}

static int bio_read(BIO *bio, char *data, int size)
{
  tls_state *state = BIO_get_data(bio);
  ssize_t n = recv(state->fd, data, (size_t)size, 0);
  if (n == 0) state->ended = true;
  if (n > 0) state->heard = true;
  return moved(bio, state, n, BIO_FLAGS_READ);
}

static int bio_write(BIO *bio, const char *data, int size)
{
  tls_state *state = BIO_get_data(bio);
  return moved(bio, state, send(state->fd, data, (size_t)size, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
  (void)number, (void)pointer;
  const tls_state *state = BIO_get_data(bio);
  return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && state->ended);
}

BIO_METHOD *rv_tls_socket_bio_new(void)
{
  BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "reverie socket");
  if (method == NULL) return NULL;
  BIO_meth_set_read(method, bio_read);
  BIO_meth_set_write(method, bio_write);
  BIO_meth_set_ctrl(method, bio_control);
  return method;
}

/* ---- what goes wrong ---- */

static void explain_certificate(tls_state *state)
{
  long result = SSL_get_verify_result(state->ssl);
  const char *why = X509_verify_cert_error_string(result);
  const char *name = state->tls->server_name != NULL ? state->tls->server_name : state->host;
  if (state->tls->server && result == X509_V_ERR_CRL_HAS_EXPIRED)
    snprintf(state->problem, sizeof state->problem,
             "the revocation list has expired; fetch the authority's new one, and have it read again");
  else if (state->tls->server)
    snprintf(state->problem, sizeof state->problem, "its certificate is not trusted: %s", why);
  else if (result == X509_V_ERR_CERT_HAS_EXPIRED)
    snprintf(state->problem, sizeof state->problem,
             "the certificate of the server at %.100s has expired, or its authority's has; have it renewed there", state->host);
  else if (result == X509_V_ERR_CERT_NOT_YET_VALID)
    snprintf(state->problem, sizeof state->problem,
             "the certificate of the server at %.100s is not valid yet; are the clocks right, here and where it was made?",
             state->host);
  else if (result == X509_V_ERR_CRL_HAS_EXPIRED)
    snprintf(state->problem, sizeof state->problem, "the revocation list \"%.100s\" has expired; fetch the authority's new one",
             state->tls->revocation_file);
  else if (result == X509_V_ERR_CERT_REVOKED)
    snprintf(state->problem, sizeof state->problem, "the certificate of the server at %.100s was revoked by its authority",
             state->host);
  else if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH)
    snprintf(state->problem, sizeof state->problem,
             "the server at %.100s shows a certificate for another name than \"%.60s\"; give its name as server_name",
             state->host, name);
  else
    snprintf(state->problem, sizeof state->problem,
             "the certificate of the server at %.80s is not trusted: %.60s; give the authority that signed it", state->host, why);
}

static void explain(tls_state *state)
{
  unsigned long error = ERR_peek_error();
  int reason = ERR_GET_REASON(error);
  const char *peer = state->host != NULL ? state->host : "the client";
  const char *text = ERR_reason_error_string(error);
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
    explain_certificate(state);
  else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_PACKET_LENGTH_TOO_LONG)
    snprintf(state->problem, sizeof state->problem, "%.100s does not speak TLS%s", peer,
             state->host != NULL ? "; leave TLS out, or turn it on at the server" : "");
  else if (reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED || reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
    snprintf(state->problem, sizeof state->problem, "%s",
             state->host != NULL ? "the server wants a certificate of this client; give a certificate and its key"
                                 : "the client showed no certificate");
  else if (reason == SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED)
    snprintf(state->problem, sizeof state->problem,
             "%.100s says that our certificate was revoked; ask its authority for a new one", peer);
  else if (reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED)
    snprintf(state->problem, sizeof state->problem, "%.100s says that our certificate has expired%s", peer,
             state->host != NULL ? ", or its revocation list has; renew whichever did" : "; renew it");
  else if (reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA || reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE)
    snprintf(state->problem, sizeof state->problem, "%.100s does not trust our certificate; is it signed by the right authority?",
             peer);
  else
    snprintf(state->problem, sizeof state->problem, "TLS with %.100s failed: %.100s", peer,
             text != NULL ? text : "no reason is given");
}

/* After a read or write that moved nothing. */
static ssize_t outcome(rv_transport *transport, int rc, bool reads)
{
  tls_state *state = transport->state;
  int error = SSL_get_error(state->ssl, rc);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    if (reads)
      transport->read_awaits_writable = error == SSL_ERROR_WANT_WRITE;
    else
      transport->write_awaits_readable = error == SSL_ERROR_WANT_READ;
    return -EAGAIN;
  }
  if (error == SSL_ERROR_ZERO_RETURN || (error == SSL_ERROR_SYSCALL && state->ended)) return reads ? 0 : -EPIPE;
  if (error == SSL_ERROR_SYSCALL && state->error != 0) return -state->error;
  explain(state);
  transport->problem = state->problem;
  ERR_clear_error();
  return -EPROTO;
}

/* ---- the handshake ---- */

/* False: memory is out. */
static bool note_peer_name(tls_state *state)
{
  X509 *certificate = SSL_get0_peer_certificate(state->ssl);
  if (certificate == NULL || !state->tls->server) return true;
  char name[PEER_NAME];
  int n = X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
  if (n > 0 && (size_t)n == strlen(name)) snprintf(state->peer_name, sizeof state->peer_name, "%s", name);
  if (n > 0) return true;
  int found;
  GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, &found, NULL);
  if (names == NULL) return found == -1; /* what is there could be read when the certificate was verified */
  for (int i = 0; i < sk_GENERAL_NAME_num(names) && state->peer_name[0] == '\0'; i++) {
    const GENERAL_NAME *at = sk_GENERAL_NAME_value(names, i);
    if (at->type != GEN_DNS) continue;
    const char *text = (const char *)ASN1_STRING_get0_data(at->d.dNSName);
    int size = ASN1_STRING_length(at->d.dNSName);
    if (size > 0 && size < PEER_NAME && memchr(text, '\0', (size_t)size) == NULL)
      snprintf(state->peer_name, sizeof state->peer_name, "%.*s", size, text);
  }
  GENERAL_NAMES_free(names);
  return true;
}

static ssize_t shake_hands(rv_transport *transport, bool reads)
{
  tls_state *state = transport->state;
  if (transport->problem != NULL && !state->agreed) return -EPROTO;
  if (state->agreed) return 0;
  int rc = SSL_do_handshake(state->ssl);
  if (rc != 1) {
    ssize_t n = outcome(transport, rc, reads);
    if (n != 0) return n;
    snprintf(state->problem, sizeof state->problem, "%.100s ended the connection in the TLS handshake; does it speak TLS?",
             state->host != NULL ? state->host : "the client");
    transport->problem = state->problem;
    return -EPROTO;
  }
  const unsigned char *protocol;
  unsigned size;
  SSL_get0_alpn_selected(state->ssl, &protocol, &size);
  if (!state->tls->server && (size != 2 || memcmp(protocol, "h2", 2) != 0)) {
    snprintf(state->problem, sizeof state->problem,
             "%.100s speaks TLS, but not HTTP/2 (gRPC) in it; is it a Reverie or Reverb server?", state->host);
    transport->problem = state->problem;
    return -EPROTO;
  }
  if (!note_peer_name(state)) { /* it is to come again, rather than be nobody for as long as it stays */
    transport->problem = "memory was out for the name in the client's certificate";
    return -EPROTO;
  }
  state->agreed = true;
  return 0;
}

/* 0: the handshake is over, now or before. What failed once fails again for the same reason. */
static ssize_t agree(rv_transport *transport, bool reads)
{
  const tls_state *state = transport->state;
  ssize_t failed = shake_hands(transport, reads);
  transport->disagreed = failed != 0 && failed != -EAGAIN && state->heard;
  return failed;
}

/* ---- the transport ---- */

/* Of a peer that puts little into each record one read takes few of them: the socket tells of the rest when others have had their turn. */
static ssize_t tls_read(rv_transport *transport, const struct iovec *vec, int count)
{
  tls_state *state = transport->state;
  ERR_clear_error();
  transport->read_awaits_writable = false;
  ssize_t failed = agree(transport, true), total = 0, records = 0;
  if (failed != 0) return failed;
  if (state->has_outcome) return state->outcome;
  for (int i = 0; i < count; i++)
    for (size_t at = 0; at < vec[i].iov_len;) {
      size_t n;
      int rc = SSL_read_ex(state->ssl, (char *)vec[i].iov_base + at, vec[i].iov_len - at, &n);
      if (rc != 1) {
        ssize_t end = outcome(transport, rc, true);
        if (total == 0 || end == -EAGAIN) return total > 0 ? total : end;
        state->has_outcome = true;
        state->outcome = end;
        return total;
      }
      at += n;
      total += (ssize_t)n;
      if (++records > SMALL_RECORDS + total / FEW_BYTES && SSL_pending(state->ssl) == 0) return total;
    }
  return total;
}

/* The next record's bytes: in place where one piece has enough, else copied together. */
static size_t next_record(const struct iovec *vec, int count, int i, size_t at, char *room, const char **out)
{
  if (vec[i].iov_len - at >= RECORD) {
    *out = (const char *)vec[i].iov_base + at;
    return RECORD;
  }
  size_t size = 0;
  for (; i < count && size < RECORD; i++, at = 0) {
    size_t n = vec[i].iov_len - at < RECORD - size ? vec[i].iov_len - at : RECORD - size;
    memcpy(room + size, (const char *)vec[i].iov_base + at, n);
    size += n;
  }
  *out = room;
  return size;
}

static ssize_t tls_write(rv_transport *transport, const struct iovec *vec, int count)
{
  tls_state *state = transport->state;
  ERR_clear_error();
  transport->write_awaits_readable = false;
  ssize_t failed = agree(transport, false), total = 0;
  if (failed != 0) return failed;
  char room[RECORD];
  size_t at = 0;
  for (int i = 0; i < count;) {
    const char *data;
    size_t size = next_record(vec, count, i, at, room, &data), n;
    int rc = SSL_write_ex(state->ssl, data, size, &n);
    if (rc != 1) return total > 0 ? total : outcome(transport, rc, false);
    total += (ssize_t)n;
    for (at += n; i < count && at >= vec[i].iov_len; i++) at -= vec[i].iov_len;
  }
  return total;
}

static bool tls_pending(rv_transport *transport)
{
  const tls_state *state = transport->state;
  return state->has_outcome || SSL_pending(state->ssl) > 0;
}

static const char *tls_peer_name(rv_transport *transport)
{
  const tls_state *state = transport->state;
  return state->peer_name;
}

static void tls_shut_down(rv_transport *transport)
{
  tls_state *state = transport->state;
  ERR_clear_error();
  if (state->agreed && state->error == 0) SSL_shutdown(state->ssl);
  ERR_clear_error();
  shutdown(transport->fd, SHUT_WR);
}

static void state_free(tls_state *state)
{
  SSL_free(state->ssl);
  rv_tls_unref(state->tls);
  free(state->host);
  free(state);
}

static void tls_close(rv_transport *transport)
{
  state_free(transport->state);
  if (transport->fd >= 0) rv_socket_close(transport->fd);
  transport->state = NULL;
  transport->problem = NULL;
  transport->fd = -1;
}

/* ---- making one ---- */

/* The certificate must be for this name; a host that is an address is looked for among the certificate's addresses. */
static bool expect_name(SSL *ssl, const char *name)
{
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1) return true;
  ERR_clear_error();
  return SSL_set_tlsext_host_name(ssl, name) == 1 && SSL_set1_host(ssl, name) == 1;
}

static bool state_init(tls_state *state, rv_tls *tls, int fd, const char *host)
{
  SSL_CTX *context = rv_tls_context_ref(tls);
  state->tls = rv_tls_ref(tls);
  state->fd = fd;
  state->ssl = SSL_new(context);
  SSL_CTX_free(context);
  state->host = host != NULL ? strdup(host) : NULL;
  BIO *bio = BIO_new(tls->socket_bio);
  if (state->ssl == NULL || bio == NULL || (host != NULL && state->host == NULL)) {
    BIO_free(bio);
    return false;
  }
  BIO_set_data(bio, state);
  BIO_set_init(bio, 1);
  SSL_set_bio(state->ssl, bio, bio);
  if (tls->server) {
    SSL_set_accept_state(state->ssl);
    return true;
  }
  SSL_set_connect_state(state->ssl);
  return expect_name(state->ssl, tls->server_name != NULL ? tls->server_name : host);
}

rv_code rv_transport_init_tls(rv_transport *transport, int fd, rv_tls *tls, const char *host, rv_error *err)
{
  static const rv_transport_ops ops = {.read = tls_read,
                                       .write = tls_write,
                                       .give_back = rv_transport_nothing_lent,
                                       .land = rv_transport_nothing_lands,
                                       .pending = tls_pending,
                                       .rest = rv_transport_no_rest,
                                       .peer_name = tls_peer_name,
                                       .shut_down = tls_shut_down,
                                       .close = tls_close};
  tls_state *state = calloc(1, sizeof *state);
  if (state == NULL) return rv_fail_memory(err, sizeof *state);
  if (!state_init(state, tls, fd, host)) {
    state_free(state);
    ERR_clear_error();
    return rv_fail_memory(err, 0);
  }
  *transport = (rv_transport){.ops = &ops, .fd = fd, .state = state};
  return RV_OK;
}
