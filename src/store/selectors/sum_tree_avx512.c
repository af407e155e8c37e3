/* The tree's inner loops for processors with AVX-512: a line of eight numbers is one vector. */
#include "store/selectors/sum_tree_steps.h"

#ifdef RV_SUM_TREE_X86
#include <immintrin.h>
#include <math.h>

#define STEPS rv_sum_tree_steps_avx512
#define NAME "avx512"
#define TARGET __attribute__((target("avx512f,avx512dq,popcnt")))

/* Zeros are added where the others add nothing: by shuffles, since a mask would be made anew for every group. */
TARGET static inline __m512d ends_in(__m512d c)
{
  const __m512d zero = _mm512_setzero_pd();
  const __m512i second = _mm512_setr_epi64(8, 8, 1, 1, 8, 8, 5, 5), fourth = _mm512_setr_epi64(8, 8, 8, 8, 3, 3, 3, 3);
  c = _mm512_add_pd(c, _mm512_unpacklo_pd(zero, c));
  c = _mm512_add_pd(c, _mm512_permutex2var_pd(c, second, zero));
  return _mm512_add_pd(c, _mm512_permutex2var_pd(c, fourth, zero));
}

TARGET static inline double sum_of(const double *c)
{
  __m256d low = _mm256_load_pd(c), high = _mm256_load_pd(c + 4);
  __m256d pairs = _mm256_add_pd(_mm256_unpacklo_pd(low, high), _mm256_unpackhi_pd(low, high)); /* 01, 45, 23, 67 */
  __m128d fours = _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1));
  return _mm_cvtsd_f64(_mm_add_sd(fours, _mm_unpackhi_pd(fours, fours)));
}

TARGET static inline double ends_to(__m512d c, double *end)
{
  __m512d ends = ends_in(c), last = _mm512_permutexvar_pd(_mm512_set1_epi64(7), ends);
  __mmask8 at_last = _mm512_cmp_pd_mask(ends, last, _CMP_EQ_OQ);
  _mm512_store_pd(end, _mm512_mask_blend_pd(at_last, ends, _mm512_set1_pd(INFINITY)));
  return _mm512_cvtsd_f64(last);
}

TARGET static inline double ends_of(const double *c, double *end)
{
  return ends_to(_mm512_load_pd(c), end);
}

/* A line is written whole, since a load of all of it could not take a part from a store that is still under way. */
TARGET static inline __m512d replaced(double *c, uint32_t lane, double x)
{
  __m512d line = _mm512_mask_blend_pd((__mmask8)(1U << lane), _mm512_load_pd(c), _mm512_set1_pd(x));
  _mm512_store_pd(c, line);
  return line;
}

TARGET static inline double sum_with(double *c, uint32_t lane, double x)
{
  __m512d last = _mm512_permutexvar_pd(_mm512_set1_epi64(7), ends_in(replaced(c, lane, x)));
  return _mm512_cvtsd_f64(last);
}

TARGET static inline double ends_with(double *c, double *end, uint32_t lane, double x)
{
  return ends_to(replaced(c, lane, x), end);
}

TARGET static inline size_t place_of(const double *end, double *u)
{
  __m512d all = _mm512_set1_pd(*u);
  __m128d one = _mm512_castpd512_pd128(all);
  __mmask8 reached = _mm512_cmp_pd_mask(all, _mm512_load_pd(end), _CMP_GE_OQ);
  size_t count = (size_t)_mm_popcnt_u64(reached);
  /* where the first end is not reached nothing is subtracted; what is read then is the sum before the ends */
  _mm_store_sd(u, _mm_mask_sub_sd(one, reached, one, _mm_load_sd(end + count - 1)));
  return count;
}

TARGET static inline size_t leaf_of(const double *c, double u)
{
  __mmask8 reached = _mm512_cmp_pd_mask(_mm512_set1_pd(u), ends_in(_mm512_load_pd(c)), _CMP_GE_OQ);
  return (size_t)_mm_popcnt_u64(reached);
}

#include "store/selectors/sum_tree_loops.h"
#else
typedef int rv_no_avx512; /* a translation unit must not be empty */
#endif
