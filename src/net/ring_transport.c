#include "net/ring_transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/linux.h"
#include "base/off_streams.h"
#include "net/socket.h"

#ifndef MSG_CMSG_CLOEXEC
#define MSG_CMSG_CLOEXEC 0
#endif

/* Servers that say '-' instead of '=' are left for their address, and leave is what older clients do at '='. */
static const char QUESTION[] = {'R', 'V', 'r', 'i', 'n', 'g', 's', '5'}, GIVEN = '+', DECLINED = '=';

static const char NONSENSE[] = "the memory it shares with us says what cannot be";

typedef struct ring_state {
  rv_rings rings;
  atomic_uint *in_use; /* a server's; NULL: not counted there */
  bool slept;          /* asked to be woken, and has not looked at the socket since */
  bool awaits_room;
  bool ended; /* the socket's */
  int error;  /* with it; 0: none */
} ring_state;

/* ---- the transport ---- */

/* Takes from the socket what has woken this end. */
static void hear(rv_transport *transport)
{
  ring_state *state = transport->state;
  char calls[64];
  if ((!state->slept && !state->awaits_room) || state->ended) return;
  state->slept = false;
  ssize_t n = recv(transport->fd, calls, sizeof calls, MSG_DONTWAIT);
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return;
  state->ended = true;
  /* ECONNRESET: the peer had not looked who rings. What it wrote is in the ring. */
  state->error = n < 0 && errno != ECONNRESET ? errno : 0;
}

static bool settle(rv_transport *transport)
{
  ring_state *state = transport->state;
  bool settled = rv_ring_settle(&state->rings.out);
  transport->lent = state->rings.out.held_bytes;
  return settled;
}

/* False: what the client says of its blocks cannot be. */
static bool serve_blocks(ring_state *state, bool now)
{
  rv_landing_end *blocks = state->rings.in.blocks;
  if (blocks == NULL || (!now && !rv_landing_end_is_due(blocks))) return true;
  return rv_landing_end_serve(blocks);
}

static ssize_t ring_read(rv_transport *transport, const struct iovec *vec, int count)
{
  ring_state *state = transport->state;
  hear(transport);
  state->rings.in.gaps = transport->gaps;
  ssize_t n = rv_ring_read(&state->rings.in, vec, count);
  if (!settle(transport) || !serve_blocks(state, n == 0))
    n = -EPROTO; /* after it: what was read may say what is not needed any more */
  if (n == -EPROTO) transport->problem = NONSENSE;
  if (n != 0) return n;
  return !state->ended ? -EAGAIN : -state->error;
}

static bool ring_give_back(rv_transport *transport)
{
  ring_state *state = transport->state;
  return rv_ring_give_back(&state->rings.in);
}

static rv_buf *ring_land(rv_transport *transport, size_t before, size_t behind)
{
  ring_state *state = transport->state;
  return rv_ring_land(&state->rings.in, before, behind);
}

static ssize_t ring_write(rv_transport *transport, const struct iovec *vec, int count)
{
  ring_state *state = transport->state;
  ssize_t n;
  transport->write_awaits_readable = state->awaits_room = false;
  do {
    if (state->ended) return -EPIPE;
    n = rv_ring_write(&state->rings.out, vec, count);
    transport->lent = state->rings.out.held_bytes;
    if (n == -EPROTO) transport->problem = NONSENSE;
    if (n != 0) return n;
  } while (!rv_ring_await_room(&state->rings.out));
  transport->write_awaits_readable = state->awaits_room = true;
  return -EAGAIN;
}

/* There is something to read, or this end will be woken when there is. */
static bool ring_pending(rv_transport *transport)
{
  ring_state *state = transport->state;
  hear(transport);
  if (!rv_ring_await_bytes(&state->rings.in)) return true;
  state->slept = true;
  return state->ended;
}

static void ring_rest(rv_transport *transport)
{
  ring_state *state = transport->state;
  settle(transport);
  if (state->rings.in.blocks != NULL) rv_landing_end_rest(state->rings.in.blocks);
  rv_ring_trim(&state->rings.out);
}

static void state_free(ring_state *state)
{
  rv_rings_unmap(&state->rings);
  if (state->in_use != NULL) atomic_fetch_sub(state->in_use, 1);
  free(state);
}

static void ring_close(rv_transport *transport)
{
  state_free(transport->state);
  if (transport->fd >= 0) rv_socket_close(transport->fd);
  transport->state = NULL;
  transport->problem = NULL;
  transport->landing = NULL;
  transport->blocks = NULL;
  transport->lent = 0;
  transport->fd = -1;
}

static const rv_transport_ops ring_ops = {.read = ring_read,
                                          .write = ring_write,
                                          .give_back = ring_give_back,
                                          .land = ring_land,
                                          .pending = ring_pending,
                                          .rest = ring_rest,
                                          .peer_name = rv_transport_no_name,
                                          .shut_down = rv_transport_shut_socket,
                                          .close = ring_close};

