/* SPDX-License-Identifier: Apache-2.0
 *
 * A PBS job seen from inside (OpenPBS, PBS Pro, Torque). There is no variable and no command that
 * tells when it ends: the limit is read from the job's resources and counted from our own start.
 * Nothing can be put back.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/job/jobside.h"
#include "flow/sched/pbs.h"
#include "flow/sched/sched.h"

#define PROLOGUE_MOST_S 900.0 /* from the job's start to the wrapper's: site prologues, modules */

/* This job alone; nothing when the server does not answer or does not know it. */
static lf_sched_jobs own_entry(lf_jobside *j)
{
    lf_sched_out o;
    lf_sched_jobs jobs = {0};
    if (lf_sched_runv(&o, j->site, j->timeout_s, NULL, "qstat", "-f", j->id, (char *)NULL) == 0) {
        /* Both families print the same here; they differ in how a job ended, and this one has
         * not. */
        if (o.exit == 0 && lf_pbs_parse_full(&jobs, o.out.data, LF_PBS_OPENPBS, NULL) < 0)
            lf_sched_jobs_fini(&jobs);
        lf_sched_out_fini(&o);
    }
    return jobs;
}

/* The limit counts from the job's start, which is before ours. That is told in the server's time:
 * where its clock and ours do not agree, our own start has to do. */
static double pbs_end(lf_jobside *j)
{
    lf_sched_jobs jobs = own_entry(j);
    double start = jobs.n > 0 ? jobs.v[0].t_start : 0, end = jobs.n > 0 ? jobs.v[0].t_end : 0;
    int64_t limit = start > 0 && end > start ? (int64_t)(end - start) : 0;
    lf_sched_jobs_fini(&jobs);
    const char *env = getenv("PBS_WALLTIME"); /* Torque, in seconds */
    if (limit <= 0 && j->end <= 0 && env != NULL)
        lf_parse_i64(&limit, env, NULL);
    if (limit <= 0)
        return 0;
    double before = j->t_start - start;
    return j->t_start + (double)limit - (before > 0 && before < PROLOGUE_MOST_S ? before : 0);
}

static enum lf_jobside_state pbs_state(lf_jobside *j)
{
    lf_sched_jobs jobs = own_entry(j);
    const char *word = jobs.n > 0 ? jobs.v[0].word : NULL;
    enum lf_jobside_state st = word == NULL     ? LF_JOBSIDE_UNKNOWN
                               : word[0] == 'R' ? LF_JOBSIDE_RUNNING
                                                : LF_JOBSIDE_ENDING;
    if (word != NULL)
        snprintf(j->state_word, sizeof j->state_word, "%s", word);
    lf_sched_jobs_fini(&jobs);
    return st;
}

const lf_jobside_ops lf_jobside_pbs = {
    .name = "pbs", .can_requeue = false, .end_time = pbs_end, .state = pbs_state};
