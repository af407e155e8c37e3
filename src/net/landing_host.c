/* A server's end. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/linux.h"
#include "base/machine_memory.h"
#include "base/memory_file.h"
#include "base/off_streams.h"
#include "net/landing.h"

#ifdef RV_LINUX
#include <sys/syscall.h>
#endif

enum {
  LEAST_PAGES = RV_LANDING_LEAST / RV_LANDING_PAGE + 1,
  MOST_PAGES = RV_SPARE_MAX / RV_LANDING_PAGE + 1,
  MOST_LEFT = 512, /* ends whose connections are gone, each with a descriptor and a mapping; then new ones get no blocks */
  FIRST_AHEAD = 4, /* blocks that wait to be filled, of each size, at first; see look_further_ahead */
  MOST_AHEAD = RV_LANDING_SLOTS / 2,
  SERVED_EVERY_ROWS = 4,
  SERVED_EVERY_READS = 8, /* where no row has landed or found none: writers let go of blocks */
  GIVEN_AT_ONCE = 2 << 20 /* bytes: their memory may have to be found, and others wait for this thread */
};

#define ROUND_EVERY_NS INT64_C(1000000)
#define ROUND_MOST_NS (ROUND_EVERY_NS / 4) /* then no other end is begun with; the next round goes on where this one ended */

typedef struct given {
  rv_buf *buf; /* NULL: it is not out */
  uint8_t *block;
  uint32_t pages, turn;
  bool landed;
} given;

struct rv_landing_end {
  rv_landing_host *host;
  rv_landing_round *round;
  rv_landing_shared *shared;
  int process;                /* readable once it has ended */
  rv_link link;               /* in the round, or among those that are left */
  size_t bytes, landed_bytes; /* that are out; of these, with a row that has landed */
  uint32_t pages[RV_LANDING_SIZES], missed[RV_LANDING_SIZES], ahead[RV_LANDING_SIZES];
  bool wants;             /* and its host counts it, and its round has it */
  bool cheats;            /* what its client says cannot be */
  uint32_t turn;          /* of the block that was given last */
  uint32_t landed, reads; /* since blocks were served last */
  bool owes;              /* more were wanted then than are given at once */
  bool refused;           /* or than there are for it */
  given *slot;            /* RV_LANDING_SLOTS; NULL: nothing was wanted yet */
  uint32_t num_free;
  uint16_t free_slot[RV_LANDING_SLOTS];
};

_Static_assert(RV_LANDING_SLOTS <= UINT16_MAX, "a slot's number has 16 bits");

/* ---- bounds ---- */

/* The limit may be another than when it was seen last. Of two threads that see it the later one may have looked before: the next one sees it again. */
static void follow_limit(rv_landing_host *host)
{
  enum { SHARE = 16 };
  static const size_t most = (size_t)2 << 30;
  size_t limit = host->memory_limit != NULL ? host->memory_limit(host->context) : 0;
  size_t memory = limit > 0 && limit < host->memory ? limit : host->memory;
  size_t bytes = memory / SHARE < most ? memory / SHARE : most;
  if (atomic_load_explicit(&host->most_bytes, memory_order_relaxed) == bytes) return;
  atomic_store_explicit(&host->most_bytes, bytes, memory_order_relaxed);
  if (host->arena != NULL) rv_arena_keep_idle(host->arena, bytes / 2);
}

/* ---- blocks ---- */

static size_t bytes_of(uint32_t pages)
{
  return (size_t)pages * RV_LANDING_PAGE;
}

static void take_back(rv_landing_end *end, uint32_t slot)
{
  given *out = &end->slot[slot];
  end->bytes -= bytes_of(out->pages);
  if (out->landed) {
    end->landed_bytes -= bytes_of(out->pages);
    atomic_fetch_sub_explicit(&end->host->landed_bytes, bytes_of(out->pages), memory_order_relaxed);
  }
  atomic_fetch_sub_explicit(&end->host->bytes, bytes_of(out->pages), memory_order_relaxed);
  rv_buf_unref(out->buf);
  *out = (given){.buf = NULL};
  end->free_slot[end->num_free++] = (uint16_t)slot;
}

