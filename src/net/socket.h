/* Sockets: names, options, listening and connecting without blocking. */
#ifndef RV_NET_SOCKET_H
#define RV_NET_SOCKET_H

#include <sys/socket.h>
#include <sys/un.h>

#include "net/address.h"

typedef struct rv_sockaddr {
  struct sockaddr_storage storage;
  socklen_t length;
} rv_sockaddr;

enum { RV_PEER_MAX = 160 };

/* An address that needs no resolver: a unix path or a numeric host. false: it is a name. */
bool rv_sockaddr_of_address(const rv_address *address, rv_sockaddr *out);
/* "ipv4:127.0.0.1:4711" (also for IPv4 in IPv6), "ipv6:[::1]:4711", "unix:/path". */
void rv_sockaddr_format(const rv_sockaddr *address, char out[RV_PEER_MAX]);
bool rv_sockaddr_is_loopback(const rv_sockaddr *address);
void rv_sockaddr_set_port(rv_sockaddr *address, uint16_t port);
uint16_t rv_sockaddr_port(const rv_sockaddr *address);

/* A non-blocking, close-on-exec socket, or a negated errno. */
int rv_socket_open(int family);
/* What is sent is sent at once. */
void rv_socket_tune(int fd);
/* The system asks a silent peer whether it is there, so that one that vanished is noticed within that time; INT64_MAX: never. There is
 * no TCP_USER_TIMEOUT: it also ends connections whose peer is there and does not read. */
void rv_socket_probe(int fd, int64_t timeout_ns);
/* Bytes that were written and that the peer's system has not acknowledged; 0 also where that is not known. */
size_t rv_socket_unsent(int fd);
/* Something was sent, and no acknowledgement has come for so long. false also where that is not known. */
bool rv_socket_is_unheard(int fd, int64_t ns);
/* Acknowledges what was read at once. A system that waits for more to acknowledge keeps a sender waiting, for up to 40 ms a time,
 * whose next segment does not fit into the window: over loopback a segment is as large as a young connection's window. false: this kind
 * of socket has nothing to acknowledge. */
bool rv_socket_acknowledge(int fd);
/* A number that stands for the peer's machine: its IPv4 address, or the network (64 bits) of its IPv6 address; 0: it has none. */
uint64_t rv_socket_peer_machine(int fd);
uint64_t rv_socket_this_machine(void); /* the same of 127.0.0.1 */
bool rv_socket_is_unix(int fd);
/* May who writes to this unix socket send descriptors with it? One that nobody takes is closed by whoever reads it, and to close what somebody
 * else has chosen may last as long as he likes (SO_LINGER, FUSE). Who connects to a socket that listens finds it so from the beginning; he is told
 * EPERM. Linux before 6.16 takes all. */
void rv_socket_let_send_descriptors(int fd, bool let);
/* Whether this system lets a unix socket refuse them. */
bool rv_socket_may_refuse_descriptors(int fd);
/* The peer's name into `out`; of a unix socket's client, at the server, who it is and the name that it came to:
 * "unix:process 4711 of user 1000 to /path". Visible ASCII. */
void rv_socket_peer(int fd, char out[RV_PEER_MAX]);
/* 0: connected; EINPROGRESS: wait until it is writable; else the errno. */
int rv_socket_connect(int fd, const rv_sockaddr *address);
/* Ends the connection, or the listening, and closes. A copy that a forked child has would keep alive what is only closed. */
void rv_socket_close(int fd);
/* Closing will throw away what the peer has not taken, and tell it at once (RST): one that does not read would otherwise hear of the end
 * only when the kernel gives up, minutes later. */
void rv_socket_reset_when_closed(int fd);
int rv_socket_error(int fd); /* the pending error, 0: none */

/* Accepts one connection: a tuned socket, or a negated errno. */
int rv_socket_accept(int listener);

/* Lets the process have as many open files as the system allows it. */
void rv_socket_raise_limit(void);

#endif
