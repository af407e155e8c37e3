/* Draws whose rows lie one behind another in one chunk, as those of a pack do (wire/sample_pack.h): each column of n items is one piece of
 * memory, be it with gaps. */
#ifndef RV_STORE_RUN_H
#define RV_STORE_RUN_H

#include "base/gaps.h"
#include "store/trajectory.h"

/* Are they one, and lies every gap within their chunk's rows? Then nothing that was looked at to make them lies in one. */
bool rv_draws_are_run(const rv_draw *draws, size_t n, const rv_gaps *gaps);
/* Copies column `column` of n draws of a run, all of its rows. `crew` and `past_caches`: as in rv_gaps_copy_together. */
void rv_run_copy(rv_crew *crew, const rv_draw *draws, size_t n, uint32_t column, const rv_gaps *gaps, bool past_caches,
                 uint8_t *out);

#endif
