/* Interned layouts: found by a hash of their content, gone with their last user. */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/maker.h"
#include "base/map.h"
#include "base/segarray.h"
#include "store/trajectory_parts.h"

#define NO_INDEX UINT32_MAX

/* A place for the layouts of one hash, or a link in the list of free places. */
typedef struct rv_layout_place {
  rv_layout *first;
  uint32_t next_free;
} rv_layout_place;

struct rv_layouts {
  atomic_size_t refs;
  rv_maker maker; /* whose they are */
  uint64_t seed;
  rv_mutex mutex; /* what follows, and the step of a layout's references from 1 to 0 */
  rv_map by_hash; /* to an index of `places` */
  rv_segarray places;
  uint32_t num_places, free_places;
  size_t count;
};

rv_code rv_layouts_new(rv_layouts **out, rv_error *err)
{
  rv_layouts *layouts = malloc(sizeof *layouts);
  if (layouts == NULL) return rv_fail_memory(err, sizeof *layouts);
  rv_env env;
  rv_env_fill(&env, NULL);
  atomic_init(&layouts->refs, 1);
  layouts->seed = rv_entropy64(&env);
  rv_maker_init(&layouts->maker);
  rv_mutex_init(&layouts->mutex, RV_RANK_CHUNK, "layouts");
  rv_map_init(&layouts->by_hash, rv_entropy64(&env));
  rv_segarray_init(&layouts->places, sizeof(rv_layout_place), 0, 1);
  layouts->num_places = 0;
  layouts->free_places = NO_INDEX;
  layouts->count = 0;
  *out = layouts;
  return RV_OK;
}

rv_layouts *rv_layouts_ref(rv_layouts *layouts)
{
  atomic_fetch_add_explicit(&layouts->refs, 1, memory_order_relaxed);
  return layouts;
}

void rv_layouts_unref(rv_layouts *layouts)
{
  if (layouts == NULL || atomic_fetch_sub_explicit(&layouts->refs, 1, memory_order_acq_rel) != 1) return;
  rv_map_fini(&layouts->by_hash);
  rv_segarray_fini(&layouts->places);
  rv_mutex_fini(&layouts->mutex);
  rv_maker_fini(&layouts->maker);
  free(layouts);
}

size_t rv_layouts_count(rv_layouts *layouts)
{
  rv_mutex_lock(&layouts->mutex);
  size_t count = layouts->count;
  rv_mutex_unlock(&layouts->mutex);
  return count;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
  hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 32);
}

static uint64_t hash_columns(uint64_t seed, const rv_layout_column *columns, uint32_t num_columns)
{
  uint64_t hash = mix(seed, num_columns);
  for (uint32_t i = 0; i < num_columns; i++) {
    const rv_layout_column *column = &columns[i];
    hash = mix(hash, (uint64_t)column->spec.dtype << 32 | (uint64_t)column->spec.rank << 1 | (column->squeeze ? 1U : 0U));
    hash = mix(hash, (uint64_t)column->length);
    for (uint32_t d = 0; d < column->spec.rank; d++) hash = mix(hash, (uint64_t)column->spec.shape[d]);
  }
  return hash;
}

bool rv_layout_is_of(const rv_layout *layout, const rv_layout_column *columns, uint32_t num_columns)
{
  if (layout->num_columns != num_columns) return false;
  for (uint32_t i = 0; i < num_columns; i++) {
    const rv_layout_column *x = &layout->columns[i], *y = &columns[i];
    if (x->spec.dtype != y->spec.dtype || x->spec.rank != y->spec.rank || x->length != y->length || x->squeeze != y->squeeze)
      return false;
    for (uint32_t d = 0; d < x->spec.rank; d++)
      if (x->spec.shape[d] != y->spec.shape[d]) return false;
  }
  return true;
}

static rv_layout *new_layout(rv_layouts *layouts, const rv_layout_column *columns, uint32_t num_columns, uint64_t hash)
{
  size_t sizes = 0, bytes;
  for (uint32_t i = 0; i < num_columns; i++) sizes += columns[i].spec.rank;
  bytes = sizeof(rv_layout) + num_columns * sizeof(rv_layout_column) + sizes * sizeof(int64_t);
  rv_layout *layout = malloc(bytes);
  if (layout == NULL) return NULL;
  atomic_init(&layout->refs, 1);
  layout->owner = rv_layouts_ref(layouts);
  layout->hash = hash;
  layout->next = NULL;
  layout->num_columns = num_columns;
  int64_t *shapes = (int64_t *)(void *)(layout->columns + num_columns);
  for (uint32_t i = 0; i < num_columns; i++) {
    layout->columns[i] = columns[i];
    layout->columns[i].spec.shape = shapes;
    uint32_t rank = columns[i].spec.rank;
    if (rank > 0) memcpy(shapes, columns[i].spec.shape, rank * sizeof *shapes);
    shapes += rank;
  }
  return layout;
}

