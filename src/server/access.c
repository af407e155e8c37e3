#include "server/access.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { DIGEST = 32, TOKEN_MIN = 16, ALL_RIGHTS = RV_RIGHT_READ | RV_RIGHT_INSERT | RV_RIGHT_UPDATE | RV_RIGHT_ADMIN };

typedef struct grant {
  char *table; /* NULL: every table */
  unsigned rights;
} grant;

/* What is open and held on behalf of all who call by one name now. It outlives the list that they were found in: calls that stay when
 * another list takes its place count on. */
typedef struct account {
  atomic_uint refs;
  atomic_size_t streams, bytes;
} account;

struct rv_caller {
  char *name;
  char *certificate_name; /* NULL: none */
  bool has_token;
  unsigned char token[DIGEST];  /* its SHA-256: what is compared has one length, and is of no use to who sees it */
  unsigned char digest[DIGEST]; /* of its name */
  grant *grants;
  size_t num_grants;
  account *account;
};

struct rv_access {
  atomic_uint refs;
  rv_caller *callers;
  size_t count;
};

/* ---- making one ---- */

static bool digest(const char *token, unsigned char out[DIGEST])
{
  size_t size;
  return EVP_Q_digest(NULL, "SHA256", NULL, token, strlen(token), out, &size) == 1 && size == DIGEST;
}

static rv_code check_identity(const rv_access *access, const rv_identity *identity, rv_error *err)
{
  if (identity->name == NULL || identity->name[0] == '\0')
    return rv_fail(err, RV_INVALID_ARGUMENT, "identity number %zu has no name; give one, for errors and the log", access->count);
  if (identity->token == NULL && identity->certificate_name == NULL)
    return rv_fail(err, RV_INVALID_ARGUMENT, "identity \"%.100s\" has neither a token nor a certificate_name; give one",
                   identity->name);
  if (identity->certificate_name != NULL && identity->certificate_name[0] == '\0')
    return rv_fail(
        err, RV_INVALID_ARGUMENT,
        "the certificate_name of identity \"%.100s\" is empty, so that no certificate has it; give one, or leave it out",
        identity->name);
  if (identity->token != NULL && strlen(identity->token) < TOKEN_MIN)
    return rv_fail(err, RV_INVALID_ARGUMENT,
                   "the token of identity \"%.100s\" is too short to be secret; use at least %d characters", identity->name,
                   TOKEN_MIN);
  for (const char *at = identity->token; at != NULL && *at != '\0'; at++)
    if (*at <= ' ' || *at > '~')
      return rv_fail(err, RV_INVALID_ARGUMENT, "the token of identity \"%.100s\" has characters other than visible ASCII",
                     identity->name);
  for (size_t i = 0; i < identity->num_grants; i++)
    if (identity->grants[i].rights == 0 || (identity->grants[i].rights & ~(unsigned)ALL_RIGHTS) != 0)
      return rv_fail(err, RV_INVALID_ARGUMENT,
                     "grant number %zu of identity \"%.100s\" has the rights %u; add up some of rv_right", i, identity->name,
                     identity->grants[i].rights);
  return RV_OK;
}

static rv_code check_unique(const rv_access *access, const rv_caller *added, rv_error *err)
{
  for (size_t i = 0; i < access->count; i++) {
    const rv_caller *other = &access->callers[i];
    bool token = added->has_token && other->has_token && memcmp(added->token, other->token, DIGEST) == 0;
    bool certificate = added->certificate_name != NULL && other->certificate_name != NULL &&
                       strcmp(added->certificate_name, other->certificate_name) == 0;
    if (token || certificate)
      return rv_fail(err, RV_INVALID_ARGUMENT, "identities \"%.100s\" and \"%.100s\" have the same %s; give each its own",
                     other->name, added->name, token ? "token" : "certificate_name");
  }
  return RV_OK;
}

static rv_code copy_grants(rv_caller *caller, const rv_identity *identity, rv_error *err)
{
  caller->grants = calloc(identity->num_grants + 1, sizeof *caller->grants);
  if (caller->grants == NULL) return rv_fail_memory(err, identity->num_grants * sizeof *caller->grants);
  for (size_t i = 0; i < identity->num_grants; i++) {
    const rv_grant *given = &identity->grants[i];
    caller->grants[i] = (grant){.table = given->table != NULL ? strdup(given->table) : NULL, .rights = given->rights};
    caller->num_grants++;
    if (given->table != NULL && caller->grants[i].table == NULL) return rv_fail_memory(err, strlen(given->table) + 1);
  }
  return RV_OK;
}

static account *find_account(const rv_access *access, const char *name)
{
  for (size_t i = 0; access != NULL && i < access->count; i++)
    if (strcmp(access->callers[i].name, name) == 0) return access->callers[i].account;
  return NULL;
}

