/* The tree's inner loops in plain C, for any processor. */
#include <math.h>
#include <string.h>

#include "store/selectors/sum_tree_steps.h"

/* Nobody looks at floating-point exceptions, and a compiler that need not keep them can compare in vectors. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

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
  uint64_t reached = 0;
  for (int i = 0; i < RV_TREE_FANOUT; i++) reached += u >= end[i] ? 1U : 0U;
  return (size_t)reached;
}

static inline size_t place_of(const double *end, double *u)
{
  size_t reached = count(end, *u);
  uint64_t begin; /* of the child: 0, all bits zero, if no end was reached; without a branch that nobody could predict */
  memcpy(&begin, &end[(reached - 1) & (RV_TREE_FANOUT - 1)], sizeof begin);
  begin &= 0 - (uint64_t)(reached > 0);
  double distance;
  memcpy(&distance, &begin, sizeof distance);
  *u -= distance;
  return reached;
}

static inline size_t leaf_of(const double *c, double u)
{
  double end[RV_TREE_FANOUT];
  add_up(c, end);
  return count(end, u);
}

#include "store/selectors/sum_tree_loops.h"
