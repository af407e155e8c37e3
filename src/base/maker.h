/* Which process made this? A child that was forked has a copy of everything, but none of the threads, perhaps a lock for ever, and no right to what is
 * shared with its parent. To tell costs a load: there is a page that the kernel empties in a child. getpid() is a system call, 0.1 us each time. */
#ifndef RV_BASE_MAKER_H
#define RV_BASE_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct rv_maker {
  pid_t process;
  const volatile unsigned char *page; /* 0 in a child; NULL: the kernel is asked, as there is no such page here */
} rv_maker;

/* This process. */
void rv_maker_init(rv_maker *maker);
void rv_maker_fini(rv_maker *maker); /* in a child, too */

bool rv_maker_ask_kernel(const rv_maker *maker);
static inline bool rv_maker_is_this_process(const rv_maker *maker)
{
  return maker->page != NULL ? *maker->page != 0 : rv_maker_ask_kernel(maker);
}

#endif
