/* Tests under the sanitizer of threads have this in the place of syscall: libuv closes descriptors by it, which the sanitizer does not see,
 * so that it takes a number that comes again for the descriptor that was there before. Here it sees them. */
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long system_call(long number, ...);

static system_call *next;

__attribute__((constructor)) static void find_next(void)
{
  *(void **)&next = dlsym(RTLD_NEXT, "syscall");
}

__attribute__((visibility("default"))) long syscall(long number, ...)
{
  long given[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) given[i] = va_arg(list, long); /* as syscall itself takes them, however many there are */
  va_end(list);
  if (number == SYS_close) return close((int)given[0]);
  if (next == NULL) find_next(); /* another constructor calls */
  return next(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
