/* SPDX-License-Identifier: Apache-2.0
 *
 * Which PBS is there, and jobs made small: what both the submitter and the wrapper inside a job
 * need.
 */
#include "config.h"

#include "flow/sched/pbs.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "flow/record/record.h"
#include "flow/sched/sched.h"

#define LOOK_TIMEOUT_S 20 /* `qstat --version` asks no server */
#define ASK_AGAIN      20 /* ids of one qalter call */

int lf_pbs_detect(enum lf_pbs_flavour *out, const lf_site *site, lf_err *err)
{
    lf_sched_out o;
    char said[200];
    int rc = lf_sched_runv(&o, site, LOOK_TIMEOUT_S, err, "qstat", "--version", (char *)NULL);
    if (rc < 0)
        return rc;
    enum lf_pbs_flavour f =
        o.missing || o.timed_out ? LF_PBS_NONE : lf_pbs_flavour_of(o.out.data, o.err.data);
    if (o.missing)
        rc = lf_fail(err, LF_EINVAL, "there is no qstat on PATH, so no PBS on this machine");
    else if (o.timed_out)
        rc = lf_fail(err, LF_ECOMM, "qstat --version did not answer in time");
    else if (f == LF_PBS_NONE)
        rc = lf_fail(err, LF_EINVAL,
                     "this qstat is neither of PBS nor of Torque: --version said \"%s\"",
                     lf_sched_said(said, sizeof said, &o));
    else
        *out = f;
    lf_sched_out_fini(&o);
    return rc;
}

static int shrink_some(const lf_texts *ids, size_t from, bool shorter, const lf_site *site,
                       enum lf_pbs_flavour f, lf_err *err)
{
    static const char *const pbs[] = {"qalter",     "-l", "select=1:ncpus=1", "-l",
                                      "place=free", "-l", "walltime=0:01:00"};
    static const char *const torque[] = {"qalter", "-l", "nodes=1:ppn=1", "-l", "walltime=0:01:00"};
    const char *const *words = f == LF_PBS_TORQUE ? torque : pbs;
    size_t n =
        (f == LF_PBS_TORQUE ? sizeof torque / sizeof torque[0] : sizeof pbs / sizeof pbs[0]) -
        (shorter ? 0 : 2);
    char said[400];
    lf_sched_out o;
    lf_texts argv = {.n = 0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = lf_texts_add(&argv, words[i], err);
    for (size_t i = from; rc == 0 && i < ids->n && i < from + ASK_AGAIN; i++)
        rc = lf_texts_add(&argv, ids->v[i], err);
    if (rc == 0)
        rc = lf_sched_run(&o, &argv, site, 0, err);
    lf_texts_fini(&argv);
    if (rc < 0)
        return rc;
    if (o.missing || o.timed_out || (o.exit != 0 && !lf_pbs_only_gone(o.err.data)))
        rc = lf_fail(err, o.exit > 0 ? lf_pbs_refusal(o.err.data) : LF_ECOMM, "qalter: %s",
                     o.timed_out ? "no answer"
                     : o.missing ? "there is none on PATH"
                                 : lf_sched_said(said, sizeof said, &o));
    lf_sched_out_fini(&o);
    return rc;
}

int lf_pbs_shrink(const lf_texts *ids, long long limit_s, const lf_site *site, lf_err *err)
{
    enum lf_pbs_flavour f = LF_PBS_NONE;
    int rc = ids->n > 0 ? lf_pbs_detect(&f, site, err) : 0;
    for (size_t i = 0; rc == 0 && i < ids->n; i += ASK_AGAIN)
        rc = shrink_some(ids, i, limit_s == 0 || limit_s > 60, site, f, err);
    return rc;
}
