#include "net/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/copy_ahead.h"
#include "base/memory_file.h"
#include "base/pages.h"
#include "base/past_caches.h"

enum {
  HEADS = 12288,    /* both directions', with their loans, before their bytes */
  STEP = 128 << 10, /* so much is handed over at a time, for the other end to work beside this one */
  KEPT = 16 << 10,  /* of a quiet ring */
  HEARD_FROM = 64,  /* of a loan, when what it belongs to becomes known; a line, so that the rest of a row stays on its lines */
  LEND_FROM = 8 << 10,        /* a run; shorter ones are quickly copied */
  PAST_CACHES_FROM = 12 << 10 /* a run; what is as long is a row for a table, not read soon */
};

_Static_assert((RV_RING_BYTES & (RV_RING_BYTES - 1)) == 0, "positions are cut by a mask");
_Static_assert(ATOMIC_LONG_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "processes share no lock");
_Static_assert(2 * (sizeof(rv_ring_head) + RV_RING_LOANS * sizeof(rv_ring_loan)) <= HEADS, "the heads and the loans have room");
_Static_assert((RV_RING_LOANS & (RV_RING_LOANS - 1)) == 0, "so are their numbers");

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

/* ---- what is lent ---- */

static void let_go(rv_ring *ring, uint32_t until)
{
  for (; ring->settled != until; ring->settled++) {
    rv_buf *held = ring->held[ring->settled % RV_RING_LOANS];
    ring->held_bytes -= held->capacity;
    rv_buf_unref(held);
  }
}

bool rv_ring_settle(rv_ring *ring)
{
  if (ring->settled == ring->lent) return true;
  uint32_t returned = atomic_load(&ring->head->returned);
  if (returned - ring->settled > ring->lent - ring->settled) return false;
  let_go(ring, returned);
  return true;
}

/* Whose buffer the bytes lie in, and what a loan says of their place; NULL: nowhere where the other end could find them. */
static rv_buf *find_owner(const rv_ring *ring, const uint8_t *data, size_t size, rv_ring_loan *out)
{
  rv_landing_place place;
  *out = (rv_ring_loan){.at = ring->at, .size = size};
  rv_buf *owner = ring->landing != NULL ? rv_landing_find(ring->landing, data, size, &place) : NULL;
  if (owner == NULL) return rv_arena_find(ring->arena, data, size, &out->offset);
  out->block = (uint64_t)place.slot + 1;
  out->offset = place.offset;
  return owner;
}

/* Puts a run of bytes that the other end can find at this end's position. False: it must be copied. */
static bool lend(rv_ring *ring, const uint8_t *data, size_t size)
{
  rv_ring_loan loan;
  if (ring->lent - ring->settled == RV_RING_LOANS || ring->held_bytes >= RV_RING_HELD) return false;
  rv_buf *owner = find_owner(ring, data, size, &loan);
  if (owner == NULL) return false;
  uint32_t slot = ring->lent++ % RV_RING_LOANS;
  ring->held[slot] = rv_buf_ref(owner);
  ring->held_bytes += owner->capacity;
  ring->loan[slot] = loan;
  return true;
}

/* The writer goes: whoever still reads what it lent learns that it is not to be trusted. */
static void recall(rv_ring *ring)
{
  if (ring->arena == NULL) return;
  if (ring->landing != NULL) rv_landing_close(ring->landing);
  atomic_store(&ring->head->recalled, 1);
  atomic_thread_fence(memory_order_seq_cst);
  let_go(ring, ring->lent);
  free((void *)ring->held);
  rv_arena_unref(ring->arena);
  ring->arena = NULL;
  rv_landing_unref(ring->landing);
  ring->landing = NULL;
}

/* ---- copying ---- */

typedef struct pieces {
  const struct iovec *vec;
  int left;
  size_t at;
} pieces;

static void advance(pieces *user, size_t n)
{
  user->at += n;
  while (user->left > 0 && user->at == user->vec->iov_len) {
    user->vec++;
    user->left--;
    user->at = 0;
  }
}

