#include "server/sessions.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"
#include "base/lock.h"
#include "persist/done_set.h"

enum {
  REFUSALS_MAX = 4096,   /* of a session, whose reasons are remembered, */
  REASONS_MAX = 64 << 20 /* as long as those of all have no more bytes: sessions outlive their connections */
};

/* An item that was refused; it counts as done, but must be answered with its error when it comes again. */
typedef struct refusal {
  uint64_t number;
  rv_code code;
  char *message;
} refusal;

/* All sessions of one caller. */
typedef struct holder {
  rv_link link;
  uint64_t caller;
  size_t count;
  rv_link idle; /* of them, the longest idle first */
} holder;

struct rv_writer_session {
  uint64_t id[2];
  rv_writer_session *next; /* in its bucket */
  rv_link idle;            /* in the registry's list while it has no users, */
  rv_link idle_of_holder;  /* and in its holder's */
  int64_t idle_since_ns;
  rv_writer_session_user *owner, *successor;
  size_t users;       /* attached and not detached: owner, successor, and successors that were replaced */
  holder *holder;     /* whose it is; of the caller 0: not known */
  atomic_bool broken; /* something could not be remembered */
  rv_done_set done;
  refusal *refusals;   /* a ring once it is full: the oldest goes, */
  rv_done_set refused; /* and of it stays that it was refused, */
  uint64_t forgotten;  /* of those up to this number not even that */
  size_t num_refusals, refusals_capacity, oldest_refusal;
  atomic_size_t *reasons; /* the registry's count of bytes */
};

struct rv_writer_sessions {
  rv_store_attachment attachment;
  rv_env env;
  uint64_t seed;
  atomic_size_t reasons; /* bytes of all sessions', */
  atomic_size_t runs;    /* and the account of their sets */
  rv_mutex lock;         /* guards everything below, and owner, successor, holder and idle of each session */
  rv_writer_session **buckets;
  size_t num_buckets, count;
  rv_link idle; /* the longest idle first */
  rv_link holders;
};

/* ---- the registry ---- */

static void free_attached(rv_store_attachment *attachment)
{
  rv_writer_sessions_free(RV_CONTAINER(attachment, rv_writer_sessions, attachment));
}

rv_code rv_writer_sessions_new(const rv_env *env, rv_writer_sessions **out, rv_error *err)
{
  enum { FIRST_BUCKETS = 64 };
  rv_writer_sessions *sessions = calloc(1, sizeof *sessions);
  rv_writer_session **buckets = calloc(FIRST_BUCKETS, sizeof *buckets);
  if (sessions == NULL || buckets == NULL) {
    free(sessions);
    free(buckets);
    return rv_fail_memory(err, sizeof *sessions);
  }
  sessions->attachment.free = free_attached;
  sessions->env = *env;
  sessions->seed = rv_entropy64(env);
  sessions->buckets = buckets;
  sessions->num_buckets = FIRST_BUCKETS;
  rv_mutex_init(&sessions->lock, RV_RANK_SERVER, "writer sessions");
  rv_list_init(&sessions->idle);
  rv_list_init(&sessions->holders);
  *out = sessions;
  return RV_OK;
}

static size_t bucket_of(const rv_writer_sessions *sessions, const uint64_t id[2])
{
  uint64_t hash = (id[0] ^ sessions->seed) * UINT64_C(0x9E3779B97F4A7C15);
  hash = (hash ^ (hash >> 32) ^ id[1]) * UINT64_C(0xBF58476D1CE4E5B9);
  return (size_t)(hash ^ (hash >> 32)) & (sessions->num_buckets - 1);
}

/* ---- whose they are ---- */

/* NULL: no memory. */
static holder *find_holder(rv_writer_sessions *sessions, uint64_t caller)
{
  RV_LIST_EACH(link, &sessions->holders)
  {
    holder *known = RV_CONTAINER(link, holder, link);
    if (known->caller == caller) return known;
  }
  holder *made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  made->caller = caller;
  rv_list_init(&made->idle);
  rv_list_push_back(&sessions->holders, &made->link);
  return made;
}

static void leave_holder(rv_writer_session *session)
{
  holder *of = session->holder;
  rv_list_remove(&session->idle_of_holder);
  if (of == NULL || --of->count > 0) return;
  rv_list_remove(&of->link);
  free(of);
}

static rv_code give_to(rv_writer_sessions *sessions, rv_writer_session *session, uint64_t caller, rv_error *err)
{
  if (session->holder != NULL && session->holder->caller == caller) return RV_OK;
  holder *to = find_holder(sessions, caller);
  if (to == NULL) return rv_fail_memory(err, sizeof *to);
  leave_holder(session);
  session->holder = to;
  to->count++;
  return RV_OK;
}