static bool is_out(const rv_landing_end *end, uint32_t slot)
{
  return end->slot != NULL && end->slot[slot].buf != NULL;
}

/* All of a word's bits. False: some are of slots that are not out. */
static bool take_back_all(rv_landing_end *end, uint32_t word, uint64_t bits)
{
  for (; bits != 0; bits &= bits - 1) {
    uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(bits);
    if (!is_out(end, slot)) return false;
    take_back(end, slot);
  }
  return true;
}

static bool collect(rv_landing_end *end)
{
  bool fine = true;
  for (uint32_t word = 0; word < RV_LANDING_WORDS; word++) {
    _Atomic uint64_t *let_go = &end->shared->let_go[word];
    if (atomic_load_explicit(let_go, memory_order_relaxed) == 0) continue;
    fine = take_back_all(end, word, atomic_exchange_explicit(let_go, 0, memory_order_acq_rel)) && fine;
  }
  return fine;
}

/* What nobody has begun to fill. */
static bool take_back_given(rv_landing_end *end, uint32_t size)
{
  bool fine = true;
  for (uint32_t word = 0; word < RV_LANDING_WORDS; word++)
    fine = take_back_all(end, word, atomic_exchange_explicit(&end->shared->given[size][word], 0, memory_order_acq_rel)) && fine;
  return fine;
}

/* A connection's share is that of all who want some, or have some, and of one who comes next. Rows that have landed are the store's, and as long as their
 * writers have not heard of that hardly anything beside it: so they have a share of their own. */
static bool may_give(const rv_landing_end *end, size_t bytes)
{
  const rv_landing_host *host = end->host;
  size_t most = atomic_load_explicit(&host->most_bytes, memory_order_relaxed);
  size_t share = most / (atomic_load_explicit(&host->wanting, memory_order_relaxed) + (size_t)1);
  size_t empty = end->bytes - end->landed_bytes;
  size_t all = atomic_load_explicit(&host->bytes, memory_order_relaxed);
  size_t all_landed = atomic_load_explicit(&host->landed_bytes, memory_order_relaxed);
  return end->num_free > 0 && empty + bytes <= share && end->landed_bytes <= share && all + bytes <= 2 * most &&
         all + bytes <= most + all_landed;
}

static bool give(rv_landing_end *end, uint32_t size)
{
  size_t bytes = bytes_of(end->pages[size]);
  if (!may_give(end, bytes)) return false;
  rv_buf *buf = rv_spares_take_lendable(end->round->spares, bytes);
  if (buf == NULL || !rv_buf_is_lendable(buf) || !rv_buf_reserve_memory(buf)) {
    rv_buf_unref(buf);
    return false;
  }
  uint32_t slot = end->free_slot[--end->num_free];
  end->slot[slot] = (given){.buf = buf, .block = buf->data, .pages = end->pages[size], .turn = ++end->turn};
  end->bytes += bytes;
  atomic_fetch_add_explicit(&end->host->bytes, bytes, memory_order_relaxed);
  struct rv_landing_slot *told = &end->shared->slot[slot];
  atomic_store_explicit(&told->offset, rv_buf_arena_offset(buf), memory_order_relaxed);
  atomic_store_explicit(&told->pages, end->pages[size], memory_order_relaxed);
  atomic_store_explicit(&told->turn, end->turn, memory_order_relaxed);
  atomic_fetch_or_explicit(&end->shared->given[size][slot / 64], UINT64_C(1) << slot % 64, memory_order_acq_rel);
  return true;
}

static uint32_t count_given(const rv_landing_end *end, uint32_t size)
{
  uint32_t count = 0;
  for (uint32_t word = 0; word < RV_LANDING_WORDS; word++)
    count += (uint32_t)__builtin_popcountll(atomic_load_explicit(&end->shared->given[size][word], memory_order_relaxed));
  return count;
}

static void set_wants(rv_landing_end *end, bool wants)
{
  if (wants == end->wants) return;
  end->wants = wants;
  atomic_fetch_add_explicit(&end->host->wanting, wants ? 1U : -1U, memory_order_relaxed);
  if (wants)
    rv_list_push_back(&end->round->ends, &end->link);
  else
    rv_list_remove(&end->link);
}

