#include "net/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/past_caches.h"

enum {
  HEADS = 4096,               /* both directions', before their bytes */
  STEP = 128 << 10,           /* so much is handed over at a time, for the other end to work beside this one */
  KEPT = 16 << 10,            /* of a quiet ring */
  PAST_CACHES_FROM = 12 << 10 /* a run; what is as long is a row for a table, not read soon */
};

_Static_assert((RV_RING_BYTES & (RV_RING_BYTES - 1)) == 0, "positions are cut by a mask");
_Static_assert(ATOMIC_LONG_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "processes share no lock");
_Static_assert(2 * sizeof(rv_ring_head) <= HEADS, "the heads have a page");

/* ---- one direction ---- */

/* Where this end is in the ring. */
static size_t place(const rv_ring *ring)
{
  return (size_t)(ring->at - atomic_load_explicit(&ring->head->origin, memory_order_relaxed)) & (RV_RING_BYTES - 1);
}

/* Whoever sleeps is woken once; where no more bytes fit, there are enough to wake him, and that he has gone the socket's end tells. 0, or a
 * negated errno. */
static int ring_bell(const rv_ring *ring, _Atomic uint32_t *sleeps)
{
  if (atomic_load(sleeps) == 0 || atomic_exchange(sleeps, 0) == 0) return 0;
  ssize_t n;
  do n = send(ring->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  bool harmless = n == 1 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EPIPE || errno == ECONNRESET;
  return harmless ? 0 : -errno;
}

typedef struct pieces {
  const struct iovec *vec;
  int left;
  size_t at;
} pieces;

/* Copies `size` contiguous bytes of the ring at most, in or out; returns how many. */
static size_t copy_run(uint8_t *bytes, size_t size, pieces *user, bool in, bool past_caches)
{
  size_t done = 0;
  while (done < size && user->left > 0) {
    size_t n = user->vec->iov_len - user->at;
    if (n > size - done) n = size - done;
    uint8_t *theirs = bytes + done, *ours = (uint8_t *)user->vec->iov_base + user->at;
    if (past_caches && user->left > 1 && n >= PAST_CACHES_FROM) /* the last piece is for what is parsed at once */
      rv_copy_past_caches(ours, theirs, n);
    else if (n > 0)
      memcpy(in ? theirs : ours, in ? ours : theirs, n);
    done += n;
    user->at += n;
    if (user->at < user->vec->iov_len) continue;
    user->vec++;
    user->left--;
    user->at = 0;
  }
  return done;
}

/* Up to `most` bytes from where this end is, around the ring's end. */
static size_t copy_step(rv_ring *ring, size_t most, pieces *user, bool in)
{
  size_t from = place(ring), run = RV_RING_BYTES - from < most ? RV_RING_BYTES - from : most;
  size_t done = copy_run(ring->bytes + from, run, user, in, ring->past_caches);
  if (done == run && run < most) done += copy_run(ring->bytes, most - run, user, in, ring->past_caches);
  if (in && from + done > ring->touched) ring->touched = from + done < RV_RING_BYTES ? from + done : RV_RING_BYTES;
  ring->at += done;
  return done;
}

/* Bytes that wait to be taken, as its writer sees it. SIZE_MAX: it cannot be. */
static size_t waiting(const rv_ring *ring)
{
  uint64_t bytes = ring->at - atomic_load(&ring->head->taken);
  return bytes <= RV_RING_BYTES ? (size_t)bytes : SIZE_MAX;
}

/* The same as its reader sees it. */
static size_t available(const rv_ring *ring)
{
  uint64_t bytes = atomic_load(&ring->head->written) - ring->at;
  return bytes <= RV_RING_BYTES ? (size_t)bytes : SIZE_MAX;
}

ssize_t rv_ring_write(rv_ring *ring, const struct iovec *vec, int count)
{
  pieces given = {.vec = vec, .left = count};
  for (size_t total = 0;;) {
    size_t full = waiting(ring);
    if (full == SIZE_MAX) return -EPROTO;
    if (full == 0)
      atomic_store_explicit(&ring->head->origin, ring->at, memory_order_relaxed); /* small things stay in a few pages */
    size_t room = RV_RING_BYTES - full, done = copy_step(ring, room < STEP ? room : STEP, &given, true);
    if (done == 0) return (ssize_t)total;
    total += done;
    atomic_store(&ring->head->written, ring->at);
    int error = ring_bell(ring, &ring->head->reader_sleeps);
    if (error != 0) return error;
  }
}

ssize_t rv_ring_read(rv_ring *ring, const struct iovec *vec, int count)
{
  pieces given = {.vec = vec, .left = count};
  for (size_t total = 0;;) {
    size_t bytes = available(ring);
    if (bytes == SIZE_MAX) return -EPROTO;
    size_t done = copy_step(ring, bytes < STEP ? bytes : STEP, &given, false);
    if (done == 0) return (ssize_t)total;
    total += done;
    atomic_store(&ring->head->taken, ring->at);
    bool much = bytes - done <= RV_RING_BYTES / 2; /* room that a writer is woken for */
    int error = much ? ring_bell(ring, &ring->head->writer_sleeps) : 0;
    if (error != 0) return error;
  }
}

bool rv_ring_await_room(rv_ring *ring)
{
  atomic_store(&ring->head->writer_sleeps, 1);
  size_t full = waiting(ring);
  return full == RV_RING_BYTES;
}

bool rv_ring_await_bytes(rv_ring *ring)
{
  if (available(ring) != 0) return false;
  atomic_store(&ring->head->reader_sleeps, 1);
  return available(ring) == 0;
}

void rv_ring_trim(rv_ring *ring)
{
#ifdef MADV_REMOVE
  if (ring->touched <= KEPT || waiting(ring) != 0) return;
  if (madvise(ring->bytes + KEPT, RV_RING_BYTES - KEPT, MADV_REMOVE) == 0) ring->touched = KEPT;
#else
  (void)ring;
#endif
}

/* ---- both ---- */

enum { ALL = HEADS + 2 * RV_RING_BYTES };

static bool map(int fd, bool client, rv_rings *out)
{
  uint8_t *memory = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  rv_ring_head *heads = (rv_ring_head *)(void *)memory;
  rv_ring asked = {.head = &heads[0], .bytes = memory + HEADS, .bell = -1};
  rv_ring answered = {.head = &heads[1], .bytes = memory + HEADS + RV_RING_BYTES, .bell = -1};
  *out = (rv_rings){.out = client ? asked : answered, .in = client ? answered : asked, .map = memory};
  return true;
}

#ifdef __linux__

/* It must not become shorter while it is mapped: what is missing kills who touches it. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static int new_memory(void)
{
  int fd = memfd_create("reverie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
#ifdef __SANITIZE_THREAD__ /* knows nothing of memfd_create, and takes the number for whatever had it before: it is opened anew */
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  int known = fd >= 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd >= 0) syscall(SYS_close, fd);
  fd = known;
