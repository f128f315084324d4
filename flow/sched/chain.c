/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains of links: how many, and what becomes of those that are not needed.
 */
#include "config.h"

#include "flow/sched/chain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "flow/record/record.h"
#include "flow/sched/pbs.h"
#include "flow/sched/sched.h"
#include "flow/sched/submit.h"

bool lf_chain_by_links(const lf_resources *resources, const lf_site *site, unsigned can)
{
    const char *way = resources->chain != NULL ? resources->chain : "auto";
    if (strcmp(way, "auto") == 0)
        way = site->chain != NULL ? site->chain : "auto";
    if ((can & LF_CAN_DEPEND) == 0)
        return false;
    return strcmp(way, "links") == 0 || (can & LF_CAN_REQUEUE) == 0;
}

double lf_chain_estimate_s(const lf_cost *cost, double rate)
{
    double flops = cost->flops_per_step.v, steps = cost->steps.v;
    return rate > 0 && flops > 0 && steps > 0 ? flops * steps / rate : 0;
}

/* What is left of a limit for work: the stage is asked to stop `grace` before it. */
static double usable_s(const lf_resources *resources)
{
    double limit = (double)resources->time_limit_s.v, grace = (double)resources->grace_s.v;
    return grace < limit / 2 ? limit - grace : limit / 2;
}

static int wanted(const lf_resources *resources, double estimate_s)
{
    if (resources->time_limit_s.v <= 0)
        return 1;
    if (estimate_s <= 0)
        return 2;
    double n = ceil(1.25 * estimate_s / usable_s(resources));
    return n > LF_CHAIN_MOST ? LF_CHAIN_MOST : n > 1 ? (int)n + 1 : 1;
}

int lf_chain_count(const lf_doc_stage *stage, const lf_resources *resources, const lf_site *site,
                   unsigned can)
{
    if (!lf_chain_by_links(resources, site, can))
        return 1;
    const lf_int *given = &resources->links;
    int n = given->given ? (int)given->v : wanted(resources, stage->estimate_s.v);
    if (!given->given && n > LF_CHAIN_MOST)
        n = LF_CHAIN_MOST;
    int64_t most = resources->max_segments.v;
    if (most > 0 && n > most)
        n = (int)most;
    double total = (double)resources->max_walltime.v;
    double limit = (double)resources->time_limit_s.v;
    if (total > 0 && limit > 0 && n > ceil(total / limit))
        n = (int)ceil(total / limit);
    return n > 1 ? n : 1;
}

/* ---- links that are left over ---- */

static int shrink_slurm(const lf_texts *ids, const lf_site *site, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ids->n; i++) {
        char job[96], said[300];
        lf_sched_out o;
        snprintf(job, sizeof job, "JobId=%.80s", ids->v[i]);
        rc = lf_sched_runv(&o, site, 0, err, "scontrol", "update", job, "TimeLimit=1",
                           "NumNodes=1-1", (char *)NULL);
        if (rc < 0)
            return rc;
        if (o.missing || o.timed_out || o.exit != 0)
            rc =
                lf_fail(err, LF_ECOMM, "scontrol update: %s", lf_sched_said(said, sizeof said, &o));
        lf_sched_out_fini(&o);
    }
    return rc;
}

/* "123.server" and "123" are one job of PBS; SLURM's ids have no dot. */
static bool same_job(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");
    return n > 0 && n == strcspn(b, ".") && memcmp(a, b, n) == 0;
}

int lf_chain_shrink_rest(const struct lf_job_rec *job, const char *my_id,
                         const lf_resources *resources, const lf_site *site, lf_err *err)
{
    const char *backend = job->backend;
    lf_texts rest = {0};
    bool behind = false;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < job->ids.n; i++) {
        if (behind)
            rc = lf_texts_add(&rest, job->ids.v[i], err);
        behind = behind || same_job(job->ids.v[i], my_id);
    }
    if (rc == 0 && backend != NULL && strcmp(backend, "slurm") == 0)
        rc = shrink_slurm(&rest, site, err);
    else if (rc == 0 && backend != NULL && strcmp(backend, "local") != 0)
        rc = lf_pbs_shrink(&rest, resources->time_limit_s.v, site, err);
    lf_texts_fini(&rest);
    return rc;
}
