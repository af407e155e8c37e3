/* The tree's inner loops in plain C, for any processor. */
#include <math.h>

#include "store/selectors/sum_tree_steps.h"

#define STEPS rv_sum_tree_steps_plain
#define NAME "plain"
#define TARGET

static inline double sum_of(const double *c)
{
  return ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
}

static inline double add_up(const double *c, double *end)
{
  double two = c[0] + c[1], four = two + (c[2] + c[3]), six = c[4] + c[5];
  double ends[RV_TREE_FANOUT] = {c[0],        two,        two + c[2],          four,
                                 four + c[4], four + six, four + (six + c[6]), four + (six + (c[6] + c[7]))};
  for (int i = 0; i < RV_TREE_FANOUT; i++) end[i] = ends[i];
  return ends[RV_TREE_FANOUT - 1];
}

static inline double ends_of(const double *c, double *end)
{
  double last = add_up(c, end);
  for (int i = 0; i < RV_TREE_FANOUT; i++) end[i] = end[i] == last ? INFINITY : end[i];
  return last;
}

static inline double sum_with(double *c, uint32_t lane, double x)
{
  c[lane] = x;
  return sum_of(c);
}

static inline double ends_with(double *c, double *end, uint32_t lane, double x)
{
  c[lane] = x;
  return ends_of(c, end);
}

static inline size_t count(const double *end, double u)
{
  size_t reached = 0;
  for (int i = 0; i < RV_TREE_FANOUT; i++) reached += u >= end[i];
  return reached;
}

static inline size_t place_of(const double *end, double *u)
{
  static const double zero = 0;
  size_t reached = count(end, *u);
  const double *begin = reached > 0 ? end + reached - 1 : &zero; /* a choice of addresses takes no branch */
  *u -= *begin;
  return reached;
}

static inline size_t leaf_of(const double *c, double u)
{
  double end[RV_TREE_FANOUT];
  add_up(c, end);
  return count(end, u);
}

#include "store/selectors/sum_tree_loops.h"