#endif
  return fd;
}

/* Where the system counts memory before it is used (vm.overcommit_memory = 2), it does not count this, and has none when it is touched. */
static bool memory_is_sure(void)
{
  char mode = '2';
  int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, &mode, 1);
  close(fd);
  return n == 1 && mode != '2';
}

/* Who makes a longer file than he may gets a signal. */
static bool may_be_so_long(void)
{
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= ALL;
}

int rv_rings_make(rv_rings *out)
{
  if (!may_be_so_long() || !memory_is_sure()) return -ENOTSUP;
  int fd = new_memory();
  if (fd < 0) return -errno;
  if (ftruncate(fd, ALL) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0 && map(fd, false, out)) {
    atomic_store(&out->out.head->reader_sleeps, 1); /* both ends wait for the first bytes at the socket */
    atomic_store(&out->in.head->reader_sleeps, 1);
    out->in.past_caches = true;
    return fd;
  }
  int error = errno;
  close(fd);
  return -error;
}

bool rv_rings_join(int fd, rv_rings *out)
{
  struct stat info;
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &info) != 0 || info.st_size != ALL) return false;
  return map(fd, true, out);
}

#else

int rv_rings_make(rv_rings *out)
{
  (void)out;
  return -ENOSYS;
}

bool rv_rings_join(int fd, rv_rings *out)
{
  (void)fd, (void)out;
  return false;
}

#endif

void rv_rings_unmap(rv_rings *rings)
{
  if (rings->map != NULL) munmap(rings->map, ALL);
  rings->map = NULL;
}
