/* When what a server uses expires, and lines for the log about it while there is time, and when there is none left. */
#include <time.h>

#include "net/tls_parts.h"

enum { DAY_S = 86400, NOTICE_S = 14 * DAY_S };

/* ---- when ---- */

static const rv_tls_date never = {.notice_s = INT64_MAX, .end_s = INT64_MAX};

static bool seconds_of(const ASN1_TIME *time, int64_t *out)
{
  struct tm utc;
  if (time == NULL || ASN1_TIME_to_tm(time, &utc) != 1) return false;
  *out = (int64_t)timegm(&utc);
  return true;
}

/* What lasts a day only is renewed later than two weeks before its end. */
static rv_tls_date date_of(const ASN1_TIME *from, const ASN1_TIME *to)
{
  int64_t begin, end;
  if (!seconds_of(from, &begin) || !seconds_of(to, &end)) return never;
  int64_t third = end > begin ? (end - begin) / 3 : 0;
  return (rv_tls_date){.notice_s = end - (third < NOTICE_S ? third : NOTICE_S), .end_s = end};
}

static rv_tls_date date_of_certificate(const X509 *certificate)
{
  return date_of(X509_get0_notBefore(certificate), X509_get0_notAfter(certificate));
}

static void take_earlier(rv_tls_date *of, rv_tls_date other)
{
  if (other.end_s < of->end_s) *of = other;
}

/* What others of its chain have expired already when it is read is none that it rests on. */
static rv_tls_date date_of_chain(SSL_CTX *context, int64_t now)
{
  STACK_OF(X509) *chain = NULL;
  rv_tls_date date = date_of_certificate(SSL_CTX_get0_certificate(context));
  SSL_CTX_get0_chain_certs(context, &chain);
  for (int i = 0; i < sk_X509_num(chain); i++) {
    rv_tls_date other = date_of_certificate(sk_X509_value(chain, i));
    if (other.end_s > now) take_earlier(&date, other);
  }
  return date;
}

/* Authorities that have expired already count only if there is no other: in a bundle some are left over. */
static void note_store(SSL_CTX *context, int64_t now, rv_tls_dates *out)
{
  const STACK_OF(X509_OBJECT) *all = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));
  rv_tls_date over = never;
  for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
    const X509 *authority = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(all, i));
    const X509_CRL *list = X509_OBJECT_get0_X509_CRL(sk_X509_OBJECT_value(all, i));
    rv_tls_date date = authority != NULL ? date_of_certificate(authority) : never;
    take_earlier(date.end_s > now ? &out->authority : &over, date);
    if (list != NULL) take_earlier(&out->revocations, date_of(X509_CRL_get0_lastUpdate(list), X509_CRL_get0_nextUpdate(list)));
  }
  if (out->authority.end_s == INT64_MAX) out->authority = over;
}

void rv_tls_note_dates(SSL_CTX *context, rv_tls_dates *out)
{
  int64_t now = (int64_t)time(NULL); /* OpenSSL's clock */
  *out = (rv_tls_dates){.certificate = date_of_chain(context, now), .authority = never, .revocations = never};
  note_store(context, now, out);
}

/* ---- what is said of it ---- */

typedef struct dated {
  const char *what, *path;
  const char *over, *remedy; /* what it means that it has expired, and what helps */
  rv_tls_date date;
} dated;

typedef enum phase { FINE, SOON, OVER } phase;

static phase phase_at(rv_tls_date date, int64_t now)
{
  return now >= date.end_s ? OVER : now >= date.notice_s ? SOON : FINE;
}

static void log_one(const rv_env *env, const dated *it, int64_t now)
{
  static const char again[] = "have it read again (SIGHUP, reload_tls)";
  char date[32] = "?";
  time_t end = (time_t)it->date.end_s;
  struct tm utc;
  if (gmtime_r(&end, &utc) != NULL) strftime(date, sizeof date, "%Y-%m-%d %H:%M", &utc);
  if (phase_at(it->date, now) == OVER)
    rv_log(env, RV_LOG_ERROR, "TLS: the %s in \"%.200s\" has expired (%s UTC), and %s; %s, and %s", it->what, it->path, date,
           it->over, it->remedy, again);
  else
    rv_log(env, RV_LOG_WARNING, "TLS: the %s in \"%.200s\" expires in %.1f days (%s UTC); %s, and %s", it->what, it->path,
           (double)(it->date.end_s - now) / DAY_S, date, it->remedy, again);
}

void rv_tls_log_dates(rv_tls *tls, const rv_env *env, int64_t before_s, int64_t now_s)
{
  rv_mutex_lock(&tls->lock);
  const rv_tls_dates dates = tls->dates;
  rv_mutex_unlock(&tls->lock);
  const dated all[] = {{.what = "certificate",
                        .path = tls->certificate_file,
                        .over = "clients refuse the server",
                        .remedy = "renew it",
                        .date = dates.certificate},
                       {.what = "authority's certificate",
                        .path = tls->authority_file,
                        .over = "clients with certificates that it has signed are refused",
                        .remedy = "renew it",
                        .date = dates.authority},
                       {.what = "revocation list",
                        .path = tls->revocation_file,
                        .over = "new clients are refused",
                        .remedy = "fetch the authority's new one",
                        .date = dates.revocations}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    phase now = phase_at(all[i].date, now_s);
    if (now != FINE && now != phase_at(all[i].date, before_s)) log_one(env, &all[i], now_s);
  }
}
