/* A thread that waits for an answer, or has a large row to send, does its loop's work for its own channel meanwhile, while the loop's thread
 * has nothing to do: it sends what it asks itself, and reads the answer itself. Nobody else has to be woken on the way there and back.
 *
 * The loop's thread is responsible for everything as before, and woken by what comes as before: what a guest does is only done earlier, and
 * where one cannot, nothing is lost. What libuv must do (watch, close, connect) waits for the loop's thread. */
#ifndef RV_NET_GUEST_H
#define RV_NET_GUEST_H

#include "net/net.h"

/* As rv_loop_post, but where the loop is idle the task has run, on this thread, when this returns. Not for what begins or ends channels or
 * servers. No lock may be held. */
void rv_loop_hand(rv_loop *loop, rv_task *task);
/* Runs the task, if there is one, at once on this thread and sends what comes of it: true, with *fd the channel's socket, or -1 if it has none now. false (and -1):
 * the loop is busy or the channel not connected; nothing was done, and the task is to be posted. No lock may be held. */
bool rv_channel_visit(rv_channel *channel, rv_task *task, int *fd);
typedef enum rv_guest_read {
  RV_GUEST_READ,
  RV_GUEST_READ_MUCH, /* so much that the loop's thread is better at it */
  RV_GUEST_CANNOT     /* the loop's thread is at it, or the channel has another socket */
} rv_guest_read;
/* Reads what the channel's socket has, and does what comes of it. */
rv_guest_read rv_channel_receive(rv_channel *channel, int fd);

/* Of a loop's guests one at a time sits at its sockets, from before he visits until he stands up. false: another does. */
bool rv_loop_sit(rv_loop *loop);
void rv_loop_stand(rv_loop *loop);
/* By who sits, after a visit: waits until the socket has something to read (true), somebody knocks, or ns have passed (INT64_MAX: never). */
bool rv_loop_wait_at(rv_loop *loop, int fd, int64_t ns);
/* Any thread: whoever sits looks up. */
void rv_loop_knock(rv_loop *loop);

#endif