static ring_state *state_new(rv_rings *owned_rings, int fd)
{
  ring_state *state = calloc(1, sizeof *state);
  if (state == NULL) return NULL;
  state->rings = *owned_rings;
  state->rings.out.bell = state->rings.in.bell = fd;
  state->slept = true; /* as rv_rings_make has said of it */
  return state;
}

static void use_rings(rv_transport *transport, int fd, ring_state *state)
{
  *transport = (rv_transport){.ops = &ring_ops,
                              .fd = fd,
                              .state = state,
                              .landing = state->rings.out.landing,
                              .borrows = state->rings.in.writers_arena != NULL};
}

bool rv_transport_init_rings(rv_transport *transport, int owned_fd, rv_rings *owned_rings)
{
  ring_state *state = state_new(owned_rings, owned_fd);
  if (state == NULL) return false;
  use_rings(transport, owned_fd, state);
  return true;
}

/* ---- descriptors ---- */

/* What those of an answer are of, one after another; a question has one of an arena, or none. */
enum { RINGS, ARENA, LANDING, ARENA_TO_WRITE, MEMORIES };

/* Bytes with the descriptors of memory; what it returns is sendmsg's. */
static ssize_t send_with(int fd, const void *data, size_t size, const int *memory, size_t memories)
{
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(MEMORIES * sizeof(int))] = {0};
  struct iovec vec = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
  struct msghdr message = {.msg_iov = &vec, .msg_iovlen = 1};
  if (memories > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(memories * sizeof *memory);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(memories * sizeof *memory);
    memcpy(CMSG_DATA(head), memory, memories * sizeof *memory);
  }
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The descriptors that came with a message; -1: none. Others are closed. */
static void take_descriptors(struct msghdr *message, int found[MEMORIES])
{
  size_t n = 0;
  for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= at->cmsg_len; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
      if (n < MEMORIES)
        found[n++] = rv_off_streams(fd);
      else
        close(fd);
    }
  }
}

/* Bytes, 0 at the end, or a negated errno; and what came with them, which is the caller's. */
static ssize_t receive_with(int fd, const struct iovec *vec, int count, int found[MEMORIES])
{
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(MEMORIES * sizeof(int))] = {0};
  struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)vec,
                           .msg_iovlen = (size_t)count,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
  ssize_t n;
  do n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  for (size_t i = 0; i < MEMORIES; i++) found[i] = -1;
  if (n >= 0) take_descriptors(&message, found);
  return n >= 0 ? n : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

static void close_all(const int memory[MEMORIES])
{
  for (size_t i = 0; i < MEMORIES; i++)
    if (memory[i] >= 0) close(memory[i]);
}

/* Processes of this one's user whom it can see; a user that this system has no number for here may be anybody's. */
static bool is_one_of_us(int fd)
{
#ifdef RV_LINUX
  enum { NOBODY = 65534 };
  struct ucred peer;
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid != 0 && peer.uid == geteuid() &&
         peer.uid != NOBODY;
#else
  (void)fd;
  return false;
#endif
}

/* ---- a client's question ---- */

/* A server in a PID namespace of its own, as in a container, sees no process outside it, so it trusts none and takes nothing that it lends. */
static bool sees_this_process(int fd)
{
#ifdef RV_LINUX
  struct ucred peer = {.pid = 0};
  socklen_t length = sizeof peer;
  struct stat own, servers;
  char path[48];
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  snprintf(path, sizeof path, "/proc/%ld/ns/pid", (long)peer.pid);
  if (stat("/proc/self/ns/pid", &own) != 0 || stat(path, &servers) != 0) return true; /* it shows itself */
  return own.st_dev == servers.st_dev && own.st_ino == servers.st_ino;
#else
  (void)fd;
  return false;
#endif
}

int rv_rings_ask(int fd, rv_arena *arena, bool *told)
{
  int memory = arena != NULL && is_one_of_us(fd) && sees_this_process(fd) ? rv_arena_file(arena) : -1;
  ssize_t n = send_with(fd, QUESTION, sizeof QUESTION, &memory, memory >= 0 ? 1 : 0);
  int error = n == (ssize_t)sizeof QUESTION ? 0 : n < 0 ? errno : EIO;
  *told = error == 0 && memory >= 0;
  if (error == EPERM && !rv_socket_may_refuse_descriptors(fd)) error = EOPNOTSUPP; /* as a security module says */
  return error;
}

rv_rings_answer rv_rings_answer_read(int fd, rv_arena *arena, rv_arena_maps *maps, rv_rings *out)
{
  char answer;
  int memory[MEMORIES];
  ssize_t n = receive_with(fd, &(struct iovec){.iov_base = &answer, .iov_len = 1}, 1, memory);
  bool joined = n == 1 && answer == GIVEN && memory[RINGS] >= 0 && rv_rings_join(memory[RINGS], out);
  if (joined && maps != NULL && memory[ARENA] >= 0) rv_rings_borrow(out, maps, memory[ARENA], SIZE_MAX);
  bool lends = joined && arena != NULL && is_one_of_us(fd) && rv_rings_lend(out, arena);
  if (lends && maps != NULL && memory[ARENA_TO_WRITE] >= 0)
    rv_rings_fill(out, rv_landing_join(memory[LANDING], memory[ARENA_TO_WRITE], maps));
  close_all(memory);
  if (joined) return RV_RINGS_GIVEN;
  return n == 1 && answer == DECLINED ? RV_RINGS_DECLINED : RV_RINGS_UNKNOWN;
}

