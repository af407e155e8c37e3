/* The sample behind the opaque rv_sample, and what batches share with it: columns of drawn items as callers see them. */
#ifndef RV_CLIENT_SAMPLE_H
#define RV_CLIENT_SAMPLE_H

#include "reverie/sampler.h"
#include "store/trajectory.h"

/* Takes the draw over, on failure too. The caller owns one reference. */
rv_code rv_sample_new(rv_draw *owned_draw, rv_sample **out, rv_error *err);
/* The same; a small item of a large chunk takes its rows with it, so that one sample which is kept does not keep a whole message. */
rv_code rv_sample_new_received(rv_draw *owned_draw, rv_sample **out, rv_error *err);
/* Takes a reference of its own to everything that the draw holds. */
rv_code rv_sample_new_shared(const rv_draw *draw, rv_sample **out, rv_error *err);

/* What it looks like: the sample's own. */
rv_layout *rv_sample_layout(const rv_sample *sample);

void rv_sample_info_of_draw(const rv_draw *draw, rv_sample_info *out);
/* Column of an item; `length` rows of it are shown, which for a padded batch may be more than it has. RV_RESOURCE_EXHAUSTED: more
 * bytes than there are addresses. */
rv_code rv_sample_column_fill(rv_sample_column *out, const rv_trajectory_column *column, int64_t length, bool squeezed,
                              size_t num_items, rv_error *err);

#endif