static rv_layout_place *place_at(const rv_layouts *layouts, uint32_t index)
{
  return RV_SEGARRAY_AT(&layouts->places, rv_layout_place, index);
}

static rv_code add_layout(rv_layouts *layouts, rv_layout *layout, rv_error *err)
{
  uint32_t *found = rv_map_get(&layouts->by_hash, layout->hash);
  if (found != NULL) {
    layout->next = place_at(layouts, *found)->first;
    place_at(layouts, *found)->first = layout;
    layouts->count++;
    return RV_OK;
  }
  uint32_t index = layouts->free_places;
  if (index == NO_INDEX) {
    rv_code code = rv_segarray_grow(&layouts->places, (uint64_t)layouts->num_places + 1, err);
    if (code != RV_OK) return code;
    index = layouts->num_places;
  }
  if (rv_map_put(&layouts->by_hash, layout->hash, index) != RV_OK) return rv_fail_memory(err, sizeof(rv_map_entry));
  if (index == layouts->num_places)
    layouts->num_places++;
  else
    layouts->free_places = place_at(layouts, index)->next_free;
  *place_at(layouts, index) = (rv_layout_place){.first = layout};
  layouts->count++;
  return RV_OK;
}

static void remove_layout(rv_layouts *layouts, rv_layout *layout)
{
  uint32_t index = *rv_map_get(&layouts->by_hash, layout->hash);
  rv_layout_place *place = place_at(layouts, index);
  rv_layout **at = &place->first;
  while (*at != layout) at = &(*at)->next;
  *at = layout->next;
  layouts->count--;
  if (place->first != NULL) return;
  rv_map_remove(&layouts->by_hash, layout->hash);
  place->next_free = layouts->free_places;
  layouts->free_places = index;
}

static rv_layout *find_layout(rv_layouts *layouts, uint64_t hash, const rv_layout_column *columns, uint32_t num_columns)
{
  uint32_t *found = rv_map_get(&layouts->by_hash, hash);
  rv_layout *layout = found == NULL ? NULL : place_at(layouts, *found)->first;
  while (layout != NULL && !rv_layout_is_of(layout, columns, num_columns)) layout = layout->next;
  return layout;
}

rv_code rv_layout_intern(rv_layouts *layouts, const rv_layout_column *columns, uint32_t num_columns, rv_layout **out,
                         rv_error *err)
{
  uint64_t hash = hash_columns(layouts->seed, columns, num_columns);
  rv_code code = RV_OK;
  rv_layout *fresh = NULL;
  rv_mutex_lock(&layouts->mutex);
  rv_layout *layout = find_layout(layouts, hash, columns, num_columns);
  if (layout == NULL) {
    layout = fresh = new_layout(layouts, columns, num_columns, hash);
    code = fresh == NULL ? rv_fail_memory(err, sizeof *fresh) : add_layout(layouts, fresh, err);
  } else {
    rv_layout_ref(layout);
  }
  rv_mutex_unlock(&layouts->mutex);
  if (code != RV_OK && fresh != NULL) {
    rv_layouts_unref(layouts);
    free(fresh);
  }
  if (code == RV_OK) *out = layout;
  return code;
}

size_t rv_layout_num_columns(const rv_layout *layout)
{
  return layout->num_columns;
}

rv_trajectory_column rv_layout_get(const rv_layout *layout, uint32_t column)
{
  const rv_layout_column *found = &layout->columns[column];
  return (rv_trajectory_column){.squeeze = found->squeeze, .length = found->length, .spec = &found->spec};
}

rv_layout *rv_layout_ref(rv_layout *layout)
{
  atomic_fetch_add_explicit(&layout->refs, 1, memory_order_relaxed);
  return layout;
}

/* The last reference goes under the lock, so that nobody finds a layout that is on its way out. */
void rv_layout_unref(rv_layout *layout)
{
  if (layout == NULL) return;
  size_t refs = atomic_load_explicit(&layout->refs, memory_order_relaxed);
  while (refs > 1)
    if (atomic_compare_exchange_weak_explicit(&layout->refs, &refs, refs - 1, memory_order_acq_rel, memory_order_relaxed)) return;
  rv_layouts *layouts = layout->owner;
  if (!rv_maker_is_this_process(&layouts->maker)) return; /* a child that was forked, perhaps while another thread had the lock */
  rv_mutex_lock(&layouts->mutex);
  bool last = atomic_fetch_sub_explicit(&layout->refs, 1, memory_order_acq_rel) == 1;
  if (last) remove_layout(layouts, layout);
  rv_mutex_unlock(&layouts->mutex);
  if (!last) return;
  free(layout);
  rv_layouts_unref(layouts);
}