/* Copies `size` contiguous bytes of the ring at most, out. */
static size_t copy_out(const uint8_t *bytes, size_t size, pieces *user, bool past_caches)
{
  size_t done = 0;
  advance(user, 0);
  while (done < size && user->left > 0) {
    size_t n = user->vec->iov_len - user->at;
    if (n > size - done) n = size - done;
    uint8_t *to = (uint8_t *)user->vec->iov_base + user->at;
    if (past_caches && user->left > 1 && n >= PAST_CACHES_FROM) /* the last piece is for what is parsed at once */
      rv_copy_past_caches(to, bytes + done, n);
    else
      memcpy(to, bytes + done, n);
    done += n;
    advance(user, n);
  }
  return done;
}

/* Up to `most` bytes from where this end is, around the ring's end. */
static size_t take_step(rv_ring *ring, size_t most, pieces *user)
{
  size_t from = place(ring), run = RV_RING_BYTES - from < most ? RV_RING_BYTES - from : most;
  size_t done = copy_out(ring->bytes + from, run, user, ring->past_caches);
  if (done == run && run < most) done += copy_out(ring->bytes, most - run, user, ring->past_caches);
  ring->at += done;
  return done;
}

/* What is copied after n bytes of the present piece, where those are a row among others, that lie anywhere; a frame's header may stand between.
 * Larger rows are lent, or copied from where their writer has just put them. NULL: it is not known. */
static const uint8_t *see_next(const pieces *user, size_t n, size_t *size)
{
  if (n < RV_COPY_AHEAD_LEAST || n >= LEND_FROM) return NULL;
  for (int i = 1; i < user->left && i <= 2; i++) {
    *size = user->vec[i].iov_len;
    if (*size >= RV_COPY_AHEAD_LEAST) return user->vec[i].iov_base;
  }
  return NULL;
}

/* Copies n bytes of one piece in, around the ring's end. */
static void copy_in(rv_ring *ring, const uint8_t *data, size_t n, const pieces *user)
{
  size_t from = place(ring), run = RV_RING_BYTES - from < n ? RV_RING_BYTES - from : n, next_size;
  const uint8_t *next = see_next(user, n, &next_size);
  if (next != NULL)
    rv_copy_ahead(ring->bytes + from, data, run, next, next_size);
  else
    memcpy(ring->bytes + from, data, run);
  if (run < n) memcpy(ring->bytes, data + run, n - run);
  if (from + n > ring->touched) ring->touched = from + n < RV_RING_BYTES ? from + n : RV_RING_BYTES;
  ring->at += n;
}

/* Up to `most` bytes of the ring's, and what is lent between them; returns how many of both. */
static size_t put_step(rv_ring *ring, size_t most, bool lends, pieces *user)
{
  size_t done = 0;
  advance(user, 0);
  while (user->left > 0) {
    const uint8_t *data = (const uint8_t *)user->vec->iov_base + user->at;
    size_t n = user->vec->iov_len - user->at;
    if (!lends || n < LEND_FROM || !lend(ring, data, n)) {
      if (most == 0) break;
      if (n > most) n = most;
      copy_in(ring, data, n, user);
      most -= n;
    }
    done += n;
    advance(user, n);
  }
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
  if (!rv_ring_settle(ring)) return -EPROTO;
  bool lends = ring->arena != NULL && atomic_load_explicit(&ring->head->borrows, memory_order_relaxed) == 1;
  for (size_t total = 0;;) {
    size_t full = waiting(ring);
    if (full == SIZE_MAX) return -EPROTO;
    if (full == 0)
      atomic_store_explicit(&ring->head->origin, ring->at, memory_order_relaxed); /* small things stay in a few pages */
    size_t room = RV_RING_BYTES - full, done = put_step(ring, room < STEP ? room : STEP, lends, &given);
    if (done == 0) return (ssize_t)total;
    total += done;
    if (lends) atomic_store(&ring->head->lent, ring->lent); /* before the bytes behind them can be seen */
    atomic_store(&ring->head->written, ring->at);
    int error = ring_bell(ring, &ring->head->reader_sleeps);
    if (error != 0) return error;
  }
}

static bool is_recalled(const rv_ring *ring)
{
  atomic_thread_fence(memory_order_seq_cst);
  return atomic_load(&ring->head->recalled) != 0;
}

/* The next loan, as the other end says; its number of those that can be seen, 0: there is none. */
static uint32_t see_loan(const rv_ring *ring, rv_ring_loan *out)
{
  uint32_t ahead = ring->writers_arena == NULL ? 0 : atomic_load(&ring->head->lent) - ring->returned;
  if (ahead == 0) return 0;
  const volatile rv_ring_loan *theirs = &ring->loan[ring->returned % RV_RING_LOANS];
  *out = (rv_ring_loan){.at = theirs->at, .offset = theirs->offset, .size = theirs->size, .block = theirs->block};
  return ahead;
}

