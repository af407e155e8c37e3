#include "net/tls.h"

#include <errno.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/plain_file.h"
#include "net/tls_parts.h"

static const unsigned char http2[] = "\x02h2";

/* ---- files ---- */

/* Of OpenSSL's, which would wait for whoever writes to a pipe. */
static rv_code check_readable(const char *what, const char *path, rv_error *err)
{
  const char *instead;
  const int fd = rv_plain_file_open(path, &instead);
  if (fd >= 0) {
    close(fd);
    return RV_OK;
  }
  if (instead != NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the %s \"%.200s\" is %s; give a file, which can be read again", what, path,
                   instead);
  return rv_fail(err, RV_INVALID_ARGUMENT, "the %s \"%.200s\" cannot be read: %s", what, path, strerror(errno));
}

static rv_code fail_file(const char *what, const char *path, const char *remedy, rv_error *err)
{
  const char *reason = ERR_reason_error_string(ERR_peek_last_error());
  rv_code code = rv_fail(err, RV_INVALID_ARGUMENT, "the %s \"%.200s\" cannot be used: %s; %s", what, path,
                         reason != NULL ? reason : "OpenSSL gives no reason", remedy);
  ERR_clear_error();
  return code;
}

static rv_code check_dates(SSL_CTX *context, const char *path, rv_error *err)
{
  const X509 *certificate = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the certificate in \"%.200s\" has expired; renew it", path);
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    return rv_fail(err, RV_INVALID_ARGUMENT, "the certificate in \"%.200s\" is not valid yet; is the clock right?", path);
  return RV_OK;
}

static rv_code use_certificate(const rv_tls *tls, SSL_CTX *context, rv_error *err)
{
  const char *path = tls->certificate_file, *key = tls->key_file != NULL ? tls->key_file : path;
  if (path == NULL) return RV_OK;
  rv_code code = check_readable("certificate file", path, err);
  if (code == RV_OK) code = check_readable("key file", key, err);
  if (code != RV_OK) return code;
  if (SSL_CTX_use_certificate_chain_file(context, path) != 1)
    return fail_file("certificate file", path, "it must have a certificate in PEM", err);
  if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(context) != 1)
    return tls->key_file != NULL
               ? fail_file("key file", key, "it must have the certificate's key in PEM, without a password", err)
               : fail_file("certificate file", path,
                           "no key file is given, so it must have the certificate's key, too, without a password", err);
  return check_dates(context, path, err);
}

static rv_code check_revocations(X509_STORE *store, const char *path, rv_error *err)
{
  STACK_OF(X509_OBJECT) *all = X509_STORE_get0_objects(store);
  for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
    const X509_CRL *list = X509_OBJECT_get0_X509_CRL(sk_X509_OBJECT_value(all, i));
    const ASN1_TIME *until = list != NULL ? X509_CRL_get0_nextUpdate(list) : NULL;
    if (until != NULL && X509_cmp_current_time(until) < 0)
      return rv_fail(err, RV_INVALID_ARGUMENT, "the revocation list in \"%.200s\" is out of date; fetch the authority's new one",
                     path);
  }
  return RV_OK;
}

static rv_code use_revocations(const rv_tls *tls, SSL_CTX *context, rv_error *err)
{
  const char *path = tls->revocation_file;
  if (path == NULL) return RV_OK;
  rv_code code = check_readable("revocation file", path, err);
  if (code != RV_OK) return code;
  X509_STORE *store = SSL_CTX_get_cert_store(context);
  X509_LOOKUP *files = X509_STORE_add_lookup(store, X509_LOOKUP_file());
  if (files == NULL) return rv_fail_memory(err, 0);
  if (X509_load_crl_file(files, path, X509_FILETYPE_PEM) < 1)
    return fail_file("revocation file", path, "it must have revocation lists (CRL) in PEM", err);
  X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
  return check_revocations(store, path, err);
}

/* OpenSSL looks into an authority's extensions when it is first needed, and where memory is out then takes it for invalid for ever: so that
 * is done now. False: memory is out. */
static bool understand_authorities(SSL_CTX *context)
{
  const STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));
  for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
    X509 *authority = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
    ERR_clear_error();
    bool invalid = authority != NULL && (X509_get_extension_flags(authority) & EXFLAG_INVALID) != 0;
    if (invalid && ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE) return false;
  }
  return true;
}

/* Who resumes a session is not asked for his certificate again: one that was revoked or has expired meanwhile would open the door for hours,
 * and so would a revocation list that is out of date, which lets nobody in. */
static void show_each_time(SSL_CTX *context)
{
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
}

static rv_code use_authorities(const rv_tls *tls, SSL_CTX *context, rv_error *err)
{
  const char *path = tls->authority_file;
  if (path == NULL) {
    if (!tls->server && SSL_CTX_set_default_verify_paths(context) != 1)
      return fail_file("system's store of authorities", "", "give an authority_file", err);
  } else {
    rv_code code = check_readable("authority file", path, err);
    if (code != RV_OK) return code;
    if (SSL_CTX_load_verify_file(context, path) != 1)
      return fail_file("authority file", path, "it must have certificates in PEM", err);
    if (!understand_authorities(context)) return rv_fail_memory(err, 0);
    if (tls->server) SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(path));
  }
  bool ask = !tls->server || path != NULL;
  if (tls->server && ask) show_each_time(context);
  SSL_CTX_set_verify(context, ask ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_NONE, NULL);
  return RV_OK;
}

