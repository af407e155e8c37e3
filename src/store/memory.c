#include "store/memory.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/table.h"

rv_code rv_memory_new(size_t limit, rv_memory **out, rv_error *err)
{
  rv_memory *memory = calloc(1, sizeof *memory);
  if (memory == NULL) return rv_fail_memory(err, sizeof *memory);
  atomic_init(&memory->limit, limit == 0 ? SIZE_MAX : limit);
  atomic_init(&memory->bytes, 1);
  atomic_init(&memory->on_the_way, 0);
  atomic_init(&memory->wanted, SIZE_MAX);
  atomic_init(&memory->wanted_when_full, SIZE_MAX);
  atomic_init(&memory->serving, false);
  atomic_init(&memory->spills, false);
  atomic_init(&memory->spill_fault, 0);
  atomic_init(&memory->all_spilled, false);
  atomic_init(&memory->told_lost, false);
  atomic_init(&memory->claimed, 0);
  atomic_init(&memory->spilled, 0);
  atomic_init(&memory->ask_ahead, 0);
  atomic_init(&memory->writers, 0);
  atomic_init(&memory->least_bound, SIZE_MAX);
  *out = memory;
  return RV_OK;
}

void rv_memory_note_bound(rv_memory *memory, size_t max_bytes)
{
  size_t least = atomic_load_explicit(&memory->least_bound, memory_order_relaxed);
  while (max_bytes < least && !atomic_compare_exchange_weak(&memory->least_bound, &least, max_bytes)) continue;
}

void rv_memory_take_away(rv_memory *memory, size_t bytes)
{
  if (atomic_fetch_sub(&memory->bytes, bytes) == bytes) free(memory);
}

void rv_memory_release(rv_memory *memory)
{
  if (memory != NULL) rv_memory_take_away(memory, 1);
}

static bool fits(size_t more, size_t used, size_t limit)
{
  return used <= limit && more <= limit - used;
}

static bool has_room(const rv_memory *memory, size_t more, bool full)
{
  size_t limit = atomic_load(&memory->limit), used = atomic_load(&memory->bytes) - 1;
  size_t way = rv_memory_on_the_way(memory), share = limit / RV_MEMORY_WAY;
  size_t tables = used > way ? used - way : 0;
  if (full) return fits(more, tables, limit); /* only what is on the way becomes less by it */
  more += limit / RV_MEMORY_MARGIN;
  return fits(more, used, limit) || (way > share && fits(more, tables, limit - share));
}

bool rv_memory_ask(rv_memory *memory, size_t more, bool full)
{
  if (rv_memory_limit(memory) == SIZE_MAX || has_room(memory, more, full)) return true;
  atomic_size_t *least = full ? &memory->wanted_when_full : &memory->wanted;
  size_t wanted = atomic_load(least);
  while (more < wanted && !atomic_compare_exchange_weak(least, &wanted, more)) continue;
  return has_room(memory, more, full); /* who made room before that did not know of it */
}

static bool is_due(const rv_memory *memory)
{
  size_t wanted = atomic_load(&memory->wanted), when_full = atomic_load(&memory->wanted_when_full);
  return (wanted != SIZE_MAX && has_room(memory, wanted, false)) || (when_full != SIZE_MAX && has_room(memory, when_full, true));
}

static void let_all_ask(rv_memory *memory)
{
  atomic_store(&memory->wanted, SIZE_MAX);
  atomic_store(&memory->wanted_when_full, SIZE_MAX);
  for (size_t i = 0; i < memory->num_tables; i++) rv_table_serve_memory(memory->tables[i]);
  atomic_store(&memory->serving, false);
}

/* One thread at a time: whoever finds another at it leaves it to him, who looks again when he is done. */
void rv_memory_serve_waiting(rv_memory *memory)
{
  while (is_due(memory)) {
    if (atomic_exchange(&memory->serving, true)) return;
    let_all_ask(memory);
  }
}

void rv_memory_ask_again(rv_memory *memory)
{
  if (!rv_memory_is_awaited(memory) || atomic_exchange(&memory->serving, true)) return;
  let_all_ask(memory);
  rv_memory_serve_waiting(memory);
}

/* Whoever began to wait before the limit was another is in his table's queue, and is looked at there; who does later sees the new one. */
void rv_memory_set_limit(rv_memory *memory, size_t limit)
{
  atomic_store(&memory->limit, limit == 0 ? SIZE_MAX : limit);
  for (size_t i = 0; i < memory->num_tables; i++) rv_table_learn_memory_limit(memory->tables[i]);
}

/* ---- words ---- */

static const char *unit_of(size_t bytes, double *in)
{
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  *in = 1;
  while (unit + 1 < sizeof units / sizeof units[0] && (double)bytes / *in >= 1024) {
    *in *= 1024;
    unit++;
  }
  return units[unit];
}

void rv_memory_format(size_t bytes, char *out, size_t capacity)
{
  double in;
  const char *unit = unit_of(bytes, &in);
  snprintf(out, capacity, in == 1 ? "%.0f %s" : "%.1f %s", (double)bytes / in, unit);
}

void rv_memory_spill_fault(const rv_memory *memory, char *out, size_t capacity)
{
  int fault = atomic_load_explicit(&memory->spill_fault, memory_order_relaxed);
  const char *why = fault == 0 ? "" : rv_system_error(fault);
  if (fault == 0 && atomic_load_explicit(&memory->all_spilled, memory_order_relaxed))
    why = "the rest is books and what cannot go there";
  snprintf(out, capacity, "%s", why);
}

static void explain_spill(const rv_memory *memory, char *out, size_t capacity)
{
  char spilled[32], fault[64];
  rv_memory_spill_fault(memory, fault, sizeof fault);
  rv_memory_format(atomic_load_explicit(&memory->spilled, memory_order_relaxed), spilled, sizeof spilled);
  out[0] = '\0';
  if (fault[0] != '\0') snprintf(out, capacity, "; the spill file has %s and takes no more: %s", spilled, fault);
}

void rv_memory_explain(const rv_memory *memory, char *out, size_t capacity)
{
  double in;
  size_t limit = rv_memory_limit(memory);
  const char *unit = unit_of(limit, &in);
  char spill[160];
  explain_spill(memory, spill, sizeof spill);
  snprintf(out, capacity, "waits for memory (%.1f of %.1f %s used%s)", (double)rv_memory_used(memory) / in, (double)limit / in,
           unit, spill);
}

void rv_memory_begin_claiming(rv_memory *memory)
{
  for (int nobody = 0; !atomic_compare_exchange_weak(&memory->claimed, &nobody, RV_CLAIMED_BY_LOADER); nobody = 0) sched_yield();
}
