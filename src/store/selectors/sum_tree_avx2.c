/* The tree's inner loops for processors with AVX2: a line of eight numbers is two vectors. */
#include "store/selectors/sum_tree_steps.h"

#ifdef RV_SUM_TREE_X86
#include <immintrin.h>

#define STEPS rv_sum_tree_steps_avx2
#define NAME "avx2"
#define TARGET __attribute__((target("avx2,popcnt")))

/* c0, c0 + c1, (c0 + c1) + c2, (c0 + c1) + (c2 + c3) */
TARGET static inline __m256d half_in(__m256d c)
{
  __m256d pairs = _mm256_blend_pd(c, _mm256_add_pd(c, _mm256_movedup_pd(c)), 0xA);
  return _mm256_blend_pd(pairs, _mm256_add_pd(pairs, _mm256_permute4x64_pd(pairs, 0x55)), 0xC);
}

TARGET static inline void ends_in(const double *c, __m256d *low, __m256d *high)
{
  *low = half_in(_mm256_load_pd(c));
  *high = _mm256_add_pd(half_in(_mm256_load_pd(c + 4)), _mm256_permute4x64_pd(*low, 0xFF));
}

TARGET static inline double sum_of(const double *c)
{
  __m256d pairs = _mm256_hadd_pd(_mm256_load_pd(c), _mm256_load_pd(c + 4)); /* 01, 45, 23, 67 */
  __m128d fours = _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1));
  return _mm_cvtsd_f64(_mm_add_sd(fours, _mm_unpackhi_pd(fours, fours)));
}

TARGET static inline double ends_of(const double *c, double *end)
{
  __m256d low, high;
  ends_in(c, &low, &high);
  _mm256_store_pd(end, low);
  _mm256_store_pd(end + 4, high);
  __m128d upper = _mm256_extractf128_pd(high, 1);
  return _mm_cvtsd_f64(_mm_unpackhi_pd(upper, upper));
}

TARGET static inline size_t count(__m256d low, __m256d high, double u)
{
  __m256d all = _mm256_set1_pd(u);
  int reached = _mm256_movemask_pd(_mm256_cmp_pd(all, low, _CMP_GE_OQ));
  reached |= _mm256_movemask_pd(_mm256_cmp_pd(all, high, _CMP_GE_OQ)) << 4;
  return (size_t)_mm_popcnt_u32((unsigned)reached);
}

TARGET static inline size_t place_of(const double *end, double *u)
{
  size_t reached = count(_mm256_load_pd(end), _mm256_load_pd(end + 4), *u);
  /* where the first end is not reached nothing is subtracted; what is read then is the sum before the ends */
  __m128d begin = _mm_and_pd(_mm_load_sd(end + reached - 1), _mm_castsi128_pd(_mm_cvtsi64_si128(-(int64_t)(reached > 0))));
  *u -= _mm_cvtsd_f64(begin);
  return reached;
}

TARGET static inline size_t leaf_of(const double *c, double u)
{
  __m256d low, high;
  ends_in(c, &low, &high);
  return count(low, high, u);
}

#include "store/selectors/sum_tree_loops.h"
#else
typedef int rv_no_avx2; /* a translation unit must not be empty */
#endif
