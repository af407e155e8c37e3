#include "base/spares.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/maker.h"
#include "base/memory_file.h"

enum { SLOTS = 256, LINE = 64, SLACK = 8 };

typedef struct spare_buf {
  _Alignas(LINE) rv_buf buf; /* first: the two pointers are the same */
  rv_spares *spares;         /* one reference while it is in use */
  struct spare_buf *next;    /* while it is about to be freed */
  uint8_t *begin;            /* of its bytes, wherever its user lets them begin */
  uint64_t offset;           /* of them in the arena's file */
  bool in_arena;             /* its bytes are; else they stand behind it */
  bool bare;                 /* and have no memory, as far as is known here */
  bool hollow;               /* and surely have none */
  bool abandoned;            /* it does not come back */
} spare_buf;

struct rv_spares {
  atomic_size_t refs;
  rv_maker maker;            /* whose they are */
  _Atomic(rv_arena *) arena; /* NULL: none */
  rv_mutex lock;             /* guards the rest */
  size_t max_bytes, bytes;
  size_t count, least; /* idle ones: now, and at the fewest since the last trim */
  bool closed;
  atomic_bool watched; /* changes under the lock */
  void (*watch)(void *context);
  void *context;
  spare_buf *idle[SLOTS]; /* the one that came back last is the last: its bytes may still be in a cache */
};

rv_spares *rv_spares_new(size_t max_bytes)
{
  rv_spares *spares = calloc(1, sizeof *spares);
  if (spares == NULL) return NULL;
  atomic_init(&spares->refs, 1);
  rv_mutex_init(&spares->lock, RV_RANK_SPARES, "spares");
  rv_maker_init(&spares->maker);
  spares->max_bytes = max_bytes;
  return spares;
}

void rv_spares_use_arena(rv_spares *spares, rv_arena *arena)
{
  atomic_store_explicit(&spares->arena, rv_arena_ref(arena), memory_order_release);
}

rv_arena *rv_spares_arena(rv_spares *spares)
{
  return atomic_load_explicit(&spares->arena, memory_order_acquire);
}

static void unref(rv_spares *spares)
{
  if (atomic_fetch_sub_explicit(&spares->refs, 1, memory_order_acq_rel) != 1) return;
  rv_maker_fini(&spares->maker);
  rv_mutex_fini(&spares->lock);
  rv_arena_unref(rv_spares_arena(spares));
  free(spares);
}

static void free_all(rv_spares *spares, spare_buf *list)
{
  while (list != NULL) {
    spare_buf *next = list->next;
    if (list->abandoned)
      rv_arena_abandon(rv_spares_arena(spares), list->begin);
    else if (list->hollow)
      rv_arena_give_back_bare(rv_spares_arena(spares), list->begin);
    else if (list->in_arena)
      rv_arena_give_back(rv_spares_arena(spares), list->begin);
    free(list);
    list = next;
  }
}

/* Takes out idle[index]. Under the lock. */
static spare_buf *take_out(rv_spares *spares, size_t index)
{
  spare_buf *spare = spares->idle[index];
  spares->count--;
  memmove(spares->idle + index, spares->idle + index + 1, (spares->count - index) * sizeof(spare_buf *));
  spares->bytes -= spare->buf.capacity;
  if (spares->count < spares->least) spares->least = spares->count;
  return spare;
}

/* Takes out the one that has been idle for the longest, for free_all. Under the lock. */
static spare_buf *drop_oldest(rv_spares *spares, spare_buf *dropped)
{
  spare_buf *oldest = take_out(spares, 0);
  oldest->next = dropped;
  return oldest;
}

void rv_spares_close(rv_spares *spares)
{
  if (spares == NULL) return;
  spare_buf *dropped = NULL;
  rv_mutex_lock(&spares->lock);
  spares->closed = true;
  while (spares->count > 0) dropped = drop_oldest(spares, dropped);
  rv_mutex_unlock(&spares->lock);
  free_all(spares, dropped);
  unref(spares);
}

void rv_spares_watch(rv_spares *spares, void (*watch)(void *context), void *context)
{
  rv_mutex_lock(&spares->lock);
  spares->watch = watch;
  spares->context = context;
  rv_mutex_unlock(&spares->lock);
}

void rv_spares_set_max(rv_spares *spares, size_t max_bytes)
{
  rv_mutex_lock(&spares->lock);
  spares->max_bytes = max_bytes;
  rv_mutex_unlock(&spares->lock);
}

bool rv_spares_trim(rv_spares *spares, int64_t now_ns)
{
  spare_buf *dropped = NULL;
  rv_mutex_lock(&spares->lock);
  for (size_t n = spares->least; n > 0; n--) dropped = drop_oldest(spares, dropped);
  spares->least = spares->count;
  atomic_store_explicit(&spares->watched, false, memory_order_release); /* first: what comes back after this look is told */
  rv_mutex_unlock(&spares->lock);
  free_all(spares, dropped);
  rv_arena *arena = rv_spares_arena(spares);
  bool idle = arena != NULL && rv_arena_trim(arena, now_ns);
  rv_mutex_lock(&spares->lock);
  bool left = idle || spares->count > 0;
  if (left) atomic_store_explicit(&spares->watched, true, memory_order_release);
  rv_mutex_unlock(&spares->lock);
  return left;
}

