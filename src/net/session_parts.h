/* What session.c and session_receive.c share: a connection's life and its sending, and its receiving. */
#ifndef RV_NET_SESSION_PARTS_H
#define RV_NET_SESSION_PARTS_H

#include "net/session.h"

/* ---- session.c ---- */

/* Until the socket takes no more, nothing is left, or `most` bytes are sent. */
void rv_session_send_some(rv_session *session, size_t most);
void rv_session_send_all(rv_session *session); /* as much as it may in a turn */
/* More waits to be sent than what comes next should add to. */
bool rv_session_has_much_to_send(const rv_session *session);
void rv_session_read_soon(rv_session *session);
/* Why its transport failed, in words. */
const char *rv_session_problem(const rv_session *session, int error);

/* ---- session_receive.c ---- */

/* Its read_task's. */
void rv_session_read_on(rv_task *task);
/* What is there when sending has failed. */
void rv_session_read_rest(rv_session *session);

#endif
