#include "places.h"

struct known_place {
  place_kind kind;
  size_t index, part;
  const char *text;
};

void places_add(places *all, arena *memory, place_kind kind, size_t index, size_t part, const char *text)
{
  all->list = arena_append(memory, all->list, all->count, sizeof *all->list);
  all->list[all->count++] = (known_place){.kind = kind, .index = index, .part = part, .text = text};
}

const char *places_find(const places *all, place_kind kind, size_t index, size_t part)
{
  for (size_t i = all->count; i-- > 0;) {
    const known_place *one = &all->list[i];
    if (one->kind == kind && one->index == index && one->part == part) return one->text;
  }
  return NULL;
}
