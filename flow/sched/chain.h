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

/* Is this stage a chain of links? The stage's own `chain` decides, else that of the site; `auto`
 * requeues where the scheduler can. resources: of the stage. site: of the plan document. can: of
 * the submitter (LF_CAN_). */
bool lf_chain_by_links(const lf_resources *resources, const lf_site *site, unsigned can);

/* How long a stage runs by what it costs and a rate in FLOP/s of this kind;
 * 0 when either is unknown. */
double lf_chain_estimate_s(const lf_cost *cost, double rate);

/* The number of jobs of an attempt:
 *   1                    where it is no chain of links
 *   links                else, where the key is given
 *   1                    else, without a time limit, or where one limit is enough
 *   2                    where the stage's estimate_s is not known (0)
 *   ceil(1.25 e / u) + 1 otherwise, at most LF_CHAIN_MOST; e is estimate_s, and u is the part of
 *                        time_limit_s before the stage is asked to stop
 * It is never more than max_segments and max_walltime allow. stage: of the plan document.
 * resources: what the attempt asks for. */
int lf_chain_count(const lf_doc_stage *stage, const lf_resources *resources, const lf_site *site,
                   unsigned can);

/* Shrinks the links behind the job my_id, for its wrapper; without links it does nothing. A failure
 * does no harm: the links then wait for what they had asked for. job: job.N.json. resources: of the
 * attempt. */
int lf_chain_shrink_rest(const struct lf_job_rec *job, const char *my_id,
                         const lf_resources *resources, const lf_site *site, lf_err *err);

#endif
