/* RV_LINUX: what only Linux has may be used: futexes, files in memory that are shared, eventfd, credentials of a unix socket's peer. Each place
 * that asks for it has another way beside it, slower or without the thing, for POSIX systems. -DRV_PLAIN takes those ways on Linux, so
 * that they are tested (./dev plain). What a header may define or not (MADV_HUGEPAGE, SOCK_NONBLOCK) is asked for by its own name. */
#ifndef RV_BASE_LINUX_H
#define RV_BASE_LINUX_H

#if defined(__linux__) && !defined(RV_PLAIN)
#define RV_LINUX 1
#endif

#endif
