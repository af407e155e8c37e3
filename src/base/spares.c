#include "base/spares.h"

#include <stdlib.h>

enum { SLOTS = 4 };

typedef struct spare_buf {
  rv_buf buf;        /* first: the two pointers are the same */
  rv_spares *spares; /* one reference while it is in use */
} spare_buf;

struct rv_spares {
  atomic_size_t refs;
  _Atomic(spare_buf *) slot[SLOTS];
};

rv_spares *rv_spares_new(void)
{
  rv_spares *spares = calloc(1, sizeof *spares);
  if (spares == NULL) return NULL;
  atomic_init(&spares->refs, 1);
  for (size_t i = 0; i < SLOTS; i++) atomic_init(&spares->slot[i], NULL);
  return spares;
}

void rv_spares_unref(rv_spares *spares)
{
  if (spares == NULL || atomic_fetch_sub_explicit(&spares->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < SLOTS; i++) free(atomic_load_explicit(&spares->slot[i], memory_order_relaxed));
  free(spares);
}

static void give_back(rv_buf *buf)
{
  spare_buf *spare = (spare_buf *)(void *)buf;
  rv_spares *spares = spare->spares;
  bool kept = false;
  for (size_t i = 0; i < SLOTS && !kept; i++) {
    spare_buf *empty = NULL;
    kept = atomic_compare_exchange_strong_explicit(&spares->slot[i], &empty, spare, memory_order_acq_rel, memory_order_relaxed);
  }
  if (!kept) free(spare);
  rv_spares_unref(spares);
}

/* One that is large enough; smaller ones make room for those that are wanted now. */
static spare_buf *find(rv_spares *spares, size_t capacity)
{
  for (size_t i = 0; i < SLOTS; i++) {
    spare_buf *spare = atomic_exchange_explicit(&spares->slot[i], NULL, memory_order_acq_rel);
    if (spare != NULL && spare->buf.capacity >= capacity) return spare;
    free(spare);
  }
  return NULL;
}

rv_buf *rv_spares_take(rv_spares *spares, size_t capacity)
{
  spare_buf *spare = find(spares, capacity);
  if (spare == NULL) {
    if (capacity > SIZE_MAX - sizeof *spare) return NULL;
    spare = malloc(sizeof *spare + capacity);
    if (spare == NULL) return NULL;
    spare->buf.capacity = capacity;
  }
  atomic_init(&spare->buf.refs, 1);
  spare->buf.size = 0;
  spare->buf.release = give_back;
  spare->buf.data = (uint8_t *)(spare + 1);
  spare->spares = spares;
  atomic_fetch_add_explicit(&spares->refs, 1, memory_order_relaxed);
  return &spare->buf;
}
