/* What is remembered of each Reverie writer, so that an item which is sent again after a lost connection is never inserted twice
 * (docs/protocol.md, Exactly once). It belongs to the store that the items are in, not to the server that let them in: a server
 * that takes the place of another, and several over one store, go on where the writer was.
 *
 * A session has at most one owner, a stream. A newer stream of the same writer asks the owner to go and waits until it has: only
 * then is it known of every item of the older one whether it was inserted. What a session holds (rv_session_*) is its owner's
 * alone; the registry (rv_sessions_*) may be used from any thread. */
#ifndef RV_SERVER_SESSIONS_H
#define RV_SERVER_SESSIONS_H

#include "persist/journal.h"
#include "store/store.h"

typedef struct rv_writer_sessions rv_writer_sessions;
typedef struct rv_writer_session rv_writer_session;

/* A stream, as the registry knows it. Both functions are called with the registry's lock held, from any thread: they may do no
 * more than post a task. `evict` comes at most once. */
typedef struct rv_writer_session_user {
  void (*evict)(struct rv_writer_session_user *user);   /* a newer stream of the writer is here: cancel, then detach */
  void (*granted)(struct rv_writer_session_user *user); /* the session is yours now */
  bool evicted;                                         /* the registry's */
  uint64_t caller; /* rv_caller_id: a session that one has begun is not another's; 0: nobody was asked */
} rv_writer_session_user;

/* How much a server lets be remembered; each asks for its own when it attaches a stream. */
typedef struct rv_writer_session_limits {
  size_t max_sessions;
  int64_t ttl_ns;      /* of sessions that nobody uses */
  rv_journal *journal; /* is told which sessions there are; NULL: none */
} rv_writer_session_limits;

/* The store's registry, made with the first server; it lives as long as the store, and tells time by the store's clock. What the
 * journal (may be NULL) knew of writers when it was recovered is in it. */
rv_code rv_writer_sessions_of_store(rv_store *store, const rv_journal *journal, rv_writer_sessions **out, rv_error *err);

rv_code rv_writer_sessions_new(const rv_env *env, rv_writer_sessions **out, rv_error *err);
/* No session may have an owner. */
void rv_writer_sessions_free(rv_writer_sessions *sessions);

/* Finds or makes the session of a writer: 32 hexadecimal digits, dashes ignored. `resumes`: the writer has seen this very store
 * before, so that a session which is not there has expired: RV_FAILED_PRECONDITION. *granted: the user is the owner now;
 * otherwise `granted` will be called. RV_RESOURCE_EXHAUSTED: too many writers at once. RV_PERMISSION_DENIED: it is another caller's. */
rv_code rv_writer_sessions_attach(rv_writer_sessions *sessions, const rv_writer_session_limits *limits, const char *writer,
                                  bool resumes, rv_writer_session_user *user, rv_writer_session **out, bool *granted,
                                  rv_error *err);
/* The user, owner or waiting, goes. */
void rv_writer_sessions_detach(rv_writer_sessions *sessions, rv_writer_session *session, rv_writer_session_user *user);
size_t rv_writer_sessions_count(rv_writer_sessions *sessions);

void rv_writer_session_id(const rv_writer_session *session, uint64_t out[2]);
/* RV_FAILED_PRECONDITION: something could not be remembered. To be asked again by whoever is granted a session later than he came. */
rv_code rv_writer_session_check(const rv_writer_session *session, rv_error *err);
/* Has the item with that number been answered before, and how? Returns false if not. *code is RV_OK for one that was inserted,
 * else the error it was refused with, whose sentence is *message (the session's, until the next call); where
 * thousands were refused since, RV_UNKNOWN. */
bool rv_writer_session_find(const rv_writer_session *session, uint64_t number, rv_code *code, const char **message);
/* Remembers that the item was inserted, or refused with that error. Where memory is out for that, or it is too much, the session can never
 * be resumed. */
void rv_writer_session_record(rv_writer_session *session, uint64_t number, rv_code code, const char *message);

#endif
