#include <stdlib.h>

#include "base/env.h"
#include "net/loop.h"

void rv_timer_heap_fini(rv_timer_heap *heap)
{
  for (size_t i = 0; i < heap->count; i++) heap->timer[i]->heap_index = SIZE_MAX;
  free(heap->timer);
  *heap = (rv_timer_heap){0};
}

static void place(rv_timer_heap *heap, size_t index, rv_timer *timer)
{
  heap->timer[index] = timer;
  timer->heap_index = index;
}

static void up(rv_timer_heap *heap, size_t index)
{
  rv_timer *timer = heap->timer[index];
  while (index > 0 && heap->timer[(index - 1) / 2]->at_ns > timer->at_ns) {
    place(heap, index, heap->timer[(index - 1) / 2]);
    index = (index - 1) / 2;
  }
  place(heap, index, timer);
}

static void down(rv_timer_heap *heap, size_t index)
{
  rv_timer *timer = heap->timer[index];
  for (;;) {
    size_t child = 2 * index + 1;
    if (child >= heap->count) break;
    if (child + 1 < heap->count && heap->timer[child + 1]->at_ns < heap->timer[child]->at_ns) child++;
    if (heap->timer[child]->at_ns >= timer->at_ns) break;
    place(heap, index, heap->timer[child]);
    index = child;
  }
  place(heap, index, timer);
}

bool rv_timer_heap_put(rv_timer_heap *heap, rv_timer *timer)
{
  if (heap->count == heap->capacity) {
    size_t capacity = heap->capacity == 0 ? 64 : heap->capacity * 2;
    rv_timer **grown = realloc(heap->timer, capacity * sizeof(rv_timer *));
    if (grown == NULL) return false;
    heap->timer = grown;
    heap->capacity = capacity;
  }
  heap->timer[heap->count] = timer;
  up(heap, heap->count++);
  return true;
}

void rv_timer_heap_move(rv_timer_heap *heap, rv_timer *timer)
{
  up(heap, timer->heap_index);
  down(heap, timer->heap_index);
}

void rv_timer_heap_remove(rv_timer_heap *heap, rv_timer *timer)
{
  size_t index = timer->heap_index;
  rv_timer *last = heap->timer[--heap->count];
  timer->heap_index = SIZE_MAX;
  if (last == timer) return;
  place(heap, index, last);
  rv_timer_heap_move(heap, last);
}

void rv_timer_init(rv_timer *timer, rv_loop *loop, void (*fire)(rv_timer *timer))
{
  *timer = (rv_timer){.fire = fire, .loop = loop, .at_ns = INT64_MAX, .heap_index = SIZE_MAX};
}

void rv_timer_start(rv_timer *timer, int64_t at_ns)
{
  RV_LOOP_CHECK(timer->loop);
  rv_timer_heap *heap = &timer->loop->timers;
  timer->at_ns = at_ns;
  if (timer->heap_index != SIZE_MAX)
    rv_timer_heap_move(heap, timer);
  else if (!rv_timer_heap_put(heap, timer))
    rv_log(&timer->loop->env, RV_LOG_ERROR, "out of memory: a timer could not be started, so that a deadline is not kept");
}

void rv_timer_stop(rv_timer *timer)
{
  if (timer->heap_index != SIZE_MAX) rv_timer_heap_remove(&timer->loop->timers, timer);
}
