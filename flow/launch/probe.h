/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank of a probe: `loong-flow launch --probe --ranks N` under the launcher in question.
 */
#ifndef LF_FLOW_LAUNCH_PROBE_H
#define LF_FLOW_LAUNCH_PROBE_H

#include "engine/base/err.h"

/* Join through PMIx, find the job to have `ranks` ranks, exchange a word with all. 0, or negative
 * with the reason. */
int lf_launch_be_probed(int ranks, lf_err *err);

#endif
