/* For tests: authorities and the certificates they sign, as PEM files. */
#ifndef RV_NET_CERTIFICATES_TESTING_H
#define RV_NET_CERTIFICATES_TESTING_H

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct test_authority {
  EVP_PKEY *key;
  X509 *certificate;
  long serial;
} test_authority;

static inline void certificates_must(bool ok)
{
  if (!ok) abort();
}

static inline void certificate_extend(X509 *certificate, X509 *issuer, int nid, const char *value)
{
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
  X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
  certificates_must(extension != NULL && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

/* Valid from a day ago, for `seconds` from now. */
static inline X509 *certificate_new(EVP_PKEY *key, const char *common_name, long seconds, long serial)
{
  X509 *certificate = X509_new();
  certificates_must(certificate != NULL);
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -86400);
  X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
  if (common_name != NULL)
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8, (const unsigned char *)common_name, -1,
                               -1, 0);
  certificates_must(X509_set_pubkey(certificate, key) == 1);
  return certificate;
}

static inline void authority_init(test_authority *authority, const char *name)
{
  authority->serial = 1;
  authority->key = EVP_EC_gen("P-256");
  certificates_must(authority->key != NULL);
  authority->certificate = certificate_new(authority->key, name, 86400, 1);
  X509_set_issuer_name(authority->certificate, X509_get_subject_name(authority->certificate));
  certificate_extend(authority->certificate, authority->certificate, NID_basic_constraints, "critical,CA:TRUE");
  certificates_must(X509_sign(authority->certificate, authority->key, EVP_sha256()) > 0);
}

static inline void authority_fini(test_authority *authority)
{
  EVP_PKEY_free(authority->key);
  X509_free(authority->certificate);
}

static inline void authority_write(const test_authority *authority, const char *path)
{
  FILE *file = fopen(path, "w");
  certificates_must(file != NULL && PEM_write_X509(file, authority->certificate) == 1);
  fclose(file);
}

/* Certificate and key in one file. `names`: "DNS:a,IP:127.0.0.1", or NULL. */
static inline void authority_issue(test_authority *authority, const char *path, const char *common_name, const char *names,
                                   long seconds)
{
  EVP_PKEY *key = EVP_EC_gen("P-256");
  certificates_must(key != NULL);
  X509 *certificate = certificate_new(key, common_name, seconds, ++authority->serial);
  X509_set_issuer_name(certificate, X509_get_subject_name(authority->certificate));
  if (names != NULL) certificate_extend(certificate, authority->certificate, NID_subject_alt_name, names);
  certificates_must(X509_sign(certificate, authority->key, EVP_sha256()) > 0);
  FILE *file = fopen(path, "w");
  certificates_must(file != NULL && PEM_write_X509(file, certificate) == 1);
  certificates_must(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
  fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

/* The authority's list of revoked certificates, for `seconds` from now; `serial`: of one that it issued, 0: of none. */
static inline void authority_revoke(const test_authority *authority, const char *path, long serial, long seconds)
{
  X509_CRL *list = X509_CRL_new();
  ASN1_TIME *time = ASN1_TIME_new();
  certificates_must(list != NULL && time != NULL && X509_CRL_set_version(list, 1) == 1);
  X509_CRL_set_issuer_name(list, X509_get_subject_name(authority->certificate));
  X509_gmtime_adj(time, -86400);
  X509_CRL_set1_lastUpdate(list, time);
  X509_REVOKED *revoked = serial != 0 ? X509_REVOKED_new() : NULL;
  if (revoked != NULL) {
    ASN1_INTEGER *number = ASN1_INTEGER_new();
    certificates_must(number != NULL && ASN1_INTEGER_set(number, serial) == 1);
    certificates_must(X509_REVOKED_set_serialNumber(revoked, number) == 1 && X509_REVOKED_set_revocationDate(revoked, time) == 1);
    certificates_must(X509_CRL_add0_revoked(list, revoked) == 1);
    ASN1_INTEGER_free(number);
  }
  X509_gmtime_adj(time, seconds);
  X509_CRL_set1_nextUpdate(list, time);
  certificates_must(X509_CRL_sign(list, authority->key, EVP_sha256()) > 0);
  FILE *file = fopen(path, "w");
  certificates_must(file != NULL && PEM_write_X509_CRL(file, list) == 1);
  fclose(file);
  ASN1_TIME_free(time);
  X509_CRL_free(list);
}

/* A key alone, of another kind than the certificates'; `password`: what it is encrypted with, or NULL. */
static inline void key_write(const char *path, const char *password)
{
  EVP_PKEY *key = EVP_RSA_gen(2048);
  certificates_must(key != NULL);
  FILE *file = fopen(path, "w");
  const EVP_CIPHER *cipher = password != NULL ? EVP_aes_256_cbc() : NULL;
  certificates_must(file != NULL && PEM_write_PrivateKey(file, key, cipher, NULL, 0, NULL, (void *)(uintptr_t)password) == 1);
  fclose(file);
  EVP_PKEY_free(key);
}

#endif