/* Something has come back, and lies here or in the arena. */
static void tell_watch(rv_spares *spares)
{
  if (atomic_load_explicit(&spares->watched, memory_order_acquire)) return;
  rv_mutex_lock(&spares->lock);
  if (!spares->closed && spares->watch != NULL && !atomic_load_explicit(&spares->watched, memory_order_relaxed)) {
    atomic_store_explicit(&spares->watched, true, memory_order_release);
    spares->watch(spares->context);
  }
  rv_mutex_unlock(&spares->lock);
}

static void give_back(rv_buf *buf)
{
  spare_buf *spare = (spare_buf *)(void *)buf, *dropped = NULL;
  rv_spares *spares = spare->spares;
  if (!rv_maker_is_this_process(&spares->maker)) { /* a child that was forked, perhaps while another thread had the lock */
    free(spare);
    return;
  }
  spare->next = NULL;
  buf->capacity += (size_t)(buf->data - spare->begin);
  buf->data = spare->begin;
  rv_mutex_lock(&spares->lock);
  if (spares->closed || spare->abandoned || buf->capacity > spares->max_bytes) {
    dropped = spare;
  } else {
    while (spares->count > 0 && (spares->count == SLOTS || spares->bytes > spares->max_bytes - buf->capacity))
      dropped = drop_oldest(spares, dropped);
    spares->idle[spares->count++] = spare;
    spares->bytes += buf->capacity;
  }
  rv_mutex_unlock(&spares->lock);
  free_all(spares, dropped);
  tell_watch(spares);
  unref(spares);
}

/* One that has the room, and little more. */
static spare_buf *find(rv_spares *spares, size_t capacity, bool in_arena)
{
  spare_buf *found = NULL;
  rv_mutex_lock(&spares->lock);
  for (size_t i = spares->count; i > 0 && found == NULL; i--) {
    size_t room = spares->idle[i - 1]->buf.capacity;
    if (spares->idle[i - 1]->in_arena == in_arena && room >= capacity && room - capacity <= capacity / SLACK)
      found = take_out(spares, i - 1);
  }
  rv_mutex_unlock(&spares->lock);
  return found;
}

static spare_buf *make(size_t capacity)
{
  spare_buf *spare = aligned_alloc(LINE, sizeof *spare + capacity);
  if (spare == NULL) return NULL;
  spare->in_arena = spare->bare = spare->abandoned = false;
  spare->begin = (uint8_t *)(spare + 1);
  return spare;
}

/* The buffer itself stays out of it: others need not see it, and a child that was forked may let go of it. */
static spare_buf *make_in_arena(rv_arena *arena, size_t capacity)
{
  spare_buf *spare = rv_arena_waste(capacity) <= capacity / SLACK ? make(0) : NULL;
  if (spare == NULL) return NULL;
  spare->in_arena = true;
  spare->begin = rv_arena_take_telling(arena, capacity, &spare->buf, &spare->bare);
  if (spare->begin != NULL && rv_arena_find(arena, spare->begin, capacity, &spare->offset) != NULL) return spare;
  free(spare);
  return NULL;
}

static rv_buf *take(rv_spares *spares, size_t capacity, bool in_arena)
{
  if (capacity > SIZE_MAX / 2) return NULL;
  capacity = (capacity + LINE - 1) / LINE * LINE;
  spare_buf *spare = find(spares, capacity, in_arena);
  if (spare == NULL) {
    spare = in_arena ? make_in_arena(rv_spares_arena(spares), capacity) : make(capacity);
    if (spare == NULL) return NULL;
    spare->buf.capacity = capacity;
    spare->buf.data = spare->begin;
  }
  atomic_init(&spare->buf.refs, 1);
  spare->buf.size = 0;
  spare->buf.release = give_back;
  spare->spares = spares;
  spare->hollow = false;
  atomic_fetch_add_explicit(&spares->refs, 1, memory_order_relaxed);
  return &spare->buf;
}

rv_buf *rv_spares_take(rv_spares *spares, size_t capacity)
{
  return take(spares, capacity, false);
}

rv_buf *rv_spares_take_lendable(rv_spares *spares, size_t capacity)
{
  rv_buf *buf = rv_spares_arena(spares) == NULL ? NULL : take(spares, capacity, true);
  return buf != NULL ? buf : take(spares, capacity, false);
}

void rv_buf_begin_later(rv_buf *buf, size_t bytes)
{
  buf->data += bytes;
  buf->capacity -= bytes;
}

bool rv_buf_reserve_memory(rv_buf *buf)
{
  enum { PAGE = 4096 };
  spare_buf *spare = (spare_buf *)(void *)buf;
  if (!spare->bare) return true;
  int error = -rv_memory_file_reserve(rv_arena_file_to_write(rv_spares_arena(spare->spares)), spare->offset, buf->capacity);
  if (error == EPERM || error == ENOSYS || error == EOPNOTSUPP) { /* nobody may ask here */
    for (size_t at = 0; at < buf->capacity; at += PAGE) ((volatile uint8_t *)buf->data)[at] = 0;
    error = 0;
  }
  spare->bare = spare->hollow = error != 0;
  return error == 0;
}

void rv_buf_abandon(rv_buf *buf)
{
  ((spare_buf *)(void *)buf)->abandoned = true;
}

bool rv_buf_is_lendable(const rv_buf *buf)
{
  return buf->release == give_back && ((const spare_buf *)(const void *)buf)->in_arena;
}

uint64_t rv_buf_arena_offset(const rv_buf *buf)
{
  return ((const spare_buf *)(const void *)buf)->offset;
}