/* One reference; NULL: no memory. */
static account *take_account(const rv_access *access, const rv_access *before, const char *name)
{
  account *found = find_account(access, name);
  if (found == NULL) found = find_account(before, name);
  if (found != NULL) {
    atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
    return found;
  }
  account *made = calloc(1, sizeof *made);
  if (made != NULL) atomic_init(&made->refs, 1);
  return made;
}

static void give_account(account *of)
{
  if (of != NULL && atomic_fetch_sub_explicit(&of->refs, 1, memory_order_acq_rel) == 1) free(of);
}

static rv_code add(rv_access *access, const rv_access *before, const rv_identity *identity, rv_error *err)
{
  rv_code code = check_identity(access, identity, err);
  if (code != RV_OK) return code;
  rv_caller *caller = &access->callers[access->count];
  caller->name = strdup(identity->name);
  caller->has_token = identity->token != NULL;
  caller->certificate_name = identity->certificate_name != NULL ? strdup(identity->certificate_name) : NULL;
  caller->account = take_account(access, before, identity->name);
  bool digested = digest(identity->name, caller->digest) && (!caller->has_token || digest(identity->token, caller->token));
  code = copy_grants(caller, identity, err);
  if (code == RV_OK && (caller->name == NULL || caller->account == NULL || !digested ||
                        (identity->certificate_name != NULL && caller->certificate_name == NULL)))
    code = rv_fail_memory(err, strlen(identity->name) + 1);
  if (code == RV_OK) code = check_unique(access, caller, err);
  access->count++; /* also after an error: what was copied is freed with the rest */
  return code;
}

rv_code rv_access_new(const rv_identity *identities, size_t num_identities, const rv_access *before, rv_access **out,
                      rv_error *err)
{
  rv_access *access = calloc(1, sizeof *access);
  if (access == NULL) return rv_fail_memory(err, sizeof *access);
  atomic_init(&access->refs, 1);
  access->callers = calloc(num_identities + 1, sizeof *access->callers);
  rv_code code = access->callers == NULL ? rv_fail_memory(err, num_identities * sizeof *access->callers) : RV_OK;
  for (size_t i = 0; i < num_identities && code == RV_OK; i++) code = add(access, before, &identities[i], err);
  if (code != RV_OK) {
    rv_access_unref(access);
    return code;
  }
  *out = access;
  return RV_OK;
}

rv_access *rv_access_ref(rv_access *access)
{
  if (access != NULL) atomic_fetch_add_explicit(&access->refs, 1, memory_order_relaxed);
  return access;
}