/* How many of the `bytes` that can be seen stand before the next loan; SIZE_MAX: it cannot be. */
static size_t before_loan(const rv_ring *ring, size_t bytes, rv_ring_loan *next)
{
  uint32_t ahead = see_loan(ring, next);
  uint64_t before = ahead == 0 ? bytes : next->at - ring->at;
  if (ahead > RV_RING_LOANS || before > RV_RING_BYTES || (ahead > 0 && next->size == 0)) return SIZE_MAX;
  return before < bytes ? (size_t)before : bytes;
}

/* Where nothing can be mapped the file can still be read. */
static ssize_t read_out(int file, uint64_t offset, size_t size, pieces *user)
{
  size_t done = 0;
  advance(user, 0);
  while (done < size && user->left > 0) {
    size_t n = user->vec->iov_len - user->at;
    if (n > size - done) n = size - done;
    ssize_t got = pread(file, (uint8_t *)user->vec->iov_base + user->at, n, (off_t)(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return done > 0 ? (ssize_t)done : got < 0 ? -errno : -EPROTO;
    done += (size_t)got;
    advance(user, (size_t)got);
  }
  return (ssize_t)done;
}

/* Where all that is left of it has its place in what is not parsed at once, it may lie where it is for a while. */
static bool leave_gap(rv_ring *ring, const uint8_t *lent, size_t size, pieces *user)
{
  advance(user, 0);
  rv_gaps *gaps = ring->gaps;
  if (gaps == NULL || gaps->count == RV_MOST_GAPS || user->left < 2 || user->vec->iov_len - user->at < size) return false;
  uint8_t *to = (uint8_t *)user->vec->iov_base + user->at;
  gaps->gap[gaps->count++] = (rv_gap){.to = to, .from = lent, .size = size};
  advance(user, size);
  return true;
}

/* A block that is not the message's buffer, or one that a peer has told wrong things of. */
static void copy_from_block(uint8_t *to, const uint8_t *from, size_t n, bool past_caches)
{
  uintptr_t apart = (uintptr_t)to > (uintptr_t)from ? (uintptr_t)to - (uintptr_t)from : (uintptr_t)from - (uintptr_t)to;
  if (past_caches && n >= PAST_CACHES_FROM && apart >= n)
    rv_copy_past_caches(to, from, n);
  else
    memmove(to, from, n);
}

/* What lies in a block of this end's, at this end's position: mostly it is where it belongs already. */
static ssize_t take_block(rv_ring *ring, const rv_ring_loan *loan, pieces *user)
{
  const uint8_t *from = NULL;
  if (ring->blocks != NULL && loan->block <= RV_LANDING_SLOTS)
    from = rv_landing_end_at(ring->blocks, (uint32_t)loan->block - 1, loan->offset, loan->size);
  if (from == NULL || ring->loan_taken >= loan->size) return -EPROTO;
  size_t done = 0, size = (size_t)(loan->size - ring->loan_taken);
  for (advance(user, 0); done < size && user->left > 0;) {
    uint8_t *to = (uint8_t *)user->vec->iov_base + user->at;
    size_t n = user->vec->iov_len - user->at < size - done ? user->vec->iov_len - user->at : size - done;
    const uint8_t *at = from + ring->loan_taken + done;
    if (to != at) copy_from_block(to, at, n, ring->past_caches && user->left > 1);
    done += n;
    advance(user, n);
  }
  return (ssize_t)done;
}

/* Copies from what is lent at this end's position; *gap: or leaves all that is left of it where it is. 0: there is no room for it. */
static ssize_t take_arena(rv_ring *ring, const rv_ring_loan *loan, pieces *user, bool *gap)
{
  size_t size = rv_arena_map_size(ring->writers_arena);
  if (loan->offset > size || loan->size > size - loan->offset || ring->loan_taken >= loan->size) return -EPROTO;
  const uint8_t *lent = rv_arena_map_at(ring->writers_arena, loan->offset, loan->size);
  size_t left = (size_t)(loan->size - ring->loan_taken);
  *gap = lent != NULL && leave_gap(ring, lent + ring->loan_taken, left, user);
  if (*gap) return (ssize_t)left;
  return lent != NULL ? (ssize_t)copy_out(lent + ring->loan_taken, left, user, ring->past_caches)
                      : read_out(rv_arena_map_file(ring->writers_arena), loan->offset + ring->loan_taken, left, user);
}

static ssize_t take_loan(rv_ring *ring, const rv_ring_loan *loan, pieces *user)
{
  bool gap = false;
  ssize_t done = loan->block != 0 ? take_block(ring, loan, user) : take_arena(ring, loan, user, &gap);
  if (done < 0) return is_recalled(ring) ? -ECONNRESET : done;
  ring->owes = ring->owes || gap;
  if (!gap && is_recalled(ring)) return -ECONNRESET; /* what was copied may be something else */
  ring->loan_taken += (uint64_t)done;
  if (ring->loan_taken < loan->size) return done;
  ring->loan_taken = 0;
  ring->returned++;
  if (!ring->owes) atomic_store(&ring->head->returned, ring->returned);
  return done;
}

/* The loan behind the next is of a row that will land soon. */
static void fetch_next_block(const rv_ring *ring)
{
  const volatile rv_ring_loan *theirs = &ring->loan[(ring->returned + 1) % RV_RING_LOANS];
  uint64_t block = theirs->block;
  if (block > 0 && block <= RV_LANDING_SLOTS)
    rv_landing_end_fetch(ring->blocks, (uint32_t)block - 1, theirs->offset, theirs->size);
}

rv_buf *rv_ring_land(rv_ring *ring, size_t before, size_t behind)
{
  rv_ring_loan loan = {.size = 0};
  if (ring->blocks == NULL) return NULL;
  uint32_t ahead = see_loan(ring, &loan);
  if (ahead == 0 || is_recalled(ring)) return NULL; /* the slot may be another row's by now */
  if (ahead > 1) fetch_next_block(ring);
  if (loan.at != ring->at || loan.block == 0 || loan.block > RV_LANDING_SLOTS) return NULL;
  return rv_landing_end_land(ring->blocks, (uint32_t)loan.block - 1, loan.offset + ring->loan_taken, before, behind);
}

/* Only what is parsed at once is left: who parses what was read may know of a better place for what is lent. */
static bool is_for_later(const pieces *user)
{
  return user->left < 2;
}

/* Nobody has heard yet of the frame in which the loan lies: from its first bytes on its place is known. One of which they were read, and which has no
 * place all the same, is read like anything else. */
static ssize_t begin_loan(rv_ring *ring, const rv_ring_loan *loan, pieces *user)
{
  struct iovec little = {.iov_base = (uint8_t *)user->vec->iov_base + user->at, .iov_len = user->vec->iov_len - user->at};
  if (little.iov_len > HEARD_FROM && ring->loan_taken == 0) little.iov_len = HEARD_FROM;
  ssize_t done = take_loan(ring, loan, &(pieces){.vec = &little, .left = 1});
  if (done > 0) advance(user, (size_t)done);
  return done;
}

/* Copies what comes next, of the ring or of what is lent. 0: there is nothing, or no room for it, or it is better read by itself. */
static ssize_t read_step(rv_ring *ring, pieces *user, bool first)
{
  size_t bytes = available(ring);
  if (bytes == SIZE_MAX) return -EPROTO;
  rv_ring_loan loan = {.size = 0};
  size_t before = before_loan(ring, bytes, &loan);
  if (before == SIZE_MAX) return -EPROTO;
  if (loan.size > 0 && loan.at == ring->at) {
    advance(user, 0);
    if (user->left == 0) return 0;
    return !is_for_later(user) ? take_loan(ring, &loan, user) : first ? begin_loan(ring, &loan, user) : 0;
  }
  size_t done = take_step(ring, before < STEP ? before : STEP, user);
  if (done == 0) return 0;
  atomic_store(&ring->head->taken, ring->at);
  bool much = bytes - done <= RV_RING_BYTES / 2; /* room that a writer is woken for */
  if (much) ring->failed = ring_bell(ring, &ring->head->writer_sleeps);
  return (ssize_t)done;
}

ssize_t rv_ring_read(rv_ring *ring, const struct iovec *vec, int count)
{
  pieces given = {.vec = vec, .left = count};
  size_t total = 0;
  ssize_t n = ring->failed;
  while (n >= 0 && (n = read_step(ring, &given, total == 0)) > 0) {
    total += (size_t)n;
    n = ring->failed;
  }
  return total > 0 ? (ssize_t)total : n; /* what is wrong is wrong at the next read, too */
}

bool rv_ring_give_back(rv_ring *ring)
{
  ring->owes = false;
  if (is_recalled(ring)) return false;
  atomic_store(&ring->head->returned, ring->returned);
  return true;
}

bool rv_ring_await_room(rv_ring *ring)
{
  atomic_store(&ring->head->writer_sleeps, 1);
  size_t full = waiting(ring);
  return full == RV_RING_BYTES;
}

/* Also what cannot be, or has failed: reading tells. */
static bool has_bytes(const rv_ring *ring)
{
  rv_ring_loan loan;
  if (ring->failed != 0 || available(ring) != 0) return true;
  uint32_t ahead = see_loan(ring, &loan);
  return ahead > RV_RING_LOANS ||
         (ahead > 0 && loan.at - ring->at - 1 >= RV_RING_BYTES); /* one behind bytes that have not come is to be waited for */
}

bool rv_ring_await_bytes(rv_ring *ring)
{
  if (has_bytes(ring)) return false;
  atomic_store(&ring->head->reader_sleeps, 1);
  return !has_bytes(ring);
}

void rv_ring_trim(rv_ring *ring)
{
  if (ring->touched <= KEPT || waiting(ring) != 0) return;
  if (rv_pages_drop_shared(ring->bytes + KEPT, RV_RING_BYTES - KEPT)) ring->touched = KEPT;
}

/* ---- both ---- */

enum { ALL = HEADS + 2 * RV_RING_BYTES };

static bool map(int fd, bool client, rv_rings *out)
{
  uint8_t *memory = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  rv_ring_head *heads = (rv_ring_head *)(void *)memory;
  rv_ring_loan *loans = (rv_ring_loan *)(void *)&heads[2];
  rv_ring asked = {.head = &heads[0], .bytes = memory + HEADS, .bell = -1, .loan = loans};
  rv_ring answered = {.head = &heads[1], .bytes = asked.bytes + RV_RING_BYTES, .bell = -1, .loan = loans + RV_RING_LOANS};
  *out = (rv_rings){.out = client ? asked : answered, .in = client ? answered : asked, .map = memory};
  return true;
}

int rv_rings_make(rv_rings *out)
{
  int fd = rv_memory_file_new("reverie-rings", ALL);
  if (fd < 0) return fd;
  if (!map(fd, false, out)) {
    int error = errno;
    close(fd);
    return -error;
  }
  atomic_store(&out->out.head->reader_sleeps, 1); /* both ends wait for the first bytes at the socket */
  atomic_store(&out->in.head->reader_sleeps, 1);
  out->in.past_caches = true;
  return fd;
}

bool rv_rings_join(int fd, rv_rings *out)
{
  return rv_memory_file_size(fd) == ALL && map(fd, true, out);
}

bool rv_rings_lend(rv_rings *rings, rv_arena *arena)
{
  rings->out.held = calloc(RV_RING_LOANS, sizeof *rings->out.held);
  if (rings->out.held == NULL) return false;
  rings->out.arena = rv_arena_ref(arena);
  return true;
}

void rv_rings_fill(rv_rings *rings, rv_landing *owned_landing)
{
  rings->out.landing = owned_landing;
}

void rv_rings_give(rv_rings *rings, rv_landing_end *owned_blocks)
{
  rings->in.blocks = owned_blocks;
}

void rv_rings_borrow(rv_rings *rings, rv_arena_maps *maps, int arena_fd, size_t most_segments)
{
  rings->in.writers_arena = rv_arena_map_open(maps, arena_fd, RV_ARENA_READ, most_segments);
  if (rings->in.writers_arena != NULL) atomic_store(&rings->in.head->borrows, 1);
}

void rv_rings_unmap(rv_rings *rings)
{
  if (rings->map != NULL) {
    recall(&rings->out);
    rv_arena_map_unref(rings->in.writers_arena);
    rings->in.writers_arena = NULL;
    rv_landing_end_leave(rings->in.blocks);
    munmap(rings->map, ALL);
  }
  rings->map = NULL;
}