static void become_idle(rv_writer_sessions *sessions, rv_writer_session *session)
{
  if (atomic_load(&session->broken)) { /* nobody will be let in to ask what it remembers */
    rv_done_set_fini(&session->done);
    rv_done_set_fini(&session->refused);
  }
  session->idle_since_ns = rv_monotonic_ns(&sessions->env);
  rv_list_push_back(&sessions->idle, &session->idle);
  rv_list_push_back(&session->holder->idle, &session->idle_of_holder);
}

/* Of him who has most, so that nobody pushes out what others left. NULL: none is idle. */
static rv_writer_session *longest_idle(rv_writer_sessions *sessions)
{
  const holder *most = NULL;
  RV_LIST_EACH(link, &sessions->holders)
  {
    const holder *one = RV_CONTAINER(link, holder, link);
    if (!rv_list_empty(&one->idle) && (most == NULL || one->count > most->count)) most = one;
  }
  return most == NULL ? NULL : RV_CONTAINER(most->idle.next, rv_writer_session, idle_of_holder);
}

/* ---- each ---- */

static void forget_reason(rv_writer_session *session, const refusal *of)
{
  atomic_fetch_sub_explicit(session->reasons, strlen(of->message) + 1, memory_order_relaxed);
  free(of->message);
}

static void session_free(rv_writer_session *session)
{
  leave_holder(session);
  rv_done_set_fini(&session->done);
  rv_done_set_fini(&session->refused);
  for (size_t i = 0; i < session->num_refusals; i++) forget_reason(session, &session->refusals[i]);
  free(session->refusals);
  free(session);
}

void rv_writer_sessions_free(rv_writer_sessions *sessions)
{
  if (sessions == NULL) return;
  for (size_t i = 0; i < sessions->num_buckets; i++) {
    for (rv_writer_session *session = sessions->buckets[i]; session != NULL;) {
      rv_writer_session *next = session->next;
      session_free(session);
      session = next;
    }
  }
  rv_mutex_fini(&sessions->lock);
  free(sessions->buckets);
  free(sessions);
}

static void forget(rv_writer_sessions *sessions, rv_journal *journal, rv_writer_session *session)
{
  if (journal != NULL) rv_journal_note_writer(journal, session->id, true);
  rv_writer_session **at = &sessions->buckets[bucket_of(sessions, session->id)];
  while (*at != session) at = &(*at)->next;
  *at = session->next;
  rv_list_remove(&session->idle);
  sessions->count--;
  session_free(session);
}

static void forget_expired(rv_writer_sessions *sessions, const rv_writer_session_limits *limits)
{
  int64_t now = rv_monotonic_ns(&sessions->env);
  while (!rv_list_empty(&sessions->idle)) {
    rv_writer_session *oldest = RV_CONTAINER(sessions->idle.next, rv_writer_session, idle);
    if (now - oldest->idle_since_ns < limits->ttl_ns) return;
    forget(sessions, limits->journal, oldest);
  }
}

/* Doubles the buckets; without memory they stay as they are, only slower. */
static void grow(rv_writer_sessions *sessions)
{
  size_t old_buckets = sessions->num_buckets;
  rv_writer_session **old = sessions->buckets, **grown = calloc(old_buckets * 2, sizeof *grown);
  if (grown == NULL) return;
  sessions->buckets = grown;
  sessions->num_buckets = old_buckets * 2;
  for (size_t i = 0; i < old_buckets; i++) {
    for (rv_writer_session *session = old[i]; session != NULL;) {
      rv_writer_session *next = session->next, **bucket = &grown[bucket_of(sessions, session->id)];
      session->next = *bucket;
      *bucket = session;
      session = next;
    }
  }
  free(old);
}

static bool parse_id(const char *text, uint64_t id[2])
{
  int digits = 0;
  id[0] = id[1] = 0;
  for (; *text != '\0'; text++) {
    char c = *text;
    if (c == '-') continue;
    unsigned digit;
    if (c >= '0' && c <= '9')
      digit = (unsigned)(c - '0');
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
      digit = (unsigned)((c | 0x20) - 'a') + 10;
    else
      return false;
    if (digits == 32) return false;
    id[digits / 16] = id[digits / 16] << 4 | digit;
    digits++;
  }
  return digits == 32;
}

