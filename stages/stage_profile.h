/* SPDX-License-Identifier: Apache-2.0
 *
 * --profile: writes a stage's profile (engine/graph/profile.h). See lf_stage.profile in stage.h for
 * the place.
 */
#ifndef LF_STAGES_STAGE_PROFILE_H
#define LF_STAGES_STAGE_PROFILE_H

#include "engine/base/opt.h"
#include "engine/graph/profile.h"

/* LF_EINVAL when neither metrics nor out says where to write it. */
int lf_stage_profile_begin(lf_profile **out, const lf_optset *o, lf_err *err);
/* Write what ran and destroy p, whatever rc the run had (p NULL: nothing happens). Returns rc, or
 * the failure to write. */
int lf_stage_profile_end(lf_profile *p, const lf_optset *o, int rank, int rc, lf_err *err);

#endif
