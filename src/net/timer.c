/* Timers stand in a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986) made of themselves, so that starting one needs no memory. */
#include "base/env.h"
#include "net/loop.h"

/* The later one becomes the first child of the other. */
static rv_timer *meld(rv_timer *a, rv_timer *b)
{
  if (a == NULL || b == NULL) return a == NULL ? b : a;
  if (b->at_ns < a->at_ns) {
    rv_timer *earlier = b;
    b = a;
    a = earlier;
  }
  b->before = a;
  b->next = a->child;
  if (a->child != NULL) a->child->before = b;
  a->child = b;
  return a;
}

/* Brothers become one heap: in pairs, then pair by pair from the last. */
static rv_timer *meld_all(rv_timer *first)
{
  rv_timer *pairs = NULL, *root = NULL;
  while (first != NULL) {
    rv_timer *a = first, *b = a->next;
    first = b == NULL ? NULL : b->next;
    a->before = a->next = NULL;
    if (b != NULL) b->before = b->next = NULL;
    rv_timer *pair = meld(a, b);
    pair->next = pairs;
    pairs = pair;
  }
  while (pairs != NULL) {
    rv_timer *pair = pairs;
    pairs = pair->next;
    pair->next = NULL;
    root = meld(root, pair);
  }
  return root;
}

static void put(rv_loop *loop, rv_timer *timer)
{
  timer->runs = true;
  loop->timers = meld(loop->timers, timer);
}

static void take_out(rv_loop *loop, rv_timer *timer)
{
  if (timer->before == NULL)
    loop->timers = NULL;
  else if (timer->before->child == timer)
    timer->before->child = timer->next;
  else
    timer->before->next = timer->next;
  if (timer->next != NULL) timer->next->before = timer->before;
  loop->timers = meld(loop->timers, meld_all(timer->child));
  timer->child = timer->before = timer->next = NULL;
  timer->runs = false;
}

void rv_timer_init(rv_timer *timer, rv_loop *loop, void (*fire)(rv_timer *timer))
{
  *timer = (rv_timer){.fire = fire, .loop = loop, .at_ns = INT64_MAX};
}

void rv_timer_start(rv_timer *timer, int64_t at_ns)
{
  RV_LOOP_CHECK(timer->loop);
  if (timer->runs) take_out(timer->loop, timer);
  timer->at_ns = at_ns;
  put(timer->loop, timer);
}

void rv_timer_stop(rv_timer *timer)
{
  if (timer->runs) take_out(timer->loop, timer);
}