void rv_access_unref(rv_access *access)
{
  if (access == NULL || atomic_fetch_sub_explicit(&access->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < access->count; i++) {
    rv_caller *caller = &access->callers[i];
    for (size_t k = 0; k < caller->num_grants; k++) free(caller->grants[k].table);
    free(caller->grants);
    give_account(caller->account);
    free(caller->name);
    free(caller->certificate_name);
  }
  free(access->callers);
  free(access);
}

/* ---- who calls ---- */

static rv_code find_token(const rv_access *access, const char *token, const rv_caller **out, rv_error *err)
{
  unsigned char presented[DIGEST];
  if (!digest(token, presented)) return rv_fail_memory(err, 0); /* it may be the right one */
  for (size_t i = 0; i < access->count; i++)                    /* all of them, however early one fits: the time says nothing */
    if (access->callers[i].has_token && CRYPTO_memcmp(access->callers[i].token, presented, DIGEST) == 0)
      *out = &access->callers[i];
  return *out != NULL ? RV_OK : rv_fail(err, RV_UNAUTHENTICATED, "the server does not know this token; is it the right one?");
}

static const rv_caller *find_certificate(const rv_access *access, const char *name)
{
  for (size_t i = 0; i < access->count; i++) {
    const char *known = access->callers[i].certificate_name;
    if (known != NULL && name[0] != '\0' && strcmp(known, name) == 0) return &access->callers[i];
  }
  return NULL;
}

rv_code rv_access_find(const rv_access *access, rv_call *call, const rv_caller **out, rv_error *err)
{
  *out = NULL;
  if (access == NULL) return RV_OK;
  static const char scheme[] = "Bearer ";
  const char *authorization = rv_call_metadata(call, "authorization");
  if (authorization != NULL) {
    if (strncmp(authorization, scheme, sizeof scheme - 1) != 0)
      return rv_fail(err, RV_UNAUTHENTICATED, "the authorization header is not \"Bearer TOKEN\"");
    return find_token(access, authorization + sizeof scheme - 1, out, err);
  }
  const char *name = rv_call_peer_name(call);
  *out = find_certificate(access, name);
  if (*out != NULL) return RV_OK;
  if (name[0] == '\0') return rv_fail(err, RV_UNAUTHENTICATED, "the server asks who calls; give the client a token");
  return rv_fail(err, RV_UNAUTHENTICATED, "the server does not know the name \"%.100s\" of this client's certificate", name);
}

static bool same_text(const char *a, const char *b)
{
  return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_grants(const rv_caller *a, const rv_caller *b)
{
  if (a->num_grants != b->num_grants) return false;
  for (size_t i = 0; i < a->num_grants; i++)
    if (a->grants[i].rights != b->grants[i].rights || !same_text(a->grants[i].table, b->grants[i].table)) return false;
  return true;
}

bool rv_access_has(const rv_access *access, const rv_caller *caller)
{
  for (size_t i = 0; i < access->count; i++) {
    const rv_caller *now = &access->callers[i];
    if (strcmp(now->name, caller->name) == 0 && same_text(now->certificate_name, caller->certificate_name) &&
        now->has_token == caller->has_token && CRYPTO_memcmp(now->token, caller->token, DIGEST) == 0 && same_grants(now, caller))
      return true;
  }
  return false;
}

/* ---- what he may do ---- */

static const char *verb_of(rv_right right)
{
  return right == RV_RIGHT_READ ? "read" : right == RV_RIGHT_INSERT ? "insert" : right == RV_RIGHT_UPDATE ? "update" : "admin";
}

static bool covers(const grant *given, rv_span table)
{
  return given->table == NULL ||
         (table.data != NULL && strlen(given->table) == table.size && memcmp(given->table, table.data, table.size) == 0);
}

static unsigned rights_on(const rv_caller *caller, rv_span table)
{
  unsigned rights = 0;
  for (size_t i = 0; i < caller->num_grants; i++)
    if (covers(&caller->grants[i], table)) rights |= caller->grants[i].rights;
  return rights;
}

rv_code rv_caller_check(const rv_caller *caller, rv_right right, rv_span table, rv_error *err)
{
  if (caller == NULL) return RV_OK;
  unsigned rights = rights_on(caller, table);
  if ((rights & (unsigned)right) != 0) return RV_OK;
  char has[64] = "";
  for (unsigned bit = RV_RIGHT_READ; bit <= RV_RIGHT_ADMIN; bit <<= 1)
    if ((rights & bit) != 0)
      snprintf(has + strlen(has), sizeof has - strlen(has), "%s%s", has[0] != '\0' ? ", " : "", verb_of(bit));
  if (table.data == NULL)
    return rv_fail(err, RV_PERMISSION_DENIED, "\"%.80s\" has not the right \"%s\" on every table (it has: %s)", caller->name,
                   verb_of(right), has[0] != '\0' ? has : "none");
  return rv_fail(err, RV_PERMISSION_DENIED, "\"%.80s\" has not the right \"%s\" on table \"%.*s\" (it has: %s)", caller->name,
                 verb_of(right), table.size > 128 ? 128 : (int)table.size, (const char *)table.data,
                 has[0] != '\0' ? has : "none");
}

/* ---- how much ---- */

rv_code rv_caller_take_stream(const rv_caller *caller, const rv_caller_limits *limits, rv_error *err)
{
  if (caller == NULL) return RV_OK;
  if (atomic_fetch_add(&caller->account->streams, 1) < limits->max_streams) return RV_OK;
  atomic_fetch_sub(&caller->account->streams, 1);
  return rv_fail(err, RV_RESOURCE_EXHAUSTED,
                 "\"%.80s\" has %zu calls open, and may have no more; end some, or raise the server's max_streams_per_identity",
                 caller->name, limits->max_streams);
}

void rv_caller_give_stream(const rv_caller *caller)
{
  if (caller != NULL) atomic_fetch_sub(&caller->account->streams, 1);
}

size_t rv_caller_count_bytes(const rv_caller *caller, size_t more)
{
  return caller == NULL ? 0 : atomic_fetch_add(&caller->account->bytes, more) + more;
}

size_t rv_caller_bytes(const rv_caller *caller)
{
  return caller == NULL ? 0 : atomic_load_explicit(&caller->account->bytes, memory_order_relaxed);
}

bool rv_caller_may_somewhere(const rv_caller *caller, rv_right right)
{
  bool may = caller == NULL;
  for (size_t i = 0; !may && i < caller->num_grants; i++) may = (caller->grants[i].rights & (unsigned)right) != 0;
  return may;
}

uint64_t rv_caller_id(const rv_caller *caller)
{
  uint64_t id = 0;
  if (caller != NULL) memcpy(&id, caller->digest, sizeof id);
  return id;
}

const char *rv_caller_name(const rv_caller *caller)
{
  return caller != NULL ? caller->name : "anybody";
}
