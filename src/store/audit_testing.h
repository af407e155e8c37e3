/* All that a table's books count, counted again from what is there: chunks with their items and rows, templates, layouts, keys, the order of
 * insertion. Between operations of one thread. */
#ifndef RV_STORE_AUDIT_TESTING_H
#define RV_STORE_AUDIT_TESTING_H

#include "store/chunk_parts.h"
#include "store/table_parts.h"
#include "store/testing.h"

enum { AUDITED_MAX = 4096 };

/* Rows that items reach in the chunk, each as often as items do. */
static inline size_t audit_rows(const rv_books *books, const rv_hold *hold, size_t *items, size_t *loose)
{
  size_t rows = 0;
  *items = *loose = 0;
  uint32_t before = RV_NO_SLOT;
  for (uint32_t slot = hold->first; slot != RV_NO_SLOT; slot = rv_slab_at(&books->slab, slot)->hold_next) {
    const rv_item *item = rv_slab_at(&books->slab, slot);
    assert_ptr_equal(item->data, hold);
    assert_int_equal(item->hold_prev, before);
    rows += (size_t)rv_trajectory_box_of(books->templates.entry[item->template_number].trajectory)->span;
    before = slot;
    ++*items;
  }
  RV_LIST_EACH(link, &hold->loose)
  {
    const rv_loose_link *of = RV_CONTAINER(link, rv_loose_link, link);
    assert_ptr_equal(of->hold, hold);
    rows += (size_t)(of->reach.end - of->reach.first);
    ++*items;
    ++*loose;
  }
  return rows;
}

static inline void audit_holds(rv_table *table)
{
  const rv_books *books = &table->books;
  size_t present = 0, memory = 0, spilled = 0, open = 0, num_episodes = 0;
  rv_sparse_holds sparse[2] = {{.num = 0}}; /* [1]: that lie elsewhere */
  uint64_t episodes[AUDITED_MAX];
  bool of_items[AUDITED_MAX] = {false};
  for (uint32_t i = 0; i < books->num_holds; i++) {
    uintptr_t place = (uintptr_t)*RV_SEGARRAY_AT(&books->holds, rv_hold *, i);
    if ((place & 1U) != 0) continue;
    rv_hold *hold = (rv_hold *)place;
    size_t items, loose, rows = audit_rows(books, hold, &items, &loose);
    assert_int_equal(hold->index, i);
    assert_int_equal(hold->items, items);
    assert_int_equal(hold->num_loose, loose);
    assert_int_equal(hold->live_rows, rows);
    assert_int_equal(hold->drawn, 0);
    assert_true(items > 0 || hold->open);
    assert_int_equal(hold->memory, rv_chunk_memory(hold->chunk));
    assert_ptr_equal(rv_books_find_hold(books, hold->chunk), hold);
    present++;
    memory += hold->memory;
    const bool elsewhere = rv_chunk_is_spilled(hold->chunk);
    if (elsewhere) spilled += hold->memory;
    if (hold->open) open += hold->memory;
    if (!rv_list_empty(&hold->sparse)) {
      sparse[elsewhere].num++;
      sparse[elsewhere].memory += hold->memory;
    }
    size_t e = 0;
    while (e < num_episodes && episodes[e] != hold->chunk->meta.episode_id) e++;
    assert_true(e < AUDITED_MAX);
    episodes[e] = hold->chunk->meta.episode_id;
    if (e == num_episodes) num_episodes++;
    if (items > 0) of_items[e] = true;
  }
  assert_int_equal(books->present_holds, present);
  assert_int_equal(books->chunk_memory, memory);
  assert_int_equal(books->open_memory, open);
  assert_int_equal(books->spilled_memory, spilled);
  assert_int_equal(books->sparse.num, sparse[0].num);
  assert_int_equal(books->sparse.memory, sparse[0].memory);
  assert_int_equal(books->spilled_sparse.num, sparse[1].num);
  assert_int_equal(books->spilled_sparse.memory, sparse[1].memory);
  assert_int_equal(books->episodes.count, num_episodes);
  size_t shown = 0;
  for (size_t e = 0; e < num_episodes; e++) shown += of_items[e];
  rv_table_info info = info_of(table);
  assert_int_equal(info.num_episodes, shown);
  rv_table_info_fini(&info);
}

static inline void audit_items(const rv_table *table)
{
  const rv_books *books = &table->books;
  uint32_t uses[RV_MAX_TEMPLATES] = {0}, before = RV_NO_SLOT;
  size_t count = 0, num_loose = 0, num_layouts = 0;
  const rv_layout *layouts[AUDITED_MAX];
  uint64_t sequence = 0;
  for (uint32_t slot = books->slab.oldest; slot != RV_NO_SLOT; slot = rv_slab_at(&books->slab, slot)->next) {
    const rv_item *item = rv_slab_at(&books->slab, slot);
    assert_int_equal(item->prev, before);
    assert_true(rv_item_sequence(item) > sequence);
    sequence = rv_item_sequence(item);
    before = slot;
    count++;
    assert_int_equal(rv_books_find(books, item->key), slot);
    if (item->template_number == RV_LOOSE)
      num_loose++;
    else
      uses[item->template_number]++;
    const rv_layout *layout = rv_books_trajectory(books, item)->layout;
    size_t l = 0;
    while (l < num_layouts && layouts[l] != layout) l++;
    assert_true(l < AUDITED_MAX);
    layouts[l] = layout;
    if (l == num_layouts) num_layouts++;
  }
  assert_int_equal(books->slab.newest, before);
  assert_int_equal(books->slab.count, count);
  assert_int_equal(books->num_loose, num_loose);
  assert_int_equal(rv_books_num_layouts(books), num_layouts);
  size_t memory = 0;
  for (size_t i = 0; i < RV_MAX_TEMPLATES; i++) {
    const rv_template *entry = &books->templates.entry[i];
    assert_int_equal(entry->items, uses[i]);
    if (entry->items > 0) memory += rv_trajectory_box_of(entry->trajectory)->memory;
  }
  assert_int_equal(books->templates.memory, memory);
  assert_true((int64_t)count <= table->config.max_size);
  assert_int_equal(table->limiter.inserts - table->limiter.deletes, count);
  if (table->sampler.selector != NULL) assert_int_equal(rv_selector_count(table->sampler.selector), count);
  if (table->remover.selector != NULL) assert_int_equal(rv_selector_count(table->remover.selector), count);
}

static inline void audit_table(rv_table *table)
{
  assert_int_equal(table->num_events, 0);
  audit_items(table);
  audit_holds(table);
}

#endif