static rv_code make_session(rv_writer_sessions *sessions, rv_journal *journal, size_t max_sessions, const uint64_t id[2],
                            uint64_t caller, rv_writer_session **out, rv_error *err)
{
  while (sessions->count >= max_sessions) {
    rv_writer_session *idle = longest_idle(sessions);
    if (idle == NULL)
      return rv_fail(err, RV_RESOURCE_EXHAUSTED,
                     "this server already serves %zu writers; close some, or raise its max_writer_sessions", sessions->count);
    forget(sessions, journal, idle);
  }
  if (journal != NULL && !rv_journal_takes_writers(journal))
    return rv_fail(err, RV_UNAVAILABLE, "the server takes no new writers now: too much waits to be written to its journal");
  rv_writer_session *session = calloc(1, sizeof *session);
  if (session == NULL) return rv_fail_memory(err, sizeof *session);
  session->id[0] = id[0];
  session->id[1] = id[1];
  rv_done_set_init(&session->done, &sessions->runs);
  rv_done_set_init(&session->refused, &sessions->runs);
  atomic_init(&session->broken, false);
  session->reasons = &sessions->reasons;
  rv_list_init(&session->idle);
  rv_list_init(&session->idle_of_holder);
  rv_code code = give_to(sessions, session, caller, err);
  if (code != RV_OK) {
    session_free(session);
    return code;
  }
  if (sessions->count >= sessions->num_buckets) grow(sessions);
  rv_writer_session **bucket = &sessions->buckets[bucket_of(sessions, id)];
  session->next = *bucket;
  *bucket = session;
  sessions->count++;
  if (journal != NULL) rv_journal_note_writer(journal, id, false);
  *out = session;
  return RV_OK;
}

/* What was known of writers before this process began. */
static rv_code take_over(rv_writer_sessions *sessions, const rv_journal *journal, rv_error *err)
{
  const rv_journal_writer *writer = NULL;
  while (journal != NULL && (writer = rv_journal_recovered_writer(journal, writer)) != NULL) {
    rv_writer_session *session;
    rv_code code = make_session(sessions, NULL, SIZE_MAX, writer->id, 0, &session, err);
    if (code == RV_OK) code = rv_done_set_copy(&session->done, &writer->done, err);
    if (code != RV_OK) return code;
    become_idle(sessions, session);
  }
  return RV_OK;
}

rv_code rv_writer_sessions_of_store(rv_store *store, const rv_journal *journal, rv_writer_sessions **out, rv_error *err)
{
  rv_store_attachment *there = rv_store_attached(store);
  if (there != NULL) {
    *out = RV_CONTAINER(there, rv_writer_sessions, attachment);
    return RV_OK;
  }
  rv_writer_sessions *candidate;
  rv_code code = rv_writer_sessions_new(rv_store_env(store), &candidate, err);
  if (code != RV_OK) return code;
  code = take_over(candidate, journal, err);
  if (code != RV_OK) {
    rv_writer_sessions_free(candidate);
    return code;
  }
  rv_store_attachment *attached = rv_store_attach(store, &candidate->attachment);
  if (attached != &candidate->attachment) rv_writer_sessions_free(candidate);
  *out = RV_CONTAINER(attached, rv_writer_sessions, attachment);
  return RV_OK;
}

static void evict(rv_writer_session_user *user)
{
  if (user->evicted) return;
  user->evicted = true;
  user->evict(user);
}

/* Holding the lock. */
static rv_code attach(rv_writer_sessions *sessions, const rv_writer_session_limits *limits, const uint64_t id[2], bool resumes,
                      rv_writer_session_user *user, rv_writer_session **out, bool *granted, rv_error *err)
{
  forget_expired(sessions, limits);
  rv_writer_session *session = sessions->buckets[bucket_of(sessions, id)];
  while (session != NULL && (session->id[0] != id[0] || session->id[1] != id[1])) session = session->next;
  if (session == NULL && resumes)
    return rv_fail(err, RV_FAILED_PRECONDITION,
                   "the writer's session has expired (one is kept for %" PRId64
                   " s after its last use, and at most %zu are kept), so it is no longer known "
                   "which of its unconfirmed items were inserted; make a new writer",
                   limits->ttl_ns / 1000000000, limits->max_sessions);
  if (session != NULL && session->holder->caller != 0 && session->holder->caller != user->caller)
    return rv_fail(err, RV_PERMISSION_DENIED, "the writer's session belongs to another identity; make a new writer");
  if (session != NULL && rv_writer_session_check(session, err) != RV_OK) return err->code;
  rv_code code = session != NULL ? give_to(sessions, session, user->caller, err)
                                 : make_session(sessions, limits->journal, limits->max_sessions, id, user->caller, &session, err);
  if (code != RV_OK) return code;
  *out = session;
  user->evicted = false;
  session->users++;
  *granted = session->owner == NULL;
  if (*granted) {
    rv_list_remove(&session->idle);
    rv_list_remove(&session->idle_of_holder);
    session->owner = user;
  } else {
    if (session->successor != NULL) evict(session->successor);
    session->successor = user;
    evict(session->owner);
  }
  return RV_OK;
}

