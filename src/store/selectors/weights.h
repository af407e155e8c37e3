/* From priorities to weights: priority^exponent, many at a time, in a form that compilers turn into vector code. */
#ifndef RV_STORE_SELECTORS_WEIGHTS_H
#define RV_STORE_SELECTORS_WEIGHTS_H

#include <stddef.h>

/* A weight is 0 only for priority 0, whatever the exponent; all others are kept between 2^-1022 and 2^960. The sum of 2^31
 * weights is then finite, and a positive priority keeps a positive weight however large the exponent. */
#define RV_WEIGHT_MIN 0x1p-1022
#define RV_WEIGHT_MAX 0x1p+960

/* weights[i] = priorities[i]^exponent for finite priorities that are not negative, and any finite exponent. The relative error is
 * below (2 + |log2 weight|) * 2^-52. `weights` and `priorities` may be the same. */
void rv_weigh(double exponent, const double *priorities, double *weights, size_t n);

#endif