/* False: out of memory. */
static bool begin_to_give(rv_landing_end *end)
{
  if (end->slot == NULL) end->slot = calloc(RV_LANDING_SLOTS, sizeof *end->slot);
  set_wants(end, end->slot != NULL);
  return end->wants;
}

/* So many rows more have found no block: as many more blocks, and twice as many at least. */
static void look_further_ahead(uint32_t *ahead, uint32_t missed)
{
  uint32_t now = *ahead, more = missed > now ? missed : now;
  if (more < FIRST_AHEAD) more = FIRST_AHEAD;
  if (now < MOST_AHEAD) *ahead = more < MOST_AHEAD - now ? now + more : MOST_AHEAD;
}

/* Gives as many as are wanted ahead, but at most *at_once bytes more, and one block. */
static void give_ahead(rv_landing_end *end, uint32_t size, size_t *at_once)
{
  size_t bytes = bytes_of(end->pages[size]);
  for (uint32_t count = count_given(end, size); count < end->ahead[size]; count++) {
    if (*at_once == 0 && count > 0) {
      end->owes = true;
      return;
    }
    if (!give(end, size)) {
      end->refused = true;
      return;
    }
    *at_once -= bytes < *at_once ? bytes : *at_once;
  }
}

static bool serve_size(rv_landing_end *end, uint32_t size, size_t *at_once)
{
  uint32_t missed = atomic_load_explicit(&end->shared->missed[size], memory_order_acquire); /* of what was wanted before */
  uint32_t pages = atomic_load_explicit(&end->shared->wanted[size], memory_order_relaxed);
  if (pages > MOST_PAGES || (pages > 0 && pages < LEAST_PAGES)) return false;
  uint32_t rows = missed - end->missed[size];
  if (pages != end->pages[size]) {
    if (!take_back_given(end, size)) return false;
    if (end->pages[size] != 0 && rows > 1) rows = 1; /* most were perhaps of the size before */
    end->pages[size] = pages;
    end->ahead[size] = 0;
  }
  if (rows > 0) look_further_ahead(&end->ahead[size], rows);
  end->missed[size] = missed;
  if (pages > 0 && end->ahead[size] > 0 && begin_to_give(end)) give_ahead(end, size, at_once);
  return true;
}

static void serve(rv_landing_end *end)
{
  if (end->cheats) return;
  follow_limit(end->host);
  bool fine = collect(end);
  end->landed = end->reads = 0;
  end->owes = end->refused = false;
  size_t at_once = GIVEN_AT_ONCE;
  for (uint32_t size = 0; size < RV_LANDING_SIZES && fine; size++) fine = serve_size(end, size, &at_once);
  end->cheats = !fine;
}

/* Each of the others once, as long as there is time. */
static void serve_others(const rv_landing_end *own, int64_t now)
{
  rv_landing_round *round = own->round;
  round->begun_ns = now;
  rv_link served;
  rv_list_init(&served);
  while (!rv_list_empty(&round->ends) && rv_monotonic_ns(round->env) - now < ROUND_MOST_NS) {
    rv_link *link = rv_list_pop_front(&round->ends);
    rv_list_push_back(&served, link);
    rv_landing_end *end = RV_CONTAINER(link, rv_landing_end, link);
    if (end != own) serve(end);
  }
  rv_list_splice(&round->ends, &served);
}

bool rv_landing_end_serve(rv_landing_end *end)
{
  int64_t now = rv_monotonic_ns(end->round->env);
  serve(end);
  if (now - end->round->begun_ns >= ROUND_EVERY_NS) serve_others(end, now);
  return !end->cheats;
}

void rv_landing_end_rest(rv_landing_end *end)
{
  rv_landing_host_look(end->host);
  if (!collect(end)) end->cheats = true;
  for (uint32_t size = 0; size < RV_LANDING_SIZES; size++) {
    take_back_given(end, size);
    end->ahead[size] = 0; /* until a row finds none */
  }
  set_wants(end, end->bytes > 0); /* a writer's history, for one */
}

