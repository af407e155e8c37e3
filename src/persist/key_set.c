#include "persist/key_set.h"

#include <stdlib.h>

enum { BITS_MIN = 6, BITS_MAX = 32 };
_Static_assert(SIZE_MAX > UINT32_MAX, "a set may have 2^32 slots");

/* The part of the hash that is kept; what is 0 would be a free slot. */
static uint32_t mark_of(const rv_key_set *set, uint64_t key)
{
  uint32_t mark = (uint32_t)(rv_hash_of(set->hash, key) >> 32);
  return mark != 0 ? mark : 1;
}

/* Where it belongs: its highest bits, which a larger array has more of. */
static size_t home_of(unsigned bits, uint32_t mark)
{
  return mark >> (BITS_MAX - bits);
}

static size_t last_slot(unsigned bits)
{
  return ((size_t)1 << bits) - 1;
}

/* From the mark's place on, the first slot that is free or has `wanted`. */
static size_t find(const uint32_t *slots, unsigned bits, uint32_t mark, uint32_t wanted)
{
  size_t at = home_of(bits, mark);
  while (slots[at] != 0 && slots[at] != wanted) at = (at + 1) & last_slot(bits);
  return at;
}

/* Where it is put, be it in already or not. */
static size_t find_free(const uint32_t *slots, unsigned bits, uint32_t mark)
{
  return find(slots, bits, mark, 0);
}

/* Where it is; a free slot: it is not. */
static size_t find_key(const rv_key_set *set, uint64_t key)
{
  uint32_t mark = mark_of(set, key);
  return find(set->slots, set->bits, mark, mark);
}

/* At most three of four slots are used: there is always a free one to end a search. */
static rv_code make_room(rv_key_set *set)
{
  if (set->bits != 0 && set->count < (last_slot(set->bits) + 1) / 4 * 3) return RV_OK;
  unsigned bits = set->bits == 0 ? BITS_MIN : set->bits + 1;
  uint32_t *slots = bits <= BITS_MAX ? calloc(last_slot(bits) + 1, sizeof *slots) : NULL;
  if (slots == NULL) return RV_RESOURCE_EXHAUSTED;
  for (size_t i = 0; set->bits != 0 && i <= last_slot(set->bits); i++)
    if (set->slots[i] != 0) slots[find_free(slots, bits, set->slots[i])] = set->slots[i];
  free(set->slots);
  set->slots = slots;
  set->bits = bits;
  return RV_OK;
}

void rv_key_set_init(rv_key_set *set, uint64_t seed)
{
  *set = (rv_key_set){.hash = rv_hash_by(seed)};
}

void rv_key_set_clear(rv_key_set *set)
{
  free(set->slots);
  *set = (rv_key_set){.hash = set->hash};
}

bool rv_key_set_may_have(const rv_key_set *set, uint64_t key)
{
  return set->bits != 0 && set->slots[find_key(set, key)] != 0;
}

void rv_key_set_prefetch(const rv_key_set *set, uint64_t key)
{
  if (set->bits != 0) __builtin_prefetch(&set->slots[home_of(set->bits, mark_of(set, key))], 1);
}

size_t rv_key_set_bytes(const rv_key_set *set)
{
  return set->bits == 0 ? 0 : (last_slot(set->bits) + 1) * sizeof *set->slots;
}

rv_code rv_key_set_add(rv_key_set *set, uint64_t key)
{
  rv_code code = make_room(set);
  if (code != RV_OK) return code;
  uint32_t mark = mark_of(set, key);
  set->slots[find_free(set->slots, set->bits, mark)] = mark;
  set->count++;
  return RV_OK;
}

/* What lies behind the freed slot moves up, unless it would then stand before its place. */
void rv_key_set_remove(rv_key_set *set, uint64_t key)
{
  if (set->bits == 0) return;
  size_t last = last_slot(set->bits), gap = find_key(set, key);
  if (set->slots[gap] == 0) return;
  for (size_t at = (gap + 1) & last; set->slots[at] != 0; at = (at + 1) & last) {
    size_t from_home = (at - home_of(set->bits, set->slots[at])) & last;
    if (from_home < ((at - gap) & last)) continue;
    set->slots[gap] = set->slots[at];
    gap = at;
  }
  set->slots[gap] = 0;
  set->count--;
}