/* ---- contexts ---- */

/* OpenSSL would ask the terminal. */
static int no_password(char *out, int size, int writing, void *context)
{
  (void)out, (void)size, (void)writing, (void)context;
  return -1;
}

/* gRPC is HTTP/2 alone: a peer that can do other protocols only is told so in the handshake. */
static int select_http2(SSL *ssl, const unsigned char **out, unsigned char *out_size, const unsigned char *offered,
                        unsigned offered_size, void *context)
{
  (void)ssl, (void)context;
  unsigned char *selected;
  int found = SSL_select_next_proto(&selected, out_size, http2, sizeof http2 - 1, offered, offered_size);
  *out = selected;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static rv_code make_context(const rv_tls *tls, SSL_CTX **out, rv_error *err)
{
  SSL_CTX *context = SSL_CTX_new(tls->server ? TLS_server_method() : TLS_client_method());
  if (context == NULL) return rv_fail_memory(err, 0);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(context, no_password);
  SSL_CTX_set_session_id_context(context, http2, sizeof http2 - 1);
  if (tls->server) {
    SSL_CTX_set_alpn_select_cb(context, select_http2, NULL);
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY); /* or one read lasts for as long as a client only changes its keys */
  } else {
    SSL_CTX_set_alpn_protos(context, http2, sizeof http2 - 1);
  }
  rv_code code = use_certificate(tls, context, err);
  if (code == RV_OK) code = use_authorities(tls, context, err);
  if (code == RV_OK) code = use_revocations(tls, context, err);
  if (code != RV_OK) {
    SSL_CTX_free(context);
    return code;
  }
  *out = context;
  return RV_OK;
}

SSL_CTX *rv_tls_context_ref(rv_tls *tls)
{
  rv_mutex_lock(&tls->lock);
  SSL_CTX *context = tls->context;
  SSL_CTX_up_ref(context);
  rv_mutex_unlock(&tls->lock);
  return context;
}

rv_code rv_tls_reload(rv_tls *tls, rv_error *err)
{
  SSL_CTX *context;
  rv_code code = make_context(tls, &context, err);
  if (code != RV_OK) return code;
  rv_tls_dates dates = {0};
  if (tls->server) rv_tls_note_dates(context, &dates);
  rv_mutex_lock(&tls->lock);
  SSL_CTX *old = tls->context;
  tls->context = context;
  tls->dates = dates;
  rv_mutex_unlock(&tls->lock);
  SSL_CTX_free(old);
  return RV_OK;
}

/* ---- life ---- */

static bool copy(char **to, const char *from)
{
  *to = from != NULL ? strdup(from) : NULL;
  return from == NULL || *to != NULL;
}

rv_code rv_tls_new(const rv_tls_config *config, bool server, rv_tls **out, rv_error *err)
{
  rv_tls_config full = {0};
  memcpy(&full, config, config->size < sizeof full ? config->size : sizeof full);
  if (server && full.certificate_file == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "TLS at a server needs a certificate; give its certificate_file (and key_file)");
  if (full.certificate_file == NULL && full.key_file != NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "TLS has the key file \"%.200s\" but no certificate; give its certificate_file",
                   full.key_file);
  if (full.authority_file == NULL && full.revocation_file != NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "TLS has the revocation file \"%.200s\" but nobody whose certificates are asked for; give the authority_file",
                   full.revocation_file);
  if (full.server_name != NULL && (full.server_name[0] == '\0' || strlen(full.server_name) > TLSEXT_MAXLEN_host_name))
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "TLS has a server_name of %zu characters, and a name has 1 to %d; leave it out to expect the address's host",
                   strlen(full.server_name), TLSEXT_MAXLEN_host_name);
  rv_tls *tls = calloc(1, sizeof *tls);
  if (tls == NULL) return rv_fail_memory(err, sizeof *tls);
  atomic_init(&tls->refs, 1);
  tls->server = server;
  rv_mutex_init(&tls->lock, RV_RANK_WAIT, "TLS");
  tls->socket_bio = rv_tls_socket_bio_new();
  rv_code code = RV_OK;
  if (tls->socket_bio == NULL || !copy(&tls->certificate_file, full.certificate_file) || !copy(&tls->key_file, full.key_file) ||
      !copy(&tls->authority_file, full.authority_file) || !copy(&tls->server_name, full.server_name) ||
      !copy(&tls->revocation_file, full.revocation_file))
    code = rv_fail_memory(err, 0);
  if (code == RV_OK) code = make_context(tls, &tls->context, err);
  if (code != RV_OK) {
    rv_tls_unref(tls);
    return code;
  }
  if (server) rv_tls_note_dates(tls->context, &tls->dates);
  *out = tls;
  return RV_OK;
}

rv_tls *rv_tls_ref(rv_tls *tls)
{
  atomic_fetch_add_explicit(&tls->refs, 1, memory_order_relaxed);
  return tls;
}

void rv_tls_unref(rv_tls *tls)
{
  if (tls == NULL || atomic_fetch_sub_explicit(&tls->refs, 1, memory_order_acq_rel) != 1) return;
  SSL_CTX_free(tls->context);
  BIO_meth_free(tls->socket_bio);
  rv_mutex_fini(&tls->lock);
  free(tls->certificate_file);
  free(tls->key_file);
  free(tls->authority_file);
  free(tls->server_name);
  free(tls->revocation_file);
  free(tls);
}