bool rv_landing_end_has(const rv_landing_end *end, const rv_landing_place *place)
{
  return place->slot < RV_LANDING_SLOTS && is_out(end, place->slot) && end->slot[place->slot].turn == place->turn;
}

bool rv_landing_end_is_due(rv_landing_end *end)
{
  bool due = ++end->reads >= SERVED_EVERY_READS || end->landed >= SERVED_EVERY_ROWS || end->owes || end->cheats;
  for (uint32_t size = 0; size < RV_LANDING_SIZES && !due && !end->refused; size++)
    due = atomic_load_explicit(&end->shared->missed[size], memory_order_relaxed) != end->missed[size];
  return due;
}

const uint8_t *rv_landing_end_at(const rv_landing_end *end, uint32_t slot, uint64_t offset, uint64_t size)
{
  if (slot >= RV_LANDING_SLOTS || !is_out(end, slot)) return NULL;
  size_t all = bytes_of(end->slot[slot].pages);
  return offset <= all && size <= all - offset ? end->slot[slot].block + offset : NULL;
}

void rv_landing_end_fetch(const rv_landing_end *end, uint32_t slot, uint64_t offset, uint64_t size)
{
  enum { LINE = 64, BEFORE = 2, BEHIND = 4 };
  const uint8_t *row = rv_landing_end_at(end, slot, offset, size);
  if (row == NULL || offset < (uint64_t)BEFORE * LINE ||
      rv_landing_end_at(end, slot, offset + size, (uint64_t)BEHIND * LINE) == NULL)
    return;
  __builtin_prefetch(end->slot[slot].buf, 1);
  for (int i = 1; i <= BEFORE; i++) __builtin_prefetch(row - i * LINE, 1);
  for (int i = 0; i < BEHIND; i++) __builtin_prefetch(row + size + (size_t)i * LINE, 1);
}

/* Writers take blocks that fit; of one that has filled little of his the rest would stay with the row. */
static bool is_filled(const given *out, size_t bytes)
{
  enum { SLACK = 8 };
  return bytes_of(out->pages) <= bytes + bytes / SLACK + RV_LANDING_PAGE;
}

rv_buf *rv_landing_end_land(rv_landing_end *end, uint32_t slot, uint64_t offset, size_t before, size_t behind)
{
  if (rv_landing_end_at(end, slot, offset, behind) == NULL) return NULL;
  if (before > offset || offset - before > RV_LANDING_BEFORE) return NULL; /* what lies before it is no row of the message */
  given *out = &end->slot[slot];
  if (out->landed || !is_filled(out, before + behind)) return NULL;
  out->landed = true;
  end->landed_bytes += bytes_of(out->pages);
  atomic_fetch_add_explicit(&end->host->landed_bytes, bytes_of(out->pages), memory_order_relaxed);
  end->landed++;
  rv_buf_begin_later(out->buf, (size_t)offset - before);
  return rv_buf_ref(out->buf);
}

/* ---- ends ---- */

#if !defined SO_PEERPIDFD && defined RV_LINUX && !defined __hppa__ && !defined __sparc__
#define SO_PEERPIDFD 77 /* newer than many systems' headers */
#endif

/* A descriptor that becomes readable when the process has ended; -1: there is none. A system that has none by the socket (before Linux 6.5) is asked by
 * the process's number, which is perhaps another's by then. */
static int watch_process(int socket)
{
  int process = -1;
#if defined RV_LINUX && defined SO_PEERPIDFD
  socklen_t size = sizeof process;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process, &size) == 0) return rv_off_streams(process);
  if (errno != ENOPROTOOPT && errno != EOPNOTSUPP) return -1;
#endif
#if defined RV_LINUX && defined SYS_pidfd_open
  struct ucred peer;
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid == 0) return -1;
  process = rv_off_streams((int)syscall(SYS_pidfd_open, peer.pid, 0U));
#endif
  (void)socket;
  return process;
}

static bool has_ended(const rv_landing_end *end)
{
  struct pollfd at = {.fd = end->process, .events = POLLIN};
  return poll(&at, 1, 0) == 1;
}

