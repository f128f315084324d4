/* SPDX-License-Identifier: Apache-2.0
 *
 * How the segments of a stage follow each other when one job is not long enough.
 *
 *   requeue  the wrapper puts its own job back into the queue, under its id (SLURM)
 *   links    several jobs are submitted beforehand, link k + 1 with "afterany" on link k; the next
 *            stage waits with "afterok" for the last one. A link that finds its stage done ends
 *            with 0 at once, one whose stage failed for good ends with 1, and otherwise it
 *            continues from the checkpoint. Where users may not requeue (PBS, Torque) this is the
 *            only way.
 *
 * Links that are left over when a stage has ended are made as small as the scheduler allows (one
 * core, one minute), so that the next stage is not kept waiting for the nodes that they had asked
 * for. They are never deleted and their dependencies are never changed: on PBS both delete the jobs
 * that wait for them.
 */
#ifndef LF_FLOW_CHAIN_H
#define LF_FLOW_CHAIN_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/record/attempt.h"
#include "flow/record/doc.h"

#define LF_CHAIN_MOST 50 /* links of one stage, where `links` says nothing */

/* Do links carry this stage? resources: of the stage; site: of the plan document; can: of the
 * submitter (LF_CAN_). The stage's `chain` before the site's; auto: requeue where the scheduler
 * can. */
bool lf_chain_by_links(const lf_resources *resources, const lf_site *site, unsigned can);

/* How long a stage runs by what it costs and a rate in FLOP/s of this kind;
 * 0 when either is unknown. */
double lf_chain_estimate_s(const lf_cost *cost, double rate);

/* How many jobs an attempt is. 1 without links. With them `links` when it is given; otherwise from
 * the stage's "estimate_s" (0 or missing: unknown) and time_limit_s: as many as the estimate with a
 * quarter on top needs of a limit's usable part, and a spare one; with an unknown estimate 2; 1
 * where one limit is enough or there is none. Never more than max_segments and max_walltime allow,
 * nor than LF_CHAIN_MOST. stage: of the plan document; resources: with "time_limit_s" and "grace_s"
 * beside. */
int lf_chain_count(const lf_doc_stage *stage, const lf_resources *resources, const lf_site *site,
                   unsigned can);

/* For the wrapper of the job my_id: shrink the links behind it. job: job.N.json; resources: of the
 * attempt. Nothing is done where there are none. Failing is no harm: they then wait for what they
 * had asked for. */
int lf_chain_shrink_rest(const struct lf_job_rec *job, const char *my_id,
                         const lf_resources *resources, const lf_site *site, lf_err *err);

#endif
