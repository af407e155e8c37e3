#include "open_files.h"

#include <sys/resource.h>
#include <unistd.h>

enum {
  DEFAULT_CONNECTIONS = 10000, /* of rv_server_config */
  OWN_FILES = 16,              /* an idle server's, but for */
  FILES_A_THREAD = 4,
  RESERVE = 64 /* for checkpoints, the journal's next segments, and connections while they are refused; at most a quarter */
};

static rlim_t raised_limit(void)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return RLIM_INFINITY;
  rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before;
}

/* The library's own number, where none is configured. */
static rlim_t io_threads(const settings *all)
{
  long half = sysconf(_SC_NPROCESSORS_ONLN) / 2;
  return all->threads > 0 ? (rlim_t)all->threads : half < 1 ? 1 : half > 8 ? 8 : (rlim_t)half;
}

size_t open_files_bound_connections(server_log *log, const settings *all)
{
  rlim_t wanted = all->max_connections > 0 ? (rlim_t)all->max_connections : DEFAULT_CONNECTIONS;
  rlim_t limit = raised_limit(), own = OWN_FILES + FILES_A_THREAD * io_threads(all) + all->num_addresses;
  rlim_t reserve = limit / 4 < RESERVE ? limit / 4 : RESERVE;
  if (limit == RLIM_INFINITY || wanted + own + RESERVE <= limit) return (size_t)wanted;
  rlim_t room = limit > own + reserve ? limit - own - reserve : 1;
  if (room >= wanted) return (size_t)wanted;
  log_say(
      log, RV_LOG_WARNING,
      "max_connections is %llu, and the limit of open files, %llu, has room for %llu beside the server's own: more are refused; "
      "raise the limit to %llu (ulimit -n, LimitNOFILE=), or lower max_connections",
      (unsigned long long)wanted, (unsigned long long)limit, (unsigned long long)room,
      (unsigned long long)(wanted + own + RESERVE));
  return (size_t)room;
}