static void destroy(rv_landing_end *end)
{
  if (end->shared != NULL) munmap(end->shared, RV_LANDING_SHARED);
  if (end->process >= 0) close(end->process);
  free(end->slot);
  free(end);
}

void rv_landing_round_init(rv_landing_round *round, const rv_env *env, rv_spares *spares)
{
  *round = (rv_landing_round){.env = env, .spares = spares};
  rv_list_init(&round->ends);
}

rv_landing_end *rv_landing_end_new(rv_landing_host *host, rv_landing_round *round, int socket, int *shared_fd)
{
  if (host->arena == NULL) return NULL;
  rv_landing_host_look(host);
  bool few = atomic_load_explicit(&host->num_left, memory_order_relaxed) < MOST_LEFT;
  rv_landing_end *end = few ? calloc(1, sizeof *end) : NULL;
  if (end == NULL) return NULL;
  *end = (rv_landing_end){.host = host, .round = round, .num_free = RV_LANDING_SLOTS, .process = watch_process(socket)};
  for (uint32_t i = 0; i < RV_LANDING_SLOTS; i++) end->free_slot[i] = (uint16_t)(RV_LANDING_SLOTS - 1 - i);
  *shared_fd = end->process >= 0 ? rv_memory_file_new("reverie-landing", RV_LANDING_SHARED) : -1;
  if (*shared_fd >= 0) {
    void *memory = mmap(NULL, RV_LANDING_SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, *shared_fd, 0);
    if (memory != MAP_FAILED) end->shared = memory;
  }
  if (end->shared != NULL) return end;
  if (*shared_fd >= 0) close(*shared_fd);
  destroy(end);
  return NULL;
}

/* What is still out. */
static void take_back_rest(rv_landing_end *end, bool abandon)
{
  for (uint32_t slot = 0; slot < RV_LANDING_SLOTS; slot++) {
    if (!is_out(end, slot)) continue;
    if (abandon) rv_buf_abandon(end->slot[slot].buf);
    take_back(end, slot);
  }
}

void rv_landing_end_leave(rv_landing_end *end)
{
  if (end == NULL) return;
  rv_landing_host *host = end->host;
  rv_landing_end_rest(end);
  set_wants(end, false);
  if (end->bytes == 0) {
    destroy(end);
    return;
  }
  rv_mutex_lock(&host->lock);
  rv_list_push_back(&host->left, &end->link);
  atomic_fetch_add(&host->num_left, 1);
  rv_mutex_unlock(&host->lock);
}

/* ---- the host ---- */

void rv_landing_host_use(rv_landing_host *host, rv_arena *arena, size_t (*memory_limit)(void *context), void *context)
{
  host->arena = arena;
  host->memory = rv_machine_memory_allowed();
  host->memory_limit = memory_limit;
  host->context = context;
  follow_limit(host);
}

void rv_landing_host_init(rv_landing_host *host)
{
  *host = (rv_landing_host){.arena = NULL};
  rv_mutex_init(&host->lock, RV_RANK_LANDING, "landing host");
  rv_list_init(&host->left);
}

void rv_landing_host_look(rv_landing_host *host)
{
  follow_limit(host);
  if (atomic_load(&host->num_left) == 0) return;
  rv_mutex_lock(&host->lock);
  for (rv_link *link = host->left.next, *next; link != &host->left; link = next) {
    next = link->next;
    rv_landing_end *end = RV_CONTAINER(link, rv_landing_end, link);
    collect(end);
    if (end->bytes > 0 && has_ended(end)) take_back_rest(end, false);
    if (end->bytes > 0) continue;
    rv_list_remove(link);
    atomic_fetch_sub(&host->num_left, 1);
    destroy(end);
  }
  rv_mutex_unlock(&host->lock);
}

void rv_landing_host_fini(rv_landing_host *host)
{
  rv_landing_host_look(host);
  rv_link *link;
  while ((link = rv_list_pop_front(&host->left)) != NULL) {
    rv_landing_end *end = RV_CONTAINER(link, rv_landing_end, link);
    take_back_rest(end, true);
    destroy(end);
  }
  rv_mutex_fini(&host->lock);
}
