/* Faults of the disk and of the clock, for a server that was started with LD_PRELOAD: the torture says in a file that both map what
 * shall fail, and reads there how often it did (faults.py has the same list). Regular files only, never the log on descriptor 2. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum field {
  CLOCK_OFFSET_NS,
  ROOM,           /* bytes that the disk still takes; negative: no end */
  WRITES_FAIL,    /* of 1,000 */
  SYNCS_FAIL,     /* of 1,000 */
  WRITE_DELAY_US, /* of each */
  SYNC_DELAY_US,
  FAILED_WRITES, /* from here on the library counts */
  FAILED_SYNCS,
  FULL_WRITES,
  DELAYED,
  SLOWEST_SYNC_NS,
  SYNCS_BEGAN_NS, /* the first of MOST_SYNCS: when an fdatasync or fsync that is under way began, by CLOCK_MONOTONIC; 0: none is */
  MOST_SYNCS = 8, /* at once */
  NUM_FIELDS = SYNCS_BEGAN_NS + MOST_SYNCS
};

/* A library that is preloaded has nobody to hand it a context. */
static _Atomic int64_t *control;
static struct {
  ssize_t (*write)(int, const void *, size_t);
  ssize_t (*writev)(int, const struct iovec *, int);
  int (*fsync)(int);
  int (*fdatasync)(int);
  int (*open)(const char *, int, ...);
  int (*clock_gettime)(clockid_t, struct timespec *);
} real;

__attribute__((constructor)) static void begin(void)
{
  *(void **)&real.write = dlsym(RTLD_NEXT, "write");
  *(void **)&real.writev = dlsym(RTLD_NEXT, "writev");
  *(void **)&real.fsync = dlsym(RTLD_NEXT, "fsync");
  *(void **)&real.fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  *(void **)&real.open = dlsym(RTLD_NEXT, "open");
  *(void **)&real.clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("RV_TORTURE_FAULTS");
  int file = path == NULL ? -1 : real.open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void *map = mmap(NULL, NUM_FIELDS * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map != MAP_FAILED) control = map;
}

static int64_t get(enum field field)
{
  return control == NULL ? field == ROOM ? -1 : 0 : atomic_load(&control[field]);
}

static bool is_file(int file)
{
  struct stat found;
  return file > 2 && fstat(file, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode));
}

static void wait_for_disk(int64_t us)
{
  if (us <= 0) return;
  atomic_fetch_add(&control[DELAYED], 1);
  struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* So many of 1,000 times: by the nanosecond, which nobody chooses. */
static bool chance(int64_t of_thousand)
{
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return (int64_t)(((uint64_t)now.tv_nsec * UINT64_C(0x9e3779b97f4a7c15) >> 40) % 1000) < of_thousand;
}

/* How much of this the disk has room for, which is then taken. The torture may heal the disk meanwhile: that stands. */
static ssize_t take_room(size_t wanted)
{
  int64_t room = get(ROOM), taken;
  do {
    if (room < 0) return (ssize_t)wanted;
    taken = (int64_t)wanted < room ? (int64_t)wanted : room;
  } while (!atomic_compare_exchange_weak(&control[ROOM], &room, room - taken));
  return (ssize_t)taken;
}

/* How many of these bytes the disk takes; negative: none, and errno says why. */
static ssize_t allow(int file, size_t wanted)
{
  int64_t delay = get(WRITE_DELAY_US), fails = get(WRITES_FAIL), room = get(ROOM);
  if ((delay == 0 && fails == 0 && room < 0) || !is_file(file)) return (ssize_t)wanted;
  wait_for_disk(delay);
  if (fails > 0 && chance(fails)) {
    atomic_fetch_add(&control[FAILED_WRITES], 1);
    errno = EIO;
    return -1;
  }
  if (room < 0) return (ssize_t)wanted;
  ssize_t taken = take_room(wanted);
  if (taken > 0) return taken;
  atomic_fetch_add(&control[FULL_WRITES], 1);
  errno = ENOSPC;
  return -1;
}

ssize_t write(int file, const void *data, size_t size)
{
  ssize_t allowed = allow(file, size);
  return allowed < 0 ? -1 : real.write(file, data, (size_t)allowed);
}

ssize_t writev(int file, const struct iovec *pieces, int count)
{
  size_t size = 0;
  for (int i = 0; i < count; i++) size += pieces[i].iov_len;
  ssize_t allowed = allow(file, size);
  if (allowed < 0) return -1;
  if ((size_t)allowed == size) return real.writev(file, pieces, count);
  size_t first = pieces[0].iov_len; /* a part of the first piece is a short write, too */
  return real.write(file, pieces[0].iov_base, first < (size_t)allowed ? first : (size_t)allowed);
}

static bool sync_fails(int file)
{
  int64_t delay = get(SYNC_DELAY_US), fails = get(SYNCS_FAIL);
  if ((delay == 0 && fails == 0) || !is_file(file)) return false;
  wait_for_disk(delay);
  if (fails == 0 || !chance(fails)) return false;
  atomic_fetch_add(&control[FAILED_SYNCS], 1);
  errno = EIO;
  return true;
}

static int64_t monotonic_ns(void)
{
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Where it is said that one is under way: several threads force files. NULL: there are more than may be told. */
static _Atomic int64_t *begin_sync(int64_t began)
{
  for (int i = 0; i < MOST_SYNCS; i++) {
    int64_t none = 0;
    if (atomic_compare_exchange_strong(&control[SYNCS_BEGAN_NS + i], &none, began)) return &control[SYNCS_BEGAN_NS + i];
  }
  return NULL;
}

/* Remembers how long the slowest took: what a periodic journal may lose depends on it. */
static int sync_timed(int file, int (*force)(int))
{
  if (control == NULL) return force(file);
  int64_t began = monotonic_ns();
  _Atomic int64_t *under_way = begin_sync(began);
  int result = sync_fails(file) ? -1 : force(file), number = errno;
  int64_t took = monotonic_ns() - began, slowest = get(SLOWEST_SYNC_NS);
  while (took > slowest && !atomic_compare_exchange_weak(&control[SLOWEST_SYNC_NS], &slowest, took)) continue;
  if (under_way != NULL) atomic_store(under_way, 0);
  errno = number;
  return result;
}

int fsync(int file)
{
  return sync_timed(file, real.fsync);
}

int fdatasync(int file)
{
  return sync_timed(file, real.fdatasync);
}

int open(const char *path, int flags, ...)
{
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
    if (get(ROOM) == 0) {
      atomic_fetch_add(&control[FULL_WRITES], 1);
      errno = ENOSPC;
      return -1;
    }
  }
  return real.open != NULL ? real.open(path, flags, mode) : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
  int result = real.clock_gettime != NULL ? real.clock_gettime(clock, out) : (int)syscall(SYS_clock_gettime, clock, out);
  int64_t offset = clock == CLOCK_REALTIME ? get(CLOCK_OFFSET_NS) : 0;
  if (result == 0 && offset != 0) {
    int64_t ns = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + offset;
    out->tv_sec = ns / 1000000000;
    out->tv_nsec = ns % 1000000000;
  }
  return result;
}