/* ---- a server's connection until its client's first bytes ---- */

/* The state of a connection with rings, and what the client maps them by, to be closed; NULL: it has none. */
static ring_state *give(int fd, rv_ring_host *host, int *memory)
{
  rv_rings rings = {.map = NULL};
  ring_state *state = NULL;
  *memory = atomic_fetch_add(&host->in_use, 1) < RV_MOST_RINGS ? rv_rings_make(&rings) : -1;
  if (*memory >= 0) state = state_new(&rings, fd);
  if (state != NULL) {
    state->in_use = &host->in_use;
    return state;
  }
  atomic_fetch_sub(&host->in_use, 1);
  if (*memory >= 0) close(*memory);
  rv_rings_unmap(&rings);
  return NULL;
}

enum { MAPPED_OF_A_CLIENT = 16 }; /* segments: no client makes a server run out of addresses */

/* To a client that it trusts, and that lends. How many descriptors there are by now, of which that of the landing is to be closed. */
static size_t give_blocks(rv_transport *transport, rv_ring_host *host, rv_landing_round *round, int memory[MEMORIES])
{
  rv_landing_end *blocks = NULL;
  ring_state *state = transport->state;
  if (state->rings.in.writers_arena != NULL) blocks = rv_landing_end_new(&host->landing, round, transport->fd, &memory[LANDING]);
  if (blocks == NULL) return LANDING;
  rv_rings_give(&state->rings, blocks);
  transport->blocks = blocks;
  memory[ARENA_TO_WRITE] = rv_arena_file_to_write(host->arena);
  return MEMORIES;
}

/* The client has asked, and told of its arena (-1: it has none). */
static ssize_t answer_question(rv_transport *transport, int arena)
{
  rv_ring_host *host = transport->state;
  rv_landing_round *round = transport->round;
  int fd = transport->fd, memory[MEMORIES] = {-1, -1, -1, -1};
  ring_state *state = give(fd, host, &memory[RINGS]);
  if (state == NULL) {
    rv_transport_init_socket(transport, fd);
    return send_with(fd, &DECLINED, 1, NULL, 0) == 1 ? -EAGAIN : -EPIPE;
  }
  bool trusts = is_one_of_us(fd), lends = trusts && host->arena != NULL && rv_rings_lend(&state->rings, host->arena);
  if (trusts && arena >= 0) rv_rings_borrow(&state->rings, host->maps, arena, MAPPED_OF_A_CLIENT);
  use_rings(transport, fd, state);
  size_t memories = ARENA;
  if (lends) {
    memory[ARENA] = rv_arena_file(host->arena);
    memories = give_blocks(transport, host, round, memory);
  }
  bool told = send_with(fd, &GIVEN, 1, memory, memories) == 1;
  close(memory[RINGS]);
  if (memories > LANDING) close(memory[LANDING]);
  return told ? -EAGAIN : -EPIPE;
}

static ssize_t undecided_read(rv_transport *transport, const struct iovec *vec, int count)
{
  int found[MEMORIES];
  ssize_t n = receive_with(transport->fd, vec, count, found);
  if (n == -EAGAIN) return n;
  bool asks = n == (ssize_t)sizeof QUESTION && vec[0].iov_len >= sizeof QUESTION &&
              memcmp(vec[0].iov_base, QUESTION, sizeof QUESTION) == 0;
  if (asks)
    n = answer_question(transport, found[0]);
  else
    rv_transport_init_socket(transport, transport->fd);
  close_all(found);
  return n;
}

/* A server has nothing to say before its client has spoken, be it to a client that waits for an answer about rings. */
static ssize_t undecided_write(rv_transport *transport, const struct iovec *vec, int count)
{
  (void)vec, (void)count;
  transport->write_awaits_readable = true;
  return -EAGAIN;
}

void rv_transport_init_undecided(rv_transport *transport, int owned_fd, rv_ring_host *host, rv_landing_round *round)
{
  static const rv_transport_ops ops = {.read = undecided_read,
                                       .write = undecided_write,
                                       .give_back = rv_transport_nothing_lent,
                                       .land = rv_transport_nothing_lands,
                                       .pending = rv_transport_nothing_pending,
                                       .rest = rv_transport_no_rest,
                                       .peer_name = rv_transport_no_name,
                                       .shut_down = rv_transport_shut_socket,
                                       .close = rv_transport_close_socket};
  if (is_one_of_us(owned_fd)) rv_socket_let_send_descriptors(owned_fd, true); /* others have none to send */
  *transport = (rv_transport){.ops = &ops, .fd = owned_fd, .state = host, .round = round};
}
