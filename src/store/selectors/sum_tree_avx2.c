/* The tree's inner loops for processors with AVX2: a line of eight numbers is two vectors. */
#include "store/selectors/sum_tree_steps.h"

#ifdef RV_SUM_TREE_X86
#include <immintrin.h>
#include <math.h>

#define STEPS rv_sum_tree_steps_avx2
#define NAME "avx2"
#define TARGET __attribute__((target("avx2,popcnt")))

/* c0, c0 + c1, (c0 + c1) + c2, (c0 + c1) + (c2 + c3) */
TARGET static inline __m256d half_in(__m256d c)
{
  __m256d pairs = _mm256_blend_pd(c, _mm256_add_pd(c, _mm256_movedup_pd(c)), 0xA);
  return _mm256_blend_pd(pairs, _mm256_add_pd(pairs, _mm256_permute4x64_pd(pairs, 0x55)), 0xC);
}

typedef struct eight {
  __m256d low, high;
} eight;

TARGET static inline eight load_eight(const double *c)
{
  return (eight){_mm256_load_pd(c), _mm256_load_pd(c + 4)};
}

TARGET static inline eight ends_in(eight c)
{
  __m256d low = half_in(c.low);
  return (eight){low, _mm256_add_pd(half_in(c.high), _mm256_permute4x64_pd(low, 0xFF))};
}

TARGET static inline double sum_in(eight c)
{
  __m256d pairs = _mm256_add_pd(_mm256_unpacklo_pd(c.low, c.high), _mm256_unpackhi_pd(c.low, c.high)); /* 01, 45, 23, 67 */
  __m128d fours = _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1));
  return _mm_cvtsd_f64(_mm_add_sd(fours, _mm_unpackhi_pd(fours, fours)));
}

TARGET static inline double sum_of(const double *c)
{
  return sum_in(load_eight(c));
}

TARGET static inline double ends_to(eight c, double *end)
{
  const __m256d beyond = _mm256_set1_pd(INFINITY);
  eight ends = ends_in(c);
  __m256d last = _mm256_permute4x64_pd(ends.high, 0xFF);
  _mm256_store_pd(end, _mm256_blendv_pd(ends.low, beyond, _mm256_cmp_pd(ends.low, last, _CMP_EQ_OQ)));
  _mm256_store_pd(end + 4, _mm256_blendv_pd(ends.high, beyond, _mm256_cmp_pd(ends.high, last, _CMP_EQ_OQ)));
  return _mm256_cvtsd_f64(last);
}

TARGET static inline double ends_of(const double *c, double *end)
{
  return ends_to(load_eight(c), end);
}

/* A line is written whole, since a load of all of it could not take a part from a store that is still under way. */
TARGET static inline eight replaced(double *c, uint32_t lane, double x)
{
  eight old = load_eight(c), new;
  __m256d all = _mm256_set1_pd(x);
  __m256i here = _mm256_set1_epi64x(lane), first = _mm256_setr_epi64x(0, 1, 2, 3), second = _mm256_setr_epi64x(4, 5, 6, 7);
  new.low = _mm256_blendv_pd(old.low, all, _mm256_castsi256_pd(_mm256_cmpeq_epi64(here, first)));
  new.high = _mm256_blendv_pd(old.high, all, _mm256_castsi256_pd(_mm256_cmpeq_epi64(here, second)));
  _mm256_store_pd(c, new.low);
  _mm256_store_pd(c + 4, new.high);
  return new;
}

TARGET static inline double sum_with(double *c, uint32_t lane, double x)
{
  return sum_in(replaced(c, lane, x));
}

TARGET static inline double ends_with(double *c, double *end, uint32_t lane, double x)
{
  return ends_to(replaced(c, lane, x), end);
}

/* All ones in the lanes whose end is reached; packed to one bit each they can be counted at once. */
TARGET static inline size_t count(__m256d low, __m256d high)
{
  __m256i both = _mm256_packs_epi32(_mm256_castpd_si256(low), _mm256_castpd_si256(high));
  return (size_t)_mm_popcnt_u64((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(both)));
}

TARGET static inline size_t place_of(const double *end, double *u)
{
  __m256d all = _mm256_set1_pd(*u);
  __m256d low = _mm256_cmp_pd(all, _mm256_load_pd(end), _CMP_GE_OQ);
  __m256d high = _mm256_cmp_pd(all, _mm256_load_pd(end + 4), _CMP_GE_OQ);
  size_t reached = count(low, high);
  /* where the first end is not reached nothing is subtracted; what is read then is the sum before the ends */
  __m128d begin = _mm_and_pd(_mm_load_sd(end + reached - 1), _mm256_castpd256_pd128(low));
  _mm_store_sd(u, _mm_sub_sd(_mm256_castpd256_pd128(all), begin));
  return reached;
}

TARGET static inline size_t leaf_of(const double *c, double u)
{
  __m256d all = _mm256_set1_pd(u);
  eight ends = ends_in(load_eight(c));
  return count(_mm256_cmp_pd(all, ends.low, _CMP_GE_OQ), _mm256_cmp_pd(all, ends.high, _CMP_GE_OQ));
}

#include "store/selectors/sum_tree_loops.h"
#else
typedef int rv_no_avx2; /* a translation unit must not be empty */
#endif