rv_code rv_writer_sessions_attach(rv_writer_sessions *sessions, const rv_writer_session_limits *limits, const char *writer,
                                  bool resumes, rv_writer_session_user *user, rv_writer_session **out, bool *granted,
                                  rv_error *err)
{
  uint64_t id[2];
  if (!parse_id(writer, id))
    return rv_fail(err, RV_INVALID_ARGUMENT, "metadata reverie-writer must be 32 hexadecimal digits, got \"%.64s\"", writer);
  rv_mutex_lock(&sessions->lock);
  rv_code code = attach(sessions, limits, id, resumes, user, out, granted, err);
  rv_mutex_unlock(&sessions->lock);
  return code;
}

void rv_writer_sessions_detach(rv_writer_sessions *sessions, rv_writer_session *session, rv_writer_session_user *user)
{
  rv_mutex_lock(&sessions->lock);
  if (session->successor == user) {
    session->successor = NULL;
  } else if (session->owner == user) {
    session->owner = session->successor;
    session->successor = NULL;
    if (session->owner != NULL) session->owner->granted(session->owner);
  }
  if (--session->users == 0) become_idle(sessions, session);
  rv_mutex_unlock(&sessions->lock);
}

size_t rv_writer_sessions_count(rv_writer_sessions *sessions)
{
  rv_mutex_lock(&sessions->lock);
  size_t count = sessions->count;
  rv_mutex_unlock(&sessions->lock);
  return count;
}

/* ---- one session, by its owner ---- */

void rv_writer_session_id(const rv_writer_session *session, uint64_t out[2])
{
  out[0] = session->id[0];
  out[1] = session->id[1];
}

rv_code rv_writer_session_check(const rv_writer_session *session, rv_error *err)
{
  if (!atomic_load(&session->broken)) return RV_OK;
  return rv_fail(err, RV_FAILED_PRECONDITION,
                 "the server could not remember all of the writer's items, so it is not known which were inserted; "
                 "make a new writer");
}

bool rv_writer_session_find(const rv_writer_session *session, uint64_t number, rv_code *code, const char **message)
{
  if (!rv_done_set_has(&session->done, number)) return false;
  for (size_t i = 0; i < session->num_refusals; i++) {
    if (session->refusals[i].number == number) {
      *code = session->refusals[i].code;
      *message = session->refusals[i].message;
      return true;
    }
  }
  bool refused = rv_done_set_has(&session->refused, number), forgotten = !refused && number <= session->forgotten;
  *code = refused || forgotten ? RV_UNKNOWN : RV_OK;
  *message = refused ? "the item was refused; why is not remembered any more, for many others were since"
             : forgotten
                 ? "whether the item was inserted or refused is not remembered any more, for very many others were refused since"
                 : "";
  return true;
}

/* Of a refusal whose reason is forgotten. */
static bool keep_refused(rv_writer_session *session, uint64_t number)
{
  if (rv_done_set_is_full(&session->refused))
    session->forgotten = rv_done_set_drop_first(&session->refused, session->refused.count / 4);
  return rv_done_set_add(&session->refused, number, NULL) == RV_OK;
}

/* Where one more goes: behind the others, or in the place of the oldest. NULL: there is no memory. */
static refusal *room_for_refusal(rv_writer_session *session)
{
  if (session->num_refusals == REFUSALS_MAX) {
    refusal *oldest = &session->refusals[session->oldest_refusal];
    if (!keep_refused(session, oldest->number)) return NULL;
    forget_reason(session, oldest);
    session->oldest_refusal = (session->oldest_refusal + 1) % REFUSALS_MAX;
    return oldest;
  }
  if (session->num_refusals == session->refusals_capacity) {
    size_t capacity = session->refusals_capacity == 0 ? 8 : session->refusals_capacity * 2;
    refusal *grown = realloc(session->refusals, capacity * sizeof *grown);
    if (grown == NULL) return NULL;
    session->refusals = grown;
    session->refusals_capacity = capacity;
  }
  return &session->refusals[session->num_refusals++];
}

static bool remember_refusal(rv_writer_session *session, uint64_t number, rv_code code, const char *message)
{
  const size_t bytes = strlen(message) + 1;
  if (atomic_load_explicit(session->reasons, memory_order_relaxed) + bytes > REASONS_MAX) return keep_refused(session, number);
  char *copy = strdup(message);
  refusal *room = copy == NULL ? NULL : room_for_refusal(session);
  if (room == NULL) {
    free(copy);
    return false;
  }
  *room = (refusal){.number = number, .code = code, .message = copy};
  atomic_fetch_add_explicit(session->reasons, bytes, memory_order_relaxed);
  return true;
}

void rv_writer_session_record(rv_writer_session *session, uint64_t number, rv_code code, const char *message)
{
  bool fine = code == RV_OK || remember_refusal(session, number, code, message);
  if (!fine || rv_done_set_add(&session->done, number, NULL) != RV_OK) atomic_store(&session->broken, true);
}
